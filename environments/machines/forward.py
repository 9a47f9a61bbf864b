"""A port of another machine, made available on 127.0.0.1 here, through an existing connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from environments.link_pipe import set_reset_on_close
from harness.interface import Address, InfrastructureError


class PortForward:
    """A listener that carries each of its connections through a channel that ``tunnel`` opens.

    If ``tunnel`` raises OSError or InfrastructureError, the connection is reset, as on a port where
    nobody listens. A channel has ``recv``, ``sendall``, ``shutdown_write`` and ``close``.
    """

    def __init__(self, tunnel: Callable[[], Any]) -> None:
        self._tunnel = tunnel
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._clients: set[socket.socket] = set()
        self.address = Address(*self._listener.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close the listener and its connections; the threads end with these and their channels."""
        for end in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._clients.add(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client:
            try:
                channel = self._tunnel()
            except (OSError, InfrastructureError):
                set_reset_on_close(client)
            else:
                back = (channel.recv, client.sendall, lambda: client.shutdown(socket.SHUT_WR))
                answering = threading.Thread(target=_pump, args=back, daemon=True)
                answering.start()
                _pump(client.recv, channel.sendall, channel.shutdown_write)
                answering.join()
                channel.close()
            self._clients.discard(client)


def _pump(receive: Callable[[int], bytes], send: Callable[[bytes], None], end: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := receive(1 << 15):
            send(data)
    with contextlib.suppress(OSError, EOFError):
        end()
