"""The file system: each FUSE request done to the files of the directory behind, unless the disk is to do otherwise.

Names, sizes and directories are durable at once, as on a file system that journals them; bytes of files are durable when they were synced. Locks are the
kernel's own: this disk belongs to one machine.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH208 - names are bytes here
from __future__ import annotations

import errno
import fnmatch
import os
import random
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from environments.disk.condition import DiskState
from environments.disk.inodes import Inode, Inodes
from environments.disk.unsynced import Unsynced
from environments.fuse import kernel
from environments.fuse.attributes import Attributes
from environments.fuse.connection import Answer, Request
from environments.fuse.kernel import Opcode

_BACKGROUND: Final = 64
_WANTED: Final = kernel.WANTED & ~(kernel.POSIX_LOCKS | kernel.FLOCK_LOCKS)
_RENAME_NOREPLACE: Final = 1


class _Damage(NamedTuple):
    """A bit that was turned over, and the byte it made; or a file that was cut (``bit`` None)."""

    path: Path
    place: int
    bit: int | None
    byte: int


class Passthrough:
    """One disk. ``serve`` raises OSError for what the caller is to see; ``state`` is what is wrong with the disk now."""

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self.state = DiskState(chance=chance)
        self._chance = chance
        self._inodes = Inodes(behind)
        self._behind = behind
        self._listings: dict[int, list[bytes]] = {}
        self._next_listing = 1
        self._damage: list[_Damage] = []
        self._serves: dict[int, Callable[[Request], Awaitable[Answer]]] = {
            opcode: getattr(self, f"_{opcode.name.lower()}")
            for opcode in Opcode
            if hasattr(self, f"_{opcode.name.lower()}")
        }

    async def serve(self, request: Request) -> Answer:
        """Answer one request."""
        serve = self._serves.get(request.opcode)
        if serve is None:
            raise OSError(errno.ENOSYS, "a disk in a test has no such operation")
        return await serve(request)

    # ---- what a test does to it

    def power_lost(self) -> int:
        """Forget what was not synced, of every file; how many bytes that were. Nobody uses the disk meanwhile."""
        lost = 0
        for inode in self._inodes.all():
            if inode.unsynced is None:
                continue
            try:
                descriptor = os.open(self._inodes.path(inode), os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                lost += inode.unsynced.power_lost(descriptor, self._chance)
            finally:
                os.close(descriptor)
            inode.unsynced = None
        return lost

    def corrupt(self, *, files: str = "*", cut: bool = False) -> str | None:
        """Turn over one bit of what files hold, each as likely as any other, or cut the file there; where, or None if there is nothing."""
        sizes = {
            path: path.stat().st_size
            for path in sorted(self._behind.rglob("*"))
            if path.is_file() and not path.is_symlink() and fnmatch.fnmatchcase(self._name(path), files)
        }
        total = sum(sizes.values())
        if not total:
            return None
        place, bit = self._chance.randrange(total), self._chance.randrange(8)
        for path, size in sizes.items():  # noqa: B007 - where it stops is what is looked for
            if place < size:
                break
            place -= size
        with path.open("r+b") as file:
            if cut:
                file.truncate(place)
                self._damage.append(_Damage(path, place, None, 0))
            else:
                file.seek(place)
                byte = file.read(1)[0] ^ (1 << bit)
                file.seek(place)
                file.write(bytes([byte]))
                self._damage.append(_Damage(path, place, bit, byte))
        return self._where(self._damage[-1])

    def damaged(self) -> str:
        """The last damage that a reader would still meet; "" if none."""
        for damage in reversed(self._damage):
            try:
                data = damage.path.read_bytes()
            except FileNotFoundError:
                continue
            there = (
                len(data) == damage.place
                if damage.bit is None
                else data[damage.place : damage.place + 1] == bytes([damage.byte])
            )
            if there:
                return self._where(damage)
        return ""

    def _name(self, path: Path) -> str:
        return path.relative_to(self._behind).as_posix()

    def _where(self, damage: _Damage) -> str:
        if damage.bit is None:
            return f"{self._name(damage.path)} cut to {damage.place} bytes"
        return f"{self._name(damage.path)} byte {damage.place} bit {damage.bit}"

    # ---- names

    def _attributes(self, status: os.stat_result) -> Attributes:
        return Attributes(
            file_id=status.st_ino,
            mode=status.st_mode,
            size=status.st_size,
            links=status.st_nlink,
            uid=status.st_uid,
            gid=status.st_gid,
            space_used=status.st_blocks * 512,
            accessed=divmod(status.st_atime_ns, 1_000_000_000),
            changed=divmod(status.st_ctime_ns, 1_000_000_000),
            modified=divmod(status.st_mtime_ns, 1_000_000_000),
        )

    def _found(self, parent: Inode, name: bytes) -> bytes:
        status = os.lstat(self._inodes.inside(parent, name))
        inode = self._inodes.found(parent, name, status)
        return kernel.entry_out(inode.number, self._attributes(status), 0.0, 0.0)

    async def _init(self, request: Request) -> Answer:
        _, _, read_ahead, offered = kernel.INIT_IN.unpack_from(request.body)
        return kernel.INIT_OUT.pack(
            kernel.MAJOR, kernel.MINOR, read_ahead, _WANTED & offered, _BACKGROUND, _BACKGROUND * 3 // 4,
            kernel.WRITE_BYTES_MAX, 1, kernel.WRITE_BYTES_MAX // kernel.BLOCK_BYTES, 0, 0,
        )  # fmt: skip

    async def _destroy(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        return b""

    async def _forget(self, request: Request) -> Answer:
        self._inodes.forget(request.node, kernel.FORGET_IN.unpack_from(request.body)[0])
        return None

    async def _batch_forget(self, request: Request) -> Answer:
        count, _ = kernel.BATCH_FORGET_IN.unpack_from(request.body)
        for at in range(count):
            offset = kernel.BATCH_FORGET_IN.size + at * kernel.FORGET_ONE.size
            self._inodes.forget(*kernel.FORGET_ONE.unpack_from(request.body, offset))
        return None

    async def _lookup(self, request: Request) -> Answer:
        return self._found(self._inodes[request.node], kernel.names(request.body, 1)[0])

    async def _getattr(self, request: Request) -> Answer:
        return kernel.attr_out(self._attributes(self._stat(self._inodes[request.node])), 0.0)

    def _stat(self, inode: Inode) -> os.stat_result:
        if inode.descriptors:  # it may have lost its name
            return os.fstat(inode.descriptors[0])
        return os.lstat(self._inodes.path(inode))

    async def _setattr(self, request: Request) -> Answer:
        (
            valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _,
        ) = kernel.SETATTR_IN.unpack_from(request.body)  # fmt: skip
        inode = self._inodes[request.node]
        now = self._stat(inode)
        self.state.change(grows=bool(valid & kernel.SET_SIZE) and size > now.st_size)
        path: bytes | int = inode.descriptors[0] if inode.descriptors else self._inodes.path(inode)
        if valid & kernel.SET_SIZE:
            self._cut(inode, size)
        if valid & kernel.SET_MODE:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & (kernel.SET_UID | kernel.SET_GID):
            os.chown(path, uid if valid & kernel.SET_UID else -1, gid if valid & kernel.SET_GID else -1)
        if valid & (kernel.SET_ATIME | kernel.SET_MTIME):
            accessed = atime * 10**9 + atime_ns if valid & kernel.SET_ATIME else now.st_atime_ns
            modified = mtime * 10**9 + mtime_ns if valid & kernel.SET_MTIME else now.st_mtime_ns
            os.utime(path, ns=(accessed, modified))
        return kernel.attr_out(self._attributes(self._stat(inode)), 0.0)

    def _cut(self, inode: Inode, size: int) -> None:
        if inode.unsynced is not None:
            inode.unsynced.cut(size)
        descriptor = os.open(self._inodes.path(inode), os.O_RDWR)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    async def _mkdir(self, request: Request) -> Answer:
        mode, umask = kernel.MKDIR_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.MKDIR_IN.size :], 1)[0]
        await self.state.settle()
        self.state.change(grows=True)
        directory = self._inodes[request.node]
        path = self._inodes.inside(directory, name)
        os.mkdir(path, stat.S_IMODE(mode & ~umask))
        os.chown(path, request.uid, request.gid)
        return self._found(directory, name)

    async def _link(self, request: Request) -> Answer:
        old = self._inodes[kernel.LINK_IN.unpack_from(request.body)[0]]
        name = kernel.names(request.body[kernel.LINK_IN.size :], 1)[0]
        await self.state.settle()
        self.state.change(grows=True)
        directory = self._inodes[request.node]
        os.link(self._inodes.path(old), self._inodes.inside(directory, name))
        return self._found(directory, name)

    async def _unlink(self, request: Request) -> Answer:
        await self.state.settle()
        self.state.change()
        path = self._inodes.inside(self._inodes[request.node], kernel.names(request.body, 1)[0])
        status = os.lstat(path)
        os.unlink(path)
        self._inodes.removed(status)
        return b""

    async def _rmdir(self, request: Request) -> Answer:
        await self.state.settle()
        self.state.change()
        path = self._inodes.inside(self._inodes[request.node], kernel.names(request.body, 1)[0])
        status = os.lstat(path)
        os.rmdir(path)
        self._inodes.removed(status)
        return b""

    async def _rename(self, request: Request) -> Answer:
        target = kernel.RENAME_IN.unpack_from(request.body)[0]
        return await self._move(request, target, request.body[kernel.RENAME_IN.size :], 0)

    async def _rename2(self, request: Request) -> Answer:
        target, flags, _ = kernel.RENAME2_IN.unpack_from(request.body)
        return await self._move(request, target, request.body[kernel.RENAME2_IN.size :], flags)

    async def _move(self, request: Request, target: int, names: bytes, flags: int) -> Answer:
        if flags & ~_RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "a disk in a test does not exchange names")
        await self.state.settle()
        self.state.change()
        old, new = kernel.names(names, 2)
        directory = self._inodes[target]
        before, after = (
            self._inodes.inside(self._inodes[request.node], old),
            self._inodes.inside(directory, new),
        )
        replaced = _lstat(after)
        if replaced is not None and flags & _RENAME_NOREPLACE:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        status = os.lstat(before)
        os.rename(before, after)
        if replaced is not None:
            self._inodes.removed(replaced)
        self._inodes.moved(status, directory, new)
        return b""

    async def _statfs(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        found = os.statvfs(self._behind)
        free = 0 if self.state.full else found.f_bfree
        return kernel.STATFS_OUT.pack(
            found.f_blocks, free, min(free, found.f_bavail), found.f_files, found.f_ffree, found.f_bsize,
            found.f_namemax, found.f_frsize, 0,
        )  # fmt: skip

    # ---- directories

    async def _opendir(self, request: Request) -> Answer:
        number, self._next_listing = self._next_listing, self._next_listing + 1
        self._listings[number] = []
        assert self._inodes[request.node]
        return kernel.OPEN_OUT.pack(number, 0, 0)

    async def _readdir(self, request: Request) -> Answer:
        handle, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        listing = self._listings[handle]
        if offset == 0:  # from the beginning: look again
            listing[:] = self._listed(self._inodes.path(self._inodes[request.node]))
        answer: list[bytes] = []
        for entry in listing[offset:]:
            if len(entry) > size:
                break
            size -= len(entry)
            answer.append(entry)
        return answer or b""

    def _listed(self, path: bytes) -> list[bytes]:
        found = [(b".", os.lstat(path)), (b"..", os.lstat(path + b"/.."))]
        for name in sorted(os.listdir(path)):
            status = _lstat(path + b"/" + name)
            if status is not None:
                found.append((name, status))
        return [
            kernel.dirent(status.st_ino, at, status.st_mode, name)
            for at, (name, status) in enumerate(found, 1)
        ]

    async def _releasedir(self, request: Request) -> Answer:
        self._listings.pop(kernel.RELEASE_IN.unpack_from(request.body)[0], None)
        return b""

    async def _fsyncdir(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        await self.state.settle()
        if self.state.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return b""

    # ---- files

    def _opened(self, inode: Inode, path: bytes, flags: int, mode: int = 0o600) -> bytes:
        descriptor = os.open(path, (flags & ~(os.O_APPEND | os.O_EXCL)) | os.O_NOFOLLOW, mode)
        inode.descriptors.append(descriptor)
        return kernel.OPEN_OUT.pack(descriptor, kernel.DIRECT_IO, 0)

    async def _open(self, request: Request) -> Answer:
        flags, _ = kernel.OPEN_IN.unpack_from(request.body)
        inode = self._inodes[request.node]
        if flags & os.O_TRUNC:
            self.state.change()
            self._cut(inode, 0)
        access = flags & os.O_ACCMODE
        # Who writes must be able to read here: what is overwritten is remembered.
        return self._opened(inode, self._inodes.path(inode), os.O_RDWR if access else os.O_RDONLY)

    async def _create(self, request: Request) -> Answer:
        flags, mode, umask, _ = kernel.CREATE_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.CREATE_IN.size :], 1)[0]
        await self.state.settle()
        self.state.change(grows=True)
        directory = self._inodes[request.node]
        path = self._inodes.inside(directory, name)
        there = _lstat(path) is not None
        if there and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, stat.S_IMODE(mode & ~umask))
        if not there:
            os.fchown(descriptor, request.uid, request.gid)
        entry = self._found(directory, name)
        inode = self._inodes.found(directory, name, os.fstat(descriptor))
        inode.lookups -= 1
        inode.descriptors.append(descriptor)
        if flags & os.O_TRUNC:
            self._cut(inode, 0)
        return entry + kernel.OPEN_OUT.pack(descriptor, kernel.DIRECT_IO, 0)

    async def _read(self, request: Request) -> Answer:
        descriptor, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        return os.pread(descriptor, size, offset)

    async def _write(self, request: Request) -> Answer:
        descriptor, offset, size, _, _, flags, _ = kernel.WRITE_IN.unpack_from(request.body)
        data = request.body[kernel.WRITE_IN.size : kernel.WRITE_IN.size + size]
        self.state.change(grows=True)
        inode = self._inodes[request.node]
        end = os.fstat(descriptor).st_size
        if flags & os.O_APPEND:
            offset = end
        if inode.unsynced is None:
            inode.unsynced = Unsynced(end)
        inode.unsynced.write(descriptor, offset, len(data))
        return kernel.WRITE_OUT.pack(os.pwrite(descriptor, data, offset), 0)

    async def _fsync(self, request: Request) -> Answer:
        descriptor, _, _ = kernel.FSYNC_IN.unpack_from(request.body)
        inode = self._inodes[request.node]
        size = os.fstat(descriptor).st_size
        begun = 0 if inode.unsynced is None else len(inode.unsynced.overwritten)
        await self.state.settle()
        if self.state.sync_fails:
            if inode.unsynced is not None:
                inode.unsynced.drop(size)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if inode.unsynced is not None:
            inode.unsynced.kept(size, begun)
        return b""

    async def _flush(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        return b""  # closing a file syncs nothing

    async def _release(self, request: Request) -> Answer:
        descriptor, _, _, _ = kernel.RELEASE_IN.unpack_from(request.body)
        inode = self._inodes[request.node]
        inode.descriptors.remove(descriptor)
        os.close(descriptor)
        return b""


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
