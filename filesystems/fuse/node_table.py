"""The files that the kernel knows of, each under the number it was given for it.

The kernel counts how often a number was given to it, and says how many of these it forgets; until
it has forgotten all, the number must mean the same file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

ROOT: Final = 1
"""The number of the directory that is mounted."""


class TableNode(Protocol):
    """A file found again by ``key``; ``lookups`` is how often the kernel has its number."""

    number: int
    lookups: int

    @property
    def key(self) -> Hashable:
        """What leads to this file and no other in the file system behind."""
        ...

    @property
    def needed(self) -> bool:
        """Whether it must stay though the kernel has forgotten it."""
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
        """The node of a key, if there is one."""
        return self._by_key.get(key)

    def counted(self, key: Hashable, make: Callable[[int], K]) -> K:
        """The node of a key, made if there is none, counted as one more thing the kernel knows."""
        node = self._by_key.get(key)
        if node is None:
            node = make(next(self._numbers))
            self._by_number[node.number] = self._by_key[key] = node
        node.lookups += 1
        return node

    def orphan(self, node: K) -> None:
        """Its key may stand for another file from now on."""
        del self._by_key[node.key]

    def forget(self, number: int, lookups: int) -> None:
        """The kernel forgets ``lookups`` findings; at none the number may be used no more."""
        node = self._by_number.get(number)
        if node is None or number == ROOT:
            return
        node.lookups -= lookups
        if node.lookups <= 0 and not node.needed:
            del self._by_number[number]
            if self._by_key.get(node.key) is node:
                del self._by_key[node.key]
