"""Passwords that are not readable in a configuration file.

``ENC(...)``, made by ``brokerctl mask`` (AMQ 17.3.2.2).

Why, though it is no secret: whoever has the file and the key has the password. It keeps a password
from the eyes of those who look over a shoulder, search a repository or read a backup. The key is
the environment variable ``BROKERD_MASK_KEY`` of the broker and of ``brokerctl mask``; without it a
key that everybody can read in this file, as the documents' own default is.

The text is XORed with a keystream of HMAC-SHA-256 over a counter; its own HMAC is the nonce and
tells a wrong key from the right one.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final

KEY_VARIABLE: Final = "BROKERD_MASK_KEY"
DEFAULT_KEY: Final = "clusterpassword"
"""As well known as the documents' own."""

_PREFIX: Final = "ENC("
_TAG_BYTES: Final = 16


class MaskError(ValueError):
    """A masked text that is damaged or was masked with another key; never carries the text."""


def mask(text: str, environment: Mapping[str, str]) -> str:
    """``ENC(...)`` of a text."""
    key = _key(environment)
    plain = text.encode()
    tag = hmac.digest(key, b"tag" + plain, "sha256")[:_TAG_BYTES]
    return f"{_PREFIX}{base64.b64encode(tag + _stream(key, tag, plain)).decode()})"


def unmask(text: str, environment: Mapping[str, str]) -> str:
    """The text behind ``ENC(...)``; any other text as it is. Raises MaskError."""
    if not (text.startswith(_PREFIX) and text.endswith(")")):
        return text
    key = _key(environment)
    try:
        masked = base64.b64decode(text.removeprefix(_PREFIX)[:-1], validate=True)
    except binascii.Error:
        raise MaskError(
            "ENC(...) does not hold base64: mask the password again with brokerctl mask"
        ) from None
    tag = masked[:_TAG_BYTES]
    plain = _stream(key, tag, masked[_TAG_BYTES:])
    if not hmac.compare_digest(tag, hmac.digest(key, b"tag" + plain, "sha256")[:_TAG_BYTES]):
        raise MaskError(
            f"ENC(...) was masked with another key: {KEY_VARIABLE} must be the same for brokerd and "
            "brokerctl mask"
        )
    return plain.decode()


def _key(environment: Mapping[str, str]) -> bytes:
    return environment.get(KEY_VARIABLE, DEFAULT_KEY).encode()


def _stream(key: bytes, nonce: bytes, data: bytes) -> bytes:
    blocks = (
        hmac.digest(key, b"stream" + nonce + number.to_bytes(4, "big"), "sha256")
        for number in range(len(data) // 32 + 1)
    )
    return bytes(a ^ b for a, b in zip(data, b"".join(blocks), strict=False))
