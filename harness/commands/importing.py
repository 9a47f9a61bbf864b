"""The command line of ``jepsen-run import``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.commands import options
from harness.history.known import KnownFinding


@click.command("import", context_settings=options.CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "kind", metavar="jepsen-edn|jsonl|csv", help="What FILE is [its name says].")
@click.option("--name", help="Name of the test [that of the file].")
@click.option("--guarantee", help="at-most-once, at-least-once or exactly-once [at-least-once].")
@options.ordered()
@click.option("--drained", is_flag=True, help="All that was left was received in the end: the rest is lost.")
@click.option("--fifo", is_flag=True, help="A queue without groups was promised to be in order as a whole.")
@click.option(
    "--ack-wait",
    "ack_wait_s",
    type=options.NUMBER,
    metavar="SECONDS",
    help="The brokers take a message back that is not acknowledged for so long [never].",
)
@options.store()
@options.known()
@options.spark_master()
@options.as_json()
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
    """Judge a history of another harness.

    The history is one of Jepsen's, JSON lines, or a table. It becomes a run in the store, which
    "check" judges again. FILE is read line by line; one that cannot be read leaves nothing there.
    """
    from harness.history.importers import importing  # noqa: PLC0415 - imports Arrow, as most commands do not
    from harness.run import session  # noqa: PLC0415 - as above

    imported = importing.import_file(
        file, kind, root, name=name, guarantee=guarantee, ordered=ordered, drained=drained, fifo=fifo,
        ack_wait_s=ack_wait_s,
    )  # fmt: skip
    talk = sys.stderr if as_json else sys.stdout
    print(f"imported {imported.rows:,} rows from {file}\nstore: {imported.store}", file=talk)
    if not imported.drained:
        print(importing.UNDRAINED, file=talk, flush=True)
    return session.check(
        [imported.store], changes={}, spark_master=spark_master, as_json=as_json, entries=accepted
    )
