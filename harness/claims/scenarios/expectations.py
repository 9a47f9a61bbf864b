"""What must come of a run besides its verdict, as data.

Each says itself in words, and what was otherwise.

Why: a verdict says what went wrong for a client, and nothing of how the brokers got there. A row
whose feature can be taken out without any of its expectations failing shows nothing; so each
expectation names the thing that the feature alone brings about.

Times are the schedule's: "kill-1" is the moment when the first fault, a kill, was asked for,
"heal:kill-1" its healing, "heal" the end of the load.
"""

from __future__ import annotations

import math
import re
from typing import Literal, Protocol

import msgspec

from harness.claims.scenarios.seen import HEAL, Seen


class Expectation(Protocol):
    """One thing that must be seen. ``str`` of it is for the table.

    As a guard it is something without which a run shows nothing.
    """

    def wrong(self, seen: Seen) -> str:
        """Nothing if it was seen, else what was instead."""
        ...


class ExpectedTakeover(msgspec.Struct, frozen=True):
    """The data of the node that began with ``of`` go on at ``by``; None: at any other broker."""

    of: str
    by: str | None = None

    def __str__(self) -> str:
        if self.by == self.of:
            return f"{self.of} has its own data back"
        return f"{self.of}'s data by {self.by or 'one other broker'}"


class Takeovers(msgspec.Struct, frozen=True):
    """Exactly these takeovers between the first fault and the healing, in this order.

    Of none: that nobody takes over.

    With ``of`` only takeovers of that broker's data are looked at: a taker that dies is taken over
    as well, by whom and when is another matter.
    """

    exactly: tuple[ExpectedTakeover, ...] = ()
    of: str | None = None

    def __str__(self) -> str:
        none = f"no takeover of {self.of}" if self.of else "no takeover"
        told = f"taken over: {', then '.join(map(str, self.exactly))}" if self.exactly else none
        return f"{told}, once" if self.of and len(self.exactly) == 1 else told

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = [each for each in seen.successions() if self.of in (None, each[0])]
        fits = len(found) == len(self.exactly) and all(
            of == wanted.of and (by == wanted.by if wanted.by else by != of)
            for (of, by), wanted in zip(found, self.exactly, strict=True)
        )
        if fits:
            return ""
        told = ", then ".join(str(ExpectedTakeover(of, by)) for of, by in found) or "nothing"
        return f"taken over: {told}"


class Reported(msgspec.Struct, frozen=True):
    """A finding of any severity.

    A pause that faults explain is only a warning, and the point of some rows.
    """

    finding: str

    def __str__(self) -> str:
        return f"reported: {self.finding}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        return "" if self.finding in seen.reported else f"{self.finding} was not reported"


class Exactly(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, and of no other messages than these.

    Taken by ``broker``, acknowledged in ``window``.

    The window is from when its first fault was asked for to when its second had taken effect: a
    broker whose kill is under way still answers.
    """

    finding: str
    broker: str | None = None
    window: tuple[str, str] | None = None

    def __str__(self) -> str:
        parts = [
            f"taken by {self.broker}" if self.broker else "",
            f"acknowledged between {self.window[0]} and {self.window[1]}" if self.window else "",
        ]
        return f"{self.finding}: only what was {', '.join(part for part in parts if part)}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = seen.instances(self.finding)
        if not found:
            return f"nothing was {self.finding}"
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
        begin, end = seen.between(self.window)
        return begin <= time_ns <= seen.effects.get(self.window[1], end)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """At least (and at most) so many messages are first delivered by another broker than took them.

    By ``by`` what ``of`` took, where they are named. Of a topic to each of its subscriptions.
    """

    least: int = 1
    most: int | None = None
    of: str | None = None
    by: str | None = None

    def __str__(self) -> str:
        count = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        count = "no" if self.most == 0 else count
        source = f" that {self.of} took" if self.of else ""
        return f"{count} messages{source} delivered by {self.by or 'another broker'}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moved = 0
        delivered = set()
        for row in seen.rows:
            message = row.get("message")
            copy = message, row.get("subscription")
            if row["f"] != "deliver" or message is None or copy in delivered:
                continue
            delivered.add(copy)
            taken = seen.taken.get(message)
            if taken is not None and taken["broker"] != row["broker"]:
                moved += self.of in (None, taken["broker"]) and self.by in (None, row["broker"])
        if moved >= self.least and (self.most is None or moved <= self.most):
            return ""
        return f"{moved} messages were delivered by another broker"


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """Producers of a broker go on at others before the healing.

    Those that began at it have at least so many sends taken by others: whoever has its messages
    serves its clients, too.
    """

    of: str
    least: int = 1

    def __str__(self) -> str:
        return f"at least {self.least} sends of {self.of}'s producers taken by others"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        began: dict[int, str] = {}
        heal = seen.moments.get(HEAL, math.inf)
        found = 0
        for row in seen.taken.values():
            home = began.setdefault(row["producer"], row["broker"])
            found += home == self.of != row["broker"] and row["time"] < heal
        return "" if found >= self.least else f"{found} sends of {self.of}'s producers were taken by others"


class Says(msgspec.Struct, frozen=True):
    """A line in the log of a broker (of any, if None) that matches.

    At least once or exactly ``times``.
    """

    broker: str | None
    pattern: str
    times: int | None = None

    def __str__(self) -> str:
        count = "" if self.times is None else " once" if self.times == 1 else f" {self.times} times"
        return f'{self.broker or "some broker"} says{count} "{self.pattern}"'

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = len(seen.lines(self.broker, self.pattern))
        if found == self.times or (self.times is None and found):
            return ""
        return f'{self.broker or "some broker"} said "{self.pattern}" {found} times'


class Before(msgspec.Struct, frozen=True):
    """A line of one broker's log comes before one of another's (of any, if None); both are said.

    Their clocks must agree.
    """

    broker: str
    pattern: str
    other: str | None
    then: str

    def __str__(self) -> str:
        return f'{self.broker} says "{self.pattern}" before {self.other or "another"} says "{self.then}"'

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        first, second = seen.said(self.broker, self.pattern), seen.said(self.other, self.then)
        if not first or not second:
            missing = (self.other, self.then) if first else (self.broker, self.pattern)
            return f'{missing[0] or "another"} never said "{missing[1]}"'
        return "" if first <= second else f'{self.other or "another"} said "{self.then}" first'


class GoesOn(msgspec.Struct, frozen=True):
    """A broker's process does not end by itself, to be started again by the harness.

    What it becomes it becomes in one life of the process.
    """

    broker: str

    def __str__(self) -> str:
        return f"{self.broker} is not started again"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        restarted = any(row["f"] == "restart" and row["broker"] == self.broker for row in seen.control)
        return f"{self.broker} had ended by itself and was started again" if restarted else ""


class SlowestSend(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time from a send to the broker's answer lies within bounds.

    Some waited for ``least_s``, and none longer than ``most_s``.

    A send that ends because its client would not wait any longer was not answered: give the clients
    of such a scenario more patience than the bound.
    """

    most_s: float
    least_s: float = 0.0

    def __str__(self) -> str:
        return f"the slowest send takes {self.least_s:g} to {self.most_s:g} s"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        end = seen.rows[-1]["time"] if seen.rows else 0
        sends = seen.operations("send")
        slowest = max(((done["time"] if done else end) - row["time"] for row, done in sends), default=0)
        fits = self.least_s <= slowest / 1e9 <= self.most_s
        return "" if fits else f"the slowest send took {slowest / 1e9:.1f} s"


class Becomes(msgspec.Struct, frozen=True, kw_only=True):
    """A broker is first seen in a role so long after a moment, neither sooner nor later.

    "stopped" is for one that no fault ends: it ended itself.
    """

    broker: str
    role: Literal["live", "stopped"]
    after: str
    least_s: float = 0.0
    most_s: float

    def __str__(self) -> str:
        return f"{self.broker} {self.role} {self.least_s:g} to {self.most_s:g} s after {self.after}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.after)
        times = (
            row["time"]
            for row in seen.control
            if row["f"] == "role" and row["role"] == self.role and row["broker"] == self.broker
        )
        first = next((time for time in times if moment is not None and time >= moment), None)
        if moment is None or first is None:
            return f"{self.broker} {self.role} after {self.after}: never"
        took_s = (first - moment) / 1e9
        fits = self.least_s <= took_s <= self.most_s
        return "" if fits else f"{self.broker} {self.role} after {self.after}: {took_s:.1f} s"


class Happens(msgspec.Struct, frozen=True):
    """An event comes that a fault waits for.

    Without this a run whose fault waited in vain is unknown; where the event is what the row
    promises, it has failed.
    """

    event: str

    def __str__(self) -> str:
        return f"{self.event} comes"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        words = f"{self.event} never came"
        return words if any(words in reason for reason in seen.reasons) else ""


class Refuses(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever tries to connect to a broker within ``window`` is refused, and somebody tries.

    From the first to the second moment of it, and for a reason that matches.
    """

    broker: str
    pattern: str
    window: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"{self.broker} refuses who comes between {self.window[0]} and {self.window[1]} "
            f'("{self.pattern}")'
        )

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        begin, end = seen.between(self.window)
        sought = re.compile(self.pattern)
        taken = refused = 0
        for row, done in seen.operations("connect"):
            if done is not None and done["broker"] == self.broker and begin <= row["time"] <= end:
                taken += done["type"] == "ok"
                refused += done["type"] == "fail" and sought.search(done["error"] or "") is not None
        if taken:
            return f"{self.broker} took in {taken} who came meanwhile"
        return "" if refused else f"{self.broker} refused nobody"


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """How often a broker (all together, if None) delivers or answers within ``window``.

    It answers a send or an acknowledgement; counted from ``after_s`` seconds behind the window's
    first moment on.
    """

    window: tuple[str, str]
    broker: str | None = None
    after_s: float = 0.0
    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        bounds = [f"at least {self.least}"] if self.least else []
        bounds += ["no" if self.most == 0 else f"at most {self.most}"] if self.most is not None else []
        since = f"{self.after_s:g} s after {self.window[0]}" if self.after_s else self.window[0]
        whose = f" of {self.broker}" if self.broker else ""
        return f"{' and '.join(bounds)} answers and deliveries{whose} between {since} and {self.window[1]}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        begin, end = seen.between(self.window)
        begin += self.after_s * 1e9
        found = sum(
            row["f"] in ("send", "ack", "nack", "deliver")
            and row["type"] == "ok"
            and self.broker in (None, row["broker"])
            and begin <= row["time"] <= end
            for row in seen.rows
        )
        if found >= self.least and (self.most is None or found <= self.most) and not math.isnan(begin):
            return ""
        return f"{found} answers and deliveries meanwhile"


class SaidBy(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: at least so many brokers say in their logs what matches.

    Of a race in which only one ran nothing is shown, and the run is unknown.
    """

    least: int
    pattern: str

    def __str__(self) -> str:
        return f'at least {self.least} brokers say "{self.pattern}"'

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        found = sum(bool(seen.lines(broker, self.pattern)) for broker in seen.logs)
        return "" if found >= self.least else f'{found} brokers said "{self.pattern}"'


class AtStake(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough messages waited that could be lost.

    At least so many that the broker had taken waited for a consumer. With nothing to lose nothing
    is shown, and the run is unknown.
    """

    least: int
    at: str
    broker: str | None = None

    def __str__(self) -> str:
        where = f" of {self.broker}" if self.broker else ""
        return f"at least {self.least} messages{where} at stake at {self.at}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        found = seen.stored_at(self.broker, moment)
        return "" if found >= self.least else f"only {found} messages were at stake at {self.at}"


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough transactions were under way to be torn."""

    least: int
    at: str

    def __str__(self) -> str:
        return f"at least {self.least} transactions under way at {self.at}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        found = seen.under_way_at(moment)
        return "" if found >= self.least else f"only {found} transactions were under way at {self.at}"


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough waited for subscriptions that could be lost.

    Each message counts for each subscription that was there for it, and whose consumers had not
    acknowledged it.
    """

    least: int
    at: str
    broker: str | None = None

    def __str__(self) -> str:
        where = f" of {self.broker}" if self.broker else ""
        return f"at least {self.least} messages{where} owed to subscriptions at {self.at}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        found = seen.backlog_at(self.broker, moment)
        return "" if found >= self.least else f"only {found} were owed to subscriptions at {self.at}"


class Changing(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: around the fault subscriptions were made and dropped, at least so many of each.

    Asked for from ``before_s`` seconds before it to ``after_s`` behind it.
    """

    least: int
    at: str
    before_s: float = 4.0
    after_s: float = 1.0

    def __str__(self) -> str:
        return f"at least {self.least} subscriptions made and {self.least} dropped around {self.at}"

    def wrong(self, seen: Seen) -> str:
        """As Expectation's."""
        moment = seen.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        window = moment - self.before_s * 1e9, moment + self.after_s * 1e9
        made, dropped = seen.changes_between(*window)
        if min(made, dropped) >= self.least:
            return ""
        return f"only {made} subscriptions were made and {dropped} dropped around {self.at}"
