"""Standard streams that show control characters in foreign texts: see ``checkers.visible``.

Why here, below everything that prints: names chosen by others reach the terminal in verdicts,
errors, warnings and library messages. Each place that forgot to escape one would be a hole.
"""

from __future__ import annotations

import io
from typing import Any, TextIO, cast

from checkers.visible import visible_lines


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
