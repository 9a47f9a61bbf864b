"""Logical processes, under whose numbers operations are invoked.

Why a pool: a process has one operation at a time, and a process whose operation ended in ``info``
invokes nothing any more. A connection carries many operations at once, so numbers that are free are
used again, and the others are dropped.
"""

from __future__ import annotations

from harness.interface import Recorder


class Processes:
    """A pool of process numbers that have no operation under way."""

    __slots__ = ("_free", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._free: list[int] = []

    def take(self) -> int:
        """Return a number to invoke an operation under."""
        return self._free.pop() if self._free else self._recorder.next_process()

    def give(self, process: int, type: str) -> None:  # noqa: A002 - the history's own name for it
        """Return a number to the pool: its operation has completed with ``type``.

        After "info" the number is dropped.
        """
        if type != "info":
            self._free.append(process)
