"""A client of WebSocket messages, as ``brokers.Raw`` is one of bytes."""

import socket

from brokers import BOUND_S, Raw
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


class Web(Raw):
    """Sends each frame in a message of its own."""

    def __init__(self, port, path="/stomp", subprotocols=("v12.stomp",), origin=None, connect=True):
        self.network = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self.pongs = []
        self.refused = self.closed = None
        extra = [] if origin is None else [(b"origin", origin.encode())]
        self.event(
            Request(host="127.0.0.1", target=path, subprotocols=list(subprotocols), extra_headers=extra)
        )
        self.subprotocol = None
        self.buffer = b""
        while self.subprotocol is None and self.refused is None and self.read_events():
            pass
        if connect:
            self.send("CONNECT", {"accept-version": "1.2", "login": "guest", "passcode": "secret"})
            self.connected = self.read("CONNECTED")

    @property
    def socket(self):
        """What ``Raw`` reads from."""
        return self

    def event(self, event):
        self.network.sendall(self.protocol.send(event))

    def bytes(self, data):
        self.event(BytesMessage(data=data))

    def text(self, text, **more):
        self.event(TextMessage(data=text, **more))

    def recv(self, _size):
        while not self.buffer_of_messages and self.read_events():
            pass
        data, self.buffer_of_messages = self.buffer_of_messages, b""
        return data

    buffer_of_messages = b""

    def read_events(self):
        """Read once; False at the end."""
        data = self.network.recv(65536)
        if not data or self.closed is not None:
            return False
        self.protocol.receive_data(data)
        for event in self.protocol.events():
            if isinstance(event, AcceptConnection):
                self.subprotocol = event.subprotocol or ""
            elif isinstance(event, RejectConnection):
                self.refused = event.status_code
            elif isinstance(event, RejectData | BytesMessage):
                self.buffer_of_messages += event.data
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, Ping):
                self.event(event.response())
            elif isinstance(event, CloseConnection):
                self.closed = event.code
                return bool(self.buffer_of_messages)
        return True

    def close(self):
        self.network.close()
