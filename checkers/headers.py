"""The digest of the application's own headers of a message.

A broker may change the case of a name and the type of a value, and add headers of its own. So names
count in lower case, values as texts, and among the headers that arrived only those whose names the
producer set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any


def digest(headers: Mapping[str, Any], names: Iterable[str] | None = None) -> int:
    """Return a number that differs where a header was changed or dropped.

    ``names`` are the headers that count, in lower case; None: all.
    """
    plain = {name.lower(): _text(value) for name, value in headers.items()}
    chosen = sorted(plain if names is None else set(names) & plain.keys())
    text = repr([(name, plain[name]) for name in chosen])
    return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=4).digest())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
