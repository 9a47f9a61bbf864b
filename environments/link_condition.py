"""The condition of a directed link: what the link does to the bytes and packets that cross it.

Faults overlap: one fault may slow a link and another cut it, and healing one must leave the other
in force. So a link has no switches: its condition is always `combine`d anew from the faults in
force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from environments.fault_options import number
from harness.interface import Link, UsageError

LINK_PRIMITIVES: Final = ("cut", "reset", "slow", "stall")
"""The link faults that every environment may have, named as in ``harness.interface.Environment``.

"stall" is another name of "cut" here, because a TCP proxy holds bytes where a network loses
packets. "stall" is the word for what a client sees.
"""

DATAGRAM_PRIMITIVES: Final = ("datagram-loss", "datagram-duplicate", "datagram-reorder")
"""The link faults that hit datagrams; on real machines only loss can be made."""

CHANCE_DEFAULT: Final = 0.3
"""The probability that a datagram is lost, doubled or overtaken, if the fault has no ``chance``."""


@dataclass(frozen=True, slots=True)
class LinkCondition:
    """The state of a directed link; its fields combine freely.

    ``cut`` holds the segments of streams until the link heals, and loses datagrams. ``reset`` ends
    every connection that crosses the link, now and as long as it is in force. The ``rate_bytes_s``
    None is unlimited. ``loss``, ``duplicate`` and ``reorder`` are the probabilities from 0 to 1
    that a datagram is lost, doubled or held back; the segments of streams are not.
    """

    cut: bool = False
    reset: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_bytes_s: float | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a value that no link can have."""
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} of a link is {getattr(self, name)!r}; it must be a probability from 0 to 1"
                )
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of a link is {getattr(self, name)!r}; it must be 0 or more")
        if self.rate_bytes_s is not None and not self.rate_bytes_s > 0:
            raise ValueError(f"rate_bytes_s of a link is {self.rate_bytes_s!r}; it must be above 0")

    @property
    def active(self) -> bool:
        """True unless everything crosses the link undisturbed."""
        return self != CLEAR


CLEAR: Final = LinkCondition()


def link_name(link: Link) -> str:
    """Return the name of a directed link in a history: ``a1->a2``."""
    return f"{link.source}->{link.target}"


def combine(conditions: Iterable[LinkCondition]) -> LinkCondition:
    """Return the condition of a link for which all given conditions hold at once.

    Delays add up, the lowest rate limits, and probabilities combine as those of independent causes.
    """
    result = CLEAR
    for one in conditions:
        rates = [rate for rate in (result.rate_bytes_s, one.rate_bytes_s) if rate is not None]
        result = LinkCondition(
            cut=result.cut or one.cut,
            reset=result.reset or one.reset,
            delay_ms=result.delay_ms + one.delay_ms,
            jitter_ms=result.jitter_ms + one.jitter_ms,
            rate_bytes_s=min(rates, default=None),
            loss=_either(result.loss, one.loss),
            duplicate=_either(result.duplicate, one.duplicate),
            reorder=_either(result.reorder, one.reorder),
        )
    return result


def condition_of(primitive: str, options: Mapping[str, Any] | None = None) -> LinkCondition:
    """Return the condition that a fault primitive and its options ask for.

    "slow" takes ``delay_ms``, ``jitter_ms`` (0 or more) and ``rate_bytes_s`` (more than 0), at
    least one of them. Faults of datagrams take ``chance``; the others take no options. Raises
    UsageError for anything else.
    """
    given = dict(options or {})
    takes: tuple[str, ...] = ()
    if primitive in ("cut", "stall"):
        result = LinkCondition(cut=True)
    elif primitive == "reset":
        result = LinkCondition(reset=True)
    elif primitive == "slow":
        takes = ("delay_ms", "jitter_ms", "rate_bytes_s")
        delay_ms, jitter_ms = (number(primitive, given, name, 0.0, least=0) for name in takes[:2])
        if given.get("rate_bytes_s", 0) is None:
            del given["rate_bytes_s"]
        rate_bytes_s = number(primitive, given, "rate_bytes_s", above=0) if "rate_bytes_s" in given else None
        result = LinkCondition(delay_ms=delay_ms, jitter_ms=jitter_ms, rate_bytes_s=rate_bytes_s)
    elif primitive in DATAGRAM_PRIMITIVES:
        takes = ("chance",)
        chance = number(primitive, given, "chance", CHANCE_DEFAULT, above=0, most=1)
        hit: Any = {primitive.removeprefix("datagram-"): chance}
        result = LinkCondition(**hit)
    else:
        raise UsageError(f"no link fault {primitive!r}; there are {', '.join(LINK_PRIMITIVES)}")
    if given:
        raise UsageError(
            f"{primitive}: unknown option {min(given)!r}; it takes {', '.join(takes) or 'no options'}"
        )
    if not result.active:
        raise UsageError("slow: nothing to slow; give delay_ms, jitter_ms or rate_bytes_s above 0")
    return result


def _either(first: float, second: float) -> float:
    return first + second - first * second
