"""From instances to findings: the severity, the examples, the witness and the sentence of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkers import roles, words
from checkers.availability import Pause
from checkers.facts import Facts, FaultSpan
from checkers.guarantee import severity
from checkers.instance import Instance
from checkers.lifecycle import lifecycle
from checkers.roles import Overlap
from checkers.rules import REDELIVERED, Found
from checkers.source import Source
from checkers.verdict import CheckOptions, Finding, Witness
from checkers.witness import witnesses

_ORDER: Final = {"grave": 0, "warning": 1, "info": 2}
_NOTHING: Final = Witness((), ())


def compose(
    source: Source | None,
    found: Mapping[str, Found],
    options: CheckOptions,
    known: Facts,
    overlaps: Sequence[Overlap],
    pauses: Sequence[Pause],
    *,
    transactions: bool,
) -> list[Finding]:
    """Findings, the gravest first. Without a source nothing more is read: no witnesses, no positions."""
    pauses = _gravest_first(pauses, known.spans(), options)
    kinds = {name: some for name, some in found.items() if not name.startswith("~") and some.first}
    if pauses:
        kinds["unavailable"] = Found(len(pauses), tuple(pause.instance() for pause in pauses))
    if options.guarantee != "at-least-once" and REDELIVERED in found and "redelivery" not in kinds:
        again = tuple(_renamed(i) for i in found[REDELIVERED].first)
        kinds["redelivery"] = Found(found[REDELIVERED].count, again)
    ends = {pause.instance(): pause.end for pause in pauses}
    ends |= {overlap.instance(0): known.last_ns for overlap in overlaps}  # a reign may last to the end
    shown: dict[Instance, Witness] = {}
    if source is not None:
        shown = witnesses(source, [some.first[0] for some in kinds.values()], options, ends)
    findings = []
    for name, some in kinds.items():
        first = some.first[0]
        details = _details(source, some, options, known, overlaps, pauses, transactions=transactions)
        excused = name == "unavailable" and bool(details.get("excused"))
        witness = shown.get(first, _NOTHING)
        findings.append(
            Finding(
                name=name,
                severity=severity(name, options, excused=excused),
                count=some.count,
                sentence=words.sentence(first, some.count, witness.rows, details),
                witness=witness,
                details=details,
            )
        )
    return sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.name))


def _renamed(i: Instance) -> Instance:
    return Instance("redelivery", i.queue, i.group, i.message, i.index)


def _example(i: Instance) -> dict[str, Any]:
    values = {"queue": i.queue, "group": i.group, "message": i.message, "index": i.index, "key": i.key}
    return {name: value for name, value in values.items() if value is not None}


def _details(
    source: Source | None, some: Found, options: CheckOptions, known: Facts,
    overlaps: Sequence[Overlap], pauses: Sequence[Pause], *, transactions: bool,
) -> dict[str, Any]:  # fmt: skip
    examples = [_example(i) for i in some.first[: options.examples]]
    details: dict[str, Any] = {"examples": examples}
    name = some.first[0].name
    if name == "lost" and source is not None:
        _positions(source, some.first[: options.examples], examples, transactions=transactions)
        details["unprotected_ns"] = known.unprotected(examples[0].get("broker"))
    if name == "split-brain":
        details |= _overlap(source, overlaps[0])
    if name == "unavailable":
        pause = pauses[0]
        spans = [span for span in known.spans() if _touches(span, pause)]
        details |= {
            "begin_ns": pause.begin, "end_ns": pause.end,
            "faults": ", ".join(dict.fromkeys(span.kind for span in spans)),
            "excused": all(_excused(p, known.spans(), options) for p in pauses),
        }  # fmt: skip
    return details


def _positions(
    source: Source, first: Sequence[Instance], examples: list[dict[str, Any]], *, transactions: bool
) -> None:
    """Whether each lost message is of the prefix, the middle or the tail of its group, and which broker took its send."""
    groups = sorted({(i.queue, i.group) for i in first}, key=str)
    here = F.lit(False)
    for queue, group in groups:
        here = here | (F.col("queue").eqNullSafe(F.lit(queue)) & F.col("group").eqNullSafe(F.lit(group)))
    kept = F.when(F.col("delivered").isNotNull() | F.col("stored"), F.col("sent"))
    near = Source(source.spark, source.data.where(here), source.control)
    extremes = {
        (row["queue"], row["group"]): (row["low"], row["high"])
        for row in lifecycle(near, transactions)
        .groupBy("queue", "group")
        .agg(F.min(kept).alias("low"), F.max(kept).alias("high"))
        .collect()
    }
    brokers = {
        row["message"]: row["broker"]
        for row in source.data.where(
            F.col("message").isin([i.message for i in first])
            & (F.col("f") == "send")
            & (F.col("type") == "ok")
        )
        .select("message", "broker")
        .collect()
    }
    for instance, example in zip(first, examples, strict=True):
        low, high = extremes.get((instance.queue, instance.group), (None, None))
        example["broker"] = brokers.get(instance.message)
        if low is None or high is None:
            example["position"] = "whole"
        else:
            example["position"] = (
                "prefix" if instance.index < low else "tail" if instance.index > high else "middle"
            )


def _overlap(source: Source | None, overlap: Overlap) -> dict[str, Any]:
    details: dict[str, Any] = {"begin_ns": overlap.begin, "end_ns": overlap.end, "both_acknowledged": False}
    if source is None:
        return details
    brokers = (overlap.earlier.broker, overlap.later.broker)
    windows = [roles.Window(0, n, broker, overlap.begin, overlap.end) for n, broker in enumerate(brokers)]
    answers = roles.answered(source, windows, only="send")
    counts = {broker: answers[0, n].count if (0, n) in answers else 0 for n, broker in enumerate(brokers)}
    messages = {
        broker: [row["message"] for row in answers[0, n].rows] if (0, n) in answers else []
        for n, broker in enumerate(brokers)
    }
    return details | {"acknowledged": counts, "messages": messages, "both_acknowledged": all(counts.values())}


def _touches(span: FaultSpan, pause: Pause) -> bool:
    return span.begin < pause.end and (span.end is None or span.end > pause.begin)


def _excused(pause: Pause, spans: Sequence[FaultSpan], options: CheckOptions) -> bool:
    """Whether faults explain it: what lies outside every fault and the recovery bound after it is within the bound."""
    patience = int(options.recovery_bound_s * 1e9)
    uncovered, at = 0, pause.begin
    for span in sorted(spans, key=lambda s: s.begin):
        end = pause.end if span.end is None else span.end + patience
        if end <= at or span.begin >= pause.end:
            continue
        uncovered = max(uncovered, span.begin - at)
        at = max(at, end)
    return max(uncovered, pause.end - at) <= int(options.unavailable_bound_s * 1e9)


def _gravest_first(pauses: Sequence[Pause], spans: Sequence[FaultSpan], options: CheckOptions) -> list[Pause]:
    return sorted(pauses, key=lambda pause: (_excused(pause, spans, options), pause))
