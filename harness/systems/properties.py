"""The check that a value of ``--set`` has the type that its property demands, in any system."""

from __future__ import annotations

from typing import Any, Final

from harness.interface import UsageError

_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def checked(where: str, value: Any, kind: type | tuple[str, ...]) -> Any:
    """Return the value; raise UsageError if it is not of that type, or none of these words."""
    if isinstance(kind, tuple):
        if value in kind:
            return value
        raise UsageError(f"{where}={value}: it must be {', '.join(kind[:-1])} or {kind[-1]}")
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fits or (kind is float and isinstance(value, int)):
        return value
    raise UsageError(f"{where}={value}: it must be {_WORDS[kind]}")
