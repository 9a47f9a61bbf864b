"""A disk in memory that forgets what was not synced: for tests, and for the simulation.

Why: the promise "on disk" can only be tested on a disk that loses everything else. ``crash`` loses
or tears unsynced writes as disks do (any of the last sectors may be missing, not only the last
ones). ``fail_after`` makes the power go out within any chosen operation. It uses no threads, no
real time, and no random numbers but the caller's.
"""

# ruff: noqa: D102 - the protocols in volume.py say what each method promises
from __future__ import annotations

import asyncio
import builtins
import errno
import fnmatch
import random
from collections.abc import Mapping

from broker.storage.memory_content import Content
from broker.storage.memory_faults import SOUND, SYNC, WRITE, DiskFault, Flip, Truncation
from broker.storage.volume import Space, VolumeFile, VolumeLock, VolumeLockedError

_POLL_S = 0.01
PROBE_S = 0.3
"""The time that a probe waits before it calls the disk stalled."""


class VolumeCrashedError(OSError):
    """The disk crashed under its user."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EIO, "the volume has crashed", path)


class MemoryVolume:
    """A volume whose files are in a dictionary.

    A sync takes ``latency_s`` on the loop's clock; ``chance`` varies it, up to twice that.

    ``operations`` counts everything that changes the disk. When it has reached ``fail_after``, the
    next change does not happen, and nothing works any more until ``crash``.
    """

    def __init__(
        self,
        image: Mapping[str, bytes] | None = None,
        *,
        latency_s: float = 0.0,
        chance: random.Random | None = None,
    ) -> None:
        self.latency_s = latency_s
        self.capacity: int | None = None
        """The bytes that the disk has room for; None: no limit."""
        self.fault: DiskFault = SOUND
        """The present fault of the disk; assign another to break or mend it."""
        self.damage: list[Flip | Truncation] = []
        self.chance = chance
        self.operations = 0
        self.fail_after: int | None = None
        self._files: dict[str, Content] = {}
        self._directories: set[str] = set()
        self._locks: dict[str, MemoryLock] = {}
        self._generation = 0
        self._dead = False
        self.restore(image or {})

    # ---- what a test does to it

    def image(self) -> dict[str, bytes]:
        """Return every file as a process that opened it now would read it."""
        return {path: bytes(content.data) for path, content in sorted(self._files.items())}

    def crash(self, chance: random.Random | None = None) -> None:
        """Stop the machine, with all files and locks; what was not synced is lost or torn."""
        self._open_again()
        self.fail_after = None
        for path in sorted(self._files):
            self._files[path].power_lost(chance)

    def process_ended(self, chance: random.Random) -> None:
        """Close the files and locks of the process; lose what it had not given to the system."""
        self._open_again()
        for path in sorted(self._files):
            self._files[path].process_ended(chance)

    def destroy(self) -> None:
        """Remove everything from the disk."""
        self._open_again()
        self._files.clear()
        self._directories.clear()
        self.damage.clear()

    def restore(self, image: Mapping[str, bytes]) -> None:
        """Replace everything on the disk by the files of an image."""
        self.destroy()
        for path, data in image.items():
            self._files[path] = Content(data)
            self._make_parents(path)

    def corrupt(
        self, chance: random.Random, *, files: str = "*", cut: bool = False
    ) -> Flip | Truncation | None:
        """Invert one bit of what was synced, each as likely as any other, or cut a file there.

        Returns the damage, or None if there is nothing to damage.

        ``files`` are the files that may be hit: a pattern of names as shells have it, "*.lock".
        """
        sizes = {
            path: min(content.synced, len(content.data))
            for path, content in sorted(self._files.items())
            if fnmatch.fnmatchcase(path, files)
        }
        total = sum(sizes.values())
        if not total:
            return None
        place = chance.randrange(total)
        bit = 0 if cut else chance.randrange(8)
        for path, size in sizes.items():  # noqa: B007 - where it stops is what is looked for
            if place < size:
                break
            place -= size
        data = self._files[path].data
        if cut:
            self._files[path].cut(place)
            self.damage.append(Truncation(path, place))
        else:
            data[place] ^= 1 << bit
            self.damage.append(Flip(path, place, bit, data[place]))
        return self.damage[-1]

    def damaged(self) -> list[Flip | Truncation]:
        """Return the damage that a reader would still meet."""
        return [
            one for one in self.damage if one.path in self._files and one.there(self._files[one.path].data)
        ]

    async def probe(self) -> str:
        """Write and sync: "sound", "slow 20 ms", "stalled", "full", "failing write"."""
        loop = asyncio.get_running_loop()
        content, began_s, failed = Content(), loop.time(), WRITE
        try:
            async with asyncio.timeout(PROBE_S):
                self.write("probe", content, self._generation, b"?")
                failed = SYNC
                await self.sync("probe", content, self._generation)
        except TimeoutError:
            return "stalled"
        except OSError as error:
            return "full" if error.errno == errno.ENOSPC else f"failing {failed}"
        took_s = loop.time() - began_s
        return f"slow {took_s * 1000:.0f} ms" if took_s > 2 * self.latency_s + 0.001 else "sound"

    def _open_again(self) -> None:
        self._generation += 1
        self._dead = False
        self._locks.clear()

    # ---- Volume

    async def list(self, directory: str) -> builtins.list[str]:
        await self._turn(directory)
        prefix = directory.rstrip("/") + "/" if directory not in ("", ".") else ""
        names = [
            path[len(prefix) :] for path in (*self._files, *self._directories) if path.startswith(prefix)
        ]
        return sorted({name.partition("/")[0] for name in names if name})

    async def open(self, path: str) -> VolumeFile:
        await self._turn(path)
        if path not in self._files:
            await self._settle(path)
            self._change(path, grows=True)
            self._require_parent(path)
            self._files.setdefault(path, Content())
        return MemoryFile(self, path, self._files[path], self._generation)

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        await self._turn(path)
        data = self._file(path).data
        return bytes(data[offset:] if size is None else data[offset : offset + size])

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._settle(path)
        self._change(path, grows=True)
        self._require_parent(path)
        beside = self._files[path + ".tmp"] = Content()
        beside.data += data
        await self._settle(path)
        self._change(path)
        if SYNC in self.fault.failing:
            raise OSError(errno.EIO, "input/output error", path)
        beside.synced = len(beside.data)
        self._files[path] = self._files.pop(path + ".tmp")

    async def remove(self, path: str) -> None:
        await self._settle(path)
        if path in self._files:
            self._change(path)
            del self._files[path]

    async def remove_tree(self, path: str) -> None:
        await self._settle(path)
        for inside in sorted(self._files):
            if inside.startswith(path + "/"):
                self._change(inside)
                del self._files[inside]
        self._directories = {
            inside for inside in self._directories if inside != path and not inside.startswith(path + "/")
        }

    async def rename(self, old: str, new: str) -> None:
        await self._settle(old)
        self._change(old)
        self._require_parent(new)
        if old in self._files:
            self._files[new] = self._files.pop(old)
            return
        if old not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        if new in self._directories or new in self._files:
            raise FileExistsError(errno.EEXIST, "a directory is never renamed over another", new)
        moved = {path: new + path[len(old) :] for path in self._files if path.startswith(old + "/")}
        for path, target in moved.items():
            self._files[target] = self._files.pop(path)
        self._directories = {
            new + path[len(old) :] if path == old or path.startswith(old + "/") else path
            for path in self._directories
        }

    async def mkdir(self, path: str) -> None:
        await self._settle(path)
        if path not in self._directories:
            self._change(path, grows=True)
            self._make_parents(path + "/x")

    async def size(self, path: str) -> int:
        await self._turn(path)
        return len(self._file(path).data)

    async def exists(self, path: str) -> bool:
        await self._turn(path)
        return path in self._files or path in self._directories

    async def space(self) -> Space | None:
        if self.capacity is None:
            return None
        return Space(self.capacity, max(0, self.capacity - self._used()))

    async def truncate(self, path: str, size: int) -> None:
        await self._settle(path)
        self._change(path)
        self._file(path).cut(size)

    async def lock(self, path: str) -> VolumeLock:
        await self._turn(path)
        self._require_parent(path)
        if path in self._locks:
            raise VolumeLockedError(errno.EWOULDBLOCK, "locked by another process", path)
        lock = self._locks[path] = MemoryLock(self, path)
        return lock

    # ---- for its files and locks

    def live(self, path: str, generation: int) -> None:
        """Raise VolumeCrashedError for a handle from before a crash, or while the disk is down."""
        if self._dead or generation != self._generation:
            raise VolumeCrashedError(path)

    def _change(self, path: str, *, grows: bool = False) -> None:
        self._survive(path)
        if grows and self.capacity is not None and self._used() >= self.capacity:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if self.fault is not SOUND:
            if WRITE in self.fault.failing:
                raise OSError(errno.EIO, "input/output error", path)
            if grows and self.fault.full:
                raise OSError(errno.ENOSPC, "no space left on device", path)
        self.operations += 1

    def _used(self) -> int:
        return sum(len(content.data) for content in self._files.values())

    def write(self, path: str, content: Content, generation: int, data: bytes) -> None:
        self.live(path, generation)
        self._change(path, grows=True)
        content.data += data

    async def sync(self, path: str, content: Content, generation: int) -> None:
        self.live(path, generation)
        size = len(content.data)
        latency_s = self.latency_s
        await asyncio.sleep(latency_s if self.chance is None else latency_s * self.chance.uniform(0.5, 2.0))
        if self.fault is not SOUND:
            await self._suffer()
        self.live(path, generation)
        if SYNC in self.fault.failing:
            content.drop(size)
            raise OSError(errno.EIO, "input/output error", path)
        self._survive(path)
        self.operations += 1
        content.keep(size)

    def _survive(self, path: str) -> None:
        if self.fail_after is not None and self.operations >= self.fail_after:
            self._dead = True
        if self._dead:
            raise VolumeCrashedError(path)

    def unlock(self, lock: MemoryLock) -> None:
        if self._locks.get(lock.path) is lock:
            del self._locks[lock.path]

    async def _turn(self, path: str) -> None:
        generation = self._generation
        await asyncio.sleep(0)
        self.live(path, generation)

    async def _settle(self, path: str) -> None:
        """Take a turn of the loop, and the time that the disk's condition costs."""
        await self._turn(path)
        if self.fault is not SOUND:
            generation = self._generation
            await self._suffer()
            self.live(path, generation)

    async def _suffer(self) -> None:
        """Wait as long as the disk takes now."""
        fault = self.fault
        extra_s = 0.0 if self.chance is None else self.chance.random() * fault.jitter_s
        if fault.delay_s or extra_s:
            await asyncio.sleep(fault.delay_s + extra_s)
        while self.fault.stalled:  # noqa: ASYNC110 - another loop than the one that waits may mend it
            await asyncio.sleep(_POLL_S)

    def _file(self, path: str) -> Content:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _make_parents(self, path: str) -> None:
        while (path := path.rpartition("/")[0]) and path not in self._directories:
            self._directories.add(path)

    def _require_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)


class MemoryFile:
    """An open file of a MemoryVolume; a rename does not disturb it, a crash does."""

    __slots__ = ("_content", "_generation", "_path", "_volume")

    def __init__(self, volume: MemoryVolume, path: str, content: Content, generation: int) -> None:
        self._volume = volume
        self._path = path
        self._content = content
        self._generation = generation

    def write(self, data: bytes) -> None:
        self._volume.write(self._path, self._content, self._generation, data)

    async def sync(self) -> None:
        await self._volume.sync(self._path, self._content, self._generation)

    async def close(self) -> None:
        await asyncio.sleep(0)


class MemoryLock:
    """A lock of a MemoryVolume; a crash releases it."""

    __slots__ = ("_volume", "path")

    def __init__(self, volume: MemoryVolume, path: str) -> None:
        self._volume = volume
        self.path = path

    async def release(self) -> None:
        self._volume.unlock(self)
