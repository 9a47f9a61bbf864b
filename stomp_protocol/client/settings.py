"""The settings of a client's connections, where brokers or users differ."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

import msgspec


def never(headers: Mapping[str, str]) -> bool:
    """Return False: no ERROR says for certain that nothing was done."""
    del headers
    return False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a connection; None for a header's name: the brokers have no such header."""

    login: str = ""
    passcode: str = ""
    virtual_host: str | None = None
    """The host in CONNECT; None is the client's name for the broker."""
    tls: ssl.SSLContext | None = None
    """The context of TLS; None: the connection is not encrypted."""
    heart_beat_s: float = 2.0
    """The seconds between heart-beats, wanted and offered; 0: there are none."""
    silent_beats: float = 2.5
    """The heart-beats without a byte after which a client gives the broker up."""
    connect_s: float = 5.0
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


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules by which a client connects and fails over; the defaults are those of Open MQ.

    Between attempts at different brokers there is no pause: none of them is spared by waiting.
    """

    iterations: int = 1
    """The rounds over the whole list; 0 or less: until a broker accepts."""
    attempts: int = 0
    """The further attempts at a broker before the next one is tried; below 0: without end."""
    interval_s: float = 3.0
    """The seconds before a further attempt at a broker, and before a further round."""
    jitter_s: tuple[float, float] | None = None
    """The least and the most seconds before a further round; None: ``interval_s``."""
    reconnect: bool = False
    """Whether the client connects again when its connection ends."""
