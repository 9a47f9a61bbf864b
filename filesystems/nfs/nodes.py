"""The files that the kernel knows of: one node, with the kernel's number, for each handle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from filesystems.fuse.node_table import ROOT, NodeTable
from filesystems.nfs.files import FileState


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Bytes that a server had in its memory; ``verifier`` names the life of the server that did."""

    offset: int
    data: bytes
    verifier: bytes


@dataclass(eq=False)
class NfsNode:
    """A file or directory, with where it was last found: NFSv4.0 opens by name only."""

    number: int
    handle: bytes
    parent: NfsNode | None
    name: bytes
    lookups: int = 0
    state: FileState | None = None
    hidden: bool = False
    """Removed while open here: renamed on the server, to be removed with the last close."""
    unsynced: list[Uncommitted] = field(default_factory=list)
    """What the server took but did not promise to keep, sent again if it was restarted before a
    COMMIT.
    """
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a COMMIT.

    A second fsync must not return before the first, which has its bytes under way.
    """

    @property
    def key(self) -> bytes:
        """The server's name for it."""
        return self.handle

    @property
    def needed(self) -> bool:
        """Whether it is open."""
        return self.state is not None

    def cut(self, size: int) -> None:
        """It has this size now: what it lost must not come back with what is sent again."""
        self.unsynced = [
            replace(entry, data=entry.data[: size - entry.offset])
            for entry in self.unsynced
            if entry.offset < size
        ]


class NfsNodes(NodeTable[NfsNode]):
    """Numbers and handles both lead to the node."""

    def __init__(self, root: bytes) -> None:
        super().__init__(NfsNode(ROOT, root, None, b"", lookups=1))

    def found(self, handle: bytes, parent: NfsNode, name: bytes) -> NfsNode:
        """The node of a handle that a name led to, counted as one more thing the kernel knows."""
        node = self.counted(handle, lambda number: NfsNode(number, handle, parent, name))
        if node.number != ROOT and not node.hidden:
            node.parent, node.name = parent, name
        return node

    def named(self, parent: NfsNode, name: bytes) -> NfsNode | None:
        """The node that was last found under this name, if the kernel knows one."""
        return next((node for node in self if node.parent is parent and node.name == name), None)
