"""STOMP over WebSocket: for browsers, on the port where others speak plain STOMP.

Why a transport: to a ``StompConnection`` it is one: sessions know nothing of it. It takes the
bytes that arrive from the network and gives back those of the STOMP stream, however they are cut: a
frame over several messages, several frames in one message, text or binary. What the broker says
goes in binary messages, since not every body is text.

Why no library of connections: the one that is used (``wsproto``) has no I/O, so all of this runs in
the simulation, too. A server masks nothing and needs no chance.

Strangers: the handshake is at most 16 KB (h11), a message is never held, and after EVENTS_A_TURN
messages others have their turn: tiny ones cost far more than they weigh. A page in a browser
connects for whoever looks at it, so where nobody must log in its origin must be allowed
(``acceptor.websocket-allowed-origins``). Most clients that are no browsers name none.

Source: RFC 6455; the subprotocols v10.stomp, v11.stomp and v12.stomp, of which none is demanded:
CONNECT agrees the version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

FIRST_BYTE: Final = b"G"
"""Of "GET": no command of STOMP begins so."""
PATHS: Final = ("/stomp", "/ws")
"""Where other brokers have it: ActiveMQ's clients ask for the first, RabbitMQ's for the second."""
SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")
EVENTS_A_TURN: Final = 200
PONG_BEHIND_BYTES: Final = 64 * 1024
"""Who leaves more than this unread gets no pongs: they would pile up."""


class WebSocket(asyncio.Transport):
    """Between the network's transport and a connection.

    ``more`` is called when there is more to ``receive`` although nothing has arrived; ``ended``,
    with what was wrong or "", when nothing more will come: the connection is then to be closed.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        origins: Sequence[str],
        *,
        more: Callable[[], None],
        ended: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._transport = transport
        self._origins = origins
        self._more = more
        self._tell_end = ended
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._code: int = CloseReason.NORMAL_CLOSURE
        self._over = False
        self._reading = True
        self._busy = False

    def receive(self, data: bytes) -> bytes:
        """Take what arrived; return what of the STOMP stream was in it."""
        if self._over:
            return b""
        try:
            if data:
                self._protocol.receive_data(data)
            return self._events()
        except (ProtocolError, UnicodeError) as error:  # a name of a host that is none is a UnicodeError
            self._refuse("400 Bad Request", str(error))
            return b""

    def _events(self) -> bytes:
        parts: list[bytes] = []
        for count, event in enumerate(self._protocol.events(), 1):
            if isinstance(event, BytesMessage):
                parts.append(bytes(event.data))
            elif isinstance(event, TextMessage):
                parts.append(event.data.encode())
            elif isinstance(event, Ping):
                if self._transport.get_write_buffer_size() < PONG_BEHIND_BYTES:
                    self._transport.write(self._protocol.send(event.response()))
            elif isinstance(event, CloseConnection):
                broken = self._protocol.state is ConnectionState.OPEN
                self._code = event.code
                self._end(f"what came is not WebSocket: {event.reason}" if broken else "")
                break
            elif isinstance(event, Request):
                self._greet(event)
            if self._over:
                break
            if count == EVENTS_A_TURN:
                self._set_busy(busy=True)
                asyncio.get_running_loop().call_soon(self._more)
                return b"".join(parts)
        self._set_busy(busy=False)
        return b"".join(parts)

    def _greet(self, request: Request) -> None:
        if request.target.partition("?")[0] not in PATHS:
            self._refuse("404 Not Found", f"the path is {request.target[:64]!r}: STOMP is at {PATHS[0]}")
            return
        origin = next((value for name, value in request.extra_headers if name == b"origin"), None)
        site = None if origin is None else origin.decode("latin-1")
        if site is not None and site not in self._origins and "*" not in self._origins:
            self._refuse(
                "403 Forbidden", f"the origin {site[:64]!r} is not in acceptor.websocket-allowed-origins"
            )
            return
        spoken = next((name for name in SUBPROTOCOLS if name in request.subprotocols), None)
        if request.subprotocols and spoken is None:
            self._refuse("400 Bad Request", f"the subprotocols spoken here are {', '.join(SUBPROTOCOLS)}")
            return
        self._transport.write(self._protocol.send(AcceptConnection(subprotocol=spoken)))

    def _refuse(self, status: str, reason: str) -> None:
        body = reason.encode()
        self._transport.write(
            f"HTTP/1.1 {status}\r\nsec-websocket-version: 13\r\ncontent-type: "
            f"text/plain\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n".encode()
            + body
        )
        self._end(f"WebSocket refused: {reason}")

    def _end(self, reason: str) -> None:
        self._over = True
        self._tell_end(reason)

    # --------------------------------------------------------------------------- for the connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this much of the STOMP stream; nothing before the handshake or behind a close."""
        if self._protocol.state is ConnectionState.OPEN:
            self._transport.write(self._protocol.send(BytesMessage(data=bytes(data))))

    def get_extra_info(self, name: str, default: object = None) -> object:
        """What the network's transport knows."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that the network has not taken."""
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Say good-bye, and close when all is out."""
        if self._protocol.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._transport.write(self._protocol.send(CloseConnection(code=self._code)))
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Let nothing come."""
        self._reading = False
        if not self._busy:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let it come again."""
        self._reading = True
        if not self._busy:
            self._transport.resume_reading()

    def _set_busy(self, *, busy: bool) -> None:
        """While messages wait for their turn nothing more is read."""
        if busy is not self._busy:
            self._busy = busy
            if self._reading:
                (self._transport.pause_reading if busy else self._transport.resume_reading)()
