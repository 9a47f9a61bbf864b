"""The errors of a journal, split by what the broker or its operator must do next."""

from __future__ import annotations

from typing import Self


class JournalError(Exception):
    """Any trouble with a journal."""


class JournalDamagedError(JournalError):
    """Data that had been synced differs from what was written.

    Do not start on it: restore the file or copy from the other broker.

    ``path`` is within the volume, ``offset`` in bytes where the damage begins.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"journal damaged: {path} at offset {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class JournalIncompleteError(JournalError):
    """The journal is a copy whose synchronisation never ended. Never serve from it.

    Make a new copy.
    """


class JournalLockedError(JournalError):
    """Another broker has this journal open. Stop that broker, or configure another directory."""


class JournalFailedError(JournalError):
    """A write or sync failed: nothing since ``synced`` is certain, and nothing more is accepted.

    Stop the broker; its journal recovers at the next start.
    """

    def again(self) -> Self:
        """Return a new error for the next caller: a traceback grows each time it is raised."""
        failure = type(self)(*self.args)
        failure.__cause__ = self.__cause__
        return failure
