"""Scenarios with a verdict that is known in advance: what the source documents promise, limit or describe.

Why data: a scenario is a spec, a schedule and what must be found. The same rows serve the tests, the benchmark that repeats
them, and a person who wants to see one. "Valid" means that the checkers find nothing; a scenario that expects a finding describes a
weakness the documents admit, and a run that does not find it has failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harness.interface import Fault, Schedule, TestSpec

_MASTER: Final = "ha-policy.replication.master."
_SLAVE: Final = "ha-policy.replication.slave."


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what is done, and which verdicts are right.

    ``required`` lists alternatives of which one at least must be found; empty means that nothing need be found. ``allowed`` may be
    found besides; anything else that makes a run invalid is wrong.
    """

    id: str
    claim: str
    source: str
    spec: TestSpec
    schedule: Schedule
    required: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def judge(self, valid: bool | None, found: frozenset[str]) -> str:
        """Nothing when a verdict is as expected, else what is wrong with it.

        Args:
            valid: the verdict of the run.
            found: names of the findings that made it invalid.
        """
        if valid is None:
            return "the run ended unknown"
        if self.required and not found & frozenset(self.required):
            return f"found {_words(found)} and none of {', '.join(self.required)}"
        surplus = found - frozenset(self.required) - frozenset(self.allowed)
        return f"found {_words(surplus)} besides" if surplus else ""


def _words(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _spec(
    name: str,
    *,
    pairs: int,
    seconds: float = 12.0,
    hold_s: float | None = None,
    prefetch: int | None = None,
    properties: dict[str, dict[str, object]] | None = None,
) -> TestSpec:
    return TestSpec(
        name=name,
        policy="replication",
        pairs=pairs,
        time_limit_s=seconds,
        rate=150.0,
        producers=2 * pairs + 2,
        consumers=2 * pairs + 2,
        groups=4 * pairs,
        recovery_bound_s=30.0,
        hold_s=hold_s,
        prefetch=prefetch,
        properties=properties or {},
    )


def _votes(*, live: bool) -> dict[str, dict[str, object]]:
    return {
        "*": {f"{_MASTER}vote-on-replication-failure": live, f"{_SLAVE}vote-on-replication-failure": live}
    }


_DIVERGED: Final = (
    "zombie",
    "duplicate",
    "double-delivery",
    "group-split",
    "lost",
    "stuck",
    "reordered",
    "reordered-realtime",
    "reordered-session",
)
"""What follows when two lives serve one queue from two journals."""

SCENARIOS: Final = (
    Scenario(
        id="RP1",
        claim="the backup has all data that the live acknowledged",
        source="AMQ 17.3.1.2",
        spec=_spec("rp1", pairs=1),
        schedule=Schedule(faults=(Fault(kind="kill", start_s=4.0, duration_s=4.0, target="a1"),)),
    ),
    Scenario(
        id="RP4",
        claim="one pair cannot avoid network isolation",
        source="AMQ 17.3.1.3",
        spec=_spec("rp4", pairs=1),
        schedule=Schedule(faults=(Fault(kind="partition", start_s=3.0, duration_s=6.0, shape="pair-link"),)),
        required=("split-brain",),
        allowed=_DIVERGED,
    ),
    Scenario(
        id="RP5",
        claim="three pairs with both votes on: the isolated live shuts down, the backup starts with a majority",
        source="AMQ 17.3.3.1",
        spec=_spec("rp5", pairs=3, properties=_votes(live=True)),
        schedule=Schedule(
            faults=(
                Fault(
                    kind="partition", start_s=3.0, duration_s=7.0, shape="isolate-live", options={"pair": "a"}
                ),
            )
        ),
        allowed=("split-brain",),
    ),
    Scenario(
        id="RP6",
        claim="three pairs with vote-on-replication-failure=false: both become active",
        source="AMQ 17.3.1.3, 17.3.3.1",
        spec=_spec("rp6", pairs=3, properties=_votes(live=False)),
        schedule=Schedule(
            faults=(
                Fault(
                    kind="partition", start_s=3.0, duration_s=7.0, shape="pair-link", options={"pair": "a"}
                ),
            )
        ),
        required=("split-brain",),
        allowed=_DIVERGED,
    ),
    Scenario(
        id="RP11",
        claim="without a backup the live serves on unreplicated; with its disk go the messages",
        source="AMQ 17.3.1.3",
        # Slow consumers: what is lost with the disk is what nobody had consumed yet.
        spec=_spec("rp11", pairs=1, hold_s=0.2, prefetch=2),
        schedule=Schedule(
            faults=(
                Fault(kind="kill", start_s=2.0, target="a2"),
                Fault(kind="destroy", start_s=6.0, duration_s=2.0, target="a1"),
            )
        ),
        required=("lost",),
        allowed=("duplicate", "reordered", "reordered-realtime", "unavailable"),
    ),
    Scenario(
        id="RP14-false",
        claim="check-for-live-server=false: duplicates after the old live restarts",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-false", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": False}}),
        schedule=Schedule(faults=(Fault(kind="kill", start_s=3.0, duration_s=3.0, target="a1"),)),
        required=("duplicate", "split-brain"),
        allowed=_DIVERGED,
    ),
    Scenario(
        id="RP14-true",
        claim="check-for-live-server=true: the old live synchronises and takes over again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-true", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": True}}),
        schedule=Schedule(faults=(Fault(kind="kill", start_s=3.0, duration_s=3.0, target="a1"),)),
    ),
)


def named(identifier: str) -> Scenario:
    """The scenario of one claim's row."""
    return next(scenario for scenario in SCENARIOS if scenario.id == identifier)
