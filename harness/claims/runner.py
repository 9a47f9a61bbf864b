"""The command ``jepsen-run claims``: it runs the claims of the source documents.

Why a command: a broker that is said to implement a document must show it row by row, weaknesses
included. A row that promises is refuted by a finding. A row that admits a weakness is refuted by a
run that does not find it: then the broker or the checkers are not what they are said to be. What
was seen lies in the store of each run, with its report.
"""

from __future__ import annotations

import collections
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from checkers import api
from checkers.anomaly import rank
from harness.claims import refuters
from harness.claims.ran import Ran, judged
from harness.claims.scenarios import Probe, Scenario
from harness.claims.scenarios.registry import OTHERS_ONLY, missing
from harness.claims.systems import page
from harness.claims.systems.choice import choose
from harness.claims.systems.ledger import Ledger
from harness.claims.systems.row import Departure
from harness.history import judge as judging
from harness.history import known
from harness.history import store as stores
from harness.interface import OWN, InfrastructureError, UsageError
from harness.report.progress import Meter
from harness.report.terminal import is_quiet, is_verbose
from harness.run import session
from harness.run.compose import compose
from harness.run.reproduction import ordered

if TYPE_CHECKING:
    from checkers.starting import Starting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsRequest:
    """The request of ``jepsen-run claims``.

    There are ``runs`` of each scenario, with the seeds 0, 1, ..., and as many of each probe, in the
    probe's own place. ``departures`` says, by scenario, where a system's brokers depart from the
    documents. With a ``ledger`` the runs recorded before count, and only missing ones are made.
    With ``known``, a run counts as expected if nothing is wrong with it but accepted findings.
    """

    scenarios: Sequence[Scenario | Probe]
    environment: str
    runs: int
    root: Path
    render: Path | None = None
    as_json: bool = False
    hosts: tuple[str, ...] = ()
    departures: Mapping[str, Departure] = field(default_factory=dict)
    ledger: Ledger | None = None
    known: Sequence[known.KnownFinding] | None = None


@dataclass(slots=True)
class ScenarioRuns:
    """A scenario or probe with its runs so far; ``entries`` are the accepted findings."""

    scenario: Scenario | Probe
    runs: list[Ran] = field(default_factory=list)
    entries: Sequence[known.KnownFinding] = ()

    @property
    def wrong(self) -> list[Ran]:
        """The runs that were not as expected because of more than accepted findings."""
        return [run for run in self.runs if run.problem and not known.accepted(self.reviewed(run))]

    def reviewed(self, run: Ran) -> tuple[known.Reviewed, ...]:
        """Compare the findings that alone made a run unexpected with the accepted ones."""
        if isinstance(self.scenario, Probe):
            return ()
        surplus = ordered(self.scenario.surplus(run.found, run.problem))
        return known.reviewed_kinds(surplus, self.scenario.spec, self.entries, release=run.release)

    @property
    def as_expected(self) -> int:
        """The number of runs that were as expected."""
        return sum(not run.problem for run in self.runs)

    @property
    def undecided(self) -> int:
        """The number of runs of which nothing can be said."""
        return sum(run.undecided for run in self.runs)

    @property
    def found(self) -> str:
        """The findings of the runs: the most frequent first, then causes before their consequences.

        "split-brain" or, of several runs, "split-brain 10, zombie 3".
        """
        counts = collections.Counter(
            name for run in self.runs for name in run.found or ("unknown" if run.undecided else "nothing",)
        )
        return ", ".join(
            name if len(self.runs) == 1 else f"{name} {count}"
            for name, count in sorted(counts.items(), key=lambda counted: (-counted[1], rank(counted[0])))
        )

    @property
    def evidence(self) -> Path | None:
        """The store of the first run that was not as expected, else of the first run."""
        first = next((run for run in self.runs if run.problem), self.runs[0])
        return first.store


def run(request: ClaimsRequest) -> int:
    """Run all scenarios and probes and print the table as it grows; return the exit status.

    1 if a run was not as expected, 2 if one could not be decided.
    """
    out = sys.stderr if request.as_json else sys.stdout
    judged = any(isinstance(candidate, Scenario) for candidate in request.scenarios)
    spark = api.start_in_background(wanted=request.environment != "simulation") if judged else None
    rows = []
    width = max(len(scenario.id) for scenario in request.scenarios)
    with Meter(out) as meter:
        for done, scenario in enumerate(request.scenarios):
            row = ScenarioRuns(scenario, _before(request, scenario), request.known or ())
            for number in _seeds_left(request, scenario):
                doing = f"{scenario.id}, scenario {done + 1} of {len(request.scenarios)}, seed {number}"
                meter.update(doing, done, len(request.scenarios))
                ran = once(scenario, request.environment, number, request.root, spark, request.hosts)
                row.runs.append(ran)
                if is_verbose():
                    findings = ", ".join(sorted(ran.found)) or "nothing"
                    where = "" if ran.store is None else f"; {os.path.relpath(ran.store)}"
                    meter.note(f"{scenario.id:<{width}}  seed {number}: found {findings}{where}")
                if request.ledger is not None and isinstance(scenario, Scenario):
                    request.ledger.write(scenario, ran, number, request.environment)
            if not row.runs:
                continue
            rows.append(row)
            if not is_quiet() or row.as_expected < len(row.runs):
                for line in _lines(row, width, request.departures.get(scenario.id)):
                    meter.note(line)
    for line in [*_summary(rows, request), *_matched(rows, request)]:
        print(line, file=out)
    if request.render is not None:
        if request.ledger is None:
            write(request.render, rows, request)
        else:
            page.renew(request.render)
        print(f"Written  {request.render}", file=out)
    if request.as_json:
        print(msgspec.json.encode(_document(rows, request)).decode())
    wrong = [run for row in rows for run in row.wrong]
    if any(not run.undecided for run in wrong):
        return judging.INVALID
    return judging.UNKNOWN if wrong else judging.VALID


def _before(request: ClaimsRequest, scenario: Scenario | Probe) -> list[Ran]:
    if request.ledger is None or isinstance(scenario, Probe):
        return []
    return request.ledger.before(scenario)


def _seeds_left(request: ClaimsRequest, scenario: Scenario | Probe) -> Sequence[int]:
    """Return the seeds that are still to be run."""
    if request.ledger is None or isinstance(scenario, Probe):
        return range(request.runs)
    return request.ledger.seeds_left(scenario, request.runs)


def once(
    scenario: Scenario | Probe,
    environment: str,
    seed: int,
    root: Path,
    spark: Starting | None = None,
    hosts: tuple[str, ...] = (),
) -> Ran:
    """Run a scenario or probe once, in a store of its own, and judge its outcome."""
    if isinstance(scenario, Probe):
        return _probed(scenario, root)
    spec = msgspec.structs.replace(scenario.spec, environment=environment, hosts=hosts, seed=seed)
    talk = io.StringIO()
    try:
        outcome = session.execute(compose(spec, scenario.schedule), root, talk, spark=spark)
    except (InfrastructureError, UsageError) as error:
        # The scenario is right, but what it needs is not available here.
        return Ran(problem=f"could not be run: {error}", undecided=True)
    verdict = outcome.verdict
    if outcome.interrupted:
        raise KeyboardInterrupt
    if verdict is None:
        last = talk.getvalue().strip().rpartition("\n")[2]
        return Ran(problem=f"no verdict: {last}", undecided=True, store=outcome.store)
    return judged(scenario, outcome.store, verdict)


def _probed(probe: Probe, root: Path) -> Ran:
    store = stores.create(root, probe.id.lower())
    steps, undecided = probe.outcome(store)
    if undecided:
        return Ran(problem=undecided, undecided=True, store=store)
    wrong = [str(step) for step in steps if not step.as_expected]
    result = f"{len(steps) - len(wrong)} of {len(steps)} steps"
    return Ran(problem="; ".join(wrong), found=frozenset({result}), store=store)


def _lines(row: ScenarioRuns, width: int, departure: Departure | None) -> list[str]:
    scenario = row.scenario
    share = "as expected" if len(row.runs) == 1 else f"{row.as_expected} of {len(row.runs)} as expected"
    accepted = len(row.runs) - row.as_expected - len(row.wrong)
    if row.as_expected < len(row.runs) and len(row.runs) == 1:
        share = "UNKNOWN" if row.undecided else f"NOT AS EXPECTED{', BUT KNOWN' * accepted}"
    else:
        share += f", {accepted} otherwise but known" if accepted else ""
        share += f", {row.undecided} unknown" if row.undecided else ""
    findings = "nothing found" if row.found == "nothing" else row.found
    lines = [
        f"{scenario.id:<{width}}  {share}" + f": {findings}" * (share.lower() != findings),
        f"{'':<{width}}    {scenario.claim} ({scenario.source}{_place(scenario)})",
        f"{'':<{width}}    expected {scenario.expected}",
    ]
    if departure is not None:
        lines.append(f"{'':<{width}}    departs from the documents: {departure.reason}")
    problems = collections.Counter(run.problem for run in row.runs if run.problem)
    lines += [
        f"{'':<{width}}    {count} x {problem}" if len(row.runs) > 1 else f"{'':<{width}}    {problem}"
        for problem, count in problems.most_common()
    ]
    if row.entries:
        review_lines = dict.fromkeys(
            f"{finding.kind}: {finding}" for run in row.runs for finding in row.reviewed(run)
        )
        lines += [f"{'':<{width}}    {line}" for line in review_lines]
    if row.evidence is not None:
        lines.append(f"{'':<{width}}    {os.path.relpath(row.evidence)}")
    return lines


def _place(scenario: Scenario | Probe) -> str:
    """Return where a probe takes its steps; "" for a scenario, which runs where it was asked to."""
    return f"; {scenario.place}" if isinstance(scenario, Probe) else ""


def _summary(rows: Sequence[ScenarioRuns], request: ClaimsRequest) -> list[str]:
    good = sum(row.as_expected == len(row.runs) for row in rows)
    claims = len({row.scenario.row for row in rows})
    unknown = sum(row.undecided > 0 for row in rows)
    lines = [
        "",
        (
            f"{good} of {len(rows)} scenarios of {claims} claims as expected, {request.runs} "
            f"run{'s' if request.runs > 1 else ''} each, {request.environment}"
            + (f"; {unknown} unknown" if unknown else "")
        ),
    ]
    if absent := missing():
        lines.append(f"no scenario yet: {'; '.join(f'{name} {text}' for name, text in absent.items())}")
    return lines


def _matched(rows: Sequence[ScenarioRuns], request: ClaimsRequest) -> Iterator[str]:
    runs = [
        known.JudgedRun(row.scenario.spec, run.found, run.release)
        for row in rows
        if isinstance(row.scenario, Scenario)
        for run in row.runs
    ]
    return known.entry_lines(request.known or (), runs)


def _document(rows: Sequence[ScenarioRuns], request: ClaimsRequest) -> dict[str, Any]:
    return {
        "environment": request.environment,
        "runs": request.runs,
        "scenarios": [
            {
                "id": row.scenario.id,
                "claim": row.scenario.claim,
                "source": row.scenario.source,
                "expected": row.scenario.expected,
                "as-expected": row.as_expected,
                "unknown": row.undecided,
                "found": sorted({name for run in row.runs for name in run.found}),
                "problems": [run.problem for run in row.runs if run.problem],
                "known": row.as_expected + len(row.wrong) < len(row.runs),
                "stores": [str(run.store) for run in row.runs if run.store is not None],
            }
            for row in rows
        ],
        "no-scenario-yet": missing(),
        "only-with-other-brokers": choose(OTHERS_ONLY, OWN).left_out,
    }


def write(path: Path, rows: Sequence[ScenarioRuns], request: ClaimsRequest) -> None:
    """Write the table as Markdown."""
    lines = [
        "# What the source documents claim, and what was found",
        "",
        (
            f"Made by `jepsen-run claims --environment {request.environment} --runs {request.runs} --render "
            f"{path.name}`. A finding refutes a claim that promises something. A run without the finding"
        ),
        (
            "refutes a claim that admits a weakness. `jepsen-run claims RP4` runs one row. The last column "
            "names a change of the broker, and what the row must then report, or the step that must fail "
            "(`jepsen-run claims --refute`)."
        ),
        "",
        "| scenario | claim | source | expected | found | as expected | refuter |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.scenario.id} | {row.scenario.claim} | {row.scenario.source} | {row.scenario.expected} "
        f"| {row.found}{_place(row.scenario)} | {row.as_expected}/{len(row.runs)} | "
        f"{refuters.refuter_words(row.scenario)} |"
        for row in rows
    ]
    if absent := missing():
        lines += ["", "## No scenario yet", ""]
        lines += [f"- {name}: {text}" for name, text in absent.items()]
    if waiting := choose(OTHERS_ONLY, OWN).left_out:
        lines += ["", "## Only with other brokers", ""]
        lines += [f"- {', '.join(names)}: {why}" for why, names in waiting.items()]
    lines += page.sections(path, lines)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.replace(path)
