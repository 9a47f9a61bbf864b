"""Small histories for stories.

A pair of brokers, producers and sessions, and what they do at which second of the test.

An anomaly is found in the rows by the reference checkers, and its witness made smallest as for a
real finding: a scene that does not have the anomaly it is made for cannot be told.
"""

import json

from checkers import reference
from checkers.schema import HARNESS, MONITOR, NEMESIS, TEMPORARY
from checkers.verdict import CheckOptions, Finding, Witness
from checkers.witness import minimal
from harness.report.narrative import excerpt, story

LOAD_S = 0.5
"""When the load begins; scenes count from the start of the test, as whoever tells of them."""
NODE = "0123456789abcdef"
NEWS = "/topic/news"


def ns(at_s):
    return round(at_s * 1e9)


class Scene:
    """Rows in order; every method takes the second first."""

    def __init__(self, **roles):
        self.rows = []
        self._faults = {}
        for broker, role in (roles or {"a1": "live", "a2": "backup"}).items():
            self.role(0.3, broker, role)
        self.phase(LOAD_S, "load")

    def add(self, at_s, process, type_, f, **columns):
        row = {
            "index": len(self.rows),
            "time": ns(at_s),
            "process": process,
            "type": type_,
            "f": f,
            **columns,
        }
        self.rows.append({name: value for name, value in row.items() if value is not None})
        return row["index"]

    # ---- whoever watches

    def phase(self, at_s, value):
        return self.add(at_s, HARNESS, "info", "phase", value=value)

    def role(self, at_s, broker, role, *, low=0.1, node_id=NODE, life=None):
        return self.add(
            at_s, MONITOR, "info", "role", broker=broker, role=role, node_id=node_id,
            time_low=ns(at_s - low), time_high=ns(at_s), value=None if life is None else str(life),
        )  # fmt: skip

    def takeover(self, at_s, broker, life, *, low=0.1, node_id=NODE):
        return self.add(
            at_s, MONITOR, "info", "takeover", broker=broker, node_id=node_id, value=str(life),
            time_low=ns(at_s - low), time_high=ns(at_s),
        )  # fmt: skip

    def view(self, at_s, broker, value, *, since_s, key=NODE, kind="members"):
        return self.add(
            at_s, HARNESS, "ok", "view", broker=broker, time_low=ns(since_s), time_high=ns(at_s),
            value=json.dumps({"kind": kind, "key": key, "value": value}),
        )  # fmt: skip

    def unreplicated(self, at_s, broker):
        return self.add(
            at_s, MONITOR, "info", "replication", broker=broker, node_id=NODE, value="unreplicated",
            time_low=ns(at_s - 0.1), time_high=ns(at_s),
        )  # fmt: skip

    def fault(self, at_s, kind="partition", *, bit=True, seen=None, **value):
        """By default a1 is cut off; with nodes something happens to them."""
        usual = {"shape": "isolate-live", "links": ["a1->a2"]} if "nodes" not in value else {}
        value = {"label": f"{kind}-1", "target": "a1", **usual, **value}
        self._faults[kind] = value
        seen = seen or dict.fromkeys(value.get("links") or value["nodes"], "lost")
        told = {**value, "bit": bit, "observed": seen if bit else {}}
        self.add(at_s, NEMESIS, "invoke", kind, value=json.dumps(value))
        return self.add(at_s + 0.1, NEMESIS, "info", kind, value=json.dumps(told))

    def heal(self, at_s, kind="partition"):
        value = json.dumps(self._faults[kind])
        self.add(at_s, NEMESIS, "invoke", f"heal:{kind}", value=value)
        return self.add(at_s, NEMESIS, "info", f"heal:{kind}", value=value)

    def end(self, at_s, *brokers):
        """Drained, looked into, over."""
        self.phase(at_s, "browse")
        for broker in brokers or ("a1",):
            self.add(at_s, HARNESS, "ok", "browse", broker=broker)
        return self.phase(at_s, "end")

    # ---- clients

    def delete(self, at_s, broker="a1", *, process=500, f="delete"):
        self.add(at_s, process, "invoke", f, queue="q")
        self.add(at_s + 0.01, process, "ok", f, queue="q", broker=broker)

    def of(self, message, producer=1, sequence=None, group="g", queue="q", subscription=None):
        columns = {
            "queue": queue, "group": group, "message": message, "producer": producer,
            "sequence": message if sequence is None else sequence, "subscription": subscription,
        }  # fmt: skip
        return {name: value for name, value in columns.items() if value is not None}

    def send(
        self,
        at_s,
        message,
        broker="a1",
        *,
        outcome="ok",
        takes_s=0.01,
        error=None,
        process=None,
        transaction=None,
        value=None,
        **of,
    ):
        """Asked and answered; with ``outcome`` None never answered."""
        process = 100 + message if process is None else process
        columns = {**self.of(message, **of), "transaction": transaction, "value": value}
        self.add(at_s, process, "invoke", "send", **columns, digest=7)
        if outcome is not None:
            self.add(
                at_s + takes_s, process, outcome, "send", **columns, broker=broker, error=error, digest=7
            )

    def deliver(self, at_s, message, session, broker="a1", *, count=1, redelivered=None, digest=7, **of):
        again = count > 1 if redelivered is None else redelivered
        return self.add(
            at_s, 200 + session, "ok", "deliver", **self.of(message, **of), session=session, broker=broker,
            redelivered=again, delivery_count=count, digest=digest,
        )  # fmt: skip

    def ack(self, at_s, message, session, broker="a1", *, outcome="ok", takes_s=0.01, **of):
        process = 300 + 10 * session + message % 10
        columns = {**self.of(message, **of), "session": session}
        self.add(at_s, process, "invoke", "ack", **columns)
        if outcome is not None:
            self.add(at_s + takes_s, process, outcome, "ack", **columns, broker=broker)

    def subscribe(self, at_s, session, broker="a1", queue="q", **more):
        columns = {"queue": queue, "session": session, **more}
        self.add(at_s, 400 + session, "invoke", "subscribe", **columns)
        self.add(at_s, 400 + session, "ok", "subscribe", **columns, broker=broker)

    def drop(self, at_s, subscription, broker="a1", *, outcome="ok"):
        columns = {"queue": NEWS, "subscription": subscription}
        self.add(at_s, 500, "invoke", "drop", **columns)
        self.add(at_s + 0.01, 500, outcome, "drop", **columns, broker=broker)

    def disconnect(self, at_s, session, broker="a1", error="broker silent"):
        return self.add(
            at_s, 200 + session, "info", "disconnect", queue="q", session=session, broker=broker, error=error
        )

    def stored(self, at_s, message, broker="a1", value="main", **of):
        return self.add(at_s, HARNESS, "ok", "browse", **self.of(message, **of), broker=broker, value=value)

    def transaction(self, at_s, f, number, process, broker="a1"):
        self.add(at_s, process, "invoke", f, transaction=number)
        self.add(at_s + 0.01, process, "ok", f, transaction=number, broker=broker)

    # ---- what is found in it

    def finding(self, name, *, options=None, severity="grave", count=1, message=None, **details):
        options = options or CheckOptions()
        alike = [
            found
            for found in reference.find(self.rows, options)
            if found.name == name and message in {None, found.message}
        ]
        instance = min(alike, key=lambda found: (found.index, found.key or ""))
        small = minimal(self.rows, instance, options)
        example = {
            key: getattr(instance, key)
            for key in ("queue", "group", "message", "index", "key")
            if getattr(instance, key) is not None
        }
        return Finding(
            name=name, severity=severity, count=count, sentence=f"{name} was found.",
            witness=Witness(tuple(row["index"] for row in small), tuple(small)),
            details={"examples": [example], **details},
        )  # fmt: skip

    def excerpt(self, finding, neighbours=()):
        """What ``harness.report.narrative.excerpt`` would have read of these rows, had they been
        stored.
        """
        about = {row["message"] for row in finding.witness.rows if "message" in row}
        own = [
            row for row in self.rows if row["index"] in finding.witness.indexes or row.get("message") in about
        ]
        transactions = {row["transaction"] for row in own if "transaction" in row}
        own += [row for row in self.rows if row.get("transaction") in transactions]
        sessions = {row["session"] for row in own if "session" in row}
        place = str(excerpt.example_of(finding).get("queue"))
        named = {row["subscription"] for row in own if "subscription" in row} | {place.partition(" > ")[2]}
        brief = {row["queue"] for row in own if row.get("queue", "").startswith(TEMPORARY)}
        more = [
            row
            for row in self.rows
            if ("session" in row and row["session"] in sessions and "message" not in row)
            or (row["f"] in {"subscribe", "drop"} and row.get("subscription") in named)
            or (row["f"] in {"subscribe", "drop"} and row.get("queue") in brief)
            or (row["f"] in excerpt.QUEUE_CHANGES and row["queue"] == excerpt.queue_of(finding))
        ]
        rows = {row["index"]: row for row in (*own, *more)}
        return excerpt.Excerpt(
            rows=[rows[index] for index in sorted(rows)],
            control=[row for row in self.rows if row["process"] < 0],
            neighbours=[row for row in self.rows if row.get("message") in neighbours],
        )

    def story(self, name, *, neighbours=(), **keywords):
        found = self.finding(name, **keywords)
        return story.compose(found, self.excerpt(found, neighbours))


def steps(told):
    """Each step as "second label", a star before those of the witness."""
    return [f"{'*' if step.witness else ' '}{step.at / 1e9:.2f} {step.label}" for step in told.steps]
