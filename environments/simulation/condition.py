"""What a simulated link does to what crosses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LinkCondition:
    """A directed link's state; the fields combine freely.

    ``cut`` holds the segments of streams until the link heals and loses datagrams. ``reset`` ends
    every connection that crosses the link, now and as long as it is in force. ``loss``,
    ``duplicate`` and ``reorder`` are probabilities from 0 to 1: a stream's lost segment waits for
    its retransmission, a lost datagram is gone; the other two concern datagrams only.
    ``rate_bytes_s`` None is unlimited.
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
        """Raises ValueError for what no link can be."""
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
        """Whether anything but the network's own latency happens to what crosses."""
        return self != CLEAR


CLEAR: Final = LinkCondition()


def combine(conditions: Iterable[LinkCondition]) -> LinkCondition:
    """All conditions at once.

    Delays add up, the lowest rate limits, probabilities are of independent causes.
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


def _either(first: float, second: float) -> float:
    return first + second - first * second
