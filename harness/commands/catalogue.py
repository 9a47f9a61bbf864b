"""The catalogue of ``jepsen-run list``: what this installation can do, and what can be combined.

Why one place: its names are the ones that options take, so nobody need read source to write a
command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

import environments.registry
import nemesis.registry
import workloads.registry
from harness.interface import (
    InfrastructureError,
    Installed,
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

_SIMULATE: Final = "; use --environment simulation"
_MIXED: Final = "all that brokers of the system can be loaded with; a search draws which, and their weights"


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: what it is, and whether its brokers share a store or a database.

    ``problem`` is what must be installed for it and is missing, ``environments`` why it is not
    possible in them; "" for nothing.
    """

    description: str
    shares: bool
    problem: str
    environments: dict[str, str]


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


class UsableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An environment or a system.

    ``problem`` is why it cannot be used on this machine, "" if it can.
    """

    description: str
    problem: str


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
    missing = system.missing() if isinstance(system, Installed) else ""
    usable = [name for name, can in supports.items() if not isinstance(can, str)]
    return PolicyEntry(
        description=system.policies[policy].description,
        shares=any(node.store is not None or node.database is not None for node in nodes),
        problem="" if missing == _system(system.name, system.name).problem else missing,
        environments={name: _refused(system, nodes, name) for name in usable},
    )


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
        return UsableEntry(description="of another package", problem=str(error))
    is_other = name != chosen and isinstance(systems.get(chosen), Installed)
    with given_to_another() if is_other else contextlib.nullcontext():
        missing = system.missing() if isinstance(system, Installed) else ""
    return UsableEntry(description=system.summary, problem=missing)


def _problem(name: str, can: Mapping[str, str] | str) -> str:
    if name == "docker" and (problem := environments.registry.engine_problem()):
        return problem
    return can if isinstance(can, str) else ""


def as_text(catalogue: Catalogue) -> str:
    """Return the catalogue as a table for people."""
    return "\n".join(_lines(catalogue))


def _lines(catalogue: Catalogue) -> Iterator[str]:
    yield "Systems (--system)"
    yield from _places(catalogue.systems)
    yield ""
    yield f"Policies of {catalogue.system} (--policy)"
    for name, policy in catalogue.policies.items():
        yield f"  {name:<14} {policy.description}"
        if policy.problem:
            yield f"  {'':<14}   not usable here: {policy.problem}"
        yield from (
            f"  {'':<14}   not on {place}: {why}" for place, why in policy.environments.items() if why
        )
    yield ""
    yield from _table_of_nemeses(catalogue)
    yield ""
    yield "Workloads (--workload)"
    for name, workload in catalogue.workloads.items():
        yield f"  {name:<14} {workload.description}"
        if workload.lack:
            yield f"  {'':<14}   not with {catalogue.system}: its brokers have no {workload.lack}"
    yield "  several go together, with commas, each with a weight if it has one: groups,bank:2"
    yield ""
    yield "Environments (--environment; auto takes docker where an engine answers)"
    yield from _places(catalogue.environments)
    yield ""
    yield "Every policy goes with every workload, nemesis and environment, except as said above."


def _places(places: Mapping[str, UsableEntry]) -> Iterator[str]:
    for name, place in places.items():
        yield f"  {name:<14} {place.description}"
        if place.problem:
            yield f"  {'':<14}   not usable here: {place.problem}"


def _table_of_nemeses(catalogue: Catalogue) -> Iterator[str]:
    """Yield one line for each nemesis, with a column for each environment.

    Reasons that do not fit into a column are printed below, each once.
    """
    reasons: dict[str, int] = {}
    simulated = not catalogue.environments["simulation"].problem
    places = tuple(catalogue.environments)
    width = max(map(len, catalogue.nemeses))
    head = " ".join(f"{place:<{_column(place)}}" for place in places)
    yield "Nemeses (--nemesis, several with commas)"
    yield f"  {'':<{width}}  {head}"
    for name, kind in catalogue.nemeses.items():
        cells = []
        for place in places:
            reason = (
                kind.environments[place] if simulated else kind.environments[place].removesuffix(_SIMULATE)
            )
            for primitive in nemesis.registry.get(name).primitives:
                reason = reason.removeprefix(f"{primitive}: ")
            mark = "yes"
            if not kind.policies:
                mark = "-"
            elif reason:
                mark = f"[{reasons.setdefault(f'{place}: {reason}', len(reasons) + 1)}]"
            cells.append(f"{mark:<{_column(place)}}")
        yield f"  {name:<{width}}  {' '.join(cells)}  {kind.description}{_only(kind, catalogue)}"
    for reason, number in reasons.items():
        yield f"  [{number}] not on {reason}"
    disks = ", ".join(name for name, kind in catalogue.nemeses.items() if kind.disks)
    if shares := ", ".join(name for name, policy in catalogue.policies.items() if policy.shares):
        where = f"with {shares} only in the simulation" if simulated else f"not with {shares}"
        yield f"  {disks}: {where}, for no broker has its data on a disk of its own"
    yield from _choices("shapes", {name: kind.shapes for name, kind in catalogue.nemeses.items()}, "")
    yield from _choices(
        "targets", {name: kind.targets for name, kind in catalogue.nemeses.items()}, ", or names of nodes"
    )


def _only(kind: NemesisEntry, catalogue: Catalogue) -> str:
    if not kind.policies:
        return f" (with no policy of {catalogue.system})"
    if len(kind.policies) < len(catalogue.policies):
        return f" (only with {' or '.join(kind.policies)})"
    return ""


def _column(place: str) -> int:
    return max(len(place), len("[10]"))


def _choices(title: str, choices: Mapping[str, tuple[str, ...]], besides: str) -> Iterator[str]:
    """Yield the possible choices, once for all kinds that have the same choice.

    The largest such group is called "all others".
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, choice in choices.items():
        if choice:
            groups.setdefault(choice, []).append(name)
    for choice, names in groups.items():
        whose = "all others" if len(names) > len(choices) / 2 else ", ".join(names)
        yield f"  {title} of {whose}: {', '.join(choice)}{besides}"
