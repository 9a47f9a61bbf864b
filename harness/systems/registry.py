"""The systems under test by name: those of this project, and those that other packages bring.

Another package names its systems in the entry points ``jepsen_run.systems``. A module is imported
only when its system is chosen: the modules that a broker's own need may be missing on this machine,
and an error in one system must not hinder another.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

import msgspec

from checkers.verdict import CAUTIOUS, Promises
from harness.interface import OWN, Released, System, TestSpec, UsageError
from harness.interface.errors import choose, meant

SYSTEMS: Final[dict[str, str]] = {
    OWN: "harness.systems.own.system:OwnSystem",
    "artemis": "harness.systems.artemis.system:ArtemisSystem",
    "classic": "harness.systems.classic.system:ClassicSystem",
    "openmq": "harness.systems.openmq.system:OpenmqSystem",
    "rabbitmq": "harness.systems.rabbitmq.system:RabbitmqSystem",
}
"""Name -> the module and class of a system, which takes no argument; systems are added here."""

ENTRY_POINTS: Final = "jepsen_run.systems"
"""The group in which packages name their systems, each a class that takes no argument."""

_MEMBERS: Final = (*System.__annotations__, *(name for name in vars(System) if not name.startswith("_")))


def names() -> tuple[str, ...]:
    """Return all names that can be asked for, ours first."""
    return tuple(dict.fromkeys((*SYSTEMS, *sorted(point.name for point in _entry_points()))))


def get(name: str) -> System:
    """Return a system with connections of its own.

    Raises UsageError for an unknown name, with the nearest known one. Raises it, with the reason,
    for a system of another package that cannot be used.
    """
    choose("system", name, names())
    points = [point for point in _entry_points() if point.name == name]
    places = [*([SYSTEMS[name]] if name in SYSTEMS else []), *map(_where, points)]
    if len(places) > 1:
        raise UsageError(f'system "{name}" is there twice ({", ".join(places)}): rename or remove one')
    if points:
        return _made(points[0])
    module, _, attribute = SYSTEMS[name].partition(":")
    system: System = getattr(importlib.import_module(module), attribute)()
    return system


def usual_policy(name: str = OWN) -> str:
    """Return the policy of a test of that system that names none: the usual one, or the only one.

    Raises UsageError that names the policies if there are several without the usual one.
    """
    policies = get(name).policies
    usual = TestSpec(name="").policy
    if usual in policies:
        return usual
    if len(policies) > 1:
        raise UsageError(f"system {name} has several policies: give --policy {', '.join(policies)}")
    return next(iter(policies))


def promises(spec: TestSpec, release: str = "") -> Promises:
    """Return what the brokers of a test promise, if they are of this release ("": not known).

    For an imported history it is what any broker promises, and what was said at the import.
    """
    if spec.imported is not None:
        promised = {"fifo": spec.imported.fifo, "ack_wait_s": spec.imported.ack_wait_s}
        return Promises(**{**msgspec.structs.asdict(CAUTIOUS), **promised})
    system = of(spec)
    if isinstance(system, Released):
        system.release = release
    return system.promises(spec)


def of(spec: TestSpec) -> System:
    """Return the system that a spec is for.

    Raises UsageError for a policy that it does not have, and for an imported history, which has no
    brokers to run.
    """
    if spec.imported is not None:
        raise UsageError(
            f"this history was imported from {spec.imported.file}: there are no brokers to run it with again"
        )
    if spec.attached is not None:
        from harness.systems import attached  # noqa: PLC0415 - most tests have no use for it

        return attached.of(spec.attached, get)
    system = get(spec.system)
    if spec.policy not in system.policies:
        raise UsageError(
            f'unknown policy "{spec.policy}": {meant(spec.policy, system.policies)}'
            f"system {system.name} has {', '.join(system.policies)}"
        )
    return system


@functools.cache
def _entry_points() -> Sequence[metadata.EntryPoint]:
    """Return what packages bring; a package that is found by two paths counts once."""
    points = {(_where(point), point.name): point for point in metadata.entry_points(group=ENTRY_POINTS)}
    return tuple(points.values())


def _where(point: metadata.EntryPoint) -> str:
    return f"{point.value} of {point.dist.name if point.dist else 'an unknown package'}"


def _made(point: metadata.EntryPoint) -> System:
    """Make a system of an entry point; raise UsageError, in one line, if it is not a system."""

    def wrong(problem: str) -> UsageError:
        return UsageError(f'system "{point.name}" ({_where(point)}) {problem}')

    try:
        kind: Any = point.load()
    except Exception as error:
        raise wrong(f"cannot be imported: {_line(error)}") from error
    if not isinstance(kind, type):
        raise wrong(f"is no class but {type(kind).__name__}")
    try:
        made: System = kind()
    except Exception as error:
        raise wrong(f"cannot be made without arguments: {_line(error)}") from error
    if lacking := [member for member in _MEMBERS if not hasattr(made, member)]:
        raise wrong(f"is no System: it has no {', '.join(lacking)}")
    if made.name != point.name:
        raise wrong(f'calls itself "{made.name}": both names must be the same')
    return made


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
