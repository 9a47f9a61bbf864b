"""What had to succeed and did not.

Of each a history in which it is so, and one as near as can be in which it is not.

The names of the cases are what they prove; columns and reference must both say so. The bounds are
10 s.
"""

from __future__ import annotations

import json

import pytest
from checker_rows import Row, S, agreed, dense, lay_out, o
from test_findings import OPTIONS, answer, deliver, gone, role, send, tidy

from bench.agreement import on_columns
from checkers import judge, reference


def at(time_s: float, rows: list[Row]) -> list[Row]:
    return [dict(r, time=int(time_s * S)) for r in rows]


def sends(times_s: list[float], first: int, outcome: str, **columns: object) -> list[Row]:
    """One a moment, their rows two by two from index ``first`` on."""
    return [
        r
        for n, time in enumerate(times_s)
        for r in at(time, send(first + 2 * n, first + n, outcome, **columns))
    ]


def in_order(*some: list[Row]) -> list[Row]:
    """All of them by time, numbered anew."""
    rows = sorted((r for rows in some for r in rows), key=lambda r: (r["time"], r["index"]))
    return [dict(r, index=n) for n, r in enumerate(rows)]


DYING = [1.0 + 5 * n for n in range(10)]
DEAD = sends(DYING, 100, "info", queue="r", group=None, producer=2)
WELL = sends([float(n) for n in range(50)], 200, "ok", group=None, producer=1)
GROUP = sends(DYING, 100, "info", group="h", producer=1)

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "a queue that is dead while another works": (
        in_order(DEAD, WELL), {'queue "r", send', "client producer 2"}),
    "a group that is dead while others of its queue work": (
        in_order(GROUP, WELL), {'group "h" of queue "q", send'}),
    "a broker that is dead while another works": (
        in_order(sends(DYING, 100, "info", broker="b1", group=None, producer=2), WELL),
        {"broker b1", "client producer 2"}),
    "a client whose attempts reach no broker that is known": (
        in_order(sends(DYING, 100, "info", broker=None, group=None, producer=2), WELL),
        {"client producer 2"}),
    "two attempts are too few to say so": (in_order(GROUP[:2], GROUP[8:10], WELL), set()),
    "three attempts are enough": (in_order(GROUP[:2], GROUP[8:12], WELL), {'group "h" of queue "q", send'}),
    "two attempts at a queue are too few to say so": (in_order(DEAD[:2], DEAD[8:10], WELL), set()),
    "two attempts at a queue that failed, and one that is still open, are too few": (
        in_order(DEAD[:2], DEAD[8:10], DEAD[12:13], WELL), set()),
    "three attempts at a queue are enough": (
        in_order(DEAD[:2], DEAD[8:12], WELL), {'queue "r", send', "client producer 2"}),
    "two attempts at a group that failed, and one that is still open, are too few": (
        in_order(GROUP[:2], GROUP[8:10], GROUP[12:13], WELL), set()),
    "what failed for no longer than the bound is no window": (in_order(GROUP[:6], WELL), set()),
    "a success between ends it": (
        in_order(GROUP[:4], sends([9.0], 150, "ok", group="h"), GROUP[4:8], WELL), set()),
    "the window ends with the last failure, not with the next success": (
        in_order(GROUP[:6], sends([40.0], 150, "ok", group="h"), WELL), set()),
    "a question that was answered late ends nothing before": (
        in_order(GROUP[:8], at(5, [dict(send(150, 70, group="h")[0])]),
                 at(30, [dict(send(150, 70, group="h")[1], index=151)]), WELL),
        {'group "h" of queue "q", send'}),
    "acks of a queue are told apart from its sends": (
        in_order(WELL, *(at(5.0 * n, answer(300 + 2 * n, 200 + n, outcome="info", group=None))
                         for n in range(1, 9))),
        {"operation ack", 'queue "q", ack'}),
    "questions that nobody answers and that do not end are no failure yet": (
        in_order(GROUP[::2], WELL), set()),
}  # fmt: skip


def subscribed(time_s: float, session: int, queue: str = "q", broker: str | None = "a1") -> list[Row]:
    told = {"session": session, "queue": queue, "broker": broker}
    process = 10 + session
    return at(
        time_s,
        [
            o(900 + session, process, "invoke", "subscribe", **told),
            o(950 + session, process, "ok", "subscribe", **told),
        ],
    )


BLUE = '{"properties": {"colour": "blue"}}'


def wanting(time_s: float, session: int, colour: str, queue: str = "q") -> list[Row]:
    asked, answered = subscribed(time_s, session, queue)
    return [{**asked, "value": json.dumps({"selector": {"colour": [colour]}})}, answered]


def left(time_s: float, session: int) -> list[Row]:
    return at(time_s, [o(990 + session, 10 + session, "invoke", "unsubscribe", session=session)])


def sent(time_s: float, message: int, outcome: str = "ok", **columns: object) -> list[Row]:
    return at(time_s, send(600 + 2 * message, message, outcome, **columns))


def got(time_s: float, message: int, session: int = 1, **columns: object) -> list[Row]:
    return at(time_s, deliver(700 + message, message, session, **columns))


def without_session(rows: list[Row]) -> list[Row]:
    return [{**row, "session": None} for row in rows]


def settled(time_s: float, message: int, session: int = 1, outcome: str = "ok") -> list[Row]:
    return at(time_s, answer(800 + 2 * message, message, session, outcome))


HUNGRY = [subscribed(0, 1), sent(1, 1)]
DELAYED = json.dumps({"delay": [100 * S, 100 * S]})
STARVED: dict[str, tuple[list[Row], set[str]]] = {
    "a consumer that gets what waited for it a minute later": (in_order(*HUNGRY, got(61, 1)), {"session 1"}),
    "a consumer that gets what had been given to somebody before, who never read it": (
        in_order(*HUNGRY, got(61, 1, redelivered=True)), set()),
    "a consumer that gets what counts as given to somebody before": (
        in_order(*HUNGRY, got(61, 1, delivery_count=2)), set()),
    "a consumer that gets it soon": (in_order(*HUNGRY, got(9, 1)), set()),
    "a consumer that leaves without it, and another gets it": (
        in_order(*HUNGRY, left(60, 1), got(61, 1, 2)), {"session 1"}),
    "a consumer that leaves without it, and it is in a store": (
        in_order(*HUNGRY, left(60, 1), at(62, [o(0, -3, "ok", "browse", 1, broker="a1", value="main")])),
        {"session 1"}),
    "a consumer that leaves without what is nowhere: it is lost, and nobody was starved": (
        in_order(*HUNGRY, left(60, 1)), set()),
    "a consumer that had nothing to get for a minute, and then got it soon": (
        in_order(subscribed(0, 1), sent(55, 1), got(61, 1)), set()),
    "a consumer that had asked to leave": (in_order(*HUNGRY, left(2, 1), got(61, 1)), set()),
    "what another broker had, which forwarded it": (in_order(*HUNGRY, got(61, 1, broker="b1")), set()),
    "what another broker took": (in_order(subscribed(0, 1), sent(1, 1, broker="b1"), got(61, 1)), set()),
    "what may not have been sent": (in_order(subscribed(0, 1), sent(1, 1, "info"), got(61, 1)), set()),
    "another queue": (in_order(subscribed(0, 1, queue="r"), sent(1, 1), left(60, 1), got(61, 1, 2)), set()),
    "a consumer that holds something": (
        in_order(subscribed(0, 1), sent(1, 1), got(1, 1), sent(2, 2), got(61, 2)), set()),
    "a consumer whose ack was not answered may hold something": (
        in_order(subscribed(0, 1), sent(1, 1), got(1, 1), settled(1.5, 1, outcome="info"), sent(2, 2),
                 got(61, 2)), set()),
    "a consumer that had settled all it got": (
        in_order(subscribed(0, 1), sent(1, 1), got(1, 1), settled(1.5, 1), sent(2, 2), got(61, 2)),
        {"session 1"}),
    "a consumer whose subscription was not confirmed": (
        in_order(subscribed(0, 1)[:1], sent(1, 1), got(61, 1)), set()),
    "a group that another consumer has": (
        in_order(subscribed(0, 1), sent(1, 1), got(1, 1, 2), sent(2, 2), left(60, 1), got(61, 2, 2)), set()),
    "a group that another had until it left": (
        in_order(subscribed(0, 1), sent(1, 1), got(1, 1, 2), settled(1.1, 1, 2), at(1.2, gone(5, 2)),
                 subscribed(1.5, 3), sent(2, 2), left(60, 3),
                 got(61, 2, 1)), {"session 3"}),
    "messages without a group that another consumer has, too": (
        in_order(subscribed(0, 1), sent(1, 1, group=None), got(1, 1, 2, group=None), sent(2, 2, group=None),
                 left(60, 1),
                 got(61, 2, 2, group=None)), {"session 1"}),
    "a consumer that another group kept busy meanwhile, whose rows lie in another part": (
        in_order(subscribed(0, 1), sent(1, 1), got(1.5, 1), settled(2, 1), sent(2.5, 2, group="h"),
                 got(3, 2, group="h"), at(4, answer(804, 2, 1, "ok", group="h")), sent(4.5, 3, group="i"),
                 sent(5, 4), got(8, 4), settled(9, 4), got(16, 3, group="i")), set()),
    "a message of which another attempt, which failed, had asked for a delay": (
        in_order(*HUNGRY, sent(2, 1, "fail", value=DELAYED), got(61, 1)), {"session 1"}),
    "a message of which another attempt, which may have been stored, had asked for a delay": (
        in_order(*HUNGRY, sent(2, 1, "info", value=DELAYED), got(61, 1)), set()),
    "what a consumer does not want does not wait for it": (
        in_order(wanting(0, 1, "red"), sent(1, 1, value=BLUE), left(60, 1), got(61, 1, 2)), set()),
    "what it wants does": (
        in_order(wanting(0, 1, "blue"), sent(1, 1, value=BLUE), left(60, 1), got(61, 1, 2)), {"session 1"}),
    "of two the one that wants it": (
        in_order(wanting(0, 1, "red"), wanting(0.1, 3, "blue"), sent(1, 1, value=BLUE), left(60, 1),
                 left(60, 3), got(61, 1, 2)), {"session 3"}),
    "what it wants of another queue does not": (
        in_order(wanting(0, 1, "red"), wanting(0.1, 1, "blue", "r"), sent(1, 1, value=BLUE), left(60, 1),
                 got(61, 1, 2)), set()),
    "what it wants of this queue does, whatever it wants of another": (
        in_order(wanting(0, 1, "blue"), wanting(0.1, 1, "red", "r"), sent(1, 1, value=BLUE), left(60, 1),
                 got(61, 1, 2)), {"session 1"}),
    "what only one of its two selectors for the queue matches may be unwanted": (
        in_order(wanting(0, 1, "red"), wanting(0.1, 1, "blue"), sent(1, 1, value=BLUE), left(60, 1),
                 got(61, 1, 2)), set()),
    "what only one of its two selectors matches, whichever came first": (
        in_order(wanting(0, 1, "blue"), wanting(0.1, 1, "red"), sent(1, 1, value=BLUE), left(60, 1),
                 got(61, 1, 2)), set()),
    "a consumer beside rows of no session": (
        in_order(*HUNGRY, at(30, [o(995, 1, "info", "disconnect")]), sent(2, 2, group="h"),
                 without_session(got(31, 2, group="h")), got(61, 1)), {"session 1"}),
    "a consumer that subscribes to another queue meanwhile": (
        in_order(*HUNGRY, at(40, [dict(r, index=r["index"] + 10) for r in subscribed(0, 1, "r")[:1]]),
                 at(41, [dict(r, index=r["index"] + 10) for r in subscribed(0, 1, "r")[1:]]), got(61, 1)),
        {"session 1"}),
    "a consumer that has no row afterwards": (in_order(*HUNGRY, subscribed(55, 2), got(61, 1, 2)), set()),
    "a consumer whose subscription was confirmed only then": (
        in_order(subscribed(0, 1)[:1], sent(0.2, 2), got(0.5, 2), settled(0.8, 2), sent(1, 1),
                 at(60, subscribed(0, 1)[1:]), got(61, 1)), set()),
    "a consumer of which nobody knows the broker": (
        in_order(subscribed(0, 1, broker=None), subscribed(0.1, 2), sent(1, 1), got(61, 1)), set()),
    "what waits at another broker": (
        in_order(subscribed(0, 1), sent(1, 1, broker="b1"), left(60, 1), got(61, 1, 2, broker="b1")), set()),
    "what waits at another broker beside what waited at its own": (
        in_order(subscribed(0, 1), sent(0.2, 2, group=None), sent(1, 1, broker="b1", group=None),
                 got(12, 2, 2, group=None), left(60, 1), got(61, 1, 2, broker="b1", group=None)), set()),
    "of two messages that waited, the one that was there first, whatever its number": (
        in_order(subscribed(0, 1), sent(1, 2, group=None), sent(2, 1, group=None), left(60, 1),
                 got(61, 1, 2, group=None), got(62, 2, 2, group=None)), {"session 1"}),
    "whatever its group": (
        in_order(subscribed(0, 1), sent(1, 2), sent(2, 1, group="a"), sent(3, 3, group="h"), left(60, 1),
                 got(61, 1, 2, group="a"), got(62, 2, 2), got(63, 3, 3, group="h")), {"session 1"}),
    "whichever was requested first": (
        in_order(subscribed(0, 1), sent(1, 1)[:1], sent(1.5, 2, group="a"), sent(2, 1)[1:], left(60, 1),
                 got(61, 1, 2), got(62, 2, 2, group="a")), {"session 1"}),
    "what waited for long, and was given to another": (
        in_order(subscribed(0, 1), sent(1, 1, group=None), got(20, 1, 2, group=None), left(60, 1)), set()),
    "what came shortly before it left, and is in a store": (
        in_order(subscribed(0, 1), sent(55, 1), left(60, 1),
                 at(62, [o(0, -3, "ok", "browse", 1, broker="a1", value="main")])), set()),
    "what is with the dead letters": (
        in_order(*HUNGRY, left(60, 1),
                 at(62, [o(0, -3, "ok", "browse", 1, broker="a1", value="dead-letter")])),
        set()),
    "a group of which somebody without a session got a message": (
        in_order(subscribed(0, 1), sent(1, 1), without_session(got(1.5, 1)), sent(2, 2), left(60, 1),
                 got(61, 2, 2)),
        {"session 1"}),
    "what was sent in a transaction": (
        in_order(subscribed(0, 1), sent(1, 1, transaction=9), got(61, 1)), set()),
    "what may expire": (
        in_order(subscribed(0, 1), sent(1, 1, value='{"expires": [90000000000, 90000000000]}'), got(61, 1)),
        set()),
    "what nobody knows who took": (in_order(subscribed(0, 1), sent(1, 1, broker=None), got(61, 1)), set()),
    "messages that come one after the other, none of which waits for long": (
        in_order(subscribed(0, 1),
                 *(sent(5 * n + 1, n, group=None) + got(5 * n + 2, n, 2, group=None) for n in range(12)),
                 left(60, 1)), set()),
}  # fmt: skip


@pytest.mark.parametrize("case", STARVED)
def test_both_implementations_say_who_was_starved(tmp_path, case):
    rows, expected = STARVED[case]
    assert {i.key for i in agreed(tmp_path, tidy(rows), OPTIONS) if i.name == "starved"} == expected


def test_histories_that_are_judged_together_starve_none_of_each_other():
    lots = [dense(tidy(rows)) for rows, _ in STARVED.values()]
    found = on_columns(lots, OPTIONS, 1, parts=1)
    for rows, one in zip(lots, found, strict=True):
        assert one == set(reference.find(rows, OPTIONS))


def test_a_session_of_one_run_is_none_of_the_next_run():
    stored = at(30, [o(0, -3, "ok", "browse", 1, broker="a1", value="main")])
    runs = [dense(tidy(rows)) for rows in (in_order(*HUNGRY, stored), in_order(subscribed(50, 1)))]
    assert not any("starved" in {one.name for one in found} for found in on_columns(runs, OPTIONS, 1))


def test_a_starved_consumer_is_told_with_what_waited_for_it(tmp_path):
    rows = dense(tidy(in_order(*HUNGRY, got(61, 1))))
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS)
    (finding,) = (finding for finding in verdict.findings if finding.name == "starved")
    assert finding.severity == "grave"
    assert finding.sentence.startswith(
        "session 1 got none of the messages that waited for it from 1.000 s to 61.000 s, and no fault "
        "explains it"
    )
    shown = list(finding.witness.rows)
    assert {"subscribe", "send", "deliver"} == {row["f"] for row in shown}
    assert "starved" in {i.name for i in reference.find(shown, OPTIONS)}


@pytest.mark.parametrize(("module", "name"), [("roles", "reigns"), ("facts", "read")])
def test_nobody_is_accused_where_what_would_excuse_him_could_not_be_read(tmp_path, monkeypatch, module, name):
    def crash(*_: object) -> None:
        raise RuntimeError("our own bug")

    rows = dense(tidy(in_order(*HUNGRY, got(61, 1))))
    monkeypatch.setattr(getattr(judge, module), name, crash)
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS)
    assert "starved" not in {finding.name for finding in verdict.findings}
    assert verdict.valid is None


@pytest.mark.parametrize(("node", "severity"), [("a1", "warning"), ("b1", "grave")])
def test_faults_of_its_broker_explain_why_a_consumer_was_starved(tmp_path, node, severity):
    value = json.dumps({"label": "x", "bit": True, "nodes": [node]})
    faults, healed = (
        [o(0, -1, type_, f, value=value) for type_ in ("invoke", "info")]
        for f in ("disk-slow", "heal:disk-slow")
    )
    roles = [*role(0, "a1", "live", 0, 0, "A"), *role(0, "b1", "live", 0, 0, "B")]
    rows = dense(tidy(in_order(at(0, roles), *HUNGRY, at(2, faults), at(50, healed), got(61, 1))))
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS)
    (finding,) = (finding for finding in verdict.findings if finding.name == "starved")
    assert finding.severity == severity


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_both_implementations_say_what_was_unavailable(tmp_path, case):
    rows, expected = CASES[case]
    assert {i.key for i in agreed(tmp_path, tidy(rows), OPTIONS) if i.name == "unavailable"} == expected


def test_the_broadest_window_is_told_first_and_shown_by_its_attempts(tmp_path):
    rows = dense(tidy(in_order(DEAD, GROUP)))
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS)
    (finding,) = (finding for finding in verdict.findings if finding.name == "unavailable")
    assert finding.sentence.startswith("operation send: nothing succeeded from 1.000 s to 46.000 s")
    shown = list(finding.witness.rows)
    assert finding.details["examples"][0]["key"] == "operation send"
    assert ("unavailable", "operation send") in {(i.name, i.key) for i in reference.find(shown, OPTIONS)}
    assert len(shown) == 4
