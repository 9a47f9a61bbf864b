"""The command line of ``brokerctl database``.

It finds the store, runs the command, and asks for confirmation.

It needs no running broker but its configuration: ``brokerctl --config broker.toml database backup
FILE``.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec

from broker import config as configuration
from broker.admin_client import BrokerRefusedError, NobodyAnswersError
from broker.config import BrokerConfig, ConfigurationError
from broker.confirmation import confirmed
from broker.database_tool import backup as backups
from broker.database_tool.store import ClusterStore, ToolRefusedError
from broker.database_tool.upgrade import upgrade as import_journal
from broker.ha_policy import DatabaseStoreSection, HaDatabaseSection
from broker.masking import MaskError
from broker.storage.database import DatabaseError
from broker.storage.database.opening import open_database

T = TypeVar("T")
P = ParamSpec("P")


@click.group()
def database() -> None:
    """Look after the store that brokers of a high-availability cluster share.

    Needs --config with the broker.toml of one of them; no broker is asked.
    """


def _tool(context: click.Context) -> Tool:
    """Return the tool for the store of the configuration.

    It is made only when a command runs: help needs no configuration.
    """
    given = context.find_root().params
    path = given.get("path")
    if path is None:
        raise click.UsageError("--config is missing: brokerctl --config broker.toml database ...")
    settings = configuration.load(path)
    if settings.ha_policy.ha_database is None or settings.database_store is None:
        raise ConfigurationError(
            f"{path}: has no [ha-policy.ha-database] and [database-store]: its brokers share no database"
        )
    return Tool(settings, settings.ha_policy.ha_database, settings.database_store, as_json=given["as_json"])


def _with_tool(work: Callable[Concatenate[Tool, P], T]) -> Callable[P, T]:
    """Return a command that gets the tool as its first argument."""

    @functools.wraps(work)
    def command(*arguments: P.args, **options: P.kwargs) -> T:
        return work(_tool(click.get_current_context()), *arguments, **options)

    return command


class Tool:
    """A call of the tool: its configuration, and its way to answer."""

    def __init__(
        self, config: BrokerConfig, section: HaDatabaseSection, store: DatabaseStoreSection, *, as_json: bool
    ) -> None:
        self.config = config
        self.section = section
        self.store = store
        self.as_json = as_json

    @property
    def broker_id(self) -> str:
        """The id of the broker that has this configuration."""
        return self.section.broker_id or self.config.broker.name

    def run(self, work: Callable[[ClusterStore], Awaitable[T]], *, making: bool = False) -> T:
        """Run ``work`` on the store, and return its result.

        With ``making``, the store need not exist yet. Raises RefusedError, NobodyAnswersError,
        ConfigurationError, each one line.
        """
        try:
            return asyncio.run(self._run(work, making=making))
        except MaskError as error:
            raise ConfigurationError(f"{self.config.path}: database-store: {error}") from None
        except ToolRefusedError as error:
            raise BrokerRefusedError(str(error)) from None
        except DatabaseError as error:
            raise NobodyAnswersError(f"{self.store.url}: {error}") from None
        except OSError as error:
            raise ConfigurationError(f"{error.filename}: {error.strerror or error}") from None

    async def _run(self, work: Callable[[ClusterStore], Awaitable[T]], *, making: bool) -> T:
        kind, _, rest = self.store.url.partition(":")
        none = f"there is no store at {self.store.url}: brokerctl database create makes one"
        # Opening an SQLite file would create it.
        if kind == "sqlite" and not making and not _file_of(self.config.path, rest).is_file():
            raise ToolRefusedError(none)
        database = open_database(self.store, self.config.path, os.environ)
        try:
            store = ClusterStore(database, kind, self.section.cluster_id, self.store.lock_expiration)
            if not making and not await store.exists():
                raise ToolRefusedError(none)
            return await work(store)
        finally:
            await database.close()

    def answer(self, line: str, **values: Any) -> None:
        """Print a line for people, or the values as JSON."""
        print(msgspec.json.format(msgspec.json.encode(values)).decode() if self.as_json else line)


def _file_of(configuration_path: str, path: str) -> Path:
    """Return a path; a relative one starts at the directory of the configuration file."""
    return Path(configuration_path).resolve().parent / path


FORCE = click.option("-f", "force", is_flag=True, help="Ask nothing.")


@database.command()
@_with_tool
def create(tool: Tool) -> None:
    """Make the tables that are missing."""
    made = tool.run(lambda store: store.create(), making=True)
    where = f"cluster {tool.section.cluster_id} in {tool.store.url}"
    tool.answer(f"{where} {'is made' if made else 'was there already'}", created=made)


@database.command(name="remove-broker")
@click.argument("broker_id", metavar="ID")
@click.option("-f", "force", is_flag=True, help="Delete the messages that it still has.")
@_with_tool
def remove_broker(tool: Tool, broker_id: str, *, force: bool) -> None:
    """Remove the broker ID from the cluster. The broker must not run."""
    count = tool.run(lambda store: store.remove(broker_id, with_messages=force))
    tool.answer(
        f"{broker_id} is removed" + (f", and {count} messages with it" if count else ""), messages=count
    )


@database.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-f", "force", is_flag=True, help="Replace FILE if it exists.")
@_with_tool
def backup(tool: Tool, file: Path, *, force: bool) -> None:
    """Write the cluster's store, as of one moment, to FILE. Brokers may run."""
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: give another name, or -f to replace it")
    if not file.resolve().parent.is_dir():
        raise click.UsageError(f"there is no directory {file.resolve().parent}")
    taken = tool.run(backups.take)
    try:
        size = backups.write(file, taken)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None
    counts = {"brokers": len(taken.brokers), "records": len(taken.records), "bytes": size}
    tool.answer(
        f"{file}: {counts['brokers']} brokers, {counts['records']} records, {size} bytes",
        file=str(file),
        **counts,
    )


@database.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@FORCE
@_with_tool
def restore(tool: Tool, file: Path, *, force: bool) -> int:
    """Replace the cluster's store by the content of FILE. No broker may run."""
    try:
        held = backups.read(file)
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ToolRefusedError, msgspec.DecodeError) as error:
        raise click.UsageError(str(error)) from None
    if held.cluster_id != tool.section.cluster_id:
        raise click.UsageError(
            f"{file} is of cluster {held.cluster_id!r}, and {tool.config.path} of "
            f"{tool.section.cluster_id!r} (ha-policy.ha-database.cluster-id)"
        )

    async def there(store: ClusterStore) -> int:
        return sum(row.messages for row in await store.brokers()) if await store.exists("store_broker") else 0

    if not force and (count := tool.run(there, making=True)):
        print(f"Cluster {held.cluster_id} has {count} messages, which are deleted.", file=sys.stderr)
        if not confirmed("Do you want to restore the backup?"):
            return 1
    tool.run(lambda store: backups.put_back(store, held), making=True)
    tool.answer(
        f"cluster {held.cluster_id} is restored: {len(held.brokers)} brokers, {len(held.records)} "
        "records; start its brokers now",
        brokers=len(held.brokers),
        records=len(held.records),
    )
    return 0


@database.command()
@_with_tool
def upgrade(tool: Tool) -> None:
    """Import a standalone broker's journal.

    The journal is read from the configuration's data directory, and moved aside afterwards. Its
    messages belong to this broker from its next start on.
    """
    cluster = tool.config.cluster
    assert cluster is not None, "a high-availability broker without a cluster section"
    done = tool.run(
        lambda store: import_journal(store, tool.config.data_path, tool.broker_id, cluster.connector),
        making=True,
    )
    how = "was imported already" if done.before else "is imported"
    tool.answer(
        f"{done.messages} messages: the journal {how} for broker {tool.broker_id}, and lies in "
        f"{done.moved_to} now",
        messages=done.messages,
        before=done.before,
        journal=str(done.moved_to),
    )


@database.command(name="reset-locks")
@FORCE
@_with_tool
def reset_locks(tool: Tool, *, force: bool) -> int:
    """Free the locks of brokers that died. No broker may run.

    The brokers may then start at once. Takeovers that were not completed are undone.
    """
    if not force:
        print(
            "Brokers that run unseen lose their store, and what failed brokers had waits for their restart.",
            file=sys.stderr,
        )
        if not confirmed("Do you want to reset the locks?"):
            return 1
    names = tool.run(lambda store: store.reset_locks())
    tool.answer(
        f"locks of {', '.join(names)} are reset" if names else "there were no locks to reset", brokers=names
    )
    return 0
