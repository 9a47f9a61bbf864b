"""From files to a verdict.

What makes it invalid, unknown, or valid, and that every witness shows its finding again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checker_rows import MS, dense, finished, o, phase, table
from test_excuses import ALL as EXCUSES
from test_fates import CASES as FATES
from test_findings import (
    CASES,
    OPTIONS,
    TAKEOVER,
    answer,
    deliver,
    gone,
    kept,
    live,
    role,
    send,
    takeover,
    tidy,
    view,
)
from test_totals import ALL as TOTALS

from checkers import api, part, reference
from checkers.anomaly import ANOMALIES, looked_for, severity
from checkers.arrow_schema import OLDER, SCHEMA
from checkers.source import WITH_MESSAGES

BOUNDS = {"unavailable_bound_s": 10.0, "recovery_bound_s": 10.0}
GOOD = [*send(0, 1), *deliver(5, 1), *answer(7, 1), *finished(90)]


def store(directory: Path, rows) -> Path:
    """As the recorder lays it out: one part, and control."""
    rows = dense(tidy(rows))
    carries = [r["f"] in WITH_MESSAGES and "queue" in r for r in rows]
    history = directory / "history"
    history.mkdir()
    for name, wanted in (("part-00000.parquet", True), ("control.parquet", False)):
        pq.write_table(table([r for r, c in zip(rows, carries, strict=True) if c is wanted]), history / name)
    return directory


def judge(tmp_path, rows, spark=None, **options) -> api.Verdict:
    return api.check(store(tmp_path, rows), api.CheckOptions(**{**BOUNDS, **options}), spark)


def named(verdict: api.Verdict) -> dict[str, api.Finding]:
    return {finding.name: finding for finding in verdict.findings}


def test_a_history_in_which_nothing_is_wrong_is_valid(tmp_path):
    verdict = judge(tmp_path, GOOD)
    assert (verdict.valid, verdict.reasons, verdict.findings) == (True, (), ())
    assert verdict.statistics.rows == 96
    assert verdict.statistics.operations["send"] == {"invoke": 1, "ok": 1}
    assert verdict.statistics.latency["ack"].max_ms == 1.0
    assert api.Verdict.from_json(verdict.to_json()) == verdict


SHOWN = [
    "an acknowledged message that nobody got and no store has is lost",
    "a message in a dead letter store that nobody refused has died early, and is not lost",
    "a message that is given to a session that was asked for after it had expired is delivered expired",
    "a message that is read before it is due is delivered early",
    "a message nobody sent is a phantom",
    "a body that cannot be read is corrupted",
    "a failed send that arrives is an aborted delivery",
    "a delivery after a committed ack is a duplicate",
    "a redelivery to another session without the mark is unflagged",
    "a session proven alive by another message still holds",
    "a group whose holder acks in a transaction is held until its commit",
    "first deliveries of one producer in the wrong sequence are reordered",
    "a session that goes backwards is reordered, redelivered or not",
    "two certain reigns under one node ID are a split brain",
    "a takeover of what its first taker certainly still has is a double",
    "two takeovers under one number had no release between, whenever they were",
    "a demoted broker that answers what was asked later is a zombie",
    "a broker that another has taken over under a higher number is a zombie, whatever its taker is called",
    "brokers that say different things of one node, again and again, have diverged",
    "questions unanswered for longer than the bound are unavailability",
    "a consumer that holds nothing and gets what waits for it only after the bound is starved",
    "a send that is answered with an error of the broker's own is an internal error",
    "operations that still fail after heal and bound are not-recovered",
    "what a dead consumer held, and no store has, is lost after delivery",
    "what a dead consumer held and a store has is stuck",
    "an ack whose commit failed leaves a message owed",
    "an acknowledged message in a main store is resurrected",
    "a message that two owners have, each time they were read, is resurrected",
    "an ack that a broker takes of what that session never got is a phantom",
    "a message that was sent to another queue is looked up there, and is corrupted",
    "a delivery before its commit was asked for reads what is not committed",
    "of a transaction that was committed one message arrives and the other is nowhere",
    "what was put in is missing",
    "what a consumer did not select is not for it",
    "a message that two sessions settled was doubly delivered, even while the first ack was under way",
    "a delivery after the unsubscribe was answered is late",
    "a count that falls within a session fell",
    "what never came before something that was sent later makes its group no FIFO queue",
    "what was in no queue before its commit was asked for is behind what was sent for certain by then",
    "a message that is chosen although a more urgent one is there is an inversion of priorities",
]
ALL = {**CASES, **FATES, **{name: (rows, expected) for name, (rows, _, expected) in TOTALS.items()}}


@pytest.mark.parametrize("case", SHOWN)
def test_a_witness_shows_its_finding_again_and_can_spare_no_row(tmp_path, case):
    rows, expected = ALL[case]
    verdict = judge(tmp_path, rows)
    assert set(named(verdict)) == expected
    for finding in verdict.findings:
        shown = list(finding.witness.rows)
        assert finding.witness.indexes == tuple(r["index"] for r in shown)
        assert finding.name in {i.name for i in reference.find(shown, OPTIONS)}
        wanted = [i for i in reference.find(shown, OPTIONS) if i.name == finding.name]
        for n in range(len(shown)):
            fewer = reference.find(shown[:n] + shown[n + 1 :], OPTIONS)
            assert not set(wanted) <= set(fewer), shown[n]
        assert finding.sentence.endswith(".")
        assert finding.count >= 1


def test_the_cases_above_show_every_kind():
    promised = {"count-stuck"}  # told only of a broker that promises to count
    assert set().union(*(ALL[case][1] for case in SHOWN)) == set(looked_for(OPTIONS)) - promised


BY_SPARK = [
    "an acknowledged message that nobody got and no store has is lost",
    "a message that was sent to another queue is looked up there, and is corrupted",
    "a session proven alive by another message still holds",
    "first deliveries of one producer in the wrong sequence are reordered",
    "two certain reigns under one node ID are a split brain",
    "a demoted broker that answers what was asked later is a zombie",
    "questions unanswered for longer than the bound are unavailability",
    "a consumer that holds nothing and gets what waits for it only after the bound is starved",
]
"""One for each way in which parts are asked, and asked again with what others answered."""


@pytest.mark.spark
@pytest.mark.parametrize("case", BY_SPARK)
def test_spark_says_word_for_word_what_is_said_without_it(spark, tmp_path, case):
    """What is said, and of which rows, the other tests ask without Spark."""

    def said(verdict):
        statistics = msgspec.structs.replace(verdict.statistics, seconds={})
        return msgspec.structs.replace(verdict, statistics=statistics)

    rows, expected = ALL[case]
    here = judge(tmp_path, rows)
    assert expected <= set(named(here))
    assert said(api.check(tmp_path, api.CheckOptions(**BOUNDS), spark)) == said(here)


def test_a_lost_message_is_told_by_its_broker_place_and_time(tmp_path):
    rows = [
        *send(0, 1),
        *deliver(4, 1),
        *send(6, 2, broker="b1"),
        *send(9, 3),
        *deliver(12, 3),
        *finished(90, read=("a1", "b1")),
    ]
    finding = named(judge(tmp_path, rows))["lost"]
    assert finding.details["examples"] == [
        {
            "queue": "q",
            "group": "g",
            "message": 2,
            "index": 6,
            "kind": "never delivered",
            "broker": "b1",
            "position": "middle",
        }
    ]
    assert "acknowledged by b1 at 0.007 s" in finding.sentence
    assert "the middle of its group" in finding.sentence


def test_a_lost_message_of_which_only_the_commit_was_answered_is_told_by_that(tmp_path):
    of = {"digest": 1, "producer": 1, "sequence": 0, "group": "g", "queue": "q"}
    rows = [
        o(0, 1, "invoke", "send", 1, transaction=7, **of),
        o(1, 1, "invoke", "commit", transaction=7),
        o(2, 1, "ok", "commit", transaction=7, broker="b1"),
        *finished(90, read=("a1", "b1")),
    ]
    sentence = named(judge(tmp_path, rows))["lost"].sentence
    assert "sent at 0.000 s in transaction 7 and committed by b1 at 0.002 s, was never delivered" in sentence


@pytest.mark.parametrize(("lost", "position"), [([1], "prefix"), ([3], "tail"), ([1, 2, 3], "whole")])
def test_where_in_its_group_a_message_was_lost(tmp_path, lost, position):
    rows = [row for m in (1, 2, 3) for row in send(m * 4, m)]
    rows += [row for m in (1, 2, 3) if m not in lost for row in deliver(20 + m, m)]
    finding = named(judge(tmp_path, [*rows, *finished(90)]))["lost"]
    assert finding.details["examples"][0]["position"] == position


def test_a_message_lost_after_delivery_says_who_had_it_and_where_in_its_group_it_was(tmp_path):
    rows = [row for m in (1, 2, 3) for row in send(m * 4, m)]
    rows += [
        *deliver(20, 1),
        *answer(21, 1),
        *deliver(23, 2, 2),
        *gone(25, 2),
        *deliver(26, 3),
        *answer(27, 3),
    ]
    finding = named(judge(tmp_path, [*rows, *finished(90)]))["lost"]
    assert finding.details["examples"][0]["kind"] == "after delivery"
    assert "nor delivered again after session 2 had got it at 0.023 s" in finding.sentence
    assert "the middle of its group" in finding.sentence


@pytest.mark.parametrize(("outcome", "both"), [("ok", True), ("info", False)])
def test_a_double_delivery_says_whether_both_acks_were_answered_ok(tmp_path, outcome, both):
    rows = [
        *send(0, 1),
        *send(2, 2),
        *deliver(5, 1),
        *deliver(6, 2),
        *deliver(7, 1, 2, redelivered=True),
        *answer(10, 2, 1),
    ]
    rows += [*answer(12, 1, 2), *answer(14, 1, 1, outcome)]
    finding = named(judge(tmp_path, rows))["double-delivery"]
    assert finding.details["examples"][0]["both_acknowledged"] is both
    assert ("both acks were answered ok" in finding.sentence) is both


def test_both_sides_of_a_split_brain_that_acknowledged_sends_are_named(tmp_path):
    rows = [*TAKEOVER, *send(25, 1), *send(27, 2, broker="a2"), *finished(90)]
    details = named(judge(tmp_path, rows))["split-brain"].details
    assert details["both_acknowledged"] is True
    assert details["messages"] == {"a1": [1], "a2": [2]}


def test_a_zombie_is_told_with_what_fenced_it_how_that_is_known_and_what_it_did_afterwards(tmp_path):
    rows = [
        *live(1, "a1", 0, 1, 3),
        *live(2, "b1", 0, 1, 1, "m"),
        *takeover(8, "b1", 7, 8, 4),
        *send(10, 1),
        *send(12, 2),
    ]
    verdict = judge(tmp_path, rows)
    zombie = named(verdict)["zombie"]
    assert zombie.details["fenced"] == {
        "by": "b1", "how": "takeover", "node_id": "n", "life": 4, "own_life": 3, "low_ns": 7 * MS,
        "high_ns": 8 * MS, "index": 8,
    }  # fmt: skip
    assert zombie.details["acknowledged"] == zombie.count == 2
    assert set(zombie.witness.indexes) == {1, 8, 10, 11}
    assert zombie.sentence == (
        "a1 answered ok to the send of message 1 at 0.011 s, which was requested after b1 certainly had "
        "completed the takeover of node n (since a moment between 0.007 s and 0.008 s; number 4 fences "
        "number 3) "
        "(the first of 2)."
    )


def test_a_demoted_broker_is_told_with_who_was_live_in_its_place(tmp_path):
    rows = [*live(1, "a1", 0, 1, 1), *role(5, "a1", "backup", 4, 5), *live(8, "a2", 7, 8, 2), *send(10, 1)]
    zombie = named(judge(tmp_path, rows))["zombie"]
    fenced = zombie.details["fenced"]
    assert (fenced["by"], fenced["how"], fenced["life"], fenced["own_life"]) == ("a2", "live", 2, 1)
    assert "a2 certainly was live as node n" in zombie.sentence


def test_both_sides_of_a_double_takeover_are_told_with_why_no_release_lies_between(tmp_path):
    rows, _ = CASES["a takeover of what its first taker certainly still has is a double"]
    told = named(judge(tmp_path, rows))["double-takeover"]
    assert [(one["broker"], one["life"]) for one in told.details["takeovers"]] == [("a2", 2), ("a3", 3)]
    assert (told.details["begin_ns"], told.details["end_ns"]) == (10 * MS, 14 * MS)
    assert "both were certainly live with its data from 0.010 s to 0.014 s" in told.sentence


def test_what_brokers_disagree_on_is_told_with_what_each_says(tmp_path):
    rows = [*view(5, "a1", "c1 c1:1", 1, 5), *view(6, "b1", None, 2, 6)]
    told = named(judge(tmp_path, rows))["diverged"]
    assert told.details["held"] == {"a1": "c1 c1:1", "b1": None}
    assert (told.details["kind"], told.details["key"]) == ("members", "n")
    assert 'a1 says "c1 c1:1" and b1 does not know it' in told.sentence


def test_what_clients_were_answered_and_a_broker_denies_is_told_so(tmp_path):
    rows = [*view(5, "clients", "there", 1, 5), *view(6, "a1", "gone", 2, 6)]
    told = named(judge(tmp_path, rows))["diverged"]
    assert "clients and brokers disagree about" in told.sentence
    assert 'clients were answered "there" and a1 says "gone"' in told.sentence


def test_a_killed_harness_leaves_lost_undecided_and_the_rest_judged(tmp_path):
    verdict = judge(tmp_path, [*send(0, 1), *send(2, 2), *deliver(5, 2), *deliver(6, 3)])
    assert set(named(verdict)) == {"phantom", "not-linearizable"}
    assert verdict.valid is False
    assert any("the drain was not reached: so far 1 lost" in reason for reason in verdict.reasons)


def test_a_killed_harness_alone_makes_the_verdict_unknown(tmp_path):
    verdict = judge(tmp_path, [*send(0, 1), *deliver(5, 1), *answer(7, 1)])
    assert verdict.valid is None


def test_closed_stores_make_lost_unknown(tmp_path):
    verdict = judge(tmp_path, [*GOOD, o(80, -3, "info", "browse", broker="b2", error="silent")])
    assert verdict.valid is None
    assert "the stores of b2 (silent) could not be read" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [(finished(90), "nothing was sent"), ([*send(0, 1, "fail"), *finished(90)], "nothing was delivered")],
)
def test_a_test_that_did_nothing_is_unknown(tmp_path, rows, reason):
    verdict = judge(tmp_path, rows)
    assert verdict.valid is None
    assert reason in verdict.reasons


@pytest.mark.parametrize(("bit", "valid"), [(True, True), (False, None)])
def test_faults_that_never_bit_make_the_verdict_unknown(tmp_path, bit, valid):
    value = f'{{"label": "x", "bit": {str(bit).lower()}}}'
    fault = [o(10, -1, "invoke", "kill", value=value), o(11, -1, "info", "kill", value=value)]
    verdict = judge(tmp_path, [*GOOD, *fault], expect_faults=True)
    assert verdict.valid is valid


@pytest.mark.spark
def test_a_crashing_family_is_unknown_for_itself_alone(spark, tmp_path, monkeypatch):
    def crash(*_: object) -> None:
        raise RuntimeError("our own bug")

    monkeypatch.setitem(part.GROUP_FAMILIES, "order", crash)
    verdict = judge(tmp_path, [*send(0, 1), *finished(90)], spark)
    assert set(named(verdict)) == {"lost"}
    assert verdict.valid is False
    assert "order crashed: RuntimeError: our own bug" in verdict.reasons


@pytest.mark.spark
def test_a_family_that_takes_its_process_with_it_is_unknown_for_itself_alone(spark, tmp_path, monkeypatch):
    def end(*_: object) -> None:
        import os

        os._exit(1)

    monkeypatch.setitem(part.ROW_FAMILIES, "recovery", end)
    verdict = judge(tmp_path, [*send(0, 1), *finished(90)], spark)
    assert set(named(verdict)) == {"lost"}
    assert [reason.partition(":")[0] for reason in verdict.reasons][:2] == ["lost", "recovery crashed"]


@pytest.mark.spark
def test_a_family_past_its_deadline_is_unknown_for_itself_alone(spark, tmp_path, monkeypatch):
    def never_end(*_: object) -> None:
        import time

        time.sleep(3600)

    monkeypatch.setitem(part.ROW_FAMILIES, "availability", never_end)
    verdict = judge(tmp_path, [*deliver(5, 3), *finished(90)], spark, deadline_s=15.0)
    assert "phantom" in named(verdict)
    assert "availability did not end within 15 s" in verdict.reasons


def test_unavailability_during_a_fault_is_reported_and_excused(tmp_path):
    rows, _ = CASES["questions unanswered for longer than the bound are unavailability"]
    value = '{"label": "x", "bit": true}'
    fault = [
        o(1, -1, "invoke", "kill", value=value),
        o(2, -1, "info", "kill", value=value),
        o(87, -1, "invoke", "heal:kill", value=value),
        dict(o(88, -1, "info", "heal:kill", value=value), time=15 * 10**9),
    ]
    verdict = judge(tmp_path, [{**r, "index": r["index"] + 10} for r in rows] + fault)
    finding = named(verdict)["unavailable"]
    assert finding.severity == "warning"
    assert "kill in force" in finding.sentence
    assert verdict.statistics.faults[0].fault == "kill"


def test_the_guarantee_decides_what_breaks_it(tmp_path):
    rows = [*send(0, 1), *deliver(5, 1), *gone(6, 1), *deliver(7, 1, 2, redelivered=True), *finished(90)]
    verdict = judge(tmp_path, rows, guarantee="exactly-once")
    assert [(f.name, f.severity) for f in verdict.findings] == [("redelivery", "grave")]
    assert verdict.valid is False
    assert severity("lost", api.CheckOptions(guarantee="at-most-once")) == "warning"
    assert severity("reordered", api.CheckOptions(ordered=False)) == "info"
    assert severity("reordered", api.CheckOptions()) == "grave"
    assert severity("unflagged-redelivery", api.CheckOptions()) == "warning"
    kinds = [anomaly.name for anomaly in ANOMALIES]

    def broken(guarantee):
        return {name for name in kinds if severity(name, api.CheckOptions(guarantee=guarantee)) == "grave"}

    assert broken("exactly-once") > broken("at-least-once")


@pytest.mark.spark
def test_the_same_history_as_a_file_list_without_the_layout_gives_the_same(spark, tmp_path):
    rows = [*send(0, 1), *send(2, 2), *deliver(5, 2), phase(9, "load"), *kept(80, 1), *finished(90)]
    whole = tmp_path / "all.parquet"
    pq.write_table(table(dense(tidy(rows))), whole)
    laid_out = judge(tmp_path, rows, spark)
    plain = api.check([whole], api.CheckOptions(), spark)
    assert set(named(plain)) == set(named(laid_out)) == {"not-linearizable", "stuck"}


@pytest.mark.spark
@pytest.mark.parametrize("laid_out", [True, False])
def test_a_history_of_before_the_newest_columns_is_judged_without_them(spark, tmp_path, laid_out):
    rows = [*send(0, 1), *send(2, 2), *deliver(5, 2), phase(9, "load"), *finished(90)]
    history = store(tmp_path, rows) / "history"
    for file in history.iterdir():
        older = pq.read_table(file, columns=OLDER.names)
        pq.write_table(older, file if laid_out else file.with_name(f"some-{file.name}"))
        if not laid_out:
            file.unlink()
    finding = named(api.check(tmp_path, api.CheckOptions(), spark))["lost"]
    assert {row["f"] for row in finding.witness.rows} == {"send", "phase", "browse"}


@pytest.mark.spark
def test_what_is_no_history_is_refused_by_name(spark, tmp_path):
    with pytest.raises(api.HistoryError, match="does not exist"):
        api.check(tmp_path / "nothing", api.CheckOptions(), spark)
    with pytest.raises(api.HistoryError, match="holds no Parquet files"):
        api.check(tmp_path, api.CheckOptions(), spark)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "strange.parquet")
    with pytest.raises(api.HistoryError, match='no column "index"'):
        api.check(tmp_path, api.CheckOptions(), spark)
    (tmp_path / "strange.parquet").write_text("text")
    with pytest.raises(api.HistoryError, match="cannot be read|can be read"):
        api.check(tmp_path, api.CheckOptions(), spark)
    assert SCHEMA.names[0] == "index"


def test_a_part_of_which_reading_would_never_end_is_named(tmp_path):
    part = tmp_path / "history" / "part-0.parquet"
    part.parent.mkdir()
    os.mkfifo(part)
    for path in (tmp_path, part):
        with pytest.raises(api.HistoryError, match=r"part-0\.parquet is no file"):
            api.check(path, api.CheckOptions())


def test_wrong_options_are_refused_by_name():
    with pytest.raises(ValueError, match="guarantee"):
        api.CheckOptions(guarantee="sometimes")
    with pytest.raises(ValueError, match="deadline_s"):
        api.CheckOptions(deadline_s=0)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "a certain send before another's beginning fixes their order, whoever sent",
            "message 1, which was certainly sent at 0.001 s and so in front of it, had not been by then.",
        ),
        (
            "what was committed before another message was sent is in front of it",
            "message 1, which was certainly sent at 0.003 s and so in front of it, had not been by then.",
        ),
        (
            "a send whose taker was seen to be gone before the next was begun is late no more",
            "whose process was seen to be gone before this one was sent, had not been by then.",
        ),
    ],
)
def test_what_was_overtaken_is_told_with_why_it_was_in_front(tmp_path, case, words):
    rows = CASES[case][0] if case in CASES else EXCUSES[case][0]
    told = named(judge(tmp_path, rows))["not-linearizable"]
    assert told.sentence.endswith(words)
    assert told.sentence.startswith('message 2 (queue "q", group "g") was first delivered by a1 to session 1')
