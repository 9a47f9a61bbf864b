"""A machine over ssh, as a host: one connection, a channel for each thing that is done.

Several threads may use it at once. A connection that is lost ends the calls in flight within
seconds (``_SILENCE_MS``), and the next call makes another one. Nothing that a call began goes on
for long without it: the machine itself ends every program when its time is over, and the script
that takes files removes what it has when it did not get all.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import shlex
import socket
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import paramiko

from environments.host import CommandError
from environments.ssh import known_hosts
from environments.ssh.forward import Forward
from environments.ssh.hosts import HostConfig, load_key
from harness.interface import Address, InfrastructureError, UsageError

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False  # what matters of it is in our errors

CONNECT_TIMEOUT_S: Final = 10.0
_TRANSFER_TIMEOUT_S: Final = 600.0
_SILENCE_MS: Final = 10_000
"""A machine that has not acknowledged what was sent for so long is lost."""

_KILL_S: Final = 5  # what a program has to end when its time is over
_SESSIONS: Final = 8  # programs at once on one connection: sshd allows 10 (MaxSessions)
_CHUNK: Final = 1 << 15

_RUN: Final = """[ "$(id -u)" = 0 ] || root="sudo -n"; $root timeout -k "$@"; exit $?"""
"""The status is a number so, a killed program's too; none at all is a lost connection's."""

_PUT: Final = """
umask 077
mkdir -p "$2" && [ -O "$2" ] && [ ! -L "$2" ] || { echo "$2 belongs to somebody else" >&2; exit 1; }
trap 'rm -rf "$got"; [ "$kept" ] || { cd "$2" && rmdir -p "${1#"$2"/}"; rmdir "$2"; } 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir -p "$1" && got=$(mktemp -d "$1/.put-XXXXXX") || exit 1
tar -x -f - -C "$got" && cd "$got" && rm .complete || exit 1
find . -type d -exec mkdir -p "$1/{}" ';' && find . -type f -exec mv -fT {} "$1/{}" ';' && kept=1
"""
"""Takes an archive whose last file is ``.complete`` for a directory $1, which is $2 or below it."""

_FETCH: Final = """
if [ -d "$1" ]; then exec tar -c -f - -C "$1" .; fi
if [ -e "$1" ]; then cd "$(dirname "$1")" && exec tar -c -f - "./$(basename "$1")"; fi
"""


class SshHost:
    """A machine over ssh: a `Host`, connected to when it is first used, until ``close``.

    What it writes and runs is root's.
    """

    def __init__(self, config: HostConfig, known: Path) -> None:
        self.name = config.name
        self.config = config
        self._known = known
        self._lock = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._transport: Any = None
        self._forwards: dict[int, Forward] = {}
        self._closed = False

    @property
    def address(self) -> str:
        """Where the other hosts reach it. Raises InfrastructureError if its name is not known."""
        try:
            return self.config.inner or str(socket.getaddrinfo(self.config.address, None)[0][4][0])
        except OSError as error:
            raise self._error(f"its address cannot be resolved ({error.strerror})") from None

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files (relative path -> content): all or, when something goes wrong, none."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, content in (*sorted(files.items()), (".complete", b"")):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                tar.addfile(entry, io.BytesIO(content))
        ours = self.config.directory
        top = ours if f"{directory}/".startswith(f"{ours}/") else directory
        argv = ("sh", "-c", _PUT, "sh", directory, top)
        status, _, said = self._execute(argv, archive.getvalue(), _TRANSFER_TIMEOUT_S)
        if status:
            full = any("No space left" in line or "Wrote only" in line for line in said)
            why = "No space left on device" if full else _last(said, status)
            raise self._error(f"{directory} cannot be written: {why}")

    def run(self, argv: Sequence[str], *, text: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """Run a program to its end with ``text`` as its input; what it wrote."""
        status, out, said = self._execute(argv, text, timeout_s)
        if status:
            raise CommandError(f"{self.name}: {argv[0]}: {_last(said, status)}", status)
        return out

    def fetch(self, path: str) -> bytes:
        """A file, or all that is in a directory, as a tar archive; empty where there is none."""
        status, out, said = self._execute(("sh", "-c", _FETCH, "sh", path), b"", _TRANSFER_TIMEOUT_S)
        if status and not all("changed as we read" in line or "removed before" in line for line in said):
            raise self._error(f"{path} cannot be read: {_last(said, status)}")
        return out

    def reach(self, port: int) -> Address:
        """Where this process reaches a TCP port of the machine: through the connection."""
        with contextlib.suppress(paramiko.ChannelException):  # nobody listens yet
            self._tunnel(port).close()
        with self._lock:
            if port not in self._forwards:
                self._forwards[port] = Forward(lambda: self._tunnel(port))
            return self._forwards[port].address

    def close(self) -> None:
        """End the connection and what goes through it, for ever."""
        with self._lock:
            self._closed = True
        for forward in self._forwards.values():
            forward.close()
        if self._transport is not None:
            self._transport.close()

    def _execute(self, argv: Sequence[str], text: bytes, timeout_s: float) -> tuple[int, bytes, list[str]]:
        """The status of a program, what it wrote, and the lines of its errors."""
        with self._sessions:
            channel = self._open("session")
            command = ("sh", "-c", _RUN, "sh", str(_KILL_S), str(math.ceil(timeout_s)), *argv)
            out, errors, began = io.BytesIO(), io.BytesIO(), time.monotonic()
            bound = threading.Timer(timeout_s + 2 * _KILL_S, channel.close)
            feeding = threading.Thread(target=_feed, args=(channel, text), daemon=True)
            hearing = threading.Thread(target=_drain, args=(channel.recv_stderr, errors), daemon=True)
            bound.start()
            try:
                channel.exec_command(shlex.join(("env", "LC_ALL=C.UTF-8", *command)))
                feeding.start()
                hearing.start()
                _drain(channel.recv, out)
                hearing.join()
                status = channel.recv_exit_status()
            except (paramiko.SSHException, EOFError, OSError):
                status = -1
            finally:
                bound.cancel()
                channel.close()
        if (
            time.monotonic() - began >= timeout_s
            and status in (-1, 124, 137)
            and channel.transport.is_active()
        ):
            raise self._error(f"{argv[0]} did not end within {timeout_s:g} s")
        if status < 0:
            raise self._lost(channel.transport)
        said = errors.getvalue().decode(errors="replace").strip().splitlines()
        if status and said and ("sudo: " in said[-1] or said[-1].startswith("Sorry, user ")):
            user = self.config.user
            raise self._error(
                f"user {user} is not root and may not use sudo without a password ({said[-1].strip()}); "
                f"allow it: echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/jepsen-run there, as root"
            )
        return status, out.getvalue(), said

    def _tunnel(self, port: int) -> Any:
        """A channel to a port, on the machine's loopback or else on its address.

        Raises ChannelException where nobody listens, InfrastructureError.
        """
        try:
            return self._open("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
        except paramiko.ChannelException:
            return self._open("direct-tcpip", (self.address, port), ("127.0.0.1", 0))

    def _open(self, kind: str, *ends: tuple[str, int]) -> Any:
        """A channel, on a new connection if the one there was is lost. Raises as `_tunnel`."""
        until, again = time.monotonic() + CONNECT_TIMEOUT_S, False
        while True:
            transport = self._connection()
            try:
                return transport.open_channel(kind, *ends, timeout=CONNECT_TIMEOUT_S)
            except paramiko.ChannelException as error:
                if ends and error.code == paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED:
                    text = (
                        "its sshd forwards no ports: it needs AllowTcpForwarding yes in /etc/ssh/sshd_config"
                    )
                    raise self._error(text) from None
                if ends:
                    raise
                if time.monotonic() > until:
                    raise self._error(f"its sshd opens no session ({error.text})") from None
                time.sleep(0.05)  # it still counts some that have ended
            except (paramiko.SSHException, EOFError, OSError):
                if again:
                    raise self._lost(transport) from None
                again = True

    def _connection(self) -> Any:
        """The connection, made if there is none that lives. Raises InfrastructureError."""
        with self._lock:
            if self._closed:
                raise self._error("its connection is closed")
            if self._transport is None or not self._transport.is_active():
                self._transport = self._connect()
            return self._transport

    def _connect(self) -> Any:
        port = self.config.port
        try:
            line = socket.create_connection((self.config.address, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            why = error.strerror or f"no answer within {CONNECT_TIMEOUT_S:g} s"
            raise self._error(f"no ssh server can be reached on port {port} ({why})") from None
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        transport = paramiko.Transport(line)
        try:
            self._greet(transport)
            self._authenticate(transport)
            transport.set_keepalive(2)
        except BaseException as error:
            transport.close()
            if not isinstance(error, paramiko.SSHException | EOFError | OSError):
                raise
            text = " ".join(str(error).split()) or "it hung up"
            raise self._error(f"what listens on port {port} does not speak ssh with us ({text})") from None
        return transport

    def _greet(self, transport: Any) -> None:
        """Agree on a cipher, by a host key of a type that we know, and see that we know the key."""
        where = (self._known, self.config.address, self.config.port)
        known = known_hosts.find(*where)
        kinds = {kind for one in known for kind in (one.kind, one.kind.replace("ssh-rsa", "rsa-sha2-512"))}
        options = transport.get_security_options()
        options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)
        transport.start_client(timeout=CONNECT_TIMEOUT_S)
        if problem := known_hosts.objection(*where, known, transport.get_remote_server_key()):
            raise self._error(problem)

    def _authenticate(self, transport: Any) -> None:
        user, tried = self.config.user, []
        for key, origin in self._keys():
            tried.append(f"{key.fingerprint} ({origin})")
            with contextlib.suppress(paramiko.AuthenticationException):
                if not transport.auth_publickey(user, key):
                    return
            if not transport.is_active():
                break  # too many keys for it
        keys = f"none of these keys: {', '.join(tried)}" if tried else "us without a key, and there is none"
        raise self._error(
            f"its sshd accepts of user {user} {keys}; add the public key to ~{user}/.ssh/authorized_keys "
            "there, or name another key"
        )

    def _keys(self) -> list[tuple[Any, str]]:
        """The keys that may be shown, and where each is from."""
        if self.config.key:
            return [(load_key(Path(self.config.key)), self.config.key)]
        keys = [(key, "ssh-agent") for key in paramiko.Agent().get_keys()]
        for path in sorted(Path("~/.ssh").expanduser().glob("id_*")):
            with contextlib.suppress(UsageError):  # a public key, or one with a pass phrase
                keys.append((load_key(path), str(path)))
        return keys

    def _lost(self, transport: Any) -> InfrastructureError:
        transport.join(1)  # it ends its channels before it says why
        why = str(transport.saved_exception or "") or f"closed, or silent for {_SILENCE_MS // 1000} s"
        return self._error(f"the ssh connection was lost ({why})")

    def _error(self, text: str) -> InfrastructureError:
        return InfrastructureError(f"host {self.name}: {text}")


def _feed(channel: Any, text: bytes) -> None:
    # It ended without reading all, or the connection did: who waits for the program is told.
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        for start in range(0, len(text), _CHUNK):
            channel.sendall(text[start : start + _CHUNK])
        channel.shutdown_write()


def _drain(receive: Any, into: io.BytesIO) -> None:
    while data := receive(_CHUNK):
        into.write(data)


def _last(said: Sequence[str], status: int) -> str:
    return said[-1].strip() if said else f"it ended with status {status}"
