"""Proving that one knows a secret without sending it: HMAC-SHA-256 over a fresh nonce of each side.

Why both nonces are in each proof: a proof that was overheard is worth nothing in the next
conversation. Why the name of the port and of the side are in it: what one side said must not do as
the answer of the other, nor a proof for one port at another port with the same secret.

The side that connects proves itself first. So a stranger who connects gets nothing to try passwords
against, only whom he can make connect to him. What the HMAC does not do: what follows is neither
encrypted nor signed. Who can change packets on the way needs TLS (``broker.tls``) against him.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal

NONCE_BYTES: Final = 32

Port = Literal["cluster", "admin"]
Side = Literal["connecting", "accepting"]


def proof(
    secret: str, port: Port, side: Side, connecting: bytes, accepting: bytes, *, user: str = ""
) -> bytes:
    """Return what ``side`` says to prove that it knows ``secret``, given the nonces of both sides.

    ``user`` is a name that both sides must know as well, and that is not sent either.
    """
    message = f"{port} {side} {user}".encode() + connecting + accepting
    return hmac.digest(secret.encode(), message, hashlib.sha256)


def is_proof(said: bytes, secret: str, port: Port, side: Side, connecting: bytes, accepting: bytes) -> bool:
    """Whether that is it; takes as long for a wrong one."""
    return hmac.compare_digest(said, proof(secret, port, side, connecting, accepting))
