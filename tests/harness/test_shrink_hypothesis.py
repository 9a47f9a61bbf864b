"""Findings are made smaller with the oldest Hypothesis that an installation may have.

Every other test runs with the newest.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.explore.shrink import shrink
from harness.interface import InfrastructureError

ROOT = Path(__file__).parents[2]
QUICK = "forty_faults or numbers_that_must_stay or budget_ends_lowering or same_question"


def oldest():
    """The oldest version that pyproject.toml allows."""
    return re.search(r'"hypothesis>=([\d.]+),', (ROOT / "pyproject.toml").read_text())[1]


@pytest.mark.slow
def test_the_oldest_hypothesis_shrinks_as_the_newest_does(tmp_path):
    version = oldest()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", tmp_path]
    fetched = subprocess.run(
        [*install, f"hypothesis=={version}.0"], capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"hypothesis {version} cannot be fetched: {fetched.stderr.strip().splitlines()[-1]}")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    told = subprocess.run(
        [sys.executable, "-c", "import hypothesis; print(hypothesis.__version__)"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == f"{version}.0"
    tests = ["tests/harness/test_shrink_quality.py", "-k", QUICK, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *tests],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_an_unknown_hypothesis_is_told_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis.internal.conjecture.shrinker", None)

    class AnyForm:
        sizes = (2,)

    with pytest.raises(
        InfrastructureError, match=r"^Hypothesis [\d.]+ has another shrinker .* install one from"
    ):
        shrink.lower(AnyForm(), None)
