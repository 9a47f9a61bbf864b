"""What nobody ever got is known to nobody: a green that shows nothing is unknown."""

from __future__ import annotations

import json
import random

import checker_rows
import pytest
from bank_histories import bank
from checker_rows import dense, finished, found_in, lay_out
from innocent import innocent

from checkers import judge, reach, reference
from checkers.decide import decide
from checkers.facts import gather
from checkers.schema import COLUMNS
from checkers.verdict import CheckOptions

BUG = "refused: internal error of the broker, please report it"
ANSWERED = "answered with ok (refused: AMQ1)"
PATIENT = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000, examples=10**6)
NEWS, REPLIES = "/topic/news", "/temp-queue/r"
IS_RED = json.dumps({"properties": {"colour": "red"}})
RED = json.dumps({"selector": {"colour": ["red"]}})


class Story(checker_rows.Story):
    """What is asked is answered at once."""

    def subscribe(self, session, outcome="ok", queue="q", name=None, value=None):
        told = {"queue": queue, "subscription": name, "session": session, "value": value}
        error = None if outcome == "ok" else f"refused: AMQ{session % 2}"
        self.add(100 + session, "invoke", "subscribe", **told)
        return self.add(100 + session, outcome, "subscribe", error=error, **told) if outcome else self

    def drop(self, outcome="ok", queue=NEWS, name="plain"):
        self.add(200, "invoke", "drop", queue=queue, subscription=name)
        return self.add(200, outcome, "drop", queue=queue, subscription=name)

    def send(self, message, outcome="ok", queue="q", **columns):
        told = {"queue": queue, "digest": message, **columns}
        error = None if outcome == "ok" else "refused: no room"
        self.add(1, "invoke", "send", message, **told)
        return self.add(1, outcome, "send", message, error=error, broker="a1", **told)

    def consume(self, message, session=1, queue="q", name=None):
        told = {"queue": queue, "subscription": name, "session": session}
        self.add(100 + session, "ok", "deliver", message, digest=message, broker="a1", **told)
        self.add(100 + session, "invoke", "ack", message, **told)
        return self.add(100 + session, "ok", "ack", message, broker="a1", **told)

    def ends(self, f, outcome, transaction):
        self.add(1, "invoke", f, transaction=transaction)
        return self.add(1, outcome, f, broker="a1", transaction=transaction)


def sound():
    """One message that came through."""
    return Story().subscribe(1).send(1).consume(1)


@pytest.fixture
def decided(tmp_path):
    """What both judges decide of a story, and why."""

    def ask(story, slice_rows=10**6):
        rows = dense([*story.rows, *finished(len(story.rows))])
        verdict = judge.judge(lay_out(tmp_path / str(slice_rows), rows, slice_rows=slice_rows), PATIENT)
        whole = [{name: row.get(name) for name in COLUMNS} for row in rows]
        names = {finding.name for finding in verdict.findings}
        plain = decide(names, gather(whole), PATIENT)
        assert (verdict.valid, [*plain.reasons]) == (plain.valid, [*verdict.reasons][-len(plain.reasons) :])
        return verdict.valid, plain.reasons

    return ask


def test_a_history_in_which_all_was_reached_is_valid(decided):
    assert decided(sound()) == (True, ())


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (
            sound()
            .subscribe(2, "fail", NEWS, "a")
            .subscribe(4, "fail", NEWS, "a")
            .subscribe(3, "info", NEWS, "a"),
            "nothing is known of /topic/news: of 3 subscribes none was answered with ok (refused: AMQ0)",
        ),
        (
            sound().subscribe(2, "ok", NEWS, "b").subscribe(3, "fail", NEWS, "a"),
            "nothing is known of subscription a of /topic/news: of 1 subscribes none was " + ANSWERED,
        ),
        (
            sound().subscribe(2, "fail", "q2").subscribe(3, None, "q3").subscribe(4, None, "q2"),
            "nothing is known of q2 and 1 more: of 2 subscribes none was answered with ok (refused: AMQ0)",
        ),
        (
            sound().subscribe(3, None, "q3"),
            "nothing is known of q3: of 1 subscribes none was answered with ok, nor otherwise",
        ),
        (
            sound().subscribe(2, "fail", NEWS, "plain").drop(),
            "nothing is known of /topic/news: of 1 subscribes none was answered with ok (refused: AMQ0)",
        ),
        (
            sound().subscribe(2, "fail", REPLIES + "1").subscribe(3, "info", REPLIES + "2"),
            "nothing is known of temporary queues: of 2 subscribes none was answered with ok (refused: AMQ0)",
        ),
        (
            sound().send(2, "fail", "q2").send(3, "info", "q2"),
            "nothing is known of q2: of 2 sends none was answered with ok (refused: no room)",
        ),
        (
            Story().subscribe(1).send(1, "info").consume(1),
            "nothing is known of q: of 1 sends none was answered with ok (refused: no room)",
        ),
        (
            sound().subscribe(2, "ok", REPLIES).send(2, "ok", REPLIES),
            "nothing was ever delivered from temporary queues, though 1 subscribes were ok",
        ),
        (
            sound().send(2, "ok", NEWS).subscribe(2, "ok", NEWS, "a"),
            "nothing was ever delivered from /topic/news, though 1 subscribes were ok",
        ),
        (
            sound().subscribe(2, "fail", value=RED).subscribe(3, "fail", value=RED),
            "no consumer with a selector was ever given anything; 2 asked (refused: AMQ0)",
        ),
        (
            sound().subscribe(2, value=RED),
            "no consumer with a selector was ever given anything; 1 asked",
        ),
        (
            sound().send(2, transaction=7).ends("abort", "ok", 7).ends("commit", "fail", 8),
            "of 1 transactions none was committed with ok",
        ),
    ],
)
def test_what_nobody_ever_got_leaves_it_unknown_and_says_what_and_why(decided, story, why):
    assert decided(story) == (None, (why,))
    assert decided(story, slice_rows=1) == (None, (why,))


@pytest.mark.parametrize(
    "story",
    [
        sound().subscribe(2, "fail", "q2").subscribe(3, "info", "q2").subscribe(4, "ok", "q2"),
        sound().subscribe(2, "info", "q2").send(2, queue="q2").consume(2, 2, "q2"),
        sound().subscribe(2, "ok", NEWS, "b").subscribe(3, "fail", NEWS, "plain").drop(),
        sound().subscribe(2, "fail", NEWS, "a").subscribe(3, "ok", NEWS, "a"),
        sound().subscribe(2, "ok", REPLIES + "1").subscribe(3, "info", REPLIES + "2")
        .send(2, queue=REPLIES + "1").consume(2, 2, REPLIES + "1"),
        sound().subscribe(2, queue="q2").send(2, "info", "q2").consume(2, 2, "q2"),
        sound().send(2, "fail").send(3, "fail", "q2").send(4, "ok", "q2").consume(4, 1, "q2"),
        sound().subscribe(2, "ok", NEWS, "a"),
        sound().subscribe(2, value=RED).subscribe(3, value=RED).send(2, value=IS_RED).consume(2, 3),
        sound().ends("abort", "ok", 7).ends("commit", "fail", 8).ends("commit", "ok", 9),
    ],
)  # fmt: skip
def test_what_somebody_got_in_the_end_is_not_called_unknown(decided, story):
    assert decided(story) == (True, ())


def test_a_finding_is_told_whatever_else_was_not_reached(decided):
    valid, reasons = decided(sound().consume(1, 3).subscribe(2, "fail", "q2"))
    assert valid is False
    assert len(reasons) == 1


def test_histories_that_name_no_subscribe_are_judged_as_ever(decided):
    assert decided(Story().send(1).consume(1)) == (True, ())
    assert decided(Story().send(1, "info").consume(1), slice_rows=1) == (True, ())


def test_a_long_answer_of_many_lines_is_told_in_one():
    found = reach.Reach()
    found.places["q"].subscribes = 1
    found.places["q"].refusals["refused:\n " + "x" * 500] = 1
    (why,) = reach.reasons(found, lambda *_: 0)
    assert "\n" not in why
    assert len(why) < 220


@pytest.mark.slow
@pytest.mark.in_turn
def test_columns_and_rows_say_the_same_of_many_histories(tmp_path):
    """Of what was never reached, and of what brokers admitted."""
    told = admitted = 0
    for number in range(60):
        chance = random.Random(number)
        rows = bank(number) if number % 2 else innocent(number)
        for row in rows:
            if (
                row["type"] == "ok"
                and row["f"] in ("subscribe", "send", "commit")
                and chance.random() < number / 60
            ):
                row |= {"type": "fail", "error": chance.choice(["refused: a", "refused: b", BUG])}
        case = judge.examine(judge.CheckRun(lay_out(tmp_path / str(number), rows, slice_rows=12), PATIENT))
        bugs = {i for i in reference.find(rows, PATIENT) if i.name == "internal-error"}
        assert found_in(case, 0) >= bugs == {i for i in found_in(case, 0) if i.name == "internal-error"}
        admitted += len(bugs)
        known, plain = (
            case.facts_by_run[0],
            gather([{name: row.get(name) for name in COLUMNS} for row in rows]),
        )
        said = [*reach.reasons(known.reached, known.count)]
        assert said == [*reach.reasons(plain.reached, plain.count)], number
        told += len(said)
    assert told > 20
    assert admitted > 20
