"""Addresses, and the links between those who use them."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True, order=True):
    """Where to connect to, or where to listen."""

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
