"""Makes what the README shows of a run: the lines it prints, and docs/first-run.svg.

``python docs/picture.py`` makes that run in the simulation, writes what it printed into the README, and draws the same above the
message-sequence picture of its first finding. A test makes the run again and compares.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

from harness.report import palette

DOCS: Final = Path(__file__).parent
FILE: Final = DOCS / "first-run.svg"
README: Final = DOCS.parent / "README.md"
COMMAND: Final = (
    "jepsen-run --environment simulation --policy replication --pairs 1 --nemesis partition --shape pair-link --time-limit 15 --seed 1"
)
"""A line of the README. One seed gives one history, so it prints the same until the broker or the checkers change."""
BLOCK: Final = re.compile(r"(?<=--seed 1\n```\n\n```\n).*?(?=\n```\n)", re.DOTALL)
"""What the README shows of it, behind the command."""

WIDTH: Final = 1000
_MARGIN: Final = 18
_LINE: Final = 18
_LETTERS: Final = 80
"""The width of the terminal."""
_LETTER: Final = 17
"""The size of a letter of the terminal."""
_TERMINAL_LINE: Final = 23
_TIME: Final = 64
_LANES: Final = 470
_WORDS: Final = 54
"""Letters of a line of the words beside a step."""
_ROW: Final = 40

_STEP: Final = re.compile(
    r'<li class="(?P<kind>names|step witness|step|pause)"><div class="when">(?P<when>[^<]*)</div><div class="picture"[^>]*>'
    r'(?P<picture><svg .*?</svg>)</div>\s*<div class="say"[^>]*>(?P<say>[^<]*)',
    re.DOTALL,
)


class Step(NamedTuple):
    """One row of the message-sequence picture of a report."""

    kind: str
    when: str
    picture: str
    say: str


def run(directory: Path) -> str:
    """Make the run of the README below a directory, and return what it printed."""
    command = [sys.executable, "-m", "harness.commands.start", *shlex.split(COMMAND)[1:]]
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent), "COLUMNS": str(_LETTERS)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 1:
        sys.exit(f"{COMMAND}: ended with {done.returncode} instead of 1 (invalid): {done.stderr}")
    return done.stdout


def shown(printed: str) -> list[str]:
    """Return the lines of a run that the README shows: from the fault on, the verdict, its first finding."""
    lines = printed.splitlines()
    fault, verdict, finding = (
        next(n for n, line in enumerate(lines) if re.match(start, line)) for start in (r" .* fault ", "INVALID", "  split-brain")
    )
    rest = next(n for n, line in enumerate(lines[finding:], finding) if line.startswith("      #"))
    return ["    ...", *lines[fault : fault + 5], "    ...", lines[verdict], "    ...", *lines[finding:rest]]


def story(printed: str) -> list[str]:
    """Return the lines that tell the story of the first finding."""
    lines = printed.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("Story"))
    return lines[begin : lines.index("", begin)]


def steps(report: str) -> list[Step]:
    """Return the rows of the first message-sequence picture of a report."""
    begin = report.index('<ol class="sequence">')
    found = _STEP.finditer(report, begin, report.index("</ol>", begin))
    return [Step(one["kind"], one["when"], palette.resolve_light(one["picture"]), html.unescape(one["say"]).strip()) for one in found]


def _text(x: int, y: int, words: str, *, colour: str = "#1f2328", family: str = "", bold: bool = False) -> str:
    more = f' font-family="{family}"' if family else ""
    more += ' font-weight="700"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" xml:space="preserve"{more}>{html.escape(words)}</text>'


def _terminal(printed: str) -> tuple[list[str], int]:
    """Return the elements of the terminal, and how high it is."""
    wrapped = textwrap.wrap(COMMAND, _LETTERS - 4, break_on_hyphens=False)
    typed = [f"{'$ ' if n == 0 else '    '}{line}{' ' + chr(92) if line != wrapped[-1] else ''}" for n, line in enumerate(wrapped)]
    lines = [*typed, *shown(printed), "", *story(printed)]
    height = _TERMINAL_LINE * len(lines) + 2 * _MARGIN
    found = [f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>', f'<g font-size="{_LETTER}">']
    for n, line in enumerate(lines):
        bold = line.startswith("INVALID")
        colour = "#ff7b72" if bold else "#8b949e" if line.startswith("    ...") else "#e6edf3"
        at = _MARGIN + _TERMINAL_LINE * n + _LETTER
        found.append(_text(_MARGIN, at, line, colour=colour, family="ui-monospace, monospace", bold=bold))
    return [*found, "</g>"], height


def _sequence(rows: list[Step], top: int) -> tuple[list[str], int]:
    """Return the elements of the message-sequence picture below ``top``, and where it ends."""
    found = []
    at = top
    for row in rows:
        words = textwrap.wrap(row.say, _WORDS)
        height = 22 if row.kind == "pause" else max(_ROW, _LINE * len(words) + 12)
        place = f'<svg x="{_MARGIN + _TIME}" y="{at}" width="{_LANES}" height="{height}"'
        found.append(re.sub(r'^<svg xmlns="[^"]*" width="100%" height="100%" style="[^"]*"', place, row.picture))
        colour = "#cf222e" if row.kind == "step witness" else "#57606a" if row.kind == "pause" else "#1f2328"
        found.append(_text(_MARGIN, at + 27, html.unescape(row.when), colour=colour, family="ui-monospace, monospace") if row.kind != "pause" else "")
        left = _MARGIN + _TIME + _LANES + 14
        found += [_text(left, at + 17 + _LINE * n, line, colour=colour) for n, line in enumerate(words)]
        at += height
    return found, at


def picture(printed: str, report: str) -> str:
    """Return the picture: what a run printed, above the first message-sequence picture of its report."""
    terminal, top = _terminal(printed)
    title = "The same in report.html: time runs downwards, arrows are messages, a broker's bar has the colour of its role"
    sequence, bottom = _sequence(steps(report), top + 48)
    height = bottom + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{html.escape(COMMAND)}</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
            *terminal,
            _text(_MARGIN, top + 30, title, colour="#57606a"),
            *(element for element in sequence if element),
            "</svg>",
            "",
        ]
    )


def made() -> tuple[str, str]:
    """Make the run; return the README with what it printed, and its picture."""
    with tempfile.TemporaryDirectory() as directory:
        printed = run(Path(directory))
        report = (Path(directory) / "store" / "latest" / "report.html").read_text(encoding="utf-8")
    text, count = BLOCK.subn("\n".join(shown(printed)).replace("\\", r"\\"), README.read_text(encoding="utf-8"))
    if count != 1 or COMMAND not in text:
        sys.exit(f"{README}: shows no lines behind {COMMAND}")
    return text, picture(printed, report)


def main() -> None:
    """Write the README and the picture."""
    readme, drawn = made()
    README.write_text(readme, encoding="utf-8")
    FILE.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
