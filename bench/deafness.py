"""How long a broker leaves an honest client without an answer while others attack it.

A real brokerd; a canary in a process of its own, which sends a message every 20 ms and waits for
its receipt; and, one after the other, what a few kilobytes of frames can make a broker do. For each
attack: the canary's slowest round trip, and the longest turn of the broker's event loop, which the
broker logs itself (``broker.longest-turn``). The first line is the broker with the canary alone.

    python -m bench.deafness [--attacks NAME ...] [--secured] [--pair] [--subscriptions 1000]
    [--connections 20]

``--secured``: users, rights and TLS. ``--pair``: with a backup, whose connection-ttl is 4 s; the
bench fails if the backup takes over.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from broker import config

BAR_MS: Final = 250
"""The longest that an honest client may wait."""
LOGGED_TURN_MS: Final = 20
"""A turn of the event loop that is worth a line of the broker's log, in this bench."""
PAUSE_S: Final = 0.02
QUIET_S: Final = 1.0
"""The canary alone, before and after each attack."""
PATIENCE_S: Final = 300.0
SECRET: Final = "cluster-secret"  # noqa: S105 - of brokers that live for a minute

_TURN: Final = re.compile(r"turn of the event loop took (\d+) ms, .*? ran (\d+) .*?meanwhile: (.*)")


# ------------------------------------------------------------------------------------------ clients


class Client:
    """A connection that sends frames and waits for receipts."""

    def __init__(self, port: int, *, secured: bool, user: str = "attacker") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        if secured:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._socket = context.wrap_socket(self._socket)
        self._read = b""
        self.send(frame("CONNECT", {"accept-version": "1.2", "host": "h", "login": user, "passcode": user}))
        self._until(b"CONNECTED")

    def send(self, data: bytes) -> None:
        """Send frames."""
        self._socket.sendall(data)

    def ask(self, data: bytes, receipt: str) -> None:
        """Send frames, and wait for the receipt of that name."""
        self.send(data)
        self._until(f"receipt-id:{receipt}\n".encode())

    def close(self) -> None:
        """Close without a word."""
        self._socket.close()

    def _until(self, wanted: bytes) -> None:
        while wanted not in self._read:
            if b"ERROR\n" in self._read:
                raise SystemExit(f"the broker refused: {self._read[self._read.index(b'ERROR') :][:300]!r}")
            data = self._socket.recv(1 << 20)
            if not data:
                raise SystemExit("the broker closed a connection")
            self._read = self._read[-4096:] + data
        self._read = self._read[self._read.index(wanted) + len(wanted) :]


def frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A frame of STOMP 1.2; nothing in these needs an escape."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def send(destination: str, receipt: str, body: bytes = b"x", **headers: str) -> bytes:
    """A SEND with a receipt."""
    return frame("SEND", {"destination": destination, "receipt": receipt, **headers}, body)


def subscribe(destination: str, number: int, **headers: str) -> bytes:
    """A SUBSCRIBE, whose receipt is its number."""
    return frame(
        "SUBSCRIBE",
        {"id": str(number), "destination": destination, "receipt": f"s{number}", "ack": "client", **headers},
    )


def run_canary(port: int, secured: bool) -> None:
    """Print when each round trip began, and how long it took, in seconds."""
    client = Client(port, secured=secured, user="canary")
    number = 0
    while True:
        began = time.monotonic()
        client.ask(send("/queue/canary", f"c{number}"), f"c{number}")
        print(f"{began} {time.monotonic() - began}", flush=True)
        number += 1
        time.sleep(PAUSE_S)


class Canary:
    """The honest client, in a process of its own."""

    def __init__(self, port: int, *, secured: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.deafness", "--canary", str(port), *["--secured"] * secured],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._trips: list[tuple[float, float]] = []
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def slowest_ms(self, since: float) -> float:
        """The slowest round trip that ended after that moment, the one under way included."""
        end = time.monotonic()
        while not self._trips or self._trips[-1][0] < end:
            if self._process.poll() is not None:
                raise SystemExit("the canary has died: see above")
            if time.monotonic() > end + PATIENCE_S:
                return PATIENCE_S * 1000
            time.sleep(0.01)
        return 1000 * max(took for began, took in self._trips if began + took >= since)

    def end(self) -> None:
        """End its process."""
        self._process.terminate()
        self._process.wait()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            began, took = line.split()
            self._trips.append((float(began), float(took)))


# ------------------------------------------------------------------------------------------ brokers


class Turns(NamedTuple):
    """The longest turn by the clock and by processor time, and what ran in the latter."""

    clock_ms: int
    processor_ms: int
    cause: str


@dataclass
class Broker:
    """A brokerd and what it has logged."""

    name: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    port: int = 0

    def wait_for(self, text: str) -> str:
        """The first line with that text."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            for line in list(self.lines):
                if text in line:
                    return line
            time.sleep(0.01)
        raise SystemExit(f"broker {self.name} never said {text!r}:\n{''.join(self.lines[-20:])}")

    def read(self) -> None:
        """Keep what it logs."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def longest_turns(self, since: int) -> Turns:
        """Return the longest turns logged from that line on."""
        found = [match for line in self.lines[since:] if (match := _TURN.search(line))]
        ran_ms, cause = max(((int(match[2]), match[3]) for match in found), default=(0, ""))
        return Turns(max((int(match[1]) for match in found), default=0), ran_ms, cause)

    def end(self) -> None:
        """End its process."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(directory: Path, name: str, options: argparse.Namespace, more: dict[str, object]) -> Broker:
    """Start a brokerd."""
    home = directory / name
    home.mkdir()
    acceptor: dict[str, object] = {"host": "127.0.0.1", "port": 0}
    table: dict[str, object] = {
        "broker": {"name": name, "longest-turn": LOGGED_TURN_MS, "log-level": "DEBUG"},
        "acceptor": acceptor,
        "admin": {"port": 0},
        **more,
    }
    if options.secured:
        acceptor.update(users={"canary": "canary", "attacker": "attacker"}, **make_certificate(home))
        table["security-settings"] = [
            {"match": "canary", "send": ["canary"]},
            {"match": "attacked.#", "send": ["attacker"], "consume": ["attacker"]},
            {"match": "DLQ"},
            {"match": "ExpiryQueue"},
        ]
    path = home / "broker.toml"
    path.write_text(config.dumps(table), encoding="utf-8")
    path.chmod(0o600)
    process = subprocess.Popen(
        [sys.executable, "-m", "broker.daemon", "--config", str(path)], stderr=subprocess.PIPE, text=True
    )
    broker = Broker(name, process)
    threading.Thread(target=broker.read, daemon=True).start()
    return broker


def make_certificate(home: Path) -> dict[str, object]:
    """Properties of an acceptor with TLS, and what they name."""
    store = home / "store.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=bench", "-keyout", str(store), "-out", str(home / "certificate.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    store.write_text(store.read_text() + (home / "certificate.pem").read_text())
    store.chmod(0o600)
    return {"ssl-enabled": True, "key-store-path": "store.pem"}


@contextlib.contextmanager
def brokers(options: argparse.Namespace) -> Iterator[list[Broker]]:
    """The broker that serves, and its backup if there is one."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        started: list[Broker] = []
        try:
            for name, more in sections(options.pair).items():
                started.append(start(Path(directory), name, options, more))
                if name == "a1":
                    said = started[0].wait_for("serving STOMP on")
                    started[0].port = int(said.rsplit(":", 1)[1])
            if options.pair:
                started[1].wait_for("up to date")
            yield started
        finally:
            for broker in started:
                broker.end()


def sections(pair: bool) -> dict[str, dict[str, object]]:
    """What each broker's configuration has besides."""
    if not pair:
        return {"a1": {}}
    ports = {}
    for name in ("a1", "a2"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[name] = free.getsockname()[1]
    roles = {"a1": "master", "a2": "slave"}
    return {
        name: {
            "cluster": {
                "host": "127.0.0.1",
                "port": ports[name],
                "connector": f"127.0.0.1:{ports[name]}",
                "stomp-connector": f"{name}:61613",
                "static-connectors": [f"127.0.0.1:{port}" for port in ports.values()],
                "cluster-password": SECRET,
                "connection-ttl": 4000,
                "call-timeout": 3000,
            },
            "ha-policy": {"replication": {role: {"group-name": "a"}}},
        }
        for name, role in roles.items()
    }


# ------------------------------------------------------------------------------------------ attacks


@dataclass(frozen=True)
class Attack:
    """What is prepared while nobody measures, and what is then done at once."""

    what: str
    begin: Callable[[Callable[[], Client], argparse.Namespace], Callable[[], None]]


def big_selector(number: int) -> str:
    """Nearly as many characters and terms as a selector may have; no other number has the same."""
    text = f"a{number} = 'x'"
    for other in range(98):
        text += f" OR a_header_with_a_long_name_{other:03} = 'y'"
    return text


def selectors(distinct: bool) -> Callable[..., Callable[[], None]]:
    """Many selectors on a topic, then a hundred SENDs."""

    def begin(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
        client = connect()
        for number in range(options.subscriptions):
            client.send(
                subscribe("/topic/attacked.t", number, selector=big_selector(number if distinct else 0))
            )
        client.ask(b"", f"s{options.subscriptions - 1}")
        frames = b"".join(send("/topic/attacked.t", f"r{number}") for number in range(100))

        def attack() -> None:
            client.ask(frames, "r99")
            client.close()

        return attack

    return begin


def selected_transaction(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
    """Many selectors on a topic, then a transaction of a hundred SENDs."""
    client = connect()
    for number in range(options.subscriptions):
        client.send(subscribe("/topic/attacked.t", number, selector=big_selector(number)))
    client.ask(b"", f"s{options.subscriptions - 1}")
    frames = frame("BEGIN", {"transaction": "t"})
    frames += b"".join(send("/topic/attacked.t", f"r{number}", transaction="t") for number in range(100))
    frames += frame("COMMIT", {"transaction": "t", "receipt": "committed"})

    def attack() -> None:
        client.ask(frames, "committed")
        client.close()

    return attack


def compiling(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
    """As many selectors, one behind the other."""
    client = connect()
    frames = b"".join(
        subscribe("/topic/attacked.t", number, selector=big_selector(number))
        for number in range(options.subscriptions)
    )

    def attack() -> None:
        client.ask(frames, f"s{options.subscriptions - 1}")
        client.close()

    return attack


def selecting_consumers(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
    """Many consumers of a queue whose selectors never match, then a hundred messages."""
    client = connect()
    for number in range(options.subscriptions):
        client.send(subscribe("/queue/attacked.q", number, selector=big_selector(number)))
    client.ask(b"", f"s{options.subscriptions - 1}")
    frames = b"".join(send("/queue/attacked.q", f"r{number}") for number in range(100))

    def attack() -> None:
        client.ask(frames, "r99")
        time.sleep(5)
        client.close()

    return attack


def one_commit(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
    """Many subscriptions to a topic of each connection; a message to each in one transaction."""
    clients = [connect() for _ in range(options.connections)]
    for place, client in enumerate(clients):
        for number in range(options.subscriptions):
            client.send(subscribe(f"/topic/attacked.{place}", number))
        client.ask(b"", f"s{options.subscriptions - 1}")
    sender = connect()
    frames = [
        send(f"/topic/attacked.{place}", f"r{place}", b"x", transaction="t") for place in range(len(clients))
    ]

    def attack() -> None:
        commit = frame("COMMIT", {"transaction": "t", "receipt": "committed"})
        sender.ask(b"".join((frame("BEGIN", {"transaction": "t"}), *frames, commit)), "committed")
        for client in (*clients, sender):
            client.close()

    return attack


def closing(destination: str) -> Callable[..., Callable[[], None]]:
    """Many connections with many subscriptions, closed together; "{}" is a connection's number."""

    def begin(connect: Callable[[], Client], options: argparse.Namespace) -> Callable[[], None]:
        clients = [connect() for _ in range(options.connections)]
        for place, client in enumerate(clients):
            named = destination.format(place)
            client.send(b"".join(subscribe(named, number) for number in range(options.subscriptions)))
        for client in clients:
            client.ask(b"", f"s{options.subscriptions - 1}")

        def attack() -> None:
            for client in clients:
                client.close()

        return attack

    return begin


def many_queues(connect: Callable[[], Client], _: argparse.Namespace) -> Callable[[], None]:
    """A message to each of 4,400 queues, one behind the other, each with a consumer."""
    clients = [connect() for _ in range(5)]
    sender = connect()
    for place, client in enumerate(clients):
        for number in range(880):
            client.send(subscribe(f"/queue/attacked.{place}.{number}", number))
        client.ask(b"", "s879")
    frames = b"".join(
        send(f"/queue/attacked.{place}.{number}", f"r{place}.{number}", b"x" * 1000)
        for place in range(5)
        for number in range(880)
    )

    def attack() -> None:
        sender.ask(frames, "r4.879")
        for client in clients:
            client.close()
        sender.close()

    return attack


def flooding(frames: bytes) -> Callable[[Callable[[], Client], argparse.Namespace], Callable[[], None]]:
    """Return the attack of eight clients that send these frames as fast as they can."""

    def prepare(connect: Callable[[], Client], _: argparse.Namespace) -> Callable[[], None]:
        clients = [connect() for _ in range(8)]
        asked = frames + send("/queue/attacked.q", "r")

        def attack() -> None:
            threads = [threading.Thread(target=client.ask, args=(asked, "r")) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for client in clients:
                client.close()

        return attack

    return prepare


PIPELINED: Final = frame("SEND", {"destination": "/queue/attacked.q"}, b"x" * 32) * 20_000
SMALL_FRAMES: Final = (frame("BEGIN", {"transaction": "t"}) + frame("ABORT", {"transaction": "t"})) * 20_000

HEADERS: Final = {"transaction": "t", **{f"{number}": r"\c" for number in range(100)}}
MANY_HEADERS: Final = (frame("BEGIN", HEADERS) + frame("ABORT", HEADERS)) * 1000


def alone(_: Callable[[], Client], __: argparse.Namespace) -> Callable[[], None]:
    """Nothing: the canary alone."""
    return lambda: time.sleep(2)


ATTACKS: Final = {
    "nothing": Attack("the canary alone", alone),
    "selectors": Attack("large distinct selectors on a topic, then 100 SENDs", selectors(distinct=True)),
    "one-selector": Attack("the same selector many times, then 100 SENDs", selectors(distinct=False)),
    "transaction": Attack("large distinct selectors, a transaction of 100 SENDs", selected_transaction),
    "compiling": Attack("SUBSCRIBEs with large distinct selectors, one behind the other", compiling),
    "consumers": Attack("consumers of a queue with large selectors, 100 messages", selecting_consumers),
    "one-commit": Attack("subscriptions of many connections, a message to each in one COMMIT", one_commit),
    "closing-queue": Attack("consumers of one queue, closed together", closing("/queue/attacked.q")),
    "closing-topic": Attack("subscriptions to topics, closed together", closing("/topic/attacked.{}")),
    "queues": Attack("a message to each of 4,400 queues with consumers", many_queues),
    "pipelined": Attack("eight producers that never wait", flooding(PIPELINED)),
    "small-frames": Attack("eight clients that never wait begin and abort", flooding(SMALL_FRAMES)),
    "many-headers": Attack("the same with a hundred headers", flooding(MANY_HEADERS)),
}


def measure(name: str, options: argparse.Namespace) -> tuple[float, Turns]:
    """One attack on new brokers: slowest round trip in milliseconds, and the longest turns."""
    with brokers(options) as started:
        broker = started[0]
        canary = Canary(broker.port, secured=options.secured)
        try:
            attack = ATTACKS[name].begin(lambda: Client(broker.port, secured=options.secured), options)
            time.sleep(QUIET_S)
            since, line = time.monotonic(), len(broker.lines)
            attack()
            time.sleep(QUIET_S)
            slowest_ms = canary.slowest_ms(since)
            time.sleep(0.1)
        finally:
            canary.end()
        turns = broker.longest_turns(line)
        if options.pair and (
            broker.process.poll() is not None or any("serving" in line for line in started[1].lines)
        ):
            raise SystemExit(f"{name}: the backup took over from a healthy live")
        return slowest_ms, turns


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attacks", nargs="+", choices=tuple(ATTACKS), default=tuple(ATTACKS))
    parser.add_argument("--secured", action="store_true")
    parser.add_argument("--pair", action="store_true")
    parser.add_argument("--subscriptions", type=int, default=1000, help="of one connection")
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--canary", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.canary:
        run_canary(options.canary, options.secured)
        return
    print(f"{'attack':14} {'slowest answer':>15} {'longest turn':>13} {'it ran':>9}   bar {BAR_MS} ms")
    for name in options.attacks:
        slowest_ms, turns = measure(name, options)
        clock, ran = (f"{ms} ms" if ms else f"< {LOGGED_TURN_MS} ms" for ms in turns[:2])
        verdict = "met" if slowest_ms <= BAR_MS else "MISSED"
        print(
            f"{name:14} {slowest_ms:>12.0f} ms {clock:>13} {ran:>9}   {verdict:6}  {ATTACKS[name].what}",
            flush=True,
        )
        if turns.cause:
            print(f"{'':14} in the longest: {turns.cause}", flush=True)


if __name__ == "__main__":
    main()
