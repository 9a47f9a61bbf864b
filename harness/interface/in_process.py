"""Resources that the simulation gives a broker that runs in the harness' own process.

A part of the ``interface``.

Why apart: only the simulation runs brokers so, and only systems that are written in Python can be
run so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from harness.interface.network import Address


class DiskCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a disk; the fields combine freely, the default is a sound disk.

    ``delay_ms`` (and up to ``jitter_ms`` more) is added to every sync and change of a directory;
    ``stalled`` lets none of them end. ``full`` refuses what needs space (ENOSPC), ``failing``
    ("write", "sync") those operations (EIO).
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    stalled: bool = False
    full: bool = False
    failing: tuple[str, ...] = ()


class DiskDamage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a disk rots: a bit of a file is turned over, or the file is ``cut`` somewhere.

    ``files`` are those that may be hit, a pattern as shells have it ("*.lock").
    """

    files: str = "*"
    cut: bool = False


class Disk(Protocol):
    """A disk of our making, as the place that runs a broker in its own process sees it.

    What the broker sees is the system's affair.

    A fault never makes the disk lie beyond what its name says.
    """

    def process_ended(self, chance: random.Random) -> None:
        """The broker is gone without a clean-up: its locks and handles too.

        Of what it had not synced, any prefix had reached the system.
        """
        ...

    def power_lost(self, chance: random.Random) -> None:
        """The machine is gone: what was not synced is lost, whole, in part, or with holes."""
        ...

    def destroy(self) -> None:
        """Nothing is left on it."""
        ...

    def condition(self, condition: DiskCondition) -> None:
        """From now on it behaves so."""
        ...

    def corrupt(self, chance: random.Random, damage: DiskDamage) -> str | None:
        """Do damage to what was synced.

        "journal/0001 byte 77 bit 3", "server.lock cut to 5 bytes", or None if there is nothing to
        damage.
        """
        ...

    def seed(self, chance: random.Random) -> None:
        """The chance by which its times vary from now on."""
        ...

    async def probe(self) -> str:
        """How it is now, tried on the disk itself.

        "sound", "slow 20 ms", "stalled", "full", "failing write", "damaged <where>".
        """
        ...


@runtime_checkable
class InProcess(Protocol):
    """A system whose brokers can run in the harness' own process."""

    def disk(self) -> Disk:
        """An empty disk of our making for one broker."""
        ...

    async def serve(self, files: Mapping[str, bytes], outside: InProcessResources) -> int:
        """Run a broker on the running loop until its end; its exit status.

        ``files`` are those of ``System.files``.
        """
        ...


@dataclass(frozen=True, slots=True)
class InProcessResources:
    """What a broker that runs in this process takes from its place besides the running loop."""

    random: random.Random
    wall_clock: Callable[[], float]
    disk: Disk
    """The machine's own; of a node with a shared store, what becomes of the store's client when
    process or machine end.
    """
    stopping: asyncio.Event
    observe: Callable[[Callable[[], Any]], None]
    """To be called once the broker answers, with what gives its ``Status`` at any time until its
    end.
    """
    database: Address | None = None
    """Where the database server is, of a broker that keeps its messages in one."""
    store: Any = None
    """The shared directory of a node that has one.

    What the broker's own seam to such a directory asks for.
    """
