"""The life of one subscription of a topic: when it existed, and what it asked for.

Why only from rows: a question without an answer leaves open whether the subscription exists, and
the picture must not decide what the checkers leave open. What is owed to it, they decide.
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
"""The state of a subscription at a moment: not there, perhaps there, certainly there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription known by one name.

    ``changes`` are (index, state after that row, row) in order.
    """

    topic: str
    called: str
    changes: tuple[tuple[int, State, Row], ...]
    selector: Selector | None

    @property
    def name(self) -> str:
        """The name of its lane."""
        return f"subscription {self.called}"

    @property
    def wants(self) -> str:
        """The selector in words; empty if the subscription takes everything."""
        return selector_words(self.selector)

    def before(self, index: int) -> State:
        """Return the state just before the row of that index."""
        return next((state for at, state, _ in reversed(self.changes) if at < index), "")

    def gets(self, send: Row) -> State:
        """Return whether a message is meant for the subscription, as far as its send shows."""
        if self.selector is not None and not matches(self.selector, properties_of(send.get("value"))):
            return ""
        return self.before(send["index"])


def selector_words(selector: Selector | None) -> str:
    """Return a selector in words: ``colour = red or blue``."""
    return " and ".join(f"{name} = {' or '.join(values)}" for name, values in (selector or {}).items())


def of_rows(rows: Sequence[Row]) -> list[Subscription]:
    """Return the subscriptions that rows name; the rows are in order."""
    rows_by_name: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if "subscription" in row and str(row.get("queue", "")).startswith(TOPIC):
            rows_by_name.setdefault((row["queue"], row["subscription"]), []).append(row)
    return [_life(topic, called, own_rows) for (topic, called), own_rows in rows_by_name.items()]


def _life(topic: str, called: str, own_rows: Sequence[Row]) -> Subscription:
    changes: list[tuple[int, State, Row]] = []
    now: State = ""
    until: dict[tuple[int, str], State] = {}
    for row in own_rows:
        if row["f"] not in {"subscribe", "drop"}:
            continue
        request, sure = (row["process"], row["f"]), row["f"] == "subscribe"
        if row["type"] == "invoke":
            until[request] = now
            after: State = now if sure and now == "there" else "perhaps"
        elif row["type"] == "ok":
            after = "there" if sure else ""
        elif row["type"] == "fail":
            after = until.get(request, now)
        else:
            after = now if sure and now == "there" else "perhaps"
        if after != now:
            changes.append((row["index"], after, row))
            now = after
    asked_for = [
        selector_of(row.get("value"))
        for row in own_rows
        if row["f"] == "subscribe" and row["type"] == "invoke"
    ]
    return Subscription(
        topic=topic, called=called, changes=tuple(changes), selector=asked_for[0] if asked_for else None
    )
