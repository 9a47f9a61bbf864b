"""One decision: what a history that says so much, and no more, lets a judge say of what was
found in it.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import pytest
from checker_rows import S, finished, lay_out, o, phase
from damaged import DAMAGE, correct, damage

from checkers import judge, reference, statistics
from checkers.availability import Outage
from checkers.decide import decide
from checkers.facts import gather
from checkers.schema import COLUMNS
from checkers.source import HistoryError
from checkers.verdict import CheckOptions, Promises
from harness.history import plain_judge
from harness.interface import Fault, Schedule, TestSpec

OPTIONS = CheckOptions()
SENT = [o(0, 1, "invoke", "send", 1), o(1, 1, "ok", "send", 1), o(2, 9, "ok", "deliver", 1)]


def fault(index, f, label, **value):
    told = {"label": label, "bit": True, **value}
    return o(index, -1, "info", f, value=json.dumps(told))


def whole(rows):
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


def decided(rows, names=(), **options):
    return decide(names, gather(whole(rows)), CheckOptions(**options))


def test_nothing_found_in_a_whole_history_is_valid():
    assert decided([*SENT, *finished(10)]).valid is True


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (SENT, "the drain was not reached"),
        ([*SENT, phase(10, "browse")], "the stores were not looked into to the end"),
        (
            [*SENT, o(9, -3, "info", "browse", broker="a2"), *finished(10)],
            "the stores of a2 could not be read",
        ),
        (
            [
                *SENT,
                o(8, -3, "info", "browse", broker="b2"),
                o(9, -3, "info", "browse", broker="a2", error="no answer within 60 s"),
                *finished(10),
            ],
            "the stores of a2 (no answer within 60 s), b2 could not be read",
        ),
        ([SENT[1], SENT[2], *finished(10)], "nothing was sent"),
        ([*SENT[:2], dict(SENT[2], type="info"), *finished(10)], "nothing was delivered"),
    ],
)
def test_why_a_history_without_findings_is_unknown(rows, reason):
    decision = decided(rows)
    assert decision.valid is None
    assert decision.reasons == (reason,)


def test_what_happened_at_the_end_is_not_told_before_the_end_and_hides_nothing_else():
    decision = decided(SENT, {"lost", "duplicate"})
    assert (decision.hidden, decision.grave, decision.valid) == ({"lost"}, {"duplicate"}, False)
    assert decided([*SENT, *finished(10)], {"lost"}).grave == {"lost"}


def test_a_rule_that_failed_makes_unknown_what_would_be_valid_and_hides_no_finding():
    known = gather(whole([*SENT, *finished(10)]))
    assert decide((), known, OPTIONS, unknown=["order crashed"]).valid is None
    assert decide({"duplicate"}, known, OPTIONS, unknown=["order crashed"]).valid is False


def test_faults_that_were_asked_for_must_have_been_seen():
    rows = [*SENT, fault(5, "kill", "k", bit=False), *finished(10)]
    assert decided(rows, expect_faults=True).reasons == (
        "faults were asked for, but none was seen to take effect",
    )
    assert decided([*rows, fault(20, "kill", "l")], expect_faults=True).valid is True


def test_a_fault_begins_and_ends_under_one_label():
    rows = [
        dict(fault(3, "kill", "a"), type="invoke"),
        fault(5, "kill", "a"),
        fault(6, "kill", "b"),
        dict(fault(7, "heal:restart", "a"), type="invoke"),
        fault(8, "heal:kill", "b"),
        fault(9, "heal:restart", "a"),
    ]
    spans = gather(whole(rows)).spans()
    assert [(span.label, span.asked, span.begin, span.healing, span.end) for span in spans] == [
        ("a", 3_000_000, 5_000_000, 7_000_000, 9_000_000),
        ("b", 6_000_000, 6_000_000, 8_000_000, 8_000_000),
    ]


def test_a_pause_is_grave_unless_faults_explain_it():
    pause = Outage(0, "operation send", 5, 10 * S, 60 * S)
    killed = [
        dict(fault(5, "kill", "k"), time=15 * S),
        dict(fault(6, "heal:kill", "k"), time=20 * S),
    ]
    for faults, severity in (([], "grave"), (killed, "warning")):
        known = gather(whole([*SENT, *faults, *finished(10)]))
        decision = decide({"unavailable"}, known, OPTIONS, windows={"unavailable": [pause]})
        assert decision.severities == {"unavailable": severity}


def test_one_window_that_no_fault_explains_is_grave_beside_others_that_one_does():
    excused = Outage(0, "operation send", 5, 10 * S, 60 * S)
    later = replace(excused, begin=200 * S, end=250 * S)
    rows = [dict(fault(5, "kill", "k"), time=15 * S), dict(fault(6, "heal:kill", "k"), time=40 * S)]
    known = gather(whole([*SENT, *rows, *finished(10)]))
    for windows, severity in (
        ([excused], "warning"),
        ([excused, later], "grave"),
        ([later, excused], "grave"),
    ):
        decision = decide({"starved"}, known, OPTIONS, windows={"starved": windows})
        assert decision.severities == {"starved": severity}


def test_a_finding_without_windows_is_explained_by_no_fault():
    known = gather(whole([*SENT, *finished(10)]))
    decision = decide({"starved"}, known, OPTIONS, windows={"starved": []})
    assert decision.severities == {"starved": "grave"}


@pytest.mark.parametrize(
    ("names", "matters"), [((), False), (("duplicate",), False), (("lost",), True), (("stuck",), True)]
)
def test_where_stores_tell_nothing_one_that_was_not_read_matters_to_what_is_missing_alone(names, matters):
    rows = [*SENT, o(8, -3, "info", "browse", broker="b2"), *finished(10)]
    decision = decided(rows, names, broker=Promises(untold=("stores",)))
    assert decision.undecided == ("the stores of b2 could not be read" if matters else None)
    assert decision.hidden == ({"lost"} & set(names))


def test_what_was_sent_when_stores_were_read_lets_nothing_be_valid():
    late = [o(40, 1, "invoke", "send", 2), o(41, 1, "ok", "send", 2)]
    decision = decided([*SENT, *finished(10), *late])
    assert decision.reason == "messages were sent when the stores were being read already"


def test_trouble_hides_no_finding_and_lets_nothing_be_valid(tmp_path):
    troubled = msgspec.structs.replace(OPTIONS, trouble="the disk was full")
    sound = whole([*SENT, *finished(10)])
    kept = decide((), gather(sound), troubled)
    assert (kept.valid, kept.reason) == (None, "the disk was full")
    assert decide((), gather(sound), OPTIONS).valid is True
    lost = decide({"lost"}, gather(sound), troubled)
    assert (lost.valid, lost.reason) == (False, "the disk was full")
    rows = correct(1, complete=True)
    verdict = judge.judge(lay_out(tmp_path / "sound", rows, slice_rows=1000), troubled)
    assert (verdict.valid, verdict.reasons) == (None, ("the disk was full",))
    rows = damage(rows, [("phantom", 1)])
    verdict = judge.judge(lay_out(tmp_path / "phantom", rows, slice_rows=1000), troubled)
    assert verdict.valid is False
    assert verdict.reasons[0] == "the disk was full"
    assert verdict.reasons[1].startswith("phantom: ")


@pytest.mark.parametrize(
    "numbers", [range(40), pytest.param(range(40, 120), marks=pytest.mark.in_turn)], ids=["few", "many"]
)
@pytest.mark.slow
def test_whoever_judges_decides_alike(tmp_path, numbers):
    spec = TestSpec(name="t", unavailable_bound_s=2, recovery_bound_s=1)
    schedule = Schedule(faults=(Fault(kind="kill", start_s=1, duration_s=1),))
    options = plain_judge.options_of(spec, schedule)
    broken = 0
    for number in numbers:
        chance = random.Random(number)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(0, 4))
        ]
        rows = damage(correct(number, complete=bool(number % 3)), edits)
        if number % 2:
            saw = fault(len(rows) + 1, "kill", "k", bit=number % 4 == 1)
            asked = {**saw, "index": len(rows), "type": "invoke", "value": '{"label": "k"}'}
            rows += [dict(row, time=rows[-1]["time"]) for row in (asked, saw)]
        alone = plain_judge.judge(whole(rows), spec, schedule)
        try:
            verdict = judge.judge(lay_out(tmp_path / str(number), rows, slice_rows=1000), options)
        except HistoryError:  # damage that no history has
            broken += 1
            continue
        assert {f.name for f in verdict.findings if f.severity == "grave"} == alone.decision.grave, number
        assert {f.name for f in verdict.findings} == {i.name for i in alone.findings}, number
        assert verdict.valid is alone.decision.valid, (number, verdict.reasons, alone.decision.reasons)
    assert broken < len(numbers) / 4


def test_what_another_finding_says_more_exactly_is_told_and_breaks_no_promise_of_its_own():
    rows = [*SENT, *finished(10)]
    assert decided(rows, {"not-linearizable"}).severities == {"not-linearizable": "grave"}
    both = decided(rows, {"not-linearizable", "lost"})
    assert both.severities == {"not-linearizable": "info", "lost": "grave"}
    warned = decided(rows, {"not-linearizable", "lost"}, guarantee="at-most-once")
    assert warned.severities == {"not-linearizable": "grave", "lost": "warning"}
    hidden = decided(SENT, {"not-linearizable", "lost"})
    assert hidden.severities == {"not-linearizable": "grave"}


def test_where_messages_may_vanish_what_never_came_was_overtaken_by_nobody(tmp_path):
    def found(rows, guarantee):
        options = CheckOptions(guarantee=guarantee)
        directory = tmp_path / f"{guarantee}-{len(rows)}"
        verdict = judge.judge(lay_out(directory, whole(rows), slice_rows=10**6), options)
        assert verdict.findings or not plain_found(rows, options)
        return {finding.name for finding in verdict.findings}

    def plain_found(rows, options):
        return {i.name for i in reference.find(rows, options)}

    never = [
        *(o(n, 1, type_, "send", message) for n, (type_, message) in enumerate(
            [("invoke", 1), ("ok", 1), ("invoke", 2), ("ok", 2)])),
        o(4, 9, "ok", "deliver", 2, session=1),
    ]  # fmt: skip
    later = [*never, o(5, 9, "ok", "deliver", 1, session=1)]
    assert found(never, "at-most-once") == set()
    assert found(never, "exactly-once") == {"not-linearizable"}
    assert "not-linearizable" in found(later, "at-most-once")


def test_a_fault_that_found_no_target_was_over_at_once_and_has_no_recovery():
    target = {"nodes": [], "links": [], "observed": {}, "bit": False}
    rows = [
        dict(fault(5, "pause", "p", **target), error="no broker is live now"),
        fault(6, "kill", "k", bit=False),
    ]
    known = gather(whole([*SENT, *rows, *finished(10)]))
    spans = {span.label: (span.found_target, span.end) for span in known.spans()}
    assert spans == {"p": (False, 5_000_000), "k": (True, None)}
    assert [one.found_target for one in statistics.read(0, statistics.merged([]), known).faults] == [
        False,
        True,
    ]
    failed = dict(fault(5, "pause", "p", **{**target, "nodes": ["a1"]}), error="no answer")
    (span,) = gather(whole([*SENT, failed, *finished(10)])).spans()
    assert (span.found_target, span.end) == (True, None)
