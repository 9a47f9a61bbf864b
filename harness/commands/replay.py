"""The command line of ``jepsen-run replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options


@click.command("replay", context_settings=options.CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--times", type=options.COUNT, help="Number of runs [1 in the simulation, 3 elsewhere].")
@options.spec_option("environment", "Environment of the runs [that of the finding].")
@options.home()
@options.store("the runs on real processes")
@options.spark_master()
@options.as_json()
@options.volume()
def replay_command(**given: Any) -> int:
    """Repeat a run and see whether its findings come back.

    PATH is a repro.json or the directory of a run.

    In the simulation one run decides. Elsewhere the result says in how many of the runs a finding
    came back.
    """
    from harness.explore import replay  # noqa: PLC0415 - errors of usage need none of it

    return replay.run(replay.ReplayRequest(**given))
