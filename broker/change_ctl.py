"""``brokerctl backup-record``, ``restore-record``, ``compact-record`` and ``reset-record``.

They look after the change record of a conventional cluster, which its master broker keeps (SUN,
"Managing the Configuration Change Record": imqbrokerd -backup and -restore).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import google_crc32c
import msgspec

from broker.admin_client import BrokerRefusedError, Target, ask
from broker.config import BrokerConfig, load
from broker.core.changes import Backup
from broker.core.restoration import decode_backup, store_backup
from broker.masking import MaskError
from broker.seams import real_seams
from broker.start_error import StartError
from broker.storage.directory import DirectoryVolume
from broker.storage.entries import EntryStore
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.records import Record

FORMAT: Final = "brokerd change record 1"


class BackupFile(msgspec.Struct, frozen=True):
    """The content of a backup file; ``crc32c`` is that of the record, byte for byte."""

    format: str
    crc32c: int
    record: msgspec.Raw


@click.command(name="backup-record")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def backup_record(obj: tuple[Target, bool], file: Path) -> None:
    """Write the change record of the cluster to FILE; the master broker must be asked."""
    answer = asyncio.run(ask(obj[0], "backup-record"))
    backup = decode_backup(answer["record"])
    record = msgspec.json.encode(backup)
    content = msgspec.json.encode(BackupFile(FORMAT, google_crc32c.value(record), msgspec.Raw(record)))
    new_file = file.with_name(f"{file.name}.new")
    try:
        with new_file.open("wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        new_file.replace(file)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from None
    count = sum(change.value is not None for change in backup.changes)
    _say(obj, answer, f"{count} entities up to change {backup.head.sequence} are in {file}")


@click.command(name="restore-record")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_context
def restore_record(context: click.Context, file: Path) -> None:
    """Restore the change record from FILE; stop the master broker before, and all others.

    Needs --config with the broker.toml of the master broker, which may be a new one. Changes made
    after the backup are dropped at all brokers when they start.
    """
    options = context.find_root().params
    if options.get("path") is None:
        raise click.UsageError("--config is missing: brokerctl --config broker.toml restore-record FILE")
    config = load(options["path"])
    section = config.ha_policy.conventional
    if section is None or config.cluster is None:
        raise click.ClickException(f"{config.path}: has no [ha-policy.conventional]: no record to restore")
    if section.master_broker != config.cluster.connector:
        raise click.ClickException(
            f"{config.path}: this is not the master broker: ha-policy.conventional.master-broker is "
            f"{section.master_broker!r}, and cluster.connector {config.cluster.connector!r}"
        )
    backup = _read(file)
    try:
        asyncio.run(_restore(config, backup))
    except (StartError, MaskError) as error:
        raise BrokerRefusedError(str(error)) from None
    except (JournalError, OSError) as error:
        raise BrokerRefusedError(f"{config.data_path}: {error}") from None
    text = f"the change record up to change {backup.head.sequence} is restored; start the master broker"
    _say(context.obj, {"sequence": backup.head.sequence}, text)


@click.command(name="compact-record")
@click.pass_obj
def compact_record(obj: tuple[Target, bool]) -> None:
    """Forget what was deleted and is gone at all brokers; the master broker must be asked."""
    answer = asyncio.run(ask(obj[0], "compact-record"))
    behind = answer["behind"]
    rest = f"; not all is known to {', '.join(behind)}" if behind else ""
    _say(obj, answer, f"{answer['forgotten']} deletions are forgotten, {answer['left']} are kept{rest}")


@click.command(name="reset-record")
@click.pass_obj
def reset_record(obj: tuple[Target, bool]) -> None:
    """Let a member join the master's record again, and drop what that lacks."""
    answer = asyncio.run(ask(obj[0], "reset-record"))
    _say(obj, answer, f"the broker at {obj[0]} takes over the change record of its master broker")


COMMANDS: Final = (backup_record, restore_record, compact_record, reset_record)


def _say(obj: tuple[Target, bool], answer: dict[str, Any], text: str) -> None:
    print(msgspec.json.format(msgspec.json.encode(answer)).decode() if obj[1] else text)


def _read(file: Path) -> Backup:
    """Return a backup. Raises ClickException for a file that is not one, or is damaged."""
    try:
        content = msgspec.json.decode(file.read_bytes(), type=BackupFile)
        if content.format != FORMAT:
            raise click.ClickException(f"{file}: the format is {content.format[:64]!r}, not {FORMAT!r}")
        record = bytes(content.record)
        if google_crc32c.value(record) != content.crc32c:
            raise click.ClickException(f"{file}: the checksum does not match: the file is damaged")
        return msgspec.json.decode(record, type=Backup)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: not a backup of a change record: {error}") from None
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from None


async def _restore(config: BrokerConfig, backup: Backup) -> None:
    """Store a backup beside the record in the journal of a broker that does not run."""
    incarnation = f"{config.broker.name}-{secrets.token_hex(6)}"
    async with _own_journal(config) as (journal, records):
        await store_backup(journal, records, backup, incarnation)


@contextlib.asynccontextmanager
async def _own_journal(config: BrokerConfig) -> AsyncIterator[tuple[EntryStore, list[Record]]]:
    """Open the journal of a broker that does not run, on its disk or in its database.

    Raises JournalError, OSError, StartError and MaskError.
    """
    if config.database_store is not None:
        from broker.policies.conventional.database import OwnDatabaseStore  # noqa: PLC0415 - a command starts fast with what it needs
        from broker.storage.database.opening import open_database  # noqa: PLC0415 - as above

        database = partial(open_database, config.database_store, config.path, os.environ)
        store = OwnDatabaseStore(config, real_seams(), database)
        entries, recovered = await store.open()
        try:
            yield entries, recovered.records
        finally:
            await store.close()
        return
    volume = DirectoryVolume(config.data_path)
    try:
        journal, recovered = await Journal.open(volume, "journal")
        try:
            yield journal, recovered.records
        finally:
            await journal.close()
    finally:
        await volume.close()
