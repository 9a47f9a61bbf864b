"""``jepsen-run conformance``: deploy a small cluster of a system, try it, print the table."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import OWN, InfrastructureError, TestSpec, UsageError
from harness.report.summary import size
from harness.report.terminal import is_quiet
from harness.run.compose import Composition, compose
from harness.run.conformance import STEPS, Conformance
from harness.run.talk import Row
from harness.systems import registry
from workloads.groups import GroupsLoad
from workloads.registry import possible, queues_of, topics_of
from workloads.subscriptions import SubscriptionsLoad

ROWS: Final = "conformance.json"
"""The file with the rows. Its directory has no spec, since it is no run that could be judged."""
_WIDTH: Final = 24


def run(
    system: str | None, policy: str | None, environment: str, pairs: int, root: Path, *, as_json: bool
) -> int:
    """Run ``jepsen-run conformance`` and return its exit status.

    The status is 1 if a statement is wrong, 2 if none is wrong but some are unknown.
    """
    name = system or OWN
    named_system = registry.get(name)
    chosen = policy or next(iter(named_system.policies))
    # Brokers that need their topics declared in advance get them by the workload that has topics.
    topics = [SubscriptionsLoad.name] if SubscriptionsLoad.name in possible(named_system.dialect) else []
    spec = TestSpec(
        name=f"conformance-{name}-{chosen}",
        system=name,
        policy=chosen,
        environment=environment,
        pairs=pairs,
        queues=STEPS,
        workload=",".join([GroupsLoad.name, *topics]),
    )
    test = compose(spec)
    if test.environment.virtual:
        raise UsageError(
            f"--environment {environment}: conformance needs real time: use local, docker or ssh"
        )
    talk = sys.stderr if as_json else sys.stdout
    store = stores.create(root, spec.name)

    def tell(text: str) -> None:
        print(text, file=talk, flush=True)

    def tell_row(row: Row) -> None:
        if not is_quiet() or row.state == "DEPARTS":
            tell(line(row))

    if not is_quiet():
        tell(f"{spec.name}: {size(test.nodes)}, {test.environment_reason}")
    for warning in test.warnings:
        tell(warning)
    rows = tried(test, store, tell_row)
    stores.save(store, ROWS, [row._asdict() for row in rows])
    departs = sum(row.state == "DEPARTS" for row in rows)
    unknown = sum(row.state == "unknown" for row in rows)
    left_out = sum(row.state == "not claimed" for row in rows)
    right = len(rows) - departs - unknown - left_out
    tell(f"{right} as said, {departs} depart, {unknown} unknown, {left_out} not claimed")
    tell(f"Rows     {store / ROWS}")
    tell(f"Logs     {store / stores.LOGS}")
    if as_json:
        print(stores.as_json([row._asdict() for row in rows]))
    return judging.INVALID if departs else judging.UNKNOWN if unknown else judging.VALID


def line(row: Row) -> str:
    """Return a row of the table as a line of text."""
    claim = f"says: {row.said}; " if row.said else ""
    return f"  {row.state:<11} {row.what:<{_WIDTH}} {claim}seen: {row.seen}"


def tried(test: Composition, store: Path, tell: Callable[[Row], None]) -> list[Row]:
    """Deploy the cluster, try its statements, and remove it; return the rows.

    A signal that ends the attempt is raised as KeyboardInterrupt after the cluster is removed.
    """
    try:
        return asyncio.run(_tried(test, store, tell))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _tried(test: Composition, store: Path, tell: Callable[[Row], None]) -> list[Row]:
    environment = test.environment
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # asyncio handles SIGINT itself
        if signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await environment.deploy(test.system, test.spec, test.nodes, store)
        return await Conformance(test, tell).run(queues_of(test.spec), topics_of(test.spec))
    finally:
        try:
            await environment.collect(store / stores.LOGS)
        except (OSError, InfrastructureError) as error:
            print(f"the logs could not be read: {error}", file=sys.stderr)
        await environment.teardown()
