"""The conversation of two copies of a check on two hosts.

They use files with new names in the directory that is checked, and nothing else.

Why new names: a file system that caches attributes or content may show a *new* file late, but never
with old content. So the messages arrive even where what they are about is wrong. A message is
written under another name first and renamed, so that it is never seen half.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from broker.filesystem_check.calls import Calls
from broker.filesystem_check.results import PREFIX, FailedError

_LOOK_S: Final = 0.01
_GONE_S: Final = 20.0
_WAITING: Final = ".waiting"
_JOINED: Final = ".joined"


class MeetingMessage(msgspec.Struct, frozen=True):
    """A message of one copy to the other: what it did (and a number), and its user and group."""

    did: str
    number: int = 0
    uid: int = 0
    gid: int = 0


class Meeting:
    """The side of one copy.

    Call ``join`` first; it decides which copy is first. ``patience_s`` bounds every wait for the
    other copy.
    """

    def __init__(
        self, directory: Path, calls: Calls, say: Callable[[str], None], patience_s: float, name: str
    ) -> None:
        self.first = False
        self._directory = directory
        self._calls = calls
        self._say = say
        self._patience_s = patience_s
        self._me = name or f"{os.uname().nodename}-{os.getpid()}"
        self._pair = ""
        self._sent = 0
        self._received = 0
        self._seen_of: Path | None = None

    def shared(self, name: str) -> Path:
        """Return a file of this meeting that both copies use."""
        return self._directory / f"{PREFIX}.{self._pair}.{name}"

    async def join(self) -> None:
        """Find the other copy, or wait for it. Raises FailedError if none comes."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        here = self._directory / f"{PREFIX}.{self._me}{_WAITING}"
        gone: set[str] = set()
        offered = False
        try:
            while loop.time() < end:
                names = self._calls.names(self._directory)
                mine = [n for n in names if n.startswith(f"{PREFIX}.{self._me}+") and n.endswith(_JOINED)]
                if mine:
                    self.first = True
                    self._pair = mine[0][len(PREFIX) + 1 : -len(_JOINED)]
                    self.send("ready")
                    return
                others = [
                    name
                    for name in (n[len(PREFIX) + 1 : -len(_WAITING)] for n in names if n.endswith(_WAITING))
                    # If both copies came at the same time, only one may answer the other.
                    if name not in gone and (name < self._me or (not offered and name != self._me))
                ]
                if others:
                    self._calls.unlink(here)
                    offered = False
                    if await self._answer(others[0]):
                        return
                    gone.add(others[0])
                elif not offered:
                    self._create(here)
                    offered = True
                    self._say(
                        "Start a second copy of this program with the same parameters on another server."
                    )
                await asyncio.sleep(_LOOK_S)
        finally:
            self._calls.unlink(here)
        raise FailedError(f"no second copy was seen for {self._patience_s:.0f} s")

    async def _answer(self, name: str) -> bool:
        """Join the copy that waits under a name; if it is gone, remove its file, return False."""
        answered = self._directory / f"{PREFIX}.{name}+{self._me}{_JOINED}"
        self._create(answered)
        self._pair = f"{name}+{self._me}"
        try:
            await self.receive(within_s=_GONE_S)
        except FailedError:
            self._calls.unlink(answered)
            self._calls.unlink(self._directory / f"{PREFIX}.{name}{_WAITING}")
            return False
        return True

    def send(self, did: str, number: int = 0) -> None:
        """Send a message to the other copy."""
        self._sent += 1
        path = self._message(self._sent, mine=True)
        self._create(path, msgspec.json.encode(MeetingMessage(did, number, os.geteuid(), os.getegid())))

    async def receive(self, *, within_s: float | None = None) -> MeetingMessage:
        """Return the other copy's next message. Raises FailedError when none comes in time."""
        patience_s = self._patience_s if within_s is None else within_s
        loop = asyncio.get_running_loop()
        end = loop.time() + patience_s
        path = self._message(self._received + 1, mine=False)
        while path.name not in self._calls.names(self._directory):
            if loop.time() > end:
                raise FailedError(f"nothing was seen of the other copy for {patience_s:.0f} s")
            await asyncio.sleep(_LOOK_S)
        self._received += 1
        self._seen_of = path
        return msgspec.json.decode(self._calls.read(path), type=MeetingMessage)

    def owner_seen(self) -> tuple[int, int]:
        """Return (user, group) of the last message's file, as this host sees it."""
        assert self._seen_of is not None
        found = self._calls.stat(self._seen_of)
        return found.st_uid, found.st_gid

    def leave(self) -> None:
        """Remove all files of the meeting.

        Only the first copy does this, when the second has said goodbye: the second may still have a
        message to read.
        """
        if not self.first:
            return
        with contextlib.suppress(OSError):
            for name in self._calls.names(self._directory):
                if name.startswith(f"{PREFIX}.{self._pair}."):
                    self._calls.unlink(self._directory / name)

    def _message(self, number: int, *, mine: bool) -> Path:
        sender = "1" if self.first is mine else "2"
        return self._directory / f"{PREFIX}.{self._pair}.m{number:04}.{sender}"

    def _create(self, path: Path, content: bytes = b"") -> None:
        beside = path.with_name(path.name + ".new")
        with self._calls.opened(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            self._calls.write(descriptor, content)
            self._calls.fsync(descriptor)
        self._calls.rename(beside, path)
