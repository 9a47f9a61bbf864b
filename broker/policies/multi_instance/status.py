"""The display of ``dspmq``, in its words: a queue manager and its instances.

Why separate from the policy: an instance that runs answers for itself. If none runs, the locks and
what the last active instance left tell the same to any program that can read the file system.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from broker.policies.multi_instance.places import InstanceLocks, InstanceRecord

STARTING: Final = "Starting"
RUNNING: Final = "Running"
RUNNING_AS_STANDBY: Final = "Running as standby"
RUNNING_ELSEWHERE: Final = "Running elsewhere"
QUIESCING: Final = "Quiescing"
ENDING_IMMEDIATELY: Final = "Ending immediately"
ENDED_NORMALLY: Final = "Ended normally"
ENDED_IMMEDIATELY: Final = "Ended immediately"
ENDED_UNEXPECTEDLY: Final = "Ended unexpectedly"
NOT_AVAILABLE: Final = "Status not available"

PERMITTED: Final = "Permitted"
NOT_PERMITTED: Final = "Not permitted"
NOT_APPLICABLE: Final = "Not applicable"

Mode = Literal["Active", "Standby"]


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that runs, by its broker's name."""

    name: str
    mode: Mode


class Display(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A queue manager as one machine sees it."""

    queue_manager: str
    status: str
    standby: str
    instances: tuple[RunningInstance, ...] = ()

    def lines(self, *, instances: bool, standby: bool) -> list[str]:
        """Return the lines that ``dspmq`` prints.

        With ``-o standby`` they show whether a standby is permitted instead of the status. With
        ``-x`` the instances follow.
        """
        shown = f"STANDBY({self.standby})" if standby else f"STATUS({self.status})"
        lines = [f"QMNAME({self.queue_manager}) {shown}"]
        if instances:
            lines += [f"    INSTANCE({each.name}) MODE({each.mode})" for each in self.instances]
        return lines


async def look(places: InstanceLocks, queue_manager: str, own: str | None = None) -> Display:
    """Return the display of the queue manager now.

    ``own`` is the status of the instance that asks; None if none that could ask runs.

    Raises FileNotFoundError for a queue manager that does not exist, OSError.
    """
    if await places.owner() is None:
        raise FileNotFoundError(
            f"no queue manager {queue_manager!r} has been started here: there is no {places.data}"
        )
    last = await places.record("active")
    active = last if await places.held("active") else None
    standby = await places.record("standby") if await places.held("standby") else None
    instances: list[RunningInstance] = []
    if active is not None:
        instances.append(RunningInstance(name=active.instance, mode="Active"))
    if standby is not None:
        instances.append(RunningInstance(name=standby.instance, mode="Standby"))
    permitted = NOT_APPLICABLE if active is None else PERMITTED if active.permit_standby else NOT_PERMITTED
    return Display(
        queue_manager=queue_manager,
        status=own or (RUNNING_ELSEWHERE if instances else _ended(last)),
        standby=permitted,
        instances=tuple(instances),
    )


def _ended(last: InstanceRecord | None) -> str:
    """Return how a queue manager ended that runs nowhere."""
    if last is None or last.state in ("starting", "running"):
        return ENDED_UNEXPECTEDLY
    return ENDED_IMMEDIATELY if last.state == "ended-immediately" else ENDED_NORMALLY
