"""The command line of ``jepsen-run replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options


@click.command("replay", context_settings=options.CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--times", type=options.COUNT, help="Runs [1 in the simulation, 3 elsewhere].")
@click.option("--environment", help="Where to run it [where it was found].")
@options.home()
@options.store("runs on real processes are kept")
@options.spark_master()
@options.as_json()
def replay_command(**given: Any) -> int:
    """Run a finding again.

    PATH is a repro.json or a run's directory.

    The result is exact in the simulation, and k of n runs elsewhere.
    """
    from harness.explore import replay  # noqa: PLC0415 - errors of usage need none of it

    return replay.run(replay.ReplayRequest(**given))
