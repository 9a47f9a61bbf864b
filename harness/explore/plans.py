"""The plans that decide the runs of a search or of a sweep.

Why a file in its directory: a search may be cut off by an interrupt, a full disk or the end of its
machine. It is then continued with the missing runs, the same as they would have been.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    def resume_line(cls, store: Path, homes: Collection[str] = ()) -> str:
        """Return the command that continues the search or sweep; ``homes`` are of other brokers."""
        options = [word for home in homes if home for word in ("--system-home", home)]
        return program.command(cls.noun, "--resume", str(store), *options)

    @contextlib.contextmanager
    def resumable(self, store: Path, homes: Collection[str] = ()) -> Iterator[None]:
        """Add the command that continues to every error of the machine that the body raises."""
        try:
            yield
        except (OSError, InfrastructureError) as error:
            raise InfrastructureError(f"{error}; continue with: {self.resume_line(store, homes)}") from error

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
    processes do (``jobs``). ``known`` are the findings that a sweep accepts. ``homes`` are the
    distributions of the releases that a sweep compares.
    """

    plan: Planned
    store: Path | None = None
    root: Path = stores.DEFAULT
    jobs: int = 1
    spark_master: str | None = None
    as_json: bool = False
    known: Sequence[KnownFinding] | None = None
    homes: Mapping[str, str] = field(default_factory=dict)


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
    """A policy and the one nemesis that breaks it: each run of a sweep belongs to a cell.

    ``release`` is that of the brokers, "" of our own.
    """

    policy: str
    nemesis: str
    release: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.release, self.policy, self.nemesis)))


class SweepPlan(Plan, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a sweep: ``sweep.json``.

    Run ``n`` belongs to cell ``n`` modulo their number. Cells that differ only in the release are
    neighbours, and their runs are drawn alike, so that releases can be compared.
    """

    noun: ClassVar[str] = "sweep"

    runs: int
    cells: tuple[Cell, ...]

    def cell(self, number: int) -> Cell:
        """Return the cell of a run."""
        return self.cells[number % len(self.cells)]

    @property
    def releases(self) -> Sequence[str]:
        """The releases of the brokers, in the order of the cells."""
        return list(dict.fromkeys(cell.release for cell in self.cells))

    def draw(self, number: int) -> int:
        """Return the number that a run's random choices depend on: the same for all releases."""
        return number // len(self.releases)

    def check_releases(self, releases: Collection[str]) -> None:
        """Raise UsageError if the sweep, which goes on, is of other releases than these."""
        if {*releases} != {*self.releases}:
            raise UsageError(
                f"the sweep is of {self.base.system} {_list(self.releases)}, not of {_list(releases)}: give "
                f"--system-home of each of its releases"
            )

    def swarm(self, number: int) -> Swarm:
        """Return what a run of its cell draws from."""
        cell = self.cell(number)
        changes = {"policy": cell.policy, "nemeses": (cell.nemesis,)}
        base = msgspec.structs.replace(self.base, **changes)
        named = msgspec.structs.replace(base, name=specs.default_name(msgspec.structs.asdict(base)))
        return swarm(named, fixed=frozenset(self.fixed))


def drawn(plan: SearchPlan | SweepPlan, number: int) -> tuple[TestSpec, Schedule]:
    """Return a run's spec and faults."""
    number_of_draw = plan.draw(number) if isinstance(plan, SweepPlan) else number
    return draw(plan.swarm(number), run_seed(plan.seed, number_of_draw))


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


def sweep_plan(fields: Mapping[str, Any], runs: int, releases: Collection[str] = ("",)) -> SweepPlan:
    """Return the plan of a new sweep.

    ``fields`` may have ``policies``, ``nemeses``, ``seed``, ``settings`` (those of ``--set``) and
    fields of a spec. ``releases`` are those of the brokers that are compared. Raises UsageError for
    an impossible plan.
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
    cells = tuple(
        msgspec.structs.replace(cell, release=release)
        for cell in _cells(base, policies, nemeses)
        for release in releases
    )
    return SweepPlan(runs=runs, base=base, cells=cells, fixed=tuple(sorted(values)), **seed)


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


def _list(releases: Collection[str]) -> str:
    return " and ".join(sorted(filter(None, releases))) or "no known release"


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
