"""What a person and a CI server read of a run: report.html and junit.xml, from what is stored.

Why apart from whoever ran it: a run that a search found, a sweep kept or a shrink made smaller is
read like one that somebody asked for, and a failure here never changes a verdict.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

from checkers.cause import in_a_line
from harness.history import judge as judging
from harness.interface import InfrastructureError, UsageError

_REPORTS: Final = {"report": "harness.report.html", "junit": "harness.report.junit"}


def write(store: Path) -> None:
    """Both, of a run that is judged; whatever goes wrong is told and changes nothing."""
    for name, module in _REPORTS.items():
        try:
            importlib.import_module(module).write(store)
        except Exception as error:  # noqa: BLE001 - a report can never change a verdict
            print(f"{name} was not written: {in_a_line(error)}", file=sys.stderr)


def judge_and_write(store: Path) -> None:
    """The verdict and both reports of a run that was kept without being judged by all rules."""
    from checkers import api  # noqa: PLC0415 - imports Arrow, which most commands do without

    try:
        judging.judge(store, api.start)
    except (InfrastructureError, UsageError) as error:
        print(f"no report was written of {store}: {error}", file=sys.stderr)
    else:
        write(store)
