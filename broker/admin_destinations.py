"""The commands of the admin port about destinations and durable subscriptions.

They are those of ``imqcmd`` (list, query, update, pause and resume of destinations, list of durable
subscriptions) for this broker: what other brokers of the cluster have of a destination, they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from broker.core.browsing import QueueStatus
from broker.core.engine import Engine
from broker.core.limit_requests import FIELDS, LimitsRefusedError, update_limits
from broker.core.pauses import SIDES
from broker.core.queue import Queue
from broker.core.subscription import TEMPORARY_PREFIX, TOPIC_PREFIX
from broker.policies.policy import Command, RequestRefusedError

PER_SLICE: Final = 200
"""The queues that are looked at in one turn of the loop: a few milliseconds."""
_STATES: Final[Mapping[frozenset[str], str]] = {
    frozenset(): "RUNNING",
    frozenset({"producers"}): "PRODUCERS_PAUSED",
    frozenset({"consumers"}): "CONSUMERS_PAUSED",
    frozenset(SIDES): "DESTINATION_PAUSED",
}


class DestinationCommands:
    """The commands by name; ``live_engine`` returns the engine for a command, or refuses it."""

    def __init__(self, live_engine: Callable[[str], Engine]) -> None:
        self._live_engine = live_engine
        self.commands: Mapping[str, Command] = {
            "destinations": self._destinations,
            "durables": self._durables,
            "query": self._query,
            "pause": self._pause,
            "resume": self._resume,
            "update": self._update,
        }

    async def _destinations(self, _: Mapping[str, Any]) -> dict[str, Any]:
        engine = self._live_engine("list")
        totals: dict[str, dict[str, Any]] = {}
        async for queue in _iterate_in_slices(engine, _is_shown):
            target = _target_of(queue)
            [counts] = engine.status((queue.name,))
            if target in totals:
                _add(totals[target], counts)
            else:
                totals[target] = _summary(engine, target, counts)
        for target in engine.memory.pauses.targets():
            if target not in totals:  # a topic without subscriptions
                totals[target] = _summary(engine, target, QueueStatus(target, "", 0, 0, 0, 0, 0))
        return {"destinations": [totals[target] for target in sorted(totals)]}

    async def _durables(self, _: Mapping[str, Any]) -> dict[str, Any]:
        engine = self._live_engine("list")
        durables = [
            _durable(engine, queue)
            async for queue in _iterate_in_slices(
                engine, lambda queue: _is_durable(queue) and _is_shown(queue)
            )
        ]
        return {"durables": sorted(durables, key=lambda one: (one["topic"], one["client-id"], one["name"]))}

    async def _query(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, target, holders = self._target("query", request)
        summary: dict[str, Any] = {}
        for counts in engine.status([queue.name for queue in holders]):
            if summary:
                _add(summary, counts)
            else:
                summary = _summary(engine, target, counts)
        settings = msgspec.to_builtins(holders[0].settings)
        return {"destination": {**summary, "subscriptions": len(holders) if _is_topic(target) else 0}} | {
            "settings": {name: value for name, value in settings.items() if name != "match"}
        }

    async def _pause(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, target, _ = self._target("pause", request)
        sides = request.get("sides", SIDES)
        if not isinstance(sides, Sequence) or not sides or not all(side in SIDES for side in sides):
            raise RequestRefusedError(f"sides must be some of {', '.join(SIDES)}, not {sides!r}")
        engine.pause_destination(target, sides)
        return {"state": _STATES[engine.memory.pauses.sides(target)]}

    async def _resume(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, target, _ = self._target("resume", request)
        engine.resume_destination(target)
        return {"state": _STATES[engine.memory.pauses.sides(target)]}

    async def _update(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, target, holders = self._target("update", request)
        if _is_topic(target) or not holders:
            raise RequestRefusedError(
                f"{target[:64]!r} is no queue here: a topic has the limits of its address-settings"
            )
        changes = {name: request[name] for name in FIELDS if request.get(name) is not None}
        if not changes:
            raise RequestRefusedError(f"update needs a limit: {', '.join(FIELDS)}")
        try:
            settings = update_limits(engine, target, changes)
        except LimitsRefusedError as error:
            raise RequestRefusedError(str(error)) from None
        await engine.flushed()
        return {"limits": {name: getattr(settings, field) for name, field in FIELDS.items()}}

    def _target(self, command: str, request: Mapping[str, Any]) -> tuple[Engine, str, Sequence[Queue]]:
        """Return the engine, the destination of a request, and the queues that it has here."""
        name = request.get("destination")
        if not isinstance(name, str) or not name:
            raise RequestRefusedError(
                f'{command} needs a destination: {{"command": "{command}", "destination": "orders"}}'
            )
        engine = self._live_engine(command)
        holders = [queue for queue in engine.holders_of(name) if _is_shown(queue)]
        if command == "resume" and engine.memory.pauses.sides(name):
            return engine, name, holders
        if not holders or (not _is_topic(name) and holders[0].subscription is not None):
            missing = "no subscription to topic" if _is_topic(name) else "no queue"
            raise RequestRefusedError(f"{missing} {name.removeprefix(TOPIC_PREFIX)!r} here")
        return engine, name, holders


def _is_topic(target: str) -> bool:
    return target.startswith(TOPIC_PREFIX)


def _is_shown(queue: Queue) -> bool:
    """Return whether a queue is neither the broker's own nor a temporary one."""
    return not (queue.forwards or queue.name.startswith(TEMPORARY_PREFIX))


def _is_durable(queue: Queue) -> bool:
    return queue.subscription is not None and queue.subscription.durable


def _target_of(queue: Queue) -> str:
    return queue.name if queue.topic is None else TOPIC_PREFIX + queue.topic


async def _iterate_in_slices(engine: Engine, condition: Callable[[Queue], bool]) -> AsyncIterator[Queue]:
    """Yield the queues that meet a condition, and let clients be served between slices."""
    for count, queue in enumerate(list(engine.queues.values()), 1):
        if engine.queues.get(queue.name) is queue and condition(queue):
            yield queue
        if count % PER_SLICE == 0:
            await asyncio.sleep(0)


def _summary(engine: Engine, target: str, counts: QueueStatus) -> dict[str, Any]:
    return {
        "name": target.removeprefix(TOPIC_PREFIX) if _is_topic(target) else target,
        "type": "topic" if _is_topic(target) else "queue",
        "state": _STATES[engine.memory.pauses.sides(target)],
        "consumers": counts.consumers,
        "messages": counts.messages,
        "paged": counts.paged,
        "unacknowledged": counts.unacknowledged,
        "bytes": counts.size,
    }


def _add(summary: dict[str, Any], counts: QueueStatus) -> None:
    """Add the counts of a further subscription to those of its topic."""
    for name in ("consumers", "messages", "paged", "unacknowledged"):
        summary[name] += getattr(counts, name)
    summary["bytes"] += counts.size


def _durable(engine: Engine, queue: Queue) -> dict[str, Any]:
    subscription = queue.subscription
    assert subscription is not None, "a queue without a subscription"
    [counts] = engine.status((queue.name,))
    paused = "consumers" in counts.paused
    return {
        "name": subscription.name,
        "client-id": subscription.client,
        "login": subscription.login,
        "topic": subscription.topic,
        "selector": subscription.selector,
        "shared": subscription.shared,
        "state": "PAUSED" if paused else "ACTIVE" if counts.consumers else "INACTIVE",
        "consumers": counts.consumers,
        "messages": counts.messages,
        "queue": queue.name,
    }
