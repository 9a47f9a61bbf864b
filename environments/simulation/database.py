"""The database server of a world.

It is a node that brokers reach over the simulated network, with SQLite's engine in memory behind
it.

Why a server and not an object: a broker must survive a commit whose answer never came. It must
survive a server that stands still with requests in its socket and does them later, and a restart
that drops every connection. All of these need a network between the two, and the network is there.

The protocol is ours: frames of msgpack with their length before them, one transaction a request.
Transactions happen one after the other, each at one instant of virtual time; a commit is durable
with that instant. ``clock_ms()`` is the clock of the machine "database".
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from environments.part import PartFault
from environments.postgresql.fault import DatabasePart, ServerFault
from environments.simulation.world import World
from harness.interface import Address, UsageError

NODE: Final = "database"
PORT: Final = 5432

ADDRESS: Final = Address(NODE, PORT)

SERVICE_S: Final = (0.0003, 0.0015)
"""The time from a request's arrival to its commit.

It is that of a solid-state disk behind a server that has other work.
"""

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
_LENGTH: Final = struct.Struct("<I")

Row: TypeAlias = tuple[Any, ...]
"""The values of a row: integers, text, bytes and None, which msgpack tells apart by itself."""


class DatabaseCall(msgspec.Struct, array_like=True, frozen=True):
    """A statement of a request; ``count`` is the number of rows that it must concern."""

    sql: str
    parameters: Row
    many: tuple[Row, ...] | None
    count: int | None


class DatabaseRequest(msgspec.Struct, array_like=True, frozen=True):
    """A transaction of ``client``."""

    client: str
    statements: tuple[DatabaseCall, ...]


class Done(msgspec.Struct, array_like=True, frozen=True):
    """The result of one statement."""

    rows: list[Row]
    count: int


class DatabaseAnswer(msgspec.Struct, array_like=True, frozen=True):
    """The answer to a request; ``problem`` is "" for a commit.

    For a transaction that was undone, ``problem`` is "constraint", "count" or "error". ``index``
    and ``count`` belong to "count".
    """

    problem: str = ""
    text: str = ""
    index: int = 0
    count: int = 0
    results: list[Done] = []


def framed(message: DatabaseRequest | DatabaseAnswer) -> bytes:
    """Return a message as it travels."""
    content = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(content)) + content


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read the content of the next frame. Raises IncompleteReadError at the end of the stream."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes")
    return await reader.readexactly(length)


class _UndoneError(Exception):
    def __init__(self, answer: DatabaseAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


class DatabaseServer:
    """The server, with its data on disk.

    ``stop`` and ``start`` lose connections, never a committed transaction.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: random.Random = world.random("database")
        self._clock = world.clock(NODE)
        self._severed: dict[str, tuple[float, float]] = {}
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.create_function("clock_ms", 0, lambda: round(self._clock.wall_s() * 1000))
        self.committed_unanswered = 0
        """The number of transactions that were committed though their client was never told."""
        self._process = world.spawn(NODE, self._serve)

    # ---- its life

    def start(self) -> None:
        """Serve; does nothing if the server serves already."""
        if self._process.state == "gone":
            self._process = self._world.spawn(NODE, self._serve)

    def stop(self) -> None:
        """End the server at once; every connection is reset."""
        self._process.kill()

    def pause(self) -> None:
        """Stand still: what arrives waits and is done later, even if its client has gone."""
        self._process.pause()

    def resume(self) -> None:
        """Go on with the requests that wait."""
        self._process.resume()

    def sever(self, clients: Mapping[str, tuple[float, float]]) -> None:
        """Let transactions of these clients lose their connection from now on.

        The first number is the probability of that, the second the probability that such a
        transaction is committed nevertheless.
        """
        self._severed = dict(clients)

    def state(self, client: str = "") -> str:
        """Return the database's state as a probe sees it.

        It is "serving", "stalled", "down", or "severed" for a client that loses connections.
        """
        if self._process.state == "gone":
            return "down"
        if self._process.state == "paused":
            return "stalled"
        return "severed" if client in self._severed else "serving"

    def close(self) -> None:
        """Close SQLite's connection, whose memory no garbage collector would give back."""
        self._connection.close()

    # ---- its work

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._attend, NODE, PORT)
        async with server:
            await server.serve_forever()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                content = await read_frame(reader)
                await asyncio.sleep(self._chance.uniform(*SERVICE_S))
                request = msgspec.msgpack.decode(content, type=DatabaseRequest)
                severed, committed = self._severed.get(request.client, (0.0, 0.0))
                if self._chance.random() < severed:
                    if self._chance.random() < committed and not self._answer(request).problem:
                        self.committed_unanswered += 1
                    writer.transport.abort()
                    return
                writer.write(framed(self._answer(request)))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, ValueError, msgspec.MsgspecError):
            writer.transport.abort()

    def _answer(self, request: DatabaseRequest) -> DatabaseAnswer:
        """Do a transaction, whole or not at all, within this instant."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [self._execute(index, one) for index, one in enumerate(request.statements)]
        except _UndoneError as undone:
            connection.execute("ROLLBACK")
            return undone.answer
        except sqlite3.IntegrityError as error:
            connection.execute("ROLLBACK")
            return DatabaseAnswer("constraint", str(error))
        except sqlite3.Error as error:
            connection.execute("ROLLBACK")
            return DatabaseAnswer("error", str(error))
        connection.execute("COMMIT")
        return DatabaseAnswer(results=results)

    def _execute(self, index: int, asked: DatabaseCall) -> Done:
        if asked.many is not None:
            cursor = self._connection.executemany(asked.sql, asked.many)
            rows = []
        else:
            cursor = self._connection.execute(asked.sql, asked.parameters)
            rows = cursor.fetchall()
        count = len(rows) if cursor.description is not None else max(cursor.rowcount, 0)
        if asked.count is not None and count != asked.count:
            raise _UndoneError(DatabaseAnswer("count", "", index, count))
        return Done(rows, count)


class SimulatedDatabase(DatabasePart):
    """The server as a part that can break; ``server`` is set if the test has one."""

    server: DatabaseServer | None = None

    def wanted(self, asked: PartFault) -> Any:
        """Return the ServerFault that a fault asks for. Raises UsageError if there is no server."""
        if self.server is None:
            raise UsageError(f"{asked.primitive}: no broker of this test keeps its messages in a database")
        return super().wanted(asked)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Stop, end or serve, and lose connections, from this instant on."""
        del changed
        assert self.server is not None, "a fault of it is in force"
        wanted = ServerFault.together(fault.wanted for fault in in_force)
        self.server.sever(wanted.severed)
        if wanted.down:
            self.server.stop()
        else:
            self.server.start()
        if wanted.stall:
            self.server.pause()
        else:
            self.server.resume()

    async def look(self, node: str) -> str:
        """Return how the node finds the database; "absent" if there is none."""
        return "absent" if self.server is None else self.server.state(node)
