"""STOMP clients of others, as their users have them, against a real broker.

Node over WebSocket and TCP, and Spring.

Where node, Java or the packages are missing (``.ci/install-clients`` brings them) a test is skipped
by name.
"""

import os
import subprocess
from pathlib import Path

import pytest
from brokers import BOUND_S, Brokerd
from packages import JARS, NODE_MODULES, need_client

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent / "foreign_clients"
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


def run(*command, **environment):
    """What the client said, line by line; it must end well."""
    done = subprocess.run(
        command,
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
    need_client("node", NODE_MODULES)
    return run("node", *arguments, NODE_PATH=str(NODE_MODULES))


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
    need_client("javac", JARS)
    lack = {"transactions": "Spring's StompSession has no BEGIN"}
    assert run("java", "-cp", f"{JARS}/*", "Spring.java", str(port)) == passed(lack)
