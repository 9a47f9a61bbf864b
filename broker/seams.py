"""What a broker takes from outside besides the loop: chance, the wall clock, and names of hosts.

Why a value and not modules: the same broker code must run in a deterministic simulation, where one
seed gives one history byte for byte. Time within the broker is ``loop.time()``, files go through
``storage.Volume``, connections through the running loop; what is left comes in here and nowhere
else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from broker.handshake import NONCE_BYTES
from broker.multicast import OpenMulticast, open_multicast
from broker.turn_watch import TurnWatch

if TYPE_CHECKING:
    from broker.config import BrokerConfig

SECRET_BYTES: Final = 16
"""Random bytes in a name that others must not guess."""


class SharedFiles(Protocol):
    """A directory of small files that several brokers read and write. Calls may raise OSError."""

    async def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; none if there is no such directory."""
        ...

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes from ``offset``, at most ``size``."""
        ...

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file: a reader sees the old or the new one."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; it is no error if the file does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class Seams:
    """The outside of one broker; pass it on, never reach around it.

    ``wall_clock`` gives seconds since the epoch and is for what people read (log lines, message
    timestamps) and for instants that clients name (when a message expires), never for measuring.
    ``hosts`` maps announced addresses ("a1:61616") to where *this* node reaches them, as /etc/hosts
    would; each node has its own. ``entropy`` gives bytes that nobody can foresee, for what others
    must not guess; without it they come from ``random``, which a simulation can repeat and who has
    seen enough of it can foretell. ``connections`` is how many clients may have together.
    ``turn_watch`` watches the loop, where there is a clock that runs while code does.
    ``open_multicast`` opens multicast sockets: asyncio takes the options of one only with a socket
    of this machine, which a simulation has not. ``open_directory`` opens a directory that brokers
    share, None where none can be opened. ``configuration`` reads the broker's configuration again
    and returns what it says now; it raises ConfigurationError.
    """

    random: random.Random
    wall_clock: Callable[[], float]
    hosts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    entropy: Callable[[int], bytes] | None = None
    connections: int | None = None
    turn_watch: TurnWatch | None = None
    open_multicast: OpenMulticast = open_multicast
    open_directory: Callable[[Path], SharedFiles] | None = None
    configuration: Callable[[], Awaitable[BrokerConfig]] | None = None

    def nonce(self) -> bytes:
        """Bytes for one handshake."""
        return (self.entropy or self.random.randbytes)(NONCE_BYTES)

    def secret(self) -> str:
        """Text for a name that nobody can guess who has not been told it."""
        return (self.entropy or self.random.randbytes)(SECRET_BYTES).hex()

    def resolve(self, address: str) -> tuple[str, int]:
        """Where to connect for an announced "name:port"; a name without an entry stands for itself.

        Raises ValueError, naming the address, when it has no port or the port is no number within
        1..65535.
        """
        known = self.hosts.get(address)
        if known is not None:
            return known
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"address {address!r} is not host:port with a port from 1 to 65535")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, int(port)


def real_seams(
    hosts: Mapping[str, tuple[str, int]] | None = None,
    seed: int | str | None = None,
    connections: int | None = None,
    turn_watch: TurnWatch | None = None,
    open_directory: Callable[[Path], SharedFiles] | None = None,
    configuration: Callable[[], Awaitable[BrokerConfig]] | None = None,
) -> Seams:
    """The seams of the real world; ``seed`` None takes chance from the operating system."""
    return Seams(
        random=random.Random(seed),
        wall_clock=time.time,
        hosts=dict(hosts or {}),
        entropy=os.urandom if seed is None else None,
        connections=connections,
        turn_watch=turn_watch,
        open_directory=open_directory,
        configuration=configuration,
    )
