"""``brokerctl journal``.

Look at a journal without a broker, and keep what can be read of a damaged one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from broker.admin_client import Target
from broker.core.message import CLEAN, DECIDED, PREPARED
from broker.core.two_phase import PreparedRecord, decode_prepared
from broker.storage.directory import DirectoryVolume
from broker.storage.errors import JournalError
from broker.storage.inspection import JournalInspection, inspect, salvage

EXIT_DAMAGED: Final = 1

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group()
def journal() -> None:
    """Look at a journal, or save what can be read of it; its broker must not be running."""


@journal.command()
@click.argument("directory", type=_DIRECTORY)
@click.pass_obj
def check(obj: tuple[Target, bool], directory: Path) -> int:
    """Say what is in the journal in DIRECTORY (DATA/journal) and where it is damaged. Reads only.

    Exit status 0: a broker would start on it; 1: it would not.
    """
    found = _with(directory, lambda volume: inspect(volume, directory.name))
    _show(found, as_json=obj[1])
    return EXIT_DAMAGED if found.damage or found.state != "complete" else 0


@journal.command(name="salvage")
@click.argument("directory", type=_DIRECTORY)
@click.argument("output", type=_DIRECTORY)
@click.pass_obj
def salvage_(obj: tuple[Target, bool], directory: Path, output: Path) -> int:
    """Copy what can be read of DIRECTORY's journal into a new one in OUTPUT, and say what is lost.

    Put OUTPUT in the place of DIRECTORY, beside the same large-messages and paging, and start the
    broker. What was sent in the lost entries is gone; what was acknowledged in them comes again.
    """
    output.parent.mkdir(parents=True, exist_ok=True)

    async def run(volume: DirectoryVolume) -> JournalInspection:
        beside = DirectoryVolume(output.parent)
        try:
            # A clean end may be one of the things that are no longer true.
            return await salvage(volume, directory.name, beside, output.name, without=(CLEAN,))
        finally:
            await beside.close()

    found = _with(directory, run)
    _show(found, as_json=obj[1])
    if not obj[1]:
        print(f"{len(found.records)} records are in {output}")
    return 0


def _with(directory: Path, work: Any) -> JournalInspection:
    if not directory.is_dir():
        raise click.ClickException(f"{directory} is no directory")

    async def run() -> JournalInspection:
        volume = DirectoryVolume(directory.parent)
        try:
            question: Coroutine[Any, Any, JournalInspection] = work(volume)
            return await question
        finally:
            await volume.close()

    try:
        return asyncio.run(run())
    except (JournalError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _show(found: JournalInspection, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(_told(found))).decode())
    else:
        _print(found)


def _prepared(found: JournalInspection) -> list[PreparedRecord]:
    """Return the prepared transactions of a journal."""
    return [
        decode_prepared(record.id, record.data)
        for record in found.records.values()
        if record.kind == PREPARED
    ]


def _told(found: JournalInspection) -> dict[str, object]:
    return {
        "state": found.state,
        "segments": [segment._asdict() for segment in found.segments],
        "entries": found.entries,
        "last": found.last,
        "records": len(found.records),
        "prepared": [
            {"id": str(one.id), "coordinator": one.id.coordinator, "messages": len(one.messages)}
            for one in _prepared(found)
        ],
        "decided": sum(record.kind == DECIDED for record in found.records.values()),
        "synced": None if found.synced is None else found.synced._asdict(),
        "torn": None if found.torn is None else found.torn._asdict(),
        "damage": [damage._asdict() for damage in found.damage],
        "lost": [list(one) for one in found.lost],
        "orphans": found.orphans,
    }


def _print(found: JournalInspection) -> None:
    for segment in found.segments:
        what = f"entries {segment.first} to {segment.last}" if segment.entries else "no entries"
        print(f"{segment.name}: {segment.size} bytes, {what}")
    print(f"{found.entries} entries, {len(found.records)} records live after entry {found.last}")
    for prepared in _prepared(found):
        print(
            f"transaction {prepared.id} is prepared, with {len(prepared.messages)} messages: "
            f"its coordinator, the broker with node ID {prepared.id.coordinator}, decides"
        )
    decided = sum(record.kind == DECIDED for record in found.records.values())
    if decided:
        print(f"{decided} transactions have committed, which other brokers are yet to be told")
    if found.synced is None:
        print("no mark says how far it had been synced")
    else:
        print(
            f"synced up to entry {found.synced.sequence} at the least (offset {found.synced.offset} of "
            "its segment)"
        )
    if found.state != "complete":
        print(f"{found.state}: a copy whose synchronisation never ended")
    if found.torn is not None:
        print(
            f"torn tail: {found.torn.path} at offset {found.torn.offset}, {found.torn.size} bytes: "
            f"{found.torn.reason}"
        )
    for damage in found.damage:
        print(f"DAMAGED: {damage.path} at offset {damage.offset}, {damage.size} bytes: {damage.reason}")
    for first, last in found.lost:
        print(f"LOST: entries {first} to {last}")
    if found.orphans:
        print(f"{found.orphans} records that were deleted later had been added in what is lost")
