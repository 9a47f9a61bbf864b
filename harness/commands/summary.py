"""The command line of ``jepsen-run summary``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.commands import options
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import UsageError


@click.command("summary", context_settings=options.CONTEXT)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--newer-than",
    "earlier",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Only runs that were stored after this file was written.",
)
def summary_command(paths: tuple[Path, ...], earlier: Path | None) -> int:
    """Print a summary of stored runs in Markdown, for a CI job.

    PATH is a run's directory, or a directory that has runs in it. The exit status is 0, whatever
    the verdicts are.
    """
    from harness.report import markdown  # noqa: PLC0415 - errors of usage need none of it

    runs = [run for path in paths for run in stores.find(path)]
    if earlier is not None:
        since_ns = _written_ns(earlier)
        runs = [run for run in runs if _written_ns(run / stores.SPEC) > since_ns]
        if not runs:
            raise UsageError(
                f"{', '.join(map(os.fspath, paths))}: no run was stored after {earlier} was written"
            )
    click.echo(markdown.text(runs), nl=False)
    return judging.VALID


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
