"""The page of a sweep, ``table.html``: how often each nemesis broke each policy, and in which runs.

Why besides the printed table: a nightly sweep is read by people who were not there, and who want to
open the runs that broke something.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.explore.sweep.table import ANY, Rate, Row
from harness.history import store as stores
from harness.report.templating import TEMPLATES

if TYPE_CHECKING:
    from harness.explore.sweep.sweep import Sweep


def write(store: Path, sweep: Sweep, directories: Mapping[int, Path]) -> Path:
    """Write the page of a sweep and return its path.

    ``directories`` are those of the runs that are kept, by number. Raises OSError.
    """
    reports = {
        number: (directory / stores.REPORT).relative_to(store).as_posix()
        for number, directory in directories.items()
        if (directory / stores.REPORT).is_file()
    }
    path = store / stores.SWEEP_PAGE
    path.write_text(
        TEMPLATES.get_template("sweep.html.j2").render(
            sweep=sweep,
            name=store.parent.name,
            rows=[(row, _select_rates(row)) for row in sweep.table],
            any=ANY,
            has_releases=any(row.release for row in sweep.table),
            listed=[run for run in sweep.runs if run.ended != "valid" or run.number in reports],
            reports=reports,
            overview=f"../../{stores.OVERVIEW}" if stores.root_of(store) is not None else "",
            table=stores.SWEEP_TABLE,
            resume=sweep.plan.resume_line(store),
        ),
        encoding="utf-8",
    )
    return path


def _select_rates(row: Row) -> list[tuple[str, Rate]]:
    """Return the rates of a row that ``table.text`` shows, too."""
    return [(name, rate) for name, rate in row.anomalies.items() if name == ANY or rate.seen or rate.known]
