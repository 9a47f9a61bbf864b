"""The summary that is printed at the end of a run.

It has the verdict first, then the reasons, then figures, then how to reproduce it.

Why text apart from the report: most runs are read in a terminal or a job's log by people who have
never seen this program; every line must stand by itself.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from checkers.anomaly import rank
from checkers.visible import visible
from harness.history import store as stores
from harness.history.spec import default_name
from harness.interface import FIELDS, OWN, NodePlan, TestSpec, program
from harness.report.terminal import Volume
from harness.systems import registry as systems
from harness.systems.given import HOME

if TYPE_CHECKING:
    from checkers.verdict import FaultRecovery, Finding, LongestPause, Statistics, Total, Verdict
    from harness.history.known import Review

_WORD: Final[Mapping[bool | None, str]] = {True: "VALID", False: "INVALID", None: "UNKNOWN"}
_SEVERITY_ORDER: Final = ("grave", "warning", "info")
_WITNESS_ROWS: Final = 4
STORY_CHARACTERS: Final = 900
"""The maximum length of a printed story; of a longer one, a line names the report."""

_ALWAYS_NAMED: Final = ("policy", "nemeses")
"""The fields that a line names though they have their default, because a reader looks for them."""
_NAMED_APART: Final = ("name", "seed", "properties")


def repeat_command(spec: TestSpec, store: Path, schedule_file: str | None = None) -> str:
    """Return the command line that runs a test again.

    It has readable options if they can express the whole spec, else the stored spec. With a
    schedule, nemeses decide nothing and are not named as options: the stored spec is used. If a
    distribution was named, it is named again.
    """
    words: list[str] = []
    for name, default in _DEFAULTS.items():
        value, flag = getattr(spec, name), FIELDS[name].flag
        if name in _NAMED_APART or (value == default and name not in _ALWAYS_NAMED):
            continue
        if flag is None or (name == "nemeses" and value and schedule_file is not None):
            words = ["--spec", str(store / stores.SPEC)]
            break
        words += _option_words(name, flag, value)
    else:
        if spec.name != default_name(msgspec.structs.asdict(spec)):
            words += ["--name", spec.name]
        for node, properties in spec.properties.items():
            for name, value in properties.items():
                words += ["--set", f"{node}:{name}={msgspec.json.encode(value).decode()}"]
    words += ["--seed", str(spec.seed)]
    if schedule_file is not None:
        words += ["--schedule", schedule_file]
    if spec.system != OWN and (home := os.environ.get(HOME)):
        words += ["--system-home", home]
    return program.command(*words)


_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(TestSpec)}


def _option_words(name: str, flag: str, value: Any) -> list[str]:
    """Return the words that give a field on the command line."""
    if isinstance(value, bool):
        on, _, off = flag.partition("/")
        return [on if value else off]
    if name == "hosts":
        return [word for host in value for word in ("--host" if "@" in host else "--hosts", host)]
    if isinstance(value, tuple):
        return [flag, ",".join(value)] if value else []
    return [flag, _number(value)]


def stored_repeat_command(store: Path) -> str:
    """Return the command line that runs a stored run again; "" for an imported history.

    If spec and seed decide the faults, no schedule is named.
    """
    spec = stores.load_spec(store)
    return "" if spec.imported is not None else repeat_command(spec, store, given_schedule(store))


def given_schedule(store: Path) -> str | None:
    """Return the file of the stored faults; None if spec and seed give the same faults."""
    words = stores.load_run(store).again.split()
    return str(store / stores.SCHEDULE) if {"--schedule", "replay"} & set(words) else None


def text(
    spec: TestSpec,
    store: Path,
    verdict: Verdict,
    *,
    schedule_file: str | None = None,
    judged_s: float | None = None,
    story: str = "",
    known: Review | None = None,
    otherwise: str = "",
    reported: bool = True,
    volume: Volume = Volume.USUAL,
) -> str:
    """Return the whole summary of one run.

    ``judged_s`` is how long the verdict took after the last operation, ``story`` tells the first
    grave finding, ``known`` says which findings are known. ``otherwise`` holds the options that
    replaced the stored guarantee; the run's reports are not of that verdict. ``reported`` says
    whether the reports in the store are of this verdict. A quiet summary has only the verdict, the
    findings and where the report is; a verbose one has all rows of each finding.
    """
    shows_report = not otherwise and reported
    report = [f"Report   {store / stores.REPORT}"] if shows_report else []
    sentences = {f"{finding.name}: {finding.sentence}" for finding in verdict.findings}
    reasons = verdict.reasons[1:] if verdict.valid is None else verdict.reasons
    lines = [headline(spec.name, verdict, known)]
    lines += [
        f"  {known_finding.kind}: {known_finding}"
        for known_finding in (known.findings if known is not None else ())
    ]
    lines += [f"  {reason}" for reason in reasons if reason not in sentences]
    if volume is Volume.QUIET:
        lines += [line for finding in by_cause(verdict.findings) for line in _finding(finding, 0)]
        return "\n".join(map(visible, [*lines, *report]))
    rows = _WITNESS_ROWS if volume is Volume.USUAL else sys.maxsize
    if verdict.findings or verdict.statistics.rows:
        promises = promised(spec, stores.load_run(store).release(spec))
        lines += _evidence(spec, promises, verdict, judged_s, story, rows)
    lines += [
        "",
        *report,
        *(_overview(store) if shows_report else ()),
        *([] if spec.imported is not None else [f"Again    {repeat_command(spec, store, schedule_file)}"]),
        f"Judge    {program.command('check', str(store))}{otherwise and ' '}{otherwise}",
    ]
    if verdict.valid is False and spec.imported is None:
        lines.append(f"Replay   {program.command('replay', str(store))}")
    return "\n".join(map(visible, lines))


def _overview(store: Path) -> Iterator[str]:
    if stores.root_of(store) is not None:
        yield f"All runs {store.parent.parent / stores.OVERVIEW}"


def headline(name: str, verdict: Verdict, known: Review | None = None) -> str:
    """Return the first line: "INVALID  replication-partition: lost (3), split-brain (1)"."""
    graves = ", ".join(
        f"{finding.name} ({finding.count})"
        for finding in by_cause(verdict.findings)
        if finding.severity == "grave"
    )
    outcomes = {
        True: "no anomaly under its guarantee",
        False: graves,
        None: next(iter(verdict.reasons), "not decided"),
    }
    accepted = ", BUT KNOWN" if known is not None and known.known else ""
    return f"{_WORD[verdict.valid]}{accepted}  {name}: {outcomes[verdict.valid]}"


def promised(spec: TestSpec, release: str = "") -> str:
    """Return in words what a history is judged by.

    That is what the test promises, and what its brokers, of this release, do not promise.
    """
    words = [spec.guarantee, "ordered" if spec.ordered else "unordered"]
    broker = systems.promises(spec, release)
    system = spec.system if spec.imported is None else "the history"
    marks = broker.marks_redeliveries
    if not broker.groups:
        words.append(f"{system} keeps no groups, and no order among the consumers of a queue")
    if not broker.single:
        words.append(f"{system} may have a message with two brokers at once")
    if not broker.durable_acks:
        words.append(f"{system} may deliver again what was acknowledged")
    if marks == "never":
        words.append(f"{system} marks no redeliveries")
    elif marks == "same-process":
        words.append(f"{system} marks redeliveries of one process, none after a takeover or restart")
    return ", ".join(words)


def placed(spec: TestSpec) -> str:
    """Return in words where clients produced, consumed and drained; "" if that was everywhere."""
    places = {"producers": spec.produce_at, "consumers": spec.consume_at, "drain": spec.drain_at}
    if not any(places.values()):
        return ""
    return ", ".join(
        f"{clients} at {' and '.join(nodes)}" if nodes else f"{clients} everywhere"
        for clients, nodes in places.items()
    )


def _evidence(
    spec: TestSpec, promises: str, verdict: Verdict, judged_s: float | None, story: str, rows: int
) -> Iterator[str]:
    """Return the lines about findings, story, faults and figures of a judged history."""
    yield ""
    if clients := placed(spec):
        yield f"Clients  {clients}"
    yield "Times    in seconds since the start of the test"
    if verdict.findings:
        yield f"Findings (promised: {promises})"
        for finding in by_cause(verdict.findings):
            yield from _finding(finding, rows)
    else:
        yield f"Findings (promised: {promises}): none"
    yield ""
    if story:
        is_short = len(story) <= STORY_CHARACTERS
        yield f"Story    {' '.join(story.split()) if is_short else 'too long to print here: see the report'}"
        yield ""
    yield from _faults(verdict.statistics.faults)
    yield from _figures(verdict.statistics, judged_s)


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, and causes before their usual consequences.

    The finding that is read first explains the others.
    """
    return sorted(findings, key=lambda finding: (_SEVERITY_ORDER.index(finding.severity), rank(finding.name)))


def _finding(finding: Finding, most: int) -> Iterator[str]:
    """Yield the sentence of a finding and its first rows; no word about rows if none is wanted."""
    yield f"  {finding.name} x {finding.count} ({finding.severity}): {finding.sentence}"
    rows = finding.witness.rows
    for row in rows[:most]:
        yield f"      {row_text(row)}"
    if most and len(rows) > most:
        yield f"      ... and {len(rows) - most} more rows"


def row_text(row: Mapping[str, Any]) -> str:
    """Return one history row as words.

    "#812 at 3.217 s: send ok, queue q0 group g3 message 99 producer 2 sequence 14 broker a1".
    """
    head = f"#{row.get('index')} at {row.get('time', 0) / 1e9:.3f} s: {row.get('f')} {row.get('type')}"
    skip = {"index", "time", "f", "type", "digest", "headers", "time_low", "time_high", "process"}
    rest = " ".join(
        f"{name} {value}" for name, value in row.items() if name not in skip and value is not None
    )
    interval = (
        f" (between {row['time_low'] / 1e9:.3f} and {row['time_high'] / 1e9:.3f} s)"
        if row.get("time_low") is not None and row.get("time_high") is not None
        else ""
    )
    return f"{head}, {rest}{interval}" if rest else head + interval


def _faults(faults: tuple[FaultRecovery, ...]) -> Iterator[str]:
    if not faults:
        yield "Faults   none"
        return
    bit = sum(fault.bit for fault in faults)
    yield f"Faults   {len(faults)}, of which {bit} took effect"
    for fault in faults:
        if not fault.found_target:
            yield f"  {fault.label}  {fault.start_s:.1f} s: found no target"
            continue
        end = "the end" if fault.end_s is None else f"{fault.end_s:.1f} s"
        effect = "took effect" if fault.bit else "no effect was observed"
        yield f"  {fault.label}  {fault.start_s:.1f} s to {end}: {effect}; {pauses(fault)}"


def pauses(fault: FaultRecovery) -> str:
    """Return in words how long a fault kept clients from sending.

    That is the pause of the whole cluster, and those of the pair and the client with the longest
    pause.
    """
    if not fault.found_target:
        return "it found no target"
    if fault.recovery_s is None:
        return "no send succeeded after it"
    parts = [f"{fault.recovery_s:.2f} s in the whole cluster"]
    parts += [_pause(longest) for longest in (fault.pair, fault.client) if longest is not None]
    return f"longest pause of sends: {', '.join(parts)}"


def _pause(longest: LongestPause) -> str:
    return (
        f"{longest.of} none after it"
        if longest.seconds is None
        else f"{longest.seconds:.2f} s of {longest.of}"
    )


def _figures(statistics: Statistics, judged_s: float | None) -> Iterator[str]:
    yield ""
    judged = "" if judged_s is None else f", judged within {judged_s:.1f} s"
    yield f"Figures  {statistics.rows} rows over {statistics.duration_s:.1f} s{judged}"
    for operation, types in statistics.operations.items():
        if operation in {"send", "deliver", "ack", "nack", "commit", "create", "delete"}:
            counts = ", ".join(f"{types[kind]} {kind}" for kind in ("ok", "fail", "info") if types.get(kind))
            latency = statistics.latency.get(operation)
            times = (
                f"; p50 {latency.p50_ms:.1f} ms, p99 {latency.p99_ms:.1f} ms, max {latency.max_ms:.0f} ms"
                if latency
                else ""
            )
            yield f"  {operation:<8} {counts}{times}"
    yield (
        f"  {statistics.redeliveries} redeliveries, "
        f"{statistics.sends_recovered} messages delivered although their send got no answer"
    )
    if statistics.total is not None:
        yield f"  {'total':<8} {total_in_words(statistics.total)}"


def total_in_words(total: Total) -> str:
    """Return in words whether the accounts hold as much as they must."""
    balance = f"{total.accounts:,} accounts hold {total.left:,}"
    if total.unjudged:
        return f"{balance}, expected are {total.expected:,}; not judged: {total.unjudged}"
    return (
        f"{balance}, as expected"
        if total.left == total.expected
        else f"{balance}, but must hold {total.expected:,}"
    )


def _number(value: Any) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def size(nodes: Sequence[NodePlan]) -> str:
    """Return the size of a cluster in words.

    "3 pairs", "1 group of 3 brokers", or "3 brokers" if none has a backup of its own. Nodes that
    are not brokers are named: "1 pair and zk1".
    """
    groups = Counter(node.pair for node in nodes if node.broker)
    most = max(groups.values())
    word = {1: "broker", 2: "pair"}.get(most, "group")
    groups_in_words = f"{len(groups)} {word}{'' if len(groups) == 1 else 's'}"
    arbiters = ", ".join(node.name for node in nodes if not node.broker)
    arbiters_in_words = f" and {arbiters}" if arbiters else ""
    return (
        f"{groups_in_words} of {most} brokers" if word == "group" else groups_in_words
    ) + arbiters_in_words
