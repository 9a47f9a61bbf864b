"""The plans that decide the runs of a search or of a sweep.

Why a file in its directory: a search may be cut off by an interrupt, a full disk or the end of its
machine. It is then continued with the missing runs, the same as they would have been.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from harness.explore.swarm import Swarm, defaults, draw, swarm
from harness.history import spec as specs
from harness.history import store as stores
from harness.history.known import KnownFinding
from harness.interface import OWN, InfrastructureError, Schedule, TestSpec, UsageError, program
from harness.interface.texts import json_value
from harness.run import reproduction
from harness.systems import registry as systems


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides the runs: ``search.json``, ``sweep.json``.

    ``base`` has what all runs share; ``fixed`` are the names of its fields that are not drawn.
    ``runs`` None is without that limit.
    """

    noun: ClassVar[str]

    versions: dict[str, str] = msgspec.field(default_factory=reproduction.versions)
    seed: int = msgspec.field(default_factory=lambda: random.SystemRandom().randrange(2**31))
    runs: int | None = None
    base: TestSpec
    fixed: tuple[str, ...] = ()

    @classmethod
    def file(cls) -> str:
        """Return the name of the plan's file in its directory."""
        return f"{cls.noun}.json"

    def directory(self, root: Path, name: str, store: Path | None) -> Path:
        """Return ``store`` if it is given, else a new directory below ``root``."""
        return store or stores.create(root, f"{self.noun}-{name}")

    def save(self, store: Path) -> None:
        """Write the plan into its directory: a search or sweep is continued from it alone."""
        try:
            stores.save(store, self.file(), self)
        except OSError as error:
            raise InfrastructureError(f"cannot write into {store}: {error}") from error

    def begin(self, root: Path, name: str, store: Path | None) -> Path:
        """Return the directory, with the plan in it."""
        store = self.directory(root, name, store)
        self.save(store)
        return store

    def pending(self, made: Collection[int], may_begin: Callable[[], bool] = lambda: True) -> Iterator[int]:
        """Yield the numbers of the runs that are still to be made, in order.

        Runs before the last ``made`` one were begun already; they are yielded in any case.
        Later ones are yielded only while ``may_begin`` returns True.
        """
        begun = max(made, default=-1) + 1
        numbers = itertools.count() if self.runs is None else range(self.runs)
        for number in numbers:
            if number >= begun and not may_begin():
                return
            if number not in made:
                yield number

    @staticmethod
    def place(store: Path, made: int) -> str:
        """Return a line that says where the runs are kept, and how many of them exist already."""
        return f"store: {store}" + (f" ({made} of the runs are there already)" if made else "")

    @classmethod
    def resume_line(cls, store: Path) -> str:
        """Return the command that continues the search or sweep."""
        return program.command(cls.noun, "--resume", str(store))

    @contextlib.contextmanager
    def resumable(self, store: Path) -> Iterator[None]:
        """Add the command that continues to every error of the machine that the body raises."""
        try:
            yield
        except (OSError, InfrastructureError) as error:
            raise InfrastructureError(f"{error}; continue with: {self.resume_line(store)}") from error

    @classmethod
    def load(cls, store: Path, **changes: Any) -> Self:
        """Return the plan in ``store``, to continue it; ``changes`` that are None are ignored.

        Raises UsageError if there is no plan, if this version would not give the same runs, or if
        fewer runs are requested.
        """
        path = store / cls.file()
        try:
            plan = json_value(path.read_bytes(), cls)
        except FileNotFoundError:
            raise UsageError(
                f"{store} is not the directory of a {cls.noun}: it has no {path.name}; give the directory "
                f"that the {cls.noun} printed"
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path} is not the plan of a {cls.noun}: {error}") from None
        current = reproduction.versions()
        if plan.versions != current:
            raise UsageError(
                f"{store} was made with {_words(plan.versions)}, but this is {_words(current)}: runs of "
                f"two versions cannot be mixed; start a new {cls.noun}"
            )
        runs = changes.get("runs")
        if runs is not None and plan.runs is not None and runs < plan.runs:
            raise UsageError(
                f"--runs is {runs}, but {store} was begun with {plan.runs}: give as many or more"
            )
        return msgspec.structs.replace(
            plan, **{name: value for name, value in changes.items() if value is not None}
        )


Planned = TypeVar("Planned", bound=Plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreRequest(Generic[Planned]):
    """The request for a search or a sweep.

    ``store`` is the directory of one to continue; None begins one below ``root``. If
    ``spark_master`` is given, Spark makes the runs and judges those of a sweep; else so many
    processes do (``jobs``). ``known`` are the findings that a sweep accepts.
    """

    plan: Planned
    store: Path | None = None
    root: Path = stores.DEFAULT
    jobs: int = 1
    spark_master: str | None = None
    as_json: bool = False
    known: Sequence[KnownFinding] | None = None


class SearchPlan(Plan, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a search: ``search.json``.

    ``kinds`` are the faults to draw from. ``time_limit_s`` bounds the search and all that it does
    afterwards (None: no limit). ``shrink_limit_s`` is the part of that for making a finding
    smaller; 0 leaves the finding as it was found.
    """

    noun: ClassVar[str] = "search"

    kinds: tuple[str, ...]
    bounded: bool = True
    time_limit_s: float | None = None
    keep_going: bool = False
    shrink_limit_s: float = 180.0

    def swarm(self, _: int = 0) -> Swarm:
        """Return what every run draws from."""
        return Swarm(base=self.base, kinds=self.kinds, bounded=self.bounded, fixed=frozenset(self.fixed))


class Cell(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A policy and the one nemesis that breaks it: each run of a sweep belongs to a cell."""

    policy: str
    nemesis: str


class SweepPlan(Plan, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a sweep: ``sweep.json``.

    Run ``n`` belongs to cell ``n`` modulo their number.
    """

    noun: ClassVar[str] = "sweep"

    runs: int
    cells: tuple[Cell, ...]

    def cell(self, number: int) -> Cell:
        """Return the cell of a run."""
        return self.cells[number % len(self.cells)]

    def swarm(self, number: int) -> Swarm:
        """Return what a run of its cell draws from."""
        cell = self.cell(number)
        changes = {"policy": cell.policy, "nemeses": (cell.nemesis,)}
        base = msgspec.structs.replace(self.base, **changes)
        named = msgspec.structs.replace(base, name=specs.default_name(msgspec.structs.asdict(base)))
        return swarm(named, fixed=frozenset(self.fixed))


def drawn(plan: SearchPlan | SweepPlan, number: int) -> tuple[TestSpec, Schedule]:
    """Return a run's spec and faults."""
    return draw(plan.swarm(number), run_seed(plan.seed, number))


def search_plan(
    fields: Mapping[str, Any], base: TestSpec, *, fixed: Collection[str], bounded: bool
) -> SearchPlan:
    """Return the plan of a new search for a spec.

    ``fields`` are fields of the plan (None is "not given"). Raises UsageError for an impossible
    plan.
    """
    faults_of = swarm(base, bounded=bounded)
    values = {name: value for name, value in fields.items() if value is not None}
    return SearchPlan(base=base, kinds=faults_of.kinds, bounded=bounded, fixed=tuple(sorted(fixed)), **values)


def sweep_plan(fields: Mapping[str, Any], runs: int) -> SweepPlan:
    """Return the plan of a new sweep.

    ``fields`` may have ``policies``, ``nemeses``, ``seed``, ``settings`` (those of ``--set``) and
    fields of a spec. Raises UsageError for an impossible plan.
    """
    values = dict(fields)
    policies: Sequence[str] = values.pop("policies", None) or (
        systems.usual_policy(values.get("system", OWN)),
    )
    nemeses: Sequence[str] = values.pop("nemeses", None) or ()
    settings: Sequence[str] = values.pop("settings", ())
    seed = {"seed": values.pop("seed")} if "seed" in values else {}
    for option, names in (("policy", policies), ("nemesis", nemeses)):
        if len(set(names)) != len(names):
            raise UsageError(f"--{option} {','.join(names)} names one twice")
    named = specs.build({**defaults(values), "name": "-".join([*policies, *nemeses])})
    base = specs.with_settings(named, settings)
    return SweepPlan(
        runs=runs, base=base, cells=_cells(base, policies, nemeses), fixed=tuple(sorted(values)), **seed
    )


def _cells(base: TestSpec, policies: Sequence[str], nemeses: Sequence[str]) -> tuple[Cell, ...]:
    """Return each policy with each nemesis; without any, with all that it promises to survive.

    Raises UsageError for unknown names, or if a cluster is too small for a nemesis.
    """
    cells: list[Cell] = []
    for policy in policies:
        of_policy = swarm(msgspec.structs.replace(base, policy=policy, nemeses=tuple(nemeses)))
        cells += [Cell(policy=policy, nemesis=nemesis) for nemesis in of_policy.kinds]
    return tuple(cells)


def run_seed(seed: int, number: int) -> str:
    """Return the seed of one run of a search or a sweep."""
    return f"{seed}/{number}"


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
