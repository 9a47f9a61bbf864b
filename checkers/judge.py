"""From a history to a verdict.

Each family of rules runs under its own deadline; one that crashes or runs past it makes the verdict unknown and hides nothing that
another found. Delivery and order share one pass; if that pass fails each is tried alone, so that the fault stays where it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as DeadlineError
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from checkers import availability, facts, roles, rules, statistics
from checkers.facts import Facts
from checkers.findings import compose
from checkers.rules import Found, Suspects
from checkers.source import INTERPRETED_MAX_ROWS, HistoryError, Source
from checkers.verdict import CheckOptions, Finding, Statistics, Verdict

__all__ = ["HistoryError", "check"]

Result = TypeVar("Result")

_AT_ONCE = 4
"""Parts of a small history that are judged side by side."""


def check(paths: Path | Sequence[Path], options: CheckOptions, spark: SparkSession) -> Verdict:
    """Judge one history.

    Args:
        paths: a store directory, its ``history/``, or that directory's Parquet files.
        options: what was promised.
        spark: from ``checkers.session``.

    Raises HistoryError if there is no readable history. Never raises for what a checker does.
    """
    with Source.open(paths, spark) as source:
        return judge(source, options)


class Bench:
    """What was found so far, what could not be judged and why, and how long each part took."""

    def __init__(self, source: Source, options: CheckOptions) -> None:
        self.source = source
        self.options = options
        self.found: dict[str, Found] = {}
        self.unknown: list[str] = []
        self.seconds: dict[str, float] = {}

    def attempt(self, name: str, work: Callable[[], Result], *, quietly: bool = False) -> Result | None:
        """Run one part under the deadline; None if it failed, with the reason kept (unless ``quietly``)."""
        begun = time.monotonic()
        future: Future[Result] = Future()
        context = self.source.spark.sparkContext
        tag = f"{name}-{id(future)}"

        def run() -> None:
            try:
                context.addJobTag(tag)
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - a checker's crash is a result too
                future.set_exception(error)

        threading.Thread(target=run, name=f"checker-{name}", daemon=True).start()
        try:
            return future.result(self.options.deadline_s)
        except DeadlineError:
            context.cancelJobsWithTag(tag)
            if not quietly:
                self.unknown.append(f"{name} did not end within {self.options.deadline_s:g} s")
        except BaseException as error:  # noqa: BLE001 - of the checker, whatever it is
            if not quietly:
                text = str(error).strip().splitlines()
                self.unknown.append(f"{name} crashed: {type(error).__name__}: {text[0] if text else ''}")
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 3)
        return None


def judge(source: Source, options: CheckOptions) -> Verdict:
    """As ``check``, for a history that is open already."""
    bench = Bench(source, options)
    known = bench.attempt("facts", lambda: facts.read(source).get(0, Facts()))
    if known is None:
        return _verdict(bench, Facts(), [], Statistics(rows=source.rows))
    transactions = known.transactions
    reigns = roles.reigns(known.roles, known.last_ns)
    overlaps = roles.overlaps(reigns)
    if overlaps:
        bench.found["split-brain"] = Found(len(overlaps), tuple(o.instance(0) for o in overlaps))

    def messages() -> None:
        suspects = _messages(bench, transactions)
        found = bench.attempt(
            "sessions", lambda: rules.session_findings(source, suspects, transactions, options.examples)
        )
        bench.found |= found or {}

    # A small history costs planning, which is done one query after the other on one core each; a large one costs memory.
    with ThreadPoolExecutor(_AT_ONCE if source.rows <= INTERPRETED_MAX_ROWS else 1) as pool:
        judging = pool.submit(messages)
        asked_roles = pool.submit(bench.attempt, "roles", lambda: roles.zombies(source, {0: reigns}))
        asked_pauses = pool.submit(
            bench.attempt, "availability", lambda: availability.pauses(source, options.unavailable_bound_s)
        )
        asked_recovery = pool.submit(
            bench.attempt,
            "recovery",
            lambda: availability.not_recovered(
                source, {0: known.phases}, {0: known.last_ns}, options.recovery_bound_s
            ),
        )
        asked_figures = pool.submit(bench.attempt, "statistics", lambda: statistics.read(source, known))
    judging.result()
    fallen, pauses, last = asked_roles.result(), asked_pauses.result() or [], asked_recovery.result()
    bench.unknown.sort()
    if fallen:
        bench.found["zombie"] = Found(len(fallen), tuple(fallen[: options.examples]))
    if pauses:
        bench.found["unavailable"] = Found(len(pauses), tuple(pause.instance() for pause in pauses))
    if last:
        bench.found["not-recovered"] = Found(len(last), tuple(last))
    undecided = known.undecided()
    if undecided is not None:
        missing = [bench.found.pop(name).count for name in ("lost", "stuck") if name in bench.found]
        what = f": {sum(missing)} acknowledged messages were not delivered so far" if missing else ""
        bench.unknown.append(f"lost and stuck cannot be decided, because {undecided}{what}")
    figures = asked_figures.result() or Statistics(rows=source.rows)
    figures = statistics.with_counts(figures, bench.found)
    findings = bench.attempt(
        "witnesses",
        lambda: compose(source, bench.found, options, known, overlaps, pauses, transactions=transactions),
    )
    if findings is None:  # what was found stands, witness or not
        findings = compose(None, bench.found, options, known, overlaps, pauses, transactions=transactions)
    return _verdict(bench, known, findings, figures)


def _messages(bench: Bench, transactions: bool) -> Suspects:
    """Delivery and order in one pass, or each alone if the pass fails; gives what the session rules must look at."""
    source, examples = bench.source, bench.options.examples

    def work(*families: str) -> Callable[[], tuple[dict[str, Found], Suspects]]:
        return lambda: rules.message_findings(source, families, transactions, examples)

    both = bench.attempt("delivery and order", work("delivery", "order"), quietly=True)
    if both is not None:
        bench.found |= both[0]
        return both[1]
    everything = Suspects((), (), everything=True)
    for family in ("delivery", "order"):
        alone = bench.attempt(family, work(family))
        if alone is not None:
            bench.found |= alone[0]
            everything = alone[1] if family == "order" else everything
    return everything


def _verdict(bench: Bench, known: Facts, findings: list[Finding], figures: Statistics) -> Verdict:
    options = bench.options
    grave = [finding for finding in findings if finding.severity == "grave"]
    empty = []
    if not known.count("send", "invoke"):
        empty.append("nothing was sent")
    if not known.count("deliver", "ok"):
        empty.append("nothing was delivered")
    if options.expect_faults and not any(span.bit for span in known.spans()):
        empty.append("faults were asked for, but none was seen to take effect")
    reasons: list[str] = [f"{finding.name}: {finding.sentence}" for finding in grave]
    reasons += bench.unknown + empty
    valid: bool | None = True
    if bench.unknown or empty:
        valid = None
    if grave:
        valid = False
    seconds = dict(bench.seconds)
    values: dict[str, Any] = {name: getattr(figures, name) for name in figures.__struct_fields__}
    return Verdict(
        valid=valid,
        reasons=tuple(reasons),
        findings=tuple(findings),
        statistics=Statistics(**{**values, "seconds": seconds}),
        guarantee=options.guarantee,
        ordered=options.ordered,
    )
