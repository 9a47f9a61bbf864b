"""The locks of a queue manager on the shared file system.

Under its own lock, each instance also records who it is.

Data and logs have locks of their own, as a queue manager's have (crtmqm -md, -ld)::

    qmgrs/QM1/master.lock      held while an instance decides what it becomes: what it then reads is
                               true
    qmgrs/QM1/active.lock      held by the active instance, with what it says of itself
    qmgrs/QM1/standby.lock     the same of the standby instance
    logs/QM1/log.lock          held by the active instance over the logs
    logs/QM1/journal/          the logs, a directory for each life

Byte 0 of each file is the locked one; one line of JSON follows. The line is written under the lock
only, so that an instance that lost the lock cannot overwrite its successor's line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from broker.ha_policy import MultiInstanceSection
from broker.storage.shared import Ids, SharedDirectory, SharedLock

_LOCKED: Final = 0
_SAID_AT: Final = 1
_SAID_SIZE: Final = 511

Place = Literal["master", "active", "standby", "logs"]
State = Literal["starting", "running", "switched-over", "ended-normally", "ended-immediately"]


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The record that an instance writes to its lock file; a standby's ``state`` means nothing."""

    instance: str
    node_id: str | None = None
    permit_standby: bool = False
    state: State = "starting"

    @property
    def ended(self) -> bool:
        """True if the queue manager was ended with all its instances."""
        return self.state in ("ended-normally", "ended-immediately")


class ActiveLocks:
    """The locks of an active instance, over data and logs: it holds both, or it is not active."""

    def __init__(self, data: SharedLock, logs: SharedLock) -> None:
        self.data = data
        self.logs = logs

    async def verify(self) -> None:
        """Return when the file system has confirmed both locks. Raises OSError."""
        await self.data.verify()
        await self.logs.verify()

    async def release(self) -> None:
        """Release both locks. Raises OSError.

        The logs come first, so that an instance that finds the data free finds the logs free, too.
        """
        try:
            await self.logs.release()
        finally:
            await self.data.release()


class InstanceLocks:
    """The locks of one queue manager; every call may hang or raise OSError, as its store does."""

    def __init__(self, section: MultiInstanceSection, directory: SharedDirectory) -> None:
        self.data = f"{section.data_directory}/{section.queue_manager}"
        self.logs = f"{section.log_directory}/{section.queue_manager}"
        self._directory = directory
        self._paths: Mapping[Place, str] = {
            "master": f"{self.data}/master.lock",
            "active": f"{self.data}/active.lock",
            "standby": f"{self.data}/standby.lock",
            "logs": f"{self.logs}/log.lock",
        }

    async def owner(self) -> Ids | None:
        """Return the owner of the queue manager's data, None if there are none."""
        try:
            return await self._directory.owner(self.data)
        except FileNotFoundError:
            return None

    def ids(self) -> Ids:
        """Return the user and group by which the file system knows this process."""
        return self._directory.ids()

    async def create(self) -> None:
        """Make the directories of data and logs, if they are missing."""
        await self._directory.mkdir(self.data)
        await self._directory.mkdir(self.logs)

    async def take(self, place: Place) -> SharedLock | None:
        """Take the lock of a place, None if another instance has it."""
        return await self._directory.try_lock(self._paths[place], _LOCKED)

    async def held(self, place: Place) -> bool:
        """Return whether an instance has a place."""
        return await self._directory.locked(self._paths[place], _LOCKED)

    async def record(self, place: Place) -> InstanceRecord | None:
        """Return the last instance's record; None if there was none, or its file was lost."""
        path = self._paths[place]
        if not await self._directory.exists(path):
            return None
        line = (await self._directory.read(path, _SAID_AT, _SAID_SIZE)).partition(b"\n")[0]
        try:
            return msgspec.json.decode(line, type=InstanceRecord)
        except msgspec.MsgspecError:  # locked for the first time, and nothing recorded yet
            return None


async def write_record(lock: SharedLock, record: InstanceRecord) -> None:
    """Write a record to the file of a lock of ours. Raises OSError if the lock is lost."""
    line = msgspec.json.encode(record) + b"\n"
    assert len(line) <= _SAID_SIZE, "names are at most 64 characters"
    await lock.write(_SAID_AT, line.ljust(_SAID_SIZE, b"\n"))
