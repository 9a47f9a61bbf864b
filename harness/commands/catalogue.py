"""The catalogue of ``jepsen-run list``: what this installation can do, and what can be combined.

Why one place: its names are the ones that options take, so nobody need read source to write a
command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

import environments.registry
import nemesis.registry
import workloads.registry
from harness.interface import (
    Fetched,
    InfrastructureError,
    Installed,
    Lack,
    NodePlan,
    Selective,
    System,
    TestSpec,
    UsageError,
)
from harness.run import compose
from harness.systems import equipment
from harness.systems import registry as systems
from harness.systems.given import given_to_another
from nemesis.target import TARGETS
from workloads.registry import MIXED

_MIXED: Final = "all workloads that the system supports; a search draws which, and their weights"


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy: what it is, and whether its brokers share a store or a database.

    ``problem`` is what must be installed for it and is missing, ``environments`` why it is not
    possible in them; "" for nothing. ``lack`` is the problem with the commands that solve it.
    """

    description: str
    shares: bool
    problem: str
    environments: dict[str, str]
    lack: Lack | None = None


class NemesisEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A nemesis.

    ``environments`` has for each environment "" or the reason why it cannot do it; ``policies`` are
    those whose brokers have what it breaks.

    ``disks`` is whether it breaks disks: outside the simulation only disks of brokers that share no
    store or database.
    """

    description: str
    shapes: tuple[str, ...]
    targets: tuple[str, ...]
    environments: dict[str, str]
    policies: tuple[str, ...]
    disks: bool


class WorkloadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A workload; every policy can be loaded with it, unless brokers lack ``lack``."""

    description: str
    lack: str = ""


class UsableEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An environment or a system.

    ``problem`` is why it cannot be used on this machine, "" if it can. ``lack`` is the problem with
    the commands that solve it, if that is known.
    """

    description: str
    problem: str
    lack: Lack | None = None


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All entries by name: the policies of one system, and what breaks its brokers."""

    systems: dict[str, UsableEntry]
    system: str
    policies: dict[str, PolicyEntry]
    nemeses: dict[str, NemesisEntry]
    workloads: dict[str, WorkloadEntry]
    environments: dict[str, UsableEntry]


def read(name: str) -> Catalogue:
    """Return the catalogue of a system from every registry; starts nothing. Raises UsageError."""
    system = systems.get(name)
    supports = {name: _supports(name, system) for name in environments.registry.ENVIRONMENTS}
    clusters = {
        policy: [
            system.plan(TestSpec(name="list", system=name, policy=policy, properties=properties))
            for properties in ({}, *summary.variants)
        ]
        for policy, summary in system.policies.items()
    }
    return Catalogue(
        systems={system_name: _system(system_name, name) for system_name in systems.names()},
        system=name,
        policies={policy: _policy(system, policy, supports) for policy in system.policies},
        nemeses={
            name: NemesisEntry(
                description=kind.description,
                shapes=tuple(kind.shapes),
                targets=tuple(TARGETS) if kind.targets else (),
                environments={
                    place: nemesis.registry.unsupported(name, can) if isinstance(can, Mapping) else can
                    for place, can in supports.items()
                },
                policies=tuple(
                    policy
                    for policy, variants in clusters.items()
                    if any(not kind.lacks(nodes) for nodes in variants)
                ),
                disks=equipment.breaks_disks(name),
            )
            for name, kind in nemesis.registry.KINDS.items()
        },
        workloads={
            name: WorkloadEntry(description=kind.description, lack=kind.lacks(system.dialect))
            for name, kind in workloads.registry.WORKLOADS.items()
        }
        | {MIXED: WorkloadEntry(description=_MIXED)},
        environments={
            name: UsableEntry(description=line, problem=_problem(name, supports[name]))
            for name, line in environments.registry.ENVIRONMENTS.items()
        },
    )


def _supports(name: str, system: System) -> Mapping[str, str] | str:
    """Return what an environment can do to brokers of a system, or why it cannot be asked."""
    try:
        return compose.place(system, name)[0].supports()
    except (ImportError, InfrastructureError, UsageError) as error:
        return str(error)


def _policy(system: System, policy: str, supports: Mapping[str, Mapping[str, str] | str]) -> PolicyEntry:
    """Return the entry of a policy.

    What a system says of a policy is about the policy that was planned last.
    """
    nodes = system.plan(TestSpec(name="list", system=system.name, policy=policy))
    problem, lack = _missing(system)
    if problem == _system(system.name, system.name).problem:
        problem, lack = "", None
    usable = [name for name, can in supports.items() if not isinstance(can, str)]
    return PolicyEntry(
        description=system.policies[policy].description,
        shares=any(node.store is not None or node.database is not None for node in nodes),
        problem=problem,
        lack=lack,
        environments={name: _refused(system, nodes, name) for name in usable},
    )


def _missing(system: System) -> tuple[str, Lack | None]:
    """Return what a system lacks on this machine, and the same with commands if it knows them."""
    problem = system.missing() if isinstance(system, Installed) else ""
    lack = system.lack() if problem and isinstance(system, Fetched) else None
    return problem, lack if lack is not None and str(lack) == problem else None


def _refused(system: System, nodes: Sequence[NodePlan], name: str) -> str:
    """Return why an environment cannot have the cluster that was planned last; "" if it can.

    That machines are not named yet is no reason.
    """
    if isinstance(system, Installed) and (problem := system.unplaced(name)):
        return problem
    environment = environments.registry.create(name)
    if not isinstance(environment, Selective):
        return ""
    reason = environment.refuses(nodes)
    return "" if reason == environment.refuses(()) else reason


def _system(name: str, chosen: str) -> UsableEntry:
    """Return the entry of a system; one that cannot even be loaded hides no other.

    ``--system-home`` belongs to the system that was asked for, if that has a distribution.
    """
    try:
        system = systems.get(name)
    except UsageError as error:
        return UsableEntry(description="a system of another package", problem=str(error))
    is_other = name != chosen and isinstance(systems.get(chosen), Installed)
    with given_to_another() if is_other else contextlib.nullcontext():
        problem, lack = _missing(system)
    return UsableEntry(description=system.summary, problem=problem, lack=lack)


def _problem(name: str, can: Mapping[str, str] | str) -> str:
    if name == "docker" and (problem := environments.registry.engine_problem()):
        return problem
    return can if isinstance(can, str) else ""
