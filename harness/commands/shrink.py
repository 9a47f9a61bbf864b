"""The command line of ``jepsen-run shrink``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options


@click.command("shrink", context_settings=options.CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--environment", help="Where to run it [where it was found].")
@click.option(
    "--need",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs that must give the finding, on real processes.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each schedule at the most, on real processes.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Runs in all [300 in the simulation, 60 elsewhere].")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Begin no run after so many seconds.",
)
@options.store()
def shrink_command(**given: Any) -> int:
    """Make a finding smaller; PATH is a repro.json or a run's directory."""
    from harness.explore.shrink import reduction  # noqa: PLC0415 - imports every part; errors of usage need none

    return reduction.run(reduction.ShrinkRequest(**given))
