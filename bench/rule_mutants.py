"""Which lines of the checkers no history would miss.

Removes every statement of every rule once, and every operand of every ``and``, ``or``, ``&`` and
``|``, and judges a corpus of histories with what is left. A mutant under which nothing changes
survives, and is printed: it needs a history that kills it, or an argument that the line changes
nothing.

    JEPSEN_RUN_RECORD=/tmp/judged.jsonl python -m pytest tests/checkers -p bench.recorder
    python -m bench.rule_mutants --recorded /tmp/judged.jsonl > survivors.txt
    python -m bench.rule_mutants owed --recorded /tmp/judged.jsonl --again survivors.txt
    python -m bench.rule_mutants counts --recorded /tmp/judged.jsonl --hunt 20 --about nack

The corpus (``bench.rule_corpus``) holds small histories of every kind, each judged under its own
promises. What is compared: findings and how many there are, which windows faults explain, what a
lost message's group kept, and the decision. A mutant of the columns is judged by columns, one of
the reference by the reference. A mutant that crashes, or takes longer than ``LIMIT_S``, does not
survive.

How: the parent compiles a changed function and a forked child puts its code into the running one,
so that a mutant costs no import. A chunk of histories is judged without a line only if it runs
that line, and only by those families of rules that call the function; what they say together
without the change is compared.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import copy
import importlib
import inspect
import os
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import msgspec

from bench.agreement import Runs, by_reference, found_in
from bench.rule_corpus import Chunk, corpus
from bench.rule_hunt import Hunted, hunt
from checkers import judge
from checkers.decide import Decision, decide
from checkers.excuses import Window
from checkers.findings import select_findings
from checkers.part import GROUP_FAMILIES, ROW_FAMILIES
from checkers.verdict import CheckOptions

ROOT: Final = Path(__file__).parents[1]
RULES: Final = (
    "lifecycle", "delivery", "owed", "order", "queues", "sessions", "fifo", "subscriptions", "skipped",
    "selective", "transactions", "temporaries", "refusals", "priorities", "acknowledgements", "timeouts",
    "counts", "alternation", "closings", "takeovers", "roles", "deaths", "ends", "attempts", "siblings",
    "links", "clocks", "excuses", "availability", "starved", "totals", "stores", "recipients",
    "linearizability", "asked", "facts", "part", "ordinary", "spans", "views", "admitted", "decide",
    "consumers",
)  # fmt: skip
"""Modules of the columns that have rules; those of the reference are found by their name."""
LIMIT_S: Final = 60
"""So much time of a processor a mutant may take, however many others have the processor."""
SAMPLE: Final = 3
"""By so many chunks it is found out which families call a function."""
SURVIVED, KILLED = 0, 1
SURVIVOR: Final = re.compile(r"(checkers\.\w+):\d+ ([\w.]+): (.*?)(?: \(never run\))?")


# ------------------------------------------------------------------------------------------ mutants


@dataclass(frozen=True, slots=True)
class RuleMutant:
    """A function without one of its lines or operands."""

    module: str
    function: str
    line: int
    removed: str
    code: CodeType


def mutants_of(module: ModuleType) -> Iterator[RuleMutant]:
    """Every mutant of a module's functions and methods."""
    tree = ast.parse(inspect.getsource(module))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _of_function(module.__name__, node.name, node)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield from _of_function(module.__name__, f"{node.name}.{method.name}", method)


def _of_function(module: str, name: str, function: ast.FunctionDef) -> Iterator[RuleMutant]:
    for number in range(_count(function)):
        changed = copy.deepcopy(function)
        line, removed = _remove(changed, number)
        changed.decorator_list = []
        code = compile(
            ast.fix_missing_locations(ast.Module([changed], [])),
            "mutant", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True,
        )  # fmt: skip
        inner = next(const for const in code.co_consts if isinstance(const, CodeType))
        yield RuleMutant(module, name, line, removed, inner)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """A function's nodes, without annotations, which nothing reads."""
    yield node
    for name, child in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    yield from _code(one)


def _edits(function: ast.FunctionDef) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """All edits of a function: the line, what is removed, and how."""
    for node in _code(function):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if not isinstance(statements, list):
                continue
            for at, statement in enumerate(statements):
                if _is_kept(statement):
                    continue

                def without(statements: list[ast.stmt] = statements, at: int = at) -> None:
                    statements[at] = ast.copy_location(ast.Pass(), statements[at])

                yield statement.lineno, ast.unparse(statement).splitlines()[0], without
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            children = child if isinstance(child, list) else [child]
            for at, one in enumerate(children):
                for operand in _operands(one):

                    def put(
                        node: ast.AST = node, name: str = name, child: Any = child, at: int = at,
                        left: ast.expr = operand[1],
                    ) -> None:  # fmt: skip
                        if isinstance(child, list):
                            child[at] = left
                        else:
                            setattr(node, name, left)

                    yield operand[0].lineno, f"... {ast.unparse(operand[0])}", put


def _is_kept(statement: ast.stmt) -> bool:
    """Statements whose removal is no mutant: docstrings, imports, functions within functions."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    kept = (ast.Pass, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Global, ast.Nonlocal, ast.Assert)
    return isinstance(statement, kept)


def _operands(node: Any) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each operand that can be left out, with what is left then."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            others = [other for other in node.values if other is not value]
            yield value, others[0] if len(others) == 1 else ast.BoolOp(node.op, others)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        yield node.left, node.right
        yield node.right, node.left
    elif isinstance(node, ast.IfExp):
        yield node.body, node.orelse
        yield node.orelse, node.body


def _count(function: ast.FunctionDef) -> int:
    return sum(1 for _ in _edits(function))


def _remove(function: ast.FunctionDef, number: int) -> tuple[int, str]:
    for at, (line, removed, edit) in enumerate(_edits(function)):
        if at == number:
            edit()
            return line, removed
    raise AssertionError(number)


def function_of(module: ModuleType, name: str) -> FunctionType | None:
    """The function that runs under a name, without what decorates it."""
    owner: Any = module
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    found = vars(owner).get(last)
    for attribute in ("fget", "func", "__func__"):
        found = getattr(found, attribute, found) if not isinstance(found, FunctionType) else found
    return inspect.unwrap(found) if callable(found) else None


# ------------------------------------------------------------------------------------------ judging


Families = frozenset[str]
"""Names of families of rules."""
EVERY: Final[Families] = frozenset({*ROW_FAMILIES, *GROUP_FAMILIES})
AMONG: Final = (frozenset({"delivery"}), frozenset(GROUP_FAMILIES), frozenset(ROW_FAMILIES), EVERY)


class Columns:
    """The corpus as columns judge it."""

    families: Sequence[Families] = (*(frozenset({name}) for name in sorted(EVERY)),)

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self._sources = [
            [Runs([rows], 1) for rows in chunk.histories]
            if chunk.alone
            else [Runs(chunk.histories, chunk.slices)]
            for chunk in chunks
        ]

    def say(self, number: int, families: Families) -> Any:
        """What some families say of a chunk."""
        options = self.chunks[number].options
        return [self._say(source, options, families) for source in self._sources[number]]

    def say_each(self, chunk: Chunk, families: Families) -> list[Any]:
        """What some families say of each history of a chunk."""
        *_, found, decided = self._say(Runs(chunk.histories, chunk.slices), chunk.options, families)
        return [*zip(found, decided, strict=True)]

    @staticmethod
    def _say(runs: Runs, options: CheckOptions, families: Families) -> tuple[Any, ...]:
        check_run = judge.CheckRun(
            runs,
            msgspec.structs.replace(options, examples=10**9),
            {name: family for name, family in ROW_FAMILIES.items() if name in families},
            {name: family for name, family in GROUP_FAMILIES.items() if name in families},
        )
        case = judge.examine(check_run)
        if case is None or check_run.unknown:
            raise RuntimeError(f"a rule failed: {check_run.unknown}")
        counts = {run: {name: one.count for name, one in some.items()} for run, some in case.found.items()}
        return case.survivors, case.overtakers, counts, found_in(case, options), [*decisions(case, options)]


def decisions(case: judge.Examination, options: CheckOptions) -> Iterator[Decision]:
    """The decision of each run."""
    for run, known in case.facts_by_run.items():
        windows: dict[str, Sequence[Window]] = {
            "unavailable": [one for one in case.pauses if one.run == run],
            "starved": [one for one in case.hungers if one.run == run],
        }
        yield decide(select_findings(case.found.get(run, {}), options), known, options, windows=windows)


class Reference:
    """The corpus as the reference judges it."""

    families: Sequence[Families] = ()

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks

    def say(self, number: int, _: Families) -> Any:
        """What is found in each history of a chunk."""
        return self.say_each(self.chunks[number], EVERY)

    def say_each(self, chunk: Chunk, _: Families) -> list[Any]:
        """What is found in each history of a chunk."""
        return [by_reference(rows, chunk.options, excuses=True) for rows in chunk.histories]


class Expected:
    """What the corpus says of itself without a change, and which lines each chunk runs."""

    def __init__(self, side: Columns | Reference, modules: Sequence[ModuleType]) -> None:
        self.side = side
        self.lines: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._said: dict[tuple[int, Families], Any] = {}
        self._names = {str(module.__file__): module.__name__ for module in modules}
        self._callers: dict[CodeType, Families] = {}
        for number in range(len(side.chunks)):
            self._said[number, EVERY] = self._traced(number, EVERY, lines=True)[0]
        alone = self._functions(frozenset())
        for some in side.families:
            for code in self._functions(some) - alone:
                self._callers[code] = self._callers.get(code, frozenset()) | some
        self._callers |= dict.fromkeys(alone, EVERY)

    def said(self, number: int, families: Families) -> Any:
        """What some families say of a chunk without a change."""
        if (number, families) not in self._said:
            self._said[number, families] = self.side.say(number, families)
        return self._said[number, families]

    def families_of(self, function: FunctionType | None) -> Families:
        """The families among which all are whose rules call a function."""
        callers = EVERY if function is None else self._callers.get(function.__code__, EVERY)
        return next(some for some in AMONG if callers <= some)

    def _functions(self, families: Families) -> set[CodeType]:
        """The functions that are called when some families judge the first chunks."""
        few = range(min(SAMPLE, len(self.side.chunks)))
        return set().union(*(self._traced(number, families)[1] for number in few))

    def _traced(self, number: int, families: Families, *, lines: bool = False) -> tuple[Any, set[CodeType]]:
        functions: set[CodeType] = set()

        def trace(frame: Any, _event: str, _: Any) -> Any:
            name = self._names.get(frame.f_code.co_filename)
            if name is None:
                return None
            functions.add(frame.f_code)

            def in_function(frame: Any, event: str, _: Any) -> Any:
                if event == "line":
                    self.lines[name, frame.f_lineno].add(number)
                return in_function

            return in_function if lines else None

        sys.settrace(trace)
        threading.settrace(trace)  # rules run in threads of their own
        try:
            return self.side.say(number, families), functions
        finally:
            sys.settrace(None)
            threading.settrace(None)


def survives(
    mutant: RuleMutant, function: FunctionType | None, numbers: Sequence[int], families: Families,
    expected: Expected,
) -> bool:  # fmt: skip
    """Whether chunks are judged the same by a child that runs the mutant."""
    if function is None or function.__code__.co_freevars != mutant.code.co_freevars:
        return False
    function.__code__ = mutant.code
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        return all(
            expected.side.say(number, families) == expected.said(number, families) for number in numbers
        )
    except BaseException:  # noqa: BLE001 - a mutant that crashes is noticed
        return False


def judged(
    mutants: Sequence[RuleMutant], modules: Mapping[str, ModuleType], expected: Expected, jobs: int
) -> Iterator[RuleMutant]:
    """The mutants that survive, as they are known."""
    running: dict[int, RuleMutant] = {}

    def ended() -> Iterator[RuleMutant]:
        child, status = os.wait()
        mutant = running.pop(child)
        if os.waitstatus_to_exitcode(status) == SURVIVED:
            yield mutant

    for mutant in mutants:
        function = function_of(modules[mutant.module], mutant.function)
        numbers = sorted(expected.lines.get((mutant.module, mutant.line), ()))
        families = expected.families_of(function)
        for number in numbers:
            expected.said(number, families)
        if len(running) >= jobs:
            yield from ended()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            stays = survives(mutant, function, numbers, families, expected)
            os._exit(SURVIVED if stays else KILLED)
        running[child] = mutant
    while running:
        yield from ended()


def hunted(
    mutants: Sequence[RuleMutant], modules: Mapping[str, ModuleType], expected: Expected, seconds: float,
    about: str,
) -> list[RuleMutant]:  # fmt: skip
    """Hunt mutants that survive the corpus; return those that survive the hunt, too."""
    named = {}
    for mutant in mutants:
        function = function_of(modules[mutant.module], mutant.function)
        if function is not None:
            words = f"{mutant.module.partition('.')[2]}.{mutant.function}: {mutant.removed}"
            numbers = tuple(sorted(expected.lines.get((mutant.module, mutant.line), ())))
            families = expected.families_of(function)
            named[Hunted(words, function, mutant.code, numbers, families)] = mutant
    killers, alive = hunt([*named], expected.side, expected.side.chunks, seconds, about)
    for killer in killers:
        print(*killer.tell(), sep="\n", flush=True)
    return [named[one] for one in alive]


def listed(survivors: Path) -> set[tuple[str, str, str]]:
    """The module, function and removed text of each mutant in a list that was printed before."""
    found = (SURVIVOR.fullmatch(line) for line in survivors.read_text().splitlines())
    return {(one[1], one[2], one[3]) for one in found if one is not None}


def main() -> int:
    parser = argparse.ArgumentParser(description="Remove each line of each rule and see who notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="of checkers, without its name")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="what bench.recorder wrote")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try only the survivors that it lists")
    parser.add_argument(
        "--hunt", type=float, default=0, metavar="SECONDS", help="for each survivor, on average"
    )
    parser.add_argument("--about", default="", metavar="TEXT", help="hunt with histories in which it occurs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    found = {path.stem for path in (ROOT / "checkers").glob("reference*.py")}
    chosen = arguments.modules or [*RULES, *sorted(found)]
    wanted = None if arguments.again is None else listed(arguments.again)
    chunks = corpus(arguments.recorded)
    count = survived = 0
    for side, names in (
        (Columns, [name for name in chosen if not name.startswith("reference")]),
        (Reference, [name for name in chosen if name.startswith("reference")]),
    ):
        if not names:
            continue
        modules = {f"checkers.{name}": importlib.import_module(f"checkers.{name}") for name in names}
        expected = Expected(side(chunks), list(modules.values()))
        for name, module in modules.items():
            begun, mine = time.monotonic(), 0
            mutants = [
                one
                for one in sorted(mutants_of(module), key=lambda mutant: mutant.line)
                if wanted is None or (name, one.function, one.removed) in wanted
            ]
            survivors = judged(mutants, modules, expected, arguments.jobs)
            if arguments.hunt:
                alive = [*survivors]
                mine = len(alive)
                survivors = iter(hunted(alive, modules, expected, arguments.hunt * mine, arguments.about))
            alive = []
            for mutant in survivors:  # each at once: the next may take a while
                alive.append(mutant)
                where = "" if (name, mutant.line) in expected.lines else " (never run)"
                print(f"{name}:{mutant.line} {mutant.function}: {mutant.removed}{where}", flush=True)
            mine = mine if arguments.hunt else len(alive)
            print(f"{name}: {mine} of {len(mutants)} survived, {len(alive)} do, ", end="")
            print(f"{time.monotonic() - begun:.0f} s", flush=True)
            mine = len(alive)
            count, survived = count + len(mutants), survived + mine
    print(f"{survived} of {count} survive")
    return 0


if __name__ == "__main__":
    sys.exit(main())
