"""The command line of ``jepsen-run search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands import options
from harness.history import spec as specs
from harness.interface import OWN, TestSpec
from harness.systems import registry as systems

if TYPE_CHECKING:
    from harness.explore.plans import SearchPlan


@click.command("search", context_settings=options.CONTEXT)
@options.system()
@options.spec_option("policy")
@options.spec_option(
    "nemeses",
    "Kinds of faults to draw from, separated by commas [all that the brokers promise to survive].",
)
@options.spec_option("workload")
@options.spec_option("pairs")
@options.spec_option("chain")
@options.spec_option("master")
@click.option(
    "--length",
    "length_s",
    type=options.MORE_THAN_ZERO,
    help="Virtual seconds of load and faults in each run [8].",
)
@options.spec_option("rate", usual="40")
@options.spec_option("guarantee")
@options.spec_option("ordered")
@click.option(
    "--bounded/--unbounded",
    default=None,
    help="Draw only faults that the documents promise to survive, or combine any faults [bounded].",
)
@click.option("--runs", type=options.COUNT, help="Number of runs after which the search ends.")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=options.MORE_THAN_ZERO,
    help="Seconds after which the search ends, including the time for making a finding smaller [600 without "
    "--runs].",
)
@click.option("--keep-going", is_flag=True, default=None, help="Continue after a finding.")
@click.option(
    "--shrink",
    "shrink_limit_s",
    type=options.NOT_NEGATIVE,
    help="Seconds for making a finding smaller, within the time limit; 0 keeps the finding as it was found "
    "[180].",
)
@options.spec_option("seed", "Seed of the search; repeats an earlier one [drawn and printed].")
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(path_type=Path),
    help="Test from a file (spec.json): the search draws only faults, seed and more broker properties. "
    "Other options override the file.",
)
@options.settings()
@options.exploring(
    "search",
    "--runs, --time-limit, --keep-going and --shrink may be changed",
    "simulates the runs",
    "processes on this machine",
)
@options.volume()
def search_command(store: Path | None, **given: Any) -> int:
    """Run random simulated tests until one breaks the guarantee.

    At the end the search lists what never happened in any run.
    """
    from harness.explore import plans  # noqa: PLC0415 - imports every part
    from harness.explore.search import search  # noqa: PLC0415 - as above

    request = {name: given.pop(name) for name in options.EXPLORING}
    limits = {name: given.pop(name) for name in ("runs", "time_limit_s", "keep_going", "shrink_limit_s")}
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    if store is not None:
        store = options.resumed(store, fields)
        plan = plans.SearchPlan.load(store, **limits)
    else:
        if limits["runs"] is None and limits["time_limit_s"] is None:
            limits["time_limit_s"] = 600.0
        plan = _new_plan(limits, **fields)
    return search.run(plans.ExploreRequest(plan=plan, store=store, **request))


def _new_plan(
    limits: dict[str, Any],
    *,
    seed: int | None = None,
    bounded: bool = True,
    spec_file: Path | None = None,
    settings: tuple[str, ...] = (),
    length_s: float | None = None,
    **fields: Any,
) -> SearchPlan:
    from harness.explore import plans, swarm  # noqa: PLC0415 - imports every part

    if length_s is not None:
        fields["time_limit_s"] = length_s
    base = specs.load(spec_file) if spec_file is not None else None
    fixed = set(fields) | (set(TestSpec.__struct_fields__) if base is not None else set())
    values = fields
    if base is None:
        policy = fields.get("policy") or systems.usual_policy(fields.get("system", OWN))
        values = swarm.defaults({**fields, "policy": policy})
    spec = specs.with_settings(specs.build({**values, "environment": "simulation"}, base), settings)
    return plans.search_plan({**limits, "seed": seed}, spec, fixed=fixed, bounded=bounded)
