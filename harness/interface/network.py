"""Addresses, and the links between nodes and client zones."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True, order=True):
    """The host and port to connect to, or to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Link(msgspec.Struct, frozen=True, order=True):
    """A directed link: what ``source`` sends to ``target``.

    Ends are node names or client zones ("zone1", "zone2").
    """

    source: str
    target: str
