"""The files that the kernel knows of: one node for each file handle, under the number that the kernel was given for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from environments.nfs.files import FileState

ROOT: Final = 1


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Bytes that a server had in its memory; ``verifier`` names the life of the server that did."""

    offset: int
    data: bytes
    verifier: bytes


@dataclass(eq=False)
class Node:
    """One file or directory. ``parent`` and ``name`` are where it was last found: NFSv4.0 opens by name only."""

    number: int
    handle: bytes
    parent: Node | None
    name: bytes
    lookups: int = 0
    state: FileState | None = None
    hidden: bool = False
    """Removed while open here: renamed on the server, to be removed with the last close."""
    unsynced: list[Unsynced] = field(default_factory=list)
    """What the server took but did not promise to keep, sent again if it was restarted before a COMMIT."""
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a COMMIT: a second fsync must not return before the first, which has its bytes under way."""


class Nodes:
    """Numbers and handles both lead to the node. A node lives for as long as the kernel remembers it."""

    def __init__(self, root: bytes) -> None:
        first = Node(ROOT, root, None, b"", lookups=1)
        self._by_number = {ROOT: first}
        self._by_handle = {root: first}
        self._next = ROOT + 1

    def __getitem__(self, number: int) -> Node:
        return self._by_number[number]

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._by_number.values()))

    def found(self, handle: bytes, parent: Node, name: bytes) -> Node:
        """The node of a handle that a name led to, counted as one more thing the kernel knows."""
        node = self._by_handle.get(handle)
        if node is None:
            node = Node(self._next, handle, parent, name)
            self._next += 1
            self._by_number[node.number] = self._by_handle[handle] = node
        elif node.number != ROOT and not node.hidden:
            node.parent, node.name = parent, name
        node.lookups += 1
        return node

    def named(self, parent: Node, name: bytes) -> Node | None:
        """The node that was last found under this name, if the kernel knows one."""
        return next(
            (node for node in self._by_number.values() if node.parent is parent and node.name == name), None
        )

    def forget(self, number: int, lookups: int) -> None:
        """The kernel forgets ``lookups`` findings of a node; at none the number may be used no more."""
        node = self._by_number.get(number)
        if node is None or number == ROOT:
            return
        node.lookups -= lookups
        if node.lookups <= 0 and node.state is None:
            del self._by_number[number]
            if self._by_handle.get(node.handle) is node:
                del self._by_handle[node.handle]
