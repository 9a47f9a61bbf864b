"""Each expectation about connections is met by a history in which it happened, and by no other."""

import pytest
from test_expectations import fault, phase, row, seen

from harness.claims.scenarios.client_expectations import (
    TIMED_OUT,
    Connects,
    PromptlyConnects,
    Recovers,
    Redirected,
)


def connect(client, broker, second, type_="ok"):
    asked = row(client, "invoke", "connect", second)
    return [asked, row(client, type_, "connect", second, broker=broker)]


CONNECTED = [*connect(1, "a1", 0), *connect(2, "a1", 1), fault("kill-1", second=2)]
DRAIN = [phase("heal", 9), *connect(3, "c1", 10)]


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ([*connect(1, "a1", 3, "fail"), *connect(1, "b1", 4)], ""),
        ([*connect(1, "b1", 4), *connect(2, "c1", 5)], "b1 1, c1 1"),
        ([], "b1 0"),
    ],
)
def test_connections_are_counted_within_the_window(later, words):
    window = ("kill-1", "heal")
    expected = Connects(brokers={"b1": (1, 2)}, window=window)
    assert str(expected) == "of the connections of clients between kill-1 and heal, b1 accepts 1 to 2"
    wrong = expected.wrong(seen(CONNECTED, later, DRAIN))
    assert wrong == (words and f"connections of clients were accepted by {words}")
    assert (
        Connects(brokers={"a1": (2, 2), "b1": (0, 1), "c1": (0, 1)}).wrong(seen(CONNECTED, later, DRAIN))
        == ""
    )


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ([*connect(1, "a1", 3, "fail"), *connect(1, "b1", 4), *connect(5, "c1", 5)], ""),
        ([*connect(1, "b1", 4), *connect(2, "c1", 5)], "1 to b1, 1 to c1"),
        ([*connect(1, "a1", 4)], "1 to a1"),
        ([*connect(4, "b1", 4)], "none"),
    ],
)
def test_clients_of_a_broker_are_followed_to_the_next_one(later, words):
    expected = Redirected(of="a1", to="b1", after="kill-1")
    assert str(expected) == "after kill-1 at least 1 clients of a1 connect again, all of them to b1"
    wrong = expected.wrong(seen(CONNECTED, later, DRAIN))
    assert wrong == (words and f"clients of a1 connected again: {words}")


def test_without_the_fault_nothing_is_shown():
    assert Redirected(of="a1", to="a1", after="kill-2").wrong(seen(CONNECTED, DRAIN)) != ""
    assert Connects(brokers={}, window=("kill-2", "heal")).wrong(seen(CONNECTED, DRAIN)) != ""


def states(client, *passed, since=3):
    return [
        row(client, "info", "state", since + n, value=kind, broker=broker or None)
        for n, (kind, _, broker) in enumerate(state.partition(" ") for state in passed)
    ]


FOUND = ("reached b1", "connected b1", "recovering b1", "recovered b1")
ROUND = ("lost a1", "failed a1", "reached c1", "failed c1")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (states(1, *ROUND, *FOUND), ""),
        (states(1, *ROUND, "failed a1", *FOUND), ""),
        (states(1, *ROUND, *FOUND) + states(2, "lost b1", *FOUND), ""),
        (states(1, "lost a1", "failed a1", *FOUND), "passed through"),
        (states(1, *ROUND, *ROUND[1:], "failed a1", *FOUND), "passed through"),
        (states(1, *ROUND, "failed c1", *FOUND), "passed through"),
        (states(1, *ROUND, *FOUND[1:]), "passed through"),
        (states(1, *ROUND, "given-up"), "passed through"),
        (states(1, *ROUND), "0 clients"),
        (states(1, *ROUND, *FOUND, since=1), "0 clients"),
        (states(1, *ROUND, *FOUND) + states(2, *ROUND, "given-up"), "passed through"),
    ],
)
def test_the_states_of_a_recovery_are_followed_in_their_order(rows, words):
    expected = Recovers(of="a1", tried=("a1", "c1"), to=("b1", "d1"), after="kill-1", rounds=(1, 2))
    assert str(expected) == (
        "after kill-1 at least 1 clients lose a1, try a1, c1 1 to 2 times in vain and recover at b1 or d1"
    )
    wrong = expected.wrong(seen([fault("kill-1", second=2)], rows, [phase("heal", 99)]))
    assert words in wrong
    assert bool(words) == bool(wrong)


@pytest.mark.parametrize(("every_s", "words"), [(4.0, ""), (5.0, "passed through")])
def test_a_client_begins_a_round_at_once_and_one_in_each_interval(every_s, words):
    expected = Recovers(of="a1", tried=("a1", "c1"), to=("b1",), after="kill-1", every_s=every_s)
    assert f"at least 1 times, at once and then once in {every_s:g} s at most, in vain" in str(expected)
    # The second round's failure comes four seconds after the loss.
    wrong = expected.wrong(
        seen([fault("kill-1", second=2)], states(1, *ROUND, "failed a1", *FOUND), [phase("heal", 99)])
    )
    assert words in wrong
    assert bool(words) == bool(wrong)


def test_a_client_that_gives_up_recovers_nowhere():
    expected = Recovers(of="a1", tried=("a1", "c1"), to=(), after="kill-1")
    given_up, found = (
        seen([fault("kill-1", second=2)], states(1, *ROUND, *ending), [phase("heal", 99)])
        for ending in (("given-up",), FOUND)
    )
    assert str(expected).endswith("in vain and give up")
    assert expected.wrong(given_up) == ""
    assert "passed through" in expected.wrong(found)


def test_attempts_to_connect_that_time_out_prove_nothing_of_the_order():
    def attempt(second, error):
        return [
            row(1, "invoke", "connect", second),
            row(1, "fail", "connect", second, broker="b1", error=error),
        ]

    expected = PromptlyConnects()
    assert str(expected) == "no attempts to connect time out"
    refused = seen(CONNECTED, attempt(3, "Connection reset by peer"), DRAIN, attempt(11, TIMED_OUT))
    assert expected.wrong(refused) == ""
    late = seen(CONNECTED, attempt(3, TIMED_OUT), DRAIN)
    assert expected.wrong(late) == "1 attempts to connect timed out"
    assert PromptlyConnects(most=1).wrong(late) == ""
