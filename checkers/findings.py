"""The findings of a verdict, from instances: severity, examples, witness and sentence of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers import priorities, roles, starved, takeovers, totals, transactions, views, words
from checkers.anomaly import looked_for, named
from checkers.availability import BREADTH, Outage
from checkers.decide import Decision
from checkers.delivery import REDELIVERED
from checkers.excuses import Effect, Excuses, Window
from checkers.facts import Facts
from checkers.fetch import RowSelection, control_rows, messages_rows
from checkers.instance import Found, Instance
from checkers.roles import Overlap
from checkers.rows import Place
from checkers.source import HistorySource
from checkers.verdict import CheckOptions, Finding, Witness
from checkers.witness import witnesses

_ORDER: Final = {"grave": 0, "warning": 1, "info": 2}
_NOTHING: Final = Witness((), ())
_EFFECTS: Final = 5
"""The number of effects of a torn transaction, or of accounts, that details name."""
_NODES: Final = 2
"""The number of nodes up to which a fault is named with its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discoveries:
    """Everything that the rules found in one history.

    ``answers`` are the answers of brokers in ``windows``. ``survivors`` has for each group with
    a loss the first and the last send that was not lost (-1: none). ``overtakers`` has for each
    skipped message the later one that shows that it was skipped. ``unrecovered`` has for each
    ``not-recovered`` the question that shows it (-1: none).
    """

    found: Mapping[str, Found]
    overlaps: Sequence[Overlap]
    windows: Sequence[roles.Window]
    answers: roles.Answered
    pauses: Sequence[Outage]
    survivors: Mapping[Place, tuple[int, int]]
    hungers: Sequence[starved.Hunger] = ()
    doubles: Sequence[takeovers.Double] = ()
    divergences: Sequence[views.Divergence] = ()
    torn: Sequence[transactions.Torn] = ()
    totals: Sequence[totals.WrongTotal] = ()
    inversions: Sequence[priorities.Inversion] = ()
    overtakers: Mapping[Instance, int] = field(default_factory=dict)
    unrecovered: Mapping[Instance, int] = field(default_factory=dict)


def select_findings(instances: Mapping[str, Found], options: CheckOptions) -> dict[str, Found]:
    """Return the kinds that are findings under what was promised, by name.

    Redeliveries, which are always counted, are a finding only where the guarantee allows none.
    """
    kinds = {name: kind for name, kind in instances.items() if not name.startswith("~") and kind.first}
    redeliveries = instances.get(REDELIVERED)
    if redeliveries is not None and redeliveries.first and "redelivery" in looked_for(options):
        kinds["redelivery"] = Found(
            redeliveries.count, tuple(replace(i, name="redelivery") for i in redeliveries.first)
        )
    return kinds


def compose(
    source: HistorySource | None,
    discoveries: Discoveries,
    decision: Decision,
    options: CheckOptions,
    run_facts: Facts,
) -> list[Finding]:
    """Return the findings, the gravest first.

    Without a source they have no witnesses, and losses have no positions.
    """
    excuses = run_facts.excuses(options)
    pauses = _broadest_first(discoveries.pauses, excuses)
    hungers = sorted(discoveries.hungers, key=excuses.excuses)
    windows: dict[str, Sequence[Window]] = {"unavailable": pauses, starved.NAME: hungers}
    kinds = {name: kind for name, kind in discoveries.found.items() if name in decision.severities}
    for name, some_windows in (("unavailable", pauses), (starved.NAME, hungers)):
        if some_windows:
            kinds[name] = Found(len(some_windows), tuple(item.instance() for item in some_windows))
    ends = {pause.instance(): pause.end for pause in pauses}
    shows: dict[Instance, Sequence[int]] = {pause.instance(): pause.rows for pause in pauses}
    shows |= {hunger.instance(): (hunger.after, hunger.ok) for hunger in discoveries.hungers}
    shows |= {
        instance: (question,) for instance, question in discoveries.unrecovered.items() if question >= 0
    }
    # A reign may last to the end.
    ends |= {overlap.instance(0): run_facts.last_ns for overlap in discoveries.overlaps}
    ends |= {double.instance(0): run_facts.last_ns for double in discoveries.doubles}
    overtaken = {(i.run, i.queue, i.message): {later} for i, later in discoveries.overtakers.items()}
    partners = {
        (i := item.instance()): {item.happened[0].message, item.missing[0].message}
        | overtaken.get((i.run, i.queue, i.message), set())
        for item in discoveries.torn[:1]
    }
    partners |= {item.instance(): set(item.messages) for item in discoveries.totals}
    partners |= {instance: {later} for instance, later in discoveries.overtakers.items()}
    shown: dict[Instance, Witness] = {}
    if source is not None and kinds:
        shown = witnesses(source, [kind.first[0] for kind in kinds.values()], options, ends, shows, partners)
    findings = []
    for name, kind in kinds.items():
        first = kind.first[0]
        details = _details(source, kind, options, run_facts, discoveries)
        if windows.get(name):
            details |= _window(windows[name], excuses)
        witness = shown.get(first, _NOTHING)
        findings.append(
            Finding(
                name=name,
                severity=decision.severities[name],
                count=kind.count,
                sentence=words.sentence(first, kind.count, witness.rows, details),
                witness=witness,
                details=details,
            )
        )
    return sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.name))


def _example(i: Instance) -> dict[str, Any]:
    key = "kind" if named(i.name).at_end else "key"
    values = {"queue": i.queue, "group": i.group, "message": i.message, "index": i.index, key: i.key}
    return {name: value for name, value in values.items() if value is not None}


def _details(
    source: HistorySource | None, kind: Found, options: CheckOptions, run_facts: Facts,
    discoveries: Discoveries,
) -> dict[str, Any]:  # fmt: skip
    examples = [_example(i) for i in kind.first[: options.examples]]
    details: dict[str, Any] = {"examples": examples}
    name = kind.first[0].name
    if name == "lost" and source is not None:
        _positions(source, kind.first[: options.examples], examples, discoveries.survivors)
    if name == "lost" and run_facts.receives:
        details |= {"missing": run_facts.missing, "receives": run_facts.receives.total()}
    if name in ("lost", "duplicate"):
        details["unprotected_ns"] = run_facts.unprotected()
    if name == "double-delivery" and options.broker.ack_wait_s is not None:
        details["ack_wait_s"] = options.broker.ack_wait_s
    if name == "double-delivery" and source is not None:
        _settlements(source, kind.first[: options.examples], examples)
    if name == "split-brain":
        details |= _overlap(discoveries)
    if name == takeovers.NAME:
        details |= _double(discoveries.doubles[0])
    if name == transactions.NAME:
        details |= _torn(source, discoveries.torn[0])
    if name == totals.NAME:
        details |= _total(source, discoveries.totals[0])
    if name == priorities.NAME:
        worst = max(discoveries.inversions, key=lambda one: one.overtakers)
        details["worst"] = {"queue": worst.queue, "message": worst.message, "overtakers": worst.overtakers}
    if name == views.NAME:
        details |= _divergence(discoveries.divergences)
    if name == "zombie":
        details |= _fenced(kind.first[0], discoveries, run_facts)
    return details


def _window(windows: Sequence[Window], excuses: Excuses) -> dict[str, Any]:
    """Return the details of windows: when the first was, and the faults that can have caused it.

    ``excused`` says whether faults explain all windows.
    """
    window = windows[0]
    return {
        "begin_ns": window.begin, "end_ns": window.end,
        "faults": ", ".join(dict.fromkeys(_called(effect) for effect in excuses.explain(window))),
        "excused": all(map(excuses.excuses, windows)),
    }  # fmt: skip


def _called(effect: Effect) -> str:
    """Return the name of a fault: its kind, and its nodes where these are few."""
    nodes = sorted(effect.nodes)
    return f"{effect.kind} of {' and '.join(nodes)}" if 0 < len(nodes) <= _NODES else effect.kind


def _rows_of(source: HistorySource, first: Sequence[Instance]) -> list[dict[str, Any]]:
    """Return all rows of the messages of some instances."""
    chosen = frozenset(i.message for i in first if i.message is not None)
    return messages_rows(source, RowSelection(messages=chosen))


def _positions(
    source: HistorySource,
    first: Sequence[Instance],
    examples: list[dict[str, Any]],
    survivors: Mapping[Place, tuple[int, int]],
) -> None:
    """Add to each example of a lost message its position in the group and the broker of its send.

    The position compares the send with those of the group's messages that survived: "prefix",
    "middle" or "tail", or "whole" where none survived. The broker is the one that took the send.
    """
    rows = _rows_of(source, first)
    brokers = {r["message"]: r.get("broker") for r in rows if r["f"] == "send" and r["type"] == "ok"}
    for instance, example in zip(first, examples, strict=True):
        low, high = survivors.get((0, instance.queue, instance.group), (-1, -1))
        example["broker"] = brokers.get(instance.message)
        if low < 0:
            example["position"] = "whole"
        else:
            example["position"] = (
                "prefix" if instance.index < low else "tail" if instance.index > high else "middle"
            )


def _settlements(source: HistorySource, first: Sequence[Instance], examples: list[dict[str, Any]]) -> None:
    """Add to each example whether acks in both sessions, and their commits, were ``ok``."""
    rows = _rows_of(source, first)
    control = source.control
    done = pc.and_(
        pc.equal(control["f"].cast(pa.string()), "commit"), pc.equal(control["type"].cast(pa.string()), "ok")
    )
    committed = {None, *control["transaction"].filter(done).to_pylist()}
    for instance, example in zip(first, examples, strict=True):
        sessions = {
            r.get("session")
            for r in rows
            if (r["f"], r["type"], r["message"]) == ("ack", "ok", instance.message)
            and (r.get("queue"), r.get("group")) == (instance.queue, instance.group)
            and r.get("transaction") in committed
        }
        example["both_acknowledged"] = len(sessions - {None}) > 1


def _overlap(discoveries: Discoveries) -> dict[str, Any]:
    """Return the details of the first overlap: when it was, and the sends acknowledged in it."""
    overlap = discoveries.overlaps[0]
    overlap_windows = [window for window in discoveries.windows if window.only == "send"][:2]
    answers = {window.broker: _answers(discoveries, window) for window in overlap_windows}
    counts = {broker: window_answers.count for broker, window_answers in answers.items()}
    messages = {
        broker: [row.message for row in window_answers.rows] for broker, window_answers in answers.items()
    }
    return {
        "begin_ns": overlap.begin, "end_ns": overlap.end, "acknowledged": counts, "messages": messages,
        "both_acknowledged": all(counts.values()),
    }  # fmt: skip


def _double(double: takeovers.Double) -> dict[str, Any]:
    """Return the details of a pair of takeovers.

    They are the node ID, both brokers with the moments and numbers of their takeovers, and whether
    both took over under one number. If not, they have the span in which both were certainly live.
    """
    taken = [
        {
            "broker": takeover.broker,
            "life": takeover.life,
            "certain_ns": takeover.certain,
            "index": takeover.index,
        }
        for takeover in (double.earlier, double.later)
    ]
    details: dict[str, Any] = {"node_id": double.later.node_id, "takeovers": taken, "same_life": double.same}
    if not double.same:
        details |= {
            "begin_ns": max(double.earlier.certain, double.later.certain),
            "end_ns": min(double.earlier.until, double.later.until),
        }
    return details


def _torn(source: HistorySource | None, first: transactions.Torn) -> dict[str, Any]:
    """Return the details of a torn transaction: its end, and which effects happened or did not."""

    def describe(side: Sequence[transactions.Effect]) -> list[dict[str, Any]]:
        effects = (
            {"f": effect.f, "queue": effect.place[1], "group": effect.place[2], "message": effect.message,
             "index": effect.index, "how": effect.how}
            for effect in side[:_EFFECTS]
        )  # fmt: skip
        return [{name: value for name, value in effect.items() if value is not None} for effect in effects]

    return {
        "transaction": first.transaction, "happened": describe(first.happened),
        "missing": describe(first.missing), **_end(source, first.transaction),
    }  # fmt: skip


def _total(source: HistorySource | None, wrong: totals.WrongTotal) -> dict[str, Any]:
    """Return the details of a wrong total: the expected amount, the amount left, some accounts.

    The accounts are those whose amounts are wrong.
    """

    def describe(culprit: totals.Culprit) -> dict[str, Any]:
        values = {"account": culprit.account, "amount": culprit.amount, "message": culprit.message}
        return values if culprit.transaction is None else {**values, "transaction": culprit.transaction}

    first = wrong.culprits[0]
    details: dict[str, Any] = {
        "expected": wrong.expected, "left": wrong.left, "wrong": len(wrong.culprits),
        "first_taken": first.taken, "first_left": first.left,
        "accounts": [describe(culprit) for culprit in wrong.culprits[:_EFFECTS]],
    }  # fmt: skip
    return details if first.transaction is None else {**details, **_end(source, first.transaction)}


def _end(source: HistorySource | None, transaction: int) -> dict[str, Any]:
    """Return when the end of a transaction was asked for, and how it was answered.

    Empty where the end was not asked for; the type is "info" where it was not answered.
    """
    if source is None:
        return {}
    rows = control_rows(source, pc.equal(source.control["transaction"], transaction))
    rows = [row for row in rows if row["f"] in ("commit", "abort")]
    invocation = next((row for row in rows if row["type"] == "invoke"), None)
    if invocation is None:
        return {}
    answers = (row for row in rows if row["f"] == invocation["f"] and row["type"] != "invoke")
    answer = next(answers, {"type": "info"})
    end = {
        "f": invocation["f"],
        "time": invocation["time"],
        "type": answer["type"],
        "broker": answer.get("broker"),
    }
    return {"end": {name: value for name, value in end.items() if value is not None}}


def _divergence(divergences: Sequence[views.Divergence]) -> dict[str, Any]:
    """Return the details of the first divergence: what two brokers held, and when both did."""
    first = min(divergences, key=lambda one: one.later.index)
    earlier, later = first.earlier, first.later
    return {
        "kind": later.kind, "key": later.key,
        "held": {earlier.broker: earlier.value, later.broker: later.value},
        "begin_ns": max(earlier.begin, later.begin), "end_ns": min(earlier.end, later.end),
    }  # fmt: skip


def _fenced(first: Instance, discoveries: Discoveries, run_facts: Facts) -> dict[str, Any]:
    """Return the details of the first zombie: what fenced its broker, and what it answered then."""
    windows = [
        window
        for window in discoveries.windows
        if window.own >= 0
        and window.broker == first.key
        and any(row.index == first.index for row in _answers(discoveries, window).rows)
    ]
    rows = {row["index"]: row for row in (*run_facts.roles, *run_facts.takeovers)}
    if not windows or windows[0].own not in rows or windows[0].by not in rows:
        return {}
    own_row, by = rows[windows[0].own], rows[windows[0].by]
    return {
        "fenced": {
            "by": by["broker"], "how": "takeover" if by["f"] == "takeover" else "live",
            "node_id": by["node_id"], "life": takeovers.life_of(by), "own_life": takeovers.life_of(own_row),
            "low_ns": by["time_low"], "high_ns": by["time_high"], "index": by["index"],
        },
        "acknowledged": _answers(discoveries, windows[0]).count,
    }  # fmt: skip


def _answers(discoveries: Discoveries, window: roles.Window) -> roles.AnswersInWindow:
    return discoveries.answers.get((window.run, window.id)) or roles.AnswersInWindow(0, ())


def _broadest_first(pauses: Sequence[Outage], excuses: Excuses) -> list[Outage]:
    """Sort windows of unavailability: those that no fault explains first, and broad ones first."""
    breadth = {name: number for number, name in enumerate(BREADTH)}
    return sorted(pauses, key=lambda pause: (excuses.excuses(pause), breadth[pause.key.split(" ")[0]], pause))
