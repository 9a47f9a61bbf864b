"""The expectations of a run besides its verdict, as data.

Each describes itself in words, and says what was seen instead.

Why: a verdict says what went wrong for a client, and nothing of how the brokers got there. A row
proves nothing if its feature can be taken out without failing any of its expectations. So each
expectation names the thing that only the feature causes.

Times are the schedule's: "kill-1" is the moment when the first fault, a kill, was requested,
"heal:kill-1" its healing, "heal" the end of the load.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from harness.claims.scenarios.seen import HEAL, ObservedRun


class Expectation(Protocol):
    """A thing that must be seen in a run; ``str`` of it is for the table.

    As a guard it is something without which a run proves nothing.
    """

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        ...


class ExpectedTakeover(msgspec.Struct, frozen=True):
    """A takeover: the data of the node that began with ``of`` continue at ``by``.

    ``by`` None: at any other broker.
    """

    of: str
    by: str | None = None

    def __str__(self) -> str:
        return self.sentence("takes")

    def sentence(self, takes: str) -> str:
        """Return the takeover in words; ``takes`` is the verb, in the tense that fits."""
        if self.by == self.of:
            return f"{self.of} {takes} its own data back"
        return f"{self.by or 'one other broker'} {takes} over {self.of}'s data"


def _seen_takeover(takeover: tuple[str, str]) -> str:
    return ExpectedTakeover(*takeover).sentence("took")


class Takeovers(msgspec.Struct, frozen=True):
    """The expectation of exactly these takeovers, in this order.

    They happen between the first fault and the healing. With an empty ``exactly``, there must be no
    takeover. With ``of`` only takeovers of that broker's data count: a taker that dies is taken
    over as well, and this says nothing about that.
    """

    exactly: tuple[ExpectedTakeover, ...] = ()
    of: str | None = None

    def __str__(self) -> str:
        none = f"no takeover of {self.of}" if self.of else "no takeover"
        words = ", then ".join(map(str, self.exactly)) or none
        return f"{words}, once" if self.of and len(self.exactly) == 1 else words

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        takeovers = [takeover for takeover in run.successions() if self.of in (None, takeover[0])]
        fits = len(takeovers) == len(self.exactly) and all(
            node == expected.of and (by == expected.by if expected.by else by != node)
            for (node, by), expected in zip(takeovers, self.exactly, strict=True)
        )
        if fits:
            return ""
        return ", then ".join(map(_seen_takeover, takeovers)) or "no broker took over"


class Reported(msgspec.Struct, frozen=True):
    """The expectation that a finding of any severity is reported.

    A pause that faults explain is only a warning, and the point of some rows.
    """

    finding: str

    def __str__(self) -> str:
        return f"{self.finding} is reported"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        return "" if self.finding in run.reported else f"{self.finding} was not reported"


class Exactly(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a finding is reported, and only of these messages.

    They were accepted by ``broker``, and acknowledged in ``window``. The window lasts from the
    request of its first fault to the observed effect of its second: a broker whose kill is under
    way still answers.
    """

    finding: str
    broker: str | None = None
    window: tuple[str, str] | None = None

    def __str__(self) -> str:
        parts = [
            f"accepted by {self.broker}" if self.broker else "",
            f"acknowledged between {self.window[0]} and {self.window[1]}" if self.window else "",
        ]
        return f"{self.finding}: only messages {' and '.join(part for part in parts if part)}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        reported = run.instances(self.finding)
        if not reported:
            return f"nothing was {self.finding}"
        wrong = []
        for instance in reported:
            row = None if instance.message is None else run.taken.get(instance.message)
            if row is None or not self._fits(row["broker"], row["time"], run):
                wrong.append(str(instance.message))
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return f"{self.finding} as well: message {', '.join(wrong[:3])}{more}" if wrong else ""

    def _fits(self, broker: str | None, time_ns: int, run: ObservedRun) -> bool:
        if self.broker is not None and broker != self.broker:
            return False
        if self.window is None:
            return True
        begin, end = run.between(self.window)
        return begin <= time_ns <= run.effects.get(self.window[1], end)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that messages are first delivered by another broker than accepted them.

    They are at least ``least`` and at most ``most``. If ``of`` and ``by`` are given, only messages
    that ``of`` accepted and ``by`` delivered count. A topic's message counts for each of its
    subscriptions.

    With a ``window`` only deliveries in it count. It lasts from the observed effect of its first
    moment, if that is a fault, to its second moment: before its effect a cut lets messages pass.
    """

    least: int = 1
    most: int | None = None
    of: str | None = None
    by: str | None = None
    window: tuple[str, str] | None = None

    def __str__(self) -> str:
        count = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        count = "no" if self.most == 0 else count
        deliverer = f"{self.by} delivers" if self.by else "other brokers deliver"
        period = f" between {self.window[0]} and {self.window[1]}" if self.window else ""
        return f"{deliverer} {count} messages that {self.of or 'another broker'} accepted{period}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = -math.inf, math.inf
        if self.window is not None:
            begin, end = run.window_since_effect(self.window)
        moved = 0
        for row in run.first_deliveries:
            taken = run.taken.get(row["message"])
            if taken is not None and taken["broker"] != row["broker"] and begin <= row["time"] <= end:
                moved += self.of in (None, taken["broker"]) and self.by in (None, row["broker"])
        if moved >= self.least and (self.most is None or moved <= self.most) and not math.isnan(begin):
            return ""
        return f"{moved} messages were delivered by another broker{' meanwhile' if self.window else ''}"


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation of the share of each broker in the messages that ``sent_at`` accepted.

    ``brokers`` has the lowest and the highest number of messages for each broker; any other broker
    has none. With ``of`` "delivered" a message is its broker's that delivers it first, with
    "stored" that of each broker whose main stores hold it at the last reading.
    """

    sent_at: str
    brokers: Mapping[str, tuple[int, int]]
    of: Literal["delivered", "stored"] = "delivered"

    def __str__(self) -> str:
        verb = {"delivered": "delivers", "stored": "keeps"}[self.of]
        shares = ", ".join(
            f"{broker} {verb} {least} to {most}" for broker, (least, most) in self.brokers.items()
        )
        return f"of the messages that {self.sent_at} accepted, {shares}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        rows = run.first_deliveries if self.of == "delivered" else run.remaining
        counts = collections.Counter(
            row["broker"]
            for row in rows
            if row["message"] in run.taken and run.taken[row["message"]]["broker"] == self.sent_at
        )
        fits = all(least <= counts[broker] <= most for broker, (least, most) in self.brokers.items())
        if fits and counts.keys() <= self.brokers.keys():
            return ""
        verb = {"delivered": "delivered by", "stored": "kept by"}[self.of]
        shares = ", ".join(f"{broker} {counts[broker]}" for broker in sorted({*counts, *self.brokers}))
        return f"messages that {self.sent_at} accepted were {verb} {shares}"


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that producers of a broker continue at others before the healing.

    Other brokers accept at least ``least`` sends of the producers that began at ``of``. The broker
    that has its messages serves its clients, too.
    """

    of: str
    least: int = 1

    def __str__(self) -> str:
        return f"other brokers accept at least {self.least} sends of {self.of}'s producers"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        began: dict[int, str] = {}
        heal = run.moments.get(HEAL, math.inf)
        count = 0
        for row in run.taken.values():
            home = began.setdefault(row["producer"], row["broker"])
            count += home == self.of != row["broker"] and row["time"] < heal
        return "" if count >= self.least else f"other brokers accepted {count} sends of {self.of}'s producers"


class Says(msgspec.Struct, frozen=True):
    """The expectation that a line in the log of a broker (of any, if None) matches.

    It matches at least once, or exactly ``times``.
    """

    broker: str | None
    pattern: str
    times: int | None = None

    def __str__(self) -> str:
        count = "" if self.times is None else " once" if self.times == 1 else f" {self.times} times"
        return f'{self.broker or "some broker"} logs "{self.pattern}"{count}'

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        count = len(run.lines(self.broker, self.pattern))
        if count == self.times or (self.times is None and count):
            return ""
        return f'{self.broker or "some broker"} logged "{self.pattern}" {count} times'


class Before(msgspec.Struct, frozen=True):
    """The expectation that a line of one broker's log comes before one of another's.

    ``other`` None is any broker. Both lines must be there. The brokers' clocks must agree.
    """

    broker: str
    pattern: str
    other: str | None
    then: str

    def __str__(self) -> str:
        return (
            f'{self.broker} logs "{self.pattern}" before {self.other or "another broker"} logs "{self.then}"'
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        first, second = run.first_logged(self.broker, self.pattern), run.first_logged(self.other, self.then)
        if not first or not second:
            missing = (self.other, self.then) if first else (self.broker, self.pattern)
            return f'{missing[0] or "another broker"} never logged "{missing[1]}"'
        return "" if first <= second else f'{self.other or "another broker"} logged "{self.then}" first'


class GoesOn(msgspec.Struct, frozen=True):
    """The expectation that a broker's process does not end by itself.

    The harness would start it again. All its roles are those of one life of the process.
    """

    broker: str

    def __str__(self) -> str:
        return f"{self.broker} does not end by itself"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        restarted = any(row["f"] == "restart" and row["broker"] == self.broker for row in run.control)
        return f"{self.broker} had ended by itself and was started again" if restarted else ""


class SlowestSend(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that the longest time from a send to its answer lies within bounds.

    Some send waited for ``least_s``, and none longer than ``most_s``.

    A send that ends because its client would not wait any longer was not answered: give the clients
    of such a scenario more patience than the bound.
    """

    most_s: float
    least_s: float = 0.0

    def __str__(self) -> str:
        return f"the slowest send takes {self.least_s:g} to {self.most_s:g} s"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        end = run.rows[-1]["time"] if run.rows else 0
        sends = run.operations("send")
        slowest = max(((done["time"] if done else end) - row["time"] for row, done in sends), default=0)
        fits = self.least_s <= slowest / 1e9 <= self.most_s
        return "" if fits else f"the slowest send took {slowest / 1e9:.1f} s"


class SendsFail(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that ``least`` to ``most`` sends fail for a reason that matches.

    A send whose connection was closed with the reason counts, too, unless it must fail
    ``certainly``: then the broker has said that it did nothing. ``op`` "commit" is for commits.
    """

    least: int
    pattern: str
    most: int | None = None
    certainly: bool = False
    op: Literal["send", "commit"] = "send"

    def __str__(self) -> str:
        count = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        certainly = "certainly " if self.certainly else ""
        count = "no" if self.most == 0 else count
        reason = f' ("{self.pattern}")' if self.pattern else ""
        return f"{count} {self.op}s {certainly}fail{reason}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        sought = re.compile(self.pattern)
        failed = sum(
            done is not None
            and (done["type"] == "fail" if self.certainly else done["type"] != "ok")
            and sought.search(done["error"] or "") is not None
            for _, done in run.operations(self.op)
        )
        certainly = "certainly " if self.certainly else ""
        if failed >= self.least and (self.most is None or failed <= self.most):
            return ""
        return f"{failed} {self.op}s {certainly}failed for that reason"


class Bounded(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker never holds more than so many messages for consumers.

    A message counts from the answer to its send to the request of its acknowledgement.
    """

    broker: str
    most: int

    def __str__(self) -> str:
        return f"{self.broker} never holds more than {self.most} messages"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        stored_messages, settled_messages, most = set[int](), set[int](), 0
        for row in run.rows:
            if row["process"] >= 0 and row["f"] == "ack":
                settled_messages.add(row["message"])
                stored_messages.discard(row["message"])
            elif run.taken.get(row["message"]) is row and row["broker"] == self.broker:
                stored_messages |= {row["message"]} - settled_messages
                most = max(most, len(stored_messages))
        return "" if most <= self.most else f"{self.broker} held {most} messages"


class Becomes(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker is first seen in a role so long after a moment.

    It comes neither sooner nor later. "stopped" is for a broker that no fault ends: it ended
    itself.
    """

    broker: str
    role: Literal["live", "stopped", "suspended"]
    after: str
    least_s: float = 0.0
    most_s: float

    def __str__(self) -> str:
        becomes = {"live": "becomes live", "stopped": "stops", "suspended": "is suspended"}[self.role]
        return f"{self.broker} {becomes} {self.least_s:g} to {self.most_s:g} s after {self.after}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.after)
        times = (
            row["time"]
            for row in run.control
            if row["f"] == "role" and row["role"] == self.role and row["broker"] == self.broker
        )
        first = next((time for time in times if moment is not None and time >= moment), None)
        if moment is None or first is None:
            return f"{self.broker} {self.role} after {self.after}: never"
        took_s = (first - moment) / 1e9
        fits = self.least_s <= took_s <= self.most_s
        return "" if fits else f"{self.broker} {self.role} after {self.after}: {took_s:.1f} s"


class Follows(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker is first seen live so soon after another one is.

    It may be live before the other one.
    """

    broker: str
    other: str
    most_s: float

    def __str__(self) -> str:
        return f"{self.broker} becomes live at most {self.most_s:g} s after {self.other}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        lives: dict[str, int] = {}
        for row in run.control:
            if row["f"] == "role" and row["role"] == "live":
                lives.setdefault(row["broker"], row["time"])
        for broker in (self.broker, self.other):
            if broker not in lives:
                return f"{broker} was never live"
        took_s = (lives[self.broker] - lives[self.other]) / 1e9
        return "" if took_s <= self.most_s else f"{self.broker} became live {took_s:.1f} s after {self.other}"


KnowledgeView = Literal["members", "discovery"]
"""The view in which a broker knows other ones: by links, or by what they broadcast."""


def _view_suffix(view: KnowledgeView) -> str:
    return "" if view == "members" else f" (by {view})"


class Notices(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker learns of another one, or forgets it, within a time.

    The time runs from the moment ``after``. What a broker knows is the view of the cluster's
    members, or its entries of ``discovery``, as it gives them during the load (``watch-views``). A
    broker that is asked once a second may have noticed up to a second earlier than is seen.
    """

    broker: str
    other: str
    present: bool
    after: str
    most_s: float
    view: KnowledgeView = "members"

    def __str__(self) -> str:
        notices = "knows" if self.present else "forgets"
        after = f"{self.after}{_view_suffix(self.view)}"
        return f"{self.broker} {notices} {self.other} within {self.most_s:g} s after {after}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.after)
        if moment is None:
            return f"{self.after} never came"
        is_known = False
        for change in run.known_members(self.broker, self.other, self.view):
            if change.high_ns >= moment and change.present == self.present:
                took_s = (change.high_ns - moment) / 1e9
                if took_s <= self.most_s:
                    return ""
                verb = "knew" if self.present else "forgot"
                return f"{self.broker} {verb} {self.other} after {took_s:.1f} s"
            is_known = change.present
        verb = "knew" if is_known else "did not know"
        return f"{self.broker} {verb} {self.other} all the time after {self.after}"


class KeepsKnowing(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker knows other ones during the whole of ``window``.

    What it knows is read as for ``Notices``.
    """

    broker: str
    others: tuple[str, ...]
    window: tuple[str, str]
    view: KnowledgeView = "members"

    def __str__(self) -> str:
        others, end = " and ".join(self.others), f"{self.window[1]}{_view_suffix(self.view)}"
        return f"{self.broker} knows {others} all the time between {self.window[0]} and {end}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between(self.window)
        for other in self.others:
            is_known = False
            for change in run.known_members(self.broker, other, self.view):
                if change.high_ns > begin and change.low_ns < end and not change.present:
                    return f"{self.broker} forgot {other} meanwhile"
                is_known = change.present if change.high_ns <= begin else is_known
            if not is_known:
                return f"{self.broker} did not know {other} at {self.window[0]}"
        return ""


class Flaps(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker ceases to hear another one, again and again.

    It does so at least ``least`` times. What it hears are its entries of ``discovery``, as for
    ``Notices``.
    """

    broker: str
    other: str
    least: int

    def __str__(self) -> str:
        return f"{self.broker} ceases to hear {self.other} at least {self.least} times"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        changes = run.known_members(self.broker, self.other, "discovery")
        count = sum(not change.present for change in changes)
        return "" if count >= self.least else f"{self.broker} ceased to hear {self.other} {count} times"


class Happens(msgspec.Struct, frozen=True):
    """The expectation of an event that a fault waits for.

    Without this expectation, a run whose fault waited in vain is unknown. If the row promises the
    event, the run has failed.
    """

    event: str

    def __str__(self) -> str:
        return f"the event {self.event} occurs"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        words = f"{self.event} never came"
        return words if any(words in reason for reason in run.reasons) else ""


class Refuses(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker refuses every client that connects within ``window``.

    At least one client must try. The window lasts from its first to its second moment; the reason
    of the refusal must match.
    """

    broker: str
    pattern: str
    window: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"{self.broker} refuses new clients between {self.window[0]} and {self.window[1]} "
            f'("{self.pattern}")'
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between(self.window)
        sought = re.compile(self.pattern)
        taken = refused = 0
        for row, done in run.operations("connect"):
            if done is not None and done["broker"] == self.broker and begin <= row["time"] <= end:
                taken += done["type"] == "ok"
                refused += done["type"] == "fail" and sought.search(done["error"] or "") is not None
        if taken:
            return f"{self.broker} accepted {taken} new clients meanwhile"
        return "" if refused else f"{self.broker} refused no client"


class RefusesChange(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation of how often a broker refuses to make or drop a subscription in ``window``.

    Clients ask for both; the window lasts from its first to its second moment. Only refusals whose
    reason matches count. ``f`` leaves out those of the other kind.
    """

    broker: str
    pattern: str
    window: tuple[str, str]
    least: int = 0
    most: int | None = None
    f: Literal["subscribe", "drop"] | None = None

    def __str__(self) -> str:
        bounds = [f"at least {self.least}"] if self.least else []
        bounds += ["no" if self.most == 0 else f"at most {self.most}"] if self.most is not None else []
        changes = "changes of subscriptions" if self.f is None else f"{self.f} requests"
        return (
            f"{self.broker} refuses {' and '.join(bounds)} {changes} between {self.window[0]} and "
            f'{self.window[1]} ("{self.pattern}")'
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between(self.window)
        sought = re.compile(self.pattern)
        count = sum(
            done is not None
            and done["type"] != "ok"
            and begin <= row["time"] <= end
            and self.broker in (row["broker"], done["broker"])
            and sought.search(done["error"] or "") is not None
            for f in ((self.f,) if self.f else ("subscribe", "drop"))
            for row, done in run.operations(f)
        )
        if count >= self.least and (self.most is None or count <= self.most) and not math.isnan(begin):
            return ""
        changes = "changes of subscriptions" if self.f is None else f"{self.f} requests"
        return f"{self.broker} refused {count} {changes} for that reason"


class QueuesChange(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: between two moments queues were created and deleted, at least so many of each."""

    window: tuple[str, str]
    least: int

    def __str__(self) -> str:
        return (
            f"at least {self.least} queues are created and {self.least} deleted between {self.window[0]} and "
            f"{self.window[1]}"
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the guard is met."""
        begin, end = run.between(self.window)
        created, deleted = (
            sum(
                done is not None and done["type"] == "ok" and begin <= row["time"] and done["time"] <= end
                for row, done in run.operations(f)
            )
            for f in ("create", "delete")
        )
        if min(created, deleted) >= self.least:
            return ""
        return f"only {created} queues were created and {deleted} deleted meanwhile"


class Converges(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that brokers have the same views of a kind after the recovery.

    Each of ``brokers`` must have said what it has, and they must agree on at least ``least`` keys.
    """

    kind: str
    brokers: tuple[str, ...]
    least: int

    def __str__(self) -> str:
        return f"{' and '.join(self.brokers)} agree on at least {self.least} {self.kind}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        views: dict[str, dict[str, str | None]] = {broker: {} for broker in self.brokers}
        for row in run.control:
            if row["f"] == "view" and row["type"] == "ok" and row["value"] and row["broker"] in views:
                view = msgspec.json.decode(row["value"])
                if view["kind"] == self.kind:
                    views[row["broker"]][view["key"]] = view["value"]
        first, *others = views.values()
        differing = sorted({key for other in others for key in first.keys() | other.keys()
                            if first.get(key) != other.get(key)})  # fmt: skip
        if differing:
            return (
                f"{' and '.join(self.brokers)} differ in {len(differing)} {self.kind}, such as {differing[0]}"
            )
        count = sum(value is not None for value in first.values())
        return "" if count >= self.least else f"{self.brokers[0]} has {count} {self.kind}"


class CatchesUp(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that a broker gets the changes of the cluster that it lacks, within a time.

    The time runs from the moment ``after``. At that moment ``other`` has at least ``least`` changes
    that the broker lacks. What a broker has is its view of a ``kind``, destinations or
    subscriptions, as it gives it during the load (``watch-views``), once a second.
    """

    broker: str
    other: str
    kind: Literal["destinations", "subscriptions"]
    after: str
    least: int
    most_s: float

    def __str__(self) -> str:
        return (
            f"{self.broker} has the changes of {self.kind} that {self.other} had at {self.after}, at least "
            f"{self.least} that it lacked, within {self.most_s:g} s"
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.after)
        if moment is None:
            return f"{self.after} never came"
        newest, known = (
            max(
                (had.number for had in run.newest_changes(broker, self.kind) if had.high_ns <= moment),
                default=0,
            )
            for broker in (self.other, self.broker)
        )
        if newest - known < self.least:
            return f"at {self.after}, {self.other} had change {newest}, and {self.broker} change {known}"
        for change in run.newest_changes(self.broker, self.kind):
            if change.number >= newest:
                took_s = (change.high_ns - moment) / 1e9
                return "" if took_s <= self.most_s else f"{self.broker} had them after {took_s:.1f} s"
        return f"{self.broker} did not have change {newest} of {self.other} during the load"


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation of how often a broker delivers or answers within ``window``.

    ``broker`` None is all together. Answers are those to a send or an acknowledgement. They count
    from ``after_s`` seconds after the window's first moment on. If that is a fault, they count from
    its observed effect at the earliest: until then its brokers may answer.
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

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        requested, end = run.between(self.window)
        begin = max(requested + self.after_s * 1e9, run.window_since_effect(self.window)[0])
        count = sum(
            row["f"] in ("send", "ack", "nack", "deliver")
            and row["type"] == "ok"
            and self.broker in (None, row["broker"])
            and begin <= row["time"] <= end
            for row in run.rows
        )
        if count >= self.least and (self.most is None or count <= self.most) and not math.isnan(begin):
            return ""
        return f"{count} answers and deliveries meanwhile"


class SaidBy(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: at least so many brokers have a matching line in their logs.

    A race in which only one broker ran proves nothing, and the run is unknown.
    """

    least: int
    pattern: str

    def __str__(self) -> str:
        return f'at least {self.least} brokers log "{self.pattern}"'

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        count = sum(bool(run.lines(broker, self.pattern)) for broker in run.logs)
        return "" if count >= self.least else f'{count} brokers logged "{self.pattern}"'


class AtStake(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough messages waited that could be lost.

    At least ``least`` messages that the broker had accepted waited for a consumer. With nothing to
    lose the run proves nothing and is unknown.
    """

    least: int
    at: str
    broker: str | None = None

    def __str__(self) -> str:
        where = f" of {self.broker}" if self.broker else ""
        return f"at least {self.least} messages{where} are unacknowledged at {self.at}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        count = run.stored_at(self.broker, moment)
        return "" if count >= self.least else f"only {count} messages were unacknowledged at {self.at}"


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough transactions were under way to be torn."""

    least: int
    at: str

    def __str__(self) -> str:
        return f"at least {self.least} transactions are under way at {self.at}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        count = run.under_way_at(moment)
        return "" if count >= self.least else f"only {count} transactions were under way at {self.at}"


class UnknownCommits(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that commits which were under way at a fault have no known outcome."""

    least: int
    at: str

    def __str__(self) -> str:
        return f"at least {self.least} commits are under way at {self.at}, and their outcome stays unknown"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        count = run.unknown_commits(self.at)
        if count is None:
            return f"{self.at} never came"
        return "" if count >= self.least else f"only {count} commits under way at {self.at} stayed unknown"


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: when the fault came, enough messages waited for subscriptions and could be lost.

    Each message counts for each subscription that existed when it was sent, and whose consumers had
    not acknowledged it.
    """

    least: int
    at: str
    broker: str | None = None

    def __str__(self) -> str:
        where = f" of {self.broker}" if self.broker else ""
        return f"at least {self.least} messages{where} are owed to subscriptions at {self.at}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        count = run.backlog_at(self.broker, moment)
        return "" if count >= self.least else f"only {count} messages were owed to subscriptions at {self.at}"


class Changing(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: around the fault subscriptions were made and dropped, at least so many of each.

    They were requested from ``before_s`` seconds before the fault to ``after_s`` after it.
    """

    least: int
    at: str
    before_s: float = 4.0
    after_s: float = 1.0

    def __str__(self) -> str:
        return f"at least {self.least} subscriptions are made and {self.least} dropped around {self.at}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        moment = run.moments.get(self.at)
        if moment is None:
            return f"{self.at} never came"
        window = moment - self.before_s * 1e9, moment + self.after_s * 1e9
        made, dropped = run.changes_between(*window)
        if min(made, dropped) >= self.least:
            return ""
        return f"only {made} subscriptions were made and {dropped} dropped around {self.at}"
