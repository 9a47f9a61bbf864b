"""The way in which a broker in the harness' own process reaches the simulated world's database.

It implements the broker's seam over the world's protocol.

Why here: the environment knows the protocol, the broker knows the seam, and only the harness knows
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from broker.storage.database import (
    ConstraintError,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Statement,
    UnexpectedCountError,
)
from environments.simulation.database import DatabaseAnswer, DatabaseCall, DatabaseRequest, framed, read_frame
from harness.interface import Address

LIMIT: Final = 1024 * 1024


class WorldDatabase:
    """The database of the simulated world as a ``broker.storage.database.Database``.

    ``client`` is the node's name, by which the server tells connections apart.
    """

    def __init__(self, address: Address, client: str) -> None:
        self._address = address
        self._client = client
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def transact(self, statements: Sequence[Statement], timeout_s: float) -> list[Result]:
        """Send one request and return its answer; a request without an answer may have happened."""
        is_sent = False
        request = DatabaseRequest(
            self._client,
            tuple(
                DatabaseCall(statement.sql, statement.parameters, statement.many, statement.count)
                for statement in statements
            ),
        )
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                if self._closed:
                    raise DatabaseUnavailableError("the database is closed")
                try:
                    if self._streams is None:
                        self._streams = await asyncio.open_connection(
                            self._address.host, self._address.port, limit=LIMIT
                        )
                    reader, writer = self._streams
                    is_sent = True
                    writer.write(framed(request))
                    answer = msgspec.msgpack.decode(await read_frame(reader), type=DatabaseAnswer)
                except BaseException:
                    self._drop()
                    raise
        except TimeoutError:
            raise _lost(f"no answer within {timeout_s:g} s", is_sent=is_sent) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _lost(str(error) or type(error).__name__, is_sent=is_sent) from None
        return _results(answer, statements)

    async def close(self) -> None:
        """Cut the connection."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def _lost(words: str, *, is_sent: bool) -> DatabaseError:
    return OutcomeUnknownError(words) if is_sent else DatabaseUnavailableError(words)


def _results(answer: DatabaseAnswer, statements: Sequence[Statement]) -> list[Result]:
    if answer.problem == "count":
        expected = statements[answer.index].count
        assert expected is not None, "a count nobody asked for"
        raise UnexpectedCountError(answer.index, answer.count, expected)
    if answer.problem == "constraint":
        raise ConstraintError(answer.text)
    if answer.problem:
        raise DatabaseError(answer.text)
    return [Result(done.rows, done.count) for done in answer.results]
