"""Every mutant is what it says it is.

Its texts are in today's source, and what they make of it compiles and is what runs.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.mutants import PAGE, Hunted, Line, page, summary, table, written
from harness.history.spec import validate
from mutants.changed import ROOT, Replacement, StaleReplacementError, apply, grow, texts, variables
from mutants.hunt import BUDGET, spec_of
from mutants.registry import MUTANTS, WAITING

EACH = pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)


@EACH
def test_every_text_is_in_the_source_once_and_the_result_compiles(mutant):
    for path, text in texts((*mutant.arena.clients, *mutant.replacements)).items():
        assert text != (ROOT / path).read_text()
        compile(text, path, "exec")


@EACH
def test_the_arena_is_a_test_that_can_be_run(mutant):
    validate(spec_of(mutant.arena, 0))


def test_the_changed_module_is_the_one_that_is_loaded(tmp_path):
    mutant = MUTANTS["one-pair-needs-no-vote"]
    (replacement,) = mutant.replacements
    tree = grow(tmp_path, mutant.replacements)
    said = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            (
                "import inspect, broker.cluster.directory as m, nemesis; print(m.__file__); "
                "print(nemesis.__file__); print(inspect.getsource(m))"
            ),
        ],
        env=variables(tree),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    loaded, other, source = said.split("\n", 2)
    assert Path(loaded) == tree / replacement.path
    assert Path(other).is_relative_to(ROOT)
    assert replacement.new in source
    assert replacement.old not in source


def test_source_that_has_changed_is_refused():
    with pytest.raises(StaleReplacementError, match="found 0 times"):
        apply("x = 2\n", Replacement("a.py", "x = 1\n", "x = 3\n"))
    with pytest.raises(StaleReplacementError, match="found 2 times"):
        apply("x = 1\nx = 1\n", Replacement("a.py", "x = 1\n", "x = 3\n"))


def test_there_are_at_least_twenty_and_the_ten_that_teach_most_are_run_or_named_as_waiting():
    assert len(MUTANTS) >= 20
    assert len({mutant.part for mutant in MUTANTS.values()}) >= 6
    for waiting in WAITING:
        assert waiting.name not in MUTANTS
        assert waiting.meanwhile in MUTANTS


def test_the_page_has_a_line_for_each_and_hunting_one_leaves_the_others_as_they_are():
    lines = written(PAGE.read_text())
    assert set(lines) == set(MUTANTS)
    told = page(table(list(lines.values())), summary(list(lines.values())), 3, BUDGET)
    assert told == PAGE.read_text()


def test_a_mutant_that_no_hunt_finds_is_read_from_the_page_again():
    mutant = next(iter(MUTANTS.values()))
    line = Line.of(Hunted(mutant, ({"schedules": None, "anomalies": {}},) * 3))
    assert written("\n".join(table([line]))) == {mutant.name: line}
