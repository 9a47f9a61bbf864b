"""A machine over ssh, as a host: one connection, and a channel of it for each action.

Several threads may share a host. When its connection is lost, the calls under way fail within
seconds, and the next call makes a new connection.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import paramiko

from environments.machines.host import Host
from environments.ssh import known_hosts
from environments.ssh.hosts import HostConfig, load_key
from harness.interface import InfrastructureError, UsageError

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False  # our errors say what matters of it

CONNECT_TIMEOUT_S: Final = 10.0
_SILENCE_MS: Final = 10_000  # a peer that acknowledges nothing for so long is lost
_SESSIONS: Final = 8  # programs at once on one connection: sshd allows 10 (MaxSessions)
_PIECE_BYTES: Final = 1 << 20  # paramiko copies all that is left with each packet
_LOST: Final = (paramiko.SSHException, EOFError, OSError)  # what paramiko raises for a lost connection


class SshHost(Host):
    """A machine over ssh, connected from its first use until ``close``."""

    def __init__(self, config: HostConfig, known: Path) -> None:
        super().__init__(config.name, config.user, config.directory)
        self.config = config
        self._known = known
        self._lock = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._transport: Any = None
        self._closed = False

    @functools.cached_property
    def address(self) -> str:
        """The IPv4 address by which the other hosts reach it.

        Raises InfrastructureError if it has none.
        """
        name = self.config.inner or self.config.address
        try:
            found = socket.getaddrinfo(name, None, socket.AF_INET)
            return str(found[0][4][0])
        except OSError as error:
            inner = f", whose inner address is {name}," if self.config.inner else ""
            raise self.error(f"no IPv4 address of it{inner} is known ({error.strerror})") from None

    def close(self) -> None:
        """Close the connection and everything that goes through it, for ever."""
        with self._lock:
            self._closed = True
        super().close()
        if self._transport is not None:
            self._transport.close()

    def run_line(self, line: str, text: bytes, bound_s: float) -> tuple[int, bytes, bytes]:
        """Run a command line with ``text`` as its input; see `Host.run_line`.

        This does not send the end of the input. paramiko may send it after its answer to the
        program's end, and then sshd ends the connection.
        """
        line = f"head -c {len(text)} | {line}" if text else f"{line} </dev/null"
        with self._sessions, contextlib.closing(self._open("session")) as channel:
            bound = threading.Timer(bound_s, channel.close)
            bound.daemon = True
            bound.start()
            began, status, out, errors = time.monotonic(), -1, b"", b""
            with contextlib.suppress(*_LOST), ThreadPoolExecutor() as threads:
                channel.exec_command(line)
                threads.submit(_send, channel, text)  # it ends when the program or the connection does
                hearing = threads.submit(channel.makefile_stderr("rb").read)
                out, errors = channel.makefile("rb").read(), hearing.result()
                status = channel.recv_exit_status()
            bound.cancel()
            if status < 0 and time.monotonic() - began < bound_s:
                raise self._lost(channel.transport)
        return status, out, errors

    def tunnel(self, port: int) -> Any:
        """Open a channel to a port of this machine; see `Host.tunnel`."""
        for address in ("127.0.0.1", self.address):
            try:
                return self._open("direct-tcpip", (address, port), ("127.0.0.1", 0))
            except paramiko.ChannelException as error:
                if error.code == paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED:
                    needs = "AllowTcpForwarding yes in /etc/ssh/sshd_config"
                    raise self.error(f"its sshd forwards no ports: it needs {needs}") from None
        raise ConnectionRefusedError(f"nobody listens on port {port} of {self.name}")

    def _open(self, kind: str, *ends: tuple[str, int]) -> Any:
        """Open a channel, on a new connection if the former one is lost.

        Raises InfrastructureError; for a channel to a port, also ChannelException.
        """
        until, again = time.monotonic() + CONNECT_TIMEOUT_S, False
        while True:
            transport = self._connection()
            try:
                return transport.open_channel(kind, *ends, timeout=CONNECT_TIMEOUT_S)
            except paramiko.ChannelException as error:
                if ends:
                    raise
                if time.monotonic() > until:
                    raise self.error(f"its sshd opens no session ({error.text})") from None
                time.sleep(0.05)  # sshd still counts sessions that have ended
            except _LOST:
                if again:
                    raise self._lost(transport) from None
                again = True

    def _connection(self) -> Any:
        """Return the connection, made anew if none is alive. Raises InfrastructureError."""
        with self._lock:
            if self._closed:
                raise self.error("its connection is closed")
            if self._transport is None or not self._transport.is_active():
                self._transport = self._connect()
            return self._transport

    def _connect(self) -> Any:
        port = self.config.port
        try:
            line = socket.create_connection((self.config.address, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            why = error.strerror or f"no answer within {CONNECT_TIMEOUT_S:g} s"
            raise self.error(f"no ssh server can be reached on port {port} ({why})") from None
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        with contextlib.ExitStack() as unless_done:
            transport = unless_done.enter_context(contextlib.closing(paramiko.Transport(line)))
            try:
                self._greet(transport)
                self._authenticate(transport)
            except _LOST as error:
                why = " ".join(str(error).split()) or "it hung up"
                raise self.error(f"what listens on port {port} does not speak ssh with us ({why})") from None
            unless_done.pop_all()
        transport.set_keepalive(2)
        return transport

    def _greet(self, transport: Any) -> None:
        """Agree on a cipher and on a type of host key that we know, and check the host's key."""
        where = (self._known, self.config.address, self.config.port)
        try:
            known = known_hosts.find(*where)
        except OSError as error:
            raise self.error(f"{self._known} cannot be read: {error.strerror}") from None
        names = {one.key.get_name() for one in known}
        kinds = names | {name.replace("ssh-rsa", "rsa-sha2-512") for name in names}
        options = transport.get_security_options()
        options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)
        transport.start_client(timeout=CONNECT_TIMEOUT_S)
        if problem := known_hosts.objection(*where, known, transport.get_remote_server_key()):
            raise self.error(problem)

    def _authenticate(self, transport: Any) -> None:
        user, tried = self.config.user, []
        for key, origin in self._keys():
            tried.append(f"{key.fingerprint} ({origin})")
            with contextlib.suppress(paramiko.AuthenticationException):
                if not transport.auth_publickey(user, key):
                    return
            if not transport.is_active():
                break  # sshd has hung up: too many keys
        keys = f"none of these keys: {', '.join(tried)}" if tried else "us without a key, and there is none"
        raise self.error(
            f"its sshd accepts of user {user} {keys}; add the public key to ~{user}/.ssh/authorized_keys "
            "there, or name another key"
        )

    def _keys(self) -> list[tuple[Any, str]]:
        """Return the keys that may be offered to the host, each with where it comes from."""
        if self.config.key:
            return [(load_key(Path(self.config.key)), self.config.key)]
        keys = [(key, "ssh-agent") for key in paramiko.Agent().get_keys()]
        for path in sorted(Path("~/.ssh").expanduser().glob("id_*")):
            with contextlib.suppress(UsageError):  # a public key, or one with a pass phrase
                keys.append((load_key(path), str(path)))
        return keys

    def _lost(self, transport: Any) -> InfrastructureError:
        transport.join(1)  # paramiko ends the channels before it says why
        why = str(transport.saved_exception or "") or f"closed, or silent for {_SILENCE_MS // 1000} s"
        return self.error(f"the ssh connection was lost ({why})")


def _send(channel: Any, text: bytes) -> None:
    for start in range(0, len(text), _PIECE_BYTES):
        channel.sendall(text[start : start + _PIECE_BYTES])
