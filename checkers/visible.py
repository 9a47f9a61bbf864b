"""Control characters made visible, so that no name in a history can draw on a terminal.

The names of queues, groups and brokers come from others. A name may have characters that clear a
screen, set the title of a window, begin a line, or turn the direction of writing. The reader of a
verdict must see the characters instead of their effect.
"""

from __future__ import annotations

from typing import Final

_TURNING: Final = (*range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""The characters that turn the direction of writing, and two that may begin a new line."""

_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in range(0x20)},
    **{code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0), *_TURNING)},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}
"""The writing of each character: as in JSON, if JSON allows the character only escaped."""
del _ESCAPES[ord("\t")]

_LINES_KEPT: Final = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}


def visible(text: str) -> str:
    """Return one line in which no character moves the cursor of a terminal or is hidden."""
    return text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """Return several lines in which only line ends move the cursor, and no character is hidden."""
    return text.translate(_LINES_KEPT)
