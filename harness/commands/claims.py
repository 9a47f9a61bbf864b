"""The command line of ``jepsen-run claims``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import options
from harness.history.known import KnownFinding
from harness.interface import OWN, UsageError

if TYPE_CHECKING:
    from harness.claims.scenarios.probe import Probe
    from harness.claims.scenarios.scenario import Scenario
    from harness.claims.systems.choice import Choice


@click.command("claims", context_settings=options.CONTEXT)
@click.argument("words", metavar="[ROW]...", nargs=-1)
@options.spec_option("environment", "Where the scenarios run [simulation; local for another --system].")
@options.spec_option("hosts")
@click.option(
    "--runs",
    type=options.COUNT_OR_NONE,
    default=1,
    show_default=True,
    help="Runs of each scenario. With --results, 0 runs nothing (to render stored results).",
)
@click.option(
    "--render",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the table as Markdown to this file.",
)
@click.option(
    "--refute",
    is_flag=True,
    help="Run each row with a broker that lacks the tested feature (scenarios in the simulation, probes on "
    "processes); the row must fail.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record the runs of another --system in this file; make only the runs that are missing for --runs.",
)
@click.option("--recorded", is_flag=True, help="Judge the runs in --store again by the current expectations.")
@options.system(OWN)
@options.settings()
@options.known("Accepted findings (TOML): a run whose only faults are accepted findings counts as expected.")
@options.store()
@options.as_json()
@options.volume()
def claims_command(
    words: tuple[str, ...],
    environment: str | None,
    hosts: tuple[str, ...] | None,
    runs: int,
    render: Path | None,
    refute: bool,
    results: Path | None,
    recorded: bool,
    system: str,
    settings: tuple[str, ...],
    accepted: tuple[KnownFinding, ...] | None,
    root: Path,
    as_json: bool,
) -> int:
    """Test the documented promises and weaknesses of the brokers.

    ROW is a row of the claims (RP14), one of its scenarios (RP14-true), or a family of rows (RP).
    Default: all rows.
    """
    from harness.claims import refuters, runner  # noqa: PLC0415 - Spark; most commands do without
    from harness.claims.scenarios.registry import chosen  # noqa: PLC0415 - as above
    from harness.claims.scenarios.scenario import Scenario  # noqa: PLC0415 - as above
    from harness.claims.systems.choice import choose  # noqa: PLC0415 - as above
    from harness.run.compose import place  # noqa: PLC0415 - as above
    from harness.systems import registry as systems  # noqa: PLC0415 - as above
    from harness.systems.given import check_home  # noqa: PLC0415 - as above

    environment = environment or ("simulation" if system == OWN or refute else "local")
    if refute:
        # A refuter is defined for the unchanged row: options that change the row, or where it
        # runs, are refused.
        for is_given, why in (
            (environment != "simulation", "--environment: refuters run in the simulation"),
            (render is not None, "--render: the table shows the unchanged broker"),
            (system != OWN, f"--system: refuters change the broker of {OWN}"),
            (bool(settings), "--set: a refuter needs the unchanged row"),
            (results is not None, "--results: refuted runs are not recorded"),
            (accepted is not None, "--known: a refuted row must fail"),
        ):
            if is_given:
                raise UsageError(f"--refute cannot be combined with {why}")
        refutation = refuters.refutation()
        rows = _rows_that_run(choose(chosen(words), system))
        status: int = refutation.run(
            refutation.RefutationRequest(rows=rows, runs=runs, root=root, as_json=as_json)
        )
        return status
    if results is None and (runs < 1 or recorded):
        raise UsageError("--runs 0 and --recorded need --results FILE, which holds the recorded runs")
    if results is not None and (system == OWN or settings):
        raise UsageError(f"--results is for another --system than {OWN}, and without --set")
    choice = choose(chosen(words), system)
    chosen_rows = _rows_that_run(choice)
    tested = systems.get(system)
    check_home(tested)
    place(tested, environment, hosts or ())
    scenarios = [row.with_settings(settings) if isinstance(row, Scenario) else row for row in chosen_rows]
    for row in scenarios if settings or system != OWN else ():
        if isinstance(row, Scenario):
            tested = systems.of(row.spec)
            place(tested, environment, hosts or ())
            tested.plan(row.spec)
    if render is not None and not render.resolve().parent.is_dir():
        raise UsageError(f"--render {render}: there is no directory {render.parent}")
    if render is not None and system != OWN and results is None:
        raise UsageError(f"--render {render}: the rows of --system {system} are rendered from --results FILE")
    ledger = None if results is None else choice.ledger(results, unnamed=runs < 1 and not recorded)
    if ledger is not None and recorded:
        for row in scenarios:
            if isinstance(row, Scenario):
                ledger.judge_again(row, root)
    return runner.run(
        runner.ClaimsRequest(
            scenarios=scenarios,
            environment=environment,
            runs=runs,
            root=root,
            render=render,
            as_json=as_json,
            hosts=hosts or (),
            departures=choice.departures,
            ledger=ledger,
            known=accepted,
        )
    )


def _rows_that_run(choice: Choice) -> Sequence[Scenario | Probe]:
    """Say why rows are left out, and return the others; raise UsageError if there are none."""
    for why, names in choice.left_out.items():
        click.echo(f"left out: {', '.join(names)}: {why}", err=True)
    if not choice.rows:
        raise UsageError(f"--system {choice.system}: none of the chosen rows can run with it")
    return choice.rows
