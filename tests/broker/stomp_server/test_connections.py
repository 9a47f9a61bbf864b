"""Life of connections and brokers: heart-beats, silence, full queues, slow readers, kill -9."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from brokers import BOUND_S, Brokerd, Raw, until
from web import Web
from wsproto.events import BytesMessage

pytestmark = pytest.mark.cluster


def test_the_broker_beats_as_agreed(brokerd):
    raw = Raw(brokerd().port, heart_beat="0,200")
    assert raw.connected[0]["heart-beat"] == "100,100"
    beats = b""
    while len(beats) < 5:
        beats += raw.socket.recv(100)
    assert beats == b"\n" * len(beats)


def test_silence_beyond_the_agreed_heart_beat_ends_the_connection_and_frees_its_messages(brokerd):
    broker = brokerd()
    silent = Raw(broker.port, heart_beat="1500,0")
    silent.publish("m")
    silent.subscribe()
    silent.message()
    other = Raw(broker.port)
    other.subscribe()
    text, headers = other.message()
    assert (text, headers["redelivered"]) == ("m", "true")
    assert "time to live" in silent.error()


def test_the_connection_ttl_holds_whatever_was_agreed(brokerd):
    broker = brokerd(**{"acceptor.connection-ttl": 2000})
    silent = Raw(broker.port)
    assert "time to live" in silent.error()


def test_without_heart_beats_the_system_finds_out_who_is_gone():
    from broker.stomp.keepalive import keep_alive

    with socket.socket() as one:
        keep_alive(one, 60_000)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count, unconfirmed_ms = (
            one.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert idle + interval * count == 60
        assert unconfirmed_ms == 60_000


def test_the_connections_of_a_broker_are_kept_alive_as_it_is_told(brokerd):
    broker = brokerd(**{"acceptor.keep-alive": 4000})
    raw = Raw(broker.port)
    raw.publish("m")

    def timer():
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        (found,) = [row[5] for row in rows if row[1].endswith(f":{broker.port:04X}") and row[3] == "01"]
        kind, _, due = found.partition(":")
        return int(kind, 16), int(due, 16)

    until(lambda: timer()[0] == 2, "a keepalive timer")
    assert timer()[1] <= 200  # hundredths of seconds: half of four


def test_a_broker_that_was_stopped_for_a_while_does_not_cut_clients_that_spoke(brokerd):
    """openmq 69: load hides heart-beats."""
    ttl_s = 2.0
    broker = brokerd(**{"acceptor.connection-ttl": round(ttl_s * 1000)})
    raw = Raw(broker.port)
    os.kill(broker.process.pid, signal.SIGSTOP)
    end = time.monotonic() + 1.75 * ttl_s
    while time.monotonic() < end:
        raw.bytes(b"\n")
        time.sleep(0.1)
    os.kill(broker.process.pid, signal.SIGCONT)
    raw.publish("alive")


def test_who_does_not_log_in_is_shown_out(brokerd):
    broker = brokerd(**{"acceptor.connect-timeout": 200})
    raw = Raw(broker.port, connect=False)
    assert "no CONNECT within 200 ms" in raw.error()


def test_everything_acknowledged_survives_kill_nine(brokerd):
    broker = brokerd()
    producer, consumer = Raw(broker.port), Raw(broker.port)
    for n in range(50):
        producer.publish(str(n), JMSXGroupID=f"g{n % 3}")
    consumer.subscribe()
    acks = {text: headers["ack"] for text, headers in (consumer.message() for _ in range(50))}
    for n in range(0, 50, 2):
        consumer.send("ACK", {"id": acks[str(n)], "receipt": str(n)})
        consumer.receipt(str(n))
    # In flight at the moment of the crash: any prefix of these may survive, nothing else may happen
    # to them.
    producer.bytes(b"".join(b"SEND\ndestination:/queue/q\n\nlate%d\0" % n for n in range(200)))
    broker.kill()
    broker.start()
    late = Raw(broker.port)
    late.subscribe()
    Raw(broker.port).publish("end")
    got = []
    while not got or got[-1][0] != "end":
        got.append(late.message())
    texts = [text for text, _ in got[:-1]]
    assert texts[:25] == [str(n) for n in range(1, 50, 2)]
    assert texts[25:] == [f"late{n}" for n in range(len(texts) - 25)]
    assert {headers["redelivered"] for _, headers in got[:-1]} == {"true"}
    assert got[-1][1]["redelivered"] == "false"
    stale = acks["1"]
    late.send("ACK", {"id": stale, "receipt": "stale"})
    assert "no message that this connection holds" in late.error()


def test_a_clean_stop_keeps_counts_and_gives_the_last_receipts(brokerd):
    broker = brokerd()
    raw = Raw(broker.port)
    raw.publish("seen")
    raw.subscribe()
    raw.message()
    raw.publish("other", "unseen")
    assert broker.stop() == 0
    assert raw.frame()[0] == "EOF"
    broker.start()
    late = Raw(broker.port)
    late.subscribe()
    late.subscribe("unseen", name="u")
    got = dict(late.message() for _ in range(2))
    assert (got["seen"]["redelivered"], got["seen"]["JMSXDeliveryCount"]) == ("true", "2")
    assert (got["other"]["redelivered"], got["other"]["JMSXDeliveryCount"]) == ("false", "1")
    assert any("after a clean shutdown" in line for line in broker.lines)


# ---- back pressure


def _full(brokerd):
    return brokerd(
        **{"address-settings.#.max-size-bytes": 20_000, "address-settings.#.address-full-policy": "BLOCK"}
    )


def test_a_producer_to_a_full_queue_is_not_read_and_goes_on_when_there_is_room(brokerd):
    broker = _full(brokerd)
    producer, consumer = Raw(broker.port), Raw(broker.port)
    frame = b"SEND\ndestination:/queue/q\nreceipt:r\n\n" + b"x" * 1000 + b"\0"
    producer.socket.settimeout(0.5)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 200_000:
            producer.bytes(frame * 100)
            sent += 100
    producer.socket.settimeout(BOUND_S)
    other = Raw(broker.port)
    other.publish("elsewhere is room", "other")
    consumer.subscribe()
    assert sent > 0
    for _ in range(sent):
        _, headers = consumer.message()
        consumer.send("ACK", {"id": headers["ack"]})


def test_a_connection_that_also_consumes_can_still_acknowledge_when_its_queue_is_full(brokerd):
    broker = _full(brokerd)
    raw = Raw(broker.port)
    raw.subscribe(**{"prefetch-count": "1"})
    body = b"x" * 1000
    for n in range(40):
        raw.send("SEND", {"destination": "/queue/q", "receipt": f"r{n}"}, body)
    receipts, messages, asked = [], 0, []
    while messages < 40 or len(receipts) < 40 + len(asked):
        command, headers, _ = raw.frame()
        assert command in ("RECEIPT", "MESSAGE"), (command, headers)
        if command == "RECEIPT":
            receipts.append(headers["receipt-id"])
        else:
            messages += 1
            name = f"a{messages}"
            asked.append(name)
            raw.send("ACK", {"id": headers["ack"], "receipt": name})
    assert [name for name in receipts if name[0] == "r"] == [f"r{n}" for n in range(40)]
    assert [name for name in receipts if name[0] == "a"] == asked


def test_a_connection_that_consumes_and_floods_is_refused(brokerd):
    broker = _full(brokerd)
    raw = Raw(broker.port)
    raw.subscribe("other")
    frame = b"SEND\ndestination:/queue/q\n\n" + b"x" * 100_000 + b"\0"
    try:
        for _ in range(100):
            raw.bytes(frame)
    except (BrokenPipeError, ConnectionResetError):
        pass
    until(lambda: any("wait for room" in line for line in broker.lines), "the refusal")


def test_a_slow_reader_gets_no_more_than_its_connection_takes(brokerd):
    broker = brokerd()
    slow, quick = Raw(broker.port), Raw(broker.port)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.subscribe(**{"prefetch-count": "100000"}, receipt="s")
    slow.receipt("s")
    producer = Raw(broker.port)
    body = b"x" * 50_000
    for n in range(200):
        producer.send("SEND", {"destination": "/queue/q", "receipt": str(n)}, body)
        producer.receipt(str(n))
    quick.subscribe(**{"prefetch-count": "100000"})
    assert len(quick.message()[0]) == 50_000
    slow.close()
    for _ in range(199):
        quick.message()


@pytest.mark.parametrize("way", ["plain", "by WebSocket", "behind a large body"])
def test_who_asks_for_receipts_and_reads_none_is_read_no_more_until_he_does(shared, queue, way):
    raw = Web(shared.port) if way == "by WebSocket" else Raw(shared.port)
    network = raw.network if way == "by WebSocket" else raw.socket
    if way == "behind a large body":
        raw.publish("x" * 8_000_000, queue)
        raw.subscribe(queue, "client")
        raw.socket.recv(1, socket.MSG_PEEK)  # it has begun
    asked = 1000
    pieces = []
    for number in range(asked):
        begin = f"BEGIN\ntransaction:{number}\nreceipt:{number:07}{'x' * 8000}\n\n\0"
        frame = f"{begin}ABORT\ntransaction:{number}\n\n\0".encode()
        pieces.append(raw.protocol.send(BytesMessage(frame)) if way == "by WebSocket" else frame)
    wire = b"".join(pieces) * (4 if way == "plain" else 3)
    before = _resident(shared)
    sent = 0
    network.settimeout(1)
    with pytest.raises(TimeoutError):
        while sent < len(wire):
            sent += network.send(wire[sent : sent + 65536])
    assert _resident(shared) - before < 16 * 1024 * 1024
    network.settimeout(BOUND_S)
    rest = threading.Thread(target=network.sendall, args=(wire[sent:],))
    rest.start()
    if way == "behind a large body":
        raw.connected_ack = raw.message()[1]["ack"]
    for number in range(asked * (4 if way == "plain" else 3)):
        assert raw.read("RECEIPT")[0]["receipt-id"].startswith(f"{number % asked:07}x")
    rest.join()
    if way == "behind a large body":
        raw.send("ACK", {"id": raw.connected_ack, "receipt": "taken"})
        raw.receipt("taken")
    raw.close()


def _resident(broker):
    return int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- the daemon


def _run(*words):
    return subprocess.run(
        [sys.executable, "-m", "broker.daemon", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[broker]\nname = "a"\n[acceptor]\nprot = 1\n',
            "unknown property 'acceptor.prot'; did you mean 'acceptor.port'?",
        ),
        (
            '[broker]\nname = "a"\n[acceptor]\nport = 70000\n',
            "property 'acceptor.port': expected int <= 65535, got 70000",
        ),
        ("[broker\n", "is not TOML"),
        ("", "property 'broker' is missing"),
    ],
)
def test_a_wrong_configuration_ends_with_254_and_one_line(tmp_path, text, message):
    path = tmp_path / "broker.toml"
    path.write_text(text)
    result = _run("--config", str(path))
    assert result.returncode == 254
    assert message in result.stderr
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("--config",), ("x",), ("--config", "/nowhere/broker.toml")])
def test_wrong_usage_ends_with_254(words):
    assert _run(*words).returncode == 254


def test_a_port_in_use_is_one_line(tmp_path, brokerd):
    broker = brokerd()
    other = tmp_path / "other"
    other.mkdir()
    (other / "broker.toml").write_text(
        f'[broker]\nname = "b"\n[acceptor]\nhost = "127.0.0.1"\nport = {broker.port}\n[admin]\nport = 0\n'
    )
    result = _run("--config", str(other / "broker.toml"))
    assert result.returncode == 1
    assert f"acceptor 127.0.0.1:{broker.port} cannot listen" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_journal_in_use_is_one_line(brokerd):
    broker = brokerd()
    result = _run("--config", str(broker.path))
    assert result.returncode == 1
    assert "in use: another broker" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_journal_is_one_line_with_file_and_offset(brokerd):
    broker = brokerd()
    raw = Raw(broker.port)
    for n in range(20):
        raw.publish("x" * 100 + str(n))
    assert broker.stop() == 0
    segment = min((broker.directory / "data" / "journal").glob("*[0-9]*"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    result = _run("--config", str(broker.path))
    assert result.returncode == 1
    assert "journal damaged" in result.stderr
    assert segment.name in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_passcodes_that_others_can_read_are_warned_of(brokerd, mode):
    broker = brokerd()
    broker.stop()
    broker.lines.clear()
    broker.path.chmod(mode)
    broker.start()
    warned = [
        line
        for line in broker.lines
        if f"others can read {broker.path} (mode 644), and acceptor.users in it: chmod 600" in line
    ]
    assert len(warned) == (mode == 0o644)


def test_log_lines_have_time_level_and_name(brokerd):
    import re

    broker = brokerd()
    broker.stop()
    for line in broker.lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) a1 ", line), line
    assert Brokerd  # the class is what the fixture makes


def test_a_broker_imports_nothing_heavy():
    code = (
        "import sys, broker.daemon, broker.policies.standalone, broker.policies.replication; "
        "print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {
        "click",
        "difflib",
        "docker",
        "jinja2",
        "networkx",
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
        "rich",
    }
    assert not heavy & set(result.stdout.split())


def test_a_long_turn_is_logged_with_frame_destination_and_session(brokerd):
    # DEBUG has every such turn, however many there are.
    properties = {
        "broker.longest-turn": 5,
        "broker.log-level": "DEBUG",
        "acceptor.max-selector-terms": 10_000,
    }
    broker = brokerd(**properties)
    raw = Raw(broker.port)
    wanted = " OR ".join(f"a{number} = 'x'" for number in range(300))
    raw.send("SUBSCRIBE", {"id": "s", "destination": "/queue/large", "selector": wanted, "receipt": "s"})
    raw.receipt("s")
    session = raw.connected[0]["session"]
    named = f"of it were spent on SUBSCRIBE '/queue/large' of session {session} (user 'guest', 127.0.0.1:"
    until(lambda: any(named in line for line in broker.lines), "the line in the log")
