"""How long a fault kept clients from sending.

Told of the whole cluster, and of the pair and the client that it kept longest.
"""

import pyarrow as pa
from checker_rows import S, o, table

from checkers import facts, statistics
from checkers.rows import PlaceTable, from_table
from checkers.verdict import LongestPause


def sends(producer, broker, moments_s):
    return [
        row
        for moment in moments_s
        for row in (
            o(0, producer, "invoke", "send", 1, producer=producer, time=int(moment * S)),
            o(0, producer, "ok", "send", 1, producer=producer, broker=broker, time=int(moment * S) + 1),
        )
    ]


def asked(producer, moment_s):
    return o(0, producer, "invoke", "send", 2, producer=producer, time=int(moment_s * S))


def role(broker, node_id, moment_s=0):
    at = int(moment_s * S)
    return o(
        0, -2, "info", "role", broker=broker, node_id=node_id, role="live", time=at, time_low=at, time_high=at
    )


def fault(begin_s, end_s):
    value = '{"label": "x", "bit": true}'
    return [
        o(0, -1, "info", "kill", value=value, time=int(begin_s * S)),
        o(0, -1, "info", "heal:kill", value=value, time=int(end_s * S)),
    ]


def recovery(*rows):
    numbered = [{**row, "index": n} for n, row in enumerate(sorted(rows, key=lambda row: row["time"]))]
    history = table(numbered)
    known = facts.read(history, {0: numbered[-1]["time"]})[0]
    halves = [history.slice(0, len(history) // 2), history.slice(len(history) // 2)]
    whole = statistics.merged(statistics.figures(from_table(pa.table(half), PlaceTable())) for half in halves)
    return statistics.read(len(history), whole, known).faults[0]


def tenths(begin_s, end_s):
    return [n / 10 for n in range(int(begin_s * 10), int(end_s * 10))]


ROLES = (role("a1", "A"), role("a2", "A"), role("b1", "B"))


def test_a_pair_that_was_away_for_a_second_is_told_though_another_went_on():
    found = recovery(
        *ROLES,
        *fault(2, 3),
        *sends(1, "a1", tenths(0, 2)),
        *sends(1, "a2", tenths(3, 5)),
        *sends(2, "b1", tenths(0, 5)),
    )
    assert found.recovery_s <= 0.11
    assert found.pair == LongestPause(of="a1+a2", seconds=1.0)
    assert found.client == LongestPause(of="producer 1", seconds=1.0)


def test_who_never_could_send_again_was_kept_longest():
    found = recovery(
        *ROLES,
        *fault(2, 3),
        *sends(1, "a1", tenths(0, 2)),
        asked(1, 2.5),
        *sends(2, "b1", tenths(0, 5)),
    )
    assert found.pair == LongestPause(of="a1+a2", seconds=None)
    assert found.client == LongestPause(of="producer 1", seconds=None)


def test_who_had_nothing_more_to_send_was_kept_from_nothing():
    found = recovery(
        *ROLES,
        *fault(2, 3),
        *sends(1, "a1", tenths(0, 1)),
        *sends(2, "a1", [*tenths(0, 2), *tenths(3, 5)]),
    )
    assert found.client == LongestPause(of="producer 2", seconds=1.0)


def test_a_client_that_changed_brokers_paused_less_than_its_pair():
    found = recovery(
        *ROLES,
        *fault(2, 3),
        *sends(1, "a1", tenths(0, 2)),
        *sends(1, "b1", tenths(2.5, 5)),
        *sends(3, "a2", [1.0, 4.0]),
    )
    assert found.pair == LongestPause(of="a1+a2", seconds=2.0)
    assert found.client == LongestPause(of="producer 3", seconds=2.0)


def test_who_had_not_sent_before_it_was_not_kept_by_it():
    found = recovery(
        *ROLES,
        *fault(2, 3),
        *sends(1, "a1", [*tenths(0, 2), *tenths(3, 6)]),
        *sends(4, "b1", [2.5, 5.0]),
    )
    assert found.pair == LongestPause(of="a1+a2", seconds=1.0)
    assert found.client == LongestPause(of="producer 1", seconds=1.0)


def test_nobody_sent_after_it():
    found = recovery(*ROLES, *fault(2, 3), *sends(1, "a1", tenths(0, 2)))
    assert found.recovery_s is None
