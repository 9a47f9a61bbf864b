"""Why the places that run on a real kernel cannot do what the simulation can: the reason that ``list`` shows.

Why words and not a missing key: who asks for a fault must learn what stands in the way, and where it can be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_DISK: Final = "the disk is this machine's own; use --environment simulation"
_CLOCK: Final = "brokers share this machine's clock; use --environment simulation"
_NFS: Final = (
    "needs a store on NFS, and the store here is a directory of this machine; use --environment simulation"
)
_DATABASE: Final = (
    "the database here is a file of this machine, which no fault can stop; use --environment simulation"
)
_DATAGRAM: Final = "the links carry streams only; use --environment simulation"

SIMULATED_ONLY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "disk-slow": _DISK,
        "disk-stall": _DISK,
        "disk-full": _DISK,
        "disk-error": _DISK,
        "disk-corrupt": _DISK,
        "power-loss": "power cannot be taken from one broker only; use --environment simulation",
        "clock-skew": _CLOCK,
        "clock-step": _CLOCK,
        "clock-rate": _CLOCK,
        "clock-strobe": _CLOCK,
        "nfs-stall": _NFS,
        "nfs-disconnect": _NFS,
        "nfs-restart": _NFS,
        "database-stall": _DATABASE,
        "database-restart": _DATABASE,
        "database-disconnect": _DATABASE,
        "datagram-loss": _DATAGRAM,
        "datagram-duplicate": _DATAGRAM,
        "datagram-reorder": _DATAGRAM,
    }
)
"""Fault primitive -> the reason."""
