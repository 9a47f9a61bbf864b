"""The output of a command that explores: lines for a person, or one document for a program.

With ``--json`` standard output has the document alone, and the lines are on standard error.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from checkers.visible import visible_lines
from harness.history import store as stores
from harness.report.progress import Meter
from harness.report.terminal import is_quiet, is_verbose, show

EVERY_S: Final = 10.0
"""The time between two lines about the progress (s)."""


@dataclass(slots=True)
class Talk:
    """A printer of lines; ``as_json`` says that the document is requested."""

    as_json: bool = False
    _printed_s: float = field(default_factory=time.monotonic)
    _meter: Meter | None = None

    @property
    def stream(self) -> TextIO:
        """The stream to which the lines go."""
        return sys.stderr if self.as_json else sys.stdout

    def __call__(self, text: str) -> None:
        """Print a line now, unless only results are wanted."""
        if is_quiet():
            return
        self.always(text)

    def always(self, text: str) -> None:
        """Print lines as they are, with ``--quiet``, too."""
        if self._meter is None:
            print(text, file=self.stream, flush=True)
        else:
            self._meter.note(text)

    @contextlib.contextmanager
    def metered(self) -> Iterator[Meter]:
        """Give a meter for what the body does; lines are printed above it."""
        with Meter(self.stream) as meter:
            self._meter = meter
            try:
                yield meter
            finally:
                self._meter = None

    def result(self, lines: Iterable[str]) -> None:
        """Print the last lines: wrapped, and with colours on a terminal."""
        show(self.stream, visible_lines("\n".join(lines)))

    def indented(self, text: str) -> None:
        """Print a line about a step."""
        self(f"  {text}")

    def detail(self, text: str) -> None:
        """Print a line about a step that only ``--verbose`` shows."""
        if is_verbose():
            self.indented(text)

    def now_and_then(self, text: str) -> None:
        """Print a line about the progress, unless a meter or a recent line shows it."""
        if self._meter is not None and self._meter.is_drawn:
            return
        if time.monotonic() - self._printed_s >= EVERY_S:
            self._printed_s = time.monotonic()
            self.indented(text)

    def document(self, value: Any) -> None:
        """Print the result as JSON, if a program is to read it."""
        if self.as_json:
            print(stores.as_json(value))


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: "1 fault", "2 properties"."""
    if number == 1:
        return f"1 {thing}"
    return (
        f"{number} {thing[:-1]}ies"
        if thing.endswith("y")
        else f"{number} {thing}{'es' * thing.endswith('s') or 's'}"
    )
