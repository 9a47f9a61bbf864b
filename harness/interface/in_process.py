"""The resources that the simulation gives a broker that runs in the harness' own process.

A part of the ``interface``.

Why apart: only the simulation runs brokers in this way, and only systems that are written in Python
can be run in it.
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
    """The faults of a disk at a moment; the fields combine freely, the default is a sound disk.

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
    """The damage that a disk does to a file: one bit is flipped, or the file is ``cut`` somewhere.

    ``files`` is a shell pattern of the files that may be hit ("*.lock").
    """

    files: str = "*"
    cut: bool = False


class Disk(Protocol):
    """A disk of our making, as an environment sees it that runs brokers in its own process.

    What the broker sees is defined by the system. A fault never makes the disk lie beyond what its
    name says.
    """

    def process_ended(self, chance: random.Random) -> None:
        """End the broker's use of the disk without a clean-up: its locks and handles are gone, too.

        Any prefix of what it had not synced has reached the operating system.
        """
        ...

    def power_lost(self, chance: random.Random) -> None:
        """Lose what was not synced, as a whole, in part, or with holes: the machine is gone."""
        ...

    def destroy(self) -> None:
        """Remove everything from the disk."""
        ...

    def image(self) -> Mapping[str, bytes]:
        """Return every file on the disk, by its path."""
        ...

    def restore(self, image: Mapping[str, bytes]) -> None:
        """Replace everything on the disk by the files of an image."""
        ...

    def condition(self, condition: DiskCondition) -> None:
        """Behave under this condition from now on."""
        ...

    def corrupt(self, chance: random.Random, damage: DiskDamage) -> str | None:
        """Damage something that was synced, and return what.

        "journal/0001 byte 77 bit 3", "server.lock cut to 5 bytes", or None if there is nothing to
        damage.
        """
        ...

    def seed(self, chance: random.Random) -> None:
        """Set the chance by which the disk's times vary from now on."""
        ...

    async def probe(self) -> str:
        """Try the disk itself, and return its condition.

        "sound", "slow 20 ms", "stalled", "full", "failing write", "damaged <where>".
        """
        ...


@runtime_checkable
class InProcess(Protocol):
    """A system whose brokers can run in the harness' own process."""

    def disk(self) -> Disk:
        """Return an empty disk of our making for one broker."""
        ...

    async def serve(self, files: Mapping[str, bytes], outside: InProcessResources) -> int:
        """Run a broker on the running loop until its end; return its exit status.

        ``files`` are those of ``System.files``.
        """
        ...


@dataclass(frozen=True, slots=True)
class InProcessResources:
    """The resources that an environment gives a broker in this process, besides the loop."""

    random: random.Random
    wall_clock: Callable[[], float]
    disk: Disk
    """The machine's own disk.

    For a node with a shared store it is the part that handles the store's client when process or
    machine end.
    """
    stopping: asyncio.Event
    observe: Callable[[Callable[[], Any]], None]
    """A function to be called once the broker answers.

    Its argument returns the broker's ``Status`` at any time until the broker ends.
    """
    database: Address | None = None
    """The address of the database server, for a broker that keeps its messages in one."""
    store: Any = None
    """The shared directory of a node that has one, as the broker's own seam requires it."""
    open_multicast: Any = None
    """The function that opens a multicast socket, as the broker's own seam requires it."""
