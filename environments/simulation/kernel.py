"""A machine's kernel as the client of a file server of the world.

It acts for processes, and goes on when these stop or die.

Why the kernel is modelled: it keeps renewing a lease while the broker's process stands still, and
closes and unlocks what a dead process had. On a soft mount it gives up with an error after
``timeo`` times ``retrans``, where a hard one waits for ever. The server may still do a request that
was given up, or whose process died.
"""

# ruff: noqa: D102 - harness.interface.in_process.Disk says what each method promises
from __future__ import annotations

import asyncio
import errno
import fnmatch
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from environments.simulation.filestore import FileRequest, FileServer, StoredFile
from filesystems.disk.damage import DamagedSpot
from filesystems.nfs.options import MountOptions
from harness.interface import DiskCondition, DiskDamage

if TYPE_CHECKING:
    from environments.simulation.mount import MountedFile

T = TypeVar("T")

PROBE_S: Final = 0.3
"""The time that a probe waits before it calls the store silent."""

SLOW_S: Final = 0.01
"""A change that takes longer is called slow: the way to the server and its disk are far below."""


class Kernel:
    """The client on ``machine``, and its ``Disk`` for what happens to process and machine."""

    def __init__(
        self,
        server: FileServer,
        machine: str,
        options: MountOptions,
        chance: random.Random,
        user: tuple[int, int] = (0, 0),
    ) -> None:
        self.server = server
        self.user = user
        """The user and group of the processes on this machine."""
        self.client = server.client(machine)
        self._patience_s = options.patience_s if options.soft else None
        self._chance = chance
        self._condition = DiskCondition()
        self.process = 0
        self.open_files: dict[MountedFile, None] = {}
        self._waiting: dict[FileRequest, None] = {}
        self._off = False
        self._damage: tuple[str, StoredFile, DamagedSpot] | None = None

    # ---------------------------------------------------------------------------------- the machine

    def set_cut(self, cut: bool) -> None:
        """Separate this machine from the server, or join them again."""
        client = self.client
        if cut == client.cut:
            return
        client.cut = cut
        if cut:
            self.server.silence(client)
        elif not self._off:
            self.server.heard(client)

    def boot(self) -> int:
        """Begin a process on this machine, and return its number.

        If the machine had lost its power, the server is told so and forgets its former state.
        """
        if self._off:
            self._off = False
            self.server.expire(self.client)
            if self.client.cut:
                self.server.silence(self.client)
            else:
                self.server.heard(self.client)
        return self.process

    def seed(self, chance: random.Random) -> None:
        self._chance = chance

    def process_ended(self, chance: random.Random) -> None:
        """Write any prefix of what the ended process had not synced, and then unlock."""
        process, self.process = self.process, self.process + 1
        self._abandon()
        for file in self.open_files:
            unwritten = file.unwritten()
            if unwritten:
                self._kernel(file.appending(unwritten[: chance.randint(0, len(unwritten))]))
        self.open_files.clear()
        self._kernel(lambda: self._unlock(process))

    def power_lost(self, chance: random.Random) -> None:
        """Silence the machine; whatever it had not sent is lost."""
        del chance
        self.process += 1
        self._abandon()
        self.open_files.clear()
        self._off = True
        self.server.silence(self.client)

    def destroy(self) -> None:
        """Do nothing: a lost machine has nothing of its own on the shared store."""

    def image(self) -> Mapping[str, bytes]:
        """Return nothing, as ``destroy`` removes nothing."""
        return {}

    def restore(self, image: Mapping[str, bytes]) -> None:
        """Do nothing, as ``destroy`` does."""

    def condition(self, condition: DiskCondition) -> None:
        self._condition = condition

    def corrupt(self, chance: random.Random, damage: DiskDamage) -> str | None:
        """Damage one file: the server's disk rots."""
        files = [
            (path, file)
            for path, file in sorted(self.server.files.items())
            if file.data and fnmatch.fnmatchcase(path, damage.files)
        ]
        if not files:
            return None
        path, file = chance.choice(files)
        place = chance.randrange(len(file.data))
        if damage.cut:
            del file.data[place:]
            spot = DamagedSpot(place)
        else:
            bit = chance.randrange(8)
            file.data[place] ^= 1 << bit
            spot = DamagedSpot(place, bit, file.data[place])
        self._damage = path, file, spot
        return f"{path} {spot}"

    async def probe(self) -> str:
        """Return the state of the directory as a writer on this machine finds it.

        It is "sound", "slow 20 ms", "stalled", "full", "failing write", or "damaged <where>".
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(PROBE_S):
                await self.call(lambda: None, changes=True, grows=True)
        except TimeoutError:
            return "stalled"
        except OSError as error:
            return "full" if error.errno == errno.ENOSPC else "failing write"
        took_s = loop.time() - began_s
        if took_s > SLOW_S:
            return f"slow {took_s * 1000:.0f} ms"
        if self._damage is not None:
            path, file, spot = self._damage
            if spot.is_in(file.data) and any(stored is file for stored in self.server.files.values()):
                return f"damaged {path} {spot}"
        return "sound"

    async def look(self) -> str:
        """Return how this machine finds the server: "answers", "silent", "in grace"."""
        server = self.server
        try:
            async with asyncio.timeout(PROBE_S):
                return await self.call(lambda: "in grace" if server.in_grace else "answers", new_state=False)
        except (TimeoutError, OSError):
            return "silent"

    def _abandon(self) -> None:
        for request in self._waiting:
            request.abandoned = True
        self._waiting.clear()

    def _kernel(self, work: Callable[[], Any]) -> None:
        """Send a request of the kernel for a process that is gone; it is never given up."""
        self.server.send(FileRequest(self.client, work, new_state=False, changes=True))

    def _unlock(self, process: int) -> None:
        locks = self.server.locks
        for place in [
            p for p, lock in locks.items() if lock.client is self.client and lock.process == process
        ]:
            del locks[place]

    # ---------------------------------------------------------------------------------------- calls

    async def call(
        self,
        work: Callable[[], T],
        *,
        new_state: bool = True,
        changes: bool = False,
        grows: bool = False,
        given_up: Callable[[T], None] | None = None,
    ) -> T:
        """Send a request and return its answer; ``given_up`` gets a result that none awaits."""
        condition = self._condition
        if condition.delay_ms or condition.jitter_ms:
            await asyncio.sleep((condition.delay_ms + condition.jitter_ms * self._chance.random()) / 1000)
        while self._condition.stalled:  # noqa: ASYNC110 - another loop than the one that waits may end the stall
            await asyncio.sleep(0.01)
        if changes and self._condition.failing:
            raise OSError(errno.EIO, "input/output error")
        if grows and self._condition.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work_late() -> T:
            result = work()
            if request.abandoned and given_up is not None:
                given_up(result)
            return result

        request = FileRequest(self.client, work_late, answer, new_state=new_state, changes=changes)
        self._waiting[request] = None
        self.server.send(request)
        try:
            async with asyncio.timeout(self._patience_s):
                return await answer
        except TimeoutError:
            raise OSError(
                errno.EIO, "input/output error (the file server does not answer, mounted soft)"
            ) from None
        finally:
            if not request.answered:
                request.abandoned = True
            elif given_up is not None and answer.cancelled() and request.error is None:
                given_up(request.result)
            self._waiting.pop(request, None)
