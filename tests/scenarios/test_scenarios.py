"""Every scenario with a known verdict gets it, on real processes, on real containers and in the
simulation.
"""

import msgspec
import pytest
import share

from checkers import api
from harness.claims.runner import once
from harness.claims.scenarios import SCENARIOS, Roles, named
from harness.claims.scenarios.seen import ObservedRun

ALWAYS = ("RP1", "RP5")
"""Those that every commit tries on processes and on containers, the others in turn.

In the simulation all are tried; by ``jepsen-run claims --environment local`` on processes, too.
"""

ON_PROCESSES = ("RP1", "RP4", "RP5", "RP6", "RP11", "RP14-false", "SS1", "MI1")

ON_CONTAINERS = ("RP1", "RP4", "RP5", "RP11", "HA5")
"""Those of which a container test adds most.

A kill of a container, a firewall, a majority, a destroyed volume and brokers that change their
roles, a fault that waits for a line of a log.
"""


def some_in_turn(identifiers):
    return [
        pytest.param(each, marks=() if each in ALWAYS else pytest.mark.in_turn, id=each)
        for each in identifiers
    ]


@pytest.fixture(scope="session")
def spark():
    return api.start_in_background()


def problem_of(identifier: str, environment: str, store, spark, seed=1):
    ran = once(named(identifier), environment, seed, store, spark)
    return f"{ran.problem} (found {sorted(ran.found)})" if ran.problem else ""


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("identifier", some_in_turn(ON_PROCESSES))
def test_on_processes_the_verdict_is_the_documents(identifier, tmp_path, spark):
    assert problem_of(identifier, "local", tmp_path, spark) == ""


def pytest_generate_tests(metafunc):
    if "simulated" in metafunc.fixturenames:
        share.parametrize(metafunc, "simulated", {each.id: each.id for each in SCENARIOS}, share.few)


@pytest.mark.spark
def test_in_the_simulation_the_verdict_is_the_documents(simulated, tmp_path, spark):
    """All of them with seed 1, judged by the plain reference: tests/harness/test_simulate.py."""
    assert problem_of(simulated, "simulation", tmp_path, spark, seed=2) == ""


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.docker
@pytest.mark.parametrize("identifier", some_in_turn(ON_CONTAINERS))
def test_on_containers_the_verdict_is_the_documents(identifier, tmp_path, spark):
    """Each takes some 20 s: machines start, and the schedule takes its time."""
    assert problem_of(identifier, "docker", tmp_path, spark) == ""


def judged(identifier, valid, *grave):
    """What is said of findings alone."""
    bare = msgspec.structs.replace(named(identifier), roles=Roles(), besides=(), guards=())
    return bare.judge(ObservedRun(valid=valid, grave=frozenset(grave), rows=())).problem


def test_a_required_finding_that_is_missing_is_a_surprise():
    assert "none of split-brain" in judged("RP4", True)
    assert "none of split-brain" in judged("RP4", False, "lost")


def test_a_finding_that_is_neither_required_nor_allowed_is_a_surprise():
    assert "lost besides" in judged("RP1", False, "lost")
    assert "lost besides" in judged("RP5", False, "split-brain", "lost")


def test_an_unknown_run_is_never_as_expected():
    seen = ObservedRun(valid=None, rows=(), reasons=["the drain was not reached"])
    judgement = named("RP5").judge(seen)
    assert judgement.undecided == "the run ended unknown: the drain was not reached"
    assert judgement.problem


def test_what_was_expected_is_no_surprise():
    assert judged("RP1", True) == ""
    assert judged("RP5", True) == ""
    assert judged("RP4", False, "split-brain", "zombie") == ""
