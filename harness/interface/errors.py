"""The errors of a test that cannot be run: the machine's fault, or the person's."""

from __future__ import annotations

import difflib
import errno
import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class InfrastructureError(Exception):
    """The machine, not the broker, is at fault.

    A container that never started, a port in use, a missing tool.

    The run ends as unknown with this text first. Say what failed, where, and how to repair it.
    """


class UsageError(Exception):
    """The person's input is at fault.

    One line says what is wrong, where, and what would be right. Exit status 254.
    """


class CommandRefusedError(OSError):
    """A broker refused an administrator's command, and certainly changed nothing."""


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
_EXHAUSTED: Final = (*_FULL, *_TOO_MANY, errno.ENOMEM)


def exhausted(error: BaseException) -> str | None:
    """Return one line that says what the machine ran out of, or None if it ran out of nothing.

    The error may be raised anywhere, by any library, and wrapped in others: a full disk and a
    process without open files left are never bugs of ours.
    """
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _EXHAUSTED:
            where = f" ({cause.filename})" if cause.filename else ""
            return f"{os.strerror(cause.errno)}{where}: {_remedy(cause.errno)}"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, the errors of its group, and what each of them was raised from."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions


def _remedy(number: int) -> str:
    if number in _TOO_MANY:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"a process may open {limit} files here; allow more, for example with ulimit -n 4096"
    if number in _FULL:
        return "free some space, or name another directory with --store"
    return "the machine has too little memory for this test"


def meant(name: str, known: Iterable[str]) -> str:
    """Return 'did you mean "kill"? ' for an error message, or "" if no known name is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"? ' if close else ""


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest known name, or all of them."""
    names = sorted(known)
    return meant(name, names).rstrip() or f"known: {', '.join(names) or 'none'}"


def choose(what: str, name: str, known: Iterable[str]) -> str:
    """Return ``name`` if it is known; else raise UsageError that names the nearest known name."""
    names = list(known)
    if name not in names:
        raise UsageError(f'unknown {what} "{name}": {near(name, names)}')
    return name


def converted(where: str, table: Mapping[str, Any], kind: type[S], *, noun: str = "") -> S:
    """Convert a table that a person wrote into a struct.

    Raises UsageError that says ``where`` the table stands and which field is wrong; ``noun`` is the
    word for a field.
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
