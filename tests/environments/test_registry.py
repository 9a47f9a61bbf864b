import sys
import types

import pytest

from environments import registry
from environments.local.environment import LocalEnvironment
from harness.interface import UsageError


class FakeDocker:
    name = "docker"


@pytest.fixture
def docker_module(monkeypatch):
    module = types.ModuleType("environments.docker.environment")
    module.DockerEnvironment = FakeDocker
    monkeypatch.setitem(sys.modules, "environments.docker.environment", module)


def test_a_name_makes_its_environment(docker_module):
    assert isinstance(registry.create("local"), LocalEnvironment)
    assert isinstance(registry.create("docker"), FakeDocker)
    assert registry.create("simulation").name == "simulation"
    assert set(registry.ENVIRONMENTS) == {"local", "docker", "ssh", "attached", "simulation"}


@pytest.mark.parametrize(("name", "near"), [("lokal", "local"), ("dokcer", "docker"), ("Auto", "auto")])
def test_an_unknown_name_comes_with_the_near_one(name, near):
    with pytest.raises(UsageError) as raised:
        registry.choose(name)
    there = "there are auto, local, docker, ssh, attached, simulation"
    assert str(raised.value) == f'unknown environment "{name}": did you mean "{near}"? {there}'


def test_a_name_that_is_near_to_nothing_still_gets_the_list():
    with pytest.raises(UsageError, match='unknown environment "kubernetes": there are auto, local, docker'):
        registry.create("kubernetes")


def test_auto_is_docker_when_an_engine_answers(docker_module, monkeypatch):
    monkeypatch.setattr(registry, "engine_problem", lambda: "")
    environment, reason = registry.choose("auto")
    assert isinstance(environment, FakeDocker)
    assert reason == "environment docker: an engine answers"


def test_auto_is_local_and_says_why_when_none_does(docker_module, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    environment, reason = registry.choose("auto")
    assert isinstance(environment, LocalEnvironment)
    assert reason.startswith("environment local: no Docker engine answers")
    assert "tcp://127.0.0.1:1" in reason


def test_auto_is_local_when_the_docker_environment_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "environments.docker.environment", None)
    environment, reason = registry.choose("auto")
    assert isinstance(environment, LocalEnvironment)
    assert "cannot be imported" in reason


def test_what_was_asked_for_is_not_second_guessed(docker_module, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    environment, reason = registry.choose("docker")
    assert isinstance(environment, FakeDocker)
    assert reason == "environment docker: chosen with --environment"


def test_the_simulation_is_there_for_who_asks_for_it_and_never_chosen_by_itself(monkeypatch):
    environment, reason = registry.choose("simulation")
    assert (environment.name, reason) == ("simulation", "environment simulation: chosen with --environment")
    for problem in ("", "no engine answers"):
        monkeypatch.setattr(registry, "engine_problem", lambda problem=problem: problem)
        assert registry.choose("auto")[0].name in ("local", "docker")
