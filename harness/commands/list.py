"""The command line of ``jepsen-run list``."""

from __future__ import annotations

import click

from harness.commands import options
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import OWN


@click.command("list", context_settings=options.CONTEXT)
@options.system(OWN)
@options.as_json("As JSON on standard output.")
def list_command(system: str, as_json: bool) -> int:
    """List what there is and can be combined.

    It lists systems, policies, nemeses, workloads and environments.
    """
    from harness.commands import catalogue  # noqa: PLC0415 - errors of usage need none of it

    contents = catalogue.read(system)
    click.echo(stores.as_json(contents) if as_json else catalogue.as_text(contents))
    return judging.VALID
