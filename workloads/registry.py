"""Workloads by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.interface import TestSpec, Workload
from harness.interface.errors import choose
from workloads.bank import BankLoad
from workloads.groups import GroupsLoad
from workloads.load import Load
from workloads.queue import QueueLoad
from workloads.refusals import RefusalsLoad
from workloads.subscriptions import SubscriptionsLoad
from workloads.transactions import TransactionsLoad

WORKLOADS: Final[Mapping[str, type[Load]]] = {
    kind.name: kind
    for kind in (BankLoad, GroupsLoad, QueueLoad, RefusalsLoad, SubscriptionsLoad, TransactionsLoad)
}


def create(name: str, *, pipeline: int | None = None) -> Workload:
    """A fresh workload for one test.

    Raises UsageError, with the near name, for one there is not.
    """
    return WORKLOADS[choose("workload", name, WORKLOADS)](pipeline=pipeline)


def queues_of(spec: TestSpec) -> tuple[str, ...]:
    """Names of the queues that a test of that spec needs from its beginning."""
    return WORKLOADS[choose("workload", spec.workload, WORKLOADS)].queues_of(spec)


def topics_of(spec: TestSpec) -> tuple[str, ...]:
    """Names of its topics, as they stand in a history."""
    return WORKLOADS[choose("workload", spec.workload, WORKLOADS)].topics_of(spec)


def grouped(workload: str) -> bool:
    """Whether messages of that workload have groups, where brokers have such."""
    return WORKLOADS[choose("workload", workload, WORKLOADS)].grouped
