"""The refuters of the rows, which are part of the project's tests.

Why not of the product: a refuter replaces source text of the broker. Who installs the product does
not change the broker, and a renamed variable must break no command.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.scenario import Scenario
from harness.interface import UsageError

_TESTS: Final = Path(__file__).resolve().parents[2] / "tests"


def refutation() -> ModuleType:
    """Return the module that tries rows with changed brokers. Raises UsageError."""
    if not _is_checkout():
        raise UsageError(
            "--refute: the changed brokers are in tests/mutants of the project's repository; "
            "run this in a checkout that was installed with: pip install -e ."
        )
    return _module("mutants.refutation")


def refuter_words(row: Scenario | Probe) -> str:
    """Return what is removed from the broker, and how the row notices; "" outside of a checkout."""
    if not _is_checkout():
        return ""
    refuter = _module("mutants.refuters").REFUTERS.get(row.id)
    if refuter is None:
        return "none"
    fails = f'step "{refuter.fails}"' if isinstance(row, Probe) else refuter.fails
    return f"{refuter.without}: {fails}"


def _is_checkout() -> bool:
    return (_TESTS / "mutants" / "refutation.py").is_file()


def _module(name: str) -> ModuleType:
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    return importlib.import_module(name)
