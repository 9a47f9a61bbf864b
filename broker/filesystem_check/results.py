"""The results of a check: one for each test, under the test's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class FailedError(Exception):
    """A test found what a store cannot tolerate; the text says what was seen."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a test; ``problem`` is "" if it passed."""

    test: str
    problem: str = ""

    @property
    def passed(self) -> bool:
        """True if nothing was wrong."""
        return not self.problem

    @property
    def remedy(self) -> str:
        """The usual remedy for the failure of this test, or ""."""
        return REMEDIES.get(self.test, "")


PREFIX: Final = ".brokerctl-check"
"""The beginning of the names of all files that a check makes; they are removed at its end."""

REMEDIES: Final = {
    "directory": "give a directory that exists and that this user may write to",
    "lock": "mount with NFSv4 (or start the lock manager): not with nolock or local_lock",
    "lock-denied": "mount with NFSv4 (or start the lock manager): not with nolock or local_lock",
    "lock-released-by-close": "the file system keeps locks of who is gone: use another, or update its server",
    "lock-released-by-death": "the file system keeps locks of who is gone: use another, or update its server",
    "sync-to-a-disk": "put the store on a file system that is on a disk and honours fsync",
    "sync-file": "use a file system that honours fsync",
    "sync-directory": "use a file system that honours fsync of directories",
    "fresh-names": "mount with lookupcache=none and noac",
    "fresh-attributes": "mount with noac",
    "sync-is-seen": "mount with sync and without client caches; the server must not acknowledge what it "
    "only has in memory",
    "lock-denied-to-the-other-host": "mount with NFSv4 on both hosts (or start the lock manager): not "
    "with nolock or local_lock",
    "lock-passes-to-the-other-host": "the server keeps locks of who has let go: use another, or update it",
    "concurrent-writes": "locks or caches do not hold between the hosts: mount with NFSv4, sync, noac "
    "and lookupcache=none on both",
    "same-owner": "give the user and its group the same numbers on both hosts (or configure NFSv4 ID "
    "mapping)",
    "meet": "start the same command on the other host, with the same shared directory",
}
"""Test -> the usual remedy for its failure."""
