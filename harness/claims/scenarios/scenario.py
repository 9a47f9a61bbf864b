"""A scenario: a test whose outcome is known in advance, and the judgement whether it came.

Why data: a scenario is a spec, a schedule and what must be found. The same rows serve the tests,
``jepsen-run claims``, and a person who wants to see one. "Valid" means that the checkers find
nothing. A scenario that expects a finding describes a weakness that the documents admit, and a run
that does not find it has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from checkers.anomaly import ANOMALIES
from checkers.schema import HARNESS, MONITOR, NEMESIS
from harness.claims.scenarios.expectations import Expectation, Happens
from harness.claims.scenarios.seen import ObservedRun
from harness.history import spec as specs
from harness.interface import Schedule, TestSpec
from nemesis.registry import KINDS

FOLLOWS_TWO_LIVES = tuple(anomaly.name for anomaly in ANOMALIES if anomaly.follows_two_lives)
"""The anomalies that follow when two lives serve one queue from two journals."""


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """The roles that brokers must take from the first fault on, besides the verdict.

    An anomaly does not say which broker took over, or that none did.

    ``live`` become live, ``never_live`` do not, before everything is healed at the end; ``ended``
    stop without a request or a kill (a live that lost its vote).
    """

    live: tuple[str, ...] = ()
    never_live: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.live or self.never_live or self.ended)

    def __str__(self) -> str:
        parts = [
            f"{' and '.join(names)} {singular if len(names) == 1 else plural}"
            for names, singular, plural in (
                (self.live, "becomes live", "become live"),
                (self.never_live, "never becomes live", "never become live"),
                (self.ended, "ends itself", "end themselves"),
            )
            if names
        ]
        return "; ".join(parts)

    def wrong(self, control: Iterable[Mapping[str, Any]]) -> str:
        """Return which roles were not as expected; "" if all were.

        ``control`` are the rows of monitor, nemesis and harness, in order.
        """
        live, ended = _roles_taken(control)
        missing = [f"{name} did not become live" for name in self.live if name not in live]
        surplus = [f"{name} became live" for name in self.never_live if name in live]
        stayed = [f"{name} did not end itself" for name in self.ended if name not in ended]
        return "; ".join([*missing, *surplus, *stayed])


def _roles_taken(control: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Return the brokers that became live, and those that stopped without a fault that ends them.

    Only the time between the first fault and the end of the load counts.
    """
    live: set[str] = set()
    ended: set[str] = set()
    began = False
    down: dict[str, set[str]] = {}
    for row in control:
        if row["process"] == NEMESIS and row["value"]:
            record = msgspec.json.decode(row["value"])
            if row["type"] == "invoke" and not row["f"].startswith("heal:"):
                began = True
                if KINDS[row["f"]].stops:
                    down[record["label"]] = set(record["nodes"])
        elif row["process"] == HARNESS and row["f"] == "phase" and row["value"] == "heal":
            break
        elif began and row["process"] == MONITOR and row["f"] == "role":
            if row["role"] == "live":
                live.add(row["broker"])
            elif row["role"] == "stopped" and not any(row["broker"] in nodes for nodes in down.values()):
                ended.add(row["broker"])
    return live, ended


class Failure(msgspec.Struct, frozen=True):
    """A thing that was not as expected.

    ``of`` names the expectation as the table has it ("required", "allowed" and "roles" for those),
    ``words`` what was seen instead.
    """

    of: str
    words: str


class Judgement(msgspec.Struct, frozen=True):
    """The judgement of a run by its scenario: every failure, or why nothing can be said."""

    failures: tuple[Failure, ...] = ()
    undecided: str = ""

    @property
    def problem(self) -> str:
        """The failures in one line; "" if all was as expected."""
        return self.undecided or "; ".join(failure.words for failure in self.failures)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A case of a claim: what is done, and what must follow from it.

    ``id`` is the claim's row, with a word after a hyphen if it has several cases ("RP14-true").
    ``required`` lists alternatives of which at least one must be found; empty means that nothing
    need be found. ``allowed`` may be found besides; anything else that makes a run invalid is
    wrong. ``roles`` and what ``besides`` lists must be seen too. If a guard is not met, the run
    proves nothing and is unknown.

    A promise that a property gives has a twin: the same scenario with the property off, whose
    expectation is the failure.

    ``own_lacks`` is what brokers of own lack to run the scenario; "" if they can. Its properties
    have the names of the documents.
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
    own_lacks: str = ""

    @property
    def row(self) -> str:
        """The claim's row: "RP14"."""
        return self.id.partition("-")[0]

    @property
    def expected(self) -> str:
        """The expectation in words: "split-brain", "valid (or split-brain)".

        A longer one is "valid; a2 becomes live; reported: unavailable".
        """
        verdict = " or ".join(self.required) or "valid"
        if self.allowed and not self.required:
            verdict += f" (or {', '.join(self.allowed)})"
        return "; ".join([verdict, *map(str, filter(None, (self.roles, *self.besides, *self.guards)))])

    def with_settings(self, settings: Iterable[str]) -> Scenario:
        """Return the same scenario with the properties of ``--set``. Raises UsageError."""
        return msgspec.structs.replace(self, spec=specs.with_settings(self.spec, settings))

    def of_system(self, system: str) -> Scenario:
        """Return the same scenario with other brokers."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, system=system))

    def judge(self, run: ObservedRun) -> Judgement:
        """Return what was not as expected in a run."""
        if run.valid is None:
            promised = (expectation for expectation in self.besides if isinstance(expectation, Happens))
            missed = [
                Failure(str(expectation), words)
                for expectation in promised
                if (words := expectation.wrong(run))
            ]
            if missed:
                return Judgement(tuple(missed))
            why = "; ".join(run.reasons[:3])
            return Judgement(undecided=f"the run ended unknown{f': {why}' if why else ''}")
        findings = self._wrong_findings(run.grave)
        lacking = [words for guard in self.guards if (words := guard.wrong(run))]
        if lacking and not findings:
            return Judgement(undecided=f"the run shows nothing: {'; '.join(lacking)}")
        failures = [*findings]
        if words := self.roles.wrong(run.control):
            failures.append(Failure("roles", words))
        failures += [
            Failure(str(expectation), words)
            for expectation in self.besides
            if (words := expectation.wrong(run))
        ]
        return Judgement(tuple(failures))

    def surplus(self, names: frozenset[str], problem: str) -> frozenset[str]:
        """Return the findings that must not be there, if ``problem`` is only about them."""
        failures = self._wrong_findings(names)
        is_only_cause = [failure.of for failure in failures] == ["allowed"] and failures[0].words == problem
        return names - frozenset(self.required) - frozenset(self.allowed) if is_only_cause else frozenset()

    def _wrong_findings(self, names: frozenset[str]) -> list[Failure]:
        if self.required and not names & frozenset(self.required):
            words = f"found {_words(names)} and none of {', '.join(self.required)}"
            return [Failure("required", words)]
        surplus = names - frozenset(self.required) - frozenset(self.allowed)
        return [Failure("allowed", f"found {_words(surplus)} besides")] if surplus else []


def _words(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
