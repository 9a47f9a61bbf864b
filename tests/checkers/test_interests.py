"""What a subscription is owed of messages that a broker of another node took.

The subscription is at b1, the send at a1. Of each clause a history with a loss, and one as near as
can be in which the same message may be missing.
"""

from __future__ import annotations

import json

import pytest
from checker_rows import MS, agreed, dense
from topic_histories import BOB, NEWS_OF_ALICE, Story

from checkers.verdict import CheckOptions

LOST = {("lost", NEWS_OF_ALICE, 1, "never delivered")}
OPTIONS = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=0.01)
"""The recovery bound is ten rows."""


class TwoPairs(Story):
    """Nodes a (a1) and b (b1 and b2) of a cluster, and c (c1)."""

    def __init__(self):
        super().__init__()
        for broker in ("a1", "b1", "b2", "c1"):
            name = "backup" if broker == "b2" else "live"
            self.add(-2, "info", "role", broker=broker, node_id=broker[0], role=name,
                     time_low=0, time_high=MS)  # fmt: skip

    def fault(self, kind, *, heals=False, links=(), nodes=(), bit=True, rests=0):
        value = json.dumps({"label": "x", "links": list(links), "nodes": list(nodes), "bit": bit})
        kind = f"heal:{kind}" if heals else kind
        self.add(-1, "invoke", kind, value=value).add(-1, "info", kind, value=value)
        for _ in range(rests):
            self.add(-2, "info", "phase", value="load")
        return self

    def cut(self, **more):
        return self.fault("partition", links=["a1->b1", "b1->a1"], **more)

    def bob(self):
        return self.subscribe(9, of=BOB, broker="b1")

    def here(self, session=1, outcome="ok"):
        return self.subscribe(session, outcome=outcome, broker="b1")


def found(tmp_path, story):
    rows = dense(story.end().rows)
    instances = agreed(tmp_path, rows, OPTIONS)
    return {(i.name, i.queue, i.message, i.key) for i in instances if i.name == "lost"}


@pytest.mark.parametrize(
    "story",
    [
        TwoPairs().here().send(1),
        TwoPairs().here().cut().send(1),
        TwoPairs().here().cut().here(2).send(1),
        TwoPairs().cut().cut(heals=True, rests=12).here().send(1),
        TwoPairs().cut().here().cut(heals=True, rests=12).here(2).send(1),
        TwoPairs().fault("partition", links=["c1->b2"], bit=False).here().send(1),
        TwoPairs().fault("kill", nodes=["c1"]).here().send(1),
        TwoPairs().cut().here().send(1, broker="b1"),
        TwoPairs().cut().here().send(1, broker="b2"),
        TwoPairs().fault("datagram-loss", links=["a1->b1"]).here().send(1),
    ],
)  # fmt: skip
def test_what_was_sent_elsewhere_is_owed_once_the_broker_there_knows(tmp_path, story):
    assert found(tmp_path, story) == LOST


@pytest.mark.parametrize(
    "story",
    [
        TwoPairs().cut().here().send(1),
        TwoPairs().cut().here().cut(heals=True).send(1),
        TwoPairs().cut().here().cut(heals=True, rests=12).send(1),
        TwoPairs().cut().cut(heals=True).here().send(1),
        TwoPairs().here(outcome=None).cut().here(2).send(1),
        TwoPairs().fault("pause", nodes=["a1"]).here().send(1),
        TwoPairs().fault("kill", nodes=["b2"]).here().send(1),
        TwoPairs().fault("hook", nodes=["c1"]).here().send(1),
    ],
)  # fmt: skip
def test_nothing_is_owed_of_a_broker_that_the_news_may_not_have_reached(tmp_path, story):
    assert found(tmp_path, story) == set()


COPIED = {("lost", NEWS_OF_ALICE, 1, "not copied")}


def copied(story):
    """Message 1 comes to bob alone, and no answer tells which broker took it."""
    return story.send(1, outcome="info").deliver(1, 9, of=BOB, broker="b1")


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (copied(TwoPairs().bob().here()), COPIED),
        (copied(TwoPairs().bob().here().cut()), COPIED),
        (copied(TwoPairs().bob().cut().here()), set()),
        (copied(TwoPairs().bob().fault("kill", nodes=["a1"]).here()), set()),
    ],
)
def test_a_copy_may_be_missing_if_any_broker_may_have_taken_the_message(tmp_path, story, expected):
    assert found(tmp_path, story) == expected


REPLIES = {"queue": "/temp-queue/1"}


def replied(story, broker, *, stays=True):
    """A queue whose owner is at b1 gets a message, which a broker has taken, or does not."""
    story.subscribe(1, of=REPLIES, broker="b1").send(1, of=REPLIES, broker=broker)
    story.add(-3, "info", "phase", value="drain")
    return story.drop(of=REPLIES) if stays else story.lose(1, of=REPLIES)


@pytest.mark.parametrize(
    ("story", "is_owed"),
    [
        (replied(TwoPairs(), "b1"), True),
        (replied(TwoPairs(), "a1"), True),
        (replied(TwoPairs().cut(), "a1"), True),
        (replied(TwoPairs(), "b2"), False),
        (replied(TwoPairs(), "d1"), False),
        (replied(TwoPairs(), "a1").deliver(1, 1, of=REPLIES, broker="b1"), False),
        (replied(TwoPairs().send(2, of=REPLIES), "a1").deliver(1, 1, of=REPLIES, broker="b1"), False),
        (replied(TwoPairs(), "a1", stays=False), True),
    ],
)  # fmt: skip
def test_a_temporary_queue_is_owed_what_a_broker_of_another_node_took(tmp_path, story, is_owed):
    lost = {(i, message) for i, _, message, _ in found(tmp_path, story)}
    assert lost == ({("lost", 1)} if is_owed else set())
