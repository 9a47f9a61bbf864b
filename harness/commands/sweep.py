"""The command line of ``jepsen-run sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.history.known import KnownFinding


@click.command("sweep", context_settings=options.CONTEXT)
@click.option("--runs", type=options.COUNT, help="Runs, shared out over the cells [100].")
@click.option(
    "--environment", help="Where the brokers run; outside the simulation one run after another [simulation]."
)
@options.system()
@options.listed("--policy", "policies", "Policies, with commas [replication; else the system's only one].")
@options.listed(
    "--nemesis",
    "nemeses",
    "Nemeses, with commas; each run has one [all that the policy is promised to survive].",
)
@click.option("--workload", help="What the clients do [groups].")
@click.option("--pairs", type=int, help="Live-backup pairs [3].")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=options.NUMBER,
    help="Seconds of load and faults in a run [8; 60 deployed].",
)
@click.option("--guarantee", help="What the brokers promise [at-least-once].")
@click.option("--seed", type=int, help="Repeats an earlier sweep [drawn and printed].")
@options.settings()
@options.known()
@options.exploring("sweep", "--runs may ask for more", "simulates and checks", "all cores of this machine")
def sweep_command(
    runs: int | None, store: Path | None, accepted: tuple[KnownFinding, ...] | None, **given: Any
) -> int:
    """Make many runs, and count what breaks.

    A sweep counts how often each nemesis breaks each policy. Simulated runs are judged as one job
    of Spark.
    """
    from harness.explore import plans  # noqa: PLC0415 - imports every part; errors of usage need none
    from harness.explore.sweep import sweep  # noqa: PLC0415 - as above

    request = {name: given.pop(name) for name in options.EXPLORING}
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    if store is not None:
        store = options.resumed(store, fields)
        plan = plans.SweepPlan.load(store, runs=runs)
    else:
        plan = plans.sweep_plan(fields, runs or 100)
    return sweep.run(plans.ExploreRequest(plan=plan, store=store, known=accepted, **request))
