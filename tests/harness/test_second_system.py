"""A system under test is one folder and one line of the registry: a second one, of the tests' own,
runs without anything else knowing of it.
"""

import json

import pytest
from second_system import MissingSystem, SecondSystem, UntriedSystem

from checkers import api
from checkers.starting import Starting
from harness.commands import cli
from harness.interface import Cautioning, InProcess, Installed, Portable, Steered, Viewed
from harness.systems import registry
from harness.systems.own.system import OwnSystem


@pytest.fixture
def echo(monkeypatch, capsys):
    """Runs a command line with the second system registered: (status, output, errors)."""
    monkeypatch.setitem(registry.SYSTEMS, "echo", "second_system:SecondSystem")
    monkeypatch.setitem(registry.SYSTEMS, "absent", "second_system:MissingSystem")

    monkeypatch.setattr(api, "start_in_background", lambda master, wanted: Starting(master, wanted=False))

    def run(*words):
        status = cli.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


PROGRAMS = "brokers of system echo are real programs, which cannot run in virtual time"
LOCAL = (
    "--system", "echo", "--policy", "alone", "--environment", "local", "--pairs", "2", "--seed", "1",
    "--rate", "40", "--producers", "2", "--consumers", "3", "--groups", "4",
)  # fmt: skip


@pytest.mark.cluster
def test_a_run_goes_its_whole_way(echo, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.SYSTEMS, "echo", "second_system:UntriedSystem")
    status, out, err = echo("test", *LOCAL, "--time-limit", "3", "--store", str(tmp_path))
    assert status == 0, out + err
    assert "--system echo --policy alone" in out
    assert "\nwarning: echo 1.2 with 2 brokers is untried\n" in out
    store = tmp_path / "latest"
    assert json.loads((store / "spec.json").read_text())["system"] == "echo"
    assert (store / "logs/a1/broker.log").read_text() == "listening a1\n"
    report = (store / "report.html").read_text()
    assert "System echo, policy alone" in report
    assert '<p class="lead">warning: echo 1.2 with 2 brokers is untried</p>' in report
    assert echo("check", str(store))[0] == 0


@pytest.mark.cluster
def test_a_broker_that_keeps_nothing_is_found_out(echo, tmp_path):
    """Its memory dies with it."""
    status, out, err = echo(
        "test", *LOCAL, "--nemesis", "kill", "--time-limit", "8", "--interval", "2", "--duration", "1",
        "--hold", "0.5", "--workload", "queue", "--store", str(tmp_path),
    )  # fmt: skip
    assert status == 1, out + err
    assert "lost" in out


@pytest.mark.cluster
def test_a_sweep_of_deployed_brokers_tables_its_runs_and_goes_on(echo, tmp_path):
    words = (
        "sweep", "--system", "echo", "--policy", "alone", "--environment", "local", "--nemesis", "kill",
        "--pairs", "2", "--time-limit", "5", "--seed", "2",
    )  # fmt: skip
    status, out, err = echo(*words, "--runs", "1", "--store", str(tmp_path))
    assert status == 1, out + err
    (store,) = (path for path in (tmp_path / "sweep-alone-kill").iterdir() if not path.is_symlink())
    (run,) = json.loads((store / "table.json").read_text())["runs"]
    assert run["ended"] == "invalid"
    assert (run["bit"], run["exposed"], run["complete"]) == (True, True, True)
    assert "lost" in run["grave"]  # their memory dies with them
    assert "lost" in out
    (made,) = (store / "runs").glob("run-*.json")
    assert (store / json.loads(made.read_text())["store"] / "report.html").is_file()

    before = made.read_bytes()
    assert echo("sweep", "--resume", str(store), "--runs", "2")[0] == 1
    table = json.loads((store / "table.json").read_text())
    assert [each["number"] for each in table["runs"]] == [0, 1]
    assert made.read_bytes() == before  # what is there is not made again
    assert "jepsen-run --spec" in table["worst"][0]["again"]


def test_the_list_is_of_one_system(echo):
    status, out, _ = echo("list", "--system", "echo", "--json")
    told = json.loads(out)
    assert told["systems"]["absent"]["problem"] == "no distribution: set ECHO_HOME"
    assert (status, list(told["systems"]), list(told["policies"])) == (
        0,
        [*registry.SYSTEMS],
        ["alone"],
    )
    assert told["nemeses"]["takeover"]["policies"] == []
    assert told["nemeses"]["kill"]["environments"]["local"] == ""
    assert "are real programs" in told["nemeses"]["kill"]["environments"]["simulation"]
    assert "are real programs" in told["environments"]["simulation"]["problem"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--system", "ecko"), 'unknown system "ecko": did you mean "echo"?'),
        (
            ("--system", "echo", "--policy", "replication"),
            'unknown policy "replication": system echo has alone',
        ),
        (
            ("claims", "RP1", "--system", "echo"),
            'unknown policy "replication": system echo has alone',
        ),
        (
            ("claims", "RP1", "--refute", "--system", "echo"),
            "--refute cannot be combined with --system: refuters change the broker of own",
        ),
        (
            ("--system", "echo", "--policy", "alone", "--environment", "simulation"),
            PROGRAMS,
        ),
        (
            ("search", "--system", "echo", "--policy", "alone"),
            PROGRAMS,
        ),
        (
            ("sweep", "--system", "echo", "--policy", "alone"),
            PROGRAMS,
        ),
        (
            ("--system", "echo", "--policy", "alone", "--environment", "local", "--nemesis", "takeover"),
            "takeover: only brokers",
        ),
        (
            ("sweep", "--system", "absent", "--policy", "alone", "--environment", "local"),
            "system absent: no distribution: set ECHO_HOME",
        ),
        (
            ("--system", "absent", "--policy", "alone", "--environment", "local"),
            "system absent: no distribution: set ECHO_HOME",
        ),
    ],
)
def test_what_it_cannot_do_is_one_line(echo, tmp_path, words, complaint):
    status, out, err = echo(*words, "--store", str(tmp_path))
    assert (status, out) == (254, "")
    assert err.startswith("jepsen-run: ")
    assert err.count("\n") == 1
    assert complaint in err


def test_what_only_some_have_is_asked_of_a_protocol():
    optional = (InProcess, Installed, Portable, Steered, Viewed, Cautioning)
    assert [isinstance(OwnSystem(), each) for each in optional] == [True, False, False, True, True, False]
    assert [isinstance(SecondSystem(), each) for each in optional] == [False] * 6
    assert isinstance(UntriedSystem(), Cautioning)
    assert isinstance(MissingSystem(), Installed)
