"""The reading of texts that a person wrote, JSON and TOML, as values.

Why around the libraries: ten thousand nested values end their recursion, and a TOML key of a
hundred thousand parts takes all the memory of the machine. Neither is a bug of ours or the
machine's fault; the reader of such a file reports in one line what is wrong with it.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MOST_PARTS: Final = 50
"""The maximum number of parts of a TOML key: tomllib needs memory for the square of them."""

_PART: Final = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*"""
_LONG_KEY: Final = re.compile(rf"(?:{_PART}\.[ \t]*){{{MOST_PARTS}}}{_PART}[=\]]")
_TOO_DEEP: Final = "values within values, too deep to be read"


def json_value(text: bytes, type_: type[T]) -> T:
    """Return what a JSON text says. Raises msgspec.MsgspecError or UnicodeDecodeError."""
    try:
        return msgspec.json.decode(text, type=type_)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None


def toml_table(text: str) -> dict[str, Any]:
    """Return what a TOML text says. Raises ValueError."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
