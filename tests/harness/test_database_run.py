"""Runs on a real PostgreSQL, from deployment to verdict.

Commits are lost and nothing else is, and the database's password is in no file of the store.
"""

import io
import json

import msgspec
import pytest

from environments.docker.database_server import DatabaseContainer
from environments.local.environment import LocalEnvironment
from harness.claims.runner import once
from harness.claims.scenarios import named
from harness.interface import Fault, Schedule, UsageError
from harness.run import session
from harness.run.compose import compose


@pytest.fixture
def passwords(monkeypatch):
    """Those of the servers that are made."""
    found = []

    def watched(kind, name, variables):
        original = getattr(kind, name)

        async def begin(self, *arguments):
            await original(self, *arguments)
            found.append(variables(self)["PGPASSWORD"])

        monkeypatch.setattr(kind, name, begin)

    watched(LocalEnvironment, "deploy", lambda environment: environment._made.variables)
    watched(DatabaseContainer, "serve", lambda database: database.variables())
    return found


def _composed(environment, scenario, kind=None, seconds=6.0, options=None, **spec):
    spec = msgspec.structs.replace(
        named(scenario).spec, environment=environment, time_limit_s=seconds, seed=3, **spec
    )
    faults = () if kind is None else (Fault(kind=kind, start_s=1.5, duration_s=2.5, options=options or {}),)
    return compose(spec, Schedule(faults=faults))


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.parametrize(
    "environment",
    [
        pytest.param("local", marks=pytest.mark.postgresql),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_lost_commits_are_survived_and_the_password_is_nowhere(tmp_path, monkeypatch, passwords, environment):
    """Each takes some 25 s: a server is made, and the schedule takes its time."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    talk = io.StringIO()
    # On a busy machine a broker may commit a few times only while the fault lasts: most of these
    # must be hit.
    options = {"chance": 0.8, "committed": 0.5}
    composed = _composed(environment, "HA11-disconnect", "database-disconnect", options=options)
    outcome = session.execute(composed, tmp_path / "store", talk)
    assert outcome.verdict.valid is True, talk.getvalue()
    control = json.loads((outcome.store / "findings.json").read_text())
    assert control["valid"] is True
    assert "database-disconnect-1" in talk.getvalue()
    assert "took effect" in talk.getvalue()
    assert (outcome.store / "logs" / "database" / "postgresql.log").stat().st_size
    (password,) = passwords
    assert len(password) == 32
    files = [path for path in outcome.store.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if password.encode() in path.read_bytes()] == []
    assert password not in talk.getvalue()


@pytest.mark.usefixtures("equipped")
def test_a_fault_of_the_database_brings_a_server_where_the_person_left_its_kind_open():
    nodes = _composed("local", "HA11-stall", "database-stall").nodes
    assert {node.database.type for node in nodes} == {"postgresql"}
    nodes = _composed("local", "HA11-stall").nodes
    assert {node.database.type for node in nodes} == {""}


@pytest.mark.usefixtures("equipped")
def test_a_server_may_be_asked_for_whatever_the_place_has():
    """A broker that is stopped within a commit keeps a file of SQLite locked.

    Rows that pause brokers need a server, in a simulated world too.
    """
    asked = {"database": {"type": "server"}}
    assert {n.database.type for n in _composed("local", "HA11-stall", properties=asked).nodes} == {
        "postgresql"
    }
    assert _composed("simulation", "HA11-stall", properties=asked).environment.virtual


@pytest.mark.usefixtures("equipped")
@pytest.mark.parametrize(
    ("environment", "properties", "words"),
    [
        (
            "local",
            {"database": {"type": "sqlite"}},
            "the database of this test is a file, which no fault can stop",
        ),
        (
            "local",
            {"*": {"database-store.url": "postgresql://db/x"}},
            "is a server of yours, which is not broken",
        ),
        (
            "local",
            {"database": {"type": "oracle"}},
            "database:type=oracle: it must be postgresql, server or sqlite",
        ),
        ("local", {"database": {"typ": "sqlite"}}, 'database:typ: unknown property: did you mean "type"?'),
        (
            "simulation",
            {"database": {"type": "postgresql"}},
            "a simulated world has a database server of its own",
        ),
        (
            "local",
            {"database": {"type": "postgresql"}, "a1": {"database-store.url": "sqlite:x"}},
            "has a database-store.url of its own",
        ),
    ],
)
def test_a_database_that_cannot_be_had_or_broken_is_refused_by_name(environment, properties, words):
    with pytest.raises(UsageError, match=words):
        _composed(environment, "HA11-stall", "database-stall", properties=properties)


@pytest.mark.usefixtures("equipped")
def test_scenarios_of_claims_take_settings_as_a_test_does():
    scenario = named("HA1").with_settings(["database:type=postgresql"])
    assert {
        node.database.type
        for node in compose(
            msgspec.structs.replace(scenario.spec, environment="local"), scenario.schedule
        ).nodes
    } == {"postgresql"}
    assert named("HA1").with_settings([]) == named("HA1")


@pytest.mark.usefixtures("equipped")
def test_a_row_that_cannot_be_had_here_is_undecided_and_says_why(tmp_path):
    scenario = named("HA11-stall").with_settings(["database:type=sqlite"])
    ran = once(scenario, "local", 0, tmp_path)
    assert ran.undecided
    assert ran.problem.startswith("could not be run: database-stall: the database of this test is a file")
