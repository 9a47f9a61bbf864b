"""The command line of ``jepsen-run check``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands import options
from harness.history.known import KnownFinding


@click.command("check", context_settings=options.CONTEXT)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--guarantee", help="Judge by another guarantee than the test stated.")
@options.ordered("Judge with or without order, whatever the test stated.")
@options.known()
@options.spark_master()
@options.as_json()
def check_command(
    paths: tuple[Path, ...],
    guarantee: str | None,
    ordered: bool | None,
    accepted: tuple[KnownFinding, ...] | None,
    spark_master: str | None,
    as_json: bool,
) -> int:
    """Judge stored runs again.

    PATH is a run's directory, or a directory that has runs in it.

    If PATH names a run, its verdict and report are written anew. Runs that are only found in a
    directory are not changed. The page of all runs, index.html, is written anew in their store. A
    run that was killed is judged as far as it got.
    """
    from harness.run import session  # noqa: PLC0415 - errors of usage need none of it

    return session.check(
        paths,
        changes={"guarantee": guarantee, "ordered": ordered},
        spark_master=spark_master,
        as_json=as_json,
        entries=accepted,
    )
