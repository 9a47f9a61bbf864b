"""What a scenario is: a test whose outcome is known in advance, and how it is told whether it came.

Why data: a scenario is a spec, a schedule and what must be found. The same rows serve the tests,
``jepsen-run claims``, and a person who wants to see one. "Valid" means that the checkers find
nothing; a scenario that expects a finding describes a weakness the documents admit, and a run that
does not find it has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from checkers.anomaly import ANOMALIES
from checkers.schema import HARNESS, MONITOR, NEMESIS
from harness.claims.scenarios.expectations import Expectation, Happens
from harness.claims.scenarios.refuter import Refuter
from harness.claims.scenarios.seen import Seen
from harness.history import spec as specs
from harness.interface import Schedule, TestSpec
from nemesis.registry import KINDS

FOLLOWS_TWO_LIVES = tuple(anomaly.name for anomaly in ANOMALIES if anomaly.follows_two_lives)
"""What follows when two lives serve one queue from two journals."""


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """What brokers must be seen to become from the first fault on, besides the verdict.

    An anomaly says nothing of who took over, or did not.

    ``live`` become live, ``never_live`` do not, before everything is healed at the end; ``ended``
    stop without having been told or killed (a live that lost its vote).
    """

    live: tuple[str, ...] = ()
    never_live: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.live or self.never_live or self.ended)

    def __str__(self) -> str:
        parts = [
            f"{' and '.join(names)} {one if len(names) == 1 else several}"
            for names, one, several in (
                (self.live, "becomes live", "become live"),
                (self.never_live, "never live", "never live"),
                (self.ended, "ends itself", "end themselves"),
            )
            if names
        ]
        return "; ".join(parts)

    def wrong(self, control: Iterable[Mapping[str, Any]]) -> str:
        """Nothing when the roles were as expected, else what was not.

        ``control`` are the rows of monitor, nemesis and harness, in order.
        """
        live, ended = _seen(control)
        missing = [f"{name} did not become live" for name in self.live if name not in live]
        surplus = [f"{name} became live" for name in self.never_live if name in live]
        stayed = [f"{name} did not end itself" for name in self.ended if name not in ended]
        return "; ".join([*missing, *surplus, *stayed])


def _seen(control: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Who became live, and who stopped though no fault had ended it.

    Between the first fault and the end of the load.
    """
    live: set[str] = set()
    ended: set[str] = set()
    began = False
    down: dict[str, set[str]] = {}
    for row in control:
        if row["process"] == NEMESIS and row["value"]:
            told = msgspec.json.decode(row["value"])
            if row["type"] == "invoke" and not row["f"].startswith("heal:"):
                began = True
                if KINDS[row["f"]].stops:
                    down[told["label"]] = set(told["nodes"])
        elif row["process"] == HARNESS and row["f"] == "phase" and row["value"] == "heal":
            break
        elif began and row["process"] == MONITOR and row["f"] == "role":
            if row["role"] == "live":
                live.add(row["broker"])
            elif row["role"] == "stopped" and not any(row["broker"] in nodes for nodes in down.values()):
                ended.add(row["broker"])
    return live, ended


class Failure(msgspec.Struct, frozen=True):
    """One thing that was not as expected.

    ``of`` names the expectation as the table has it ("required", "allowed" and "roles" for those),
    ``words`` what was instead.
    """

    of: str
    words: str


class Judgement(msgspec.Struct, frozen=True):
    """Whether a run came out as its scenario says: every failure, or why nothing can be said."""

    failures: tuple[Failure, ...] = ()
    undecided: str = ""

    @property
    def problem(self) -> str:
        """In one line; "" if all was as expected."""
        return self.undecided or "; ".join(failure.words for failure in self.failures)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a claim: what is done, and what must come of it.

    ``id`` is the claim's row, with a word behind a hyphen where it has several cases ("RP14-true").
    ``required`` lists alternatives of which one at least must be found; empty means that nothing
    need be found. ``allowed`` may be found besides; anything else that makes a run invalid is
    wrong. ``roles`` and what ``besides`` lists must be seen too. Where a guard is not met the run
    shows nothing and is unknown. ``refuter`` is a change of the broker under which something of
    this must fail.

    A promise that a property gives has a twin: the same scenario with the property off, whose
    expectation is the failure.
    """

    id: str
    claim: str
    source: str
    spec: TestSpec
    schedule: Schedule
    required: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    roles: Roles = Roles()
    besides: tuple[Expectation, ...] = ()
    guards: tuple[Expectation, ...] = ()
    refuter: Refuter | None = None

    @property
    def row(self) -> str:
        """The claim's row: "RP14"."""
        return self.id.partition("-")[0]

    @property
    def expected(self) -> str:
        """In words: "split-brain", "valid (or split-brain)", "valid.

        a2 becomes live; reported: unavailable".
        """
        verdict = " or ".join(self.required) or "valid"
        if self.allowed and not self.required:
            verdict += f" (or {', '.join(self.allowed)})"
        return "; ".join([verdict, *map(str, filter(None, (self.roles, *self.besides, *self.guards)))])

    def with_settings(self, settings: Iterable[str]) -> Scenario:
        """The same with the properties of ``--set``. Raises UsageError."""
        return msgspec.structs.replace(self, spec=specs.with_settings(self.spec, settings))

    def of_system(self, system: str) -> Scenario:
        """The same with other brokers."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, system=system))

    def judge(self, seen: Seen) -> Judgement:
        """What was not as expected of a run."""
        if seen.valid is None:
            promised = (each for each in self.besides if isinstance(each, Happens))
            missed = [Failure(str(each), words) for each in promised if (words := each.wrong(seen))]
            if missed:
                return Judgement(tuple(missed))
            why = "; ".join(seen.reasons[:3])
            return Judgement(undecided=f"the run ended unknown{f': {why}' if why else ''}")
        findings = self._wrong_findings(seen.grave)
        lacking = [words for guard in self.guards if (words := guard.wrong(seen))]
        if lacking and not findings:
            return Judgement(undecided=f"the run shows nothing: {'; '.join(lacking)}")
        failures = [*findings]
        if words := self.roles.wrong(seen.control):
            failures.append(Failure("roles", words))
        failures += [Failure(str(each), words) for each in self.besides if (words := each.wrong(seen))]
        return Judgement(tuple(failures))

    def surplus(self, found: frozenset[str], problem: str) -> frozenset[str]:
        """What was found and must not be, if ``problem`` is that and nothing else."""
        failures = self._wrong_findings(found)
        alone = [each.of for each in failures] == ["allowed"] and failures[0].words == problem
        return found - frozenset(self.required) - frozenset(self.allowed) if alone else frozenset()

    def _wrong_findings(self, found: frozenset[str]) -> list[Failure]:
        if self.required and not found & frozenset(self.required):
            words = f"found {_words(found)} and none of {', '.join(self.required)}"
            return [Failure("required", words)]
        surplus = found - frozenset(self.required) - frozenset(self.allowed)
        return [Failure("allowed", f"found {_words(surplus)} besides")] if surplus else []


def _words(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
