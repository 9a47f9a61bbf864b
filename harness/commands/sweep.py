"""The command line of ``jepsen-run sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.history.known import KnownFinding
from harness.interface import OWN


@click.command("sweep", context_settings=options.CONTEXT)
@click.option(
    "--runs",
    type=options.COUNT,
    help="Number of runs, divided among the cells (one policy with one nemesis each) [100].",
)
@options.spec_option(
    "environment",
    "Where the brokers run; outside the simulation, the runs are made one after another [simulation].",
)
@options.system_name()
@options.homes()
@options.listed(
    "--policy", "policies", "Policies, separated by commas [replication, or the only policy of the system]."
)
@options.listed(
    "--nemesis",
    "nemeses",
    "Nemeses, separated by commas; one per run [all that the policy promises to survive].",
)
@options.spec_option("workload")
@options.spec_option("pairs")
@options.spec_option("time_limit_s", usual="8 in the simulation, else 60")
@options.spec_option("guarantee")
@options.spec_option("seed", "Seed of the sweep; repeats an earlier one [drawn and printed].")
@options.settings()
@options.known()
@options.exploring(
    "sweep", "--runs may be raised", "simulates and checks the runs", "all cores of this machine"
)
@options.volume()
def sweep_command(
    runs: int | None,
    store: Path | None,
    accepted: tuple[KnownFinding, ...] | None,
    homes: tuple[str, ...],
    **given: Any,
) -> int:
    """Make many runs, and count what breaks.

    A sweep counts how often each nemesis breaks each policy, and compares releases of the brokers
    if several are given. One Spark job judges all simulated runs.
    """
    from harness.explore import plans  # noqa: PLC0415 - imports every part; errors of usage need none
    from harness.explore.sweep import sweep  # noqa: PLC0415 - as above
    from harness.systems import registry as systems  # noqa: PLC0415 - as above
    from harness.systems.given import releases  # noqa: PLC0415 - as above

    request = {name: given.pop(name) for name in options.EXPLORING}
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    if store is not None:
        store = options.resumed(store, fields)
        plan = plans.SweepPlan.load(store, runs=runs)
        by_release = releases(systems.get(plan.base.system), homes)
        plan.check_releases(by_release)
    else:
        system = fields.get("system", OWN)
        if "policies" not in fields:
            fields["policies"] = (systems.usual_policy(system),)
        by_release = releases(systems.get(system), homes)
        plan = plans.sweep_plan(fields, runs or 100, by_release)
    return sweep.run(
        plans.ExploreRequest(plan=plan, store=store, known=accepted, homes=by_release, **request)
    )
