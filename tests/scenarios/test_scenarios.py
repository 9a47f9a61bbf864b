"""Every scenario with a known verdict gets it, on real processes, on real containers and in the simulation."""

import io

import msgspec
import pytest

from checkers import api
from harness import session
from harness.compose import compose
from harness.scenarios import SCENARIOS, Scenario, named

ON_CONTAINERS = ("RP1", "RP4", "RP5", "RP11")
"""Those of which a container test adds most: a kill of a container, a firewall, a majority, a destroyed volume."""


@pytest.fixture(scope="session")
def spark():
    return api.start_in_background()


def run(scenario: Scenario, environment: str, store, spark):
    spec = msgspec.structs.replace(scenario.spec, environment=environment, seed=1)
    talk = io.StringIO()
    outcome = session.execute(compose(spec, scenario.schedule), store, talk, spark=spark)
    verdict = outcome.verdict
    assert verdict is not None, talk.getvalue()
    found = frozenset(each.name for each in verdict.findings if each.severity == "grave")
    return scenario.judge(verdict.valid, found), talk.getvalue()


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("identifier", [scenario.id for scenario in SCENARIOS])
def test_on_processes_the_verdict_is_the_documents(identifier, tmp_path, spark):
    problem, said = run(named(identifier), "local", tmp_path, spark)
    assert not problem, f"{problem}\n{said}"


@pytest.mark.spark
@pytest.mark.parametrize("identifier", [scenario.id for scenario in SCENARIOS])
def test_in_the_simulation_the_verdict_is_the_documents(identifier, tmp_path, spark):
    problem, said = run(named(identifier), "simulation", tmp_path, spark)
    assert not problem, f"{problem}\n{said}"


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.docker
@pytest.mark.parametrize("identifier", ON_CONTAINERS)
def test_on_containers_the_verdict_is_the_documents(identifier, tmp_path, spark):
    problem, said = run(named(identifier), "docker", tmp_path, spark)
    assert not problem, f"{problem}\n{said}"


def test_a_required_finding_that_is_missing_is_a_surprise():
    rp4 = named("RP4")
    assert "none of split-brain" in rp4.judge(True, frozenset())
    assert "none of split-brain" in rp4.judge(False, frozenset({"lost"}))


def test_a_finding_that_is_neither_required_nor_allowed_is_a_surprise():
    assert "lost besides" in named("RP1").judge(False, frozenset({"lost"}))
    assert "lost besides" in named("RP5").judge(False, frozenset({"split-brain", "lost"}))


def test_an_unknown_run_is_never_as_expected():
    assert named("RP5").judge(None, frozenset())


def test_what_was_expected_is_no_surprise():
    assert named("RP1").judge(True, frozenset()) == ""
    assert named("RP5").judge(True, frozenset()) == ""
    assert named("RP4").judge(False, frozenset({"split-brain", "zombie"})) == ""
