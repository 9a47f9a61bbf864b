"""What those who have not logged in may cost, and may write into the log."""

import functools
import resource
import socket
import subprocess
from pathlib import Path

import pytest
from brokers import Raw, until

pytestmark = pytest.mark.cluster


def _stranger(broker):
    return Raw(broker.port, connect=False)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            b"SEND\ndestination:q\ncontent-length:16000000\n\n",
            "content-length 16000000 is above the limit of 1024 bytes",
        ),
        (b"SEND\ndestination:q\n\n" + b"x" * 20_000, "a body is longer than 1024 bytes"),
        (
            b"CONNECT\n" + b"".join(b"h%d:x\n" % n for n in range(4000)),
            "headers of a frame are longer than 16384 bytes",
        ),
        (b"CONNECT\n" + b"".join(b"h%d:x\n" % n for n in range(33)) + b"\n\0", "more than 32 headers"),
    ],
)
def test_only_small_frames_are_kept_before_login(shared, sent, text):
    raw = _stranger(shared)
    raw.bytes(sent)
    error = raw.error()
    assert error.startswith("before CONNECTED: ")
    assert text in error


def test_what_is_sent_in_one_piece_with_connect_has_the_limits_of_a_client(shared, queue):
    raw = _stranger(shared)
    big = b"SEND\ndestination:%b\nreceipt:r\n\n%b\0" % (queue.encode(), b"x" * 90_000)
    raw.bytes(b"\n\nCONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:secret\n\n\0\n" + big)
    raw.read("CONNECTED")
    raw.receipt("r")


def test_the_oldest_of_too_many_who_do_not_log_in_is_cut_and_a_client_comes_in(brokerd):
    broker = brokerd(**{"acceptor.max-connecting": 3})
    raws = [_stranger(broker) for _ in range(5)]
    assert [raws[n].frame()[0] for n in range(2)] == ["EOF", "EOF"]
    known = [Raw(broker.port) for _ in range(5)]
    for raw in known:
        raw.publish("m")
    assert any("acceptor.max-connecting" in line for line in broker.lines)


def test_bad_sessions_leave_a_few_lines_and_nothing_unprintable(brokerd):
    broker = brokerd()
    for _ in range(200):
        raw = _stranger(broker)
        raw.send("CONNECT", {"accept-version": "9\x1b[2J\x85", "host": "h"})
        raw.error()
    assert len(broker.lines) < 40
    assert any("\\x1b[2J" in line for line in broker.lines)
    assert all(line.rstrip("\n").isprintable() for line in broker.lines)
    until(
        lambda: any("more warnings like these" in line for line in broker.lines), "the line that counts them"
    )


def test_strangers_never_take_the_last_open_file(brokerd, monkeypatch):
    files = 256
    limited = functools.partial(
        subprocess.Popen, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    )
    monkeypatch.setattr(subprocess, "Popen", limited)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        cluster = one.getsockname()[1]
    broker = brokerd(
        **{"cluster.port": cluster, "cluster.host": "127.0.0.1", "cluster.cluster-password": "p",
           "cluster.connector": "a1:1", "cluster.stomp-connector": "a1:2"}
    )  # fmt: skip
    client = Raw(broker.port)
    strangers = [
        socket.create_connection(("127.0.0.1", port)) for port in (broker.port, cluster) for _ in range(files)
    ]
    client.publish("m")
    client.publish("x" * 400_000)
    another = Raw(broker.port)
    another.publish("m")
    assert len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir())) < files - 40
    for why in (
        "more than 128 connections, all that the limit on open files leaves",
        "more than 64 connections without a proof",
    ):
        assert any(why in line for line in broker.lines)
    for one in strangers:
        one.close()


# ---- who may come in where no users are set

OPEN = "every client that can reach"


@pytest.mark.parametrize(
    ("properties", "host", "warned"),
    [
        ({"acceptor.users": None}, "127.0.0.1", False),
        (
            {"acceptor.users": None, "acceptor.host": "0.0.0.0", "broker.security-enabled": False},
            "0.0.0.0",
            True,
        ),
        ({}, "0.0.0.0", False),
    ],
)
def test_without_users_only_this_machine_is_served_unless_told_otherwise_with_a_warning(
    brokerd, properties, host, warned
):
    broker = brokerd(**{"acceptor.host": None, **properties})
    assert sum(OPEN in line for line in broker.lines) == warned
    assert f"serving STOMP on {host}:" in broker.lines[-1]
    Raw(broker.port).publish("m")
