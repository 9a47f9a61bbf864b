"""Faults of clocks: clock-skew, clock-step, clock-strobe, clock-rate.

Why four: a wrong clock confuses who compares times of different machines, a jump confuses who measures with it, one that jumps to and fro lets no two readings agree, and a clock that runs at
another speed makes every time-out early or late without anybody noticing. At the end of each the wall clock is true again, in one jump, as NTP sets a
clock that is too wrong to be led back slowly: what is healed must not make the next fault look as if it had bitten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from nemesis.disk import LeasedPart
from nemesis.kind import PAIR, Option, number

CLOCK: Final = "clock"
SKEW_MS_DEFAULT: Final = 60_000.0
RATE_DEFAULT: Final = 1.5
STROBE_STEP_MS_DEFAULT: Final = 5_000.0
STROBE_PERIOD_MS_DEFAULT: Final = 50.0


def _any_number(value: Any) -> str:
    wrong = number(0, above=True)(abs(value) if isinstance(value, int | float) else value)
    return "a number other than 0" if wrong else ""


class ClockSkew(LeasedPart):
    """A machine whose clock is wrong from the start of the fault; the monotonic clock runs on undisturbed."""

    name = "clock-skew"
    description = "wall clocks are wrong by a constant"
    primitives = ("clock-skew",)
    part = CLOCK
    seen_as = "skewed"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "skew_ms": Option(f"ahead, or behind if negative; {SKEW_MS_DEFAULT:g} by default", _any_number),
    }
    defaults: ClassVar[Mapping[str, Any]] = {"skew_ms": SKEW_MS_DEFAULT}


class ClockStep(LeasedPart):
    """A clock that somebody sets while everything runs, backwards unless asked otherwise; NTP sets it back at the end."""

    name = "clock-step"
    description = "wall clocks jump back, and at the end forwards again"
    primitives = ("clock-step",)
    part = CLOCK
    seen_as = "skewed"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "step_ms": Option(
            f"forwards, or backwards if negative; -{SKEW_MS_DEFAULT:g} by default", _any_number
        ),
    }
    defaults: ClassVar[Mapping[str, Any]] = {"step_ms": -SKEW_MS_DEFAULT}


class ClockStrobe(LeasedPart):
    """A clock that two masters pull at: it jumps ahead and back again and again, many times within one time-out."""

    name = "clock-strobe"
    description = "wall clocks jump to and fro, many times a second"
    primitives = ("clock-strobe",)
    part = CLOCK
    seen_as = "strobing"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "step_ms": Option(f"of each jump, {STROBE_STEP_MS_DEFAULT:g} by default", _any_number),
        "period_ms": Option(
            f"from one jump ahead to the next, {STROBE_PERIOD_MS_DEFAULT:g} by default",
            number(0, above=True),
        ),
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        "step_ms": STROBE_STEP_MS_DEFAULT,
        "period_ms": STROBE_PERIOD_MS_DEFAULT,
    }

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Every one jumps, whatever else is wrong with it."""
        del before
        return bool(observed) and all("strobing" in phrase for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """None jumps any more."""
        return not any("strobing" in phrase for phrase in observed.values())


class ClockRate(LeasedPart):
    """A clock that runs too fast or too slow: all time-outs of its node are early or late."""

    name = "clock-rate"
    description = "all clocks of a node run at another speed"
    primitives = ("clock-rate",)
    part = CLOCK
    seen_as = "rate"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "rate": Option(
            f"seconds of the node in a second, {RATE_DEFAULT:g} by default", number(0, above=True)
        ),
    }
    defaults: ClassVar[Mapping[str, Any]] = {"rate": RATE_DEFAULT}
