"""The building blocks of the scenarios of all policies: loads, faults, takeovers.

Times are those of a test: every schedule is bounded to a dozen seconds, so that a nightly run on
containers can afford them all; in the simulation each takes about a second.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.claims.scenarios.expectations import (
    AtStake,
    Becomes,
    Expectation,
    ExpectedTakeover,
    Moved,
    Takeovers,
)
from harness.interface import Fault, Schedule, TestSpec

SLOW: Final[dict[str, Any]] = {"hold_s": 0.2, "prefetch": 2}
"""Settings for consumers slower than producers: messages wait in the store."""

BY_A2: Final = Takeovers((ExpectedTakeover("a1", "a2"),))
AND_BACK: Final = Takeovers((*BY_A2.exactly, ExpectedTakeover("a1", "a1")))
AND_AGAIN: Final = Takeovers((*AND_BACK.exactly, *BY_A2.exactly))
TAKEN: Final[tuple[Expectation, ...]] = (BY_A2, Moved(least=20, of="a1", by="a2"))
"""The expectations that a2 continues with what a1 had, and that a1 stays away."""


def load(
    name: str,
    policy: str,
    seconds: float,
    *,
    pairs: int = 1,
    clients: int = 3,
    rate: float = 60.0,
    every: dict[str, object] | None = None,
    store: dict[str, object] | None = None,
    server: bool = False,
    **fields: Any,
) -> TestSpec:
    """Return a spec: so many clients, ``rate`` sends a second in all, four groups for each pair.

    ``clients`` is the number of producers, and of consumers. ``every`` are properties of all
    brokers, ``store`` of what they share, ``fields`` other fields of the spec. With ``server`` the
    database is not a file of SQLite: a process that is stopped within a commit keeps such a file
    locked, and all that share it wait for it.
    """
    by_node = {"*": every, "store": store, "database": {"type": "server"} if server else None}
    return TestSpec(
        name=name,
        policy=policy,
        pairs=pairs,
        time_limit_s=seconds,
        rate=rate,
        producers=clients,
        consumers=clients,
        groups=4 * pairs,
        **{"properties": {node: values for node, values in by_node.items() if values}, **fields},
    )


def properties(prefix: str, **values: object) -> dict[str, object]:
    """Return properties of a policy by their names: an underscore is a hyphen, two are a dot."""
    return {prefix + name.replace("__", ".").replace("_", "-"): value for name, value in values.items()}


def fault(
    kind: str,
    start_s: float,
    duration_s: float | None = None,
    target: str | None = "a1",
    *,
    shape: str | None = None,
    after: str | None = None,
    **options: Any,
) -> Fault:
    """Return one fault; without a duration it lasts until everything is healed."""
    return Fault(
        kind=kind,
        start_s=start_s,
        duration_s=duration_s,
        target=target,
        shape=shape,
        after=after,
        options=options,
    )


def faults(*some: Fault) -> Schedule:
    """Return a schedule of faults."""
    return Schedule(faults=some)


def at_stake(at: str, broker: str | None = "a1", least: int = 20) -> tuple[AtStake, ...]:
    """Return the guard that the broker had something to lose when that fault came."""
    return (AtStake(least=least, at=at, broker=broker),)


def ends_in_time(after: str) -> Becomes:
    """Return the expectation that a1 ends itself when its lease of 4 s ends, or a little before."""
    return Becomes(broker="a1", role="stopped", after=after, least_s=3.0, most_s=5.5)


_ROOM = {"address-settings.#.max-size-bytes": 8192, "address-settings.#.page-size-bytes": 2048}
"""Settings with room for about thirty messages of a test, and seven on each page."""


def paged(spec: TestSpec) -> TestSpec:
    """Return the spec with slow consumers and so little memory that nearly all messages are paged.

    What is taken over must be complete wherever it waits. With the memory of production, no run of
    a dozen seconds would ever fill it.
    """
    by_node = {**spec.properties, "*": {**spec.properties.get("*", {}), **_ROOM}}
    return msgspec.structs.replace(spec, hold_s=0.3, prefetch=3, properties=by_node)
