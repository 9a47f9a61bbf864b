"""The reports of a stored run: report.html for a person, junit.xml for a CI server.

The page of all runs of its store, index.html, is written with them.

Why apart from the code that runs tests: a run stored by a search, a sweep or a shrink is read like
one that a person asked for. A failure here never changes a verdict.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from checkers.cause import in_a_line
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import InfrastructureError, UsageError

_REPORTS: Final = {"report": "harness.report.html", "junit": "harness.report.junit"}


def write(store: Path) -> None:
    """Write the reports of a judged run; print any error, which changes nothing else."""
    for name, module in _REPORTS.items():
        attempt(name, partial(_write, module, store))
    root = stores.root_of(store)
    if root is not None:
        write_overview(root)


def write_overview(root: Path) -> None:
    """Write the page of all runs of a store; print any error, which changes nothing else."""
    attempt("overview of all runs", partial(_write, "harness.report.overview", root))


def _write(module: str, directory: Path) -> None:
    importlib.import_module(module).write(directory)


def attempt(name: str, write: Callable[[], object]) -> None:
    """Write a page; print any error, which changes nothing else."""
    try:
        write()
    except Exception as error:  # noqa: BLE001 - a report can never change a verdict
        print(f"{name} was not written: {in_a_line(error)}", file=sys.stderr)


def judge_and_write(store: Path) -> None:
    """Judge a run that was stored without a full verdict, and write its reports."""
    from checkers import api  # noqa: PLC0415 - imports Arrow, which most commands do without

    try:
        judging.judge(store, api.start)
    except (InfrastructureError, UsageError) as error:
        print(f"no report was written of {store}: {error}", file=sys.stderr)
    else:
        write(store)
