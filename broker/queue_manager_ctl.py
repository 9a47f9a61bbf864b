"""``brokerctl display`` and ``brokerctl end``.

A multi-instance queue manager as dspmq and endmqm show and end it.

Why ``display`` needs no broker: where no instance runs, the locks and what the last one said of
itself under them tell the status, to whoever has a configuration that leads to the shared file
system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from broker import admin_client
from broker.config import BrokerConfig, load
from broker.policies.multi_instance import status
from broker.policies.multi_instance.places import InstanceLocks
from broker.storage.shared_directory import SharedDirectoryVolume

LOOK_PATIENCE_S = 10.0
"""How long a file system may take to answer before the status is called not available."""


@click.command()
@click.option("-x", "instances", is_flag=True, help="Show the instances that run.")
@click.option(
    "-o",
    "what",
    type=click.Choice(["status", "standby"]),
    default="status",
    show_default=True,
    help="Show the status, or whether a standby instance is permitted.",
)
@click.pass_context
def display(context: click.Context, *, instances: bool, what: str) -> None:
    """The status of a multi-instance queue manager.

    With brokerctl --config also where no instance runs here.
    """
    at, as_json = context.obj
    parent = context.parent
    path = parent.params.get("path") if parent is not None else None
    try:
        answer = asyncio.run(admin_client.ask(at, "display"))
        shown = msgspec.convert(answer, status.Display)
    except admin_client.NobodyAnswersError:
        config = load(path) if path is not None else None
        if config is None or config.ha_policy.multi_instance is None:
            raise
        shown = asyncio.run(_looked(config))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
        return
    for line in shown.lines(instances=instances, standby=what == "standby"):
        click.echo(line)


@click.command()
@click.option("-i", "immediate", is_flag=True, help="Now; without it when the last client has left.")
@click.option("-s", "switch_over", is_flag=True, help="Let the standby instance take over.")
@click.option("-x", "standby_only", is_flag=True, help="End the standby instance only.")
@click.pass_obj
def end(
    obj: tuple[admin_client.Target, bool], *, immediate: bool, switch_over: bool, standby_only: bool
) -> None:
    """End a multi-instance queue manager: all its instances, or one of them (-x, -s)."""
    if standby_only and (immediate or switch_over):
        raise click.UsageError("-x ends the standby instance alone: it goes with neither -i nor -s")
    at, as_json = obj
    arguments = {"immediate": immediate, "switch-over": switch_over, "standby-only": standby_only}
    answer = asyncio.run(admin_client.ask(at, "end", **arguments))
    click.echo(msgspec.json.encode(answer).decode() if as_json else answer["said"])


def rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What ``brokerctl status`` shows of an instance besides; nothing under other policies."""
    if "queue-manager" not in answer:
        return []
    shown = [("queue manager", f"{answer['queue-manager']}: {answer['status']}")]
    replay = answer.get("log-replay")
    if replay is not None:
        shown.append(
            (
                "log replay",
                f"{replay['records']} records, {replay['messages']} messages, {replay['milliseconds']} ms",
            )
        )
    return shown


async def _looked(config: BrokerConfig) -> status.Display:
    """The queue manager as the shared file system shows it."""
    section = config.ha_policy.multi_instance
    assert section is not None
    volume = SharedDirectoryVolume(config.data_path)
    try:
        async with asyncio.timeout(LOOK_PATIENCE_S):
            return await status.look(InstanceLocks(section, volume), section.queue_manager)
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from None
    except OSError:  # a time-out too
        return status.Display(
            queue_manager=section.queue_manager, status=status.NOT_AVAILABLE, standby=status.NOT_APPLICABLE
        )
    finally:
        await volume.close()
