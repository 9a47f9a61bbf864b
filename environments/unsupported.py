"""Why the places that run on a real kernel cannot do what the simulation can.

The reason that ``list`` shows.

Why words and not a missing key: who asks for a fault must learn what stands in the way, and where
it can be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_CLOCK: Final = "brokers share this machine's clock; use --environment simulation"
_DATAGRAM: Final = "the links carry streams only; use --environment simulation"

SIMULATED_ONLY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clock-skew": _CLOCK,
        "clock-step": _CLOCK,
        "clock-rate": _CLOCK,
        "clock-strobe": _CLOCK,
        "datagram-loss": _DATAGRAM,
        "datagram-duplicate": _DATAGRAM,
        "datagram-reorder": _DATAGRAM,
    }
)
"""Fault primitive -> the reason."""
