"""A listening socket: ``asyncio.Server`` on the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop
    from environments.simulation.stream import StreamTransport


class Listener(asyncio.AbstractServer):
    """The server of one process at one port.

    Connections that it has accepted live on when it is closed, as with asyncio up to 3.12.
    """

    def __init__(self, loop: NodeLoop, factory: Callable[[], asyncio.BaseProtocol], port: int) -> None:
        self.node = loop.node
        self.port = port
        self._loop = loop
        self._factory = factory
        self._serving = False
        self._closed = False
        self._forever: asyncio.Future[None] | None = None

    def accept(self, socket: StreamTransport) -> None:
        """Take a connection that the kernel has accepted; the process serves it when it runs."""
        self._loop.call_soon(self._serve, socket)

    def _serve(self, socket: StreamTransport) -> None:
        try:
            protocol = self._factory()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - asyncio's rule: a factory that fails loses one connection
            socket.close_socket()
            self._loop.call_exception_handler(
                {"message": "Error on transport creation for incoming connection", "exception": error}
            )
            return
        socket.start(protocol)

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The listener itself: of its socket only the name can be asked."""
        return () if self._closed else (self,)

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self.node, self.port

    def get_loop(self) -> NodeLoop:
        """Return the loop of the listener's process."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether the listener accepts connections."""
        return self._serving

    async def start_serving(self) -> None:
        """Accept connections from now on."""
        if self._closed:
            raise RuntimeError(f"server {self!r} is closed")
        self._serving = True

    async def serve_forever(self) -> None:
        """Accept connections until cancelled."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        await self.start_serving()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        finally:
            self._forever = None
            self.close()

    def close(self) -> None:
        """Stop accepting connections, and free the port."""
        if not self._closed:
            self.stop()
            self._loop.network.unlisten(self)
            if self._forever is not None and not self._forever.done():
                self._forever.cancel()

    def stop(self) -> None:
        """Stop accepting: the kernel's half of `close`."""
        self._serving = False
        self._closed = True

    async def wait_closed(self) -> None:
        """Return at once: the port is free as soon as the listener is closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()
