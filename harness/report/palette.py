"""The colours and line styles of the pages and their pictures.

Why variables of a style sheet: one page must be read on light and on dark paper, and so must the
pictures in it. Each colour has at least the contrast 4.5 to its paper, in which a text on it is
written, too. Why line styles besides: a colour-blind reader and a printout have no colours. So each
role has a width and dashes of its own, and so has each curve.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Shade(NamedTuple):
    """A colour on light and on dark paper."""

    light: str
    dark: str


SHADES: Final = {
    "text": Shade("#1f2328", "#e6edf3"),
    "paper": Shade("#ffffff", "#0d1117"),
    "faint": Shade("#57606a", "#9da7b3"),
    "line": Shade("#d0d7de", "#3d444d"),
    "shade": Shade("#f6f8fa", "#161b22"),
    "red": Shade("#cf222e", "#ff7b72"),
    "green": Shade("#1a7f37", "#3fb950"),
    "amber": Shade("#9a6700", "#d29922"),
    "blue": Shade("#0969da", "#58a6ff"),
    "purple": Shade("#8250df", "#bc8cff"),
    "teal": Shade("#0e7490", "#39c5cf"),
}
"""The colours by name; lines of tables and pictures need less contrast than the others."""

TEXT: Final = "var(--text)"
PAPER: Final = "var(--paper)"
FAINT: Final = "var(--faint)"
LINE: Final = "var(--line)"
RED: Final = "var(--red)"
GREEN: Final = "var(--green)"
AMBER: Final = "var(--amber)"
BLUE: Final = "var(--blue)"
PURPLE: Final = "var(--purple)"
TEAL: Final = "var(--teal)"

TRANSACTION: Final = PURPLE
SUBSCRIPTION: Final = TEAL
CONSUMPTION: Final = BLUE


class Stroke(NamedTuple):
    """The look of a line: its colour, its width in pixels and its dashes (none: "")."""

    colour: str
    width: float
    dashes: str = ""

    def attributes(self, scale: float = 1) -> str:
        """Return the stroke as attributes of an element of SVG, wider by a factor."""
        dashes = f' stroke-dasharray="{self.dashes}"' if self.dashes else ""
        return f'stroke="{self.colour}" stroke-width="{self.width * scale:g}"{dashes}'


WIDEST: Final = 9
"""The width of the lane of a broker that is live."""
ROLES: Final = {
    "live": Stroke(GREEN, WIDEST),
    "backup": Stroke(BLUE, 4),
    "synchronizing": Stroke(BLUE, 4, "2 3"),
    "voting": Stroke(AMBER, WIDEST, "2 3"),
    "verifying": Stroke(AMBER, WIDEST, "6 3"),
    "starting": Stroke(FAINT, 4, "6 3"),
    "stopping": Stroke(FAINT, 4, "6 3 2 3"),
    "stopped": Stroke(FAINT, 1.5),
    "unreachable": Stroke(FAINT, 1.5, "1 4"),
}
UNKNOWN_ROLE: Final = Stroke(LINE, WIDEST)

LINKS: Final = {
    "all": Stroke(GREEN, 4),
    "not all": Stroke(AMBER, 4, "6 3"),
    "none": Stroke(RED, 4, "2 3"),
    "no other": Stroke(FAINT, 1.5),
}
"""The lanes of a broker's links, by the part of the other live brokers that it is linked with."""

CURVES: Final = {
    "sends acknowledged": Stroke(BLUE, 1.5),
    "deliveries": Stroke(GREEN, 1.5, "6 3"),
    "unknown outcome": Stroke(RED, 1.5, "2 2"),
    "failed": Stroke(AMBER, 1.5, "8 3 2 3"),
    "median": Stroke(BLUE, 1.5),
    "99th percentile": Stroke(PURPLE, 1.5, "6 3"),
    "open": Stroke(TRANSACTION, 1.5),
    "committed": Stroke(GREEN, 1.5, "6 3"),
    "rolled back": Stroke(FAINT, 1.5, "4 2"),
    "cut off": Stroke(BLUE, 1.5),
}
UNKNOWN_CURVE: Final = Stroke(TEXT, 1.5)


def key(stroke: Stroke) -> str:
    """Return a short piece of a line as a picture, to stand before its name."""
    return (
        '<svg class="key" width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">'
        f'<path d="M0 5h26" fill="none" {stroke.attributes()}/></svg>'
    )


def style_sheet() -> str:
    """Return the rules that define the colours; what is printed has those of light paper."""
    light, dark = (
        " ".join(f"--{name}: {shade[paper]};" for name, shade in SHADES.items()) for paper in (0, 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def resolve_light(svg: str) -> str:
    """Return a picture that needs no style sheet."""
    return re.sub(r"var\(--([a-z]+)\)", lambda match: SHADES[match[1]].light, svg)
