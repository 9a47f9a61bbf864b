"""``jepsen-run``: the command line.

Why so strict about exit statuses: a nightly job reads nothing else. 0 valid, 1 invalid, 2 unknown,
254 wrong usage, 255 a bug of ours, 130 interrupted; a batch exits with the gravest (1 before 255
before 254 before 2).
"""

from __future__ import annotations

import random
import sys
import tomllib
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from harness.commands import options
from harness.commands.claims import claims_command
from harness.commands.shrink import shrink_command
from harness.commands.sweep import sweep_command
from harness.history import judge as judging
from harness.history import spec as specs
from harness.interface import InfrastructureError, TestSpec, UsageError
from harness.interface.errors import near

DEFAULT_COMMAND: Final = "test"


class _Group(click.Group):
    """Runs ``test`` where no command is named.

    ``jepsen-run --nemesis kill`` is ``jepsen-run test --nemesis kill``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in {"--help", "-h", "--version"}):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f'unknown command "{args[0]}": {near(args[0], self.commands)}')
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"jepsen-run {version()}")
        ctx.exit()


def version() -> str:
    """The installed version, or that of the source tree this runs from."""
    try:
        return metadata.version("jepsen-run")
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


@click.group(cls=_Group, context_settings=options.CONTEXT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Break a message broker's cluster on purpose and decide whether a message was lost, duplicated
    or reordered.

    Without a command a test is run: "jepsen-run --nemesis partition --policy replication".
    """


@cli.command("test", context_settings=options.CONTEXT)
@click.option("--policy", help="High-availability policy of the brokers [replication].")
@click.option(
    "--nemesis",
    "nemeses",
    callback=options.names,
    help="What breaks the cluster: names with commas, for example partition,kill.",
)
@click.option("--workload", help="What the clients do [groups].")
@click.option(
    "--environment", help="Where the brokers run; auto takes docker where an engine answers [auto]."
)
@click.option("--pairs", type=int, help="Live-backup pairs [3].")
@click.option("--time-limit", "time_limit_s", type=float, help="Seconds of load and faults [40].")
@click.option(
    "--rate", type=float, help="Sends a second, all producers together; 0 is as fast as possible [200]."
)
@click.option("--producers", type=int, help="Producers [6].")
@click.option("--consumers", type=int, help="Consumers [6].")
@click.option("--groups", type=int, help="Message groups [12].")
@click.option(
    "--large-message-share", type=float, help="Share of the sends, 0 to 1, with a body of 150,000 bytes [0]."
)
@click.option("--hold", "hold_s", type=float, help="Seconds from a delivery to its acknowledgement [0.02].")
@click.option("--prefetch", type=int, help="Messages a consumer may hold unacknowledged [100].")
@click.option(
    "--shape", "shapes", callback=options.names, help="Shapes of partitions, with commas [all that fit]."
)
@click.option(
    "--target",
    "targets",
    callback=options.names,
    help="Targets of node faults, with commas: live, backup, one, minority, majority, all.",
)
@click.option("--interval", "interval_s", type=float, help="Seconds between faults [8].")
@click.option("--duration", "duration_s", type=float, help="Seconds a fault lasts [6].")
@click.option("--seed", type=int, help="Repeats the choices of an earlier run [drawn and printed].")
@click.option(
    "--guarantee",
    help="What the brokers promise: at-most-once, at-least-once or exactly-once [at-least-once].",
)
@options.ordered()
@click.option(
    "--schedule",
    "schedule_file",
    type=click.Path(path_type=Path),
    help="Faults from a file (schedule.json of an earlier run) instead of made ones.",
)
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(path_type=Path),
    help="A test from a file (spec.json of an earlier run); other options change it.",
)
@options.settings()
@options.store()
@options.spark_master()
@options.as_json("One JSON document on standard output, everything else on standard error.")
@click.option("--name", help="Name of the test in the store [from policy and nemesis].")
def test_command(
    settings: tuple[str, ...],
    spec_file: Path | None,
    schedule_file: Path | None,
    root: Path,
    spark_master: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Deploy a cluster, load it, break it, and judge what happened."""
    from harness.run import session  # noqa: PLC0415 - imports every part; "list" and errors of usage need none

    base = specs.load(spec_file) if spec_file is not None else None
    if given["seed"] is None and base is None:
        given["seed"] = random.SystemRandom().randrange(2**31)
    spec = specs.with_settings(specs.build(given, base), settings)
    request = session.Request(
        spec=spec,
        schedule_file=schedule_file,
        root=root,
        spark_master=spark_master,
        as_json=as_json,
    )
    return session.run(request)


@cli.command("search", context_settings=options.CONTEXT)
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
    from harness.explore import search, swarm  # noqa: PLC0415 - as above

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


@cli.command("replay", context_settings=options.CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--times", type=click.IntRange(min=1), help="Runs [1 in the simulation, 3 elsewhere].")
@click.option("--environment", help="Where to run it [where it was found].")
@options.store("runs on real processes are kept")
@options.spark_master()
@options.as_json()
def replay_command(
    path: Path,
    times: int | None,
    environment: str | None,
    root: Path,
    spark_master: str | None,
    as_json: bool,
) -> int:
    """Run a finding again; PATH is a repro.json or a run's directory.

    Exact in the simulation, k of n runs elsewhere.
    """
    from harness.explore import replay  # noqa: PLC0415 - as above

    return replay.run(
        replay.Request(
            path=path,
            times=times,
            environment=environment,
            root=root,
            spark_master=spark_master,
            as_json=as_json,
        )
    )


cli.add_command(sweep_command)
cli.add_command(claims_command)
cli.add_command(shrink_command)


@cli.command("check", context_settings=options.CONTEXT)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--guarantee", help="Judge by another guarantee than the test stated.")
@options.ordered("Judge with or without order, whatever the test stated.")
@options.spark_master()
@options.as_json()
def check_command(
    paths: tuple[Path, ...],
    guarantee: str | None,
    ordered: bool | None,
    spark_master: str | None,
    as_json: bool,
) -> int:
    """Judge stored runs again; PATH is a run's directory or one that holds runs.

    A run that was killed is judged as far as it got.
    """
    from harness.run import session  # noqa: PLC0415 - as above

    return session.check(
        paths,
        changes={"guarantee": guarantee, "ordered": ordered},
        spark_master=spark_master,
        as_json=as_json,
    )


@cli.command("list", context_settings=options.CONTEXT)
@options.as_json("As JSON on standard output.")
def list_command(as_json: bool) -> int:
    """Policies, nemeses, workloads, environments, and which supports which."""
    from harness.commands import catalogue  # noqa: PLC0415 - as above

    click.echo(catalogue.as_json() if as_json else catalogue.as_text())
    return judging.VALID


@cli.command("clean", context_settings=options.CONTEXT)
@click.option("--force", is_flag=True, help="Also what belongs to runs that are still going on.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def clean_command(force: bool, dry_run: bool) -> int:
    """Remove what interrupted or killed runs left.

    Processes, containers, networks, images in the making.
    """
    from environments import labels  # noqa: PLC0415 - as above

    lines = labels.find_leftovers(force=force) if dry_run else labels.remove_leftovers(force=force)
    for line in lines:
        click.echo(line)
    if not any(not line.startswith(labels.NOTE) for line in lines):
        click.echo("nothing to remove")
    return judging.VALID


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit status of one command line; prints what is wrong with it as one line."""
    try:
        status = cli.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="jepsen-run",
            standalone_mode=False,
        )
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _complain("interrupted", judging.INTERRUPTED)
    except click.ClickException as error:
        return _complain(error.format_message(), judging.USAGE)
    except UsageError as error:
        return _complain(str(error), judging.USAGE)
    except InfrastructureError as error:
        return _complain(f"unknown: {error}", judging.UNKNOWN)
    except SystemExit:
        # click's way out when nobody reads the output any more is status 1, which here would say
        # "invalid".
        return judging.UNKNOWN
    except Exception:  # noqa: BLE001 - the last place where a bug can be told from a verdict
        traceback.print_exc()
        return _complain(
            "internal error: this is a bug of jepsen-run and says nothing about the brokers; please "
            "report it with the lines above",
            judging.INTERNAL,
        )
    return status if isinstance(status, int) else judging.VALID


def _complain(message: str, status: int) -> int:
    print(f"jepsen-run: {message}", file=sys.stderr, flush=True)
    return status


def main() -> NoReturn:
    """The console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
