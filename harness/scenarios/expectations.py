"""What must come of a run besides its verdict, as data: each says itself in words, and what was otherwise.

Why: a verdict says what went wrong for a client, and nothing of how the brokers got there. A row whose feature can be taken out without any of its
expectations failing shows nothing; so each expectation names the thing that the feature alone brings about.

Times are the schedule's: "kill-1" is the moment when the first fault, a kill, was asked for, "heal:kill-1" its healing, "heal" the end of the load.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal, Protocol

import msgspec

from harness.scenarios.seen import Seen


class Expectation(Protocol):
    """One thing that must be seen. ``str`` of it is for the table."""

    def wrong(self, seen: Seen) -> str:
        """Nothing if it was seen, else what was instead."""
        ...


class Takeover(msgspec.Struct, frozen=True):
    """The data of the node that began with ``of`` go on at ``by``; None: at any other broker."""

    of: str
    by: str | None = None

    def __str__(self) -> str:
        if self.by == self.of:
            return f"{self.of} has its own data back"
        return f"{self.of}'s data by {self.by or 'one other broker'}"


class Takeovers(msgspec.Struct, frozen=True):
    """Exactly these takeovers between the first fault and the healing, in this order; of none: that nobody takes over."""

    exactly: tuple[Takeover, ...] = ()

    def __str__(self) -> str:
        return f"taken over: {', then '.join(map(str, self.exactly))}" if self.exactly else "no takeover"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = seen.successions()
        fits = len(found) == len(self.exactly) and all(
            of == wanted.of and (by == wanted.by if wanted.by else by != of)
            for (of, by), wanted in zip(found, self.exactly, strict=True)
        )
        if fits:
            return ""
        told = ", then ".join(str(Takeover(of, by)) for of, by in found) or "nothing"
        return f"taken over: {told}"


class Reported(msgspec.Struct, frozen=True):
    """A finding of any severity: a pause that faults explain is only a warning, and the point of some rows."""

    finding: str

    def __str__(self) -> str:
        return f"reported: {self.finding}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        return "" if self.finding in seen.reported else f"{self.finding} was not reported"


class Exactly(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, and of no other messages than these: taken by ``broker``, acknowledged from the first to the second moment of ``window``, ``count`` of them."""

    finding: str
    broker: str | None = None
    window: tuple[str, str] | None = None
    count: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{self.count} of them" if self.count is not None else "",
            f"taken by {self.broker}" if self.broker else "",
            f"acknowledged between {self.window[0]} and {self.window[1]}" if self.window else "",
        ]
        return f"{self.finding}: only what was {', '.join(part for part in parts if part)}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = seen.instances(self.finding)
        if not found:
            return f"nothing was {self.finding}"
        if self.count is not None and len(found) != self.count:
            return f"{len(found)} {self.finding}"
        wrong = []
        for each in found:
            row = None if each.message is None else seen.taken.get(each.message)
            if row is None or not self._fits(row["broker"], row["time"], seen):
                wrong.append(str(each.message))
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return f"{self.finding} as well: message {', '.join(wrong[:3])}{more}" if wrong else ""

    def _fits(self, broker: str | None, time_ns: int, seen: Seen) -> bool:
        if self.broker is not None and broker != self.broker:
            return False
        if self.window is None:
            return True
        begin, end = (seen.moments.get(moment) for moment in self.window)
        return begin is not None and begin <= time_ns and (end is None or time_ns <= end)


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages each broker had, more or less ``within``: it delivered them, took them, or has them in its store at the end."""

    of: Literal["deliveries", "sends", "stored"]
    by: dict[str, int]
    within: int = 0

    def __str__(self) -> str:
        told = ", ".join(f"{broker} {count}" for broker, count in self.by.items())
        return f"{self.of}: {told}{f' (within {self.within})' if self.within else ''}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        f, type_ = {"deliveries": ("deliver", "ok"), "sends": ("send", "ok"), "stored": ("browse", "ok")}[
            self.of
        ]
        found = Counter(
            row["broker"]
            for row in seen.rows
            if row["f"] == f and row["type"] == type_ and row.get("message") is not None
        )
        if all(abs(found[broker] - count) <= self.within for broker, count in self.by.items()):
            return ""
        told = ", ".join(f"{broker} {found[broker]}" for broker in sorted({*found, *self.by}))
        return f"{self.of}: {told}"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """At least (and at most) so many messages are first delivered by another broker than took them; by ``by`` what ``of`` took, where they are named."""

    least: int = 1
    most: int | None = None
    of: str | None = None
    by: str | None = None

    def __str__(self) -> str:
        count = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        source = f" that {self.of} took" if self.of else ""
        return f"{count} messages{source} delivered by {self.by or 'another broker'}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moved = 0
        delivered = set()
        for row in seen.rows:
            message = row.get("message")
            if row["f"] != "deliver" or message is None or message in delivered:
                continue
            delivered.add(message)
            taken = seen.taken.get(message)
            if taken is not None and taken["broker"] != row["broker"]:
                moved += self.of in (None, taken["broker"]) and self.by in (None, row["broker"])
        if moved >= self.least and (self.most is None or moved <= self.most):
            return ""
        return f"{moved} messages were delivered by another broker"


class Says(msgspec.Struct, frozen=True):
    """A line in the log of a broker that matches, at least once or exactly ``times``."""

    broker: str
    pattern: str
    times: int | None = None

    def __str__(self) -> str:
        count = "" if self.times is None else " once" if self.times == 1 else f" {self.times} times"
        return f'{self.broker} says{count} "{self.pattern}"'

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        sought = re.compile(self.pattern)
        found = sum(sought.search(line) is not None for line in seen.logs.get(self.broker, ()))
        if found == self.times or (self.times is None and found):
            return ""
        return f'{self.broker} said "{self.pattern}" {found} times'


class SlowestSend(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time from a send to the broker's answer lies within bounds: some waited for ``least_s``, and none longer than ``most_s``.

    A send that ends because its client would not wait any longer was not answered: give the clients of such a scenario more patience than the bound.
    """

    most_s: float
    least_s: float = 0.0

    def __str__(self) -> str:
        return f"the slowest send takes {self.least_s:g} to {self.most_s:g} s"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        end = seen.rows[-1]["time"] if seen.rows else 0
        slowest = max(((done["time"] if done else end) - row["time"] for row, done in seen.sent()), default=0)
        fits = self.least_s <= slowest / 1e9 <= self.most_s
        return "" if fits else f"the slowest send took {slowest / 1e9:.1f} s"


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """A broker ends by itself so long after a moment: neither sooner nor later. For one that no fault ends."""

    broker: str
    after: str
    least_s: float = 0.0
    most_s: float

    def __str__(self) -> str:
        return f"{self.broker} ends {self.least_s:g} to {self.most_s:g} s after {self.after}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.after)
        ends = (
            row["time"]
            for row in seen.control
            if row["f"] == "role" and row["role"] == "stopped" and row["broker"] == self.broker
        )
        end = next((time for time in ends if moment is not None and time >= moment), None)
        if moment is None or end is None:
            return f"{self.broker}'s end after {self.after}: never"
        took_s = (end - moment) / 1e9
        fits = self.least_s <= took_s <= self.most_s
        return "" if fits else f"{self.broker}'s end after {self.after}: {took_s:.1f} s"


class AtStake(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, at least so many messages that the broker had taken waited for a consumer. With nothing to lose nothing is shown, and the run is unknown."""

    least: int
    at: str
    broker: str | None = None

    def __str__(self) -> str:
        where = f" of {self.broker}" if self.broker else ""
        return f"at least {self.least} messages{where} at stake at {self.at}"

    def lacking(self, seen: Seen) -> str:
        """Nothing if there was enough to lose, else what there was."""
        moment = seen.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        found = seen.stored_at(self.broker, moment)
        return "" if found >= self.least else f"only {found} messages were at stake at {self.at}"
