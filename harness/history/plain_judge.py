"""The judge without Spark: the plain reference finds, ``checkers.decide`` decides.

Why: a search judges thousands of small histories an hour, and starting a query costs more than
looking at every row of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.decide import Decision, decide
from checkers.excuses import Window
from checkers.facts import gather
from checkers.instance import Instance
from checkers.reference import History, find
from checkers.reference_liveness import hungers, unavailabilities
from checkers.verdict import CheckOptions
from harness.interface import Schedule, TestSpec
from harness.systems import registry as systems

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlainVerdict:
    """The verdict of the plain judge: all instances, and the decision that follows from them."""

    findings: tuple[Instance, ...]
    decision: Decision


def options_of(
    spec: TestSpec, schedule: Schedule | None, trouble: str | None = None, release: str = ""
) -> CheckOptions:
    """Return the options of the checkers: what a spec promises, and what the machine spoiled.

    ``release`` is that of the brokers, "" if it is not known.
    """
    return CheckOptions(
        guarantee=spec.guarantee,
        ordered=spec.ordered,
        unavailable_bound_s=spec.unavailable_bound_s,
        recovery_bound_s=spec.recovery_bound_s,
        expect_faults=bool(schedule is not None and schedule.faults),
        trouble=trouble,
        broker=systems.promises(spec, release),
        not_judged={} if spec.imported is None else spec.imported.not_judged,
    )


def judge(
    rows: Sequence[Row], spec: TestSpec, schedule: Schedule, trouble: str | None = None
) -> PlainVerdict:
    """Judge one history: all its rows, in order."""
    return judge_as_promised(rows, options_of(spec, schedule, trouble))


def judge_as_promised(rows: Sequence[Row], options: CheckOptions) -> PlainVerdict:
    """Judge one history by the given options."""
    findings = tuple(find(rows, options))
    names = {instance.name for instance in findings}
    windows: dict[str, Sequence[Window]] = {}
    if names & {"unavailable", "starved"}:
        history = History(rows, atomic=options.broker.atomic)
        windows["unavailable"] = list(unavailabilities(history.rows, options))
        windows["starved"] = list(hungers(history, options))
    return PlainVerdict(findings, decide(names, gather(rows), options, windows=windows))
