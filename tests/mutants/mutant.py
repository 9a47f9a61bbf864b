"""What a mutant is: the product with one bug put in, where that bug can show, and what the checkers
must then say.

Why no hand-made schedule: a bug that is found only by whoever put it there is not found. An arena
says which workload, cluster and kinds of faults there are, and is as general as a person would make
it who suspects the part and not the bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutants.changed import Replacement


@dataclass(frozen=True, slots=True)
class Arena:
    """Where to look: ``fields`` of the TestSpec, and the ``kinds`` of faults that schedules are
    drawn from (none: the load alone).

    ``clients`` are replacements too, but of the test's own clients, which then do something that
    the workloads do not do yet; they are in force for the sound broker as well, so that only the
    broker's bug makes the difference.
    """

    kinds: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    clients: tuple[Replacement, ...] = ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug.

    ``models`` is the id in docs/mutants.md of what happened to a real broker, or "own";
    ``anomalies``: any of them finds it.
    """

    name: str
    part: str
    models: str
    wrong: str
    anomalies: frozenset[str]
    arena: Arena
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A mutant that is not built yet: the feature that it breaks does not exist, or is too young.

    ``meanwhile`` names the nearest one that can.
    """

    name: str
    models: str
    reason: str
    meanwhile: str
