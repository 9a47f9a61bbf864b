"""Asking a broker over its admin port: requests one after the other, each with one answer.

``ask`` is for who asks once, an ``AdminClient`` for who asks many times a second. The protocol is
in ``docs/reference/admin-protocol.md``.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from broker.handshake import NONCE_BYTES, is_proof, proof

TIMEOUT_S: Final = 10.0
TIMEOUTS_S: Final[Mapping[str, float]] = {"browse": 60.0, "delete": 60.0, "takeover": 90.0}
"""Of commands that may take longer."""
LINE_MAX: Final = 1024 * 1024 * 1024
"""Bytes of one answer; a browse answers with all messages at once."""


class NobodyAnswersError(OSError):
    """No broker could be asked at that address; the text says what happened."""


class BrokerRefusedError(OSError):
    """The broker answered, but will not do it; the text is its reason.

    ``not_done``: it says that it changed nothing.
    """

    def __init__(self, reason: str, *, not_done: bool = False) -> None:
        super().__init__(reason)
        self.not_done = not_done


@dataclass(frozen=True, slots=True)
class Target:
    """An admin port, and the secret that it wants; None: it is asked without one."""

    host: str
    port: int
    secret: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class AdminClient:
    """A connection to an admin port, made when first asked; one request at a time.

    A request whose answer did not come, or was no, closes it, so that a late answer can never be
    taken for the answer to the next question. A connection that breaks is an error even if another
    could be made at once: the broker behind the new one may be another process, and who compares
    two answers must know that something lies between them.
    """

    def __init__(self, at: Target, nonce: Callable[[], bytes] | None = None) -> None:
        self._at = at
        self._nonce = nonce or partial(secrets.token_bytes, NONCE_BYTES)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def request(self, command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command, without its "ok".

        Raises NobodyAnswersError, BrokerRefusedError, OSError where no connection can be made.
        """
        async with self._turn:
            try:
                answer = await self._request(msgspec.json.encode({**arguments, "command": command}))
            except BaseException:
                self.close()
                raise
        return answer

    async def _request(self, question: bytes) -> dict[str, Any]:
        at = self._at
        if self._streams is None:
            self._streams = await asyncio.open_connection(at.host, at.port, limit=LINE_MAX)
            await log_in(*self._streams, at, self._nonce())
        reader, writer = self._streams
        if writer.is_closing():  # since the last answer; uvloop's transports take no more then
            raise NobodyAnswersError(f"{at} closed the admin connection")
        writer.write(question + b"\n")
        answer = await _read(reader, at)
        if answer.pop("ok", None) is not True:
            reason = str(answer.get("error", "no reason given"))
            raise BrokerRefusedError(reason, not_done=answer.get("not-done") is True)
        return answer

    def close(self) -> None:
        """The next request makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: Target, nonce: bytes
) -> None:
    """Prove the secret to each other. Raises NobodyAnswersError, BrokerRefusedError, OSError."""
    offer = await _read(reader, at)
    if offer.get("authentication") == "none":
        if at.secret is not None:
            raise BrokerRefusedError(
                f"{at} asks for no secret, so it is not the broker of this configuration; repeat the "
                f"command without a secret to ask it"
            )
        return
    if offer.get("authentication") != "hmac-sha256":
        raise NobodyAnswersError(f"{at} is no broker's admin port")
    if at.secret is None:
        raise BrokerRefusedError(
            f"{at} asks for a secret: name its broker.toml (--config), or a file that holds it "
            "(--secret-file)"
        )
    theirs = bytes.fromhex(offer["nonce"])
    digest = proof(at.secret, "admin", "connecting", nonce, theirs)
    writer.write(msgspec.json.encode({"nonce": nonce.hex(), "proof": digest.hex()}) + b"\n")
    answer = await _read(reader, at)
    if answer.get("ok") is not True:
        raise BrokerRefusedError(f"{at}: {answer.get('error', 'no reason given')}")
    if not is_proof(bytes.fromhex(answer["proof"]), at.secret, "admin", "accepting", nonce, theirs):
        raise BrokerRefusedError(f"{at} does not know the secret itself: another program listens there")


async def ask(at: Target, command: str, **arguments: Any) -> dict[str, Any]:
    """The answer to one command, over a connection of its own.

    ``arguments`` are those of the command, "_" for "-"; None: not given. Raises NobodyAnswersError,
    RefusedError.
    """
    given = {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}
    timeout_s = TIMEOUTS_S.get(command, TIMEOUT_S)
    connection = AdminClient(at)
    try:
        async with asyncio.timeout(timeout_s):
            return await connection.request(command, given)
    except (NobodyAnswersError, BrokerRefusedError):
        raise
    except TimeoutError:
        raise NobodyAnswersError(f"nobody answers at {at} within {timeout_s:g} s") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise NobodyAnswersError(f"nobody answers at {at}: {reason}") from None
    finally:
        connection.close()


async def _read(reader: asyncio.StreamReader, at: Target) -> dict[str, Any]:
    try:
        line = await reader.readline()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=dict[str, Any])
        what = "closed the admin connection"
    except (
        ValueError,
        msgspec.MsgspecError,
        RecursionError,
    ):  # ValueError: longer than the limit, or no UTF-8
        what = "is no broker's admin port"
    raise NobodyAnswersError(f"{at} {what}")
