"""The concurrent tests.

Two copies of this program on two hosts (or on one, which shows less) work on the same files in
turn.

They take turns by messages, so that each test is about one promise: what was synced is seen,
attributes are fresh, a lock is one lock. Only then do both write at the same time, under the lock,
and the file must be the same as if they had taken turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from broker.filesystem_check.basic import outcome
from broker.filesystem_check.calls import Calls
from broker.filesystem_check.meeting import Meeting, MeetingMessage
from broker.filesystem_check.results import CheckResult, FailedError

_ROUNDS: Final = 4
_RECORDS: Final = 25
_RECORD_BYTES: Final = 16
_SLOW_S: Final = 5.0
_PATIENCE_S: Final = 300.0
_AGAIN_S: Final = 0.002


class ConcurrentCheck:
    """The check in one of the two copies.

    Both copies come to the same results even for what only one of them can see, because each tells
    the other what it found.

    ``patience_s`` bounds each wait for the other copy; ``name`` tells copies apart (this host and
    process, if none is given).
    """

    def __init__(
        self,
        directory: Path,
        calls: Calls,
        say: Callable[[str], None],
        *,
        patience_s: float = _PATIENCE_S,
        name: str = "",
    ) -> None:
        self._calls = calls
        self._say = say
        self._meeting = Meeting(directory, calls, say, patience_s, name)
        self._patience_s = patience_s
        self._early: MeetingMessage | None = None
        self._round_trips: list[float] = []
        self._stale: list[str] = []
        self._unseen: list[str] = []

    async def run(self) -> list[CheckResult]:
        """Make all tests and return their results; the files that were made are removed."""
        results = [await outcome("meet", self._meeting.join)]
        if not results[0].passed:
            self._meeting.leave()
            return results
        self._say("Writing to test file. This will normally complete within about 60 seconds.")
        try:
            for name, test in (
                ("same-owner", self._same_owner),
                ("sync-is-seen", self._turns),
                ("fresh-attributes", self._fresh_attributes),
                ("fresh-names", self._fresh_names),
                ("lock-denied-to-the-other-host", self._lock_denied),
                ("lock-passes-to-the-other-host", self._lock_passes),
            ):
                results.append(await self._agreed(name, test))
            if all(result.passed for result in results[-2:]):  # otherwise there is no lock to write under
                results.append(await self._agreed("concurrent-writes", self._concurrent_writes))
            # The first copy removes the messages, so the second must have read its last one.
            if self._meeting.first:
                with contextlib.suppress(FailedError):
                    await self._meeting.receive()
            else:
                self._meeting.send("goodbye")
        finally:
            self._meeting.leave()
        return results

    async def _agreed(self, name: str, test: Callable[[], Awaitable[None]]) -> CheckResult:
        """Make a test, which has failed if either copy saw it fail."""
        mine = await outcome(name, test)
        theirs = mine

        async def exchange() -> None:
            nonlocal theirs
            self._meeting.send(f"found {mine.problem}")
            answer = self._early or await self._meeting.receive()
            while not answer.did.startswith("found "):  # the other went on in a test that failed here
                answer = await self._meeting.receive()
            theirs = CheckResult(name, answer.did.removeprefix("found "))

        stopped, exchanged = self._early is not None, await outcome(name, exchange)
        self._early = None
        if not mine.passed and not (stopped and not theirs.passed):
            return mine
        if not exchanged.passed:
            return exchanged
        return theirs if theirs.passed else CheckResult(name, f"seen by the other copy: {theirs.problem}")

    async def _same_owner(self) -> None:
        self._meeting.send("here")
        other = await self._expect("here")
        seen = self._meeting.owner_seen()
        if seen != (other.uid, other.gid):
            raise FailedError(
                f"the other copy runs as user {other.uid} and group {other.gid}, but its files belong "
                f"to {seen[0]} and {seen[1]} here"
            )

    async def _turns(self) -> None:
        """Append and sync in turn; look at what the other did: attributes, then content."""
        path = self._meeting.shared("turns")
        loop = asyncio.get_running_loop()
        with self._calls.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as descriptor:
            self._calls.stat(path)  # from now on there is something that could be stale
            self._meeting.send("opened")
            await self._expect("opened")
            size = 0
            for turn in range(2 * _ROUNDS):
                # First one copy, then the other, not in turn: writing may refresh a host's cache.
                if (turn < _ROUNDS) is self._meeting.first:
                    self._calls.write(descriptor, bytes([65 + turn]) * (turn + 1))
                    self._calls.fsync(descriptor)
                    size += turn + 1
                    sent = loop.time()
                    self._meeting.send("wrote", size)
                    await self._expect("looked")
                    self._round_trips.append(loop.time() - sent)
                else:
                    size = (await self._expect("wrote")).number
                    self._look(path, size)
                    self._meeting.send("looked")
        if self._unseen:
            raise FailedError(self._unseen[0])

    def _look(self, path: Path, size: int) -> None:
        stated = self._calls.stat(path).st_size
        content = len(self._calls.read(path))
        if content < size:
            self._unseen.append(f"the other copy synced {size} bytes, but here {content} of them can be read")
        elif stated != size:
            self._stale.append(
                f"the other copy made the file {size} bytes long, but its attributes say {stated} here"
            )

    async def _fresh_attributes(self) -> None:
        if self._stale:
            raise FailedError(self._stale[0])

    async def _fresh_names(self) -> None:
        # The shortest counts: a loaded machine is slow now and then, a cache is slow every time.
        shortest = min(self._round_trips, default=0.0)
        if shortest > _SLOW_S:
            raise FailedError(
                f"a new file and its answer took {shortest:.1f} s or more every time: names are cached"
            )

    async def _lock_denied(self) -> None:
        with self._calls.opened(self._meeting.shared("lock"), os.O_RDWR | os.O_CREAT) as descriptor:
            for turn in range(2):
                if (turn == 0) is self._meeting.first:
                    if not self._calls.lock(descriptor, fcntl.LOCK_EX):
                        raise FailedError("a lock that nobody holds was denied")
                    self._meeting.send("locked")
                    await self._expect("tried")
                    self._calls.lock(descriptor, fcntl.LOCK_UN)
                    self._meeting.send("unlocked")
                else:
                    await self._expect("locked")
                    taken = self._calls.lock(descriptor, fcntl.LOCK_EX)
                    self._meeting.send("tried")
                    await self._expect("unlocked")
                    if taken:
                        raise FailedError("both copies held the same lock at the same time")

    async def _lock_passes(self) -> None:
        with self._calls.opened(self._meeting.shared("lock"), os.O_RDWR | os.O_CREAT) as descriptor:
            for turn in range(2):
                if (turn == 0) is self._meeting.first:
                    self._calls.lock(descriptor, fcntl.LOCK_EX)
                    self._calls.lock(descriptor, fcntl.LOCK_UN)
                    self._meeting.send("unlocked")
                    await self._expect("done")
                else:
                    await self._expect("unlocked")
                    taken = self._calls.lock(descriptor, fcntl.LOCK_EX)
                    self._calls.lock(descriptor, fcntl.LOCK_UN)
                    self._meeting.send("done")
                    if not taken:
                        raise FailedError("a lock that the other copy has given back was denied")

    async def _concurrent_writes(self) -> None:
        """Append numbered records under the lock with the other copy; each must follow the last."""
        path, lock = self._meeting.shared("records"), self._meeting.shared("lock")
        problem = ""
        with (
            self._calls.opened(lock, os.O_RDWR | os.O_CREAT) as locked,
            self._calls.opened(path, os.O_RDWR | os.O_CREAT) as descriptor,
        ):
            for _ in range(_RECORDS):
                await self._wait_for(locked)
                try:
                    problem = problem or await self._add_record(path, descriptor)
                finally:
                    self._calls.lock(locked, fcntl.LOCK_UN)
                await asyncio.sleep(0)
            self._meeting.send("wrote")
            await self._expect("wrote")
            problem = problem or self._records_wrong(path)
        if problem:
            raise FailedError(problem)

    async def _wait_for(self, descriptor: int) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                while not self._calls.lock(descriptor, fcntl.LOCK_EX):  # noqa: ASYNC110 - only the file system knows
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise FailedError(
                f"a lock that both take in turn was not to be had for {self._patience_s:.0f} s"
            ) from None

    async def _add_record(self, path: Path, descriptor: int) -> str:
        problem = self._records_wrong(path, whole=False)
        size = self._calls.fstat(descriptor).st_size
        await asyncio.sleep(_AGAIN_S)  # time for the other copy to do wrong, if the lock lets it
        os.lseek(descriptor, size, os.SEEK_SET)
        self._calls.write(descriptor, b"%015d\n" % (size // _RECORD_BYTES))
        self._calls.fsync(descriptor)
        return problem

    def _records_wrong(self, path: Path, *, whole: bool = True) -> str:
        records = self._calls.read(path).split(b"\n")[:-1]
        for number, record in enumerate(records):
            if record != b"%015d" % number:
                return f"record {number} of what both wrote under the lock is {record!r}"
        if whole and len(records) != 2 * _RECORDS:
            return f"{2 * _RECORDS} records were written under the lock, but {len(records)} are there"
        return ""

    async def _expect(self, did: str) -> MeetingMessage:
        answer = await self._meeting.receive()
        if answer.did.startswith("found "):
            self._early = answer
            raise FailedError("the other copy stopped")
        if answer.did != did:
            raise FailedError(
                f"the other copy said {answer.did!r} where {did!r} was due: is it of the same version?"
            )
        return answer
