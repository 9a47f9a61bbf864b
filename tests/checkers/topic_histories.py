"""Small histories of a topic and its subscriptions."""

from __future__ import annotations

import json

import checker_rows
from checker_rows import finished

from checkers.subscriptions import place_of
from checkers.verdict import CheckOptions

TOPIC = {"queue": "/topic/news"}
ALICE = {**TOPIC, "subscription": "alice"}
BOB = {**TOPIC, "subscription": "bob"}
NEWS_OF_ALICE = place_of("/topic/news", "alice")
PATIENT = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000)


def told(**what):
    return json.dumps(what)


class Story(checker_rows.Story):
    """Of one subscription."""

    def subscribe(self, session, outcome="ok", of=ALICE, value=None, broker="a1"):
        mine = {**of, "session": session, "value": value}
        self.add(100 + session, "invoke", "subscribe", **mine)
        return self.add(100 + session, outcome, "subscribe", broker=broker, **mine) if outcome else self

    def leave(self, session, of=ALICE):
        self.add(100 + session, "invoke", "unsubscribe", session=session, **of)
        return self.add(100 + session, "ok", "unsubscribe", session=session, broker="a1", **of)

    def drop(self, outcome="ok", of=ALICE):
        self.add(200, "invoke", "drop", **of)
        return self.add(200, outcome, "drop", **of) if outcome else self

    def send(self, message, outcome="ok", of=TOPIC, properties=None, broker="a1", **asked):
        asked |= {"properties": properties} if properties else {}
        value = told(**asked) if asked else None
        mine = {"digest": message, "producer": 1, "sequence": message, **of}
        self.add(1, "invoke", "send", message, value=value, **mine)
        return self.add(1, outcome, "send", message, broker=broker, **mine) if outcome else self

    def lose(self, session, of=ALICE):
        return self.add(100 + session, "info", "disconnect", session=session, broker="a1", **of)

    def set_clock(self):
        """Set a clock wrong, of whatever broker."""
        told_of = told(label="clock", bit=True)
        return self.add(-1, "invoke", "clock-step", value=told_of).add(
            -1, "info", "clock-step", value=told_of
        )

    def commit(self, transaction, outcome="ok"):
        self.add(1, "invoke", "commit", transaction=transaction)
        return self.add(1, outcome, "commit", transaction=transaction, broker="a1")

    def deliver(self, message, session, of=ALICE, broker="a1"):
        mine = {"digest": message, "producer": 1, "sequence": message, **of, "session": session}
        return self.add(100 + session, "ok", "deliver", message, broker=broker, redelivered=False, **mine)

    def consume(self, message, session, of=ALICE):
        self.deliver(message, session, of)
        mine = {**of, "session": session, "producer": 1, "sequence": message}
        self.add(100 + session, "invoke", "ack", message, **mine)
        return self.add(100 + session, "ok", "ack", message, broker="a1", **mine)

    def keep(self, message, of=ALICE):
        mine = {**of, "digest": message, "producer": 1, "sequence": message}
        return self.add(-3, "ok", "browse", message, broker="a1", value="main", **mine, group="g")

    def end(self):
        brokers = {row["broker"] for row in self.rows if "broker" in row}
        self.rows += finished(len(self.rows), read=sorted(brokers or {"a1"}))
        return self
