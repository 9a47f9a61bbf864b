"""STOMP clients of others, as their users have them, against a real broker: node over WebSocket and TCP, and Spring.

Where node, Java or the packages are missing (``.ci/install-clients`` brings them) a test is skipped by name.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from brokers import BOUND_S, Brokerd
from needs import need

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent / "foreign_clients"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
PACKAGES = Path(os.environ.get("JEPSEN_RUN_CLIENTS", CACHE / "jepsen-run" / "clients"))
CHECKS = [
    "receipts",
    "ack auto",
    "ack client",
    "ack client-individual and nack",
    "transactions",
    "heart-beats",
    "bodies with NUL",
    "escapes",
    "20 MB",
]


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    broker = Brokerd(tmp_path_factory.mktemp("brokerd"), **{"acceptor.max-body-bytes": 32 * 1024 * 1024})
    yield broker.port
    assert broker.stop() == 0
    assert not any("internal error" in line or "Traceback" in line for line in broker.lines), broker.lines


def run(program, wanted, arguments, **environment):
    """What the client said, line by line; it must end well."""
    lack = "" if shutil.which(program) else f"{program} is not installed"
    if not lack and not (PACKAGES / wanted).exists():
        lack = f"{PACKAGES / wanted} is missing: run .ci/install-clients"
    need("CLIENTS", lack)
    done = subprocess.run(
        [program, *arguments],
        cwd=HERE,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=3 * BOUND_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines()


def in_node(*arguments):
    return run("node", "node_modules", arguments, NODE_PATH=str(PACKAGES / "node_modules"))


def passed(lack=(), version="1.2"):
    """The lines of a client that can do all but what it says it cannot."""
    lacks = dict(lack)
    return [
        f"version {version}",
        *(f"cannot {check}: {lacks[check]}" if check in lacks else f"passed {check}" for check in CHECKS),
    ]


def test_stompjs_over_websocket(port):
    assert in_node("stompjs.cjs", str(port), "web", "-") == passed()


def test_stompjs_over_tcp_in_1_1(port):
    lack = {"escapes": "the client has no escapes in this version"}
    assert in_node("stompjs.cjs", str(port), "tcp", "1.1") == passed(lack, version="1.1")


def test_stompit(port):
    assert in_node("stompit.cjs", str(port)) == passed()


def test_spring_messaging(port):
    lack = {"transactions": "Spring's StompSession has no BEGIN"}
    assert run("java", "java", ["-cp", f"{PACKAGES}/java/*", "Spring.java", str(port)]) == passed(lack)
