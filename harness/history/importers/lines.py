"""The reading of events by line: JSON objects, or a table with commas under a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

import msgspec

from checkers.intake import FIELDS, Event
from checkers.schema import KINDS

LONGEST: Final = 16 * 1024 * 1024
"""The maximum number of bytes of a line."""
_BOM: Final = b"\xef\xbb\xbf"
"""The mark that some editors write before the first line of a file in UTF-8."""


class LineError(ValueError):
    """A line that cannot be read, and what is wrong with it."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, counted from 1; raise LineError for one that is too long."""
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if len(line) == LONGEST:
            raise LineError(number, f"the line is longer than {LONGEST >> 20} MB")
        yield number, line


def texts(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file as texts. Raises LineError."""
    for number, line in numbered(file):
        try:
            yield line.removeprefix(_BOM).decode() if number == 1 else line.decode()
        except UnicodeDecodeError as error:
            raise LineError(number, f"byte {error.start + 1} is no UTF-8") from None


def json_lines(file: BinaryIO) -> Iterator[tuple[int, Event]]:
    """Yield a JSON object for each line; skip empty lines. Raises LineError."""
    for number, bytes_ in numbered(file):
        line = bytes_.removeprefix(_BOM) if number == 1 else bytes_
        if not line.strip():
            continue
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LineError(number, f"it is no JSON: {_half_of_pair(line) or _first(error)}") from None
        if not isinstance(event, dict):
            raise LineError(number, "it is no JSON object: each line must be one, in braces")
        yield number, event


def _half_of_pair(line: bytes) -> str:
    """Return what is wrong with JSON that has one half of a surrogate pair; "" if it has none.

    The decoder itself says that such a line was truncated.
    """
    for escape in _ESCAPES.finditer(line.decode(errors="replace")):
        if escape["half"]:
            return f"{escape['half']} is one half of a surrogate pair, without the other"
    return ""


_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""Surrogate pairs, halves of one, and all other escapes."""


def table(file: BinaryIO) -> Iterator[tuple[int, Event]]:
    """Yield an event for each line of a table with commas. Raises LineError.

    An empty field gives the event no such field.
    """
    reader = csv.reader(texts(file), strict=True)
    header = next(_rows(reader), None)
    if header is None:
        return
    strange = [name for name in header if name not in FIELDS]
    if strange or len(set(header)) < len(header):
        problem = f'unknown column "{strange[0]:.60}"' if strange else "a column is there twice"
        raise LineError(1, f"{problem}: the first line must name columns of {', '.join(FIELDS)}")
    read = [(name, _READ.get(KINDS[name], str) if name not in _EITHER else _either) for name in header]
    for row in _rows(reader):
        if not row:
            continue
        if len(row) != len(header):
            raise LineError(reader.line_num, f"it has {len(row)} fields, and the first line {len(header)}")
        yield reader.line_num, _event(read, row, reader.line_num)


_EITHER: Final = (
    "message",
    "digest",
    "headers",
    "process",
    "producer",
    "session",
    "transaction",
    "connection",
)


def _rows(reader: Any) -> Iterator[list[str]]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise LineError(reader.line_num, f"it is no line of a table: {_first(error)}") from None


def _event(read: Iterable[tuple[str, Callable[[str], Any]]], row: Iterable[str], line: int) -> dict[str, Any]:
    event = {}
    for (name, convert), text in zip(read, row, strict=True):
        if text:
            try:
                event[name] = convert(text)
            except ValueError:
                raise LineError(line, f"{name} is {text!r:.60}: it must be {_WORDS[KINDS[name]]}") from None
    return event


def _either(text: str) -> int | str:
    """Return a text as a number if it is one."""
    try:
        return _whole_number(text)
    except ValueError:
        return text


def _whole_number(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not text.isascii() or str(int(text)) != text:
        raise ValueError(text)
    return int(text)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "int64": _whole_number,
    "int32": _whole_number,
    "bool": _truth,
}
_WORDS: Final = {"int64": "a whole number", "int32": "a whole number", "bool": "true or false"}


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
