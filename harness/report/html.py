"""The HTML report: one file for a person with a red run.

It has the verdict first, then the reasons, then the picture, then how to run the test again.

Why rendered only from what is stored: a report can be made again years later, and a failure here
can never change a verdict that was already printed. Texts come from brokers and are escaped by the
template; the picture is our own SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import markupsafe
import msgspec

from checkers.schema import COLUMNS
from checkers.verdict import Finding, Latency, Verdict
from checkers.words import NS_MAX, seconds
from harness.history import judge as judging
from harness.history import known, parquet, store
from harness.interface import IMPORTED, OWN, NodePlan, Schedule, TestSpec, program
from harness.report import cluster_lanes, consequences, figure, palette, sequence, timeline
from harness.report.narrative import excerpt, logbook, paragraphs
from harness.report.narrative import story as stories
from harness.report.narrative.cluster_state import listed
from harness.report.narrative.sentences import capital
from harness.report.summary import (
    by_cause,
    pauses,
    placed,
    promised,
    size,
    stored_repeat_command,
    total_in_words,
)
from harness.report.templating import TEMPLATES
from harness.systems import registry as systems

TAGS: Final = {"grave": "grave", "warning": "warning", "info": "information"}
CLIENT_OPERATIONS: Final = (
    "send",
    "deliver",
    "ack",
    "nack",
    "begin",
    "commit",
    "abort",
    "subscribe",
    "unsubscribe",
    "connect",
    "create",
    "delete",
)
LEAST_S: Final = 0.05
"""The length below which a history is taken to have numbers in place of times (s)."""
GAPS_MAX: Final = 60
"""The maximum number of rows in the table of missing links."""
HIDDEN: Final = frozenset({"digest", "headers"})
"""The columns of a witness that have no meaning for a reader."""


def write(directory: Path) -> Path:
    """Write ``report.html`` into the directory of a run and return its path.

    Raises UsageError for a directory without a spec or verdict.
    """
    spec = store.load_spec(directory)
    verdict = Verdict.from_json((directory / store.FINDINGS).read_bytes())
    schedule = store.load_schedule(directory)
    run = store.load_run(directory)
    pairs = {node.name: node.pair for node in _plan(spec) if node.broker}
    picture = timeline.read(directory / parquet.DIRECTORY, pairs, placed=bool(placed(spec)))
    reader = excerpt.ExcerptReader(directory / parquet.DIRECTORY)
    logs = logbook.LogReader(directory / store.LOGS)
    sentences_shown = {f"{finding.name}: {finding.sentence}" for finding in verdict.findings}
    reviewed = known.stored_review(directory)

    def present(finding: Finding) -> dict[str, Any]:
        return _finding(finding, _story(finding, reader, logs, run), reviewed)

    text = TEMPLATES.get_template("report.html.j2").render(
        spec=spec,
        verdict={
            "word": judging.verdict_word(verdict.valid),
            "sentence": sentence(verdict, spec, schedule, run.environment),
            "judged": verdict.valid is not None or verdict.statistics.rows > 0,
            "known": reviewed is not None and reviewed.known,
            "reasons": [reason for reason in verdict.reasons if reason not in sentences_shown],
        },
        warnings=run.warnings,
        facts=facts(verdict, spec, run),
        findings=[
            {
                **present(group.root),
                "consequences": [
                    {**present(consequence.finding), "why": consequence.words}
                    for consequence in group.consequences
                ],
            }
            for group in consequences.grouped(verdict.findings, reader.control)
        ],
        figure=markupsafe.Markup(figure.draw(picture)) if _is_drawable(picture) else "",  # noqa: S704 - drawn by us, every text in it escaped there
        bands=picture.bands,
        links=_links(picture),
        consumption=_consumption(picture),
        figures=_figures(verdict, spec, run, picture),
        again=stored_repeat_command(directory) or run.again,
        repeats=_repetition(spec, run),
        check=program.command("check", str(directory)),
        spec_text=_json(spec),
        schedule_text=_json(schedule),
    )
    path = directory / store.REPORT
    temporary = directory / f".{store.REPORT}.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def sentence(verdict: Verdict, spec: TestSpec, schedule: Schedule | None, environment: str) -> str:
    """Return one sentence that says what was tested and what was found."""
    kinds = dict.fromkeys(fault.kind for fault in (schedule.faults if schedule is not None else ()))
    faults = f"faults {', '.join(kinds)}" if kinds else "no faults"
    grave = [finding for finding in by_cause(verdict.findings) if finding.severity == "grave"]
    outcome = {
        True: "nothing that the guarantee forbids was found",
        False: f"{listed([finding.name for finding in grave])} {'was' if len(grave) == 1 else 'were'} found",
        None: "no verdict is possible",
    }[verdict.valid]
    if spec.imported is not None:
        return f"A history of another harness, from {spec.imported.file} ({spec.imported.format}): {outcome}."
    nodes = size(_plan(spec))
    parts = (
        f"System {spec.system}, policy {spec.policy}, {nodes}, workload {spec.workload}",
        placed(spec),
        f"{environment or spec.environment} environment, {faults}, seed {spec.seed}",
    )
    return f"{', '.join(filter(None, parts))}: {outcome}."


def _plan(spec: TestSpec) -> Sequence[NodePlan]:
    """Return the nodes of a test; an imported history has none."""
    return () if spec.imported is not None else systems.of(spec).plan(spec)


def _links(picture: timeline.Timeline) -> dict[str, Any] | None:
    """Return the rows of the table of missing links; None if there are no lanes of links."""
    gaps = cluster_lanes.gaps(picture.links)
    return {"gaps": gaps[:GAPS_MAX], "more": len(gaps[GAPS_MAX:])} if picture.links else None


def _consumption(picture: timeline.Timeline) -> dict[str, Any] | None:
    """Return what the lanes of consumption show, as rows of a table; None if there are no lanes."""
    rows = [
        {
            "queue": lane.queue,
            "broker": lane.broker,
            "deliveries": lane.deliveries,
            "times": ", ".join(f"{span.start_s:.1f} to {span.end_s:.1f} s" for span in lane.spans),
        }
        for lane in picture.consumption.lanes
    ]
    return {"rows": rows, "more": picture.consumption.left_out} if rows else None


def _is_drawable(picture: timeline.Timeline) -> bool:
    """Return whether there is a time axis to draw on, and something to draw."""
    return picture.end_s - picture.begin_s >= LEAST_S and bool(picture.rates or picture.lanes)


def _repetition(spec: TestSpec, run: store.RunRecord) -> str:
    """Return a sentence that says how far the command gives the same history again."""
    if spec.imported is not None:
        return "The same file gives the same history."
    if run.environment == "simulation":
        return "The same version of jepsen-run gives the same history again, row by row."
    return "The same seed draws the same faults; the brokers' timing still differs from run to run."


def facts(verdict: Verdict, spec: TestSpec, run: store.RunRecord) -> list[tuple[str, str]]:
    """Return the recorded date, host, duration and versions of a run.

    An imported history has none of its own: only when it was imported and how long it is.
    """
    versions = dict(run.versions)
    version, python, platform = (versions.pop(name, "") for name in ("jepsen-run", "python", "platform"))
    engine, brokers = versions.pop("engine", ""), versions.pop(spec.system, "")
    simulated = run.environment == "simulation"
    known_facts = (
        ("began" if spec.imported is None else "imported", _moment(run.started)),
        ("host", "" if run.process is None else run.process.host),
        ("duration", _duration(verdict.statistics.duration_s, simulated=simulated)),
        (
            "brokers",
            f"{spec.system} {brokers}" if brokers else "part of jepsen-run" * (spec.system == OWN),
        ),
        ("jepsen-run", version),
        ("Python", python),
        ("system", platform),
        ("engine", engine),
        ("libraries", ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))),
    )
    return [(name, value) for name, value in known_facts if value]


def _moment(iso: str) -> str:
    """Return a recorded moment without fractions of a second; as it is if it cannot be read."""
    try:
        return datetime.fromisoformat(iso).isoformat(" ", timespec="seconds")
    except ValueError:
        return iso


def _duration(seconds: float, *, simulated: bool) -> str:
    words = f"{seconds:.1f} s{' of simulated time' if simulated else ''}"
    return words if seconds >= LEAST_S else ""


def _finding(finding: Finding, story: dict[str, Any] | None, reviewed: known.Review | None) -> dict[str, Any]:
    known_as = reviewed.review_of(finding.name) if reviewed is not None else None
    used = [
        column
        for column in COLUMNS
        if column not in HIDDEN and any(row.get(column) is not None for row in finding.witness.rows)
    ]
    return {
        "name": finding.name,
        "count": finding.count,
        "tag": TAGS[finding.severity],
        "known": "" if known_as is None else str(known_as),
        "message": capital(finding.sentence),
        "story": story,
        "columns": used,
        "witness": [
            {column: _cell(column, row.get(column)) for column in used} for row in finding.witness.rows
        ],
    }


def _story(
    finding: Finding, reader: excerpt.ExcerptReader, logs: logbook.LogReader, run: store.RunRecord
) -> dict[str, Any] | None:
    """Return the story of a finding for the template; None for information or an empty story."""
    if finding.severity == "info":
        return None
    story = stories.compose(finding, reader.excerpt_of(finding))
    if not story.steps:
        return None
    if run.environment != IMPORTED:
        story = logbook.placed(story, logs, run)
    witness = set(finding.witness.indexes)
    drawn = sequence.slices(story)
    return {
        "text": paragraphs.paragraph(story),
        "head": markupsafe.Markup(sequence.head(story)),  # noqa: S704 - as the figure
        "head_px": sequence.head_height(story),
        "legend": [
            (role, markupsafe.Markup(palette.key(stroke)))  # noqa: S704 - as the figure
            for role, stroke in sequence.legend(story)
        ],
        "began": story.standing.seconds(story.standing.began) if story.standing.loaded >= 0 else "",
        "left_out": story.left_out,
        "notes": story.notes,
        "numbered": any("sequence" in row for row in story.rows),
        "messages": [
            (story.names.message(message), message)
            for message in dict.fromkeys(
                row["message"] for row in story.rows if "message" in row and row["index"] in witness
            )
        ],
        "steps": [
            {
                "time": story.standing.seconds(step.at).removesuffix(" s"),
                "words": step.words,
                "svg": markupsafe.Markup(slice_drawn.svg),  # noqa: S704 - as the figure
                "pause": slice_drawn.pause,
                "pause_svg": markupsafe.Markup(slice_drawn.pause_svg),  # noqa: S704 - as the figure
                "witness": step.witness,
                "rows": [(row["index"], row["index"] in witness, _row_in_words(row)) for row in step.rows],
                "lines": [(f"{line.at / 1e9:.3f}", line.broker, line.text) for line in step.lines],
                "more_lines": step.more_lines,
            }
            for step, slice_drawn in zip(story.steps, drawn, strict=True)
        ],
    }


def _row_in_words(row: excerpt.Row) -> str:
    """Return a row of the history as one line that has every column that is not empty."""
    cells = (f"{column} {_cell(column, value)}" for column, value in row.items() if column not in HIDDEN)
    return ", ".join(cells)


def _cell(column: str, value: object) -> object:
    if column in {"time", "time_low", "time_high"} and isinstance(value, int):
        return seconds(value) if value < NS_MAX else f"{value / 1e9:.4f} s"
    return value


def _figures(
    verdict: Verdict, spec: TestSpec, run: store.RunRecord, picture: timeline.Timeline
) -> list[tuple[str, str]]:
    statistics = verdict.statistics
    rows = [
        ("guarantee", promised(spec, run.release(spec))),
        ("environment", ": ".join(filter(None, (run.environment, run.environment_reason)))),
        *run.furnishings.items(),
    ]
    if spec.imported is None:
        rows.append(("set-up", f"{picture.set_up_s:.1f} s; the load begins at {picture.begin_s:.1f} s"))
    over = _duration(statistics.duration_s, simulated=False)
    rows.append(("history", f"{statistics.rows:,} rows{over and f' over {over}'}"))
    for f, types in sorted(statistics.operations.items()):
        if f in CLIENT_OPERATIONS:
            rows.append((f, ", ".join(f"{count:,} {kind}" for kind, count in sorted(types.items()))))
    for f, latency in sorted(statistics.latency.items()) if over else ():
        rows.append((f"latency of {f}", _latency(latency)))
    rows += [
        (f"recovery from {fault.fault} at {fault.start_s:.1f} s", pauses(fault))
        for fault in statistics.faults
    ]
    rows += [
        ("redeliveries", f"{statistics.redeliveries:,}"),
        ("messages delivered although their send got no answer", f"{statistics.sends_recovered:,}"),
    ]
    if statistics.total is not None:
        rows.append(("total", total_in_words(statistics.total)))
    return rows


def _latency(latency: Latency) -> str:
    return (
        f"median {latency.p50_ms:.1f} ms, 95th percentile {latency.p95_ms:.1f} ms, "
        f"99th {latency.p99_ms:.1f} ms, most {latency.max_ms:.1f} ms"
    )


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
