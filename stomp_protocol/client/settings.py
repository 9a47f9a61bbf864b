"""The settings of a client's connections, where brokers or users differ."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence

import msgspec


def never(headers: Mapping[str, str]) -> bool:
    """Return False: no ERROR says for certain that nothing was done."""
    del headers
    return False


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The destination on which brokers tell their clients which nodes are live.

    ``nodes`` reads a message from there and returns names of nodes, those to be tried first at the
    front. It returns no names for a message that it cannot read.
    """

    destination: str
    nodes: Callable[[bytes], Sequence[str]]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a connection; None for a header's name: the brokers have no such header."""

    login: str = ""
    passcode: str = ""
    virtual_host: str | None = None
    """The host in CONNECT; None is the client's name for the broker."""
    tls: ssl.SSLContext | None = None
    """The context of TLS; None: the connection is not encrypted."""
    heart_beat_s: float = 0.5
    """The seconds between heart-beats, wanted and offered; 0: there are none."""
    silent_beats: float = 2.5
    """The heart-beats without a byte after which a client gives the broker up."""
    connect_s: float = 1.0
    """The seconds from the first packet to CONNECTED."""
    operation_timeout_s: float = 30.0
    """The seconds that an operation waits for its receipt."""
    name_header: str | None = "broker"
    """The header of CONNECTED with the broker's own name."""
    store_header: str | None = "store-session"
    """The header that names the store in which a broker keeps what a connection sends.

    The broker names it in CONNECTED. In CONNECT it leads to the broker that owns that store.
    """
    redirect_header: str | None = "redirect"
    """The header of ERROR with the address of the broker to connect to instead."""
    refused: Callable[[Mapping[str, str]], bool] = never
    """Whether the headers of an ERROR say that the requested operation certainly did not happen."""
