"""The expectations about which broker clients connect to."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping

import msgspec

from harness.claims.scenarios.seen import HEAL, ObservedRun


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
