"""Bugs of brokers on a shared directory: who holds the lock, and whose data are the store's."""

from __future__ import annotations

from typing import Any, Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant

_PART: Final = "shared-store"
_LIVE: Final = "broker/policies/shared_store/live.py"
_DIRECTORY: Final = "broker/policies/shared_store/directory.py"
_LIVES: Final = "broker/policies/shared_store/lives.py"
_LOCKFILE: Final = "broker/policies/shared_store/lockfile.py"
_CANDIDATE: Final = "broker/policies/shared_store/candidate.py"
_TWO_LIVES: Final = frozenset({"split-brain", "lost", "duplicate"})

_ONE: Final[dict[str, Any]] = {"policy": "shared-store", "pairs": 1, "producers": 3, "consumers": 3}

_POSIX_LOCK: Final = """
class _PosixLock:
    def __init__(self, store, lock):
        self.store, self.lock = store, lock

    async def verify(self):
        again = await self.store.try_lock(PATH, _AT["live"])
        if again is not None:
            self.lock = again
        await self.lock.verify()

    async def write(self, offset, data):
        await self.verify()
        await self.lock.write(offset, data)

    async def release(self):
        await self.lock.release()


"""
"""A lock of the process and not of an open file.

Gone with any descriptor of the file, and asked for again by whoever confirms it.
"""

LOST_STORE: Final = Arena(("nfs-disconnect", "nfs-stall"), {**_ONE, "time_limit_s": 16.0})
"""Faults that silence: of the store, and of brokers; long enough for a lease to run out."""

FAILBACK: Final = Arena(("kill", "disk-slow"), {**_ONE, "rate": 60.0})
"""What ends brokers, and a store that takes its time: places are lost, taken and given back."""

SMALL_SEGMENTS: Final = Arena(
    ("kill", "disk-slow"),
    {
        **_ONE,
        "rate": 30.0,
        "payload_bytes": 512,
        "prefetch": 1,
        "hold_s": 0.1,
        "recovery_bound_s": 8.0,
        "properties": {"*": {"journal.segment-size": 8192}},
    },
)
"""A slow store with many small files, so that a takeover takes long enough to be interrupted."""

FULL: Final = Arena(
    ("disk-full", "disk-error"),
    {**_ONE, "rate": 10.0, "producers": 1, "consumers": 1, "time_limit_s": 6.0, "recovery_bound_s": 8.0},
)
"""A directory that refuses one broker's writes."""

NO_FAILOVER: Final = Arena(
    ("kill", "stop"),
    {
        **_ONE,
        "rate": 10.0,
        "recovery_bound_s": 8.0,
        "properties": {"*": {"ha-policy.shared-store.failover-on-shutdown": False}, "store": {"backups": 2}},
        "time_limit_s": 12.0,
    },
)
"""Two backups, and stops after which nobody shall take over."""

MUTANTS: Final = (
    Mutant(
        "lock-valid-because-it-says-so",
        _PART,
        "ARTEMIS-2421, ARTEMIS-4143",
        "a live asks the lock object whether it is valid, and not the store",
        _TWO_LIVES,
        LOST_STORE,
        (Replacement(_LIVE, "await self.lock.verify()", "await asyncio.sleep(0)"),),
    ),
    Mutant(
        "lock-file-deleted-as-stale",
        _PART,
        "AMQ-4705",
        "a master that starts deletes the lock file it finds, and begins before whoever holds the old "
        "one has looked at it again",
        _TWO_LIVES,
        FAILBACK,
        (
            Replacement(
                _CANDIDATE,
                "        await self._places.prepare()\n",
                "        await self._places.prepare()\n"
                "        if self._master:\n"
                '            await self._places._store.remove("journal/server.lock")\n',
            ),
            Replacement(_DIRECTORY, "await asyncio.sleep(wait_s)", "await asyncio.sleep(0)"),
        ),
    ),
    Mutant(
        "reading-the-state-drops-the-lock",
        _PART,
        "ARTEMIS-2567",
        "the state byte is read without the lock, through a descriptor of its own: closing that drops "
        "all locks of the process, until it confirms them",
        _TWO_LIVES,
        FAILBACK,
        (
            Replacement(
                _LOCKFILE,
                "        return await self._store.try_lock(PATH, _AT[place])\n",
                "        lock = await self._store.try_lock(PATH, _AT[place])\n"
                '        if place != "live":\n'
                "            return lock\n"
                "        self._own = None if lock is None else _PosixLock(self._store, lock)\n"
                "        return self._own\n",
            ),
            Replacement(
                _LOCKFILE,
                '        """Whether somebody has a place."""\n',
                '        """Whether somebody has a place."""\n'
                '        if place == "master":\n'
                "            await self.read()\n"
                "            if self._own is not None:\n"
                "                await self._own.release()\n",
            ),
            Replacement(
                _LOCKFILE,
                "__all__ = [",
                _POSIX_LOCK + "__all__ = [",
            ),
        ),
    ),
    Mutant(
        "half-made-life-counts",
        _PART,
        "ARTEMIS-2297",
        "the data of the store are those of the youngest life, complete or not",
        frozenset({"lost", "duplicate", "not-recovered"}),
        SMALL_SEGMENTS,
        (
            Replacement(
                _LIVES,
                'if await store.exists(f"{directory(life)}/{COMPLETE}"):',
                "if await store.exists(directory(life)):",
            ),
        ),
    ),
    Mutant(
        "former-life-removed-too-early",
        _PART,
        "rabbitmq-server 2749, 2175, 123",
        "who takes over removes what former lives left before its own life is complete",
        frozenset({"lost", "duplicate", "not-recovered"}),
        SMALL_SEGMENTS,
        (
            Replacement(
                _LIVES,
                "            if not before or await _inherit(store, directory(before), directory(life), "
                "certain):\n                return life\n",
                "            if not before or await _inherit(store, directory(before), directory(life), "
                "certain):\n                await remove_older(store, life)\n                return life\n",
            ),
        ),
    ),
    Mutant(
        "number-of-a-half-made-life-used-again",
        _PART,
        "own",
        "a new life has the number after the last complete one, though somebody who was interrupted has "
        "begun it",
        frozenset({"not-recovered", "lost", "stuck"}),
        SMALL_SEGMENTS,
        (Replacement(_LIVES, "life = max([0, *await _numbers(store)]) + 1", "life = before + 1"),),
    ),
    Mutant(
        "lock-given-back-before-the-end",
        _PART,
        "ARTEMIS-1304",
        "a live that gives its place back releases the lock first, and then lets its clients finish",
        _TWO_LIVES,
        FAILBACK,
        (
            Replacement(
                _LIVE,
                "                _log.info("
                '"failback: the master waits for its place, and this broker hands over")\n',
                "                await self._store.leave(self.lock, FAILING_BACK)\n"
                "                await self.lock.release()\n"
                "                await asyncio.sleep(0.2)\n",
            ),
            Replacement(
                _LIVE,
                "await self._store.leave(self.lock, state)",
                "handing_over or await self._store.leave(self.lock, state)",
            ),
        ),
    ),
    Mutant(
        "live-without-a-store-stays",
        _PART,
        "own",
        "a live whose journal has failed goes on holding its lock",
        frozenset({"not-recovered", "unavailable", "stuck"}),
        FULL,
        (Replacement(_LIVE, "journal.on_failed = self._store_failed", "journal.on_failed = lambda _: None"),),
    ),
    Mutant(
        "stopped-live-waits-behind-its-backups",
        _PART,
        "own; rabbitmq-server 14141",
        "a live that was stopped on purpose and comes back waits behind a backup that stays passive for "
        "its sake",
        frozenset({"not-recovered", "stuck"}),
        NO_FAILOVER,
        (
            Replacement(
                _CANDIDATE,
                "self._returns = mark.state == store.PAUSED and mark.name == self._name and not "
                "self._seen_live",
                "self._returns = False",
            ),
        ),
    ),
)
