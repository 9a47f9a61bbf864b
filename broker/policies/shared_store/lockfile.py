"""``server.lock``: one small file of the shared directory that says who is live.

It also says who is next, and what the last live left.

The places are those of Apache ActiveMQ Artemis; what follows its node ID is ours::

    byte 0         state: "L" live, "P" paused (stopped without failover), "F" failing back; absent:
                   never started
    byte 1         locked by the live
    byte 2         locked by the backup that is next
    bytes 3 - 18   the node ID
    byte 19        locked by a master that waits for its place
    bytes 20 - 84  the name of the broker that was live last, its length first

Why the state is written under the live lock only: then a broker that lost the lock cannot overwrite
its successor's state. Why a waiting master holds a lock and leaves no note: a note would outlive
the broker that wrote it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from broker.policies.shared_store.store import FAILING_BACK, LIVE, NOT_STARTED, PAUSED, Place, StoreMark
from broker.storage.shared import SharedDirectory, SharedLock

DIRECTORIES: Final = ("bindings", "journal", "large-messages", "paging")
"""The layout of a store (AMQ 17.3.2.2).

``bindings`` and ``paging`` exist and are empty.
"""

PATH: Final = "journal/server.lock"

_STATE_AT: Final = 0
_AT: Final[Mapping[Place, int]] = {"live": 1, "backup": 2, "master": 19}
_NODE_ID_AT: Final = 3
_NAME_AT: Final = 20
_SIZE: Final = 85


class LockFile:
    """The lock file of a shared directory.

    Every call may hang or raise OSError, as the store does.
    """

    def __init__(self, store: SharedDirectory) -> None:
        self._store = store

    async def prepare(self) -> None:
        """Make the layout's directories, if they are missing."""
        for name in DIRECTORIES:
            await self._store.mkdir(name)

    async def take(self, place: Place) -> SharedLock | None:
        """Take the lock of a place, None if another broker has it."""
        return await self._store.try_lock(PATH, _AT[place])

    async def held(self, place: Place) -> bool:
        """Whether somebody has a place."""
        return await self._store.locked(PATH, _AT[place])

    async def read(self) -> StoreMark:
        """Return the mark of the last live; it is meaningful to the holder of the live lock."""
        data = b""
        if await self._store.exists(PATH):
            data = await self._store.read(PATH, 0, _SIZE)
        data = data.ljust(_SIZE, b"\0")
        node = data[_NODE_ID_AT : _AT["master"]]
        name = data[_NAME_AT + 1 :][: data[_NAME_AT]]
        return StoreMark(
            data[_STATE_AT:1].strip(b"\0").decode("ascii", "replace"),
            str(uuid.UUID(bytes=node)) if node.strip(b"\0") else None,
            name.decode("utf-8", "replace"),
        )

    async def begin(self, live: SharedLock, node_id: str, name: str) -> None:
        """Record that the holder of the live lock is live from now on."""
        encoded = name.encode()
        await live.write(_NODE_ID_AT, uuid.UUID(node_id).bytes)
        await live.write(_NAME_AT, bytes([len(encoded)]) + encoded)
        await self.leave(live, LIVE)

    async def leave(self, live: SharedLock, state: str) -> None:
        """Write the state in which the holder of the live lock leaves its place."""
        await live.write(_STATE_AT, state.encode())


__all__ = ["DIRECTORIES", "FAILING_BACK", "LIVE", "NOT_STARTED", "PATH", "PAUSED", "LockFile", "StoreMark"]
