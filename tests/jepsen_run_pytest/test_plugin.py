"""The pytest plugin in the runs of a user: what passes, what fails and what the failure says."""

import io
import json
import re
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from harness.history import store as stores
from jepsen_run_pytest import program
from jepsen_run_pytest.fixtures import RunSpec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/pytest.md").read_text(encoding="utf-8")
pytest_plugins = "pytester"

EVENTS = """
def events(receivers):
    yield {"time": 0, "process": "p", "type": "invoke", "f": "send", "message": "order-1"}
    yield {"time": 1, "process": "p", "type": "ok", "f": "send", "message": "order-1"}
    for number, receiver in enumerate(receivers):
        yield {"time": 2 + number, "process": receiver, "type": "ok", "f": "receive", "message": "order-1"}
"""


@pytest.fixture
def user(pytester, monkeypatch):
    """Runs tests of a user, who has the plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # this tree may be installed, too
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(code, *options, subprocess=False):
        pytester.makepyfile(textwrap.dedent(code))
        runs = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
        return runs("-p", "jepsen_run_pytest.plugin", *options)

    return run


@pytest.mark.slow
def test_a_broken_cluster_fails_the_test_with_the_story_the_report_and_the_command(user, pytester):
    """A real run, two seconds in the simulation, in which both brokers of a pair are live."""
    (example,) = re.findall(r"```python\n(def test_.*?pair.*?)```", PAGE, re.DOTALL)
    ran = user(example.replace("time_limit_s=15", "time_limit_s=8, rate=20"), "--jepsen-run-store", "kept")
    ran.assert_outcomes(failed=1)
    (said,) = re.findall(r"^E +AssertionError: (.*?)\n\n", ran.stdout.str(), re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("E").strip() for line in said.splitlines()]
    assert re.fullmatch(r"INVALID  replication-partition: split-brain \(1\), .*", lines[0])
    assert lines[1].startswith("split-brain x 1 (grave): a1 and a2 were live under one node ID")
    named = dict(line.split(maxsplit=1) for line in lines if line.startswith(("Story", "Report", "Again")))
    assert "both were live for certain under node ID" in named["Story"]
    assert Path(named["Report"]).is_file()
    assert " --policy replication --pairs 1 --environment simulation" in named["Again"]
    assert (pytester.path / "kept" / stores.OVERVIEW).is_file()
    assert "fixtures.py" not in ran.stdout.str()  # the place that is shown is the user's assertion


@pytest.mark.slow
def test_histories_of_a_user_pass_or_fail_and_are_not_changed(user, pytester):
    """Three processes that judge a history of four events."""
    ran = user(
        EVENTS
        + """
def test_valid(check_history, assert_valid):
    assert_valid(check_history(events(["c1"]), drained=True))

def test_duplicate(check_history, assert_valid):
    assert_valid(check_history(events(["c1", "c2"]), drained=True, name="orders"))

def test_a_run_that_is_kept(check_history, jepsen_run_store):
    run = next(jepsen_run_store.glob("orders/2*"))
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert check_history(run, guarantee="exactly-once").valid is False
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
"""
    )
    ran.assert_outcomes(passed=2, failed=1)
    ran.stdout.fnmatch_lines([
        "E*AssertionError: INVALID  orders: duplicate (1)", "E*duplicate x 1 (grave): *order-1*",
        "E*Story   *order-1*", "E*Report  */orders/*/report.html", "E*Again   * check */orders/*",
    ])  # fmt: skip


def test_an_unknown_verdict_fails_or_is_skipped_with_its_reason_and_never_passes(user):
    ran = user(
        """
        from checkers import Verdict

        UNKNOWN = Verdict(valid=None, reasons=("no fault took effect", "the disk was full"))

        def test_unknown(assert_valid):
            assert_valid(UNKNOWN)

        def test_may_be_unknown(assert_valid):
            assert_valid(UNKNOWN, may_be_unknown=True)

        def test_invalid_is_not_unknown(assert_valid):
            assert_valid(Verdict(valid=False), may_be_unknown=True)
        """,
        "-rs",
    )
    ran.assert_outcomes(failed=2, skipped=1)
    ran.stdout.fnmatch_lines(
        ["E*AssertionError: UNKNOWN  history: no fault took effect", "E*the disk was full"]
    )
    ran.stdout.fnmatch_lines(["SKIPPED * UNKNOWN  history: no fault took effect"])


@pytest.mark.slow
def test_an_accepted_finding_passes_if_nothing_else_is_in_doubt(user, pytester):
    (pytester.path / "known.toml").write_text(
        '[[finding]]\nkind = "duplicate"\nsystem = "imported"\nwhy = "ours"\nuntil = 2999-01-01\n'
    )
    ran = user(
        EVENTS
        + """
import dataclasses, pytest
from harness.history.known import Review

def test_known(check_history, assert_valid):
    outcome = check_history(events(["c1", "c2"]), drained=True, known="known.toml")
    assert outcome.valid is False
    assert_valid(outcome)
    outcome = dataclasses.replace(outcome, known=Review(known=False, findings=outcome.known.findings))
    with pytest.raises(AssertionError):
        assert_valid(outcome)
    assert_valid(outcome, may_be_unknown=True)
    pytest.fail("it is skipped before")
"""
    )
    ran.assert_outcomes(skipped=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ('run_spec(nemesis="kill")', 'a test has no field "nemesis": did you mean "nemeses"?*'),
        ('run_spec(drain_at="a1, d1", environment="simulation")', "--drain-at d1: there is no node d1;*"),
        ('run_spec(nemeses="kil", environment="simulation")', 'unknown nemesis "kil": did you mean "kill"?*'),
        ('check_history([{"time": object()}])', "event 1: it cannot be written as JSON: *"),
        ('check_history([{"time": 0}])', 'event 1: it has no "process": each has time, process, type and f'),
        ('check_history("nowhere.jsonl")', "nowhere.jsonl cannot be read: No such file or directory"),
        ('check_history(".")', ". has no history in it: *"),
        (
            'check_history(".", drained=True)',
            ". is a run, which already records how it ended: omit --drained",
        ),
    ],
)
def test_wrong_arguments_are_one_line(user, call, problem):
    ran = user(f"""
        def test_wrong(run_spec, check_history):
            {call}
        """)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([f"E*JepsenRunError: {problem}"])
    assert "fixtures.py" not in ran.stdout.str()  # what is shown is the user's line


def test_who_does_not_use_it_loads_nothing_of_it(user):
    """By what is imported, in a process of its own: not even msgspec, and never Spark."""
    ran = user(
        """
        import sys

        def test_of_somebody_else():
            ours = ("broker", "checkers", "environments", "harness", "nemesis", "jepsen_run_pytest")
            others = ("msgspec", "pyarrow", "pyspark", "pandas")
            loaded = {name for name in sys.modules if name.partition(".")[0] in (*ours, *others)}
            assert loaded == {"jepsen_run_pytest", "jepsen_run_pytest.plugin"}
        """,
        subprocess=True,
    )
    ran.assert_outcomes(passed=1)


@pytest.mark.slow
def test_an_interrupted_test_ends_its_run_in_order(tmp_path, monkeypatch):
    """The run would take minutes; it is told to end when its first broker is live."""

    class Terminal(io.StringIO):
        def write(self, text):
            if "live" in text:
                raise KeyboardInterrupt

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ended = []
    sent = program.subprocess.Popen.wait
    monkeypatch.setattr(
        program.subprocess.Popen, "wait", lambda self, *a, **k: ended.append(sent(self, *a, **k)) or ended[-1]
    )
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyboardInterrupt):
        RunSpec(tmp_path)(environment="simulation", time_limit_s=100_000, seed=1)
    assert ended[-1] == 130
    (record,) = tmp_path.glob("*/2*/run.json")
    assert json.loads(record.read_text())["state"] == "interrupted"


def test_pytest_finds_the_plugin_of_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert hasattr(import_module(module), "assert_valid")
    assert module.partition(".")[0] in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert not any("pytest" in requirement for requirement in project["project"]["dependencies"])


def test_what_the_page_shows_is_what_there_is():
    """Every code block is Python with fixtures that exist, and all fixtures are on the page."""
    plugin = import_module("jepsen_run_pytest.plugin")
    fixtures = {
        name for name in dir(plugin) if type(getattr(plugin, name)).__name__ == "FixtureFunctionDefinition"
    }
    assert fixtures == {"assert_valid", "check_history", "jepsen_run_store", "run_spec"}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        compile(code, "pytest.md", "exec")
        for arguments in re.findall(r"def test_\w+\((.*)\)", code):
            assert {*arguments.split(", ")} <= {*fixtures, "pytest", "seed"}
    assert {*re.findall(r"`(\w+)`", PAGE)} >= fixtures
