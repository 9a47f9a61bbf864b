"""Asking a broker over its admin port: one connection, one request, one answer.

Why functions: ``brokerctl`` asks once and ends. Whoever asks many times a second keeps a connection of its own (the protocol is in
``docs/reference/admin-protocol.md``).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import msgspec

TIMEOUT_S: Final = 10.0
TAKEOVER_TIMEOUT_S: Final = 90.0
LINE_MAX: Final = 1024 * 1024 * 1024
"""Bytes of one answer; a browse answers with all messages at once."""


class NobodyAnswersError(Exception):
    """No broker could be asked at that address; the text says what happened."""


class RefusedError(Exception):
    """The broker answered, but will not do it; the text is its reason."""


async def ask(
    host: str, port: int, command: str, timeout_s: float = TIMEOUT_S, **arguments: Any
) -> dict[str, Any]:
    """The answer to one command. Raises NobodyAnswersError, RefusedError."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_MAX)
            try:
                given = {key: value for key, value in arguments.items() if value is not None}
                writer.write(msgspec.json.encode({"command": command, **given}) + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
    except TimeoutError:
        raise NobodyAnswersError(f"nobody answers at {host}:{port} within {timeout_s:g} s") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise NobodyAnswersError(f"nobody answers at {host}:{port}: {reason}") from None
    try:
        answer = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        what = "closed the connection" if not line else "is no broker's admin port"
        raise NobodyAnswersError(f"{host}:{port} {what}") from None
    if answer.get("ok") is not True:
        raise RefusedError(str(answer.get("error", "no reason given")))
    del answer["ok"]
    return answer


async def status(host: str, port: int) -> dict[str, Any]:
    """Role, node ID, replication, peers and queues of the broker."""
    return await ask(host, port, "status")


async def brokers(host: str, port: int) -> list[dict[str, Any]]:
    """The brokers that it knows, itself included."""
    found: list[dict[str, Any]] = (await ask(host, port, "brokers"))["brokers"]
    return found


async def browse(host: str, port: int, queue: str | None = None) -> list[dict[str, Any]]:
    """Its stored messages; ``body`` is base64."""
    found: list[dict[str, Any]] = (await ask(host, port, "browse", queue=queue, timeout_s=60.0))["messages"]
    return found


async def stop(host: str, port: int, *, failover: bool | None = None) -> None:
    """A clean stop; returns when the broker has accepted it."""
    await ask(host, port, "stop", failover=failover)


async def members(host: str, port: int) -> dict[str, Any]:
    """The brokers that the shared store knows, with their states and messages; only where brokers share a database."""
    return await ask(host, port, "members")


async def quiesce(host: str, port: int, *, undo: bool = False) -> dict[str, Any]:
    """Take in no new clients, or do so again."""
    return await ask(host, port, "unquiesce" if undo else "quiesce")


async def takeover(host: str, port: int, broker_id: str, *, force: bool) -> dict[str, Any]:
    """Take over from a broker; an answer with ``confirm`` asks whether that is really meant."""
    return await ask(
        host, port, "takeover", timeout_s=TAKEOVER_TIMEOUT_S, **{"broker-id": broker_id, "force": force}
    )


async def purge(host: str, port: int, queue: str) -> int:
    """Delete what no consumer holds; returns how many, when it is durable."""
    return int((await ask(host, port, "purge", queue=queue))["purged"])
