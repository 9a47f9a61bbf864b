"""The registry of workloads by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from harness.interface import Dialect, TestSpec, UsageError, Workload
from harness.interface.errors import choose
from workloads import placement
from workloads.bank import BankLoad
from workloads.destinations import DestinationsLoad
from workloads.groups import GroupsLoad
from workloads.load import Load
from workloads.mixture import Mixture
from workloads.names import Numbers
from workloads.queue import QueueLoad
from workloads.refusals import RefusalsLoad
from workloads.request_reply import RequestReplyLoad
from workloads.selectors import SelectorsLoad
from workloads.subscriptions import SubscriptionsLoad
from workloads.transactions import TransactionsLoad

WORKLOADS: Final[Mapping[str, type[Load]]] = {
    kind.name: kind
    for kind in (
        BankLoad,
        DestinationsLoad,
        GroupsLoad,
        QueueLoad,
        RefusalsLoad,
        RequestReplyLoad,
        SelectorsLoad,
        SubscriptionsLoad,
        TransactionsLoad,
    )
}


MIXED: Final = "mixed"
"""The name of the mixture of all workloads that brokers can be loaded with."""


def parts(text: str) -> dict[str, int]:
    """Return the workloads that a text names, with their weights: ``bank:2,queue``.

    ``mixed`` names all workloads. Raises UsageError for an unknown name, with the nearest one, and
    for a name that is there twice.
    """
    if text == MIXED:
        return dict.fromkeys(WORKLOADS, 1)
    found: dict[str, int] = {}
    for one in text.split(","):
        name, colon, weight = one.partition(":")
        if name in found:
            raise UsageError(f"--workload {text} names one workload twice")
        if name == MIXED:
            raise UsageError(f"--workload {text}: {MIXED} contains all workloads: give it alone")
        if colon and not (weight.isascii() and weight.isdigit() and int(weight)):
            raise UsageError(f'--workload {text}: the weight "{weight}" must be a number, 1 or more')
        found[choose("workload", name, (*WORKLOADS, MIXED))] = int(weight) if colon else 1
    return found


def possible(dialect: Dialect, policy: str | None = None) -> list[str]:
    """Return the names of the workloads that brokers of a dialect can be loaded with.

    With ``policy``, only those that they can be loaded with under this policy.
    """
    return [
        name
        for name, kind in WORKLOADS.items()
        if not kind.lacks(dialect) and (policy is None or _fits(kind, dialect, policy))
    ]


def unfit(workload: str, dialect: Dialect, policy: str) -> list[str]:
    """Return the parts of a workload that brokers cannot be loaded with under a policy."""
    return [name for name in parts(workload) if not _fits(WORKLOADS[name], dialect, policy)]


def _fits(kind: type[Load], dialect: Dialect, policy: str) -> bool:
    policies = kind.policies(dialect)
    return policies is None or policy in policies


def create(name: str, *, pipeline: int | None = None) -> Workload:
    """Return a new workload, or a mixture of several, for one test.

    Raises UsageError for an unknown name, with the nearest one.
    """
    named = parts(name)
    if len(named) == 1:
        return WORKLOADS[next(iter(named))](pipeline=pipeline)
    numbers = Numbers()
    return Mixture(
        name,
        {
            WORKLOADS[one](pipeline=pipeline, prefix=_prefix(one, named), numbers=numbers): weight
            for one, weight in named.items()
        },
    )


def _prefix(name: str, named: Collection[str]) -> str:
    """Return the prefix of a workload's queues and topics; "" where it is the only one."""
    return f"{name.replace('-', '_')}_" if len(named) > 1 else ""


def queues_of(spec: TestSpec) -> tuple[str, ...]:
    """Return the names of the queues that a test of a spec needs from its beginning."""
    named = parts(spec.workload)
    return tuple(queue for one in named for queue in WORKLOADS[one].queues_of(spec, _prefix(one, named)))


def topics_of(spec: TestSpec) -> tuple[str, ...]:
    """Return the names of the topics of a test of a spec, as they stand in a history."""
    named = parts(spec.workload)
    return tuple(topic for one in named for topic in WORKLOADS[one].topics_of(spec, _prefix(one, named)))


def grouped(workload: str) -> bool:
    """Return whether messages of a workload have groups, where brokers have groups."""
    return any(WORKLOADS[one].grouped for one in parts(workload))


def refusing(workload: str) -> bool:
    """Return whether consumers of a workload refuse messages, where brokers let them."""
    return any(WORKLOADS[one].refuses for one in parts(workload))


def workloads_at_home(spec: TestSpec, dialect: Dialect) -> list[str]:
    """Return the parts of a workload whose producers and consumers must be at the same pairs."""
    linked = placement.all_linked(spec)
    return [
        one
        for one in parts(spec.workload)
        if WORKLOADS[one].at_home and not (linked and spec.policy in WORKLOADS[one].shared_by(dialect))
    ]
