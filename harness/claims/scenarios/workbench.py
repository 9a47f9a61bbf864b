"""The workbench of a probe.

It runs commands and brokers as processes of this machine, and keeps all their output as evidence.

Why not an environment: a probe is about a command line, an exit status, a line that a person reads.
It needs no links that can be cut and no history. But what it starts must end with it, even if it is
killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from broker import config
from broker.admin_client import Target, ask
from environments.link_proxy import reserve_port
from harness.claims.scenarios.probe import Notes, StepMissedError
from harness.interface import InfrastructureError

PATIENCE_S: Final = 180.0
"""The limit of every wait (s), reached only if the awaited thing never happens."""
POLL_S: Final = 0.05
TRANSCRIPT: Final = "transcript.txt"
LOGIN: Final = "tester"
"""The user as which the bench's clients log in."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit status of a command, and all its output."""

    status: int
    output: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output, without empty ones."""
        return [line for line in self.output.splitlines() if line.strip()]


class ProbeProcess:
    """A process that runs while the probe does other things; its output is a file."""

    def __init__(self, name: str, popen: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._popen = popen

    @property
    def running(self) -> bool:
        """True if the process has not ended yet."""
        return self._popen.returncode is None

    @property
    def output(self) -> str:
        """The output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def cpu_s(self) -> float:
        """The CPU seconds that the process has used so far, in all its threads.

        Other processes of the machine hardly change them.
        """
        stat = Path(f"/proc/{self._popen.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]  # fields 14 and 15 of proc_pid_stat(5)
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_bytes(self) -> int:
        """The resident memory of the process now."""
        pages = Path(f"/proc/{self._popen.pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(number)

    async def wait(self) -> int:
        """Wait for the end and return the exit status; negative: the signal that ended the process.

        Raises TimeoutError.
        """
        async with asyncio.timeout(PATIENCE_S):
            return await self._popen.wait()

    async def type(self, text: str) -> None:
        """Give the process input, as if it were typed."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(text.encode())
        await self._popen.stdin.drain()


class Workbench:
    """The place where a probe runs commands and processes; ``async with`` ends them all."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.compare, self.require = notes.compare, notes.require
        self.directory = notes.directory
        self._processes: list[ProbeProcess] = []
        self._reserved: list[socket.socket] = []
        self.secret = secrets.token_hex(24)
        """The secret that the brokers of this probe and their admin clients share."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for process in self._processes:
            process.send(signal.SIGCONT)
            process.send(signal.SIGKILL)
        for process in self._processes:
            await process.wait()
        for reserved in self._reserved:
            reserved.close()

    def port(self) -> int:
        """Return a port of this machine that no other process is given meanwhile."""
        self._reserved.append(reserve_port())
        return int(self._reserved[-1].getsockname()[1])

    async def command(self, *words: str, typed: str = "") -> CommandResult:
        """Run a command of this project or of the machine to its end.

        This project's are "brokerctl", "brokerd" and "jepsen-run". Raises InfrastructureError,
        TimeoutError.
        """
        popen = await _spawn(words, asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT)
        try:
            async with asyncio.timeout(PATIENCE_S):
                output, _ = await popen.communicate(typed.encode())
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                popen.kill()
            await popen.wait()
            raise
        status = popen.returncode
        assert status is not None
        result = CommandResult(status, output.decode("utf-8", "replace"))
        with (self.directory / TRANSCRIPT).open("a", encoding="utf-8") as transcript:
            transcript.write(f"$ {shlex.join(words)}\n{result.output}[{status}]\n\n")
        return result

    async def start(self, name: str, *words: str) -> ProbeProcess:
        """Start a command without waiting for its end.

        Its output goes to ``name``.log. Raises InfrastructureError.
        """
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            popen = await _spawn(words, output.fileno(), output.fileno())
        process = ProbeProcess(name, popen, log)
        self._processes.append(process)
        return process

    async def until(self, name: str, expected: str, question: Callable[[], Awaitable[T]]) -> T:
        """Ask repeatedly until the answer is true, and return it.

        If it never is, that is noted as a missed step, and StepMissedError is raised.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            answer = await question()
            if answer:
                return answer
            if loop.time() > deadline:
                self.notes.compare(name, expected, f"not within {PATIENCE_S:g} s")
                raise StepMissedError(name)
            await asyncio.sleep(POLL_S)


class Relay:
    """A relay to a port of this machine that keeps the bytes of both directions.

    ``async with`` listens, and ends all connections at its end. ``attempts`` counts connections.
    To the target they come from ``source``, an address of this machine.
    """

    def __init__(self, target: int, source: str = "127.0.0.1") -> None:
        self.attempts = 0
        self._target = target
        self._source = source
        self._streams: list[bytearray] = []
        """The bytes of each direction of each connection: a text may come in several parts."""
        self._copies: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for copy in self._copies:
            copy.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)

    @property
    def address(self) -> str:
        """The address at which the relay listens."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def readable(self, *texts: str) -> list[str]:
        """Return those of the texts that anybody on the way could read."""
        return [text for text in texts if any(text.encode() in stream for stream in self._streams)]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(
                "127.0.0.1", self._target, local_addr=(self._source, 0)
            )
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            copy = asyncio.create_task(self._copy(source, sink))
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        stream = bytearray()
        self._streams.append(stream)
        try:
            while part := await source.read(1 << 16):
                stream += part
                sink.write(part)
                await sink.drain()
        except OSError:
            pass  # one of the two sides has gone
        finally:
            sink.close()


class Broker:
    """A broker of a probe: its configuration, its ports and its admin client.

    ``table`` overrides the settings that every broker here has.
    """

    def __init__(self, bench: Workbench, name: str, table: Mapping[str, Any]) -> None:
        self.bench = bench
        self.name = name
        self.admin = bench.port()
        self.stomp = bench.port()
        self.cluster = bench.port()
        host = "127.0.0.1"
        self.connector = f"{host}:{self.cluster}"
        configuration: dict[str, Any] = {
            # What a loaded machine delays is no warning that a probe counts.
            "broker": {"name": name, "data-directory": f"{name}-data", "longest-turn": -1},
            "acceptor": {"host": host, "port": self.stomp, "users": {LOGIN: "tester-secret"}},
            "admin": {"host": host, "port": self.admin},
            "cluster": {
                "host": host,
                "port": self.cluster,
                "connector": self.connector,
                "stomp-connector": f"{host}:{self.stomp}",
                "message-load-balancing": "OFF",
                "cluster-password": bench.secret,
            },
        }
        for section, values in table.items():
            configuration[section] = (
                {**configuration.get(section, {}), **values} if isinstance(values, Mapping) else values
            )
        config.validate(configuration)
        self._configuration = configuration
        self.data = bench.directory / configuration["broker"]["data-directory"]
        self.path = bench.directory / f"{name}.toml"
        self._target = Target(host, self.admin, bench.secret)
        self.path.touch(mode=0o600)
        self.path.write_text(config.dumps(configuration), encoding="utf-8")
        secret_file = self.path.with_suffix(".secret")
        secret_file.touch(mode=0o600)
        secret_file.write_text(bench.secret, encoding="utf-8")
        self.brokerctl = ("brokerctl", "--admin", str(self.admin), "--secret-file", str(secret_file))
        """The beginning of a command that asks this broker."""
        self._log_name = configuration["broker"]["name"]
        self._process: ProbeProcess | None = None

    def change(self, properties: Mapping[str, Any]) -> None:
        """Write other values of properties into the configuration, by dotted name."""
        self._configuration = config.apply(self._configuration, properties)
        self.path.write_text(config.dumps(self._configuration), encoding="utf-8")

    async def start(self) -> ProbeProcess:
        """Start ``brokerd``; again if it has ended."""
        self._process = await self.bench.start(self.name, "brokerd", "--config", str(self.path))
        return self._process

    @property
    def process(self) -> ProbeProcess:
        """The process that was started last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    @property
    def errors(self) -> list[str]:
        """The errors that the broker logged, without time and name."""
        return self._logged("ERROR")

    @property
    def warnings(self) -> list[str]:
        """The warnings that the broker logged, without time and name."""
        return self._logged("WARNING")

    def _logged(self, level: str) -> list[str]:
        lines = self.process.output.splitlines()
        return [line.partition(f" {level} {self._log_name} ")[2] for line in lines if f" {level} " in line]

    async def live(self) -> None:
        """Return when the broker serves. Raises StepMissedError."""
        live = functools.partial(self.shows, "role", "live")
        await self.bench.until(f"{self.name} starts", f"{self.name} serves", live)

    async def becomes(self, role: str) -> None:
        """Return when the broker has that role. Raises StepMissedError."""
        has_role = functools.partial(self.shows, "role", role)
        await self.bench.until(f"{self.name} becomes {role}", role, has_role)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the broker's process by a signal."""
        self.process.send(number)
        await self.process.wait()

    async def stop(self, *options: str) -> int:
        """Run ``brokerctl stop``; return the broker's exit status."""
        await self.ctl("stop", *options)
        return await self.process.wait()

    async def shows(self, key: str, value: str) -> bool:
        """Return whether the broker's status has that value now."""
        status = await self.status()
        return status is not None and status[key] == value

    async def status(self) -> dict[str, Any] | None:
        """Return the broker's status; None while it does not answer."""
        try:
            return await self.ask("status")
        except OSError:
            return None

    async def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of the admin port; raise OSError if none comes or it refuses."""
        return await ask(self._target, command, **arguments)

    async def ctl(self, *words: str, typed: str = "") -> CommandResult:
        """Run ``brokerctl`` with this broker's admin port."""
        return await self.bench.command(*self.brokerctl, *words, typed=typed)


def on_bench(steps: Callable[[Workbench], Awaitable[None]]) -> Callable[[Notes], Coroutine[Any, Any, None]]:
    """Return a probe whose steps are taken on a bench of its own, which ends with them."""

    async def take(notes: Notes) -> None:
        async with Workbench(notes) as bench:
            await steps(bench)

    return take


async def _spawn(words: Sequence[str], stdout: int, stderr: int) -> asyncio.subprocess.Process:
    """Start a process that dies with this one.

    Programs of this project are those in the directory of the running interpreter.
    """
    program = Path(sys.executable).with_name(words[0])
    argv = [str(program) if program.exists() else words[0], *words[1:]]
    tether = shutil.which("setpriv")
    if tether is not None:
        argv = [tether, "--pdeathsig", "KILL", "--", *argv]
    try:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=stdout, stderr=stderr
        )
    except OSError as error:
        raise InfrastructureError(f"cannot start {words[0]}: {error.strerror or error}") from error
