"""Multicast sockets: they send datagrams to a group, or hear what is sent to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

Endpoint = tuple[str, int]
"""An IPv4 address and a port."""


class OpenMulticast(Protocol):
    """A function that opens a multicast socket."""

    async def __call__(
        self,
        protocol: Callable[[], asyncio.DatagramProtocol],
        group: Endpoint,
        bind: Endpoint,
        *,
        listens: bool,
    ) -> asyncio.DatagramTransport:
        """Return a socket that hears the group, or else one that can send to it.

        ``bind`` has the address of the network interface to use ("" lets the system choose one) and
        the port to send from (0 lets the system choose it); a socket that listens is bound to the
        group and its port. Raises OSError.
        """
        ...


async def open_multicast(
    protocol: Callable[[], asyncio.DatagramProtocol], group: Endpoint, bind: Endpoint, *, listens: bool
) -> asyncio.DatagramTransport:
    """Open a multicast socket of this machine, see ``OpenMulticast``."""
    sock = _socket(group, bind, listens=listens)
    try:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return transport


def _socket(group: Endpoint, bind: Endpoint, *, listens: bool) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        interface = socket.inet_aton(bind[0] or "0.0.0.0")
        if listens:
            # Several brokers of one machine hear the same group. Linux gives a socket that is bound
            # to a group nothing that was sent to another address.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(group)
            membership = socket.inet_aton(group[0]) + interface
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sock.bind(bind)
    except BaseException:
        sock.close()
        raise
    return sock
