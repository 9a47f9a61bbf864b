"""Control characters made visible, so that no name in a history can draw on a terminal.

Queues, groups and brokers are named by others. A name may hold what clears a screen, sets the
title of a window, begins a line, or turns the direction of writing; whoever reads a verdict must
see that it does, instead of what it does.
"""

from __future__ import annotations

from typing import Final

_TURNING: Final = (*range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""What turns the direction of writing, and two separators that may begin a new line."""

_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in range(0x20)},
    **{code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0), *_TURNING)},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}
"""How each is written. What may be in a JSON text as it is, is written as JSON would."""
del _ESCAPES[ord("\t")]

_LINES_KEPT: Final = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}


def visible(text: str) -> str:
    """Return one line in which no character moves the cursor of a terminal or is hidden."""
    return text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """Return several lines in which no character does that, but those that end them."""
    return text.translate(_LINES_KEPT)
