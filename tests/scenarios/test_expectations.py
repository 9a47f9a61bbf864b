"""Each expectation is met by a history in which it happened, and not by one in which it did not."""

import itertools
import json

import msgspec
import pytest

from checkers.schema import COLUMNS, HARNESS, MONITOR, NEMESIS
from harness.claims.scenarios.expectations import (
    Answers,
    AtStake,
    Backlog,
    Becomes,
    Before,
    Bounded,
    CatchesUp,
    Changing,
    Converges,
    Exactly,
    ExpectedTakeover,
    Flaps,
    Follows,
    GoesOn,
    Happens,
    KeepsKnowing,
    Moved,
    Notices,
    QueuesChange,
    Refuses,
    RefusesChange,
    Reported,
    Resumed,
    SaidBy,
    Says,
    SendsFail,
    Shares,
    SlowestSend,
    Takeovers,
    UnknownCommits,
)
from harness.claims.scenarios.scenario import Failure, Scenario
from harness.claims.scenarios.seen import ObservedRun
from harness.interface import Fault, Schedule, TestSpec


def row(process, type_, f, second=None, **columns):
    return {**dict.fromkeys(COLUMNS), "process": process, "type": type_, "f": f, "second": second, **columns}


def fault(label, type_="invoke", second=None):
    f = label.rpartition("-")[0]
    value = json.dumps({"label": label.removeprefix("heal:"), "nodes": [], "links": []})
    return row(NEMESIS, type_, f, second, value=value)


def phase(name, second=None):
    return row(HARNESS, "info", "phase", second, value=name)


def live(broker, node):
    return row(MONITOR, "info", "role", broker=broker, node_id=node, role="live", time_low=0, time_high=0)


def taken(broker, node, life=2):
    return row(MONITOR, "info", "takeover", broker=broker, node_id=node, value=str(life), time_low=0)


def send(message, broker="a1", second=None, took_s=0.0, type_="ok"):
    columns = {"queue": "q", "group": "g", "message": message, "producer": 1, "sequence": message}
    answered = None if second is None else second + took_s
    return [
        row(1, "invoke", "send", second, **columns),
        row(1, type_, "send", answered, broker=broker, **columns),
    ]


def deliver(message, broker="a1", second=None):
    return [row(2, "ok", "deliver", second, queue="q", group="g", message=message, broker=broker, session=1)]


def ack(message, broker="a1", second=None):
    columns = {"queue": "q", "group": "g", "message": message, "session": 1}
    return [row(2, "invoke", "ack", second, **columns), row(2, "ok", "ack", second, broker=broker, **columns)]


def seen(*pieces, logs=None, reported=()):
    """A run with these rows, a second apart where they say nothing of time."""
    parts = ([piece] if isinstance(piece, dict) else piece for piece in pieces)
    rows = [dict(each) for each in itertools.chain.from_iterable(parts)]
    at = 0.0
    for index, each in enumerate(rows):
        second = each.pop("second")
        at = at + 1.0 if second is None else second
        each.update(index=index, time=round(at * 1e9))
    return ObservedRun(valid=True, rows=rows, logs=logs, reported=frozenset(reported))


def drained(*pieces):
    """As ``seen``, and at its end nothing is left anywhere: what was not delivered is lost."""
    readings = [row(HARNESS, "ok", "browse", broker=broker) for broker in ("a1", "b1")]
    end = [phase("drain"), phase("browse"), *readings, phase("end")]
    return seen(*pieces, *end)


KILLED = [live("a1", "A"), fault("kill-1"), live("a2", "A"), phase("heal")]


def test_a_takeover_is_who_is_live_with_the_node_id_of_another():
    wanted = Takeovers((ExpectedTakeover("a1", "a2"),))
    assert str(wanted) == "a2 takes over a1's data"
    assert wanted.wrong(seen(KILLED)) == ""
    crossed = [live("a1", "A"), live("b1", "B"), fault("kill-1"), live("a2", "B"), phase("heal")]
    assert wanted.wrong(seen(crossed)) == "a2 took over b1's data"
    assert wanted.wrong(seen(live("a1", "A"), fault("kill-1"), phase("heal"))) == "no broker took over"
    another = seen(live("a1", "A"), fault("kill-1"), live("b1", "A"), phase("heal"))
    assert wanted.wrong(another) == "b1 took over a1's data"


def test_a_takeover_told_by_its_taker_counts_and_the_victims_return_is_none():
    members = [live("b1", "B"), live("b2", "C"), fault("kill-1"), taken("b2", "B"), phase("heal")]
    anyone = Takeovers((ExpectedTakeover("b1"),))
    assert str(anyone) == "one other broker takes over b1's data"
    assert anyone.wrong(seen(members)) == ""
    back = [live("b1", "B"), fault("kill-1"), live("b1", "B"), phase("heal")]
    assert anyone.wrong(seen(back)) == "no broker took over"
    failback = seen(
        live("b1", "B"), fault("kill-1"), taken("b2", "B"), live("b2", "B"), live("b1", "B"), phase("heal")
    )
    assert failback.successions() == [("b1", "b2"), ("b1", "b1")]
    others = Takeovers((ExpectedTakeover("b1"), ExpectedTakeover("b1")))
    assert others.wrong(failback) == "b2 took over b1's data, then b1 took its own data back"


def test_what_was_taken_over_before_the_first_fault_counts_for_nothing():
    assert Takeovers().wrong(seen(live("a1", "A"), live("a2", "A"), fault("kill-1"), phase("heal"))) == ""
    assert Takeovers().wrong(seen(live("a1", "A"), live("a2", "A"), phase("heal"))) == ""


def test_a_victim_that_comes_again_beside_its_taker_has_nothing_and_has_taken_nothing_over():
    members = [live("a1", "A"), live("b1", "B"), fault("pause-1"), taken("b1", "A"), live("a1", "A")]
    assert seen(members, phase("heal")).successions() == [("a1", "b1")]
    again = [*members, taken("b1", "A", 4)]
    assert seen(again, phase("heal")).successions() == [("a1", "b1"), ("a1", "b1")]


def test_takeovers_of_one_brokers_data_may_be_all_that_is_looked_at():
    both = seen(
        live("a1", "A"), live("b1", "B"), live("c1", "C"), fault("kill-1"), taken("c1", "B"), taken("c1", "A")
    )
    assert Takeovers((ExpectedTakeover("a1"),), of="a1").wrong(both) == ""
    assert (
        Takeovers((ExpectedTakeover("a1"),)).wrong(both)
        == "c1 took over b1's data, then c1 took over a1's data"
    )
    assert Takeovers((), of="b1").wrong(both) == "c1 took over b1's data"


def test_one_takeover_more_is_one_too_many_and_what_comes_after_the_healing_counts_for_nothing():
    once = Takeovers((ExpectedTakeover("a1", "a2"),))
    failback = [*KILLED[:-1], live("a1", "A"), phase("heal")]
    assert once.wrong(seen(failback)) == "a2 took over a1's data, then a1 took its own data back"
    assert Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"))).wrong(seen(failback)) == ""
    assert once.wrong(seen(KILLED, live("a1", "A"))) == ""
    assert Takeovers().wrong(seen(KILLED)) == "a2 took over a1's data"
    assert Takeovers().wrong(seen(live("a1", "A"), fault("kill-1"), phase("heal"))) == ""


def test_a_warning_is_reported():
    assert Reported("unavailable").wrong(seen(reported=["unavailable"])) == ""
    assert Reported("unavailable").wrong(seen()) == "unavailable was not reported"


def test_only_what_was_acknowledged_in_a_window_may_be_lost():
    window = Exactly(finding="lost", window=("kill-1", "destroy-2"))
    assert str(window) == "lost: only messages acknowledged between kill-1 and destroy-2"
    within = drained(send(1), deliver(1), ack(1), fault("kill-1"), send(2), fault("destroy-2"))
    assert window.wrong(within) == ""
    before = drained(send(1), fault("kill-1"), send(2), fault("destroy-2"))
    assert window.wrong(before) == "lost as well: message 1"
    assert window.wrong(drained(send(1), deliver(1), ack(1))) == "nothing was lost"
    under_way = [send(1), fault("destroy-2", "info")]
    assert window.wrong(drained(fault("kill-1"), fault("destroy-2"), *under_way)) == ""
    assert (
        window.wrong(drained(fault("kill-1"), fault("destroy-2"), *reversed(under_way)))
        == "lost as well: message 1"
    )


def test_a_window_that_never_began_excuses_nothing_and_one_that_never_ended_all_that_came_later():
    window = Exactly(finding="lost", window=("kill-1", "destroy-2"))
    assert window.wrong(drained(send(1))) == "lost as well: message 1"
    assert window.wrong(drained(send(1), fault("destroy-2"))) == "lost as well: message 1"
    assert window.wrong(drained(fault("kill-1"), send(1))) == ""


def test_a_window_ends_when_its_fault_took_effect_and_not_when_that_was_healed():
    window = Exactly(finding="lost", window=("kill-1", "destroy-2"))
    done = [fault("destroy-2"), fault("destroy-2", "info")]
    healed = [fault("heal:destroy-2"), fault("heal:destroy-2", "info")]
    assert window.wrong(drained(fault("kill-1"), send(1), *done, *healed)) == ""
    assert window.wrong(drained(fault("kill-1"), *done, send(1), *healed)) == "lost as well: message 1"


def test_only_what_a_named_broker_took_may_be_lost():
    one = drained(send(1, "b1"), send(2, "a1"), deliver(2), ack(2))
    both = drained(send(1, "b1"), send(2, "a1"))
    assert Exactly(finding="lost", broker="b1").wrong(one) == ""
    assert Exactly(finding="lost", broker="b1").wrong(both) == "lost as well: message 2"


def test_a_message_has_moved_that_another_broker_delivers_first():
    run = seen(send(1, "a1"), send(2, "a1"), deliver(1, "b1"), deliver(2, "a1"), deliver(2, "b1"))
    assert Moved(least=1, of="a1", by="b1").wrong(run) == ""
    assert Moved(least=2).wrong(run) == "1 messages were delivered by another broker"
    assert Moved(least=0, most=0).wrong(run) == "1 messages were delivered by another broker"
    assert Moved(least=1, by="c1").wrong(run)
    assert Moved(least=1, of="b1").wrong(run) == "0 messages were delivered by another broker"


def test_what_moves_in_a_window_moves_after_its_fault_was_seen_and_before_the_healing():
    """Before the cut was seen, a message may still pass; what moves later is not meant either."""
    cut = fault("partition-1"), deliver(1, "b1"), fault("partition-1", "info")
    sends = [send(number) for number in (1, 2, 3)]
    window = "partition-1", "heal:partition-1"
    none = Moved(least=0, most=0, of="a1", by="b1", window=window)
    healed = seen(*sends, *cut, deliver(2, "a1"), fault("heal:partition-1"), deliver(3, "b1"))
    assert none.wrong(healed) == ""
    assert Moved(least=2).wrong(healed) == ""
    assert Moved(least=1, window=("heal:partition-1", "heal")).wrong(healed) == ""
    leaky = seen(*sends, *cut, deliver(2, "b1"), fault("heal:partition-1"), deliver(3, "b1"))
    assert none.wrong(leaky) == "1 messages were delivered by another broker meanwhile"
    assert none.wrong(seen(*sends, deliver(1, "a1"))), "there was no cut"
    assert str(none) == "b1 delivers no messages that a1 accepted between partition-1 and heal:partition-1"


def reading(broker, *messages):
    """A complete reading of a broker's stores: (message, store)."""
    stored = [
        row(HARNESS, "ok", "browse", queue="q", message=message, broker=broker, value=store)
        for message, store in messages
    ]
    return [*stored, row(HARNESS, "ok", "browse", broker=broker)]


def test_a_share_is_what_a_broker_delivers_first_of_what_one_broker_took():
    sends = [send(1), send(2), send(3), send(4, "c1")]
    run = seen(
        *sends, deliver(1, "a1"), deliver(2, "b1"), deliver(3, "b1"), deliver(1, "b1"), deliver(4, "c1")
    )
    assert Shares(sent_at="a1", brokers={"a1": (1, 1), "b1": (2, 3), "c1": (0, 0)}).wrong(run) == ""
    told = "messages that a1 accepted were delivered by a1 1, b1 2"
    assert Shares(sent_at="a1", brokers={"a1": (2, 9), "b1": (2, 2)}).wrong(run) == told
    assert Shares(sent_at="a1", brokers={"a1": (0, 0), "b1": (2, 2)}).wrong(run) == told
    assert Shares(sent_at="a1", brokers={"b1": (2, 2)}).wrong(run) == told, "a1 must have none"
    assert Shares(sent_at="c1", brokers={"c1": (1, 1)}).wrong(run) == ""


def test_a_share_is_what_a_broker_keeps_by_the_last_complete_reading():
    sends = [send(1), send(2), send(3), send(4, "b1")]
    first = reading("c1", (1, "main"), (2, "main"), (3, "dead-letter"), (4, "main"))
    kept = Shares(sent_at="a1", brokers={"c1": (2, 2)}, of="stored")
    assert kept.wrong(seen(*sends, first, reading("a1"))) == ""
    again = seen(*sends, first, reading("c1", (1, "main")))
    assert kept.wrong(again) == "messages that a1 accepted were kept by c1 1"
    broken_off = seen(*sends, first, reading("c1", (1, "main"))[:-1])
    assert kept.wrong(broken_off) == "", "a reading that did not end says nothing"
    assert kept.wrong(seen(*sends, first, reading("b1", (3, "main")))), "b1 must have none"


def test_producers_resume_where_others_take_what_they_send():
    run = seen(send(1, "a1"), send(2, "b1"), phase("heal"), send(3, "b1"))
    assert Resumed(of="a1").wrong(run) == ""
    assert Resumed(of="a1", least=2).wrong(run) == "other brokers accepted 1 sends of a1's producers"
    assert Resumed(of="b1").wrong(run) == "other brokers accepted 0 sends of b1's producers"


def test_a_line_is_said_by_the_named_broker_as_often_as_it_must_be():
    run = seen(logs={"a1": ["INFO a1 served", "WARNING a1 duplicate node ID"], "a2": ["WARNING duplicate"]})
    assert Says("a1", "duplicate node ID", 1).wrong(run) == ""
    assert Says("a1", "duplicate", 2).wrong(run) == 'a1 logged "duplicate" 1 times'
    assert Says("a2", "node ID").wrong(run) == 'a2 logged "node ID" 0 times'
    assert Says("b1", "anything").wrong(run)
    assert Says(None, "duplicate", 2).wrong(run) == ""
    assert Says(None, "duplicate", 1).wrong(run) == 'some broker logged "duplicate" 2 times'


def connect(broker, second, type_="ok", error=None):
    return [row(3, "invoke", "connect", second), row(3, type_, "connect", second, broker=broker, error=error)]


QUIET = [fault("quiesce-1", second=2), fault("heal:quiesce-1", second=5)]
REFUSES = Refuses(broker="a1", pattern="quiescing", window=("quiesce-1", "heal:quiesce-1"))


@pytest.mark.parametrize(
    ("attempts", "wrong"),
    [
        ((connect("a1", 1), QUIET[0], connect("a1", 3, "fail", "a1 is quiescing"), QUIET[1],
          connect("a1", 6)), ""),
        ((QUIET[0], connect("a1", 3, "fail", "a1 is quiescing"), connect("a1", 4), QUIET[1]),
         "a1 accepted 1 new clients meanwhile"),
        ((QUIET[0], connect("a1", 3, "fail", "no answer"), connect("b1", 4), QUIET[1]),
         "a1 refused no client"),
        ((connect("a1", 3, "fail", "a1 is quiescing"),), "a1 refused no client"),
    ],
)  # fmt: skip
def test_who_comes_within_a_window_is_refused_for_the_reason_that_is_named(attempts, wrong):
    assert REFUSES.wrong(seen(*attempts)) == wrong


def change(f, second, error=None, broker="a1"):
    columns = {"queue": "/topic/t", "subscription": "s", "broker": broker}
    return [
        row(3, "invoke", f, second, **columns),
        row(3, "info" if error else "ok", f, second, error=error, **columns),
    ]


def test_refused_changes_of_subscriptions_within_a_window_are_counted():
    run = seen(
        change("drop", 1, "no master"),
        QUIET[0],
        change("subscribe", 3),
        change("subscribe", 3, "no master"),
        change("drop", 4, "no master"),
        change("drop", 4, "connection lost"),
        change("drop", 4, "no master", broker="b1"),
        QUIET[1],
    )
    expected = RefusesChange(broker="a1", pattern="no master", window=REFUSES.window, least=2)
    assert str(expected) == (
        'a1 refuses at least 2 changes of subscriptions between quiesce-1 and heal:quiesce-1 ("no master")'
    )
    assert expected.wrong(run) == ""
    replace = msgspec.structs.replace
    words = "a1 refused 2 changes of subscriptions for that reason"
    assert replace(expected, least=3).wrong(run) == replace(expected, most=0).wrong(run) == words
    assert replace(expected, least=0, most=0, broker="c1").wrong(run) == ""
    assert replace(expected, least=0, window=("kill-1", "heal")).wrong(run)
    drops = replace(expected, f="drop")
    assert str(drops) == (
        'a1 refuses at least 2 drop requests between quiesce-1 and heal:quiesce-1 ("no master")'
    )
    assert drops.wrong(run) == "a1 refused 1 drop requests for that reason"


def test_queues_that_change_within_a_window_are_counted():
    guard = QueuesChange(window=REFUSES.window, least=1)
    assert str(guard) == "at least 1 queues are created and 1 deleted between quiesce-1 and heal:quiesce-1"
    inside = change("create", 3), change("delete", 4)
    assert guard.wrong(seen(QUIET[0], *inside, QUIET[1])) == ""
    words = "only 1 queues were created and 0 deleted meanwhile"
    refused = change("create", 3), change("delete", 4, "no master")
    assert guard.wrong(seen(QUIET[0], *refused, QUIET[1])) == words
    assert guard.wrong(seen(QUIET[0], inside[0], QUIET[1], change("delete", 6))) == words
    assert guard.wrong(seen(*inside))


def view(broker, key, value, kind="subscriptions"):
    text = json.dumps({"kind": kind, "key": key, "value": value})
    return row(HARNESS, "ok", "view", broker=broker, value=text)


def test_brokers_converge_if_all_have_the_same_and_enough_of_it():
    both = Converges(kind="subscriptions", brokers=("a1", "b1"), least=1)
    assert str(both) == "a1 and b1 agree on at least 1 subscriptions"
    alike = [view(broker, key, value) for broker in ("a1", "b1") for key, value in (("s", "1"), ("t", None))]
    assert both.wrong(seen(*alike, view("a1", "u", "1", kind="members"))) == ""
    assert msgspec.structs.replace(both, least=2).wrong(seen(*alike)) == "a1 has 1 subscriptions"
    differ = "a1 and b1 differ in 1 subscriptions, such as s"
    assert both.wrong(seen(view("a1", "s", "1"), view("b1", "s", "2"))) == differ
    assert both.wrong(seen(view("a1", "s", "1"), view("c1", "s", "1"))) == differ
    assert both.wrong(seen()) == "a1 has 0 subscriptions"


def test_answers_and_deliveries_within_a_window_are_counted():
    window = ("quiesce-1", "heal:quiesce-1")
    run = seen(
        send(1, second=1),
        QUIET[0],
        deliver(1, second=3),
        deliver(2, "b1", second=4),
        QUIET[1],
        ack(1, second=6),
    )
    none = Answers(broker="a1", window=window, after_s=1.5, most=0)
    assert str(none) == "no answers and deliveries of a1 between 1.5 s after quiesce-1 and heal:quiesce-1"
    assert none.wrong(run) == ""
    assert Answers(broker="a1", window=window, most=0).wrong(run) == "1 answers and deliveries meanwhile"
    assert Answers(window=window, least=2).wrong(run) == ""
    assert Answers(window=window, least=3).wrong(run) == "2 answers and deliveries meanwhile"
    assert Answers(window=("kill-1", "heal"), most=0).wrong(run) == "0 answers and deliveries meanwhile"


def test_one_broker_says_a_line_before_another_does():
    logs = {
        "a1": ["2026-11-22T10:00:02.500Z ERROR a1 gone"],
        "b1": ["2026-11-22T10:00:02.400Z INFO b1 taken"],
    }
    assert Before("b1", "taken", "a1", "gone").wrong(seen(logs=logs)) == ""
    assert Before("a1", "gone", "b1", "taken").wrong(seen(logs=logs)) == 'b1 logged "taken" first'
    assert Before("a1", "gone", None, "taken").wrong(seen(logs=logs)) == 'another broker logged "taken" first'
    assert Before("b1", "taken", None, "gone").wrong(seen(logs=logs)) == ""
    assert Before("a1", "dead", "b1", "taken").wrong(seen(logs=logs)) == 'a1 never logged "dead"'
    assert Before("a1", "gone", "b1", "begun").wrong(seen(logs=logs)) == 'b1 never logged "begun"'


def test_a_broker_that_had_to_be_started_again_did_not_go_on():
    restarted = seen(fault("pause-1"), row(HARNESS, "info", "restart", broker="a1"))
    assert GoesOn("a1").wrong(restarted) == "a1 had ended by itself and was started again"
    assert GoesOn("b1").wrong(restarted) == ""


def test_an_event_that_never_came_refutes_the_row_that_promises_it_and_leaves_others_undecided():
    missed = ObservedRun(
        valid=None, rows=[], reasons=["kill-2 was not injected: member/takeover-begun never came"]
    )
    promised = scenario(besides=(Happens("member/takeover-begun"), Takeovers()))
    assert promised.judge(missed).failures == (
        Failure("the event member/takeover-begun occurs", "member/takeover-begun never came"),
    )
    for other in (scenario(), scenario(besides=(Happens("member/suspected"), Takeovers()))):
        assert other.judge(missed).undecided.startswith("the run ended unknown: kill-2 was not injected")
    broken = ObservedRun(valid=None, rows=[], reasons=["the drain did not end"])
    assert promised.judge(broken).undecided == "the run ended unknown: the drain did not end"


def test_a_race_in_which_one_ran_shows_nothing():
    guard = SaidBy(least=2, pattern="taking over")
    assert guard.wrong(seen(logs={"a1": ["taking over"], "b1": ["taking over", "x"]})) == ""
    alone = guard.wrong(seen(logs={"a1": ["taking over", "taking over"], "b1": []}))
    assert alone == '1 brokers logged "taking over"'


def test_the_slowest_send_waits_for_the_bound_and_not_longer():
    run = seen(send(1, second=0, took_s=0.1), send(2, second=1, took_s=3.0))
    assert SlowestSend(least_s=2, most_s=4).wrong(run) == ""
    assert SlowestSend(most_s=2).wrong(run) == "the slowest send took 3.0 s"
    assert SlowestSend(least_s=5, most_s=9).wrong(run) == "the slowest send took 3.0 s"


def test_a_send_that_is_never_answered_has_waited_to_the_end():
    assert (
        SlowestSend(most_s=4).wrong(seen(send(1, second=0)[:1], phase("end", 60)))
        == "the slowest send took 60.0 s"
    )


def test_sends_fail_for_the_reason_that_is_expected():
    def failed(message, error, type_="fail"):
        invoke, answer = send(message, type_=type_)
        return [invoke, {**answer, "error": error}]

    run = seen(failed(1, "q is full"), failed(2, "broker said: full", "info"), failed(3, "closed"), send(4))
    assert SendsFail(least=2, pattern="full").wrong(run) == ""
    assert SendsFail(least=3, pattern="full").wrong(run) == "2 sends failed for that reason"
    assert str(SendsFail(least=3, pattern="full")) == 'at least 3 sends fail ("full")'
    certainly = SendsFail(least=2, pattern="full", certainly=True)
    assert certainly.wrong(run) == "1 sends certainly failed for that reason"
    assert str(certainly) == 'at least 2 sends certainly fail ("full")'
    assert SendsFail(least=1, pattern="full", certainly=True).wrong(run) == ""


def test_a_broker_may_answer_until_the_fault_is_seen_to_have_taken_effect():
    run = seen(
        fault("kill-1", second=2),
        send(1, second=3),
        fault("kill-1", "info", second=4),
        send(2, second=5),
        fault("heal:kill-1", second=6),
    )
    window = ("kill-1", "heal:kill-1")
    assert Answers(window=window, most=1).wrong(run) == ""
    assert Answers(window=window, most=0).wrong(run) == "1 answers and deliveries meanwhile"
    assert Answers(window=window, most=0, after_s=3.5).wrong(run) == ""


@pytest.mark.parametrize(
    ("asked", "ends", "count"),
    [(1, [], 1), (3, [], 1), (5, [], 0), (3, [("ok", 4)], 0), (3, [("info", 4)], 1)],
)
def test_commits_under_way_when_a_fault_strikes_stay_unknown(asked, ends, count):
    commit = [row(1, "invoke", "commit", asked, transaction=7)]
    ended = [row(1, type_, "commit", second, transaction=7) for type_, second in ends]
    run = seen(commit, ended, [fault("kill-1", second=2), fault("kill-1", "info", second=4)])
    wrong = UnknownCommits(least=1, at="kill-1").wrong(run)
    assert wrong == ("" if count else "only 0 commits under way at kill-1 stayed unknown")
    assert UnknownCommits(least=1, at="kill-2").wrong(run) == "kill-2 never came"


def test_commits_fail_as_often_as_is_expected():
    run = seen([row(1, "invoke", "commit"), row(1, "fail", "commit", error="q is full")], send(4))
    none = SendsFail(least=0, most=0, pattern="", op="commit")
    assert none.wrong(run) == "1 commits failed for that reason"
    assert none.wrong(seen(send(4))) == ""
    assert str(none) == "no commits fail"
    assert SendsFail(least=1, pattern="full", op="commit").wrong(run) == ""


def test_a_bound_counts_what_a_broker_took_and_nobody_has_acknowledged():
    run = seen(send(1), send(2), ack(1), send(3), send(4, "b1"), send(5, type_="info"), ack(2), send(6))
    assert Bounded(broker="a1", most=2).wrong(run) == ""
    assert Bounded(broker="a1", most=1).wrong(run) == "a1 held 2 messages"
    assert Bounded(broker="b1", most=1).wrong(run) == ""
    assert str(Bounded(broker="b1", most=1)) == "b1 never holds more than 1 messages"


def test_a_message_that_was_acknowledged_before_its_send_was_answered_is_not_held():
    (asked, answered) = send(1)
    assert Bounded(broker="a1", most=0).wrong(seen([asked], ack(1), [answered])) == ""


def scenario(**fields):
    return Scenario(
        id="X1",
        claim="c",
        source="s",
        spec=TestSpec(name="x"),
        schedule=Schedule(faults=(Fault(kind="kill", start_s=1.0),)),
        **fields,
    )


def stopped(broker, second):
    return row(MONITOR, "info", "role", second, broker=broker, role="stopped")


def test_a_broker_becomes_something_neither_sooner_nor_later():
    run = seen([fault("nfs-stall-1", second=3), stopped("a2", 3), stopped("a1", 1), stopped("a1", 7)])

    def ends(broker="a1", after="nfs-stall-1", least_s=0.0, most_s=9.0):
        return Becomes(broker=broker, role="stopped", after=after, least_s=least_s, most_s=most_s)

    assert ends(least_s=3, most_s=5).wrong(run) == ""
    assert str(ends(least_s=3, most_s=5)) == "a1 stops 3 to 5 s after nfs-stall-1"
    assert ends(most_s=3).wrong(run) == "a1 stopped after nfs-stall-1: 4.0 s"
    assert ends(least_s=5).wrong(run) == "a1 stopped after nfs-stall-1: 4.0 s"
    assert ends(after="kill-1").wrong(run) == "a1 stopped after kill-1: never"
    assert ends("b1").wrong(run) == "b1 stopped after nfs-stall-1: never"
    lives = Becomes(broker="a1", role="live", after="nfs-stall-1", most_s=9)
    assert lives.wrong(run) == "a1 live after nfs-stall-1: never"


def suspended(broker, second):
    return row(MONITOR, "info", "role", second, broker=broker, role="suspended")


def test_a_broker_is_suspended_and_serves_soon_after_another():
    run = seen([phase("start", 1), suspended("b1", 2), live("b1", "B"), live("a1", "A"), live("c1", "C")])
    waits = Becomes(broker="b1", role="suspended", after="start", most_s=2)
    assert str(waits) == "b1 is suspended 0 to 2 s after start"
    assert waits.wrong(run) == ""
    assert msgspec.structs.replace(waits, broker="a1").wrong(run) == "a1 suspended after start: never"
    follows = Follows(broker="c1", other="a1", most_s=1.0)
    assert str(follows) == "c1 becomes live at most 1 s after a1"
    assert follows.wrong(run) == ""
    assert msgspec.structs.replace(follows, broker="b1").wrong(run) == ""
    late = msgspec.structs.replace(follows, most_s=0.9)
    assert late.wrong(run) == "c1 became live 1.0 s after a1"
    for missing in ("broker", "other"):
        assert msgspec.structs.replace(follows, **{missing: "d1"}).wrong(run) == "d1 was never live"


def knows(broker, key, value, low, high, kind="members"):
    """The broker changed what it knows between these seconds."""
    text = json.dumps({"kind": kind, "key": key, "value": value})
    times = {"time_low": round(low * 1e9), "time_high": round(high * 1e9)}
    return row(MONITOR, "info", "view-change", high, broker=broker, value=text, **times)


CUT_OFF = [
    knows("a1", "n1", "a1 h:1", 0, 1),
    knows("a1", "n2", "b1 h:2", 0, 1),
    knows("b1", "n1", "a1 h:1", 0, 1),
    fault("partition-1", second=3),
    knows("a1", "n2", None, 5, 6),
    fault("heal:partition-1", second=8),
    knows("a1", "n3", "b1 h:2", 8, 10),
    phase("heal", 12),
]


def test_a_broker_notices_another_one_in_time():
    run = seen(CUT_OFF)

    def notices(broker="a1", present=False, after="partition-1", most_s=3.0):
        return Notices(broker=broker, other="b1", present=present, after=after, most_s=most_s)

    assert str(notices()) == "a1 forgets b1 within 3 s after partition-1"
    assert notices().wrong(run) == ""
    assert notices(most_s=2).wrong(run) == "a1 forgot b1 after 3.0 s"
    assert notices(present=True, after="heal:partition-1").wrong(run) == ""
    late = notices(present=True, after="heal:partition-1", most_s=1)
    assert late.wrong(run) == "a1 knew b1 after 2.0 s"
    never = notices(after="heal:partition-1")
    assert never.wrong(run) == "a1 knew b1 all the time after heal:partition-1"
    unknown = notices("b1", present=True)
    assert unknown.wrong(run) == "b1 did not know b1 all the time after partition-1"
    assert notices(after="kill-1").wrong(run) == "kill-1 never came"


def test_a_view_of_another_kind_is_not_what_a_broker_knows_of_members():
    other = seen(knows("a1", "n2", "b1 h:2", 0, 1, kind="topology"), fault("kill-1", second=3))
    keeps = KeepsKnowing(broker="a1", others=("b1",), window=("kill-1", "heal"))
    assert keeps.wrong(other) == "a1 did not know b1 at kill-1"


def test_entries_of_discovery_tell_whom_a_broker_hears():
    run = seen(
        knows("a1", "b1:61616", "N", 0, 1, kind="discovery"),
        knows("a1", "n2", "c1 h:2", 0, 1),
        fault("kill-1", second=3),
        knows("a1", "b1:61616", None, 5, 6, kind="discovery"),
    )
    hears = KeepsKnowing(broker="a1", others=("b1",), window=("kill-1", "heal"), view="discovery")
    assert str(hears) == "a1 knows b1 all the time between kill-1 and heal (by discovery)"
    assert hears.wrong(run) == "a1 forgot b1 meanwhile"
    forgets = Notices(broker="a1", other="b1", present=False, after="kill-1", most_s=3, view="discovery")
    assert str(forgets) == "a1 forgets b1 within 3 s after kill-1 (by discovery)"
    assert forgets.wrong(run) == ""
    stranger = KeepsKnowing(broker="a1", others=("c1",), window=("kill-1", "heal"), view="discovery")
    assert stranger.wrong(run) == "a1 did not know c1 at kill-1"


def test_a_broker_that_ceases_to_hear_another_one_is_counted():
    heard = ("N", None, "N", None, "N")
    run = seen(
        knows("a1", "b1:61616", value, second, second + 1, kind="discovery")
        for second, value in enumerate(heard)
    )
    assert Flaps(broker="a1", other="b1", least=2).wrong(run) == ""
    assert Flaps(broker="a1", other="b1", least=3).wrong(run) == "a1 ceased to hear b1 2 times"
    assert Flaps(broker="a1", other="c1", least=1).wrong(run) == "a1 ceased to hear c1 0 times"
    assert str(Flaps(broker="a1", other="b1", least=2)) == "a1 ceases to hear b1 at least 2 times"


def test_a_broker_that_forgets_another_one_meanwhile_does_not_keep_knowing_it():
    run = seen(CUT_OFF)

    def keeps(broker="a1", others=("b1",), window=("partition-1", "heal")):
        return KeepsKnowing(broker=broker, others=others, window=window)

    assert str(keeps(others=("a1", "b1"))) == "a1 knows a1 and b1 all the time between partition-1 and heal"
    assert keeps("b1", ("a1",)).wrong(run) == ""
    assert keeps().wrong(run) == "a1 forgot b1 meanwhile"
    assert keeps(window=("heal:partition-1", "heal")).wrong(run) == "a1 did not know b1 at heal:partition-1"
    assert keeps("b1", ("a1", "c1")).wrong(run) == "b1 did not know c1 at partition-1"
    assert keeps("b1", ("a1",), ("kill-1", "heal")).wrong(run) == "b1 did not know a1 at kill-1"


def test_a_broker_that_knows_another_one_under_two_node_ids_forgets_it_with_the_last():
    first = [knows("a1", key, "b1 h:2", 0, 1) for key in ("n2", "n3")]
    run = seen([*first, fault("kill-1", second=3), knows("a1", "n2", None, 4, 5)])
    assert KeepsKnowing(broker="a1", others=("b1",), window=("kill-1", "heal")).wrong(run) == ""


def test_a_broker_gets_the_changes_that_it_lacks_in_time():
    def has(broker, number, high, kind="subscriptions"):
        return knows(broker, f"k{number}", f"{number} t", high - 1, high, kind=kind)

    run = seen(
        has("a1", 3, 1),
        has("c1", 3, 1),
        has("a1", 9, 2),
        knows("a1", "own", "not recorded t", 1, 2, kind="subscriptions"),
        knows("a1", "k9", None, 2, 3, kind="subscriptions"),
        fault("heal:kill-1", second=4),
        has("a1", 99, 5),
        has("c1", 8, 6),
        has("c1", 70, 6, "destinations"),
        has("c1", 9, 7),
    )

    def catches_up(**fields):
        fields = {"broker": "c1", "other": "a1", "kind": "subscriptions", "most_s": 3.0} | fields
        return CatchesUp(**{"after": "heal:kill-1", "least": 6} | fields)

    assert str(catches_up()) == (
        "c1 has the changes of subscriptions that a1 had at heal:kill-1, at least 6 that it lacked, "
        "within 3 s"
    )
    assert catches_up().wrong(run) == ""
    assert catches_up(most_s=2.9).wrong(run) == "c1 had them after 3.0 s"
    assert catches_up(least=7).wrong(run) == "at heal:kill-1, a1 had change 9, and c1 change 3"
    assert catches_up(broker="b1").wrong(run) == "b1 did not have change 9 of a1 during the load"
    assert catches_up(after="kill-1").wrong(run) == "kill-1 never came"


def test_a_run_with_nothing_to_lose_is_unknown():
    guarded = scenario(guards=(AtStake(least=2, broker="a1", at="kill-1"),))
    enough = seen(send(1), send(2), fault("kill-1"), ack(1))
    assert guarded.judge(enough).problem == ""
    judgement = guarded.judge(seen(send(1), send(2), ack(1), fault("kill-1")))
    assert judgement.undecided == "the run shows nothing: only 1 messages were unacknowledged at kill-1"
    assert guarded.judge(seen(send(1), send(2, "b1"), fault("kill-1"))).undecided
    assert guarded.judge(seen(send(1), send(2))).undecided == "the run shows nothing: kill-1 never came"


def test_a_failure_says_which_expectation_it_is_of():
    both = scenario(besides=(Reported("unavailable"), Takeovers((ExpectedTakeover("a1", "a2"),))))
    assert both.expected == "valid; unavailable is reported; a2 takes over a1's data"
    assert both.judge(seen(KILLED)).failures == (
        Failure("unavailable is reported", "unavailable was not reported"),
    )


@pytest.mark.parametrize("grave", [frozenset({"lost"})])
def test_what_was_found_refutes_a_run_also_where_its_guard_was_not_met(grave):
    guarded = scenario(guards=(AtStake(least=2, at="kill-1"),))
    judgement = guarded.judge(ObservedRun(valid=False, grave=grave, rows=()))
    assert judgement.problem == "found lost besides"
    assert not judgement.undecided


def of_subscription(f, name, second, type_="ok", **columns):
    columns = {"queue": "/topic/t", "subscription": name, **columns}
    return [row(5, "invoke", f, second, **columns), row(5, type_, f, second, broker="a1", **columns)]


def published(message, second, colour):
    value = json.dumps({"properties": {"colour": colour}})
    return [{**each, "queue": "/topic/t", "value": value} for each in send(message, second=second)]


def test_a_backlog_is_what_was_sent_since_a_subscription_was_made_and_is_not_acknowledged():
    red = json.dumps({"selector": {"colour": ["red"]}})
    before = [
        published(1, 1.0, "red"),
        of_subscription("subscribe", "all", 2.0),
        of_subscription("subscribe", "red", 2.0, value=red),
        of_subscription("subscribe", "plain-1", 2.0),
        published(2, 3.0, "red"),
        published(3, 3.0, "blue"),
        of_subscription("ack", "all", 4.0, message=2),
    ]
    owed = Backlog(least=2, at="kill-1", broker="a1")
    assert owed.wrong(seen(*before, fault("kill-1", second=5.0))) == ""
    later = fault("kill-1", second=5.0), published(4, 6.0, "red")
    dropped = seen(*before, of_subscription("drop", "red", 4.5), *later)
    assert owed.wrong(dropped) == "only 1 messages were owed to subscriptions at kill-1"
    assert Backlog(least=1, at="kill-1", broker="b1").wrong(dropped)
    assert owed.wrong(seen(*before)) == "kill-1 never came"


def test_subscriptions_are_made_and_dropped_around_a_fault():
    changing = Changing(least=1, at="kill-1")
    made, dropped = of_subscription("subscribe", "s", 3.0), of_subscription("drop", "s", 2.0)
    assert changing.wrong(seen(dropped, made, fault("kill-1", second=5.0))) == ""
    assert "only 0 subscriptions were made" in changing.wrong(seen(dropped, fault("kill-1", second=5.0)))
    assert "0 dropped" in changing.wrong(seen(made, fault("kill-1", second=5.0)))
    assert "0 dropped" in changing.wrong(seen(dropped, made, fault("kill-1", second=8.5)))
    back = seen(made, dropped, made, made, fault("kill-1", second=5.0))
    assert Changing(least=3, at="kill-1").wrong(back).startswith("only 2 subscriptions were made")


def test_what_moved_is_counted_for_each_subscription():
    copies = [
        row(2, "ok", "deliver", queue="/topic/t", message=1, broker=broker, session=1, subscription=name)
        for name, broker in (("a", "a1"), ("b", "a2"), ("b", "a1"))
    ]
    assert Moved(least=1, of="a1").wrong(seen(send(1), copies)) == ""
    assert (
        Moved(least=2, of="a1").wrong(seen(send(1), copies)) == "1 messages were delivered by another broker"
    )
