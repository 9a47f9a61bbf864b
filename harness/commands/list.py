"""The command line of ``jepsen-run list``."""

from __future__ import annotations

import sys
from typing import Final

import click

from harness.commands import options
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import OWN
from harness.report.terminal import console

WIDEST: Final = 120
"""The longest lines that can be read with ease."""


@click.command("list", context_settings=options.CONTEXT)
@options.system(OWN)
@options.as_json("Print one JSON document instead of the table.")
def list_command(system: str, as_json: bool) -> int:
    """List systems, environments, policies, workloads and nemeses.

    What can be used on this machine comes first. For the rest, the list says what is missing.
    """
    from harness.commands import catalogue, catalogue_text  # noqa: PLC0415 - errors of usage need none of it

    contents = catalogue.read(system)
    if as_json:
        click.echo(stores.as_json(contents))
        return judging.VALID
    terminal = console(sys.stdout)
    for line in catalogue_text.lines(contents, min(terminal.width, WIDEST)):
        terminal.print(line)
    return judging.VALID
