"""The expectations about which broker clients connect to."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from harness.claims.scenarios.seen import HEAL, ObservedRun

TIMED_OUT: Final = "no answer in time"
"""The error of an attempt to connect that timed out."""


class Connects(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation of how many clients each broker accepts within ``window``.

    ``brokers`` has the lowest and the highest number for each broker; others accept none. Without a
    window all of the load counts.
    """

    brokers: Mapping[str, tuple[int, int]]
    window: tuple[str, str] | None = None

    def __str__(self) -> str:
        shares = ", ".join(
            f"{broker} accepts {least} to {most}" for broker, (least, most) in self.brokers.items()
        )
        period = f" between {self.window[0]} and {self.window[1]}" if self.window else ""
        return f"of the connections of clients{period}, {shares}"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between(self.window) if self.window else (0, run.moments.get(HEAL, math.inf))
        counts = collections.Counter(
            done["broker"]
            for row, done in run.operations("connect")
            if done is not None and done["type"] == "ok" and begin <= row["time"] <= end
        )
        fits = all(least <= counts[broker] <= most for broker, (least, most) in self.brokers.items())
        if fits and counts.keys() <= self.brokers.keys() and not math.isnan(begin):
            return ""
        shares = ", ".join(f"{broker} {counts[broker]}" for broker in sorted({*counts, *self.brokers}))
        return f"connections of clients were accepted by {shares}"


class PromptlyConnects(msgspec.Struct, frozen=True, kw_only=True):
    """A guard: hardly any attempt of a client to connect times out.

    Clients go on to the next broker of their list then, as if the slow one were down. So a machine
    that is too busy for its brokers says nothing of the order in which clients try them.
    """

    most: int = 0

    def __str__(self) -> str:
        return f"{self.most or 'no'} attempts to connect time out"

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        end = run.moments.get(HEAL, math.inf)
        late = sum(
            done is not None and done["error"] == TIMED_OUT and row["time"] <= end
            for row, done in run.operations("connect")
        )
        return f"{late} attempts to connect timed out" if late > self.most else ""


class Redirected(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation that clients of one broker go to another after a moment.

    At least ``least`` clients that were connected to ``of`` are next accepted after ``after`` and
    before the healing, all of them by ``to``. ``to`` may be ``of`` itself.
    """

    of: str
    to: str
    after: str
    least: int = 1

    def __str__(self) -> str:
        return (
            f"after {self.after} at least {self.least} clients of {self.of} connect again, all of them to "
            f"{self.to}"
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between((self.after, HEAL))
        served_by: dict[int, str] = {}
        counts: collections.Counter[str] = collections.Counter()
        for row in run.rows:
            if row["process"] < 0 or row["f"] != "connect" or row["type"] != "ok":
                continue
            # A client makes all its attempts under one process.
            before = served_by.get(row["process"])
            served_by[row["process"]] = row["broker"]
            counts[row["broker"]] += before == self.of and begin < row["time"] <= end
        counts += collections.Counter()  # without brokers that accepted none
        if counts[self.to] >= self.least and counts.keys() <= {self.to}:
            return ""
        brokers = ", ".join(f"{count} to {broker}" for broker, count in sorted(counts.items()))
        return f"clients of {self.of} connected again: {brokers or 'none'}"


RECOVERY: Final = ("reached", "connected", "recovering", "recovered")
"""The states of a client that has found another broker, in their order."""


class Recovers(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation of the states that clients of one broker pass through after a moment.

    At least ``least`` clients lose ``of`` between ``after`` and the healing. Each of them fails at
    the brokers ``tried``, in this order, again and again, and then recovers at one of ``to``. If
    ``to`` is empty, it gives up instead. ``rounds`` has the lowest and the highest number of rounds
    over ``tried``; the last one may end early. With ``every_s`` the highest number follows from the
    time until the last failure instead: one round at once, and one in each such interval. So a
    broker may need any time to return.
    """

    of: str
    tried: tuple[str, ...]
    to: tuple[str, ...]
    after: str
    rounds: tuple[int, int] = (1, 1)
    every_s: float | None = None
    least: int = 1

    def __str__(self) -> str:
        least, most = self.rounds
        if self.every_s is not None:
            times = f" at least {least} times, at once and then once in {self.every_s:g} s at most,"
        else:
            times = "" if most == 1 else f" {least} times" if least == most else f" {least} to {most} times"
        ends = f"recover at {' or '.join(self.to)}" if self.to else "give up"
        return (
            f"after {self.after} at least {self.least} clients lose {self.of}, try {', '.join(self.tried)}"
            f"{times} in vain and {ends}"
        )

    def wrong(self, run: ObservedRun) -> str:
        """Return what was seen instead; "" if the expectation is met."""
        begin, end = run.between((self.after, HEAL))
        recoveries = [
            recovery
            for recovery in _recoveries(run)
            if begin < recovery.lost_ns <= end and recovery.states[0] == ("lost", self.of)
        ]
        for recovery in recoveries:
            states = recovery.states
            if not self._fits(states[1:], (recovery.failed_ns - recovery.lost_ns) / 1e9):
                words = [f"{kind} {broker}".strip() for kind, broker in states]
                skipped = [f"{len(words) - 10} more"] if len(words) > 12 else []
                passed = ", ".join([*words[:5], *skipped, *words[-5:]] if skipped else words)
                return f"a client of {self.of} passed through other states: {passed}"
        if len(recoveries) < self.least:
            return f"{len(recoveries)} clients of {self.of} recovered or gave up after {self.after}"
        return ""

    def _fits(self, states: Sequence[tuple[str, str]], tried_s: float) -> bool:
        failed = tuple(broker for kind, broker in states if kind == "failed")
        least, most = (count * len(self.tried) for count in self.rounds)
        if self.every_s is not None:
            most = (int(tried_s / self.every_s) + 1) * len(self.tried)
        endings = [[(kind, broker) for kind in RECOVERY] for broker in self.to] or [[("given-up", "")]]
        return (
            least <= len(failed) <= most
            and failed == (self.tried * len(failed))[: len(failed)]
            and [*states[len(failed) :]] in endings
        )


@dataclass(slots=True)
class _Recovery:
    """The states of a client since it lost a connection, and when it lost it and last failed."""

    lost_ns: int
    failed_ns: int
    states: list[tuple[str, str]] = field(default_factory=list)


def _recoveries(run: ObservedRun) -> Iterator[_Recovery]:
    """Yield the states of each client from each loss of a connection to the end of its recovery.

    A client whose recovery does not end is left out, and so is the state "reached" of a broker that
    then refuses the client.
    """
    under_way: dict[int, _Recovery] = {}
    for row in run.rows:
        if row["f"] != "state":
            continue
        client, kind = row["process"], row["value"]
        if kind == "lost":
            under_way[client] = _Recovery(row["time"], row["time"])
        if client in under_way:
            recovery, state = under_way[client], (kind, row["broker"] or "")
            if kind == "failed":
                recovery.failed_ns = row["time"]
                if recovery.states[-1] == ("reached", state[1]):
                    recovery.states.pop()
            recovery.states.append(state)
            if kind in ("recovered", "given-up"):
                yield under_way.pop(client)
