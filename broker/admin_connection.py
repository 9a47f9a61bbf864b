"""One client of the admin port.

Who it is, its requests one after the other, and how much of them is kept.

    broker                                               client
    {"authentication": "hmac-sha256", "nonce": ...}  ->
                                                     <-  {"nonce": ..., "proof": ...}
    {"ok": true, "proof": ...}                       ->
                                                     <-  {"command": "status"}
    {"ok": true, ...}                                ->

A wrong proof is answered with ``{"ok": false, "error": ...}``, and the connection is closed.

A port without a secret says ``{"authentication": "none"}`` and waits for requests; so it may only
be reached from this machine.

Why the first line that is no request ends the connection: whatever speaks another protocol (a
browser that was talked into a POST) must not reach the line behind it. Why one request a turn of
the loop: clients of the broker are served between two of them, however many lines came at once.
Nothing is read while requests wait, so the bytes that are kept have a bound; before the proof it is
the length of one proof.
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from broker.handshake import NONCE_BYTES, is_proof, proof
from broker.strangers import StrangerLog, address_of

_log = logging.getLogger(__name__)

REQUEST_MAX: Final = 64 * 1024
"""Bytes of one request."""
PROOF_MAX: Final = 512
"""Bytes of all that is taken from somebody who has not proved who he is."""
PROOF_S_MAX: Final = 10.0
"""How long the proof may take."""
STRANGERS_MAX: Final = 64
"""Connections that have not proved who they are; beyond it the oldest gives way."""

LINGER_S: Final = 5.0
"""How long a closed connection may take to hand over its last bytes."""

Answered = Callable[[bytes], None]
"""Takes an encoded answer, without its line end."""


class Desk(abc.ABC):
    """Who takes the requests of all connections.

    ``secret`` is what who asks must know, None: nothing; ``nonce`` gives one for each handshake.
    """

    def __init__(self, secret: str | None, nonce: Callable[[], bytes]) -> None:
        self.secret = secret
        self.nonce = nonce
        self.proof_s = PROOF_S_MAX
        """How long a proof may take."""
        self.strangers = StrangerLog(_log, "admin port")
        self.connections: dict[AdminConnection, None] = {}
        self._unproved: dict[AdminConnection, None] = {}

    def came(self, connection: AdminConnection) -> None:
        """Take it in; of too many strangers the oldest gives way."""
        self.connections[connection] = None
        if self.secret is not None:
            self._unproved[connection] = None
            if len(self._unproved) > STRANGERS_MAX:
                next(iter(self._unproved)).refuse(f"more than {STRANGERS_MAX} connections without a proof")

    def proved(self, connection: AdminConnection) -> None:
        """It is a stranger's no more."""
        del self._unproved[connection]

    def lost(self, connection: AdminConnection) -> None:
        """It is no more."""
        self.connections.pop(connection, None)
        self._unproved.pop(connection, None)

    @abc.abstractmethod
    def answer(self, request: dict[str, Any], reply: Answered) -> None:
        """Answer a request, now or later, once."""


class AdminConnection(asyncio.Protocol):
    """From accept to loss."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known = desk.secret is None
        self._nonce = b""
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._searched = 0
        self._busy = False
        self._scheduled = False
        self._write_paused = False
        self._reading = True
        self._late: asyncio.TimerHandle | None = None

    # -------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # by what it does: uvloop's transports are no subclass
        self._desk.came(self)
        if self._known:
            self._write({"authentication": "none"})
            return
        self._nonce = self._desk.nonce()
        self._late = asyncio.get_running_loop().call_later(self._desk.proof_s, self._proof_late)
        self._write({"authentication": "hmac-sha256", "nonce": self._nonce.hex()})

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._ended()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._buffer += data
        if not self._known and len(self._buffer) > PROOF_MAX:
            self.refuse(f"more than {PROOF_MAX} bytes before the proof")
            return
        if len(self._buffer) > REQUEST_MAX:
            self._read(reading=False)
        self._later()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._later()

    def close(self) -> None:
        """End it when what was written has left."""
        if self._transport is not None:
            transport = self._transport
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
            self._ended()

    # --------------------------------------------------------------------------------------- inside

    def _ended(self) -> None:
        if self._transport is not None:
            self._transport = None
            self._buffer.clear()
            if self._late is not None:
                self._late.cancel()
            self._desk.lost(self)

    def _read(self, *, reading: bool) -> None:
        if self._transport is not None and reading is not self._reading:
            self._reading = reading
            self._transport.resume_reading() if reading else self._transport.pause_reading()

    def _later(self) -> None:
        """Look at the buffer in the next turn of the loop."""
        if not self._scheduled and self._buffer:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take one line, if there is one and nothing else is under way."""
        self._scheduled = False
        if self._transport is None or self._busy or self._write_paused:
            return
        end = self._buffer.find(b"\n", self._searched)
        if (len(self._buffer) if end < 0 else end) > REQUEST_MAX:
            self.refuse(f"a request has at most {REQUEST_MAX} bytes")
            return
        if end < 0:
            self._searched = len(self._buffer)
            self._read(reading=True)
            return
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.refuse(f"not a JSON object: {error}")
            return
        if not self._known:
            self._prove(request)
        elif not isinstance(request.get("command"), str):
            self.refuse('no request: it wants a "command"')
        else:
            self._busy = True
            self._desk.answer(request, self._reply)

    def _reply(self, answer: bytes) -> None:
        self._busy = False
        if self._transport is not None:
            self._transport.write(answer + b"\n")
            self._later()

    def _prove(self, said: dict[str, Any]) -> None:
        secret = self._desk.secret
        assert secret is not None, "a proof where none is wanted"
        theirs, digest = _bytes(said.get("nonce")), _bytes(said.get("proof"))
        if len(theirs) != NONCE_BYTES:
            self.refuse(
                f"no proof: it wants a nonce of {NONCE_BYTES} bytes, and the HMAC that shows that the "
                "secret is known, in hexadecimal"
            )
        elif not is_proof(digest, secret, "admin", "connecting", theirs, self._nonce):
            self.refuse("wrong secret (admin.secret-file, admin.secret, or cluster.cluster-password)")
        else:
            self._known = True
            if self._late is not None:
                self._late.cancel()
            self._desk.proved(self)
            answer = proof(secret, "admin", "accepting", theirs, self._nonce)
            self._write({"ok": True, "proof": answer.hex()})
            self._later()

    def _proof_late(self) -> None:
        self.refuse(f"no proof within {self._desk.proof_s:g} s")

    def refuse(self, why: str) -> None:
        """Say why, in one line on both sides, and end it."""
        if self._transport is None:
            return
        peer = self._transport.get_extra_info("peername")
        self._desk.strangers.tell(
            address_of(peer), f"admin: connection from {address_of(peer)} closed: {why}"
        )
        self._write({"ok": False, "error": why})
        self.close()

    def _write(self, answer: dict[str, Any]) -> None:
        assert self._transport is not None, "nobody to write to"
        self._transport.write(msgspec.json.encode(answer) + b"\n")


def _bytes(value: object) -> bytes:
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
