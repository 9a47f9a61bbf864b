"""The command line of ``jepsen-run search``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.history import spec as specs
from harness.interface import TestSpec


@click.command("search", context_settings=options.CONTEXT)
@options.system()
@click.option("--policy", help="High-availability policy of the brokers [replication].")
@click.option(
    "--nemesis",
    "nemeses",
    callback=options.names,
    help="Faults to draw from, with commas [all that the brokers promise to survive].",
)
@click.option("--workload", help="What the clients do [groups].")
@click.option("--pairs", type=int, help="Live-backup pairs [3].")
@click.option("--length", "time_limit_s", type=float, help="Virtual seconds of load and faults in a run [8].")
@click.option("--rate", type=float, help="Sends a second, all producers together [40].")
@click.option("--guarantee", help="What the brokers promise [at-least-once].")
@options.ordered()
@click.option(
    "--bounded/--unbounded",
    default=True,
    show_default=True,
    help="Keep to what the documents promise to survive, or mix everything.",
)
@click.option("--runs", type=click.IntRange(min=1), help="End after so many runs.")
@click.option(
    "--time-limit",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Begin no run after so many seconds [600 if there is no --runs].",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes [one for each processor].")
@click.option("--keep-going", is_flag=True, help="Go on after a finding.")
@click.option(
    "--shrink",
    "shrink_limit_s",
    type=click.FloatRange(min=0),
    default=180.0,
    show_default=True,
    help="Seconds for making a finding smaller; 0 leaves it as found.",
)
@click.option("--seed", type=int, help="Repeats an earlier search [drawn and printed].")
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(path_type=Path),
    help="A test from a file; what it says is not drawn, but for faults and seed. Other options change it.",
)
@options.settings()
@options.store()
@options.as_json()
def search_command(
    bounded: bool,
    runs: int | None,
    limit_s: float | None,
    jobs: int | None,
    keep_going: bool,
    shrink_limit_s: float,
    seed: int | None,
    spec_file: Path | None,
    settings: tuple[str, ...],
    root: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Draw simulated runs until one breaks the guarantee; name what never happened."""
    from harness.explore import search, swarm  # noqa: PLC0415 - errors of usage need none of it

    base = specs.load(spec_file) if spec_file is not None else None
    fields = {name: value for name, value in given.items() if value is not None}
    fixed = frozenset(fields) | (frozenset(TestSpec.__struct_fields__) if base is not None else frozenset())
    values = fields if base is not None else {**swarm.DEFAULTS, **fields}
    spec = specs.with_settings(specs.build({**values, "environment": "simulation"}, base), settings)
    return search.run(
        search.Request(
            swarm=swarm.swarm(spec, bounded=bounded, fixed=fixed),
            seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
            runs=runs,
            time_limit_s=600.0 if runs is None and limit_s is None else limit_s,
            jobs=jobs or search.cores(),
            keep_going=keep_going,
            shrink_limit_s=shrink_limit_s,
            root=root,
            as_json=as_json,
        )
    )
