"""Topics: to whom a message is owed, who must not get it, and what is no history of a topic."""

from __future__ import annotations

import random

import pytest
from checker_rows import MS, agreed, dense, o, table
from damaged import DAMAGE, damage
from topic_histories import ALICE, BOB, NEWS_OF_ALICE, PATIENT, TOPIC, Story, told

from checkers import breakage, judge, words
from checkers.instance import Instance
from checkers.source import HereSource, TablePart
from checkers.subscriptions import has_topics, split


def found(tmp_path, story, options=PATIENT):
    return {(i.name, i.queue, i.message, i.key) for i in agreed(tmp_path, dense(story.end().rows), options)}


@pytest.mark.parametrize("story", [Story().send(1), Story().send(1).keep(1, of=TOPIC)])
def test_a_topic_without_subscriptions_owes_nothing(tmp_path, story):
    assert found(tmp_path, story) == set()


def test_a_send_that_names_a_subscription_is_for_no_other(tmp_path):
    story = Story().subscribe(1).subscribe(2, of=BOB).send(1, of=ALICE).consume(1, 1)
    assert found(tmp_path, story) == set()


LOST = {("lost", NEWS_OF_ALICE, 1, "never delivered")}


def test_what_was_sent_to_a_topic_is_owed_to_each_subscription(tmp_path):
    story = Story().subscribe(1).subscribe(2, of=BOB).send(1).consume(1, 2, of=BOB)
    assert found(tmp_path, story) == LOST


def test_nothing_is_found_when_each_subscription_got_it_and_nobody_is_owed_without_one(tmp_path):
    story = Story().send(9).subscribe(1).subscribe(2, of=BOB).send(1)
    story.consume(1, 2, of=BOB).consume(1, 1)
    assert found(tmp_path, story) == set()


@pytest.mark.parametrize(
    "story",
    [
        Story().send(1).subscribe(1),
        Story().subscribe(1, outcome="info").send(1),
        Story().subscribe(1, outcome=None).send(1),
        Story().subscribe(1).send(1).drop(),
        Story().subscribe(1).send(1).drop(outcome="info"),
        Story().subscribe(1).send(1).drop(outcome=None),
        Story().subscribe(1).drop(outcome="info").subscribe(2).send(1),
        Story().subscribe(1).drop().send(1).subscribe(2),
        Story().subscribe(1).send(1, outcome="info"),
    ],
)
def test_what_a_subscription_may_not_have_been_there_for_is_not_owed(tmp_path, story):
    assert found(tmp_path, story) == set()


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe(1).leave(1).send(1),
        Story().subscribe(1).drop(outcome="fail").send(1),
        Story().subscribe(1).send(1).drop(outcome="fail"),
        Story().subscribe(1).drop().subscribe(2).send(1),
        Story().subscribe(1).drop().subscribe(2, outcome="info").subscribe(3).send(1),
        Story().subscribe(1).send(1).drop(of=BOB),
    ],
)
def test_what_it_was_certainly_there_for_is(tmp_path, story):
    assert found(tmp_path, story) == LOST


def test_what_is_still_stored_for_it_is_stuck(tmp_path):
    story = Story().subscribe(1).send(1).keep(1)
    assert found(tmp_path, story) == {("stuck", NEWS_OF_ALICE, 1, "never delivered")}


EARLIER = {("not-subscribed", NEWS_OF_ALICE, 1, "sent before it")}


@pytest.mark.parametrize(
    "story",
    [
        Story().send(1).subscribe(1).consume(1, 1),
        Story().subscribe(1).send(1).leave(1).drop().subscribe(2).consume(1, 2),
        Story().subscribe(1).leave(1).send(1).drop().subscribe(2, outcome="info").consume(1, 2),
        Story().subscribe(1).leave(1).send(1).drop().keep(1),
    ],
)
def test_it_must_not_get_what_was_sent_before_it_existed(tmp_path, story):
    assert found(tmp_path, story) == EARLIER


@pytest.mark.parametrize(
    "story",
    [
        Story().send(1, outcome="info").subscribe(1).consume(1, 1),
        Story().subscribe(1, outcome="info").send(1).subscribe(2).consume(1, 2),
        Story().subscribe(1).send(1).leave(1).drop(outcome="info").subscribe(2).consume(1, 2),
        Story().subscribe(1).send(1).leave(1).subscribe(3, outcome="info").drop().subscribe(2).consume(1, 2),
        Story()
        .subscribe(1)
        .leave(1)
        .send(1)
        .drop(outcome=None)
        .subscribe(3)
        .add(200, "ok", "drop", **ALICE)
        .subscribe(2)
        .consume(1, 2),
        Story().subscribe(1).send(1).drop().consume(1, 1),
        # Its session asked for a queue before the subscription was made.
        Story().subscribe(5, of={"queue": "q"}).send(1).subscribe(1).consume(1, 5),
        Story().subscribe(1).leave(1).drop().send(1).subscribe(2).leave(2).drop(of=BOB).keep(7, of=BOB),
    ],
)
def test_what_may_have_been_sent_while_it_existed_is_no_finding(tmp_path, story):
    names = {name for name, *_ in found(tmp_path, story)}
    assert "not-subscribed" not in names


RED = told(selector={"colour": ["red", "pink"]})


def test_a_selector_says_what_is_owed(tmp_path):
    story = Story().subscribe(1, value=RED)
    story.send(1, properties={"colour": "red"}).send(2, properties={"colour": "blue"}).send(3)
    assert found(tmp_path, story) == LOST


def test_and_what_must_not_come(tmp_path):
    story = Story().subscribe(1, value=RED)
    story.send(1, properties={"colour": "blue"}).send(2, properties={"colour": "pink"}).send(3)
    story.consume(1, 1).consume(2, 1).consume(3, 1)
    assert found(tmp_path, story) == {
        ("not-subscribed", NEWS_OF_ALICE, message, "not selected") for message in (1, 3)
    }


QUEUE = {"queue": "q"}
BLUE = told(selector={"colour": ["blue"]})


def after(*subscribes, of=QUEUE):
    """Session 1 subscribes to these places with these selectors, and gets a blue message."""
    story = Story()
    for place, value in subscribes:
        story.subscribe(1, of=place, value=value)
    story.send(1, of={"queue": of["queue"]}, properties={"colour": "blue"})
    return story.consume(1, 1, of=of)


@pytest.mark.parametrize(
    ("story", "unwanted"),
    [
        (after((QUEUE, RED)), True),
        (after((QUEUE, RED), ({"queue": "r"}, None)), True),
        (after(({"queue": "r"}, None), (QUEUE, RED)), True),
        (after(({"queue": "r"}, BLUE), (QUEUE, RED)), True),
        (after((QUEUE, RED), ({"queue": None}, RED)), True),
        (after((QUEUE, None), ({"queue": "r"}, RED)), False),
        (after((QUEUE, BLUE), ({"queue": "r"}, RED)), False),
        (after((QUEUE, BLUE), (QUEUE, RED)), False),
        (after((QUEUE, None), (QUEUE, RED)), False),
        (after((QUEUE, RED), ({"queue": None}, None)), False),
        (after(({"queue": "r"}, RED)), False),
        (after((ALICE, RED), (QUEUE, BLUE), of=ALICE), True),
        (after((ALICE, None), (QUEUE, RED), of=ALICE), False),
    ],
)
def test_a_session_may_want_other_messages_of_each_place(tmp_path, story, unwanted):
    keys = {key for name, *_, key in found(tmp_path, story) if name == "not-subscribed"}
    assert keys == ({"not selected"} if unwanted else set())


def test_a_selector_that_changed_leaves_nothing_owed(tmp_path):
    story = Story().subscribe(1, value=RED).leave(1).subscribe(2).send(1, properties={"colour": "red"})
    assert found(tmp_path, story) == set()


def test_a_consumer_of_a_queue_has_a_selector_too(tmp_path):
    queue = {"queue": "q"}
    story = Story().subscribe(1, of=queue, value=RED).subscribe(2, of=queue)
    for message, colour in ((1, "red"), (2, "blue"), (3, "blue")):
        story.send(message, of=queue, properties={"colour": colour})
    story.consume(1, 1, of=queue).consume(2, 1, of=queue).consume(3, 2, of=queue)
    assert found(tmp_path, story) == {("not-subscribed", "q", 2, "not selected")}


@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_order_of_a_group_is_kept_for_each_selector_not_between_them(tmp_path, elsewhere):
    queue = {"queue": "q"}
    story = Story().subscribe(1, of=queue, value=None if elsewhere else RED)
    story.subscribe(3, of={"queue": "r"}, value=RED)
    story.send(1, of=queue, properties={"colour": "blue"}).send(2, of=queue, properties={"colour": "red"})
    story.consume(2, 1, of=queue).leave(1, of=queue).subscribe(2, of=queue).consume(1, 2, of=queue)
    late = {"reordered", "reordered-realtime", "not-linearizable"}
    assert {name for name, *_ in found(tmp_path, story)} == (late if elsewhere else set())


@pytest.mark.parametrize(("store", "names"), [("dead-letter", set()), ("main", {"not-subscribed"})])
def test_what_died_in_a_subscription_outlives_it(tmp_path, store, names):
    story = Story().subscribe(1).send(1).leave(1).drop().keep(1)
    story.rows[-1]["value"] = store
    assert {name for name, *_ in found(tmp_path, story)} == names


def test_what_may_have_expired_in_a_subscription_was_not_certainly_consumed(tmp_path):
    for value, torn in ((None, True), (told(expires=[5, 9]), False)):
        inside = {"transaction": 7, "session": 1}
        story = Story().subscribe(1).send(1).deliver(1, 1).send(2, of={"queue": "q", "transaction": 7})
        story.rows[2]["value"] = value
        story.add(101, "invoke", "ack", 1, **ALICE, **inside).add(101, "ok", "ack", 1, **ALICE, **inside)
        story.add(101, "invoke", "commit", **inside).add(101, "info", "commit", **inside).leave(1)
        place = tmp_path / str(torn)
        place.mkdir()
        assert any(name == "torn-transaction" for name, *_ in found(place, story)) == torn


def test_a_message_is_delivered_once_to_each_subscription_and_twice_to_none(tmp_path):
    story = Story().subscribe(1).subscribe(2, of=BOB).send(1).consume(1, 1).consume(1, 2, of=BOB)
    story.deliver(1, 1)
    assert found(tmp_path, story) == {("duplicate", NEWS_OF_ALICE, 1, None)}


def test_a_transaction_is_not_torn_by_what_nobody_was_subscribed_to(tmp_path):
    inside = {"transaction": 7}
    story = Story().send(1, of={**TOPIC, **inside}).send(2, of={"queue": "q", **inside})
    story.add(1, "invoke", "commit", **inside).add(1, "ok", "commit", **inside)
    story.deliver(2, 3, of={"queue": "q"})
    assert found(tmp_path, story) == set()


@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
def test_what_is_gone_with_a_subscription_was_not_certainly_consumed(tmp_path, outcome):
    inside = {"transaction": 7, "session": 1}
    story = Story().subscribe(1).send(1).deliver(1, 1).send(2, of={"queue": "q", "transaction": 7})
    story.add(101, "invoke", "ack", 1, **ALICE, **inside).add(101, "ok", "ack", 1, **ALICE, **inside)
    story.add(101, "invoke", "abort", **inside).add(101, "ok", "abort", **inside).leave(1).drop(outcome)
    torn = any(name == "torn-transaction" for name, *_ in found(tmp_path, story))
    assert torn == (outcome == "fail")  # gone, though the subscription is there


def test_the_sentence_names_subscription_and_topic_and_the_witness_shows_it():
    story = Story().subscribe(1).send(1).leave(1).drop().subscribe(2).consume(1, 2).end()
    rows = table(dense(story.rows))
    carried = rows.filter([r["f"] in ("send", "deliver", "ack") for r in rows.to_pylist()])
    control = rows.filter([r["f"] not in ("send", "deliver", "ack") for r in rows.to_pylist()])
    source = HereSource([TablePart(0, carried)], control, len(rows) * MS, len(rows))
    verdict = judge.judge(source, PATIENT)
    (finding,) = verdict.findings
    assert finding.sentence.startswith('message 1 (subscription "alice" of topic "news", group "g") was')
    assert "before that subscription existed" in finding.sentence
    shown = {(r["f"], r["type"]) for r in finding.witness.rows}
    assert shown == {("subscribe", "invoke"), ("send", "ok"), ("deliver", "ok")}


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        ([o(0, 1, "invoke", "drop", queue="q", subscription="alice")], "a drop of what lasts"),
        ([o(0, 1, "invoke", "drop", queue="/topic/t")], "subscription is null in a drop"),
        (
            [o(0, 1, "invoke", "subscribe", queue="/topic/t", session=1)],
            "subscription is null in a subscribe",
        ),
        ([o(0, 1, "ok", "drop", **ALICE)], "ok of drop of subscription alice by process 1 completes what"),
    ],
)
def test_what_is_no_history_of_a_topic_is_said(rows, cause):
    look, _ = breakage.of_control(table(rows), 1)
    assert cause in str(look.broken)


def test_a_delivery_of_a_topic_names_its_subscription():
    assert "subscription is null in a deliver" in str(
        breakage.of_consumers(table([o(0, 1, "ok", "deliver", 1, session=1, **TOPIC)]))
    )
    assert breakage.of_consumers(table([o(0, 1, "ok", "deliver", 1, session=1, **ALICE)])) is None


def test_texts_need_no_codes_and_a_history_needs_no_subscriptions():
    topic = table([o(0, 1, "invoke", "send", 1, **TOPIC)]).select(["queue", "subscription"])
    plain = topic.set_column(0, "queue", topic["queue"].cast("string"))
    assert has_topics(topic)
    assert has_topics(plain)
    assert not has_topics(topic.drop("subscription"))


def test_a_place_is_told_apart_from_a_queue():
    assert split(NEWS_OF_ALICE) == ("/topic/news", "alice")
    assert split("/topic/news") is split("q > alice") is split(None) is None
    assert words.place(Instance("lost", "q", None, 1, 0)) == 'queue "q"'


def drawn(seed):
    """A correct broker with three names on a topic, and a queue beside it."""
    chance = random.Random(seed)
    story = Story()
    names = [ALICE, BOB, {**TOPIC, "subscription": "carol"}]
    open_, exists, waiting = {}, set(), {name["subscription"]: [] for name in names}
    session = message = 0
    for _ in range(chance.randint(4, 22)):
        of = chance.choice(names)
        name = of["subscription"]
        what = chance.random()
        if what < 0.35:
            message += 1
            colour = {"colour": chance.choice(["red", "blue"])} if chance.random() < 0.5 else None
            outcome = chance.choice(["ok", "ok", "ok", "info", "fail"])
            story.send(message, outcome=outcome, properties=colour)
            if outcome != "fail":
                for one in exists:
                    waiting[one].append(message)
        elif what < 0.55 and name not in open_:
            session += 1
            outcome = chance.choice(["ok", "ok", "ok", "info"])
            story.subscribe(session, outcome, of=of, value=RED if chance.random() < 0.15 else None)
            exists.add(name)
            if outcome == "ok":
                open_[name] = session
        elif what < 0.85 and name in open_ and waiting[name]:
            give = story.consume if chance.random() < 0.8 else story.deliver
            give(waiting[name].pop(0), open_[name], of=of)
        elif what < 0.93 and name in open_:
            story.leave(open_.pop(name), of=of)
        elif name not in open_:
            outcome = chance.choice(["ok", "ok", "info", "fail"])
            story.drop(outcome, of=of)
            if outcome == "ok":
                exists.discard(name)
                waiting[name] = []
    if chance.random() < 0.3 and message:
        story.keep(chance.randint(1, message), of=chance.choice(names))
    return dense(story.end().rows)


@pytest.mark.slow
@pytest.mark.in_turn
def test_both_implementations_find_the_same_in_damaged_histories_with_topics(tmp_path):
    """It takes some 10 s."""
    kinds = set()
    for seed in range(40):
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(0, 4))
        ]
        rows = damage(drawn(seed), edits)
        place = tmp_path / str(seed)
        place.mkdir()
        kinds |= {(i.name, i.key) for i in agreed(place, rows, PATIENT)}
    assert {("not-subscribed", "sent before it"), ("not-subscribed", "not selected")} <= kinds
