"""What decides the runs of a search or of a sweep.

Why a file in its directory: what was cut off, by an interrupt, a full disk or the end of its
machine, goes on with the runs that are missing, the same that they would have been.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from harness.explore.swarm import Swarm, defaults, draw, swarm
from harness.history import spec as specs
from harness.history import store as stores
from harness.history.known import KnownFinding
from harness.interface import OWN, InfrastructureError, Schedule, TestSpec, UsageError
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
        """Its name in the directory."""
        return f"{cls.noun}.json"

    def directory(self, root: Path, name: str, store: Path | None) -> Path:
        """A new one below ``root``, or ``store`` again."""
        return store or stores.create(root, f"{self.noun}-{name}")

    def save(self, store: Path) -> None:
        """Write the plan down, by whom alone it is carried out."""
        try:
            stores.save(store, self.file(), self)
        except OSError as error:
            raise InfrastructureError(f"cannot write into {store}: {error}") from error

    def begin(self, root: Path, name: str, store: Path | None) -> Path:
        """The directory, with the plan in it."""
        store = self.directory(root, name, store)
        self.save(store)
        return store

    def pending(self, there: Collection[int], may_begin: Callable[[], bool] = lambda: True) -> Iterator[int]:
        """The runs that are still to be made, in order.

        Those before the last one that is ``there`` were begun already, and are owed in any case.
        """
        begun = max(there, default=-1) + 1
        numbers = itertools.count() if self.runs is None else range(self.runs)
        for number in numbers:
            if number >= begun and not may_begin():
                return
            if number not in there:
                yield number

    @staticmethod
    def place(store: Path, found: int) -> str:
        """Where it is kept, and how much of it is there already."""
        return f"store: {store}" + (f" ({found} of the runs are there already)" if found else "")

    @classmethod
    def resume_line(cls, store: Path) -> str:
        """The command that goes on with it."""
        return f"jepsen-run {cls.noun} --resume {shlex.quote(str(store))}"

    @contextlib.contextmanager
    def resumable(self, store: Path) -> Iterator[None]:
        """What the machine spoils meanwhile says how to go on."""
        try:
            yield
        except (OSError, InfrastructureError) as error:
            raise InfrastructureError(f"{error}; go on with: {self.resume_line(store)}") from error

    @classmethod
    def load(cls, store: Path, **changes: Any) -> Self:
        """The plan in ``store``, to go on with; ``changes`` that are None are none.

        Raises UsageError if there is none, if this version would not give the same runs, or if
        fewer of them are asked for.
        """
        path = store / cls.file()
        try:
            plan = json_value(path.read_bytes(), cls)
        except FileNotFoundError:
            raise UsageError(
                f"{store} is not the directory of a {cls.noun}: it has no {path.name}; give what the "
                f"{cls.noun} named as its store"
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path} is not the plan of a {cls.noun}: {error}") from None
        own = reproduction.versions()
        if plan.versions != own:
            raise UsageError(
                f"{store} was begun with {_words(plan.versions)}, and this is {_words(own)}: its runs "
                f"cannot be mixed; begin a new {cls.noun}"
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
    """What a search or a sweep was asked for.

    ``store`` is that of one to go on with; None begins one below ``root``. ``spark_master`` makes
    the runs if it is given, and judges those of a sweep, else so many processes (``jobs``).
    ``known`` are the findings that a sweep accepts.
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

    ``kinds`` are the faults that are drawn from. ``time_limit_s`` bounds the search and all that it
    does afterwards (None: nothing does); ``shrink_limit_s`` is for making a finding smaller within
    that, 0 leaves it as it was found.
    """

    noun: ClassVar[str] = "search"

    kinds: tuple[str, ...]
    bounded: bool = True
    time_limit_s: float | None = None
    keep_going: bool = False
    shrink_limit_s: float = 180.0

    def swarm(self, _: int = 0) -> Swarm:
        """The same for every run."""
        return Swarm(base=self.base, kinds=self.kinds, bounded=self.bounded, fixed=frozenset(self.fixed))


class Cell(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a run of a sweep is of: a policy and the one nemesis that breaks it."""

    policy: str
    nemesis: str


class SweepPlan(Plan, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a sweep: ``sweep.json``.

    Run ``n`` is of cell ``n`` modulo their number.
    """

    noun: ClassVar[str] = "sweep"

    runs: int
    cells: tuple[Cell, ...]

    def cell(self, number: int) -> Cell:
        """What a run is of."""
        return self.cells[number % len(self.cells)]

    def swarm(self, number: int) -> Swarm:
        """That of its cell."""
        cell = self.cell(number)
        changes = {"policy": cell.policy, "nemeses": (cell.nemesis,)}
        base = msgspec.structs.replace(self.base, **changes)
        named = msgspec.structs.replace(base, name=specs.default_name(msgspec.structs.asdict(base)))
        return swarm(named, fixed=frozenset(self.fixed))


def drawn(plan: SearchPlan | SweepPlan, number: int) -> tuple[TestSpec, Schedule]:
    """A run's spec and faults."""
    return draw(plan.swarm(number), run_seed(plan.seed, number))


def search_plan(
    given: Mapping[str, Any], base: TestSpec, *, fixed: Collection[str], bounded: bool
) -> SearchPlan:
    """The plan of a new search for a spec.

    ``given`` are fields of the plan (None is "not given"). Raises UsageError for what cannot be.
    """
    of = swarm(base, bounded=bounded)
    values = {name: value for name, value in given.items() if value is not None}
    return SearchPlan(base=base, kinds=of.kinds, bounded=bounded, fixed=tuple(sorted(fixed)), **values)


def sweep_plan(given: Mapping[str, Any], runs: int) -> SweepPlan:
    """The plan of a new sweep, from what was given.

    ``policies``, ``nemeses``, ``seed``, ``settings`` (those of ``--set``) and fields of a spec.

    Raises UsageError for what cannot be.
    """
    values = dict(given)
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
    """Each policy with each nemesis; without any, with all that it is promised to survive.

    Raises UsageError for what there is not, or what a cluster is too small for.
    """
    found: list[Cell] = []
    for policy in policies:
        of_policy = swarm(msgspec.structs.replace(base, policy=policy, nemeses=tuple(nemeses)))
        found += [Cell(policy=policy, nemesis=nemesis) for nemesis in of_policy.kinds]
    return tuple(found)


def run_seed(seed: int, number: int) -> str:
    """What decides one run of a search or a sweep."""
    return f"{seed}/{number}"


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
