"""The histories by which ``bench.rule_mutants`` judges: small ones of every kind, by promises.

Judging on columns costs much for each call and little for each history, so histories of the same
promises are judged together. The order is that in which they tell most for their time.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "checkers"))

from damaged import DAMAGE, DAMAGE_BESIDE, damage
from innocent_cluster import World, patience_with
from innocent_cluster.misdeeds import MISDEEDS
from innocent_cluster.timeline import MS, EndlessWorldError
from test_verdict_cases import EXPECTED, options_of_case, rows_of

from bench.agreement import IMPATIENT, edit, numbered
from checkers.verdict import CheckOptions

Row = dict[str, Any]

DRAWN: Final = 150
"""A test that judges more histories than these draws them."""
OF_DRAWN: Final = 12
"""So many of such histories are taken, and all that were written by hand."""
SMALL: Final = 300
"""Only histories of fewer rows are taken."""
LEFT_OUT: Final = ("test_breakage", "test_agreement", "test_recall")
"""Tests whose histories break what rules take for granted, or are drawn here, too."""
FEW: Final = 10
"""Where fewer are judged under some options, those with the same promises are judged together."""
ALONE: Final = 3
"""Of so many kinds of options of tests some histories are judged alone, too."""
OF_ALONE: Final = 25
RARE: Final = 5
"""Where tests judge still fewer with the same promises, those are left out."""
HABITS: Final[Sequence[Mapping[str, Any]]] = (
    {"nack": "requeue", "attempts": "refused", "most_attempts": 3, "marks": "always", "ack_wait": 0,
     "counts_attempts_durably": True, "keeps_expired": True, "redelivery": 0, "pairs": 1, "page": None},
    {"nack": "requeue", "attempts": "given back", "most_attempts": 2, "marks": "always", "ack_wait": 0,
     "counts_attempts_durably": False, "keeps_expired": False, "redelivery": 700 * MS, "pairs": 2,
     "page": None},
    {"nack": "dead-letter", "attempts": "refused", "most_attempts": 1, "marks": "same-process",
     "ack_wait": 800 * MS, "tells_time_outs": False, "counts_attempts_durably": False,
     "keeps_expired": False, "redelivery": 0, "pairs": 1, "page": None},
    {"nack": "consume", "attempts": "given back", "most_attempts": -1, "marks": "never",
     "ack_wait": 800 * MS, "tells_time_outs": True, "counts_attempts_durably": True,
     "keeps_expired": True, "redelivery": 0, "pairs": 2, "page": None},
)  # fmt: skip
"""What the brokers of the innocent cluster promise, in turn; all else is drawn from the seed."""
OF_HABITS: Final = 10
"""So many histories are made of each."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Histories that are judged under the same options: together, or each ``alone``.

    Why alone: what goes wrong at the ends of columns shows in the first or last place of a table.
    """

    name: str
    histories: Sequence[Sequence[Row]]
    options: CheckOptions
    slices: int
    alone: bool = False


def corpus(recorded: Path | None) -> list[Chunk]:
    chunks = [*_chunks("cases", ((options_of_case(file), rows_of(file)) for file in sorted(EXPECTED)))]
    if recorded is not None:
        chunks += _chunks("tests", judged_by_tests(recorded))
    chunks += _chunks("cluster", of_the_cluster())
    sliced = Chunk("cases in slices", chunks[0].histories, chunks[0].options, 4)
    some = [chunk for chunk in chunks if chunk.name == "tests"][:ALONE]
    alone = [
        Chunk("alone", _spread(chunk.histories, OF_ALONE), chunk.options, 1, alone=True) for chunk in some
    ]
    return [*chunks, sliced, *alone]


def _spread(histories: Sequence[Sequence[Row]], count: int) -> Sequence[Sequence[Row]]:
    """Return about so many of some histories, from all over them."""
    return histories[:: max(1, len(histories) // count)]


def _chunks(name: str, histories: Iterable[tuple[CheckOptions, Sequence[Row]]]) -> Iterator[Chunk]:
    """One chunk for each kind of options, the largest first."""
    some = list(histories)
    common = Counter(map(_encoded, (options for options, _ in some)))
    kinds: dict[bytes, list[Sequence[Row]]] = defaultdict(list)
    for options, rows in some:
        near = msgspec.structs.replace(IMPATIENT, broker=options.broker)
        kinds[_encoded(options if common[_encoded(options)] >= FEW else near)].append(rows)
    for kind, rows in sorted(kinds.items(), key=lambda one: -len(one[1])):
        if name == "tests" and len(rows) < RARE:
            continue
        options = msgspec.json.decode(kind, type=CheckOptions)
        yield Chunk(name, rows, options, 1)


def _encoded(options: CheckOptions) -> bytes:
    return msgspec.json.encode(options)


def judged_by_tests(recorded: Path) -> Iterator[tuple[CheckOptions, Sequence[Row]]]:
    """Small histories that ``bench.recorder`` recorded."""
    by_test: dict[str, list[tuple[CheckOptions, Sequence[Row]]]] = defaultdict(list)
    for line in recorded.read_text().splitlines():
        one = json.loads(line)
        options = msgspec.convert(one["options"], CheckOptions)
        is_wanted = not any(name in one["test"] for name in LEFT_OUT)
        if is_wanted and len(one["rows"]) < SMALL and not options.not_judged and options.trouble is None:
            by_test[one["test"].partition("[")[0]].append((options, one["rows"]))
    for some in by_test.values():
        yield from some if len(some) <= DRAWN else _spread(some, OF_DRAWN)


def of_the_cluster() -> Iterator[tuple[CheckOptions, Sequence[Row]]]:
    """Histories of the innocent cluster, whole, damaged, and with a misdeed."""
    for number, habits in enumerate(HABITS):
        chance = random.Random(number)
        for at in range(OF_HABITS):
            misdeed = chance.choice(sorted(MISDEEDS)) if at % 3 == 2 else None
            with contextlib.suppress(EndlessWorldError):
                world = World(number * OF_HABITS + at, misdeed, habits)
                rows = world.run()
                if at % 3 == 1:
                    edits = [edit(chance) for _ in range(3)]
                    rows = numbered(damage(rows, edits, {**DAMAGE, **DAMAGE_BESIDE}))
                yield patience_with(world.habits), rows
