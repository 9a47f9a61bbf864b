"""A relay between brokers and their PostgreSQL server, which can lose connections during a commit.

A commit is the one moment at which losing the connection matters.

Why a relay and no packet filter: a filter cannot tell a commit from a question, and whether the
server did what was asked would be left to luck. The relay knows just enough of the protocol
(PostgreSQL manual, 55.7) to see a client's COMMIT. It either passes that on, waits for the answer
and keeps it to itself, or never passes it on; then it resets the client's connection. All else goes
through untouched. The server must not offer TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_CHUNK: Final = 1 << 16
_COMMIT_BYTES_MAX: Final = 32
"""The longest simple query that may be a COMMIT. Longer queries are passed on in pieces."""

_HEAD_BYTES: Final = 256
"""The bytes of a message that suffice to tell a statement's name and the first word of its text."""

_BEGINS: Final = (b"BEGIN", b"START")
_COMMITS: Final = (b"COMMIT", b"END")
_ENDS: Final = (*_COMMITS, b"ROLLBACK", b"ABORT")
_CHANGES: Final = (b"INSERT", b"UPDATE", b"DELETE")

_SESSION: Final = 3
"""The major version of the protocol in a message that begins a session.

Other first messages ask for TLS, or to cancel.
"""

_RESET: Final = struct.pack("ii", 1, 0)


class Severance(NamedTuple):
    """The way in which commits of a client lose their connection.

    ``chance`` is the share of commits that lose it. ``committed`` is the share of these that happen
    in the server nevertheless.
    """

    chance: float
    committed: float


class Commits:
    """Splits the bytes of a client where its commits begin and end.

    A commit is the simple query COMMIT. In the extended protocol, it is what lies from the Execute
    of a COMMIT to the Sync behind it. Outside a transaction block, it begins with the Execute of a
    statement that changes something: the Sync commits it.
    """

    def __init__(self) -> None:
        self._held = b""
        self._rest = 0
        self._begun = False
        self._statements: dict[bytes, bytes] = {}  # name -> the first word of its text
        self._portals: dict[bytes, bytes] = {}
        self._in_block = False

    def split(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield the pieces in order, each with whether it is a COMMIT.

        Raises ValueError for bytes that are not the protocol.
        """
        data = self._held + data
        start = at = 0
        committing = False
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                at += step
                self._rest -= step
                continue
            if len(data) - at < (5 if self._begun else 8):
                break
            if not self._begun:
                self._rest, code = struct.unpack_from("!ii", data, at)
                self._begun = code >> 16 == _SESSION
                if self._rest < 8:
                    raise ValueError(f"a first message of {self._rest} bytes")
                continue
            (length,) = struct.unpack_from("!i", data, at + 1)
            if length < 4:
                raise ValueError(f"a message of {length} bytes")
            kind, end = data[at : at + 1], at + 1 + length
            whole = committing or kind in b"ES" or (kind == b"Q" and length <= _COMMIT_BYTES_MAX)
            if len(data) < (end if whole else min(end, at + _HEAD_BYTES)):
                break
            if kind == b"Q" and not committing and self._asked(data[at + 5 : end]) and whole:
                if start < at:
                    yield data[start:at], False
                yield data[at:end], True
                start = end
            elif kind in b"PB" and not committing:
                self._name(kind, data[at + 5 : min(end, at + _HEAD_BYTES)])
            elif kind == b"E" and not committing and self._executed(data[at + 5 : end]):
                if start < at:
                    yield data[start:at], False
                start, committing = at, True
            elif kind == b"S" and committing:
                yield data[start:end], True
                start, committing = end, False
            if whole:
                at = end
            else:
                self._rest = 1 + length
        if start < at and not committing:
            yield data[start:at], False
            start = at
        self._held = data[start:]

    def _asked(self, text: bytes) -> bool:
        """Return whether a simple query is a COMMIT, and note whether a block is open after it."""
        word = _word(text)
        self._in_block = (self._in_block or word in _BEGINS) and word not in _ENDS
        return text.rstrip(b"\0; \n").upper() == b"COMMIT"

    def _name(self, kind: bytes, head: bytes) -> None:
        """Note the first word of a statement, or the statement of a portal."""
        name, _, rest = head.partition(b"\0")
        if kind == b"P":
            self._statements[name] = _word(rest)
        else:
            self._portals[name] = self._statements.get(rest.partition(b"\0")[0], b"")

    def _executed(self, body: bytes) -> bool:
        """Return whether the execution of this portal commits."""
        word = self._portals.get(body.partition(b"\0")[0], b"")
        if word in _BEGINS or word in _ENDS:
            self._in_block = word in _BEGINS
            return word in _COMMITS
        return word in _CHANGES and not self._in_block


def _word(text: bytes) -> bytes:
    """Return the first word of a statement."""
    return text.lstrip(b" \n\t(")[:16].replace(b";", b" ").replace(b"\0", b" ").partition(b" ")[0].upper()


class _SeveredError(Exception):
    """A connection is to be lost now."""


@dataclass(slots=True)
class _Passage:
    """A connection through the relay.

    Once ``silenced``, the client gets no answer any more. ``answered`` is set by the next answer of
    the server, or its end.
    """

    client: str
    silenced: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """Listeners in front of one server.

    Clients have a name: that of their listener, else the address they come from.
    """

    def __init__(self, host: str, port: int, chance: random.Random) -> None:
        self._server = (host, port)
        self._chance = chance
        self._severed: dict[str, Severance] = {}
        self._lost: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._listeners: list[asyncio.Server] = []
        self._passages: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, client: str = "") -> None:
        """Take in connections at an address; they are those of ``client`` if it is given."""

        async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("peername")
            task = asyncio.current_task()
            assert task is not None
            self._passages.add(task)
            try:
                await self._attend(client or (peer[0] if peer else ""), reader, writer)
            finally:
                self._passages.discard(task)

        self._listeners.append(await asyncio.start_server(attend, host, port))

    def sever(self, clients: Mapping[str, Severance]) -> None:
        """Make exactly these clients lose connections from now on."""
        for client in clients:
            if client not in self._severed:
                self._lost[client] = self._passed[client] = 0
        self._severed = dict(clients)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports on which the relay listens, in the order of the calls of `listen`."""
        return tuple(listener.sockets[0].getsockname()[1] for listener in self._listeners)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients that lose connections by the fault in force."""
        return tuple(self._severed)

    def severed(self, client: str) -> bool:
        """Return whether that client loses connections by the fault and by what was seen.

        False if it has made commits and has lost none. A client that makes no commit for a while,
        because it just starts, counts as severed: it would lose its first ones.
        """
        return client in self._severed and (self._lost[client] > 0 or self._passed[client] == 0)

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        for listener in self._listeners:
            listener.close()
        for task in list(self._passages):
            task.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)

    async def _attend(self, client: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = _Passage(client)
        behind: asyncio.StreamWriter | None = None
        tasks: list[asyncio.Task[None]] = []
        try:
            # A client that gives up meanwhile is noticed afterwards: even a stopped server accepts
            # at once, because its kernel does.
            answers, behind = await asyncio.open_connection(*self._server)
            tasks = [
                asyncio.create_task(self._requests(passage, reader, behind)),
                asyncio.create_task(self._answers(passage, answers, writer)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # nobody listens: the server is down
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(
                    result, OSError | ValueError | _SeveredError
                ):
                    asyncio.get_running_loop().call_exception_handler(
                        {"message": "the relay failed", "exception": result}
                    )
            # If one side hung up, the other side sees that, behind the last bytes; everything else
            # looks like a lost connection.
            hung_up = [_ended(task) for task in tasks] or [False, False]
            if behind is not None:
                _close(behind, gently=hung_up[0])
            _close(writer, gently=hung_up[1])

    async def _requests(
        self, passage: _Passage, reader: asyncio.StreamReader, behind: asyncio.StreamWriter
    ) -> None:
        commits = Commits()
        while data := await reader.read(_CHUNK):
            for piece, commit in commits.split(data):
                severance = self._severed.get(passage.client) if commit else None
                if severance is not None and self._chance.random() < severance.chance:
                    if self._chance.random() < severance.committed:
                        passage.silenced = True
                        behind.write(piece)
                        await behind.drain()
                        await passage.answered.wait()
                    self._lost[passage.client] += 1
                    raise _SeveredError
                if severance is not None:
                    self._passed[passage.client] += 1
                behind.write(piece)
            await behind.drain()

    async def _answers(
        self, passage: _Passage, answers: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await answers.read(_CHUNK):
                if passage.silenced:
                    passage.answered.set()
                    await asyncio.Event().wait()  # `_requests` ends this connection
                writer.write(data)
                await writer.drain()
        finally:
            passage.answered.set()


def _ended(task: asyncio.Task[None]) -> bool:
    """Return whether a direction came to its own end."""
    return task.done() and not task.cancelled() and task.exception() is None


def _close(writer: asyncio.StreamWriter, *, gently: bool) -> None:
    """Close a connection when all is sent, or reset it at once.

    A RST is what a machine that has lost the connection sends.
    """
    if gently:
        writer.close()
        return
    with contextlib.suppress(OSError):
        found = writer.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
