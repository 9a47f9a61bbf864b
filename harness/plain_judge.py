"""A verdict without Spark: the plain reference finds, this decides what of it makes a test invalid.

Why here too: a search judges thousands of small histories an hour, where starting a query costs more than looking at every row. The
table of what is grave is the checkers' own; only what needs the faults of a history (whether they excuse an unavailability, whether any was
seen at all) is read here from its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from checkers.guarantee import severity
from checkers.instance import Instance
from checkers.reference import find
from checkers.schema import HARNESS, NEMESIS
from checkers.verdict import CheckOptions
from harness.interface import Schedule, TestSpec

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """All instances, the names of those that are grave, and why a history without grave ones would still be unknown."""

    findings: tuple[Instance, ...]
    grave: frozenset[str]
    undecided: str | None


@dataclass(frozen=True, slots=True)
class _Span:
    bit: bool
    begin: int
    end: int | None


def options_of(spec: TestSpec, schedule: Schedule) -> CheckOptions:
    """What a spec promises, as the checkers take it."""
    return CheckOptions(
        guarantee=spec.guarantee,
        ordered=spec.ordered,
        unavailable_bound_s=spec.unavailable_bound_s,
        recovery_bound_s=spec.recovery_bound_s,
        expect_faults=bool(schedule.faults),
    )


def judge(rows: Sequence[Row], spec: TestSpec, schedule: Schedule) -> Judged:
    """Judge one history."""
    options = options_of(spec, schedule)
    findings = tuple(find(rows, options))
    spans = _spans(rows)
    grave = frozenset(
        found.name
        for found in findings
        if severity(
            found.name, options, excused=found.name == "unavailable" and _excused(found, rows, spans, options)
        )
        == "grave"
    )
    return Judged(findings, grave, _undecided(rows, spans, options))


def _undecided(rows: Sequence[Row], spans: Sequence[_Span], options: CheckOptions) -> str | None:
    phases = {row["value"] for row in rows if row["f"] == "phase"}
    closed = sorted(
        {
            row["broker"] or "a broker"
            for row in rows
            if row["f"] == "browse"
            and row["process"] == HARNESS
            and row["type"] in ("info", "fail")
            and row["message"] is None
        }
    )
    if "browse" not in phases:
        return "the drain was not reached"
    if "end" not in phases:
        return "the stores were not looked into to the end"
    if closed:
        return f"the stores of {', '.join(closed)} could not be read"
    if not any(row["f"] == "send" for row in rows):
        return "nothing was sent"
    if not any(row["f"] == "deliver" for row in rows):
        return "nothing was delivered"
    if options.expect_faults and not any(span.bit for span in spans):
        return "faults were asked for, but none was seen to take effect"
    return None


def _spans(rows: Sequence[Row]) -> list[_Span]:
    """The faults as observed, in order of their beginning."""
    spans: list[_Span] = []
    begun: dict[str, tuple[int, bool]] = {}
    for row in rows:
        if row["process"] != NEMESIS or row["type"] == "invoke":
            continue
        told = msgspec.json.decode(row["value"])
        if not row["f"].startswith("heal:"):
            begun[told["label"]] = (row["time"], told["bit"] is True)
        elif told["label"] in begun:
            begin, bit = begun.pop(told["label"])
            spans.append(_Span(bit, begin, row["time"]))
    spans += [_Span(bit, begin, None) for begin, bit in begun.values()]
    return sorted(spans, key=lambda span: span.begin)


def _excused(found: Instance, rows: Sequence[Row], spans: Sequence[_Span], options: CheckOptions) -> bool:
    """Whether faults explain a pause: what lies outside every fault and the recovery bound after it is within the bound."""
    begin = rows[found.index]["time"]
    end = _end_of_pause(found, rows)
    patience, uncovered, at = int(options.recovery_bound_s * 1e9), 0, begin
    for span in spans:
        over = end if span.end is None else span.end + patience
        if over <= at or span.begin >= end:
            continue
        uncovered = max(uncovered, span.begin - at)
        at = max(at, over)
    return bool(max(uncovered, end - at) <= int(options.unavailable_bound_s * 1e9))


def _end_of_pause(found: Instance, rows: Sequence[Row]) -> int:
    """The next ``ok`` of what the pause concerns, or the last row of it."""
    kind, _, name = (found.key or "").rpartition(" ")
    last: int = rows[found.index]["time"]
    for row in rows[found.index + 1 :]:
        if row["process"] < 0 or row["f"] not in ("send", "ack", "nack"):
            continue
        if kind == "operation":
            mine = row["f"] == name
        elif kind == "broker":
            mine = row["f"] == "send" and row["broker"] == name
        else:
            mine = row["f"] == "send" and str(row["producer"]) == name
        if mine:
            last = row["time"]
            if row["type"] == "ok":
                return last
    return last
