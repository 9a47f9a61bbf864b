"""The table of the files that the kernel knows, each by the number that the kernel was given.

The kernel counts how often a number was given to it, and says how many of these lookups it forgets.
Until it has forgotten all, the number must mean the same file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

ROOT: Final = 1
"""The number of the directory that is mounted."""


class TableNode(Protocol):
    """A file, identified by ``key``; ``lookups`` is how often the kernel was given its number."""

    number: int
    lookups: int

    @property
    def key(self) -> Hashable:
        """The key of this file, and of no other, in the file system behind."""
        ...

    @property
    def needed(self) -> bool:
        """True if the node must be kept though the kernel has forgotten it."""
        ...


K = TypeVar("K", bound=TableNode)


class NodeTable(Generic[K]):
    """Nodes by number and by key, as long as the kernel remembers them or they are needed."""

    def __init__(self, root: K) -> None:
        self._by_number: dict[int, K] = {ROOT: root}
        self._by_key: dict[Hashable, K] = {root.key: root}
        self._numbers = itertools.count(ROOT + 1)

    def __getitem__(self, number: int) -> K:
        return self._by_number[number]

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._by_number.values()))

    def known(self, key: Hashable) -> K | None:
        """Return the node of a key; None if there is none."""
        return self._by_key.get(key)

    def counted(self, key: Hashable, make: Callable[[int], K]) -> K:
        """Return the node of a key, made if there is none, and count one more lookup."""
        node = self._by_key.get(key)
        if node is None:
            node = make(next(self._numbers))
            self._by_number[node.number] = self._by_key[key] = node
        node.lookups += 1
        return node

    def orphan(self, node: K) -> None:
        """Drop the key of a node: it may stand for another file from now on."""
        del self._by_key[node.key]

    def forget(self, number: int, lookups: int) -> None:
        """Subtract the lookups that the kernel forgets; at 0, drop a node that is not needed."""
        node = self._by_number.get(number)
        if node is None or number == ROOT:
            return
        node.lookups -= lookups
        if node.lookups <= 0 and not node.needed:
            del self._by_number[number]
            if self._by_key.get(node.key) is node:
                del self._by_key[node.key]
