"""The timer that ends silent connections, without a network.

What rounding leaves of a time to live must not keep a broker busy.
"""

import math

import pytest

from broker.stomp.connection import StompConnection


class Loop:
    """A clock that stands, and what it was asked for."""

    def __init__(self, now):
        self.now = now
        self.asked = []

    def time(self):
        return self.now

    def call_later(self, delay, callback, *arguments):
        self.asked.append((delay, callback, arguments))


def connection(loop, heard, ttl_s):
    made = StompConnection.__new__(StompConnection)
    made._loop, made._heard, made._ttl_s = loop, heard, ttl_s
    made._reading, made.closing, made._ttl_timer = True, False, None
    return made


@pytest.mark.parametrize("rest_s", [1e-10, 1e-7, 5e-4])
def test_a_timer_that_comes_a_hair_early_is_set_for_a_time_that_passes(rest_s):
    """A clock of some days' uptime cannot even show 1e-12 s more.

    A loop whose time stands still would call back for ever.
    """
    ttl_s, heard = 2.0, 99_375.1
    loop = Loop(heard + ttl_s - rest_s)
    connection(loop, heard, ttl_s)._check_life()
    (delay, callback, arguments) = loop.asked[0]
    assert delay >= 0.001
    assert callback.__name__ == "_check_life"
    assert not arguments


def test_a_connection_that_was_heard_is_looked_at_when_its_time_to_live_would_pass():
    loop = Loop(101.5)
    connection(loop, 100.0, 2.0)._check_life()
    assert math.isclose(loop.asked[0][0], 0.5)


def test_silence_of_a_whole_time_to_live_gets_one_more_turn_before_the_end():
    loop = Loop(102.0)
    connection(loop, 100.0, 2.0)._check_life()
    assert loop.asked[0][2] == (True,)
