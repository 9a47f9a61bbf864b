"""The command line of ``jepsen-run conformance``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands import options


@click.command("conformance", context_settings=options.CONTEXT)
@options.system()
@click.option("--policy", help="High-availability policy of the brokers [the first policy of the system].")
@click.option("--environment", default="local", show_default=True, help="Where the brokers run.")
@click.option("--pairs", type=options.COUNT, default=1, show_default=True, help="Live-backup pairs.")
@options.store()
@options.as_json()
@options.volume()
def conformance_command(
    system: str | None, policy: str | None, environment: str, pairs: int, root: Path, as_json: bool
) -> int:
    """Check whether brokers behave as jepsen-run assumes.

    The Python class of a system states how its brokers behave. No faults are
    injected. The output has one row for each statement of the class.
    """
    from harness.run import conform  # noqa: PLC0415 - imports every part; errors of usage need none

    return conform.run(system, policy, environment, pairs, root, as_json=as_json)
