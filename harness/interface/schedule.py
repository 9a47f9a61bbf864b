"""The schedule: the faults of one test."""

from __future__ import annotations

from typing import Any

import msgspec


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """A fault of a schedule: an interval, a kind, a target.

    Deleting any fault leaves a valid schedule.

    ``start_s`` counts from the start of the load or, with ``after``, from an event: the first time,
    under load, that any broker logs it ("failover/taken": the events below). If the event never
    comes, the fault is not injected, and the run is unknown. ``duration_s`` None lasts to the end
    of the load, when everything is healed.

    ``target`` is a role ("live" or "backup" of one pair, "lives" or "backups" of all), a count
    ("one", "minority", "majority", "all"), the "master-broker" of a conventional cluster, or names
    of nodes ("a1", "a1,b1"). Or it is a part that a broker played last, by the brokers' logs:
    "taker", "source" or "claimant"; "rivals" are all live brokers but the claimant. Roles and parts
    are resolved when the fault begins, and the history says to which nodes.
    """

    kind: str
    start_s: float  # seconds after the start of the load, or after the event
    after: str | None = None  # the event that it waits for
    duration_s: float | None = None
    target: str | None = None
    shape: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The faults of one test in order of their start; ``schedule.json``."""

    faults: tuple[Fault, ...] = ()
