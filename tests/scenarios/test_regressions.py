"""What a search once found and was mended does not come back.

Every schedule kept in ``regressions`` is run again in the simulation.

Each file is a reproduction of the run that found the bug: ``jepsen-run replay`` takes it too. Its
``origin`` is the row of the bug in docs/bugs/README.md.
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
def test_a_regression_names_its_findings_and_the_row_of_its_bug(path):
    kept = reproduction.load(path)
    assert kept.findings
    page, _, anchor = kept.origin.partition("#")
    assert anchor == f"bug-{int(path.stem[:4])}"
    rows = [
        line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if f'id="{anchor}"' in line
    ]
    assert len(rows) == 1
    assert f"({path.relative_to(ROOT).as_posix()})" in rows[0].replace("../", "")
