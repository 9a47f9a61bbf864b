"""A real brokerd on a port of the system's choice, and a client of raw bytes.

For the tests of the server.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from broker import config

BOUND_S = 60.0
"""Bounds every wait of a test; reached only when the test fails."""


class Brokerd:
    """One broker process over a directory that outlives it."""

    def __init__(self, directory: Path, **properties: object) -> None:
        self.directory = directory
        self.path = directory / "broker.toml"
        table = {
            "broker": {"name": "a1"},
            "acceptor": {"host": "127.0.0.1", "port": 0, "users": {"guest": "secret"}},
            "admin": {"port": 0},
        }
        self.path.write_text(config.dumps(config.apply(table, properties)))
        self.lines: list[str] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker.daemon", "--config", str(self.path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.search(r"serving STOMP on \S+:(\d+)", line):
                self.port = int(match[1])
                break
        else:
            raise AssertionError("".join(self.lines))
        self.reader = threading.Thread(target=self._read, args=(self.process.stderr,))
        self.reader.start()

    def _read(self, stream) -> None:
        self.lines.extend(stream)
        stream.close()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        status = self.process.wait(BOUND_S)
        self.reader.join(BOUND_S)
        return status


class Raw:
    """A connection of plain bytes: what is sent is what the test says."""

    def __init__(
        self, port: int, connect: bool = True, tls: ssl.SSLContext | None = None, **headers: str
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
        self.buffer = b""
        if connect:
            given = {
                "accept-version": "1.2",
                "host": "h",
                "login": "guest",
                "passcode": "secret",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            }
            self.send("CONNECT", given)
            self.connected = self.read("CONNECTED")

    def send(
        self, command: str, headers: dict[str, str] | None = None, body: bytes = b"", **more: str
    ) -> None:
        lines = {**(headers or {}), **{name.replace("_", "-"): value for name, value in more.items()}}
        text = "".join(f"{name}:{value}\n" for name, value in lines.items())
        self.bytes(f"{command}\n{text}\n".encode() + body + b"\0")

    def bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[str, dict[str, str], bytes]:
        """The next frame; ("EOF", ...) when the broker has closed."""
        while True:
            self.buffer = self.buffer.lstrip(b"\n")
            head, separator, rest = self.buffer.partition(b"\n\n")
            if separator:
                command, *lines = head.decode().split("\n")
                headers = dict(line.split(":", 1) for line in reversed(lines))
                size = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
                if 0 <= size < len(rest):
                    assert rest[size] == 0
                    self.buffer = rest[size + 1 :]
                    return command, headers, rest[:size]
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return "EOF", {}, b""
            self.buffer += data

    def read(self, command: str) -> tuple[dict[str, str], bytes]:
        """The next frame, which must be of that command."""
        got, headers, body = self.frame()
        assert got == command, (got, headers, body)
        return headers, body

    def receipt(self, name: str) -> None:
        assert self.read("RECEIPT")[0] == {"receipt-id": name}

    def error(self) -> str:
        """The text of the ERROR that must come now, with the end of the connection after it."""
        headers, body = self.read("ERROR")
        assert self.frame()[0] == "EOF"
        self.last_error = headers
        return body.decode()

    def publish(self, text: str, queue: str = "q", **headers: str) -> None:
        """Send, and wait until it is durable."""
        self.send("SEND", {"destination": f"/queue/{queue}", "receipt": "sent", **headers}, text.encode())
        self.receipt("sent")

    def subscribe(
        self, queue: str = "q", ack: str = "client-individual", name: str = "s", **headers: str
    ) -> None:
        self.send("SUBSCRIBE", {"id": name, "destination": f"/queue/{queue}", "ack": ack, **headers})

    def message(self) -> tuple[str, dict[str, str]]:
        headers, body = self.read("MESSAGE")
        return body.decode(), headers

    def close(self) -> None:
        self.socket.close()


class Subscriber(Raw):
    """A client that keeps the messages that come while it waits for a receipt."""

    def __init__(self, *arguments, **more) -> None:
        self.messages = []
        super().__init__(*arguments, **more)

    def receipt(self, name: str) -> None:
        while (frame := self.frame())[0] == "MESSAGE":
            self.messages.append(frame)
        assert (frame[0], frame[1].get("receipt-id")) == ("RECEIPT", name), frame

    def message(self) -> tuple[str, dict[str, str]]:
        command, headers, body = self.messages.pop(0) if self.messages else self.frame()
        assert command == "MESSAGE", (command, headers, body)
        return body.decode(), headers


def until(condition, what: str) -> None:
    """Wait for a condition, with a bound."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, f"not within {BOUND_S} s: {what}"
        time.sleep(0.005)
