"""Which lines of the checkers no history would miss.

Removes every statement of every rule once, and every operand of every ``and``, ``or``, ``&`` and
``|``, and judges a corpus of histories with what is left. A mutant under which no finding changes
survives, and is printed: it needs a history that kills it, or an argument that the line changes
nothing.

    python -m bench.rule_mutants                             # all modules
    python -m bench.rule_mutants owed delivery reference_messages --jobs 2

The corpus is ``tests/checkers/verdict_cases`` and seeds of ``bench.agreement``, whose findings are
what both implementations say of them today. A mutant of the columns is judged by columns, one of
the reference by the reference. Only the histories that run a line are judged without it. A mutant
that crashes, or takes longer than ``LIMIT_S``, does not survive.

How: the parent compiles a changed function and a forked child puts its code into the running one,
so that a mutant costs no import.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import contextlib
import copy
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from bench.agreement import LOT, EndlessWorldError, by_reference, history, on_columns, options_of
from checkers.verdict import CheckOptions, Promises

ROOT: Final = Path(__file__).parents[1]
CASES: Final = ROOT / "tests" / "checkers" / "verdict_cases"
RULES: Final = (
    "acknowledgements", "admitted", "alternation", "asked", "attempts", "availability", "clocks", "closings",
    "counts", "deaths", "delivery", "ends", "excuses", "facts", "fifo", "lifecycle",
    "linearizability", "links", "order", "ordinary", "owed", "part", "priorities", "queues", "recipients",
    "refusals", "roles", "selective", "sessions", "siblings", "skipped", "spans", "starved", "stores",
    "subscriptions", "takeovers", "temporaries", "timeouts", "totals", "transactions", "views",
)  # fmt: skip
"""Modules of the columns that have rules; those of the reference are found by their name."""
CHUNK: Final = 25
"""Histories that are judged at once."""
LIMIT_S: Final = 60
PROMISES: Final = Promises(
    nack="requeue", delivery_attempts=4, most_attempts=4, attempts="refused", keeps_dead_letters=True
)
SURVIVED, KILLED = 0, 1


# ------------------------------------------------------------------------------------------- corpus


@dataclass(frozen=True, slots=True)
class Chunk:
    """Histories that are judged together under one promise."""

    histories: Sequence[Sequence[dict[str, Any]]]
    options: CheckOptions
    slices: int


def corpus(histories: int) -> list[Chunk]:
    """The cases first, because each was made to tell one thing apart."""
    cases = [
        [json.loads(line) for line in path.read_text().splitlines()] for path in sorted(CASES.glob("*.jsonl"))
    ]
    chunks = [Chunk(cases, CheckOptions(broker=PROMISES), slices) for slices in (1, 4) if cases]
    for first in range(0, histories, CHUNK):
        number = first // CHUNK
        seeds = range(number * LOT, number * LOT + CHUNK)
        chunks.append(Chunk([*histories_of(seeds)], options_of(number), (1, 4)[number % 2]))
    return chunks


def histories_of(seeds: Iterable[int]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the rows of the history of each seed that has one."""
    for seed in seeds:
        with contextlib.suppress(EndlessWorldError):
            yield history(seed).rows


def columns_say(chunk: Chunk) -> Any:
    return on_columns(chunk.histories, chunk.options, chunk.slices)


def reference_says(chunk: Chunk) -> Any:
    return [by_reference(rows, chunk.options) for rows in chunk.histories]


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


def _edits(function: ast.FunctionDef) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """All edits of a function: the line, what is removed, and how."""
    for node in ast.walk(function):
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


def reached(
    chunks: Sequence[Chunk], say: Callable[[Chunk], Any], modules: Sequence[ModuleType]
) -> tuple[list[Any], dict[tuple[str, int], set[int]]]:
    """What is found in each chunk, and by (module, line) the chunks that run it."""
    names = {str(module.__file__): module.__name__ for module in modules}
    lines: dict[tuple[str, int], set[int]] = defaultdict(set)
    number = 0

    def trace(frame: Any, _event: str, _: Any) -> Any:
        name = names.get(frame.f_code.co_filename)
        if name is None:
            return None

        def in_function(frame: Any, event: str, _: Any) -> Any:
            if event == "line":
                lines[name, frame.f_lineno].add(number)
            return in_function

        return in_function

    expected = []
    for number, chunk in enumerate(chunks):  # noqa: B007 - read by the tracer
        sys.settrace(trace)
        threading.settrace(trace)  # rules run in threads of their own
        try:
            expected.append(say(chunk))
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
    return expected, lines


def survives(
    mutant: RuleMutant, module: ModuleType, chunks: Mapping[int, Chunk], expected: Sequence[Any],
    say: Callable[[Chunk], Any],
) -> bool:  # fmt: skip
    """Whether the corpus is judged the same by a child that runs the mutant."""
    function = function_of(module, mutant.function)
    if function is None or function.__code__.co_freevars != mutant.code.co_freevars:
        return False
    function.__code__ = mutant.code
    signal.alarm(LIMIT_S)
    try:
        return all(say(chunk) == expected[number] for number, chunk in chunks.items())
    except BaseException:  # noqa: BLE001 - a mutant that crashes is noticed
        return False


def judged(
    mutants: Sequence[RuleMutant], modules: Mapping[str, ModuleType], chunks: Sequence[Chunk],
    expected: Sequence[Any], lines: Mapping[tuple[str, int], set[int]], say: Callable[[Chunk], Any],
    jobs: int,
) -> Iterator[RuleMutant]:  # fmt: skip
    """The mutants that survive, as they are known."""
    running: dict[int, RuleMutant] = {}

    def ended() -> Iterator[RuleMutant]:
        child, status = os.wait()
        mutant = running.pop(child)
        if os.waitstatus_to_exitcode(status) == SURVIVED:
            yield mutant

    for mutant in mutants:
        wanted = lines.get((mutant.module, mutant.line), set())
        if len(running) >= jobs:
            yield from ended()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            some = {number: chunks[number] for number in sorted(wanted)}
            stays = survives(mutant, modules[mutant.module], some, expected, say)
            os._exit(SURVIVED if stays else KILLED)
        running[child] = mutant
    while running:
        yield from ended()


def main() -> int:
    parser = argparse.ArgumentParser(description="Remove each line of each rule and see who notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="of checkers, without its name")
    parser.add_argument("--histories", type=int, default=1500, metavar="COUNT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    found = {path.stem for path in (ROOT / "checkers").glob("reference*.py")}
    chosen = arguments.modules or [*RULES, *sorted(found)]
    chunks = corpus(arguments.histories)
    count = survived = 0
    for say, names in (
        (columns_say, [name for name in chosen if not name.startswith("reference")]),
        (reference_says, [name for name in chosen if name.startswith("reference")]),
    ):
        if not names:
            continue
        modules = {f"checkers.{name}": importlib.import_module(f"checkers.{name}") for name in names}
        expected, lines = reached(chunks, say, list(modules.values()))
        for name, module in modules.items():
            begun, mine = time.monotonic(), 0
            mutants = sorted(mutants_of(module), key=lambda mutant: mutant.line)
            for mutant in judged(mutants, modules, chunks, expected, lines, say, arguments.jobs):
                mine += 1
                where = "" if (name, mutant.line) in lines else " (never run)"
                print(f"{name}:{mutant.line} {mutant.function}: {mutant.removed}{where}", flush=True)
            count, survived = count + len(mutants), survived + mine
            print(f"{name}: {mine} of {len(mutants)} survive, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{survived} of {count} survive")
    return 0


if __name__ == "__main__":
    sys.exit(main())
