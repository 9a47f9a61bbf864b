"""A feed: a value that clients may watch, under a destination of its own.

Such as the cluster's topology.

Why no queue: only the latest value counts, everybody gets it, and nothing is kept when a broker
ends.
"""

from __future__ import annotations

from collections.abc import Callable

Watcher = Callable[[bytes], None]


class WatchedValue:
    """The latest value, which a new watcher gets at once if there is one, and who watches it."""

    def __init__(self, content_type: str = "application/json") -> None:
        self.content_type = content_type
        self.value: bytes | None = None
        self._watchers: dict[int, Watcher] = {}
        self._count = 0

    def publish(self, value: bytes) -> None:
        """Tell every watcher; the same value again is not news."""
        if value != self.value:
            self.value = value
            for watcher in list(self._watchers.values()):
                watcher(value)

    def watch(self, watcher: Watcher) -> int:
        """Begin to watch; the number ends it."""
        self._count += 1
        self._watchers[self._count] = watcher
        if self.value is not None:
            watcher(self.value)
        return self._count

    def unwatch(self, number: int) -> None:
        """End a watch."""
        self._watchers.pop(number, None)
