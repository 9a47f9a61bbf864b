"""The command line of ``jepsen-run list``."""

from __future__ import annotations

import click

from harness.commands import options
from harness.history import judge as judging


@click.command("list", context_settings=options.CONTEXT)
@options.as_json("As JSON on standard output.")
def list_command(as_json: bool) -> int:
    """Policies, nemeses, workloads, environments, and which supports which."""
    from harness.commands import catalogue  # noqa: PLC0415 - errors of usage need none of it

    click.echo(catalogue.as_json() if as_json else catalogue.as_text())
    return judging.VALID
