"""Whether both implementations of the checks say the same of many damaged histories.

And whether neither accuses a broker that did nothing wrong.

    python -m bench.agreement --histories 100000            # seeds 0 to 99,999
    python -m bench.agreement --from 40000 --histories 2000

History n is made from seed n alone: of one broker (``tests/checkers/innocent.py``), or of a cluster
with fail-overs and faults, whose clients do all that a search can draw
(``tests/checkers/innocent_cluster``). Of most of them rows are then cut out, put elsewhere and
changed (``damaged.py``); of the others neither implementation may find anything, under what those
brokers promise. They are judged on
columns as Spark's tasks judge them, here, without a JVM, many at once, told apart by ``run``, in
several parts, whole or in slices (each fiftieth lot one by one, without that column); and each by
the reference.

Where the two differ the histories of the lot are left out one by one, then rows, for as long as
they still do; what is left is printed as rows, with the options, and the exit status is 1. The
campaign goes on behind it, so that one night shows all.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "checkers"))

from damaged import DAMAGE, DAMAGE_BESIDE, correct, damage
from innocent import ATTEMPTS, innocent
from innocent_cluster import innocent as innocent_cluster
from innocent_cluster.timeline import EndlessWorldError
from test_differential import BROKERS

from checkers import judge, reference
from checkers.arrow_schema import SCHEMA
from checkers.decide import undecidable
from checkers.excuses import Excuses, Window
from checkers.facts import gather
from checkers.instance import Instance
from checkers.reference_liveness import PlainHunger, Unavailability, hungers, unavailabilities
from checkers.schema import ALWAYS, COLUMNS, TOPIC
from checkers.source import WITH_MESSAGES, HistorySource, Result, Work, chosen
from checkers.verdict import CheckOptions, Promises

Row = dict[str, Any]
One = TypeVar("One")
PlainWindow = Unavailability | PlainHunger

LOT: Final = 250
TOLD: Final = 3
"""So many accusations of a rule are shown with their rows."""
PARTS: Final = 3
INNOCENT: Final = Promises(fifo=True, delivery_attempts=ATTEMPTS, most_attempts=ATTEMPTS)
"""What the innocent broker promises."""
IMPATIENT: Final = CheckOptions(unavailable_bound_s=2.0, recovery_bound_s=1.0)
PATIENT: Final = CheckOptions(unavailable_bound_s=10_000, recovery_bound_s=10_000, broker=INNOCENT)
PROMISES: Final = (
    *BROKERS,
    Promises(fifo=True),
    Promises(fifo=True, durable_acks=False),
    Promises(ack_wait_s=0.01),
    Promises(ack_wait_s=0.02, refuses_stale_acks=False, answers_in_order=False),
    Promises(ack_wait_s=0.02, refuses_stale_acks=False, marks_redeliveries="never", attempts="given back"),
)
_EDITS: Final = {**DAMAGE, **DAMAGE_BESIDE}
_EMPTY: Final = dict.fromkeys(COLUMNS)
_SCHEMA: Final = pa.schema([pa.field("run", pa.int32()), *SCHEMA])


# ---------------------------------------------------------------------------------------- histories


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A history; ``innocent``: how to judge it where nothing in it was damaged, else None."""

    seed: int
    rows: list[Row]
    innocent: CheckOptions | None


def history(seed: int) -> Made:
    """The history of a seed."""
    chance = random.Random(seed)
    edits = [] if seed % 8 in (0, 5) else [edit(chance) for _ in range(chance.randint(1, 6))]
    options = PATIENT
    if seed % 4 == 1:
        rows, options = innocent_cluster(seed)
    elif seed % 4 == 3:
        rows = correct(seed, transactions=bool(seed % 8 == 3))
        if chance.random() < 0.3:
            edits.insert(0, ("commit_later", seed))
    else:
        rows = innocent(seed)
    rows = [row for row in damage(rows, edits, _EDITS) if not is_nameless(row)]
    return Made(seed, numbered(rows), None if edits else options)


def is_nameless(row: Row) -> bool:
    """Return whether a row is of a topic and names no subscription, as no history has it."""
    consuming = row["f"] not in ("send", "browse") and row.get("queue", "").startswith(TOPIC)
    return consuming and row.get("subscription") is None


def edit(chance: random.Random) -> tuple[str, int]:
    names = DAMAGE_BESIDE if chance.random() < 0.3 else DAMAGE
    return chance.choice(sorted(names)), chance.randrange(10_000)


def options_of(lot: int) -> CheckOptions:
    """What was promised in a lot; the first lots are of the common case."""
    guarantee = "at-least-once" if lot % 10 else "at-most-once"
    return msgspec.structs.replace(IMPATIENT, broker=PROMISES[lot % len(PROMISES)], guarantee=guarantee)


# ------------------------------------------------------------------------------------------ columns


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Whole groups of many runs, read at once or in slices by message."""

    number: int
    table: pa.Table
    slices_: int

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """One table for each slice."""
        present = [name for name in columns if name in self.table.column_names]
        if self.slices_ > 1 and len(self.table):  # as of files, of which a column without a value is not read
            kept = (*ALWAYS, "subscription")
            empty = {name for name in present if self.table[name].null_count == len(self.table)}
            present = [name for name in present if name in kept or name not in empty]
        table = self.table.select([*present, *(["run"] if "run" in self.table.column_names else [])])
        if self.slices_ == 1 or "message" not in present:
            yield table
            return
        which = table["message"].fill_null(0).to_numpy() % self.slices_
        for number in range(self.slices_):
            yield table.filter(pa.array(which == number))


class Runs(HistorySource):
    """Many histories in this process."""

    def __init__(
        self, histories: Sequence[Sequence[Row]], slices: int, *, named: bool = True, parts: int = PARTS
    ) -> None:
        rows = [{**row, "run": run} for run, some in enumerate(histories) for row in some]
        tables: list[list[Row]] = [[] for _ in range(parts + 1)]
        for row in rows:
            tables[part_of(row, parts)].append(row)
        made = [pa.Table.from_pylist(some, schema=_SCHEMA) for some in tables]
        if not named:
            made = [table.drop_columns("run") for table in made]
        last = {run: max((row["time"] for row in some), default=0) for run, some in enumerate(histories)}
        super().__init__(made[-1], last, len(rows))
        self._parts = tuple(Part(n, table, slices) for n, table in enumerate(made[:-1]))

    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """One part after the other."""
        return {part.number: work(part) for part in chosen(self._parts, parts)}


def part_of(row: Mapping[str, Any], parts: int) -> int:
    """As rows are exchanged: by queue and group, without a group by message; control rows last."""
    if row["f"] not in WITH_MESSAGES or row.get("queue") is None:
        return parts
    key = f"{row['queue']} {row.get('group', row.get('message'))}"
    return zlib.crc32(key.encode()) % parts


def on_columns(
    histories: Sequence[Sequence[Row]],
    options: CheckOptions,
    slices: int,
    *,
    named: bool = True,
    parts: int = PARTS,
    excuses: bool = False,
) -> list[set[Instance]]:
    """What is found in each of many; with ``excuses`` also which windows faults explain."""
    patient = msgspec.structs.replace(options, examples=10**9)
    check_run = judge.CheckRun(Runs(histories, slices, named=named, parts=parts), patient)
    case = judge.examine(check_run)
    if case is None or check_run.unknown:
        raise RuntimeError(f"a rule failed: {check_run.unknown}")
    return found_in(case, options, excuses=excuses)


def found_in(case: judge.Examination, options: CheckOptions, *, excuses: bool = True) -> list[set[Instance]]:
    """What is found in each run; with ``excuses`` also which windows faults explain."""
    windows: list[set[Instance]] = [set() for _ in case.facts_by_run]
    for name, some in (("unavailable", case.pauses), ("starved", case.hungers)) if excuses else ():
        for window in some:
            known = case.facts_by_run[window.run].excuses(options)
            windows[window.run].add(explanation(name, window.index, window, known))
    return [
        windows[run]
        | {
            dataclasses.replace(one, run=0)
            for name, found in case.found.get(run, {}).items()
            for one in found.first
            if name[0] != "~" and name not in undecidable(case.facts_by_run[run])
        }
        for run in range(len(case.facts_by_run))
    ]


def by_reference(rows: Sequence[Row], options: CheckOptions, *, excuses: bool = False) -> set[Instance]:
    """Columns count every second delivery and leave it to who judges whether that is a finding."""
    found = {one for one in reference.find(rows, options) if one.name != "redelivery"}
    if excuses and {one.name for one in found} & {"unavailable", "starved"}:
        history = reference.History(rows, atomic=options.broker.atomic)
        windows: list[tuple[str, PlainWindow]] = [
            *(("unavailable", one) for one in unavailabilities(history.rows, options)),
            *(("starved", one) for one in hungers(history, options)),
        ]
        known = gather([{**_EMPTY, **row} for row in rows]).excuses(options)
        found |= {explanation(name, one.index, one, known) for name, one in windows}
    return found


def explanation(name: str, index: int, window: Window, excuses: Excuses) -> Instance:
    """Whether faults explain a window, and the brokers that its operations went to."""
    why = "explained" if excuses.excuses(window) else "not explained"
    brokers = " ".join(sorted(window.brokers))
    return Instance(f"{name}, {why}", None, None, None, index, f"{brokers}, {window.begin} to {window.end}")


def accusations(rows: Sequence[Row], options: CheckOptions) -> set[Instance]:
    """Return what either implementation finds in the history of an innocent broker."""
    try:
        found = on_columns([rows], options, 1, parts=1)[0]
    except RuntimeError:
        found = set()  # of rows that are no history any more
    return found | by_reference(rows, options)


def accused(made: Iterable[Made]) -> Iterator[tuple[Made, CheckOptions, set[Instance]]]:
    """Yield the innocent histories of which either implementation finds something, and what.

    Those of equal options are judged at once: a call costs as much as a hundred histories.
    """
    alike: dict[bytes, list[Made]] = defaultdict(list)
    for one in made:
        if one.innocent is not None:
            alike[msgspec.json.encode(one.innocent)].append(one)
    for some in alike.values():
        options = some[0].innocent
        assert options is not None
        judged = on_columns([one.rows for one in some], options, 1, parts=1)
        for one, by_columns in zip(some, judged, strict=True):
            found = by_columns | by_reference(one.rows, options)
            if found:
                yield one, options, found


# ---------------------------------------------------------------------------------------- shrinking


def shrunk(items: Sequence[One], still: Callable[[Sequence[One]], bool]) -> list[One]:
    """As few of the items as can be by leaving out runs of them, ever shorter ones."""
    some = list(items)
    size = len(some) // 2
    while size:
        at = 0
        while at < len(some):
            fewer = some[:at] + some[at + size :]
            if fewer and still(fewer):
                some = fewer
            else:
                at += size
        size //= 2
    return some


def numbered(rows: Iterable[Row]) -> list[Row]:
    """With dense indexes again."""
    return [{**row, "index": n} for n, row in enumerate(rows)]


def smallest(
    lot: Sequence[Sequence[Row]], differ: Callable[[Sequence[Sequence[Row]]], bool]
) -> list[list[Row]]:
    """Few histories of few rows that still differ."""
    few = [list(rows) for rows in shrunk(lot, differ)]
    for n in range(len(few)):

        def still(rows: Sequence[Row], n: int = n) -> bool:
            return differ([*few[:n], numbered(rows), *few[n + 1 :]])

        few[n] = numbered(shrunk(shrunk(few[n], still), still))
    return few


# ----------------------------------------------------------------------------------------- campaign


@dataclasses.dataclass
class Campaign:
    """What was seen so far."""

    found: Counter[str] = dataclasses.field(default_factory=Counter)
    histories: int = 0
    rows: int = 0
    wrong: int = 0
    accused: Counter[str] = dataclasses.field(default_factory=Counter)
    """Rule -> how many innocent histories of which it finds something."""
    endless: int = 0
    """Seeds of which no history came about, because their cluster did not end."""

    def lot(self, first: int, count: int) -> None:
        """Judge the histories of some seeds, all under one promise."""
        number = first // LOT
        options, slices = options_of(number), (1, 4)[number % 2]
        made: list[Made] = []
        for seed in range(first, first + count):
            try:
                made.append(history(seed))
            except EndlessWorldError as error:
                self.endless += 1
                print(f"\nseed {seed}: the innocent cluster did not end: {error}", flush=True)
        lot = [one.rows for one in made]
        expected = [by_reference(rows, options, excuses=True) for rows in lot]
        alone = number % 50 == 49

        def judged(some: Sequence[Sequence[Row]]) -> list[set[Instance]]:
            if alone:
                return [on_columns([rows], options, slices, named=False, excuses=True)[0] for rows in some]
            return on_columns(some, options, slices, excuses=True)

        def differ(some: Sequence[Sequence[Row]]) -> bool:
            try:
                return judged(some) != [by_reference(rows, options, excuses=True) for rows in some]
            except RuntimeError:
                return True

        try:
            agreed = judged(lot) == expected
        except RuntimeError as error:
            print(error, flush=True)
            agreed = False
        if not agreed:
            self.wrong += 1
            self.tell(smallest(lot, differ), options, judged, f"seeds {first} to {first + count - 1}")
        for one, promised, some in accused(made):
            names = {instance.name for instance in some}
            self.accused.update(names)
            if max(self.accused[name] for name in names) <= TOLD:
                self.tell_accusation(one, promised, some)
        self.histories += len(made)
        self.rows += sum(map(len, lot))
        self.found.update(one.name for some in expected for one in some)

    @staticmethod
    def tell_accusation(one: Made, options: CheckOptions, found: set[Instance]) -> None:
        """Print an accusation of an innocent broker, with few rows that show it."""
        print(f"\nseed {one.seed}: an innocent broker is accused, under {options.broker}", flush=True)
        for name in sorted({instance.name for instance in found}):

            def still(rows: Sequence[Row], name: str = name) -> bool:
                return any(instance.name == name for instance in accusations(numbered(rows), options))

            print(*sorted(str(instance) for instance in found if instance.name == name), sep="\n")
            print("rows:", *numbered(shrunk(shrunk(one.rows, still), still)), sep="\n    ", flush=True)

    def tell(
        self,
        few: Sequence[Sequence[Row]],
        options: CheckOptions,
        judged: Callable[[Sequence[Sequence[Row]]], list[set[Instance]]],
        where: str,
    ) -> None:
        """A disagreement, as rows."""
        print(f"\n{where}: the two differ, under {options.guarantee}, {options.broker}", flush=True)
        try:
            found = judged(few)
        except RuntimeError as error:
            print(error)
            found = [set() for _ in few]
        for some, rows in zip(found, few, strict=True):
            expected = by_reference(rows, options, excuses=True)
            print("columns alone:", *sorted(map(str, some - expected)), sep="\n    ")
            print("reference alone:", *sorted(map(str, expected - some)), sep="\n    ")
            print("rows:", *rows, sep="\n    ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Hold both implementations of the checks against each other."
    )
    parser.add_argument("--histories", type=int, default=2_000, metavar="COUNT")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    arguments = parser.parse_args()
    campaign, begun = Campaign(), time.monotonic()
    last = arguments.first + arguments.histories
    for first in range(arguments.first, last, LOT):
        campaign.lot(first, min(LOT, last - first))
        if (first - arguments.first) // LOT % 20 == 19 or first + LOT >= last:
            minutes = (time.monotonic() - begun) / 60
            print(
                f"seeds {arguments.first} to {min(first + LOT, last) - 1} ({campaign.endless} endless): "
                f"{campaign.rows:,} rows, {sum(campaign.found.values()):,} findings of {len(campaign.found)} "
                f"kinds, {campaign.wrong} disagreements, {campaign.accused.total()} false accusations; "
                f"{campaign.histories / minutes:,.0f} histories a minute",
                flush=True,
            )
    print(*(f"{count:>9,} {name}" for name, count in campaign.found.most_common()), sep="\n")
    print(*(f"{count:>9,} innocent histories accused of {name}" for name, count in campaign.accused.items()))
    return 1 if campaign.wrong or campaign.accused or campaign.endless else 0


if __name__ == "__main__":
    sys.exit(main())
