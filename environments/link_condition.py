"""What a directed link does to the bytes that cross it.

Faults overlap: a link may be slowed by one fault and cut by another, and healing one must leave the
other in force. So a link has no switches; its condition is always `combine`d anew from the faults
in force.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.interface import Link, UsageError

LINK_PRIMITIVES: Final = ("cut", "reset", "slow", "stall")
"""Link faults by the names of ``harness.interface.Environment``.

A TCP proxy holds bytes where a network loses packets, so "stall" is "cut" under the name that
ordinary people give to what they see.
"""


@dataclass(frozen=True, slots=True)
class Condition:
    """A directed link's state; the fields combine freely. ``rate_bytes_s`` None is unlimited."""

    cut: bool = False
    reset: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_bytes_s: float | None = None

    @property
    def active(self) -> bool:
        """Whether bytes may not simply pass."""
        return self != CLEAR


CLEAR: Final = Condition()


def link_name(link: Link) -> str:
    """How a directed link is written in a history: ``a1->a2``."""
    return f"{link.source}->{link.target}"


def combine(conditions: Iterable[Condition]) -> Condition:
    """All conditions at once: delays add up, the lowest rate limits."""
    result = CLEAR
    for one in conditions:
        rates = [rate for rate in (result.rate_bytes_s, one.rate_bytes_s) if rate is not None]
        result = Condition(
            cut=result.cut or one.cut,
            reset=result.reset or one.reset,
            delay_ms=result.delay_ms + one.delay_ms,
            jitter_ms=result.jitter_ms + one.jitter_ms,
            rate_bytes_s=min(rates, default=None),
        )
    return result


def condition_of(primitive: str, options: Mapping[str, Any] | None = None) -> Condition:
    """The condition that a fault primitive and its options ask for.

    "slow" takes ``delay_ms``, ``jitter_ms`` (0 or more) and ``rate_bytes_s`` (more than 0), at
    least one of them; the others take none. Raises UsageError for anything else.
    """
    given = dict(options or {})
    if primitive in ("cut", "stall"):
        result = Condition(cut=True)
    elif primitive == "reset":
        result = Condition(reset=True)
    elif primitive == "slow":
        delay_ms = _number(given.pop("delay_ms", 0.0), "delay_ms")
        jitter_ms = _number(given.pop("jitter_ms", 0.0), "jitter_ms")
        rate = given.pop("rate_bytes_s", None)
        rate_bytes_s = None if rate is None else _number(rate, "rate_bytes_s", above_zero=True)
        result = Condition(delay_ms=delay_ms, jitter_ms=jitter_ms, rate_bytes_s=rate_bytes_s)
    else:
        raise UsageError(f"no link fault {primitive!r}; there are {', '.join(LINK_PRIMITIVES)}")
    if given:
        takes = "delay_ms, jitter_ms, rate_bytes_s" if primitive == "slow" else "no options"
        raise UsageError(f"{primitive}: unknown option {min(given)!r}; it takes {takes}")
    if not result.active:
        raise UsageError("slow: nothing to slow; give delay_ms, jitter_ms or rate_bytes_s above 0")
    return result


def _number(value: Any, name: str, *, above_zero: bool = False) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (above_zero and value == 0):
        raise UsageError(
            f"slow: {name} must be a number {'above 0' if above_zero else 'of 0 or more'}, not {value!r}"
        )
    return float(value)
