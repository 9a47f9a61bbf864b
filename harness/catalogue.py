"""What this installation can do, and what goes with what: ``jepsen-run list``.

Why one place: the names in it are the ones that options take, so nobody need read source to write a command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

import environments.registry
import nemesis.registry
import workloads.registry
from harness.interface import InfrastructureError
from harness.systems import registry as systems
from nemesis.target import TARGETS


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: what it is, the system that has it."""

    description: str
    system: str


class Nemesis(msgspec.Struct, frozen=True, kw_only=True):
    """A nemesis. ``environments`` has for each environment "" or the reason why it cannot do it."""

    description: str
    shapes: tuple[str, ...]
    targets: tuple[str, ...]
    environments: dict[str, str]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload; every policy can be loaded with it."""

    description: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An environment. ``problem`` is why it cannot be used on this machine, "" if it can."""

    description: str
    problem: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, by name."""

    policies: dict[str, Policy]
    nemeses: dict[str, Nemesis]
    workloads: dict[str, Workload]
    environments: dict[str, Place]


def read() -> Catalogue:
    """Ask every registry; starts nothing."""
    supports = {name: _supports(name) for name in environments.registry.ENVIRONMENTS}
    return Catalogue(
        policies={
            policy: Policy(description=line, system=system.name)
            for system in systems.systems()
            for policy, line in system.policies.items()
        },
        nemeses={
            name: Nemesis(
                description=kind.description,
                shapes=tuple(kind.shapes),
                targets=tuple(TARGETS) if kind.targets else (),
                environments={
                    place: nemesis.registry.unsupported(name, can) if isinstance(can, Mapping) else can
                    for place, can in supports.items()
                },
            )
            for name, kind in nemesis.registry.KINDS.items()
        },
        workloads={name: Workload(description=line) for name, line in workloads.registry.WORKLOADS.items()},
        environments={
            name: Place(description=line, problem=_problem(name))
            for name, line in environments.registry.ENVIRONMENTS.items()
        },
    )


def _supports(name: str) -> Mapping[str, str] | str:
    """What an environment can do, or why it cannot be asked."""
    try:
        return environments.registry.create(name).supports()
    except (ImportError, InfrastructureError) as error:
        return str(error)


def _problem(name: str) -> str:
    return environments.registry.engine_problem() if name == "docker" else ""


def as_json() -> str:
    """One JSON document."""
    return msgspec.json.format(msgspec.json.encode(read()), indent=1).decode()


def as_text() -> str:
    """A table for people."""
    return "\n".join(_lines(read()))


def _lines(catalogue: Catalogue) -> Iterator[str]:
    yield "Policies (--policy)"
    for name, policy in catalogue.policies.items():
        yield f"  {name:<14} {policy.description}"
    yield ""
    yield "Nemeses (--nemesis, several with commas)"
    for name, kind in catalogue.nemeses.items():
        yield f"  {name:<14} {kind.description}"
        if kind.shapes:
            yield f"  {'':<14}   shapes: {', '.join(kind.shapes)}"
        if kind.targets:
            yield f"  {'':<14}   targets: {', '.join(kind.targets)}, or names of nodes"
        for place, reason in kind.environments.items():
            if reason:
                yield f"  {'':<14}   not on {place}: {reason}"
    yield ""
    yield "Workloads (--workload)"
    for name, workload in catalogue.workloads.items():
        yield f"  {name:<14} {workload.description}"
    yield ""
    yield "Environments (--environment; auto takes docker where an engine answers)"
    for name, place_ in catalogue.environments.items():
        can = [kind for kind, it in catalogue.nemeses.items() if not it.environments[name]]
        yield f"  {name:<14} {place_.description}"
        yield f"  {'':<14}   nemeses: {', '.join(can)}"
        if place_.problem:
            yield f"  {'':<14}   not usable here: {place_.problem}"
    yield ""
    yield "Every policy goes with every workload, nemesis and environment, except as said above."
