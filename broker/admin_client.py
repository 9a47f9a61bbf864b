"""Asking a broker over its admin port: one connection, one request, one answer.

Why functions: ``brokerctl`` asks once and ends. Whoever asks many times a second keeps a connection
of its own (the protocol is in ``docs/reference/admin-protocol.md``).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from broker.handshake import NONCE_BYTES, is_proof, proof

TIMEOUT_S: Final = 10.0
TAKEOVER_TIMEOUT_S: Final = 90.0
LINE_MAX: Final = 1024 * 1024 * 1024
"""Bytes of one answer; a browse answers with all messages at once."""


class NobodyAnswersError(Exception):
    """No broker could be asked at that address; the text says what happened."""


class RefusedError(Exception):
    """The broker answered, but will not do it; the text is its reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """An admin port, and the secret that it wants; None: it is asked without one."""

    host: str
    port: int
    secret: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: Target, nonce: bytes
) -> None:
    """Begin a connection: each side proves that it knows the secret.

    Raises NobodyAnswersError, RefusedError, OSError.
    """
    offer = _decoded(await _line(reader), at)
    if offer.get("authentication") == "none":
        if at.secret is not None:
            raise RefusedError(
                f"{at} asks for no secret, so it is not the broker of this configuration; without one "
                "it can be asked"
            )
        return
    if offer.get("authentication") != "hmac-sha256":
        raise NobodyAnswersError(f"{at} is no broker's admin port")
    if at.secret is None:
        raise RefusedError(
            f"{at} asks for a secret: name its broker.toml (--config), or a file that holds it "
            "(--secret-file)"
        )
    theirs = bytes.fromhex(offer["nonce"])
    digest = proof(at.secret, "admin", "connecting", nonce, theirs)
    writer.write(msgspec.json.encode({"nonce": nonce.hex(), "proof": digest.hex()}) + b"\n")
    answer = _decoded(await _line(reader), at)
    if answer.get("ok") is not True:
        raise RefusedError(f"{at}: {answer.get('error', 'no reason given')}")
    if not is_proof(bytes.fromhex(answer["proof"]), at.secret, "admin", "accepting", nonce, theirs):
        raise RefusedError(f"{at} does not know the secret itself: another program listens there")


async def ask(at: Target, command: str, timeout_s: float = TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
    """The answer to one command. Raises NobodyAnswersError, RefusedError."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(at.host, at.port, limit=LINE_MAX)
            try:
                await log_in(reader, writer, at, secrets.token_bytes(NONCE_BYTES))
                given = {key: value for key, value in arguments.items() if value is not None}
                writer.write(msgspec.json.encode({"command": command, **given}) + b"\n")
                answer = _decoded(await _line(reader), at)
            finally:
                writer.close()
    except TimeoutError:
        raise NobodyAnswersError(f"nobody answers at {at} within {timeout_s:g} s") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise NobodyAnswersError(f"nobody answers at {at}: {reason}") from None
    if answer.get("ok") is not True:
        raise RefusedError(str(answer.get("error", "no reason given")))
    del answer["ok"]
    return answer


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError as error:  # longer than the limit
        raise NobodyAnswersError(str(error)) from None


def _decoded(line: bytes, at: Target) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        what = "closed the connection" if not line else "is no broker's admin port"
        raise NobodyAnswersError(f"{at} {what}") from None


async def status(at: Target) -> dict[str, Any]:
    """Role, node ID, replication, peers and queues of the broker."""
    return await ask(at, "status")


async def brokers(at: Target) -> list[dict[str, Any]]:
    """The brokers that it knows, itself included."""
    found: list[dict[str, Any]] = (await ask(at, "brokers"))["brokers"]
    return found


async def browse(at: Target, queue: str | None = None) -> list[dict[str, Any]]:
    """Its stored messages; ``body`` is base64."""
    found: list[dict[str, Any]] = (await ask(at, "browse", queue=queue, timeout_s=60.0))["messages"]
    return found


async def stop(at: Target, *, failover: bool | None = None) -> None:
    """A clean stop; returns when the broker has accepted it."""
    await ask(at, "stop", failover=failover)


async def members(at: Target) -> dict[str, Any]:
    """The brokers that the shared store knows, with their states and messages.

    Only where brokers share a database.
    """
    return await ask(at, "members")


async def quiesce(at: Target, *, undo: bool = False) -> dict[str, Any]:
    """Take in no new clients, or do so again."""
    return await ask(at, "unquiesce" if undo else "quiesce")


async def takeover(at: Target, broker_id: str, *, force: bool) -> dict[str, Any]:
    """Take over from a broker; an answer with ``confirm`` asks whether that is really meant."""
    return await ask(at, "takeover", timeout_s=TAKEOVER_TIMEOUT_S, **{"broker-id": broker_id, "force": force})


async def purge(at: Target, queue: str) -> int:
    """Delete what no consumer holds; returns how many, when it is durable."""
    return int((await ask(at, "purge", queue=queue))["purged"])


async def create(at: Target, queue: str) -> bool:
    """Make a queue, durably; False if it was there."""
    return bool((await ask(at, "create", queue=queue))["created"])


async def delete(at: Target, queue: str, *, remove_consumers: bool, remove_messages: bool) -> int:
    """Delete a queue; returns how many messages went with it, when it is durable."""
    flags = {"remove-consumers": remove_consumers, "remove-messages": remove_messages}
    return int((await ask(at, "delete", queue=queue, timeout_s=60.0, **flags))["purged"])
