"""Decides what a history shows: ``from checkers import check`` (docs/how-to/check-from-python.md).

With Spark where a history is large. What is named here is imported when it is first used: most that
import a module of this package need neither Arrow nor Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from checkers.brought import Checked, check
    from checkers.source import HistoryError
    from checkers.verdict import CheckOptions, Finding, Promises, Verdict, Witness

__all__ = [
    "CheckOptions",
    "Checked",
    "Finding",
    "HistoryError",
    "Promises",
    "Verdict",
    "Witness",
    "check",
]

_OF: Final = {"check": "checkers.brought", "Checked": "checkers.brought", "HistoryError": "checkers.source"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_OF.get(name, "checkers.verdict")), name)
