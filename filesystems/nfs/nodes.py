"""The files that the kernel knows: one node, with the kernel's number, for each handle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from filesystems.fuse.node_table import ROOT, NodeTable
from filesystems.nfs.files import FileState


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """The bytes of a write that a server has not promised to keep.

    ``verifier`` names the life of the server that took them.
    """

    offset: int
    data: bytes
    verifier: bytes


@dataclass(eq=False)
class NfsNode:
    """A file or directory, with its latest directory and name: NFSv4.0 opens by name only."""

    number: int
    handle: bytes
    parent: NfsNode | None
    name: bytes
    lookups: int = 0
    state: FileState | None = None
    hidden: bool = False
    """True if it was removed while open here: it is renamed, and removed with the last close."""
    unsynced: list[Uncommitted] = field(default_factory=list)
    """The writes that the server took without a promise to keep them.

    They are sent again if the server was restarted before a COMMIT.
    """
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The lock that is held during a COMMIT.

    A second fsync must not return before the first, which is still sending its bytes.
    """

    @property
    def key(self) -> bytes:
        """The server's handle of the node."""
        return self.handle

    @property
    def needed(self) -> bool:
        """True if the file is open."""
        return self.state is not None

    def cut(self, size: int) -> None:
        """Cut the unsynced bytes to the file's new size: what it lost must not be sent again."""
        self.unsynced = [
            replace(entry, data=entry.data[: size - entry.offset])
            for entry in self.unsynced
            if entry.offset < size
        ]


class NfsNodes(NodeTable[NfsNode]):
    """The table of nodes, by number and by handle."""

    def __init__(self, root: bytes) -> None:
        super().__init__(NfsNode(ROOT, root, None, b"", lookups=1))

    def found(self, handle: bytes, parent: NfsNode, name: bytes) -> NfsNode:
        """Return the node of a handle that a name led to, and count one more lookup."""
        node = self.counted(handle, lambda number: NfsNode(number, handle, parent, name))
        if node.number != ROOT and not node.hidden:
            node.parent, node.name = parent, name
        return node

    def named(self, parent: NfsNode, name: bytes) -> NfsNode | None:
        """Return the node that was last found under a name; None if the kernel knows none."""
        return next((node for node in self if node.parent is parent and node.name == name), None)
