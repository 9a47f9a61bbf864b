"""The files that the kernel knows of, under the numbers it was given for them; a file is found again by where it lies behind."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from environments.disk.unsynced import Unsynced

ROOT: Final = 1


@dataclass(eq=False, slots=True)
class Inode:
    """A file or directory: where it was last found, what is open of it, what the disk does not have yet."""

    number: int
    key: tuple[int, int]
    parent: Inode | None
    name: str
    lookups: int = 0
    descriptors: list[int] = field(default_factory=list)
    unsynced: Unsynced | None = None


class Inodes:
    """Numbers and files (device, inode) both lead to the same; forgotten when the kernel forgets, unless the disk still owes it something."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        found = root.stat()
        first = Inode(ROOT, (found.st_dev, found.st_ino), None, "", lookups=1)
        self._by_number = {ROOT: first}
        self._by_key = {first.key: first}
        self._next = ROOT + 1

    def __getitem__(self, number: int) -> Inode:
        return self._by_number[number]

    def all(self) -> list[Inode]:
        """Every one."""
        return list(self._by_number.values())

    def path(self, inode: Inode) -> bytes:
        """Where it lies behind."""
        names: list[bytes] = []
        at: Inode | None = inode
        while at is not None and at.parent is not None:
            names.append(os.fsencode(at.name))
            at = at.parent
        return b"/".join((self._root, *reversed(names)))

    def inside(self, parent: Inode, name: bytes) -> bytes:
        """Where a name in a directory leads to."""
        return self.path(parent) + b"/" + name

    def found(self, parent: Inode, name: bytes, status: os.stat_result) -> Inode:
        """The inode that a name led to, counted as one more thing the kernel knows."""
        key = (status.st_dev, status.st_ino)
        inode = self._by_key.get(key)
        if inode is None:
            inode = Inode(self._next, key, parent, os.fsdecode(name))
            self._next += 1
            self._by_number[inode.number] = self._by_key[key] = inode
        else:
            inode.parent, inode.name = parent, os.fsdecode(name)
        inode.lookups += 1
        return inode

    def moved(self, status: os.stat_result, parent: Inode, name: bytes) -> None:
        """A file has another name now."""
        inode = self._by_key.get((status.st_dev, status.st_ino))
        if inode is not None:
            inode.parent, inode.name = parent, os.fsdecode(name)

    def removed(self, status: os.stat_result) -> None:
        """Its last name is gone: a new file may get the same place, and owes nothing for the old one."""
        inode = self._by_key.get((status.st_dev, status.st_ino))
        if inode is not None and status.st_nlink <= 1:
            del self._by_key[inode.key]
            inode.unsynced = None

    def forget(self, number: int, lookups: int) -> None:
        """The kernel forgets ``lookups`` findings."""
        inode = self._by_number.get(number)
        if inode is None or number == ROOT:
            return
        inode.lookups -= lookups
        if inode.lookups <= 0 and inode.unsynced is None and not inode.descriptors:
            del self._by_number[number]
            if self._by_key.get(inode.key) is inode:
                del self._by_key[inode.key]
