"""The sections of the page of claims about the rows of other systems.

They are made from the files of results alone, without running anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from harness.claims.scenarios.registry import chosen
from harness.claims.systems import registry, results
from harness.claims.systems.results import AS_EXPECTED, UNKNOWN, Results, RowRun
from harness.claims.systems.row import Departure, SystemClaims, SystemRow
from harness.systems import registry as systems

HEADING: Final = "## With other brokers"

DIRECTORY: Final = "results"
"""The directory, next to the page, of the files of results, ``claims-SYSTEM.json``."""


def sections(page: Path, before: Sequence[str]) -> list[str]:
    """Return the lines after the table of our own broker; none if the page has no results.

    ``before`` are the lines up to here.
    """
    lines: list[str] = []
    for file in sorted((page.parent / DIRECTORY).glob("claims-*.json")):
        recorded = results.load(file)
        claims = registry.of(recorded.system)
        if claims is not None:
            lines += ["", *section(claims, recorded, f"{DIRECTORY}/{file.name}")]
            lines += comparison(claims, recorded, before)
    return ["", HEADING, "", *_ABOUT, *lines] if lines else []


_ABOUT: Final = (
    "These are the same rows with other brokers: `jepsen-run claims RP SS --system NAME`. Times and",
    "properties fit the brokers. If the brokers are known to differ from the documents, the row departs: it",
    "expects what the brokers do, and names the reason. A row is unknown if all its runs were unknown.",
)


def section(claims: SystemClaims, recorded: Results, source: str) -> list[str]:
    """Return the table of one system."""
    allowed: dict[str, list[str]] = {}
    for name, departure in claims.anyway.items():
        allowed.setdefault(_why(departure), []).append(name)
    lines = [
        f"### {recorded.system}",
        "",
        f"Measured, run by run in [{source}]({source}).",
        "",
        *(f"- Every row allows {', '.join(names)}: {why}." for why, names in allowed.items()),
        "",
        "| scenario | claim | expected of these brokers | found | as expected | verdict | release, day |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in claims.rows:
        runs = recorded.of(row.scenario)
        cells = (
            row.scenario.id,
            row.scenario.claim,
            row.scenario.expected,
            results.findings_in_words(runs) or "-",
            _share(runs),
            verdict(row, runs, claims.anyway),
            _latest_release(runs),
        )
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    tested = systems.get(recorded.system)
    why_not: dict[str, list[str]] = {}
    for candidate in chosen([]):
        if claims.row(candidate.id) is None:
            why_not.setdefault(claims.why_not(candidate, tested), []).append(candidate.id)
    lines += ["", "Not run:", ""]
    lines += [f"- {why}: {', '.join(names)}" for why, names in why_not.items()]
    return lines


def comparison(claims: SystemClaims, recorded: Results, before: Sequence[str]) -> list[str]:
    """Return the table in which a system's verdicts stand beside those of our own broker.

    The latter are read from ``before``, the lines of the page with the table of our own broker.
    """
    if not claims.compared:
        return []
    own_rows = {cells[0]: cells for line in before if len(cells := _cells_of(line)) == _OWN_COLUMNS}
    tested = systems.get(recorded.system)
    lines = [
        "",
        f"### {', '.join(claims.compared)}: own beside {recorded.system}",
        "",
        f"| scenario | claim | own | {recorded.system} |",
        "|---|---|---|---|",
    ]
    for candidate in chosen(claims.compared):
        row = claims.row(candidate.id)
        theirs = f"not run: {claims.why_not(candidate, tested)}"
        if row is not None:
            runs = recorded.of(row.scenario)
            theirs = verdict(row, runs, claims.anyway)
            if runs:
                theirs += f"; {runs[-1].version}, {_share(runs)}"
        pair = (candidate.id, candidate.claim, _own_verdict(own_rows.get(candidate.id)), theirs)
        lines.append(f"| {' | '.join(map(_cell, pair))} |")
    return lines


_OWN_COLUMNS: Final = 7
"""The columns of the table of our own broker: the fifth is what was found, the sixth how often."""


def _cells_of(line: str) -> list[str]:
    """Return the cells of a line of a table; none of another line."""
    if not line.startswith("| "):
        return []
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _own_verdict(cells: Sequence[str] | None) -> str:
    """Return in words what the table of our own broker says of a row."""
    if cells is None:
        return "not run"
    good, _, runs = cells[5].partition("/")
    if good != runs:
        return f"not as expected: found {cells[4]}; {cells[5]} runs as expected"
    return f"as the documents say; {cells[5]}"


def verdict(row: SystemRow, runs: Sequence[RowRun], anyway: Collection[str] = ()) -> str:
    """Return in words what the runs say of the row; ``anyway`` as in ``SystemClaims``."""
    decided = [run for run in runs if run.came != UNKNOWN]
    if not decided:
        why = next((run.words for run in runs), "not run as it is")
        return f"unknown: {why}"
    wrong = [run for run in decided if run.came != AS_EXPECTED]
    if wrong:
        return f"not as expected: {wrong[-1].words}"
    if row.departure is None:
        besides = [name for name in anyway if any(name in run.found for run in decided)]
        return f"as the documents say{', but for ' if besides else ''}{', '.join(besides)}"
    return f"departs: {_why(row.departure)}"


def _why(departure: Departure) -> str:
    page = departure.page
    return departure.reason + (f" ([{Path(page).parent.name}]({page}))" if page else "")


def _share(runs: Sequence[RowRun]) -> str:
    """Return how many of the runs were as expected: "2/3"."""
    return f"{sum(run.came == AS_EXPECTED for run in runs)}/{len(runs)}"


def _latest_release(runs: Sequence[RowRun]) -> str:
    return f"{runs[-1].version}, {runs[-1].date}" if runs else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def renew(page: Path) -> None:
    """Write the page with the present sections after its other contents."""
    kept_text = page.read_text(encoding="utf-8").partition(f"\n{HEADING}\n")[0].rstrip("\n")
    temporary = page.with_name(f".{page.name}.new")
    temporary.write_text(
        "\n".join([kept_text, *sections(page, kept_text.splitlines())]) + "\n", encoding="utf-8"
    )
    temporary.replace(page)
