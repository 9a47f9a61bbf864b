"""Groups of tests run on one worker, whatever pytest and xdist make of each other."""

import re
import threading
from pathlib import Path

import needs
import pytest
import side_by_side

from harness.systems.artemis import distribution as artemis

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
    if number == 20:
        Path("installed").touch()


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


@pytest.fixture(scope="module")
def run():
    with Path("simulated").open("a") as file:
        file.write("once")


@pytest.mark.parametrize("number", range(10))
def test_of_one_run(number, run, request):
    note(request)
"""


FEW_PLUGINS = ("-p", "no:hypothesispytest", "-p", "no:jepsen-run", "-p", "no:timeout")
"""Each of three processes would import these: a third of the time, and none is needed here."""


@pytest.fixture
def ran(pytester, monkeypatch):
    """[(worker, test)] of a run with two workers, in order."""
    pytester.makeini("[pytest]\nmarkers =\n docker: d\n spark: s\n nfs: n\n fuse: f\n long: l\n")
    pytester.makepyfile(test_it=TESTS)
    monkeypatch.setenv("PYTHONPATH", str(Path(side_by_side.__file__).parent))
    monkeypatch.delenv("JEPSEN_RUN_MACHINE", raising=False)

    def run(*options):
        pytester.runpytest_subprocess("-n", "2", *FEW_PLUGINS, *options).assert_outcomes(passed=82)
        return [line.split() for line in (pytester.path / "ran").read_text().splitlines()]

    return run


def workers_of(ran, name):
    return {worker for worker, test in ran if re.search(name, test)}


@pytest.mark.slow
def test_a_group_is_on_one_worker_and_the_rest_on_both(ran):
    done = ran("-p", "side_by_side")
    assert len(workers_of(done, "container")) == 1
    assert len(workers_of(done, "judged|marked")) == 1
    assert workers_of(done, "container") != workers_of(done, "judged")
    assert len(workers_of(done, "alone")) == 2
    assert Path("simulated").read_text() == "once"
    (first, *_) = [test for _, test in done if not re.search("container|judged|marked", test)]
    assert "takes_long" in first


@pytest.mark.slow
def test_without_it_they_would_be_scattered(ran):
    assert len(workers_of(ran(), "container|judged|marked")) == 2
    assert Path("simulated").read_text() == "onceonce"


@pytest.mark.slow
def test_what_needs_the_machine_is_begun_once_it_is_ready(ran, pytester, monkeypatch):
    monkeypatch.setenv("JEPSEN_RUN_MACHINE", str(pytester.path / "installed"))
    tests = [test for _, test in ran("-p", "side_by_side")]
    first, *_ = [index for index, test in enumerate(tests) if "container" in test]
    installed = next(index for index, test in enumerate(tests) if "alone[20]" in test)
    assert installed < first < len(tests) - 20, "before the other tests are over, too"


def test_it_is_waited_for_and_what_is_wrong_with_it_is_said(tmp_path, monkeypatch):
    place = tmp_path / "machine"
    monkeypatch.setenv("JEPSEN_RUN_MACHINE", str(place))
    monkeypatch.delenv("JEPSEN_RUN_REQUIRE_DOCKER", raising=False)

    def installed(trouble):
        (tmp_path / "told").write_text(f"{trouble}\n")
        (tmp_path / "told").replace(place)

    threading.Timer(0.3, installed, ("",)).start()

    def lacking():
        assert place.exists(), "it was not waited for"
        return ""

    needs.need("DOCKER", lacking)
    with pytest.raises(pytest.skip.Exception, match="no engine"):
        needs.need("DOCKER", lambda: "no engine")
    monkeypatch.setenv("JEPSEN_RUN_REQUIRE_DOCKER", "1")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_DOCKER=1, but no engine"):
        needs.need("DOCKER", lambda: "no engine")
    installed("no such package")
    with pytest.raises(pytest.fail.Exception, match="no such package"):
        needs.need("DOCKER", lambda: "")


def test_a_distribution_is_missed_by_its_name(tmp_path, monkeypatch):
    for name in ("JEPSEN_RUN_MACHINE", "JEPSEN_RUN_REQUIRE_ARTEMIS", artemis.HOME):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="JEPSEN_RUN_ARTEMIS_HOME names none"):
        needs.need_distribution("artemis")
    monkeypatch.setenv(artemis.HOME, str(tmp_path / "none"))
    with pytest.raises(pytest.skip.Exception, match="none, which is not there"):
        needs.need_distribution("artemis")
    monkeypatch.setenv("JEPSEN_RUN_REQUIRE_ARTEMIS", "1")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_ARTEMIS=1, but no distribution of artemis"):
        needs.need_distribution("artemis")
    monkeypatch.setenv(artemis.HOME, str(tmp_path))
    assert needs.need_distribution("artemis") == str(tmp_path)
    with pytest.raises(pytest.fail.Exception, match="JEPSEN_RUN_ARTEMIS_2_HOME names none"):
        needs.need_distribution("artemis", "2")
