"""What all tests share.

Container tests say by name why they do not run, and where they must run, fail instead.

A property is about what comes out, never about how long it took: on a loaded machine an example may
take any time.
"""

import functools
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import share
from hypothesis import HealthCheck, settings
from needs import OF_THE_MACHINE, need, need_distribution, ssh_missing

from environments import ganesha
from environments.docker.engine import engine_answers
from environments.postgresql import program
from filesystems.fuse import device as fuse_device
from harness.systems import runtime

# Before anything imports them: tests of other directories use some of them, too.
pytest.register_assert_rewrite(
    "stateful.queue_machine", "stateful.queue_model", "stateful.session_machine", "stateful.pipe"
)

_lack_of_java = runtime.lack_of_java

settings.register_profile(
    "any machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


# The tests start hundreds of processes, and each would compile all of the project again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = "side_by_side"


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        choices=[share.ALL, *share.SHARES],
        help="of what is tried in turn (mutants, scenarios once more); default: this commit's",
    )


def pytest_configure(config):
    if config.option.share is None:  # workers of xdist are given what was chosen here
        config.option.share = share.of_commit()
    # A shell lets a command in the background ignore interrupts, and all programs that it starts.
    # Tests interrupt such programs, and would wait for them in vain.
    signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).parent
HALF = ("broker", "environments")
"""Directories that together have half of all lines of tests."""


def pytest_sessionstart(session):
    """Have the assertions of all tests rewritten once, before each worker of xdist would do it.

    On a fresh clone that takes some ten seconds of processor time.
    """
    if getattr(session.config.option, "numprocesses", None) and not any(TESTS.glob("*/__pycache__")):
        others = sorted({each.relative_to(TESTS).parts[0] for each in TESTS.rglob("test_*.py")} - {*HALF})
        collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        halves = [
            subprocess.Popen([*collect, *half], cwd=TESTS, stdout=subprocess.DEVNULL)
            for half in (HALF, others)
        ]
        for half in halves:
            half.wait()  # what cannot be collected is told by the workers


SLOW = {"mutants", "scenarios", "stateful"}
"""Directories whose tests simulate whole clusters, and are all marked as slow."""


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(config, items):
    """Mark slow tests; leave what other commits try to them, unless it was asked for by name."""
    for item in items:
        if "spark" in item.fixturenames or not SLOW.isdisjoint(item.nodeid.split("/")):
            item.add_marker(pytest.mark.slow)
    if not any("::" in argument for argument in config.args):
        others = share.left_to_others(config.option.share, items)
        config.hook.pytest_deselected(items=[*others])
        items[:] = [item for item in items if item not in others]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected is no garbage, and lives to the end: nobody need look for some in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    if config.option.share != share.ALL:
        rows = "" if share.in_ci() else ", of the rows of the claims"
        terminalreporter.write_line(
            f"Share {config.option.share} of the mutants{rows}"
            " and of the tests that are tried in turn: each commit has the next, --share=all tries all"
        )


@functools.cache
def _engine_missing():
    answers, reason = engine_answers()
    return "" if answers else reason


@pytest.fixture(autouse=True)
def unequipped(request, monkeypatch):
    """A test that does not say what it needs finds nothing of it here, as it may elsewhere."""
    if not any(mark.name in OF_THE_MACHINE for mark in request.node.iter_markers()):
        for part in (program, ganesha, fuse_device):
            monkeypatch.setattr(part, "missing", lambda: "a test without a marker for it has no such thing")
        monkeypatch.setattr(
            runtime, "lack_of_java", lambda _: "a test without the fixture for it has no Java"
        )


@pytest.fixture
def equipped(unequipped, monkeypatch, tmp_path_factory):
    """As if this machine had Java, PostgreSQL, a file server and FUSE: for who only plans."""
    for part in (program, ganesha, fuse_device):
        monkeypatch.setattr(part, "missing", lambda: "")
    monkeypatch.setattr(runtime, "lack_of_java", _lack_of_java)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = tmp_path_factory.mktemp("bin") / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")


def pytest_runtest_setup(item):
    if item.get_closest_marker("docker") is not None:
        need("DOCKER", _engine_missing)
    if item.get_closest_marker("fuse") is not None:
        need("NFS", fuse_device.missing)  # the machines that have file servers have FUSE
    if item.get_closest_marker("nfs") is not None:
        need("NFS", lambda: ganesha.missing() or fuse_device.missing())
    if item.get_closest_marker("postgresql") is not None:
        need("POSTGRESQL", program.missing)
    if item.get_closest_marker("ssh") is not None:
        need("SSH", ssh_missing)
    if (distribution := item.get_closest_marker("distribution")) is not None:
        need_distribution(*distribution.args)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Results are wrapped at the width of the terminal; tests of that set their own."""
    monkeypatch.setenv("COLUMNS", "1000")
