"""What a search once found and was mended does not come back.

Every schedule kept in ``regressions`` is run again in the simulation.

Each file is a reproduction of the run that found the bug: ``jepsen-run replay`` takes it too. Its
``origin`` is the page of the bug.
"""

from pathlib import Path

import pytest

from harness.run import reproduction
from harness.run.simulate import simulate

HERE = Path(__file__).with_name("regressions")
ROOT = HERE.parents[2]
FILES = sorted(HERE.glob("*.json"))


def test_there_are_regressions_to_run():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_bug_that_was_mended_stays_mended(path):
    kept = reproduction.load(path)
    run = simulate(kept.spec, kept.schedule)
    assert run.valid is True, (sorted(run.grave), run.trouble, run.findings[:3])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_regression_says_what_it_found_and_which_page_explains_it(path):
    kept = reproduction.load(path)
    assert kept.findings
    assert (ROOT / kept.origin).is_file()
    assert kept.origin.startswith(f"docs/bugs/{path.stem[:4]}-")
