"""The command line of ``jepsen-run shrink``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.interface import UsageError


@click.command("shrink", context_settings=options.CONTEXT)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@options.spec_option("environment", "Environment of the runs [that of the finding].")
@options.listed(
    "--finding",
    "findings",
    "Findings that must all occur, separated by commas [those of PATH; in the simulation its first one].",
)
@click.option(
    "--need",
    type=options.COUNT,
    help="Number of runs in which the findings must occur, on real processes [1].",
)
@click.option(
    "--times", type=options.COUNT, help="Maximum number of runs of each schedule, on real processes [3]."
)
@click.option(
    "--runs",
    type=options.COUNT,
    help="Maximum number of runs in total [300 in the simulation, 60 elsewhere].",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=options.MORE_THAN_ZERO,
    help="Start no new run after this many seconds of runs [3600].",
)
@click.option(
    "--resume",
    "store",
    type=click.Path(path_type=Path),
    help="Continue the shrinking in this directory; --runs and --time-limit may be raised.",
)
@options.home()
@options.store()
@options.volume()
def shrink_command(
    store: Path | None,
    path: Path | None,
    root: Path,
    runs: int | None,
    time_limit_s: float | None,
    **given: Any,
) -> int:
    """Make a finding smaller.

    PATH is a repro.json or the directory of a run.

    On real processes, shrink accepts a smaller schedule if the findings occur in --need of at most
    --times runs.
    """
    from harness.explore.shrink import reduction  # noqa: PLC0415 - imports every part; errors of usage need none

    fields = {name: value for name, value in given.items() if value is not None}
    if store is not None:
        directory = options.resumed(store, fields if path is None else {**fields, "path": path})
        return reduction.resume(directory, runs=runs, time_limit_s=time_limit_s)
    if path is None:
        raise UsageError("shrink: give a repro.json or a run's directory, or --resume a shrinking")
    return reduction.run(
        reduction.ShrinkRequest(path=path, root=root, runs=runs, time_limit_s=time_limit_s, **fields)
    )
