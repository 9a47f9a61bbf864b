"""Whose fault it is when a test cannot be run: the machine's, or the person's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class InfrastructureError(Exception):
    """The machine, not the broker, is at fault.

    A container that never started, a port in use, a missing tool.

    The run ends as unknown with this text first. Say what failed, where, and what would mend it.
    """


class UsageError(Exception):
    """The person's input is at fault.

    One line saying what is wrong, where, and what would be right. Exit status 254.
    """


def meant(name: str, known: Iterable[str]) -> str:
    """'did you mean "kill"? ' in an error message, or "" where nothing known is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"? ' if close else ""


def near(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, or all of them."""
    names = sorted(known)
    return meant(name, names).rstrip() or f"known: {', '.join(names) or 'none'}"


def choose(what: str, name: str, known: Iterable[str]) -> str:
    """``name`` if it is known. Raises UsageError naming the near one."""
    names = list(known)
    if name not in names:
        raise UsageError(f'unknown {what} "{name}": {near(name, names)}')
    return name


def converted(where: str, table: Mapping[str, Any], kind: type[S], *, noun: str = "") -> S:
    """A table that somebody wrote as what it is to be.

    Raises UsageError with ``where`` it stands, naming the field, which ``noun`` calls so.
    """
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in table:
        if name not in known:
            raise UsageError(f'{where}: unknown {noun or "key"} "{name}": {near(name, known)}')
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).replace("`", "").partition(" - at $.")
        named = f'{noun} "{place}": '.lstrip() if place else ""
        raise UsageError(f"{where}: {named}{text[0].lower()}{text[1:]}") from None
