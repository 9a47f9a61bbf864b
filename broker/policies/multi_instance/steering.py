"""The commands of an administrator to an instance: ``end`` (endmqm) and ``display`` (dspmq).

end            all instances, when the last client has left ("Quiescing"); with ``immediate`` now
  switch-over  only this one, being active: the standby instance takes over. Refused where none runs
  standby-only only this one, standing by. Refused where it is active
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from broker.policies.multi_instance import status
from broker.policies.multi_instance.store import QueueManagerStore
from broker.policies.ownership.contender import Contender
from broker.policies.policy import Command, RequestRefusedError

_log = logging.getLogger(__name__)

_OPTIONS: Final = ("immediate", "switch-over", "standby-only")

_STATUS: Final[Mapping[str, str]] = {
    "starting": status.STARTING,
    "live": status.RUNNING,
    "verifying": status.RUNNING,
    "backup": status.RUNNING_AS_STANDBY,
    "stopping": status.ENDING_IMMEDIATELY,
    "stopped": status.ENDED_IMMEDIATELY,
}


class InstanceSteering:
    """The commands of one instance, by their names on the admin port."""

    def __init__(
        self, policy: Contender, name: str, store: QueueManagerStore, end: Callable[[], None]
    ) -> None:
        self._policy = policy
        self._name = name
        self._store = store
        self._end_instance = end
        self._quiescing: asyncio.Task[None] | None = None
        self.commands: Mapping[str, Command] = {"end": self._end, "display": self._display}

    @property
    def status(self) -> str:
        """The status of this instance, in the words of dspmq."""
        role = self._policy.role
        return status.QUIESCING if self._quiescing is not None and role == "live" else _STATUS[role]

    def close(self) -> None:
        """Stop waiting for clients to leave."""
        if self._quiescing is not None:
            self._quiescing.cancel()

    async def _display(self, _: Mapping[str, Any]) -> dict[str, Any]:
        try:
            shown = await status.look(self._store.places, self._name, self.status)
        except OSError as error:
            raise RequestRefusedError(f"the shared file system cannot be used now: {error}") from None
        found: dict[str, Any] = msgspec.to_builtins(shown)
        return found

    async def _end(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        immediate, switch_over, standby_only = (arguments.get(name, False) for name in _OPTIONS)
        if not all(isinstance(each, bool) for each in (immediate, switch_over, standby_only)):
            raise RequestRefusedError(f"end wants {', '.join(_OPTIONS)} to be true or false")
        name, role = self._name, self._policy.role
        if role in ("stopping", "stopped"):
            raise RequestRefusedError(f"queue manager {name!r} is ending already")
        if standby_only:
            if role != "backup":
                raise RequestRefusedError(
                    f"standby instance of queue manager {name!r} not ended: this instance is "
                    f"{self._word(role)}"
                )
            _log.info("standby queue manager instance %r ending", name)
            self._end_instance()
            return {"said": f"standby queue manager instance {name!r} ending"}
        if self._policy.reign is None:
            raise RequestRefusedError(
                f"active instance of queue manager {name!r} not ended: this instance is {self._word(role)};"
                " end the active one where it runs, or this one alone with -x"
            )
        if switch_over:
            await self._require_standby()
        return self._begin_to_end(immediate=immediate, switch_over=switch_over)

    def _begin_to_end(self, *, immediate: bool, switch_over: bool) -> dict[str, Any]:
        name = self._name
        _log.info(
            "queue manager %r %s%s",
            name,
            "ending" if immediate else "quiescing",
            ", permitting switchover" if switch_over else "",
        )
        self._policy.request_stop(failover=switch_over)
        self._store.ends = "ended-immediately" if immediate else "ended-normally"
        self.close()
        if immediate:
            self._end_instance()
        else:
            self._quiescing = asyncio.create_task(self._until_empty(), name="wait for clients to leave")
        return {
            "said": f"queue manager {name!r} {'ending' if immediate else 'quiescing'}"
            + (", permitting switchover to a standby instance" if switch_over else "")
        }

    async def _until_empty(self) -> None:
        reign = self._policy.reign
        if reign is not None and reign.live is not None:
            await reign.live.server.drained()
        self._end_instance()

    async def _require_standby(self) -> None:
        try:
            there = await self._store.places.held("standby")
        except OSError as error:
            raise RequestRefusedError(f"the shared file system cannot be used now: {error}") from None
        if not there:
            raise RequestRefusedError(
                f"queue manager {self._name!r} cannot switch over: no standby instance runs (permit-standby)"
            )

    def _word(self, role: str) -> str:
        return {"backup": "the standby one", "starting": "just starting"}.get(role, "the active one")
