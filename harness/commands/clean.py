"""The command line of ``jepsen-run clean``."""

from __future__ import annotations

import click

from harness.commands import options
from harness.history import judge as judging


@click.command("clean", context_settings=options.CONTEXT)
@click.option("--force", is_flag=True, help="Also remove what active runs use.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def clean_command(force: bool, dry_run: bool) -> int:
    """Remove what interrupted or killed runs left behind.

    These are processes, containers, networks, volumes, mounts and directories. The exit status is 2
    if something could not be removed.
    """
    from environments import labels  # noqa: PLC0415 - errors of usage need none of it

    lines = labels.find_leftovers(force=force) if dry_run else labels.remove_leftovers(force=force)
    for line in lines:
        click.echo(line)
    if not any(not line.startswith(labels.NOTE) for line in lines):
        click.echo("nothing to remove")
    return judging.UNKNOWN if any(line.startswith(labels.LEFT) for line in lines) else judging.VALID
