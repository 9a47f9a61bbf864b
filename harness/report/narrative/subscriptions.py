"""The life of one subscription of a topic: when it was there, and what it asked for.

Why only from rows: a question without an answer leaves open whether the subscription is there, and
the picture must not decide what the checkers leave open. What is owed to it is theirs to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from checkers.asked import Selector, properties_of, selector_of
from checkers.schema import TOPIC
from checkers.subscriptions import matches
from harness.report.narrative.excerpt import Row

State = Literal["", "perhaps", "there"]
"""Of a subscription at a moment: certainly not there, perhaps, certainly there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One name: ``changes`` are (index, state after that row, row) in order."""

    topic: str
    called: str
    changes: tuple[tuple[int, State, Row], ...]
    selector: Selector | None

    @property
    def name(self) -> str:
        """Of its lane."""
        return f"subscription {self.called}"

    @property
    def wants(self) -> str:
        """Its selector in words; empty: everything."""
        return wanted(self.selector)

    def before(self, index: int) -> State:
        """How it stood just before the row of that index."""
        return next((state for at, state, _ in reversed(self.changes) if at < index), "")

    def gets(self, send: Row) -> State:
        """Whether a message is meant for it, as far as the question to send it tells."""
        if self.selector is not None and not matches(self.selector, properties_of(send.get("value"))):
            return ""
        return self.before(send["index"])


def wanted(selector: Selector | None) -> str:
    """A selector as people read it: ``colour = red or blue``."""
    return " and ".join(f"{name} = {' or '.join(some)}" for name, some in (selector or {}).items())


def of_rows(rows: Sequence[Row]) -> list[Subscription]:
    """The subscriptions that rows in order name."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if "subscription" in row and str(row.get("queue", "")).startswith(TOPIC):
            found.setdefault((row["queue"], row["subscription"]), []).append(row)
    return [_life(topic, called, its) for (topic, called), its in found.items()]


def _life(topic: str, called: str, its: Sequence[Row]) -> Subscription:
    changes: list[tuple[int, State, Row]] = []
    now: State = ""
    until: dict[tuple[int, str], State] = {}
    for row in its:
        if row["f"] not in {"subscribe", "drop"}:
            continue
        asked, sure = (row["process"], row["f"]), row["f"] == "subscribe"
        if row["type"] == "invoke":
            until[asked] = now
            after: State = now if sure and now == "there" else "perhaps"
        elif row["type"] == "ok":
            after = "there" if sure else ""
        elif row["type"] == "fail":
            after = until.get(asked, now)
        else:
            after = now if sure and now == "there" else "perhaps"
        if after != now:
            changes.append((row["index"], after, row))
            now = after
    asked_for = [
        selector_of(row.get("value")) for row in its if row["f"] == "subscribe" and row["type"] == "invoke"
    ]
    return Subscription(
        topic=topic, called=called, changes=tuple(changes), selector=asked_for[0] if asked_for else None
    )
