"""Whether both implementations of the checks find what a guilty broker does.

    python -m bench.recall --planted 100

Each misdeed of ``tests/checkers/innocent_cluster/misdeeds.py`` is planted in the simulated brokers
of so many histories, one after the other. For each it prints how many histories have it, and in how
many the columns and the reference find it. A seed in which the misdeed did not come about, or came
about so that nobody can see it, does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "checkers"))

from innocent_cluster import World, patience_with
from innocent_cluster.misdeeds import MISDEEDS

from bench.agreement import by_reference, on_columns
from checkers.instance import Instance

SEEDS_FOR_EACH: Final = 60
"""How many seeds are tried, at most, for each history that is wanted."""


@dataclasses.dataclass
class Recall:
    """How often a misdeed was planted and found; ``missed`` has a few seeds of each side."""

    planted: int = 0
    columns: int = 0
    reference: int = 0
    missed: list[int] = dataclasses.field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether both found every one."""
        return self.planted == self.columns == self.reference


def recall_of(name: str, wanted: int, *, first: int = 0) -> Recall:
    """Plant a misdeed in as many histories as are wanted, and look for it."""
    recall = Recall()
    for seed in range(first, first + wanted * SEEDS_FOR_EACH):
        world = World(seed, name)
        rows = world.run()
        if not world.culprit.is_guilty:
            continue
        options = patience_with(world.habits)
        in_columns = is_found(name, on_columns([rows], options, 1)[0])
        in_reference = is_found(name, by_reference(rows, options))
        recall.planted += 1
        recall.columns += in_columns
        recall.reference += in_reference
        if not (in_columns and in_reference):
            recall.missed.append(seed)
        if recall.planted == wanted:
            break
    return recall


def is_found(name: str, instances: set[Instance]) -> bool:
    return any(one.name in MISDEEDS[name].expected for one in instances)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant misdeeds in brokers, and look for them.")
    parser.add_argument("--planted", type=int, default=20, metavar="COUNT")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    parser.add_argument("--misdeed", action="append", choices=sorted(MISDEEDS), metavar="NAME")
    given = parser.parse_args(arguments)
    print(f"{'planted':>8} {'columns':>8} {'reference':>9}  misdeed")
    is_complete = True
    for name in given.misdeed or MISDEEDS:
        recall = recall_of(name, given.planted, first=given.first)
        is_complete = is_complete and recall.is_complete
        missed = f" (missed: seeds {', '.join(map(str, recall.missed[:8]))})" if recall.missed else ""
        print(f"{recall.planted:>8} {recall.columns:>8} {recall.reference:>9}  {name}{missed}", flush=True)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
