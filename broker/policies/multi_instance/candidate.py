"""The rules by which an instance becomes active or standby, or is refused.

They are those of strmqm, with and without -x, and say when a standby instance takes over.

the active instance      the standby   started with permit-standby       started without none runs
none runs     active                            active none runs                runs          waits:
it is about to take over   waits, as left runs, permits a standby  none runs     standby
refused, status 31 runs, permits a standby  runs          refused, status 47                refused,
status 31 runs, permits none       none can      refused, status 43                refused, status
43

The statuses and the sentences are those of strmqm. Decisions are made under the master lock: then
each instance that holds a place has recorded who it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.ha_policy import MultiInstanceSection
from broker.policies.multi_instance.places import ActiveLocks, InstanceLocks, InstanceRecord, write_record
from broker.policies.ownership.candidacy import Candidacy, Granted, HeldLock
from broker.start_error import StartError
from broker.storage.shared import SharedLock

_log = logging.getLogger(__name__)

EXIT_STANDBY_PERMITTED: Final = 31
"""An active instance runs already; it permits a standby, and this one was not started as one."""
EXIT_NO_STANDBY: Final = 43
"""An active instance runs already and permits no standby."""
EXIT_STANDBY_THERE: Final = 47
"""The queue manager has the greatest number of standby instances already: one."""


class StartRefusedError(StartError):
    """The instance has no place in addition to those that run."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _EndedError(Exception):
    """The queue manager was ended, and with it the instance that stood by."""


class InstanceCandidate(Candidacy):
    """A wait from the start of an instance, or of its standing by, to the active one's locks."""

    STORE = "the shared file system"

    def __init__(
        self,
        places: InstanceLocks,
        section: MultiInstanceSection,
        name: str,
        waits: Callable[[InstanceRecord], None],
    ) -> None:
        super().__init__(section.lock_poll_period, section.lock_expiration)
        self._places = places
        self._section = section
        self._name = name
        self._waits = waits
        self._stood_by = False

    async def run(self) -> Granted | None:
        """Return the locks of the active instance, or None.

        None means that the queue manager was ended while this instance stood by.

        Raises StartRefusedError if there is no place for it, StartError if the data are another
        user's. A file system that fails is asked again.
        """
        try:
            return await super().run()
        except _EndedError:
            return None

    async def _attempt(self) -> Granted | None:
        return await (self._decide() if self._waiting is None else self._stand_by(self._waiting))

    # --------------------------------------------------------------------------------- at the start

    async def _prepare(self) -> None:
        """Make the directories, unless they exist and belong to another user.

        With other user and group numbers nothing here could be shared, and half of it would be
        damaged.
        """
        places = self._places
        if await places.owner() is None:
            await places.create()
        owner, ours = await places.owner(), places.ids()
        if owner is not None and owner != ours:
            raise StartError(
                f"{places.data} belongs to uid {owner[0]}, gid {owner[1]}, and this instance runs as "
                f"uid {ours[0]}, gid {ours[1]}:"
                " both must have the same numbers on all machines (usermod -u, groupmod -g); nothing "
                "was changed"
            )
        await places.create()

    async def _decide(self) -> Granted | None:
        master = await self._places.take("master")
        if master is None:
            self._tell(logging.INFO, "another instance of the queue manager is starting: waiting for it")
            return None
        try:
            return await self._take_a_place()
        finally:
            await self._releases.retry(master)

    async def _take_a_place(self) -> Granted | None:
        places, section = self._places, self._section
        name = f"queue manager {section.queue_manager!r}"
        if not await places.held("active"):
            if await places.held("standby"):
                self._tell(
                    logging.INFO, f"{name}: the standby instance is about to take over: waiting for it"
                )
                return None
            return await self._take_over()
        active = await places.record("active")
        if active is None:  # whoever takes its place records that under the master lock: the file was lost
            self._tell(
                logging.WARNING, f"{name}: the active instance has not recorded its name: trying again"
            )
            return None
        if not active.permit_standby:
            raise StartRefusedError(
                f"{name} already has an active instance, {active.instance}, which does not permit "
                "standby instances",
                EXIT_NO_STANDBY,
            )
        if not section.permit_standby:
            raise StartRefusedError(
                f"{name} already has an active instance, {active.instance}, which permits standby instances:"
                " start this one with permit-standby = true (strmqm -x)",
                EXIT_STANDBY_PERMITTED,
            )
        standby = await places.take("standby")
        if standby is None:
            there = await places.record("standby")
            raise StartRefusedError(
                f"{name} already has the maximum number of standby instances, which is 1"
                + (f": {there.instance}" if there is not None else ""),
                EXIT_STANDBY_THERE,
            )
        await self._begin_to_stand_by(standby, active)
        return None

    async def _begin_to_stand_by(self, standby: SharedLock, active: InstanceRecord) -> None:
        kept = False
        try:
            await write_record(standby, InstanceRecord(instance=self._name, permit_standby=True))
            kept = True
        finally:
            if not kept:
                await self._releases.retry(standby)
        self._waiting = standby
        self.next_in_line = self._stood_by = True
        _log.info(
            "a standby instance of queue manager %r has been started: the active instance is running "
            "elsewhere (%s)",
            self._section.queue_manager,
            active.instance,
        )
        self._waits(active)

    # ---------------------------------------------------------------------------------- standing by

    async def _stand_by(self, standby: HeldLock) -> Granted | None:
        """Look whether the active instance still runs; take its place if it does not."""
        await self._check_place(standby)
        places = self._places
        if await places.held("active"):
            active = await places.record("active")
            if active is not None:
                self._trouble = ""
                self._waits(active)
            return None
        master = await places.take("master")
        if master is None:
            return None
        try:
            granted = await self._take_over()
            if granted is not None:
                await self.give_up()
            return granted
        finally:
            await self._releases.retry(master)

    async def _take_over(self) -> Granted | None:
        """Take the locks over data and logs, if both are free.

        This instance is recorded before the master lock is released.
        """
        data = await self._places.take("active")
        if data is None:
            return None
        logs: SharedLock | None = None
        kept = False
        try:
            logs = await self._places.take("logs")
            if logs is None:
                self._tell(
                    logging.WARNING,
                    "the data of the queue manager are not locked but its logs are: waiting for that lock",
                )
                return None
            before = await self._places.record("active")
            if self._stood_by and before is not None and before.ended:
                raise _EndedError
            await write_record(
                data,
                InstanceRecord(
                    instance=self._name,
                    node_id=before.node_id if before is not None else None,
                    permit_standby=self._section.permit_standby,
                ),
            )
            locks = ActiveLocks(data, logs)
            asked_s = await self._confirmed(locks)
            kept = True
            return Granted(locks, asked_s, None)
        finally:
            if not kept:
                await self._releases.retry(logs, data)
