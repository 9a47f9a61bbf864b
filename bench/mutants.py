"""How well the search finds each known bug.

How many schedules it needs, how few faults show the bug, and whether the file of it does in a fresh
clone.

Every mutant of tests/mutants is hunted with several seeds. The baseline, in the same minutes: the
sound broker on every schedule that found a bug, which must be clean; where it is accused the hunt
goes on, and that is said. ``python bench/mutants.py [--seeds 5] [--jobs 2] [--mutant NAME ...]
[--shrink] [--record] [--write]``; ``--write`` leaves the lines of mutants that were not hunted as
they are. Exit status 1 if a mutant was not found within its budget or the sound broker was accused.
``--replay`` hunts nothing: it clones what is committed and has ``jepsen-run replay`` judge each
recorded file there, with the bug and without; exit status 1 unless all say what they should.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.clone import clone, replay  # noqa: E402 - as below
from mutants.hunt import BUDGET  # noqa: E402 - the mutants are part of the tests, not of the product
from mutants.mutant import Mutant  # noqa: E402
from mutants.registry import MUTANTS, WAITING  # noqa: E402
from mutants.workshop import Workshop  # noqa: E402

RECORDED = ROOT / "tests" / "mutants" / "recorded"
PAGE = ROOT / "docs" / "mutants.md"
NOT_FOUND = "not found"
WARNED = frozenset(
    {
        "count-never-grows",
        "counts-forgotten-at-a-clean-stop",
        "counts-lost-with-pages",
        "priority-forgotten-after-a-restart",
        "priority-ignored",
        "redelivery-not-flagged-after-a-takeover",
    }
)
"""What these do is a warning under the guarantee of their test, or no more than told, so that
``replay`` cannot call it a finding; tests/mutants looks for it by its name.
"""


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
        """Of all hunts, one without success counting as beyond the budget.

        None if that is the median.
        """
        needed = [answer["schedules"] or float("inf") for answer in self.answers]
        middle = statistics.median_low(needed)
        return None if middle == float("inf") else middle


def hunt(mutant: Mutant, broken: Workshop, sound: Workshop, seed: int, budget: int) -> dict[str, Any]:
    """The first schedule of a seed that finds the mutant and leaves the sound broker clean.

    A schedule on which the sound broker is accused too proves nothing: it is named, counted, and
    the hunt goes on behind it.
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
        if clean is not None and is_accused(mutant, clean):
            accused.append(f"schedule {answer['schedules']}: {clean['anomalies']}")
            first = answer["schedules"]
            if first < budget:
                continue
            answer["schedules"] = None
        return answer | {"seed": seed, "accused": accused, "hunt-s": spent_s}


def is_accused(mutant: Mutant, clean: dict[str, Any]) -> bool:
    """Is the sound broker said to break its guarantee, or to do what the mutant does?"""
    return clean["valid"] is False or bool(mutant.anomalies & clean["anomalies"].keys())


def kept(mutant: Mutant, seeds: int, budget: int, keep: Path) -> tuple[dict[str, Any], ...]:
    """How those hunts ended that ``keep`` has, by seed."""
    files = (keep / f"{mutant.name}.{seed}.{budget}.json" for seed in range(seeds))
    return tuple(json.loads(file.read_bytes()) for file in files if file.exists())


def hunted(mutant: Mutant, seeds: int, budget: int, keep: Path, *, shrink: bool) -> Hunted:
    """Hunt with each seed, but not where ``keep`` already has how that ended."""
    answers = list(kept(mutant, seeds, budget, keep))
    small = [answer for answer in answers if "reproduction" in answer and ("shrunk" in answer or not shrink)]
    if len(answers) == seeds and small:
        return Hunted(mutant, tuple(answers))
    answers = []
    with (
        Workshop((*mutant.arena.clients, *mutant.replacements)) as broken,
        Workshop(mutant.arena.clients) as sound,
    ):
        for seed in range(seeds):
            file = keep / f"{mutant.name}.{seed}.{budget}.json"
            if file.exists():
                answers.append(json.loads(file.read_bytes()))
                continue
            answer = hunt(mutant, broken, sound, seed, budget)
            answers.append(answer)
            file.write_text(json.dumps(answer))
            print(
                f"{mutant.name} seed {seed}: {answer['schedules']} schedules, {answer['hunt-s']:.1f} s, "
                f"{answer['anomalies']}, accused {answer['accused']}",
                file=sys.stderr,
                flush=True,
            )
        finds = [answer for answer in answers if answer["schedules"] is not None]
        if finds:
            best = min(
                finds,
                key=lambda answer: (
                    "shrunk" not in answer,
                    bool(answer["trouble"]),
                    len(answer["schedule"]["faults"]),
                ),
            )
            if shrink and "shrunk" not in best:
                smaller(mutant, best, broken, sound)
            if "reproduction" not in best:
                keep_file(mutant, best, broken)
            (keep / f"{mutant.name}.{best['seed']}.{budget}.json").write_text(json.dumps(best))
    return Hunted(mutant, tuple(answers))


def smaller(mutant: Mutant, answer: dict[str, Any], broken: Workshop, sound: Workshop) -> None:
    """Shrink what was found.

    If the sound broker is accused of the smaller one, the one that was drawn stays.
    """
    began, drawn = time.perf_counter(), answer["schedule"]
    smallest = broken.ask(spec=answer["spec"], schedule=drawn, anomalies=sorted(mutant.anomalies))["schedule"]
    if is_accused(mutant, sound.ask(spec=answer["spec"], schedule=smallest)):
        smallest = drawn
    answer |= {
        "faults": len(drawn["faults"]),
        "shrunk": len(smallest["faults"]),
        "shrink-s": time.perf_counter() - began,
    }


def keep_file(mutant: Mutant, answer: dict[str, Any], broken: Workshop) -> None:
    """What ``jepsen-run replay`` takes, as it was drawn: shrinking is tried on it too."""
    origin = f"mutant {mutant.name}, seed {answer['seed']}, schedule {answer['schedules']}"
    answer["reproduction"] = broken.ask(spec=answer["spec"], schedule=answer["schedule"], origin=origin)


@dataclass(frozen=True, slots=True)
class Line:
    """One mutant's line of the table: the texts of its cells."""

    name: str
    part: str
    models: str
    median: str
    every: str
    sizes: str
    found: str

    @classmethod
    def of(cls, each: Hunted) -> Line:
        """As its hunts ended."""
        names = {name for answer in each.answers if answer["schedules"] for name in answer["anomalies"]}
        return cls(
            each.mutant.name,
            each.mutant.part,
            each.mutant.models,
            NOT_FOUND if each.median is None else f"{each.median:g}",
            ", ".join(str(answer["schedules"] or "-") for answer in each.answers),
            sizes(each),
            ", ".join(sorted(names & each.mutant.anomalies)) or "-",
        )

    @property
    def hunts(self) -> list[str]:
        """How many schedules each seed took, "-" where that was not found."""
        return self.every.split(", ")

    @property
    def shrunk(self) -> list[int]:
        """The faults that were left after shrinking, of each find that was shrunk."""
        return [int(one.rpartition(" ")[2]) for one in self.sizes.split(", ") if one != "-"]


def table(lines: list[Line]) -> list[str]:
    """Markdown, the hardest to find last."""
    head = [
        (
            "| mutant | part | models | schedules, median | each seed | faults, before and after shrinking "
            "| found as |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    ordered = sorted(
        lines, key=lambda one: (one.median == NOT_FOUND, float(one.median.replace(NOT_FOUND, "0")), one.name)
    )
    return [*head, *(f"| {' | '.join(dataclasses.astuple(one))} |" for one in ordered)]


def written(page: str) -> dict[str, Line]:
    """The lines of a page that was written before, of mutants that there are, by name."""
    cells = (line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| "))
    return {each[0]: Line(*each) for each in cells if each[0] in MUTANTS}


def sizes(each: Hunted) -> str:
    """Faults of the recorded schedule as it was drawn, and as it was shrunk."""
    pairs = [
        (answer["faults"], answer["shrunk"]) for answer in each.answers if answer.get("shrunk") is not None
    ]
    return ", ".join(f"{before} to {after}" for before, after in pairs) or "-"


def record(each: Hunted) -> None:
    """Keep a find: the tests replay it."""
    found = [answer for answer in each.answers if answer.get("reproduction")]
    if found:
        best = found[0]
        path = RECORDED / f"{each.mutant.name}.json"
        path.write_text(json.dumps(best["reproduction"], indent=1) + "\n")


def replayed() -> bool:
    """Have each recorded file judged in a fresh clone, by the broken and by the sound project.

    Says whether all was as it should be.
    """
    right = 0
    with tempfile.TemporaryDirectory(prefix="clone-") as directory:
        root = clone(Path(directory) / "project")
        for mutant in MUTANTS.values():
            path = root / RECORDED.relative_to(ROOT) / f"{mutant.name}.json"
            broken = replay(path, (*mutant.arena.clients, *mutant.replacements), root)
            sound = replay(path, mutant.arena.clients, root)
            as_it_should = sound.not_reproduced and (broken.reproduced or mutant.name in WARNED)
            right += as_it_should
            words = [one.words.strip().splitlines()[1:2] for one in (broken, sound)]
            print(
                f"{'' if as_it_should else 'WRONG '}{mutant.name}: broken {words[0]}, sound {words[1]}",
                flush=True,
            )
    print(f"{right} of {len(MUTANTS)} as they should be")
    return right == len(MUTANTS)


def plural(count: float, noun: str) -> str:
    """ "1 fault", "2 faults"."""
    return f"{count:g} {noun if count == 1 else f'{noun}s'}"


def summary(lines: list[Line]) -> str:
    """The medians over all mutants, in a sentence or two."""
    shrunk = [count for line in lines for count in line.shrunk]
    medians = [float(line.median) for line in lines if line.median != NOT_FOUND]
    hunts = [each for line in lines for each in line.hunts]
    said = (
        f"{len(medians)} of {len(lines)} mutants are found by more than half of their hunts, "
        f"{len(hunts) - hunts.count('-')} of {len(hunts)} hunts succeed."
    )
    if medians:
        said += (
            f" Half of the mutants need at most {statistics.median(medians):g} schedules (median of their "
            f"hunts), the hardest {max(medians):g}."
        )
    if shrunk:
        said += (
            f" After shrinking the median find has {plural(statistics.median(shrunk), 'fault')}, "
            f"nine of ten have at most {sorted(shrunk)[math.ceil(0.9 * len(shrunk)) - 1]}, the "
            f"largest {max(shrunk)}."
        )
    return said


def page(lines: list[str], said: str, seeds: int, budget: int) -> str:
    """docs/mutants.md."""
    wrong = [f"- **{mutant.name}** ({mutant.part}): {mutant.wrong}." for mutant in MUTANTS.values()]
    waiting = [
        f"- **{each.name}** ({each.models}): {each.reason}. Until then: {each.meanwhile}." for each in WAITING
    ]
    return "\n".join(
        [
            "# Mutants: does the search find a bug that is known to be there?",
            "",
            (
                "A checker that finds nothing proves nothing until it has been seen to find something. Each "
                "mutant is our broker, or a client of its tests, with one bug put"
            ),
            (
                "in: most are bugs that happened to real brokers. The bug is put into a copy for the time "
                "of a test; the product carries no switch for it. The search gets an"
            ),
            (
                "*arena* (cluster, load, kinds of faults, sometimes a property or two: what a person would "
                "ask for who suspects the part and not the bug), draws"
            ),
            (
                "schedules with what `jepsen-run search` draws with, and knows nothing of the bug. On every "
                "schedule that found a bug the broker without it must be clean."
            ),
            "",
            (
                f"Schedules needed until the first expected anomaly, with at most {plural(seeds, 'seed')} "
                f"(those hunted are listed) and at most {budget} schedules each. `python bench/mutants.py "
                f"--seeds {seeds} --shrink --record --write`"
            ),
            (
                "made this page and the files in `tests/mutants/recorded`; `python bench/mutants.py "
                "--replay` clones the project and has `jepsen-run replay` say of each file"
            ),
            "*reproduced* where the bug is and *not reproduced* where it is not.",
            "",
            said,
            "",
            *lines,
            "",
            "## What is wrong with each",
            "",
            *wrong,
            "",
            "## A warning, not a finding",
            "",
            *[
                f"- **{name}**: not grave under `at-least-once`, so `replay` says *not reproduced*; the "
                "tests look for the anomaly by its name."
                for name in sorted(WARNED)
            ],
            "",
            "## Not built yet",
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
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md: the lines of these")
    parser.add_argument(
        "--replay", action="store_true", help="only replay what is recorded, in a fresh clone"
    )
    parser.add_argument(
        "--keep", type=Path, help="a directory for each hunt's end: a run that was interrupted goes on"
    )
    parser.add_argument("--kept", action="store_true", help="hunt nothing: the table of what --keep has")
    arguments = parser.parse_args()
    if arguments.replay:
        return 0 if replayed() else 1
    keep = arguments.keep or Path(tempfile.mkdtemp(prefix="mutants-"))
    keep.mkdir(parents=True, exist_ok=True)
    chosen = [MUTANTS[name] for name in arguments.mutant or MUTANTS]
    if arguments.kept:
        done = [Hunted(mutant, kept(mutant, arguments.seeds, arguments.budget, keep)) for mutant in chosen]
        return told(done, arguments)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        done = list(
            pool.map(
                lambda mutant: hunted(
                    mutant, arguments.seeds, arguments.budget, keep, shrink=arguments.shrink
                ),
                chosen,
            )
        )
    return told(done, arguments)


def told(done: list[Hunted], arguments: argparse.Namespace) -> int:
    """Print the table, keep what is to be kept; the exit status."""
    lines = [Line.of(each) for each in done]
    print("\n".join(table(lines)))
    print(summary(lines))
    for each in done:
        for words in each.accused:
            print(f"the sound broker was accused: {each.mutant.name}, {words}")
        if arguments.record:
            record(each)
    if arguments.write:
        lines = list((written(PAGE.read_text()) | {line.name: line for line in lines}).values())
        PAGE.write_text(page(table(lines), summary(lines), arguments.seeds, arguments.budget))
    return 1 if any(each.median is None or each.accused for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())
