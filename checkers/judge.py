"""The judge, which makes a verdict of a history.

Control rows are few and read first; they decide which questions the parts are asked. Then one job
of Spark asks every part all families of rules at once (``checkers.part``). Why at once: the work
that the families share costs more than the rest. Each family answers for itself: one that
crashes or runs past its deadline makes the verdict unknown and hides nothing that another found. If
the job as a whole fails, each family is asked alone, so that the failure concerns one family only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as DeadlineError
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from checkers import (
    admitted,
    availability,
    clocks,
    consumers,
    deaths,
    deletions,
    delivery,
    ends,
    facts,
    interests,
    links,
    part,
    priorities,
    queues,
    reach,
    roles,
    selective,
    sessions,
    skipped,
    starved,
    statistics,
    stores,
    subscriptions,
    takeovers,
    temporaries,
    totals,
    transactions,
    views,
)
from checkers.anomaly import ANOMALIES, LOSSLESS, looked_for, named, rank
from checkers.breakage import Subject
from checkers.cause import in_a_line
from checkers.consumers import Consumer
from checkers.decide import decide
from checkers.excuses import Window
from checkers.facts import Facts
from checkers.findings import Discoveries, compose, select_findings
from checkers.inspection import NOT_JUDGED, UNTOLD, Confined, Inspection, looks_of
from checkers.instance import Found, Instance, merged
from checkers.part import PartAnswer, Question
from checkers.rows import READ, Place, PlaceTable, Rows, from_table, joined
from checkers.source import Files, HereSource, HistoryError, HistorySource
from checkers.subscriptions import renamed
from checkers.verdict import NOT_DECIDED, CheckOptions, Statistics, Verdict
from checkers.verdict import NOT_JUDGED as LEFT_OUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HERE_ROWS", "HistoryError", "check", "rows_of"]

Result = TypeVar("Result")

_ALL_AT_ONCE: Final = 2
"""The number of deadlines that the job of all families may take.

Within the job, a family that is past its own deadline gives way to the others.
"""


ANSWERED: Final = ("send", "ack", "nack")
"""The operations on messages that brokers answer."""
HERE_ROWS: Final = 5_000_000
"""The number of rows up to which this process judges faster than a JVM starts.

See docs/decisions/0018.
"""


def check(paths: Path | Sequence[Path], options: CheckOptions, spark: SparkSession | None = None) -> Verdict:
    """Judge one history.

    Args:
        paths: a store directory, its ``history/``, or that directory's Parquet files.
        options: what was promised.
        spark: from ``checkers.session``; None judges in this process, whatever the size.

    Raises HistoryError if there is no readable history. An error of a checker is never raised.
    """
    files = Files.of(paths)
    if spark is None:
        return judge(HereSource.of(files), options)
    from checkers.spark_source import open_with  # noqa: PLC0415 - imports Spark, which small histories do without

    return judge(open_with(files, spark), options)


def rows_of(paths: Path | Sequence[Path]) -> int:
    """Return how many rows a history has; raises HistoryError."""
    return Files.of(paths).total


@dataclass(slots=True)
class CheckRun:
    """A check: source, options, why something could not be judged, and the seconds of each step.

    ``inspection`` is that of a history that has not been validated yet. ``confined`` has the broken
    control rows of each run.
    """

    source: HistorySource
    options: CheckOptions
    row_families: Mapping[str, part.RowFamily] = field(default_factory=lambda: dict(part.ROW_FAMILIES))
    group_families: Mapping[str, part.GroupFamily] = field(default_factory=lambda: dict(part.GROUP_FAMILIES))
    inspection: Inspection | None = None
    confined: Mapping[int, Sequence[Confined]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    _control: tuple[Rows, PlaceTable] | None = field(default=None, init=False)

    def control(self) -> tuple[Rows, PlaceTable]:
        """Return the control rows in the form that the rules about brokers read."""
        if self._control is None:
            places, table = PlaceTable(), self.source.control
            present = [name for name in (*READ, "run") if name in table.column_names]
            self._control = from_table(renamed(table.select(present)), places), places
        return self._control

    def attempt(
        self, name: str, work: Callable[[], Result], *, quietly: bool = False, deadlines: int = 1
    ) -> Result | None:
        """Run a step under its deadline, and return its result; None if it failed.

        The reason of a failure is added to ``unknown``, unless ``quietly``.
        """
        begun = time.monotonic()
        future: Future[Result] = Future()
        tag = f"{name}-{id(future)}"

        def run() -> None:
            try:
                self.source.tag(tag)
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - a checker's crash is a result too
                future.set_exception(error)

        threading.Thread(target=run, name=f"checker-{name}", daemon=True).start()
        try:
            return future.result(deadlines * self.options.deadline_s)
        except DeadlineError:
            self.source.cancel(tag)
            if not quietly:
                self.unknown.append(f"{name} did not end within {self.options.deadline_s:g} s")
        except BaseException as error:  # noqa: BLE001 - of the checker, whatever it is
            if not quietly:
                self.unknown.append(f"{name} crashed: {in_a_line(error)}")
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 3)
        return None


@dataclass(slots=True)
class Examination:
    """Everything that is found in the runs of a history.

    There is only run 0, unless many histories are judged at once.
    """

    facts_by_run: Mapping[int, Facts]
    reigns: Mapping[int, list[roles.CertainReign]]
    overlaps: Mapping[int, list[roles.Overlap]]
    windows: Sequence[roles.Window]
    doubles: Mapping[int, list[takeovers.Double]] = field(default_factory=dict)
    divergences: Mapping[int, list[views.Divergence]] = field(default_factory=dict)
    found: dict[int, dict[str, Found]] = field(default_factory=dict)
    survivors: dict[Place, tuple[int, int]] = field(default_factory=dict)
    overtakers: dict[Instance, int] = field(default_factory=dict)
    pauses: list[availability.Outage] = field(default_factory=list)
    hungers: list[starved.Hunger] = field(default_factory=list)
    unrecovered: dict[Instance, int] = field(default_factory=dict)
    torn: list[transactions.Torn] = field(default_factory=list)
    totals: list[totals.Outcome] = field(default_factory=list)
    inversions: list[priorities.Inversion] = field(default_factory=list)
    answers: roles.Answered = field(default_factory=dict)
    figures: statistics.Figures | None = None

    def add(self, instances: Mapping[int, Mapping[str, Found]], examples: int) -> None:
        """Add kinds that were found, by run, and keep the earliest ``examples`` of each."""
        self.found = merged([self.found, instances], examples)

    def add_instances(self, instances: Sequence[Instance], examples: int) -> None:
        """Add instances of any kinds, and keep the earliest ``examples`` of each kind."""
        by_run: dict[int, dict[str, list[Instance]]] = {}
        for instance in instances:
            by_run.setdefault(instance.run, {}).setdefault(instance.name, []).append(instance)
        self.add(
            {
                run: {name: Found(len(same_kind), tuple(same_kind)) for name, same_kind in kinds.items()}
                for run, kinds in by_run.items()
            },
            examples,
        )


def judge(source: HistorySource, options: CheckOptions) -> Verdict:
    """Judge one history that is open already, as ``check`` does."""
    inspection = Inspection(source)
    check_run = CheckRun(source, options, inspection=inspection, confined={0: inspection.confined})
    case = examine(check_run)
    if case is None:
        trouble = () if options.trouble is None else (options.trouble,)
        return Verdict(
            valid=None, reasons=(*trouble, *check_run.unknown),
            statistics=Statistics(rows=source.rows, seconds=check_run.seconds),
            guarantee=options.guarantee, ordered=options.ordered,
        )  # fmt: skip
    run_facts = case.facts_by_run.get(0, Facts())
    instances = case.found.get(0, {})
    kinds = select_findings(instances, options)
    check_run.unknown += map(str, inspection.confined)
    windows: dict[str, Sequence[Window]] = {"unavailable": case.pauses, starved.NAME: case.hungers}
    decision = decide(kinds, run_facts, options, windows=windows, unknown=check_run.unknown)
    if inspection.confined and decision.valid is not False:
        raise HistoryError(inspection.confined[0].line)
    figures = Statistics(rows=source.rows)
    if case.figures is not None:
        figures = statistics.read(source.rows, case.figures, run_facts)
    figures = statistics.with_counts(figures, instances)
    for item in case.totals:
        figures = msgspec.structs.replace(figures, total=item.total)
    discoveries = Discoveries(
        found=kinds, overlaps=case.overlaps.get(0, []), windows=case.windows, answers=case.answers,
        pauses=case.pauses, hungers=case.hungers, survivors=case.survivors, doubles=case.doubles.get(0, []),
        divergences=case.divergences.get(0, []), torn=case.torn, overtakers=case.overtakers,
        totals=[item.wrong for item in case.totals if item.wrong is not None], inversions=case.inversions,
        unrecovered=case.unrecovered,
    )  # fmt: skip
    findings = check_run.attempt(
        "witnesses", lambda: compose(source, discoveries, decision, options, run_facts)
    )
    if findings is None:  # the findings stand without witnesses
        findings = compose(None, discoveries, decision, options, run_facts)
        decision = replace(decision, unknown=tuple(sorted(set(check_run.unknown))))
    if decision.undecided is not None:
        so_far = ", ".join(f"{kinds[name].count} {name}" for name in sorted(decision.hidden, key=rank))
        text = f"{' and '.join(sorted(decision.open, key=rank))}{NOT_DECIDED}{decision.undecided}"
        decision = replace(decision, undecided=f"{text}: so far {so_far}" if so_far else text)
    grave = [f"{finding.name}: {finding.sentence}" for finding in findings if finding.severity == "grave"]
    first = decision.trouble is not None  # the machine's trouble comes before the findings
    omissions = [
        f"{', '.join(sorted(UNTOLD[subject], key=rank))}{LEFT_OUT}no broker can be asked for {subject}"
        for subject in options.broker.untold
    ]
    if untold := _untold(source, options):
        names = ", ".join(sorted(untold, key=rank))
        omissions.append(f"{names}{LEFT_OUT}the history has no {', '.join(sorted(source.lacking))}")
    exclusions = {name: why for name, why in options.not_judged.items() if name in looked_for(options)}
    for why in dict.fromkeys(exclusions.values()):
        names = ", ".join(sorted((name for name, item in exclusions.items() if item == why), key=rank))
        omissions.append(f"{names}{LEFT_OUT}{why}")
    if run_facts.receives and run_facts.missing and decision.undecided is None and "lost" not in instances:
        omissions.append(
            f"{run_facts.missing} messages are missing, which {run_facts.receives.total()} receives of "
            "unknown outcome may have taken"
        )
    if figures.redeliveries and case.figures is not None and case.figures.marks == {(0, False)}:
        omissions.append(
            f"{figures.redeliveries} deliveries were not the first of their message, and no delivery of the "
            "whole run was marked as redelivered"
        )
    return Verdict(
        valid=decision.valid,
        reasons=(*decision.reasons[:first], *grave, *decision.reasons[first:], *omissions),
        findings=tuple(findings),
        statistics=msgspec.structs.replace(figures, seconds=dict(check_run.seconds)),
        guarantee=options.guarantee,
        ordered=options.ordered,
    )


def examine(check_run: CheckRun) -> Examination | None:
    """Apply all rules to all runs; None if the control rows could not be read."""
    source, options = check_run.source, check_run.options
    control_ends = check_run.attempt("facts", lambda: ends.read(renamed(source.control)))
    if control_ends is None:
        return None
    subscribed = check_run.attempt("subscriptions", lambda: subscriptions.read(source.control))
    if subscribed is None:
        return None
    temporary = check_run.attempt("temporary queues", lambda: temporaries.read(source.control))
    if temporary is None:
        return None
    case, unheard = _begin(check_run)
    phases = {run: run_facts.phases for run, run_facts in case.facts_by_run.items()}
    last_ns = {run: run_facts.last_ns for run, run_facts in case.facts_by_run.items()}
    died = deaths.read(case.facts_by_run, source.control)
    every_consumer: list[Consumer] | None = []
    if subscribed.numbers or subscribed.selectors or temporary.numbers:
        every_consumer = check_run.attempt(
            "consumers", lambda: consumers.read(renamed(source.control), control_ends, died)
        )
    if every_consumer is None:
        return None
    waited = partial(availability.waiting, phases, last_ns, options.recovery_bound_s)
    question = Question(
        ends=control_ends,
        examples=options.examples,
        bound_ns=int(options.unavailable_bound_s * 1e9),
        windows=roles.by_broker(case.windows),
        limit_s=options.deadline_s,
        since_ns=check_run.attempt("phases", waited) or {},
        owners=stores.owners(case.facts_by_run),
        deaths=died,
        clocks=clocks.read(case.facts_by_run, renamed(source.control)),
        last_ns=last_ns,
        drained_ns={run: run_facts.drained_ns for run, run_facts in case.facts_by_run.items()},
        waiting=frozenset(
            run
            for run, run_facts in case.facts_by_run.items()
            if run_facts.waiting(options.broker.redelivery_s)
        ),
        complete=_complete(case.facts_by_run),
        drained_from={run: run_facts.drained_from for run, run_facts in case.facts_by_run.items()},
        promises=options.broker,
        subscriptions=subscribed,
        choosers=selective.group_by_queue(every_consumer),
        temporaries=temporary,
        deletions=deletions.read(source.control, case.facts_by_run, died, options),
        interests=interests.read(case.facts_by_run, subscribed, died, options),
        consumers=queues.group_by_queue(every_consumer),
        ordered=options.ordered,
        lossless=options.guarantee in LOSSLESS,
        unheard=frozenset(
            (run, queue) for run, run_facts in case.facts_by_run.items() for queue in run_facts.receives
        ),
        look_step=0 if check_run.inspection is None else check_run.inspection.step,
        look_keys=source.laid_out,
        look_lacking=source.lacking,
    )
    answers = _ask(check_run, question)
    if check_run.inspection is not None and not any(
        part.LOOK in answer.failed for answer in answers.values()
    ):
        check_run.inspection.judged(looks_of((number, answer.results) for number, answer in answers.items()))
    question = replace(question, look_step=0)
    results: dict[str, list[Any]] = {
        name: [item for answer in answers.values() for item in answer.results.get(name, ())]
        for name in (*part.ROW_FAMILIES, *part.GROUP_FAMILIES)
    }
    results["delivery"], missing = _delivery(check_run, question, results["delivery"], case.facts_by_run)
    examples = options.examples
    for by_run in (case.overlaps, case.doubles, case.divergences):
        case.add_instances(
            [item.instance(run) for run, run_entries in by_run.items() for item in run_entries], examples
        )
    for delivered in results["delivery"]:
        case.survivors |= delivered.survivors
        case.overtakers |= delivered.overtakers
    skipped_effects = [(delivered.effects, delivered.places) for delivered in results["delivery"]]
    if options.broker.fifo:
        skipped_effects.append(_skipped(check_run, question, results["delivery"], case))
    case.add(
        merged(
            [
                *(delivered.found for delivered in results["delivery"]),
                *results["order"],
                *results["fifo"],
                *_sessions(check_run, question, answers),
            ],
            examples,
        ),
        examples,
    )
    for run, counts in missing.items():
        item = case.facts_by_run[run]
        item.missing, certain = sum(counts.values()), item.certain(counts)
        if certain < item.missing and "lost" in case.found.get(run, {}):
            case.found[run]["lost"] = replace(case.found[run]["lost"], count=certain)
    in_control = check_run.attempt("roles", lambda: roles.answered(*check_run.control(), question.windows))
    case.answers = roles.merged([*results["roles"], in_control or {}])
    case.add_instances(roles.zombies(case.windows, case.answers), examples)
    pauses = check_run.attempt(
        "pauses", lambda: _pauses(source, question, results["availability"], results["groups"])
    )
    case.pauses = pauses or []
    case.add_instances([pause.instance() for pause in case.pauses], examples)
    if starved.NAME in check_run.row_families and not any(
        starved.NAME in answer.failed for answer in answers.values()
    ):
        case.hungers = (
            check_run.attempt("starved", lambda: _hungers(check_run, question, results["starved"])) or []
        )
    case.add_instances([hunger.instance() for hunger in case.hungers], examples)
    if options.broker.fifo:
        queue_instances = check_run.attempt("queues", lambda: _queues(source, question, case.facts_by_run))
        case.add_instances(queue_instances or [], examples)
    case.figures = statistics.merged(results["statistics"])
    for run, broker in case.figures.brokers:
        case.facts_by_run[run].took.add(broker)
    for run, index in case.figures.sent_until.items():
        case.facts_by_run[run].sent_until = index
    question = replace(question, complete=_complete(case.facts_by_run))
    case.add(_forwarded(case.found, question.complete), examples)
    case.torn = (
        check_run.attempt(
            "transactions", lambda: _torn(source, question, results["transactions"], skipped_effects)
        )
        or []
    )
    case.add_instances([item.instance() for item in case.torn], examples)
    case.totals = check_run.attempt("totals", lambda: _totals(source, question, results["totals"])) or []
    case.add_instances([item.wrong.instance() for item in case.totals if item.wrong is not None], examples)
    case.inversions = (
        check_run.attempt("priorities", lambda: _inversions(check_run, question, results["priorities"])) or []
    )
    case.add_instances([item.instance() for item in case.inversions], examples)
    case.unrecovered = availability.not_recovered(phases, results["recovery"], options.recovery_bound_s)
    case.add_instances(list(case.unrecovered), examples)
    for (run, f, type_), count in case.figures.census.items():
        facts.add_census(case.facts_by_run[run], f, type_, count)
    admissions = check_run.attempt(
        admitted.NAME, lambda: _admitted(source, case.facts_by_run, options.broker.admits)
    )
    case.add_instances(admissions or [], examples)
    check_run.attempt("reach", lambda: _reached(source, case.facts_by_run, results["reach"]))
    for run, run_entries in case.found.items():
        case.found[run] = {
            name: instances for name, instances in run_entries.items() if name not in unheard[run]
        }
    case.pauses = [pause for pause in case.pauses if "unavailable" not in unheard[pause.run]]
    case.hungers = [hunger for hunger in case.hungers if starved.NAME not in unheard[hunger.run]]
    return case


def _forwarded(
    instances: Mapping[int, Mapping[str, Found]], complete: frozenset[int]
) -> dict[int, dict[str, Found]]:
    """Return the messages that are stuck on their way to another broker.

    Only runs count in which every store was read.
    """
    return {
        run: {
            "stuck": Found(
                forwarded.count, tuple(replace(instance, name="stuck") for instance in forwarded.first)
            )
        }
        for run, kinds in instances.items()
        if run in complete and (forwarded := kinds.get(delivery.FORWARDED)) is not None
    }


def _complete(facts_by_run: Mapping[int, Facts]) -> frozenset[int]:
    """Return the runs in which everything was drained and every store read, as far as is known."""
    return frozenset(run for run, run_facts in facts_by_run.items() if run_facts.undecided() is None)


def _untold(source: HistorySource, options: CheckOptions) -> dict[str, list[str]]:
    """Return the columns that a rule needs and the history lacks, by the name of its anomaly."""
    lacking = {
        anomaly.name: [name for name in anomaly.columns if name in source.lacking]
        for anomaly in ANOMALIES
        if not (anomaly.of_queues and options.broker.fifo)
    }
    return {
        name: columns
        for name, columns in lacking.items()
        if columns and not (named(name).one_column and len(columns) < len(named(name).columns))
    }


def _begin(check_run: CheckRun) -> tuple[Examination, dict[int, set[str]]]:
    """Judge the control rows alone, and return the anomalies that cannot be judged, by run.

    An anomaly cannot be judged where columns are missing, options exclude it, brokers cannot be
    asked, or a control row that it needs says nothing sensible.
    """
    source = check_run.source
    untold = {*_untold(source, check_run.options), *check_run.options.not_judged}

    def attempt(subject: Subject, work: Callable[[], Result], otherwise: Result) -> Result:
        result = check_run.attempt(subject, work)
        if result is None:
            untold.update(NOT_JUDGED[subject])
        return otherwise if result is None else result

    facts_by_run = check_run.attempt("facts", lambda: facts.read(source.control, source.last_ns))
    if facts_by_run is None:
        facts_by_run = {run: Facts(last_ns=last) for run, last in source.last_ns.items()}
        untold.update(*NOT_JUDGED.values())
    for subject in check_run.options.broker.untold:
        untold.update(UNTOLD[subject])
        for item in facts_by_run.values():
            item.forget(subject)
    for run, confined in check_run.confined.items():
        for row in confined:
            facts_by_run[run].forget(row.subject)
    case = attempt("roles", lambda: _reigns(facts_by_run), Examination(facts_by_run, {}, {}, []))
    case.divergences = attempt("views", lambda: _divergences(facts_by_run), {})
    spoilt = {run: [NOT_JUDGED[item.subject] for item in rows] for run, rows in check_run.confined.items()}
    return case, {run: untold.union(*spoilt.get(run, ())) for run in facts_by_run}


def _reigns(facts_by_run: Mapping[int, Facts]) -> Examination:
    reigns = {run: roles.reigns(run_data.roles, run_data.last_ns) for run, run_data in facts_by_run.items()}
    overlaps = {run: roles.overlaps(run_data) for run, run_data in reigns.items()}
    taken = {
        run: takeovers.read(run_data.takeovers, run_data.roles, run_data.last_ns)
        for run, run_data in facts_by_run.items()
    }
    windows = [
        window
        for run, run_data in reigns.items()
        for window in roles.windows_of(run, facts_by_run[run].roles, run_data, overlaps[run], taken[run])
    ]
    doubles = {run: list(takeovers.doubles(run_data)) for run, run_data in taken.items()}
    return Examination(facts_by_run, reigns, overlaps, windows, doubles)


def _divergences(facts_by_run: Mapping[int, Facts]) -> dict[int, list[views.Divergence]]:
    return {
        run: list(views.divergences(views.read(run_facts.views))) for run, run_facts in facts_by_run.items()
    }


def _ask(check_run: CheckRun, question: Question) -> dict[int, PartAnswer]:
    """Ask the parts in one job for all families, or in one job each if that fails.

    The failures of families are added to ``unknown``.
    """
    source = check_run.source
    rows, groups = check_run.row_families, check_run.group_families

    def job(
        row_families: Mapping[str, part.RowFamily], group_families: Mapping[str, part.GroupFamily]
    ) -> Callable[[], dict[int, PartAnswer]]:
        work = partial(part.answer, question=question, rows=row_families, groups=group_families)
        return lambda: source.ask(work)

    answers = check_run.attempt("rules", job(rows, groups), quietly=True, deadlines=_ALL_AT_ONCE)
    if answers is None:
        pieces = [check_run.attempt(name, job({name: family}, {})) for name, family in rows.items()]
        pieces += [check_run.attempt(name, job({}, {name: family})) for name, family in groups.items()]
        answers = {}
        for piece in pieces:
            for number, answer in (piece or {}).items():
                earlier = answers.get(number, PartAnswer({}, {}))
                answers[number] = PartAnswer(
                    {**earlier.results, **answer.results}, {**earlier.failed, **answer.failed}
                )
    failed: dict[str, str] = {}
    for answer in answers.values():
        failed |= answer.failed
    check_run.unknown += failed.values()
    return answers


def _delivery(
    check_run: CheckRun,
    question: Question,
    first_round: list[part.Delivered],
    facts_by_run: Mapping[int, Facts],
) -> tuple[list[part.Delivered], dict[int, dict[str, int]]]:
    """Return what became of messages, and the number of missing messages by run and queue.

    The parts are asked once more in three cases. Ids were seen without a send in their group, which
    may have been sent elsewhere. Something was asked of a process that had been seen gone, and
    something else may have been answered there later. Receives of unknown outcome may have taken
    all that is missing in a queue.
    """
    stray = joined(delivered.stray for delivered in first_round) if first_round else None
    late = joined(delivered.late for delivered in first_round) if first_round else None

    def ask_again(changed: Question) -> list[part.Delivered]:
        family = {"delivery": check_run.group_families["delivery"]}
        work = partial(part.answer, question=changed, rows={}, groups=family)
        answers = check_run.source.ask(work).values()
        for answer in answers:
            check_run.unknown += answer.failed.values()
        return [result for answer in answers for result in answer.results.get("delivery", ())]

    def ask() -> tuple[list[part.Delivered], dict[int, dict[str, int]]]:
        changed, results = question, first_round
        if stray is not None and len(stray.run):
            sends = joined(check_run.source.ask(partial(part.sends, stray=stray)).values())
            elsewhere = delivery.elsewhere(stray, sends)
            if elsewhere is not None:
                changed = replace(changed, elsewhere=elsewhere)
        if late is not None and len(late.run):
            answered = _answered_since(check_run, question, late)
            changed = replace(changed, deaths=replace(changed.deaths, answered=answered))
        if changed is not question:
            results = ask_again(changed)
        missing: dict[int, dict[str, int]] = {}
        for (run, queue), count in ((key, n) for result in results for key, n in result.missing.items()):
            queues = missing.setdefault(run, {})
            queues[queue] = queues.get(queue, 0) + count
        taken = frozenset(
            (run, queue) for run, counts in missing.items() for queue in facts_by_run[run].taken(counts)
        )
        return (ask_again(replace(changed, taken=taken)) if taken else results), missing

    return check_run.attempt("delivery", ask) or ([], {})


def _answered_since(check_run: CheckRun, question: Question, late: links.UnderWay) -> deaths.AnsweredSince:
    """Return the latest answers where acknowledgements were ``late``."""
    spans = links.Spans.of(late)
    control, _ = check_run.control()
    replies = check_run.source.ask(partial(part.served_sessions, spans=spans)).values()
    proofs, questions, servers = zip(
        *(slice_answer for reply in replies for slice_answer in reply), strict=True
    )
    return deaths.AnsweredSince.of(
        joined([links.questions(control, spans, invoked=False), *questions]),
        joined([links.servers(control, spans), *servers]),
        sessions.proven(proofs, question.ends.sessions),
    )


def _sessions(
    check_run: CheckRun, question: Question, answers: Mapping[int, PartAnswer]
) -> list[Mapping[int, Mapping[str, Found]]]:
    """Return what the parts found about sessions.

    Parts that could not decide it alone are asked again, with the facts of all parts.
    """
    first_round = {n: answer.results.get("sessions", []) for n, answer in answers.items()}
    open_ = [n for n, part_results in first_round.items() if any(result.open for result in part_results)]
    source = check_run.source

    def ask() -> dict[int, Mapping[int, Mapping[str, Found]]]:
        spans = links.Spans.of(
            joined([result.excused for part_results in first_round.values() for result in part_results])
        )
        control, _ = check_run.control()
        gathered = [
            pair
            for part_results in source.ask(partial(part.proofs, spans=spans)).values()
            for pair in part_results
        ]
        answered = joined([links.questions(control, spans), *(part_results for _, part_results in gathered)])
        proven = sessions.proven([proofs for proofs, _ in gathered], question.ends.sessions)
        session_facts = links.SessionFacts(proven, links.LinkAnswers(answered))
        return source.ask(partial(part.conflicts, question=question, session_facts=session_facts), open_)

    second_round = (check_run.attempt("sessions", ask) or {}) if open_ else {}
    return [
        second_round.get(n, result.found)
        for n, part_results in first_round.items()
        for result in part_results
    ]


def _pauses(
    source: HistorySource, question: Question, slots: Sequence[Any], troubled: Sequence[frozenset[Place]]
) -> list[availability.Outage]:
    bound_ns = question.bound_ns
    gaps = availability.gaps(availability.merged(slots), bound_ns)
    groups = frozenset().union(*troubled)
    if not gaps and not groups:
        return []
    asking = partial(part.questions, question=question, gaps=gaps, troubled=groups)
    replies = source.ask(asking).values()
    outages = availability.begun(
        gaps, [slice_gaps for reply in replies for slice_gaps in reply.of_gaps], bound_ns
    )
    return sorted([*outages, *(pause for reply in replies for pause in reply.of_groups)])


def _reached(
    source: HistorySource,
    facts_by_run: Mapping[int, Facts],
    part_reaches: Sequence[Mapping[int, reach.Reach]],
) -> None:
    """Add what clients reached in each place, and the answers of sends that were never ``ok``."""
    for run, run_reach in ((run, run_reach) for item in part_reaches for run, run_reach in item.items()):
        facts_by_run[run].reached.add(run_reach)
    destinations = frozenset(
        (run, name) for run, item in facts_by_run.items() for name in item.reached.unserved
    )
    if destinations:
        for reply in source.ask(partial(reach.unsent, unserved=destinations)).values():
            for (run, name), answers in reply.items():
                facts_by_run[run].reached.places[name].unsent += answers


def _admitted(source: HistorySource, facts_by_run: Mapping[int, Facts], words: str) -> list[Instance]:
    """Return the internal errors that brokers admitted.

    The parts are asked only where some operation on a message was not ``ok``.
    """
    admissions = list(admitted.of_table(source.control, words))
    if any(
        item.count(f, type_) for item in facts_by_run.values() for f in ANSWERED for type_ in ("fail", "info")
    ):
        for reply in source.ask(partial(admitted.of_part, words=words)).values():
            admissions += reply
    return sorted(admissions, key=lambda item: item.index)


def _hungers(
    check_run: CheckRun, question: Question, part_activities: Sequence[starved.Activity]
) -> list[starved.Hunger]:
    control, places = check_run.control()
    activities = [*part_activities, starved.activity(control, question.bound_ns)]
    idle_times = starved.idle(activities, control, places, question.ends, question.bound_ns)
    if not idle_times:
        return []
    replies = check_run.source.ask(partial(part.served, idle_times=idle_times, question=question))
    return starved.hungers(idle_times, list(replies.values()))


def _queues(source: HistorySource, question: Question, facts_by_run: Mapping[int, Facts]) -> list[Instance]:
    replies = source.ask(partial(part.queues_of, question=question)).values()
    context = queues.Known(
        queues.group_by_queue(consumers.read(source.control, question.ends, question.deaths)),
        question.deaths,
        {(run, queue): count for run, item in facts_by_run.items() for queue, count in item.receives.items()},
        question.choosers,
        question.lossless,
    )
    return queues.find([item for reply in replies for item in reply], context)


def _inversions(
    check_run: CheckRun, question: Question, part_queues: Sequence[frozenset[priorities.Queue]]
) -> list[priorities.Inversion]:
    queues = sorted(frozenset().union(*part_queues) - question.unheard)
    if not queues or question.promises.marks_redeliveries != "always":
        return []
    replies = check_run.source.ask(partial(part.ranked, queues=queues, question=question)).values()
    suspects = priorities.candidates(joined(slice_answer for reply in replies for slice_answer in reply))
    if not len(suspects.queue):
        return []
    answered = None
    if question.promises.answers_in_order:
        spans = links.Spans.of(priorities.spans_in_question(suspects, queues))
        control, _ = check_run.control()
        slice_questions = (
            slice_answer
            for reply in check_run.source.ask(partial(part.answers, spans=spans)).values()
            for slice_answer in reply
        )
        answered = links.LinkAnswers(joined([links.questions(control, spans), *slice_questions]))
    return priorities.inversions(suspects, queues, question.ends, answered)


def _skipped(
    check_run: CheckRun, question: Question, given: Sequence[part.Delivered], case: Examination
) -> tuple[transactions.Effects, Sequence[Place]]:
    """Add the skipped messages without a group, and return their sends in transactions."""

    def ask() -> tuple[skipped.SkippedMessages, Sequence[Place]]:
        copies, named = skipped.renumbered((result.ungrouped, result.places) for result in given)
        return skipped.find(copies, named, question.audience), named

    outcome = check_run.attempt("skipped", ask)
    if outcome is None:
        return transactions.NO_EFFECTS, ()
    overtaken, named = outcome
    instances = delivery.skipped_instances(overtaken, named)
    case.add_instances([*instances], question.examples)
    case.overtakers |= instances
    return transactions.skipped_effects(overtaken, named), named


def _torn(
    source: HistorySource,
    question: Question,
    part_effects: Sequence[transactions.Effects],
    skipped_effects: Sequence[tuple[transactions.Effects, Sequence[Place]]],
) -> list[transactions.Torn]:
    skipped, places = transactions.together(skipped_effects or [(transactions.NO_EFFECTS, ())])
    suspects = joined([*part_effects, transactions.suspects(skipped, question.ends)])
    if not len(suspects.run):
        return []
    keys = transactions.by_transaction(suspects)
    replies = source.ask(partial(part.effects, question=question, transaction_keys=keys)).values()
    gathered, named = transactions.together([*replies, (transactions.effects_of(skipped, keys), places)])
    torn = transactions.torn(gathered, named, {})
    absent = transactions.absent(torn)
    return transactions.torn(gathered, named, _sightings(source, absent)) if absent else torn


def _totals(
    source: HistorySource, question: Question, ledgers: Sequence[totals.Books]
) -> list[totals.Outcome]:
    results = totals.outcomes(ledgers, question.ends, question.promises, question.complete, question.unheard)
    wrong = [result.wrong for result in results if result.wrong is not None]
    doubtful = frozenset((result.run, message) for result in wrong for message in result.messages)
    return totals.certain(results, _sightings(source, doubtful)) if doubtful else results


def _sightings(
    source: HistorySource, sought: frozenset[tuple[int, int]]
) -> dict[tuple[int, int], set[Place]]:
    """Return the places in which some messages, by run and id, were delivered or stored."""
    places: dict[tuple[int, int], set[Place]] = {}
    for reply in source.ask(partial(part.sightings, sought=sought)).values():
        for run, message, place in reply:
            places.setdefault((run, message), set()).add(place)
    return places
