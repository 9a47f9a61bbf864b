"""The printing for people: colours and widths of a terminal, and escaped foreign texts.

Why here, below everything that prints: names chosen by others reach the terminal in verdicts,
errors, warnings and library messages. Each place that forgot to escape one would be a hole. See
``checkers.visible``.
"""

from __future__ import annotations

import enum
import io
import os
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from checkers.visible import visible_lines
from harness.interface import program

if TYPE_CHECKING:
    from rich.console import Console


class Volume(enum.Enum):
    """The amount that a command prints: ``--quiet``, what is usual, or ``--verbose``."""

    QUIET = enum.auto()
    USUAL = enum.auto()
    VERBOSE = enum.auto()


_volume: ContextVar[Volume] = ContextVar("volume", default=Volume.USUAL)


def volume() -> Volume:
    """Return how much the present command prints."""
    return _volume.get()


def is_quiet() -> bool:
    """Return whether only results are printed."""
    return _volume.get() is Volume.QUIET


def is_verbose() -> bool:
    """Return whether every step is printed."""
    return _volume.get() is Volume.VERBOSE


@contextmanager
def use_volume(volume: Volume) -> Iterator[None]:
    """Print so much while the context lasts.

    Why a context variable: what prints is far below the command line, in several layers that have
    nothing else to do with it.
    """
    token = _volume.set(volume)
    try:
        yield
    finally:
        _volume.reset(token)


WIDTH: Final = 80
"""The width of a line where no terminal says how wide it is."""

NARROWEST: Final = 40
"""The smallest width of a line: in a narrower terminal the terminal breaks the lines."""

_GLUE: Final = "\x1f"
_TOGETHER: Final = re.compile(
    r"\b(?:sudo [a-z-]+ [a-z-]+|apt-get) [^;:,()]+|--[a-z-]+ [^\s-]|(?<=\d) (?=m?s\b)"
)
"""The parts of a text that no line end divides."""


class VisibleStream(io.TextIOWrapper):
    """A stream of text that shows control characters instead of obeying them."""

    def write(self, text: str, /) -> int:
        """Write a text with its control characters made visible."""
        super().write(visible_lines(text))
        return len(text)


class _Drawing:
    """A stream for displays that draw on the terminal and escape foreign texts themselves."""

    def __init__(self, stream: VisibleStream) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def drawing_on(stream: TextIO) -> TextIO:
    """Return the stream as its terminal takes it, with colours and movements of the cursor."""
    return cast("TextIO", _Drawing(stream)) if isinstance(stream, VisibleStream) else stream


def width(stream: TextIO) -> int:
    """Return the number of columns for a text on this stream.

    That is ``COLUMNS``, if it is set; else the width of the terminal; else ``WIDTH``.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(NARROWEST, int(columns))
    try:
        terminal_columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file at all
        return WIDTH
    return max(NARROWEST, terminal_columns) if terminal_columns else WIDTH  # 0 is not known


def console(stream: TextIO) -> Console:
    """Return a console that prints coloured text on a terminal, and plain text elsewhere.

    With ``NO_COLOR`` it is plain on a terminal, too. The caller escapes foreign texts.
    """
    from rich.console import Console  # noqa: PLC0415 - a slow import that few commands need

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        file=drawing_on(stream),
        width=width(stream),
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def wrapped(text: str, columns: int, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Yield the lines of a text, broken at spaces, with an indentation for the first and the rest.

    A word that is longer than a line stays whole, so that a path or an address can be copied. So
    does a command, an option with its value, and a number with its unit.
    """
    glued = _TOGETHER.sub(lambda found: found[0].replace(" ", _GLUE), text)
    lines = textwrap.wrap(
        glued,
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(_GLUE, " ") for line in lines)


_VERDICT: Final = re.compile(r"(?P<word>[A-Z]{2,}(?: [A-Z]{2,})*)(?:, BUT KNOWN)?(?=  )")
_LABEL: Final = re.compile(r"[A-Z][a-z]+(?: [a-z]+)? {2,}|All runs |[A-Z][a-z]+(?= \()")
_FINDING: Final = re.compile(r"  (?P<name>[a-z-]+ x \d+ \((?P<severity>grave|warning|info)\)):")
_ROW: Final = re.compile(r" {6}(?:#\d|\.\.\.)")
_UNBROKEN: Final = frozenset(
    {"Again", "All runs", "Fault", "Go on", "Judge", "Kept", "More", "Replay", "Report"}
)
"""The labels of lines that people copy: they are never broken."""

_GREEN: Final = frozenset({"VALID", "NOTHING FOUND", "FIXED"})
_YELLOW: Final = frozenset({"UNKNOWN", "NOT REPRODUCED", "NOT SMALLER"})
_SEVERITIES: Final = {"grave": "bold red", "warning": "yellow", "info": "cyan"}


def show(stream: TextIO, text: str) -> None:
    """Print the lines of a result: wrapped, and with colours on a terminal that has them.

    A verdict and a command stay on one line, so that scripts find them and people can copy them.
    Broken lines have a hanging indentation. Foreign parts of the text were made visible before.
    """
    columns = width(stream)
    if not _colours(stream):
        print("\n".join(part for line in text.split("\n") for part in _broken(line, columns)), file=stream)
        stream.flush()
        return
    from rich.text import Text  # noqa: PLC0415 - as above

    on = console(stream)
    for line in text.split("\n"):
        styled = Text("\n".join(_broken(line, columns)))
        for start, end, style in _styles(line):
            styled.stylize(style, start, end)
        on.print(styled)
    stream.flush()


def _colours(stream: TextIO) -> bool:
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _broken(line: str, columns: int) -> list[str]:
    """Return the parts of a line that does not fit."""
    label = _LABEL.match(line)
    is_whole = _VERDICT.match(line) is not None or f"{program.command()} " in line
    if len(line) <= columns or is_whole or (label is not None and label[0].strip() in _UNBROKEN):
        return [line]
    indent = len(line) - len(line.lstrip())
    rest = " " * (label.end() if label is not None else indent + 2)
    return list(wrapped(line[indent:], columns, first=" " * indent, rest=rest))


def _styles(line: str) -> Iterator[tuple[int, int, str]]:
    """Yield the styles of a line, each with the characters it is for."""
    if verdict := _VERDICT.match(line):
        word = verdict["word"]
        colour = "green" if word in _GREEN else "yellow" if word in _YELLOW else "red"
        yield 0, verdict.end(), f"bold {colour}"
    elif finding := _FINDING.match(line):
        yield *finding.span("name"), _SEVERITIES[finding["severity"]]
    elif label := _LABEL.match(line):
        yield 0, label.end(), "bold"
    elif _ROW.match(line):
        yield 0, 10_000, "dim"
