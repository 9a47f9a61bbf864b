"""What the rows of monitor, nemesis and harness tell, and what follows for the end of messages."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from checker_rows import MS, Row, S, finished, o, phase, table
from test_findings import role

from checkers.facts import Facts, gather, read
from checkers.schema import COLUMNS, HARNESS, MONITOR, NEMESIS

KINDS = (
    "phases", "roles", "replication", "takeovers", "views", "faults", "restarts", "closed", "readings",
)  # fmt: skip


def whole(rows: list[Row]) -> list[Row]:
    return [dict.fromkeys(COLUMNS) | row for row in rows]


def indexes(facts: Facts) -> dict[str, list[int]]:
    found = {name: [row["index"] for row in getattr(facts, name)] for name in KINDS}
    return {name: at for name, at in found.items() if at}


def seen(process: int, f: str, type_: str = "info", **columns: object) -> Row:
    return o(3, process, type_, f, **columns)


NOTED: dict[str, tuple[Row, str | None]] = {
    "a phase": (seen(HARNESS, "phase", value="drain"), "phases"),
    "no phase of the monitor": (seen(MONITOR, "phase", value="drain"), None),
    "a role": (seen(MONITOR, "role", broker="a1", role="live"), "roles"),
    "no role of the harness": (seen(HARNESS, "role", broker="a1", role="live"), None),
    "no role of nobody": (seen(MONITOR, "role", role="live"), None),
    "a takeover": (seen(MONITOR, "takeover", broker="a1", node_id="A"), "takeovers"),
    "no takeover of the harness": (seen(HARNESS, "takeover", broker="a1", node_id="A"), None),
    "a state of replication": (seen(MONITOR, "replication", broker="a1", value="replicated"), "replication"),
    "none of the harness": (seen(HARNESS, "replication", broker="a1", value="replicated"), None),
    "a view": (seen(HARNESS, "view", "ok", broker="a1", value="{}"), "views"),
    "no view of the monitor": (seen(MONITOR, "view", "ok", broker="a1", value="{}"), None),
    "no changed view": (seen(MONITOR, "view-change", broker="a1", value="{}"), None),
    "a restart": (seen(HARNESS, "restart", broker="a1"), "restarts"),
    "no restart of nobody": (seen(HARNESS, "restart"), None),
    "no restart of the monitor": (seen(MONITOR, "restart", broker="a1"), None),
    "a fault": (seen(NEMESIS, "kill"), "faults"),
    "a fault whose kind has another meaning": (seen(NEMESIS, "browse", "ok", broker="a1"), "faults"),
    "a store that was read": (seen(HARNESS, "browse", "ok", broker="a1"), "readings"),
    "no message in a store": (seen(HARNESS, "browse", "ok", message=1, queue="q", broker="a1"), None),
    "no body in a store that cannot be read": (
        seen(HARNESS, "browse", "ok", queue="q", broker="a1"), None),
    "a store that could not be read": (seen(HARNESS, "browse", broker="a1"), "closed"),
    "one that failed": (seen(HARNESS, "browse", "fail", broker="a1"), "closed"),
    "no message of it": (seen(HARNESS, "browse", message=1, queue="q", broker="a1"), None),
    "nothing else that was read": (seen(HARNESS, "restart", "ok"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_observers_note(name):
    row, kind = NOTED[name]
    expected = {} if kind is None else {kind: [3]}
    assert indexes(gather(whole([row]))) == expected
    if "queue" not in row:
        assert indexes(read(table([row]), {0: 9})[0]) == expected


def test_control_rows_of_each_run_are_read_in_order():
    first = table([phase(5, "browse"), phase(2, "drain"), seen(1, "receive", queue="q")])
    second = table([phase(7, "heal"), *[seen(1, "receive", queue="r")] * 2])
    runs = [
        part.append_column("run", pa.array([n] * len(part), pa.int32()))
        for n, part in enumerate((first, second))
    ]
    facts = read(pa.concat_tables(runs[::-1]), {0: 20, 1: 30, 2: 40})
    assert {run: indexes(one) for run, one in facts.items()} == {
        0: {"phases": [2, 5]}, 1: {"phases": [7]}, 2: {},
    }  # fmt: skip
    assert [one.last_ns for one in facts.values()] == [20, 30, 40]
    assert [dict(facts[run].receives) for run in range(3)] == [{"q": 1}, {"r": 2}, {}]
    assert [facts[run].count("phase", "info") for run in range(3)] == [2, 1, 0]
    assert facts[0].count("phase", "ok") == facts[0].count("commit", "ok") == 0


def test_rows_without_a_run_are_of_one():
    (facts,) = read(table([phase(5, "drain"), seen(1, "receive", queue="q")]), {0: 20}).values()
    assert (indexes(facts), facts.receives["q"], facts.count("receive", "info")) == ({"phases": [5]}, 1, 1)


def sent(index: int, type_: str, f: str = "send", broker: str | None = "a1") -> Row:
    return o(index, 1, type_, f, 1, broker=broker)


def test_who_took_or_delivered_a_message_and_until_when_some_was_sent():
    for type_, f, took, until in (
        ("ok", "send", {"a1"}, 4), ("info", "send", {"a1"}, -1), ("fail", "send", set(), -1),
        ("ok", "deliver", {"a1"}, -1), ("ok", "ack", set(), -1), ("invoke", "send", set(), -1),
    ):  # fmt: skip
        facts = gather(whole([sent(4, type_, f)]))
        assert (facts.took, facts.sent_until) == (took, until), (type_, f)
    facts = gather(whole([sent(4, "ok"), sent(6, "ok", broker=None), sent(8, "info")]))
    assert (facts.took, facts.sent_until, facts.last_ns) == ({"a1"}, 6, 8 * MS)
    assert gather(whole([sent(4, "ok"), o(2, 1, "invoke", "begin")])).last_ns == 4 * MS
    assert dict(gather(whole([seen(1, "receive", queue="q")])).receives) == {"q": 1}


def test_whether_transactions_were_ended():
    assert not gather(whole([sent(1, "ok")])).transactions
    for f in ("commit", "abort"):
        assert gather(whole([o(1, 1, "invoke", f, transaction=1)])).transactions


# ------------------------------------------------------------------------------------------ the end


def test_the_drain_begins_with_the_first_row_of_its_phase_and_is_read_from_the_first_browse():
    facts = gather(whole([phase(3, "heal"), phase(4, "drain"), phase(5, "drain"), phase(6, "browse"),
                          phase(8, "browse")]))  # fmt: skip
    assert (facts.drained_ns, facts.drained_from, facts.browsed_from) == (4 * MS, 5, 6)
    facts = gather(whole([phase(3, "heal")]))
    assert (facts.drained_ns, facts.drained_from, facts.browsed_from) == (-1, 2**32 - 1, None)


@pytest.mark.parametrize(
    ("redelivery_s", "browsed_s", "waiting"),
    [(0, 10, False), (5, 15.4, True), (5, 15.6, False), (5, None, True), (0, None, False)],
)
def test_a_drain_waits_for_what_is_due_again(redelivery_s, browsed_s, waiting):
    rows = [phase(3, "drain", time=10 * S)]
    rows += [] if browsed_s is None else [phase(4, "browse", time=int(browsed_s * S))]
    assert gather(whole(rows)).waiting(redelivery_s) is waiting


A_TAKES = sent(1, "ok")
UNDECIDED: dict[str, tuple[list[Row], str | None, str | None]] = {
    "the drain was not reached": ([A_TAKES], *["the drain was not reached"] * 2),
    "the reading did not end": (
        [A_TAKES, *finished(10)[:-1]], *["the stores were not looked into to the end"] * 2),
    "all was read": ([A_TAKES, *finished(10)], None, None),
    "a store could not be read": (
        [A_TAKES, o(9, -3, "info", "browse", broker="b1"), *finished(10)],
        "the stores of b1 could not be read", None),
    "a store without a name could not be read": (
        [A_TAKES, o(9, -3, "info", "browse", error="no answer"), *finished(10)],
        "the stores of a broker (no answer) could not be read", None),
    "it was read in another attempt": (
        [A_TAKES, o(9, -3, "info", "browse", broker="a1"), *finished(10)], None, None),
    "it was read before the end only": (
        [A_TAKES, o(8, -3, "ok", "browse", broker="b1"), o(9, -3, "info", "browse", broker="b1"),
         *finished(10)], "the stores of b1 could not be read", None),
    "no store was read": ([A_TAKES, *finished(10, read=())], "no store was read", None),
    "a store that took a message was not read": (
        [sent(1, "ok", broker="b1"), *finished(10)], "the stores of b1 were not read", None),
    "two were not": (
        [sent(1, "ok", broker="c1"), sent(2, "ok", broker="b1"), *finished(10)],
        "the stores of b1, c1 were not read", None),
    "a live broker's store was not read": (
        [A_TAKES, *role(3, "b1", "live", 2, 3), *finished(10)], "the stores of b1 were not read", None),
    "a backup's need not be": ([A_TAKES, *role(3, "b1", "backup", 2, 3), *finished(10)], None, None),
    "another of its node was read": (
        [A_TAKES, *role(2, "a1", "live", 1, 2, "A"), *role(3, "b1", "live", 2, 3, "A"), *finished(10)],
        None, None),
    "another of another node was read": (
        [A_TAKES, *role(2, "a1", "live", 1, 2, "A"), *role(3, "b1", "live", 2, 3, "B"), *finished(10)],
        "the stores of b1 were not read", None),
    "none of the brokers has a node": (
        [A_TAKES, *role(2, "a1", "live", 1, 2, None), *role(3, "b1", "live", 2, 3, None), *finished(10)],
        "the stores of b1 were not read", None),
    "who took its node over was read": (
        [A_TAKES, *role(3, "b1", "live", 2, 3, "B"),
         o(4, -2, "info", "takeover", broker="a1", node_id="B", time_low=0, time_high=4 * MS), *finished(10)],
        None, None),
    "who took its node over was not read": (
        [A_TAKES, *role(3, "b1", "live", 2, 3, "B"),
         o(4, -2, "info", "takeover", broker="c1", node_id="B", time_low=0, time_high=4 * MS), *finished(10)],
        "the stores of b1 were not read", None),
    "all was drained, and no store read": (
        [A_TAKES, phase(9, "drained"), *finished(10, read=())], None, None),
    "drain, reading and end are one moment": (
        [A_TAKES, *(phase(n, value, time=10 * MS) for n, value in enumerate(("drain", "browse", "end"), 10))],
        None, None),
    "the end is not": (
        [A_TAKES, phase(10, "drain"), phase(11, "browse", time=10 * MS), phase(12, "end")],
        "no store was read", None),
    "the drain is not": (
        [A_TAKES, phase(10, "drain"), phase(11, "browse"), phase(12, "end", time=11 * MS)],
        "no store was read", None),
    "there was no drain": (
        [A_TAKES, phase(11, "browse"), phase(12, "end", time=11 * MS)], "no store was read", None),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_became_of_messages_is_unknown_where(name):
    rows, missing, nothing_missing = UNDECIDED[name]
    facts = gather(whole(rows))
    assert (facts.undecided(), facts.undecided(missing=False)) == (missing, nothing_missing)


def test_what_was_sent_while_stores_were_read_may_be_in_none():
    reason = "messages were sent when the stores were being read already"
    for index, expected in ((1, None), (11, None), (13, reason)):
        rows = [sent(index, "ok"), *finished(10)]
        assert gather(whole(sorted(rows, key=lambda row: row["index"]))).unlooked == expected
    assert gather(whole([sent(3, "ok")])).unlooked is None


def test_receives_of_unknown_outcome_may_have_taken_what_is_missing():
    facts = gather(whole([seen(1, "receive", queue="q")] * 2))
    assert facts.taken({"q": 2, "r": 1}) == {"q"}
    assert facts.taken({"q": 3}) == frozenset()
    assert facts.certain({"q": 3, "r": 1}) == 2
    assert facts.certain({"q": 1}) == 0


def test_what_is_broken_of_a_subject_is_forgotten():
    rows = [
        *role(1, "a1", "live", 0, 1), seen(MONITOR, "takeover", broker="a1", node_id="A"),
        seen(MONITOR, "replication", broker="a1", value="replicated"), seen(HARNESS, "view", broker="a1"),
    ]  # fmt: skip
    facts = gather(whole(rows))
    facts.forget("stores")
    assert [*indexes(facts)] == ["roles", "replication", "takeovers", "views"]
    facts.forget("roles")
    assert [*indexes(facts)] == ["views"]
    facts.forget("views")
    assert indexes(facts) == {}


# --------------------------------------------------------------------------------------- the faults


def fault(index: int, f: str, label: str, type_: str = "info", **value: object) -> Row:
    return o(index, NEMESIS, type_, f, value=json.dumps({"label": label, "bit": True, **value}))


def test_spans_of_faults_begin_where_they_were_seen_and_are_told_in_that_order():
    rows = [
        fault(1, "pause", "late", "invoke"), fault(2, "kill", "never seen", "invoke"),
        fault(3, "stop", "early"), fault(5, "pause", "late"), fault(6, "heal:pause", "late", "invoke"),
        fault(8, "heal:stop", "early"),
    ]  # fmt: skip
    spans = [
        (one.kind, one.label, one.bit, *(None if at is None else at // MS for at in
         (one.asked, one.begin, one.healing, one.end)))
        for one in gather(whole(rows)).spans()
    ]  # fmt: skip
    assert spans == [("stop", "early", True, 3, 3, 8, 8), ("pause", "late", True, 1, 5, None, None)]


def test_a_backup_is_missing_while_no_other_row_says_so():
    def state(index: int, value: str | None, broker: str | None = "a1", f: str = "replication") -> Row:
        return o(
            index, MONITOR, "info", f, broker=broker, value=value, time_low=index * S - S,
            time_high=index * S,
        )  # fmt: skip

    def spans(*rows: Row) -> dict[str, list[tuple[int, int | None]]]:
        return gather(whole([*rows])).unprotected()

    gone = state(3, "unreplicated")
    assert spans(gone, state(6, "replicated")) == {"a1": [(3 * S, 5 * S)]}
    assert spans(gone, state(6, None, f="role")) == {"a1": [(3 * S, 5 * S)]}
    assert spans(gone, state(6, "replicated", "b1")) == {"a1": [(3 * S, None)]}
    assert spans(state(6, "replicated"), gone) == {"a1": [(3 * S, 5 * S)]}
    assert spans(gone, state(4, "replicated")) == {}
    assert spans(state(3, "unreplicated", None)) == {}
