"""Logical processes: who an operation is invoked by.

Why a pool: a process has one operation at a time, and one whose operation ended in ``info`` is
never heard of again. One connection carries many at once, so numbers that are free are used again
and the others are dropped.
"""

from __future__ import annotations

from harness.interface import Recorder


class Processes:
    """Hands out process numbers that have no operation under way."""

    __slots__ = ("_free", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._free: list[int] = []

    def take(self) -> int:
        """A number to invoke under."""
        return self._free.pop() if self._free else self._recorder.next_process()

    def give(self, process: int, type: str) -> None:  # noqa: A002 - the history's own name for it
        """The operation has completed with ``type``."""
        if type != "info":
            self._free.append(process)
