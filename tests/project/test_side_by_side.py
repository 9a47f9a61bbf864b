"""Groups of tests run on one worker, whatever pytest and xdist make of each other."""

import re
from pathlib import Path

import pytest
import side_by_side

pytest_plugins = "pytester"

TESTS = """
import os
import time
from pathlib import Path

import pytest


def note(request):
    with Path("ran").open("a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {request.node.nodeid}\\n")
    time.sleep(0.02)


@pytest.mark.parametrize("number", range(40))
def test_alone(number, request):
    note(request)


@pytest.mark.long
def test_that_takes_long(request):
    note(request)


@pytest.mark.docker
@pytest.mark.parametrize("number", range(20))
def test_container(number, request):
    note(request)


@pytest.fixture
def spark():
    pass


@pytest.mark.parametrize("number", range(10))
def test_judged(number, spark, request):
    note(request)


@pytest.mark.spark
def test_marked(request):
    note(request)
"""


@pytest.fixture
def ran(pytester, monkeypatch):
    """[(worker, test)] of a run with two workers, in order."""
    pytester.makeini("[pytest]\nmarkers =\n docker: d\n spark: s\n nfs: n\n fuse: f\n long: l\n")
    pytester.makepyfile(test_it=TESTS)
    monkeypatch.setenv("PYTHONPATH", str(Path(side_by_side.__file__).parent))

    def run(*options):
        pytester.runpytest_subprocess("-n", "2", *options).assert_outcomes(passed=72)
        return [line.split() for line in (pytester.path / "ran").read_text().splitlines()]

    return run


def workers_of(ran, name):
    return {worker for worker, test in ran if re.search(name, test)}


def test_a_group_is_on_one_worker_and_the_rest_on_both(ran):
    done = ran("-p", "side_by_side")
    assert len(workers_of(done, "container")) == 1
    assert len(workers_of(done, "judged|marked")) == 1
    assert workers_of(done, "container") != workers_of(done, "judged")
    assert len(workers_of(done, "alone")) == 2
    (first, *_) = [test for _, test in done if not re.search("container|judged|marked", test)]
    assert "takes_long" in first


def test_without_it_they_would_be_scattered(ran):
    assert len(workers_of(ran(), "container|judged|marked")) == 2
