"""Which findings break which promise: the table of docs/explanation/verdicts.md as data, in this one place.

Every finding is reported whatever the guarantee; this decides only whether it makes the test invalid.
"""

from __future__ import annotations

from typing import Final

from checkers.verdict import CheckOptions, Severity

_ALWAYS: Final = frozenset(
    {
        "phantom",
        "corrupted",
        "aborted-delivery",
        "double-delivery",
        "group-split",
        "split-brain",
        "double-takeover",
        "zombie",
        "diverged",
        "not-recovered",
    }
)
_LOSSLESS: Final = frozenset({"lost", "stuck"})
_ORDER: Final = frozenset({"reordered", "reordered-realtime", "reordered-session"})

BROKEN_BY: Final[dict[str, frozenset[str]]] = {
    "at-most-once": _ALWAYS | {"duplicate", "unflagged-redelivery", "redelivery"},
    "at-least-once": _ALWAYS | _LOSSLESS | {"duplicate"},
    "exactly-once": _ALWAYS | _LOSSLESS | {"duplicate", "unflagged-redelivery", "redelivery"},
}
"""What is grave under each guarantee, besides ``_ORDER`` when order was promised, and ``unavailable`` by its faults."""


def severity(name: str, options: CheckOptions, *, excused: bool = False) -> Severity:
    """``excused``: an unavailability that the faults in force explain."""
    if name in BROKEN_BY[options.guarantee]:
        return "grave"
    if name == "unavailable":
        return "warning" if excused else "grave"
    if name in _ORDER:
        return "grave" if options.ordered else "info"
    return "info" if name == "redelivery" else "warning"
