"""Faults of clocks: clock-skew, clock-step, clock-strobe, clock-rate.

Why four: a wrong clock confuses programs that compare times of different machines, and a jump
confuses programs that measure time with the clock. If a clock jumps to and fro, no two readings
agree. A clock that runs at another speed makes every time-out early or late, and nothing shows it.
At the end of each fault the wall clock is set right in one jump, as NTP does with a clock that is
very wrong. Otherwise the next fault would look as if it had taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from nemesis.kind import PAIR, Option, number
from nemesis.node import NodeKind

CLOCK: Final = "clock"
PERIOD_MS_MAX: Final = 4000.0
"""The longest period of a strobe: a probe watches a clock for longer than half of the period."""


def _any_number(value: Any) -> str:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    wrong = number(0, above=True)(abs(value) if plain else value)
    return "a number other than 0" if wrong else ""


def _period(value: Any) -> str:
    wrong = number(0, above=True)(value) or value > PERIOD_MS_MAX
    return f"a number above 0 and at most {PERIOD_MS_MAX:g}" if wrong else ""


class ClockKind(NodeKind):
    """A kind of fault of clocks."""

    part = CLOCK
    seen_as = "skewed"


class ClockSkew(ClockKind):
    """A wall clock that is wrong by a constant from the start of the fault.

    The monotonic clock runs on undisturbed.
    """

    name = "clock-skew"
    description = "wall clocks are wrong by a constant"
    mild = True
    primitives = ("clock-skew",)
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "skew_ms": Option(
            "ahead, or behind if negative", _any_number, 60_000.0, drawn=(-60_000.0, 1000.0, 3_600_000.0)
        ),
    }


class ClockStep(ClockKind):
    """A wall clock that is set while everything runs, backwards unless asked otherwise.

    It is set right at the end, as by NTP.
    """

    name = "clock-step"
    description = "wall clocks jump back, and forward again at the end"
    mild = True
    primitives = ("clock-step",)
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "step_ms": Option(
            "forwards, or backwards if negative", _any_number, -60_000.0, drawn=(-60_000.0, -500.0, 60_000.0)
        ),
    }


class ClockStrobe(ClockKind):
    """A wall clock that two time servers set in turn.

    It jumps ahead and back again and again, many times within one time-out.
    """

    name = "clock-strobe"
    description = "wall clocks jump back and forth many times a second"
    mild = True
    primitives = ("clock-strobe",)
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "step_ms": Option("of each jump", _any_number, 5_000.0, drawn=(-60_000.0, -500.0, 60_000.0)),
        "period_ms": Option("from one jump ahead to the next", _period, 50.0, drawn=(20.0, 200.0)),
    }

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether every clock jumps, whatever else is wrong with it."""
        del before
        return bool(observed) and all("strobing" in phrase for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether no clock jumps any more."""
        return not any("strobing" in phrase for phrase in observed.values())


class ClockRate(ClockKind):
    """Clocks that run too fast or too slow: all time-outs of their node are early or late."""

    name = "clock-rate"
    description = "all clocks of a node run at another speed"
    lasts = True
    unpromised = "votes and leases measure time: clocks that run apart are not promised to be survived"
    primitives = ("clock-rate",)
    seen_as = "rate"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "rate": Option(
            "seconds of the node in a second", number(0, above=True), 1.5, drawn=(0.7, 0.9, 1.1, 1.5)
        ),
    }
