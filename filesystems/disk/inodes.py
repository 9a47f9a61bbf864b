"""The files that the kernel knows by number, each with its path in the directory behind."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from filesystems.disk.unsynced import Unsynced
from filesystems.fuse.node_table import ROOT, NodeTable


@dataclass(eq=False, slots=True)
class Inode:
    """A file or directory: its latest name, its open descriptors, and its unsynced data."""

    number: int
    key: tuple[int, int]
    parent: Inode | None
    name: str
    lookups: int = 0
    descriptors: list[int] = field(default_factory=list)
    unsynced: Unsynced | None = None

    @property
    def needed(self) -> bool:
        """True if the file is open, or has data that are not synced."""
        return self.unsynced is not None or bool(self.descriptors)


def status_of(path: bytes) -> os.stat_result | None:
    """Return the lstat(2) of a path; None where nothing is. Raises OSError."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


class Inodes(NodeTable[Inode]):
    """The table of inodes, by number and by file (device, inode)."""

    def __init__(self, root: Path) -> None:
        found = root.stat()
        super().__init__(Inode(ROOT, (found.st_dev, found.st_ino), None, "", lookups=1))
        self._root = os.fsencode(root)

    def path(self, inode: Inode) -> bytes:
        """Return the path of a file in the directory behind."""
        names: list[bytes] = []
        at: Inode | None = inode
        while at is not None and at.parent is not None:
            names.append(os.fsencode(at.name))
            at = at.parent
        return b"/".join((self._root, *reversed(names)))

    def reached(self, inode: Inode) -> bytes:
        """Return a path that leads to a file; if the file is open, even without its name."""
        return b"/proc/self/fd/%d" % inode.descriptors[0] if inode.descriptors else self.path(inode)

    def inside(self, parent: Inode, name: bytes) -> bytes:
        """Return the path of a name in a directory."""
        return self.path(parent) + b"/" + name

    def status(self, inode: Inode) -> os.stat_result:
        """Return the stat(2) of a file. Raises OSError."""
        if inode.descriptors:  # the file may have lost its name
            return os.fstat(inode.descriptors[0])
        return os.lstat(self.path(inode))

    def found(self, parent: Inode, name: bytes, status: os.stat_result) -> Inode:
        """Return the inode that a name led to, and count one more lookup of the kernel."""
        key = (status.st_dev, status.st_ino)
        inode = self.counted(key, lambda number: Inode(number, key, parent, os.fsdecode(name)))
        inode.parent, inode.name = parent, os.fsdecode(name)
        return inode

    def moved(self, status: os.stat_result, parent: Inode, name: bytes) -> None:
        """Record the new name of a file."""
        inode = self.known((status.st_dev, status.st_ino))
        if inode is not None:
            inode.parent, inode.name = parent, os.fsdecode(name)

    def removed(self, status: os.stat_result) -> None:
        """Record that a file has lost a name; with the last name it loses its unsynced data.

        A new file may get the same inode, and must not get that data.
        """
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
