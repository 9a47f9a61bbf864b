"""A machine over ssh, as a host: one connection, a channel for each thing that is done.

Several threads may use it at once. A connection that is lost ends the calls in flight within
seconds (``_SILENCE_MS``), and the next call makes another one. Nothing that a call began goes on
for long without it: the machine itself ends every program when its time is over, and what was only
half put there is removed by the script that received it.
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
logging.getLogger("paramiko").propagate = False  # its words are no person's; ours are in the errors

CONNECT_TIMEOUT_S: Final = 10.0
TRANSFER_TIMEOUT_S: Final = 600.0
_SILENCE_MS: Final = 10_000
"""A machine from which nothing was acknowledged for so long is lost."""

_KILL_S: Final = 5
"""How long a program may take to end when its time is over."""

_SESSIONS: Final = 8
"""Programs at once on one connection: sshd allows 10 (``MaxSessions``)."""

_CHUNK: Final = 1 << 15
_TIMED_OUT: Final = (124, 137)  # of timeout(1)
_RUN: Final = 'timeout -k "$@"; exit $?'  # the status is then a number, a killed program's too

_PUT: Final = """
umask 077
mkdir -p "$2" && [ -O "$2" ] && [ ! -L "$2" ] || { echo "$2 belongs to somebody else" >&2; exit 1; }
[ -d "$1" ] || new=1
mkdir -p "$1" && new_files=$(mktemp -d "$1/.put-XXXXXX") || exit 1
trap 'rm -rf "$new_files"; [ -z "$new$kept" ] || [ -n "$kept" ] || rmdir "$1"' EXIT
trap 'exit 1' HUP INT TERM PIPE
tar -x -f - -C "$new_files" && cd "$new_files" && rm .complete || exit 1
find . -type d -exec mkdir -p "$1/{}" ';' && find . -type f -exec mv -fT {} "$1/{}" ';' && kept=1
"""
"""Takes an archive whose last file is ``.complete`` for directory $1, in or equal to $2."""

_FETCH: Final = """
if [ -d "$1" ]; then exec tar -c -f - -C "$1" .; fi
if [ -e "$1" ]; then cd "$(dirname "$1")" && exec tar -c -f - "./$(basename "$1")"; fi
"""


class _Socket(socket.socket):
    """A socket whose silence (TCP_USER_TIMEOUT) is an error: paramiko takes a time-out for none."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        try:
            return super().recv(size, flags)
        except TimeoutError as error:
            if error.errno is None:
                raise
            raise ConnectionAbortedError(error.errno, f"no answer for {_SILENCE_MS // 1000} s") from None


class SshHost:
    """A machine over ssh: a `Host`. It is connected to when it is first used; ``close`` it.

    Its files belong to root, and so does what it runs.
    """

    def __init__(self, config: HostConfig, known: Path) -> None:
        self.name = config.name
        self.config = config
        self._known = known
        self._lock = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._transport: Any = None
        self._sudo: tuple[str, ...] = ()
        self._failure: tuple[float, InfrastructureError] | None = None  # when connecting failed, and how
        self._forwards: dict[int, Forward] = {}

    @property
    def address(self) -> str:
        """Where the other hosts reach it. Raises InfrastructureError if its name is not known."""
        if self.config.inner:
            return self.config.inner
        try:
            return str(socket.getaddrinfo(self.config.address, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise self._error(f"{self.config.address} cannot be resolved ({error.strerror})") from None

    def put(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Write files (relative path -> content); each is there whole or not at all."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, content in (*sorted(files.items()), (".complete", b"")):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                tar.addfile(entry, io.BytesIO(content))
        ours = self.config.directory
        top = ours if f"{directory}/".startswith(f"{ours}/") else directory
        argv = ("sh", "-c", _PUT, "sh", directory, top)
        status, _, said = self._execute(argv, archive.getvalue(), TRANSFER_TIMEOUT_S)
        if status:
            full = next((line for line in said if "No space left on device" in line), "")
            why = "No space left on device" if full else _last(said, status)
            raise self._error(f"{directory} cannot be written: {why}")

    def run(self, argv: Sequence[str], *, text: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """Run a program with ``text`` as its input to its end; what it wrote. CommandError."""
        status, out, said = self._execute(argv, text, timeout_s)
        if status:
            raise CommandError(f"{self.name}: {argv[0]}: {_last(said, status)}", status)
        return out

    def fetch(self, path: str) -> bytes:
        """A file, or all that is in a directory, as a tar archive; empty where there is none."""
        status, out, said = self._execute(("sh", "-c", _FETCH, "sh", path), b"", TRANSFER_TIMEOUT_S)
        if status and not all("changed as we read" in line or "removed before" in line for line in said):
            raise self._error(f"{path} cannot be read: {_last(said, status)}")
        return out

    def reach(self, port: int) -> Address:
        """Where this process reaches a TCP port of the machine: through the connection."""
        with contextlib.suppress(paramiko.ChannelException):  # nobody listens yet
            self._tunnel(port).close()
        with self._lock:
            forward = self._forwards.get(port)
            if forward is None:
                forward = self._forwards[port] = Forward(lambda: self._tunnel(port))
        return forward.address

    def close(self) -> None:
        """End the connection and what goes through it."""
        with self._lock:
            transport, self._transport = self._transport, None
            forwards, self._forwards = self._forwards, {}
        for forward in forwards.values():
            forward.close()
        if transport is not None:
            transport.close()

    def _execute(self, argv: Sequence[str], text: bytes, timeout_s: float) -> tuple[int, bytes, list[str]]:
        """The status of a program, what it wrote, and the lines of its errors."""
        with self._sessions:
            channel = self._open("session")
            command = ("sh", "-c", _RUN, "sh", str(_KILL_S), str(math.ceil(timeout_s)), *argv)
            out, errors, began = io.BytesIO(), io.BytesIO(), time.monotonic()
            bound = threading.Timer(timeout_s + 2 * _KILL_S, channel.close)
            workers = [
                threading.Thread(target=_feed, args=(channel, text), daemon=True),
                threading.Thread(target=_drain, args=(channel.recv_stderr, errors), daemon=True),
            ]
            bound.start()
            try:
                channel.exec_command(shlex.join(("env", "LC_ALL=C.UTF-8", *self._sudo, *command)))
                for worker in workers:
                    worker.start()
                _drain(channel.recv, out)
                workers[1].join()
                status = channel.recv_exit_status()
            except (paramiko.SSHException, EOFError, OSError):
                status = -1
            finally:
                bound.cancel()
                channel.close()
        late = time.monotonic() - began >= timeout_s
        if late and (status in _TIMED_OUT or self._alive(channel.transport)):
            raise self._error(f"{argv[0]} did not end within {timeout_s:g} s")
        if status < 0:
            raise self._lost(channel.transport)
        return status, out.getvalue(), errors.getvalue().decode(errors="replace").strip().splitlines()

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
        for again in (False, True):
            transport = self._connection()
            try:
                return transport.open_channel(kind, *ends, timeout=CONNECT_TIMEOUT_S)
            except paramiko.ChannelException as error:
                if error.code == paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED and ends:
                    raise self._error(
                        "its sshd forwards no ports: it needs AllowTcpForwarding yes in /etc/ssh/sshd_config"
                    ) from None
                if ends:
                    raise
                raise self._error(f"its sshd opens no session ({error})") from None
            except (paramiko.SSHException, EOFError, OSError):
                if again or self._alive(transport):
                    raise self._lost(transport) from None
        raise AssertionError("the second time ends it")

    def _connection(self) -> Any:
        """The connection, made if there is none that lives. Raises InfrastructureError."""
        asked = time.monotonic()
        with self._lock:
            if self._transport is not None and self._transport.is_active():
                return self._transport
            if self._failure is not None and self._failure[0] >= asked:
                raise self._failure[1]  # it failed while this thread waited to try
            try:
                self._transport = self._connect()
            except InfrastructureError as error:
                self._failure = (time.monotonic(), error)
                raise
            return self._transport

    def _connect(self) -> Any:
        where = (self.config.address, self.config.port)
        try:
            line = socket.create_connection(where, CONNECT_TIMEOUT_S)
        except socket.gaierror as error:
            raise self._error(f"{where[0]} cannot be resolved ({error.strerror})") from None
        except ConnectionRefusedError:
            raise self._error(f"nothing listens on port {where[1]}: does sshd run there?") from None
        except TimeoutError:
            raise self._error(f"no answer on port {where[1]} within {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise self._error(f"it cannot be connected to on port {where[1]} ({error.strerror})") from None
        line = _Socket(fileno=line.detach())
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        transport = paramiko.Transport(line)
        try:
            self._greet(transport)
            self._authenticate(transport)
            self._sudo = self._privilege(transport)
        except (paramiko.SSHException, EOFError, OSError) as error:
            transport.close()
            text = " ".join(str(error).split()) or "it hung up"
            raise self._error(
                f"what listens on port {where[1]} does not speak ssh with us ({text})"
            ) from None
        except BaseException:
            transport.close()
            raise
        return transport

    def _greet(self, transport: Any) -> None:
        """Agree on a cipher, by a host key of a type that we know, and see that we know the key."""
        known = known_hosts.find(self._known, self.config.address, self.config.port)
        kinds = {one.kind for one in known}
        options = transport.get_security_options()
        options.key_types = sorted(
            options.key_types, key=lambda kind: kind.replace("rsa-sha2-256", "rsa-sha2-512") not in kinds
        )
        transport.start_client(timeout=CONNECT_TIMEOUT_S)
        key = transport.get_remote_server_key()
        problem = known_hosts.objection(self._known, self.config.address, self.config.port, known, key)
        if problem:
            raise self._error(problem)

    def _authenticate(self, transport: Any) -> None:
        tried = []
        for key, origin in self._keys():
            tried.append(f"{key.fingerprint} ({origin})")
            try:
                if not transport.auth_publickey(self.config.user, key):
                    return
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    break  # too many keys for it
        keys = f"none of these keys: {', '.join(tried)}" if tried else "us without a key, and there is none"
        raise self._error(
            f"its sshd accepts of user {self.config.user} {keys}; add the public key to "
            f"~{self.config.user}/.ssh/authorized_keys there, or name another key"
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

    def _privilege(self, transport: Any) -> tuple[str, ...]:
        """What stands before a command so that root runs it."""

        def run(command: str) -> tuple[int, str]:
            channel = transport.open_session(timeout=CONNECT_TIMEOUT_S)
            channel.settimeout(CONNECT_TIMEOUT_S)
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            said = channel.makefile("r").read().decode(errors="replace")
            return channel.recv_exit_status(), said

        if run("id -u")[1].split()[-1:] == ["0"]:
            return ()
        status, said = run("LC_ALL=C sudo -n true")
        if status:
            user = self.config.user
            raise self._error(
                f"user {user} is not root and sudo wants a password or refuses "
                f"({_last(said.splitlines(), status)}); allow it: "
                f"echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/jepsen-run there, as root"
            )
        return ("sudo", "-n")

    def _alive(self, transport: Any) -> bool:
        """Whether a connection goes on, asked when something on it has ended."""
        transport.join(0.2)  # it ends its channels before itself
        return bool(transport.is_active())

    def _lost(self, transport: Any) -> InfrastructureError:
        self._alive(transport)
        error = transport.saved_exception
        why = getattr(error, "strerror", None) or str(error or "") or "the other side closed it"
        return self._error(f"the ssh connection was lost ({why})")

    def _error(self, text: str) -> InfrastructureError:
        return InfrastructureError(f"host {self.name}: {text}")


def _feed(channel: Any, text: bytes) -> None:
    with contextlib.suppress(OSError):  # it ended without reading all
        for start in range(0, len(text), _CHUNK):
            channel.sendall(text[start : start + _CHUNK])
        channel.shutdown_write()


def _drain(receive: Any, into: io.BytesIO) -> None:
    while data := receive(_CHUNK):
        into.write(data)


def _last(said: Sequence[str], status: int) -> str:
    return next((line.strip() for line in reversed(said) if line.strip()), f"it ended with status {status}")
