"""The command line of ``jepsen-run check``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands import options
from harness.history.known import KnownFinding


@click.command("check", context_settings=options.CONTEXT)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.spec_option("guarantee", "Judge by this guarantee instead of the test's.")
@options.spec_option("ordered", "Judge order or not, instead of what the test says.")
@options.known()
@options.spark_master()
@options.as_json()
@options.volume()
def check_command(
    paths: tuple[Path, ...],
    guarantee: str | None,
    ordered: bool | None,
    accepted: tuple[KnownFinding, ...] | None,
    spark_master: str | None,
    as_json: bool,
) -> int:
    """Judge stored runs again.

    PATH is the directory of a run, or a directory that contains runs.

    For the directory of a run, check rewrites the verdict and the report. Runs inside another
    directory are judged but not changed. check also rewrites index.html, the page of all runs, in
    their store. A killed run is judged by what it had recorded.
    """
    from harness.run import session  # noqa: PLC0415 - errors of usage need none of it

    return session.check(
        paths,
        changes={"guarantee": guarantee, "ordered": ordered},
        spark_master=spark_master,
        as_json=as_json,
        entries=accepted,
    )
