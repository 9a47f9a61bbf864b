"""The command line of ``jepsen-run import``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.commands import options
from harness.history.known import KnownFinding
from harness.report.terminal import is_quiet


@click.command("import", context_settings=options.CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "kind", metavar="jepsen-edn|jsonl|csv", help="Format of FILE [from its name].")
@click.option("--name", help="Name of the test [the file's name].")
@options.spec_option("guarantee")
@options.spec_option("ordered")
@click.option(
    "--drained",
    is_flag=True,
    help="Every queue was emptied at the end, so a missing message is lost.",
)
@click.option(
    "--fifo",
    is_flag=True,
    help="The brokers promise the order of the whole queue where messages have no group.",
)
@click.option(
    "--ack-wait",
    "ack_wait_s",
    type=options.NUMBER,
    metavar="SECONDS",
    help="Seconds after which the brokers take back a message without an acknowledgement [never].",
)
@options.store()
@options.known()
@options.spark_master()
@options.as_json()
@options.volume()
def import_command(
    file: Path,
    kind: str | None,
    name: str | None,
    guarantee: str | None,
    ordered: bool | None,
    drained: bool,
    fifo: bool,
    ack_wait_s: float | None,
    root: Path,
    accepted: tuple[KnownFinding, ...] | None,
    spark_master: str | None,
    as_json: bool,
) -> int:
    """Judge a history that another test program recorded.

    FILE is a Jepsen history (EDN), JSON lines, or a CSV table. It is stored as a run, which "check"
    can judge again. If FILE cannot be read, nothing is stored.
    """
    from harness.history.importers import importing  # noqa: PLC0415 - imports Arrow, as most commands do not
    from harness.run import session  # noqa: PLC0415 - as above

    imported = importing.import_file(
        file, kind, root, name=name, guarantee=guarantee, ordered=ordered, drained=drained, fifo=fifo,
        ack_wait_s=ack_wait_s,
    )  # fmt: skip
    talk = sys.stderr if as_json else sys.stdout
    if not is_quiet():
        print(f"imported {imported.rows:,} rows from {file}\nstore: {imported.store}", file=talk)
    if not imported.drained:
        print(importing.UNDRAINED, file=talk, flush=True)
    return session.check(
        [imported.store], changes={}, spark_master=spark_master, as_json=as_json, entries=accepted
    )
