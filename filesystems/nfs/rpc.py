"""ONC RPC over TCP (RFC 5531) to one server.

Answers may come in any order, and calls outlive the connections that they are sent on.

Why a call is not sent twice on a connection: NFSv4 forbids it (RFC 7530, 3.1.1), because TCP has
the bytes already, and a server that was only slow would do the work twice. A call is sent again,
under its old number, when its connection is lost: the server's cache of replies then recognises it.
A mount's ``timeo`` times ``retrans`` bounds only how long a *caller* waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from filesystems.nfs import xdr

_CALL: Final = 0
_REPLY: Final = 1
_RPC_VERSION: Final = 2
_NFS_PROGRAM: Final = 100003
_NFS_VERSION: Final = 4
_COMPOUND: Final = 1
_AUTH_SYS: Final = 1
_NO_VERIFIER: Final = xdr.u32(0) + xdr.u32(0)
_LAST_FRAGMENT: Final = 0x80000000
_MACHINE_BYTES_MAX: Final = 255
_RECORD_BYTES_MAX: Final = 16 << 20
_RECONNECT_S: Final = (0.02, 0.1, 0.25, 0.5, 1.0)


class UnreachableError(OSError):
    """A soft mount has stopped waiting; the server may still carry out the call."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(errno.EIO, f"no answer from the NFS server within {waited_s:g} s")


class RpcRefusedError(OSError):
    """The server does not accept the call itself (wrong program, version or credentials)."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, f"the NFS server refuses the call: {reason}")


@functools.lru_cache(256)
def credential(uid: int, gid: int, machine: str) -> bytes:
    """Return an AUTH_SYS credential of a user, which the server trusts.

    Supplementary groups are not sent.
    """
    named = xdr.opaque(machine.encode()[:_MACHINE_BYTES_MAX])
    body = xdr.u32(0) + named + xdr.u32(uid) + xdr.u32(gid) + xdr.u32(0)
    return xdr.u32(_AUTH_SYS) + xdr.opaque(body) + _NO_VERIFIER


class RpcClient:
    """A client of one server.

    ``start`` keeps a connection up until ``close``. ``tell`` gets a line when the server stops or
    begins to answer.

    ``try_s`` bounds connecting, and how long unacknowledged bytes keep a connection alive. A call
    without an answer for ``notice_s`` is reported.
    """

    def __init__(
        self, host: str, port: int, *, try_s: float, notice_s: float, tell: Callable[[str], None]
    ) -> None:
        self._host = host
        self._port = port
        self._try_s = try_s
        self._notice_s = notice_s
        self._tell = tell
        self._xid = int.from_bytes(os.urandom(4), "big")
        self._outstanding: dict[int, tuple[bytes, asyncio.Future[xdr.XdrReader]]] = {}
        self._connection: _Connection | None = None
        self._silent = False
        self.answered_at = 0.0
        """The loop time of the server's last answer of any kind."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect; calls may be made at once."""
        self._task = asyncio.get_running_loop().create_task(self._keep_connected(), name="rpc connection")

    async def close(self) -> None:
        """Drop the connection; calls still waiting fail with UnreachableError."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for _, answer in self._outstanding.values():
            if not answer.done():
                answer.set_exception(UnreachableError(0.0))

    async def compound(
        self, identity: bytes, body: bytes, *, patience_s: float | None = None
    ) -> xdr.XdrReader:
        """Call a COMPOUND, and return the answer after its RPC header.

        Raises UnreachableError after ``patience_s`` without an answer (None: waits for ever),
        RpcRefusedError if the server rejects the call.
        """
        loop = asyncio.get_running_loop()
        xid = self._xid = (self._xid + 1) & 0xFFFFFFFF
        message = b"".join(
            (
                struct.pack(">6I", xid, _CALL, _RPC_VERSION, _NFS_PROGRAM, _NFS_VERSION, _COMPOUND),
                identity,
                body,
            )
        )
        record = xdr.u32(_LAST_FRAGMENT | len(message)) + message
        answer: asyncio.Future[xdr.XdrReader] = loop.create_future()
        self._outstanding[xid] = (record, answer)
        if self._connection is not None:
            self._connection.write(record)
        notice = loop.call_later(self._notice_s, self._still_silent)
        try:
            async with asyncio.timeout(patience_s):
                return await answer
        except TimeoutError:
            raise UnreachableError(patience_s or 0.0) from None
        finally:
            notice.cancel()
            del self._outstanding[xid]

    def _still_silent(self) -> None:
        if not self._silent:
            self._silent = True
            self._tell(f"server {self._host}:{self._port} not responding, still trying")

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            lost: asyncio.Future[None] = loop.create_future()
            try:
                async with asyncio.timeout(self._try_s):
                    _, connection = await loop.create_connection(
                        lambda lost=lost: _Connection(self._record, lost, self._try_s),  # type: ignore[misc]
                        self._host,
                        self._port,
                    )
            except OSError:  # TimeoutError included
                await asyncio.sleep(_RECONNECT_S[min(failures, len(_RECONNECT_S) - 1)])
                failures += 1
                continue
            self._connection = connection
            try:
                for _, (record, answer) in sorted(self._outstanding.items()):
                    if not answer.done():
                        connection.write(record)
                await lost
            finally:
                self._connection = None
                connection.abort()
            # A server that is starting may accept connections and drop them at once: do not connect
            # in a tight loop.
            failures = 0 if connection.answered else failures + 1
            await asyncio.sleep(_RECONNECT_S[min(failures, len(_RECONNECT_S) - 1)])

    def _record(self, record: bytes) -> None:
        self.answered_at = asyncio.get_running_loop().time()
        if self._silent:
            self._silent = False
            self._tell(f"server {self._host}:{self._port} OK")
        reader = xdr.XdrReader(record)
        entry = self._outstanding.get(reader.u32())
        if entry is None or entry[1].done():
            return  # the caller has given up, or was interrupted
        try:
            _accepted(reader)
        except (RpcRefusedError, xdr.XdrError) as error:
            entry[1].set_exception(error)
        else:
            entry[1].set_result(reader)


def _accepted(reader: xdr.XdrReader) -> None:
    if reader.u32() != _REPLY:
        raise RpcRefusedError("not a reply")
    if reader.u32() != 0:
        raise RpcRefusedError(
            "denied: " + ("RPC version" if reader.u32() == 0 else f"authentication, reason {reader.u32()}")
        )
    reader.u32()
    reader.opaque()
    status = reader.u32()
    if status:
        names = (
            "",
            "no such program",
            "program version",
            "no such procedure",
            "garbage arguments",
            "system error",
        )
        raise RpcRefusedError(names[status] if status < len(names) else f"status {status}")


class _Connection(asyncio.Protocol):
    """A connection, which cuts the stream into records (RFC 5531, 11)."""

    def __init__(self, record: Callable[[bytes], None], lost: asyncio.Future[None], try_s: float) -> None:
        self._record = record
        self._lost = lost
        self._try_s = try_s
        self._buffer = bytearray()
        self._fragments = bytearray()
        self._transport: asyncio.Transport | None = None
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        found: socket.socket = transport.get_extra_info("socket")
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A cut network must not leave the connection to TCP's own patience of a quarter of an hour.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self._try_s * 1000))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(self._try_s)))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(self._try_s)))

    def write(self, record: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(record)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.answered = True
        self._buffer += data
        while len(self._buffer) >= 4:
            (mark,) = struct.unpack_from(">I", self._buffer)
            size = mark & ~_LAST_FRAGMENT
            if size + len(self._fragments) > _RECORD_BYTES_MAX:
                self.abort()  # the peer is no RPC server, or its stream is damaged
                return
            if len(self._buffer) < 4 + size:
                return
            self._fragments += self._buffer[4 : 4 + size]
            del self._buffer[: 4 + size]
            if mark & _LAST_FRAGMENT:
                record, self._fragments = bytes(self._fragments), bytearray()
                self._record(record)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - after any loss all is sent again
        if not self._lost.done():
            self._lost.set_result(None)
