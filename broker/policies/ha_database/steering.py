"""The commands of an administrator to a broker in a high-availability cluster.

They are list, quiesce, unquiesce, takeover (Sun 4.1, chapter 8).

Why the broker asks for confirmation and not the tool: only the store knows how long ago the other
broker last showed life, and only at the moment of the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.core.message import MESSAGE
from broker.policies.ha_database.life import Life
from broker.policies.ownership.contender import Contender
from broker.policies.policy import Command, RequestRefusedError
from broker.storage.database import DatabaseError
from broker.storage.database.registry import Registry, ReplacedError, RowChangedError
from broker.storage.database.schema import (
    OPERATING,
    QUIESCE_COMPLETE,
    QUIESCING,
    RUNNING,
    STATES,
    TAKEOVER_STARTED,
)

POLL_S: Final = 0.1
"""The interval of the checks whether something has come to its end."""
TAKEOVER_PATIENCE_S: Final = 60.0

UNKNOWN: Final = "*unknown"
"""The text in the list for a broker whose state is not in the documents.

It may be a broker of a newer version.
"""

SERVING: Final = (OPERATING, QUIESCING, QUIESCE_COMPLETE)
"""The states between which an administrator moves a broker; one that shuts down is in none."""


class MemberSteering:
    """The commands of one broker, by their names on the admin port."""

    def __init__(self, policy: Contender, registry: Registry) -> None:
        self._policy = policy
        self._registry = registry
        self._cluster_id = registry.cluster_id
        self._broker_id = registry.broker_id
        self._emptying: asyncio.Task[None] | None = None
        self.commands: Mapping[str, Command] = {
            "members": self._asked(self._members),
            "quiesce": self._asked(self._quiesce),
            "unquiesce": self._asked(self._unquiesce),
            "takeover": self._asked(self._takeover),
        }

    def _asked(self, command: Command) -> Command:
        async def answered(arguments: Mapping[str, Any]) -> dict[str, Any]:
            try:
                return await command(arguments)
            except DatabaseError as error:
                raise RequestRefusedError(f"the database cannot be used now: {error}") from None
            except (RowChangedError, ReplacedError) as error:
                raise RequestRefusedError(str(error)) from None

        return answered

    def _life(self) -> Life:
        life = self._policy.reign
        if not isinstance(life, Life):
            raise RequestRefusedError(f"{self._broker_id} does not serve now (role {self._policy.role})")
        return life

    async def _members(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return all brokers that the store knows, whatever their state (example 8-2)."""
        rows = await self._registry.rows(count_messages=MESSAGE)
        return {
            "cluster-id": self._cluster_id,
            "broker-id": self._broker_id,
            "members": [
                {
                    "broker-id": row.broker_id,
                    "address": row.address,
                    "state": row.state if row.state in STATES else UNKNOWN,
                    "messages": row.messages,
                    "taker": row.taker or None,
                    "silence-ms": row.silence_ms,
                }
                for row in rows
            ],
        }

    async def _quiesce(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse new clients and go on serving the old ones.

        No other broker takes over, since we go on proving that we live.
        """
        life = self._life()
        before = life.store_sessions.closed
        life.store_sessions.closed = f"{self._broker_id} is quiescing: it takes no new connections"
        try:
            await self._registry.become(life.registered, QUIESCING, since=SERVING)
        except BaseException:
            life.store_sessions.closed = before
            raise
        if self._emptying is None or self._emptying.done():
            self._emptying = asyncio.create_task(self._until_empty(life), name="ha-database quiesces")
        return {"connections": len(life.live.server.connections)}

    async def _until_empty(self, life: Life) -> None:
        while self._policy.reign is life and life.store_sessions.closed:
            if not life.live.server.connections:
                try:
                    # Only from these states: a shutdown that has begun meanwhile decides what
                    # others may do with the messages.
                    await self._registry.become(
                        life.registered, QUIESCE_COMPLETE, since=(QUIESCING, QUIESCE_COMPLETE)
                    )
                except DatabaseError:
                    await asyncio.sleep(POLL_S)
                    continue
                except (RowChangedError, ReplacedError):
                    return
                return
            await asyncio.sleep(POLL_S)

    async def _unquiesce(self, _: Mapping[str, Any]) -> dict[str, Any]:
        life = self._life()
        # Do this before the store's state changes: if that fails, asking once more corrects the
        # store.
        life.store_sessions.closed = ""
        if self._emptying is not None:
            self._emptying.cancel()
            await asyncio.gather(self._emptying, return_exceptions=True)
        await self._registry.become(life.registered, OPERATING, since=SERVING)
        return {}

    async def _takeover(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Take over by hand: for a broker that seems alive, confirmation is required.

        For a broker that was shut down it is not.
        """
        life = self._life()
        registry = self._registry
        broker_id, force = arguments.get("broker-id"), arguments.get("force", False)
        if not isinstance(broker_id, str) or not isinstance(force, bool):
            raise RequestRefusedError('takeover wants {"broker-id": "...", "force": true or false}')
        if broker_id == self._broker_id:
            raise RequestRefusedError(f"{broker_id} is this very broker")
        row = await registry.row(broker_id)
        if row is None:
            raise RequestRefusedError(f"no broker {broker_id!r} in cluster {self._cluster_id!r}")
        if row.state in RUNNING and row.silence_ms < registry.expiration_ms and not force:
            return {
                "confirm": f"The broker associated with {broker_id} last accessed the database "
                f"{row.silence_ms / 1000:.0f} seconds ago."
            }
        try:
            epoch = await registry.begin_takeover(life.registered, row, forced=True)
        except RowChangedError as error:
            raise RequestRefusedError(f"not taken over: {error}") from None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKEOVER_PATIENCE_S
        while loop.time() < deadline:
            # The watch completes this takeover, as it does a takeover of its own.
            now = await registry.row(broker_id)
            if now is None or now.epoch != epoch or now.state != TAKEOVER_STARTED:
                return {
                    "state": None if now is None else now.state,
                    "taker": None if now is None else now.taker,
                }
            await asyncio.sleep(POLL_S)
        raise RequestRefusedError(f"the takeover of {broker_id} has begun and is not complete yet")
