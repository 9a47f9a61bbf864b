"""How many schedules the search needs to find each known bug, and how few faults show it.

Every mutant of tests/mutants is hunted with several seeds. The baseline, in the same minutes: the sound broker on every schedule that found a bug, which
must be clean; where it is accused the hunt goes on, and that is said. ``python bench/mutants.py [--seeds 5] [--jobs 2] [--mutant NAME ...] [--shrink] [--record] [--write]``; exit status 1 if a mutant was not found within
its budget or the sound broker was accused.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.hunt import BUDGET  # noqa: E402 - the mutants are part of the tests, not of the product
from mutants.mutant import Mutant  # noqa: E402
from mutants.registry import MUTANTS, NOT_FOUND, WAITING  # noqa: E402
from mutants.workshop import Workshop  # noqa: E402


@dataclass(frozen=True, slots=True)
class Hunted:
    """One mutant, and how the hunt of each seed ended."""

    mutant: Mutant
    answers: tuple[dict[str, Any], ...]

    @property
    def accused(self) -> list[str]:
        """What the sound broker was accused of on the way."""
        return [f"seed {answer['seed']}, {words}" for answer in self.answers for words in answer["accused"]]

    @property
    def median(self) -> float | None:
        """Of all hunts, one without success counting as beyond the budget; None if that is the median."""
        needed = [answer["schedules"] or float("inf") for answer in self.answers]
        middle = statistics.median_low(needed)
        return None if middle == float("inf") else middle


def hunt(mutant: Mutant, broken: Workshop, sound: Workshop, seed: int, budget: int) -> dict[str, Any]:
    """The first schedule of a seed that finds the mutant and leaves the sound broker clean.

    A schedule on which the sound broker is accused too proves nothing: it is named, counted, and the hunt goes on behind it.
    """
    anomalies = sorted(mutant.anomalies)
    accused: list[str] = []
    first, spent_s = 0, 0.0
    while True:
        answer = broken.ask(arena=mutant.name, seed=seed, anomalies=anomalies, first=first, budget=budget)
        spent_s += answer["hunt-s"]
        clean = None
        if answer["schedules"] is not None:
            clean = sound.ask(spec=answer["spec"], schedule=answer["schedule"])
        if clean is not None and clean["valid"] is False:
            accused.append(f"schedule {answer['schedules']}: {clean['anomalies']}")
            first = answer["schedules"]
            if first < budget:
                continue
            answer["schedules"] = None
        return answer | {"seed": seed, "accused": accused, "hunt-s": spent_s}


def hunted(mutant: Mutant, seeds: int, budget: int, keep: Path, *, shrink: bool) -> Hunted:
    answers = []
    with (
        Workshop((*mutant.arena.clients, *mutant.replacements)) as broken,
        Workshop(mutant.arena.clients) as sound,
    ):
        for seed in range(seeds):
            kept = keep / f"{mutant.name}.{seed}.{budget}.json"
            if kept.exists():
                answers.append(json.loads(kept.read_bytes()))
                continue
            answer = hunt(mutant, broken, sound, seed, budget)
            if shrink and answer["schedules"] is not None:
                smallest = broken.ask(
                    spec=answer["spec"], schedule=answer["schedule"], anomalies=sorted(mutant.anomalies)
                )
                answer["faults"] = len(answer["schedule"]["faults"])
                answer["shrunk"] = len(smallest["schedule"]["faults"])
            answers.append(answer)
            kept.write_text(json.dumps(answer))
            print(
                f"{mutant.name} seed {seed}: {answer['schedules']} schedules, {answer['hunt-s']:.1f} s, {answer['anomalies']}, accused {answer['accused']}",
                file=sys.stderr,
                flush=True,
            )
    return Hunted(mutant, tuple(answers))


def table(all_hunted: list[Hunted]) -> list[str]:
    """Markdown, the hardest to find last."""
    lines = [
        "| mutant | part | models | schedules, median | each seed | faults, before and after shrinking | found as |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in sorted(all_hunted, key=lambda one: (one.median is None, one.median or 0, one.mutant.name)):
        names = sorted(
            {name for answer in each.answers if answer["schedules"] for name in answer["anomalies"]}
            & each.mutant.anomalies
        )
        every = ", ".join(str(answer["schedules"] or "-") for answer in each.answers)
        median = "not found" if each.median is None else f"{each.median:g}"
        lines.append(
            f"| {each.mutant.name} | {each.mutant.part} | {each.mutant.models} | {median} | {every} | {sizes(each)} | {', '.join(names)} |"
        )
    return lines


def sizes(each: Hunted) -> str:
    """Faults of the recorded schedule as it was drawn, and as it was shrunk."""
    pairs = [
        (answer["faults"], answer["shrunk"]) for answer in each.answers if answer.get("shrunk") is not None
    ]
    return ", ".join(f"{before} to {after}" for before, after in pairs) or "-"


def record(each: Hunted) -> None:
    """Keep the quickest find: the tests replay it."""
    found = [answer for answer in each.answers if answer["schedules"] is not None]
    if found:
        best = min(found, key=lambda answer: (answer["schedules"], answer["real-s"]))
        kept = {key: best[key] for key in ("seed", "schedules", "anomalies", "spec", "schedule")}
        path = ROOT / "tests" / "mutants" / "recorded" / f"{each.mutant.name}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")


def page(lines: list[str], seeds: int, budget: int) -> str:
    """docs/mutants.md."""
    wrong = [f"- **{mutant.name}** ({mutant.part}): {mutant.wrong}." for mutant in MUTANTS.values()]
    waiting = [
        f"- **{each.name}** ({each.models}): {each.reason}. Until then: {each.meanwhile}." for each in WAITING
    ]
    return "\n".join(
        [
            "# Mutants: does the search find a bug that is known to be there?",
            "",
            "A checker that finds nothing proves nothing until it has been seen to find something. Each mutant is our broker, or a client of its tests, with one bug put",
            "in: most are bugs that happened to real brokers. The bug is put into a copy for the time of a test; the product carries no switch for it. The search gets an",
            "*arena* (cluster, load, kinds of faults), draws schedules at random, and knows nothing of the bug. On every schedule that found a bug the broker without it",
            "must be clean.",
            "",
            f"Schedules needed until the first expected anomaly, with {seeds} seeds and at most {budget} schedules each; `python bench/mutants.py --write` made this page.",
            "",
            *lines,
            "",
            "## What is wrong with each",
            "",
            *wrong,
            "",
            "## Not found, and why",
            "",
            *[f"- **{name}**: {reason}." for name, reason in NOT_FOUND.items()],
            "",
            "## Waiting for their feature",
            "",
            *waiting,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--mutant", action="append", choices=sorted(MUTANTS), help="only these")
    parser.add_argument("--shrink", action="store_true", help="say how few faults show each bug")
    parser.add_argument("--record", action="store_true", help="keep the quickest find for the tests")
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md")
    parser.add_argument(
        "--keep", type=Path, help="a directory for each hunt's end: a run that was interrupted goes on"
    )
    arguments = parser.parse_args()
    keep = arguments.keep or Path(tempfile.mkdtemp(prefix="mutants-"))
    keep.mkdir(parents=True, exist_ok=True)
    chosen = [MUTANTS[name] for name in arguments.mutant or MUTANTS]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        done = list(
            pool.map(
                lambda mutant: hunted(
                    mutant, arguments.seeds, arguments.budget, keep, shrink=arguments.shrink
                ),
                chosen,
            )
        )
    lines = table(done)
    print("\n".join(lines))
    for each in done:
        for words in each.accused:
            print(f"the sound broker was accused: {each.mutant.name}, {words}")
        if arguments.record:
            record(each)
    if arguments.write:
        (ROOT / "docs" / "mutants.md").write_text(page(lines, arguments.seeds, arguments.budget))
    return 1 if any(each.median is None or each.accused for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())
