"""Small histories that are judged differently without a line of a rule.

A survivor of ``bench.rule_mutants`` is hunted with damaged copies of the small histories of its
corpus, under the promises of that corpus in turn. A history that tells is made as small as it can
be. Both implementations must say the same of it; where they do not, that is a bug of its own, and
told as one.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final, Protocol, TypeVar

import msgspec
from damaged import DAMAGE, DAMAGE_BESIDE, damage

from bench.agreement import IMPATIENT, by_reference, edit, is_nameless, numbered, on_columns, shrunk
from bench.rule_corpus import Chunk, Row
from checkers.verdict import CheckOptions, Promises

Result = TypeVar("Result")
Families = frozenset[str]

AT_ONCE: Final = 100
"""Histories that are judged together."""
SMALL: Final = 120
LIMIT_S: Final = 300
_EDITS: Final = {**DAMAGE, **DAMAGE_BESIDE}


class Judge(Protocol):
    """One implementation."""

    def say_each(self, chunk: Chunk, families: Families) -> list[Any]:
        """What some families of rules say of each history of a chunk."""


@dataclass(frozen=True, slots=True)
class Hunted:
    """A mutant that survived, in words, and how its code gets into the function.

    ``numbers``: the chunks of the corpus that run the line; ``families``: the families of rules
    that call the function.
    """

    words: str
    function: FunctionType
    code: CodeType
    numbers: tuple[int, ...]
    families: Families

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Run the mutant instead of the function."""
        before = self.function.__code__
        self.function.__code__ = self.code
        try:
            yield
        finally:
            self.function.__code__ = before


@dataclass(frozen=True, slots=True)
class Killer:
    """A small history of which something else is said without a line."""

    chunk: Chunk
    needed_by: list[str]

    def tell(self) -> Iterator[str]:
        """Yield in words what needs the history, how it is judged, what is found, and its rows."""
        rows, options = self.chunk.histories[0], self.chunk.options
        columns = on_columns([rows], options, 1, excuses=True)[0]
        reference = by_reference(rows, options, excuses=True)
        yield from (f"killed: {words}" for words in self.needed_by)
        yield f"    {options.guarantee}, {options.broker}"
        yield from (f"    found: {one}" for one in sorted(map(str, columns)))
        yield from (f"    THE TWO DIFFER: {one}" for one in sorted(map(str, columns ^ reference)))
        yield from (f"    {row}" for row in rows)


def hunt(
    survivors: Sequence[Hunted], judge: Judge, corpus: Sequence[Chunk], seconds: float, about: str = ""
) -> tuple[list[Killer], list[Hunted]]:
    """Hunt for so long: what kills some, and who still survives.

    ``about``: only histories in which this text occurs are damaged.
    """
    until, alive, killers = time.monotonic() + seconds, dict(enumerate(survivors)), []
    chance = random.Random(about)
    pools = [[rows for rows in chunk.histories if _is_wanted(rows, about)] for chunk in corpus]
    pool = [rows for some in pools for rows in some]
    while alive and time.monotonic() < until:
        near = chance.choice(chance.choice([*alive.values()]).numbers or range(len(corpus)))
        sources = [pools[near] or pool, pool]
        histories = [_damaged(chance.choice(chance.choice(sources)), chance) for _ in range(AT_ONCE)]
        options = _drawn(chance, corpus[near].options.broker)
        chunk = Chunk("hunt", [rows for rows in histories if rows], options, chance.choice([1, 1, 1, 4]))
        wanted = {n: one for n, one in alive.items() if not one.numbers or near in one.numbers}
        for small, killed in in_child(partial(_kills, wanted, judge, chunk)) or ():
            killers.append(Killer(small, [alive.pop(n).words for n in killed]))
    return killers, [*alive.values()]


def _is_wanted(rows: Sequence[Row], about: str) -> bool:
    return 0 < len(rows) < SMALL and (not about or about in json.dumps(rows))


def _kills(survivors: Mapping[int, Hunted], judge: Judge, chunk: Chunk) -> list[tuple[Chunk, list[int]]]:
    """The small histories that tell, each with the survivors that it kills."""
    expected: dict[Families, list[Any]] = {}
    kills: list[tuple[Chunk, list[int]]] = []
    for number, one in survivors.items():
        killing = next((killed for small, killed in kills if _tells(one, judge, small)), None)
        if killing is not None:
            killing.append(number)
            continue
        if one.families not in expected:
            expected[one.families] = judge.say_each(chunk, one.families)
        small = _small(one, judge, chunk, expected[one.families])
        if small is not None:
            kills.append((small, [number]))
    return kills


def _drawn(chance: random.Random, promises: Promises) -> CheckOptions:
    guarantee = chance.choice(["at-least-once"] * 9 + ["at-most-once"])
    return msgspec.structs.replace(IMPATIENT, broker=promises, guarantee=guarantee)


def _tells(one: Hunted, judge: Judge, chunk: Chunk) -> bool:
    """Whether a mutant says something else of a chunk, or crashes."""
    expected = judge.say_each(chunk, one.families)
    with one.at_work():
        try:
            return judge.say_each(chunk, one.families) != expected
        except Exception:  # noqa: BLE001 - a mutant that crashes is noticed
            return True


def _small(one: Hunted, judge: Judge, chunk: Chunk, expected: Sequence[Any]) -> Chunk | None:
    """A chunk of one small history that tells."""

    def said(some: Chunk) -> list[Any] | None:
        with one.at_work():
            try:
                return judge.say_each(some, one.families)
            except Exception:  # noqa: BLE001 - a mutant that crashes is noticed
                return None

    def alone(rows: Sequence[Row]) -> Chunk:
        return Chunk(chunk.name, [numbered(rows)], chunk.options, chunk.slices)

    def tells(rows: Sequence[Row]) -> bool:
        try:
            return _tells(one, judge, alone(rows))
        except Exception:  # noqa: BLE001 - rows that are no history any more
            return False

    now = said(chunk)
    if now == expected:
        return None
    for at, rows in enumerate(chunk.histories):
        if (now is None or now[at] != expected[at]) and tells(rows):
            return alone(shrunk(rows, tells))
    return None


def in_child(work: Callable[[], Result]) -> Result | None:
    """What some work gives in a process of its own; None if it crashes or takes too long."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with contextlib.suppress(BaseException), os.fdopen(write, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        given = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(given) if given else None  # noqa: S301 - of our own child


def _damaged(rows: Sequence[Row], chance: random.Random) -> list[Row]:
    """A copy with a few small changes, most of them near what was there."""
    some = list(rows)
    if chance.random() < 0.5:
        some = damage(some, [edit(chance) for _ in range(chance.randint(1, 2))], _EDITS)
    some = [dict(row) for row in some]
    for _ in range(chance.randint(1, 3)):
        if some:
            chance.choice(CHANGES)(some, chance.randrange(len(some)), chance)
    last = 0
    for row in some:
        last = row["time"] = max(last, row["time"])
    return numbered(row for row in some if not is_nameless(row))


def _leave_out(rows: list[Row], at: int, _: random.Random) -> None:
    del rows[at]


def _move(rows: list[Row], at: int, chance: random.Random) -> None:
    row = rows.pop(at)
    rows.insert(max(0, at + chance.randint(-6, 6)), row)


def _repeat(rows: list[Row], at: int, chance: random.Random) -> None:
    rows.insert(chance.randrange(len(rows) + 1), dict(rows[at]))


def _answer(rows: list[Row], at: int, chance: random.Random) -> None:
    row = rows[at]
    if row["type"] != "invoke" and row["process"] >= 0 and row["f"] != "deliver":
        row["type"] = chance.choice(["ok", "fail", "info"])


VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "session": (1, 2, 3, 4), "broker": ("a1", "a2", "b1"), "redelivered": (True, False),
    "delivery_count": (1, 1, 2, 3), "group": ("g", "h"), "message": (1, 2, 3),
    "sequence": (1, 2, 3), "producer": (1, 2), "connection": (11, 12, 13), "process": (1, 2, 51, 52),
}  # fmt: skip


def _set(rows: list[Row], at: int, chance: random.Random) -> None:
    """Another value for a column that the row has, or none."""
    present = sorted(name for name in VALUES if rows[at].get(name) is not None and rows[at]["process"] >= 0)
    if present:
        name = chance.choice(present)
        if name in ("process", "message") or chance.random() < 0.8:
            rows[at][name] = chance.choice(VALUES[name])
        else:
            del rows[at][name]


def _wait(rows: list[Row], at: int, chance: random.Random) -> None:
    """All that follows comes later."""
    later = chance.choice([10_000_000, 1_000_000_000, 5_000_000_000])
    for row in rows[at:]:
        row["time"] += later


CHANGES: Final = (_leave_out, _move, _move, _repeat, _answer, _set, _set, _wait)
