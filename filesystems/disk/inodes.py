"""The files that the kernel knows of by number, each found again by where it lies behind."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from filesystems.disk.unsynced import Unsynced
from filesystems.fuse.node_table import ROOT, NodeTable


@dataclass(eq=False, slots=True)
class Inode:
    """A file or directory: where it was last found, what is open of it, what is not synced."""

    number: int
    key: tuple[int, int]
    parent: Inode | None
    name: str
    lookups: int = 0
    descriptors: list[int] = field(default_factory=list)
    unsynced: Unsynced | None = None

    @property
    def needed(self) -> bool:
        """Whether it is open, or the disk still owes it something."""
        return self.unsynced is not None or bool(self.descriptors)


def status_of(path: bytes) -> os.stat_result | None:
    """The lstat(2) of a path; None where nothing is. Raises OSError."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


class Inodes(NodeTable[Inode]):
    """Numbers and files (device, inode) both lead to the same."""

    def __init__(self, root: Path) -> None:
        found = root.stat()
        super().__init__(Inode(ROOT, (found.st_dev, found.st_ino), None, "", lookups=1))
        self._root = os.fsencode(root)

    def path(self, inode: Inode) -> bytes:
        """Where it lies behind."""
        names: list[bytes] = []
        at: Inode | None = inode
        while at is not None and at.parent is not None:
            names.append(os.fsencode(at.name))
            at = at.parent
        return b"/".join((self._root, *reversed(names)))

    def reached(self, inode: Inode) -> bytes:
        """A path that leads to it even if it has lost its name, as long as it is open."""
        return b"/proc/self/fd/%d" % inode.descriptors[0] if inode.descriptors else self.path(inode)

    def inside(self, parent: Inode, name: bytes) -> bytes:
        """Where a name in a directory leads to."""
        return self.path(parent) + b"/" + name

    def status(self, inode: Inode) -> os.stat_result:
        """Its stat(2). Raises OSError."""
        if inode.descriptors:  # it may have lost its name
            return os.fstat(inode.descriptors[0])
        return os.lstat(self.path(inode))

    def found(self, parent: Inode, name: bytes, status: os.stat_result) -> Inode:
        """The inode that a name led to, counted as one more thing the kernel knows."""
        key = (status.st_dev, status.st_ino)
        inode = self.counted(key, lambda number: Inode(number, key, parent, os.fsdecode(name)))
        inode.parent, inode.name = parent, os.fsdecode(name)
        return inode

    def moved(self, status: os.stat_result, parent: Inode, name: bytes) -> None:
        """A file has another name now."""
        inode = self.known((status.st_dev, status.st_ino))
        if inode is not None:
            inode.parent, inode.name = parent, os.fsdecode(name)

    def removed(self, status: os.stat_result) -> None:
        """Its last name is gone; a new file that gets its place owes nothing for it."""
        inode = self.known((status.st_dev, status.st_ino))
        if inode is not None and status.st_nlink <= 1:
            self.orphan(inode)
            inode.unsynced = None

    def cut(self, inode: Inode, size: int) -> None:
        """Make a file shorter or longer, durably. Raises OSError."""
        descriptor = os.open(self.reached(inode), os.O_RDWR)
        try:
            if inode.unsynced is not None:
                inode.unsynced.cut(size, os.fstat(descriptor).st_size)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)
