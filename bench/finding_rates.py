"""How often the line of a finding shows it, on each release that is given.

    python -m bench.finding_rates artemis-1 artemis-5 --system-home A --system-home B --runs 10

A finding is a folder of docs/findings with a spec; its line is run as its page gives it, with the
seeds 1 to ``--runs``. ``--busy`` programs compute meanwhile: a finding that depends on a race may
come more or less often on a busy machine. Homes of another system than the finding's are named and
left out.

Each run is a line on standard output as soon as it has ended; at the end there is a table in
Markdown, a row for each finding and release: in how many runs each grave finding was seen and how
many cases of it there were, and the load of the machine (average over a minute) when a run began.
``--store`` keeps the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.history import store as stores
from harness.history.spec import load
from harness.systems import given, registry

FINDINGS = Path(__file__).parents[1] / "docs" / "findings"


@dataclass(frozen=True)
class Run:
    """A run: its verdict in a word, the grave findings with their cases, the load before it."""

    verdict: str
    cases: Mapping[str, int]
    load: float


def run(finding: Path, home: str, seed: int, store: Path) -> Run:
    """Run the line of a finding once, as a program of its own."""
    load = os.getloadavg()[0]
    schedule = ["--schedule", str(finding)] if (finding / stores.SCHEDULE).exists() else []
    words = ["--spec", str(finding), *schedule, "--seed", str(seed), "--system-home", home]
    done = subprocess.run(
        [sys.executable, "-m", "harness.commands.start", *words, "--store", str(store), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    try:
        verdict: dict[str, Any] = json.loads(done.stdout)["verdict"] or {}
    except (ValueError, KeyError):
        return Run(f"exit status {done.returncode}", {}, load)
    word = {True: "VALID", False: "INVALID"}.get(verdict.get("valid"), "UNKNOWN")
    grave = [each for each in verdict.get("findings", ()) if each["severity"] == "grave"]
    return Run(word, {each["name"]: each["count"] for each in grave}, load)


def row(name: str, release: str, runs: Sequence[Run]) -> str:
    """Return the row of a finding on a release."""
    words = [each.verdict for each in runs]
    verdicts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    cases = defaultdict(list)
    for each in runs:
        for kind, count in each.cases.items():
            cases[kind].append(count)
    seen = sorted(cases.items(), key=lambda item: -len(item[1]))
    found = ", ".join(f"{kind} in {len(counts)} ({_span(counts)})" for kind, counts in seen)
    loads = sorted(each.load for each in runs)
    columns = (
        name,
        release,
        str(len(runs)),
        verdicts,
        found or "nothing",
        f"{loads[0]:.1f} to {loads[-1]:.1f}",
    )
    return f"| {' | '.join(columns)} |"


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Let so many programs compute while the body runs."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for each in made:
            each.kill()
            each.wait()


def main() -> None:
    """Run what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("findings", nargs="+", help="folders of docs/findings with a spec")
    parser.add_argument("--system-home", action="append", required=True, dest="homes", metavar="PATH")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=0, help="programs that compute meanwhile")
    parser.add_argument("--store", type=Path)
    asked = parser.parse_args()
    store = asked.store or Path(tempfile.mkdtemp(prefix="finding-rates-"))
    rows = []
    with busy(asked.busy):
        for name in asked.findings:
            finding = FINDINGS / name
            if not (finding / stores.SPEC).exists():
                sys.exit(
                    f"{finding}: no {stores.SPEC}; a finding that is shown by a script has no rate of runs"
                )
            system = registry.get(load(finding / stores.SPEC).system)
            for home in asked.homes:
                with given.using(home):
                    if missing := system.missing():
                        print(f"{name}: {missing.partition('. To get it')[0]}", file=sys.stderr)
                        continue
                    release = system.version()
                runs = []
                for seed in range(1, asked.runs + 1):
                    runs.append(run(finding, home, seed, store))
                    told = f"{runs[-1].verdict} {dict(runs[-1].cases)} load {runs[-1].load:.1f}"
                    print(f"{name} {release} seed {seed}: {told}", flush=True)
                rows.append(row(name, release, runs))
    print(
        "\n| finding | release | runs | verdicts | grave findings (cases) | load |\n|---|---|---|---|---|---|"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
