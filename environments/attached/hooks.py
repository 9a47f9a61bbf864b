"""Faults as commands that the user defines, each with its undo and its probe.

Whatever was begun is ended: when its fault is healed, when its time is over, when its lease is not
renewed, and when the harness is gone. An undo that fails is tried again. If it never works, its
command line is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from environments.attached.cluster import PROCESS_HOOKS, AttachedCluster, Hook
from environments.part import Part, PartFault
from harness.interface import InfrastructureError, UsageError

CLOSING_TRIES: Final = 3
AGAIN_S: Final = 5.0
OUTPUT_MAX: Final = 65536
IN_FORCE: Final = "in force"
OVER: Final = "over"

_LOOKS: Final[Mapping[str, str]] = {"kill": "gone", "pause": "paused"}


class HookRunner:
    """The hooks in force on each node, and the commands that begin and end them.

    ``changed`` is called with the undo lines of all that is in force, whenever that changes.
    """

    def __init__(
        self,
        cluster: AttachedCluster,
        say: Callable[[str], None],
        changed: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._hooks = {hook.name: hook for hook in cluster.hook}
        self._say = say
        self._changed = changed
        self._active: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._touched: set[tuple[str, str]] = set()
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def set(self, name: str, node: str, *, wanted: bool) -> None:
        """Begin or end a hook on a node. Raises InfrastructureError if a command fails.

        A ``begin`` that failed counts as begun: it may have done half of its work.
        """
        key = name, node
        async with self._locks.setdefault(key, asyncio.Lock()):
            if wanted == (key in self._active):
                return
            hook = self._hooks[name]
            if wanted:
                loop = asyncio.get_running_loop()
                self._active[key] = loop.call_later(hook.limit_s, self._overdue, name, node)
                self._touched.add(key)
                self._tell()
                await self._ran(hook, hook.begin, node)
            else:
                await self._ran(hook, hook.end, node)
                self._active.pop(key).cancel()
                self._tell()

    async def probe(self, names: Sequence[str], node: str) -> str:
        """Return the first hook that is in force on a node by its own probe; "" if none is.

        A hook that was never begun there is not probed.
        """
        for name in names:
            if (name, node) in self._touched:
                hook = self._hooks[name]
                status, _ = await run(self._cluster.filled(hook.probe, node), hook.patience_s)
                if status == 0:
                    return name
        return ""

    async def close(self) -> None:
        """Undo all that is in force; print the line to type for what cannot be undone."""
        for _ in range(CLOSING_TRIES):
            ending = [self.set(name, node, wanted=False) for name, node in tuple(self._active)]
            await asyncio.gather(*ending, return_exceptions=True)
            if not self._active:
                return
            await asyncio.sleep(0.5)
        for line in self.undo_lines():
            self._say(f"jepsen-run: NOT UNDONE, type: {line}")

    def undo_lines(self) -> list[str]:
        """Return the commands that end all that is in force."""
        return [self._cluster.filled(self._hooks[name].end, node) for name, node in self._active]

    def _tell(self) -> None:
        self._changed(self.undo_lines())

    def _overdue(self, name: str, node: str) -> None:
        async def end() -> None:
            try:
                await self.set(name, node, wanted=False)
                self._say(f"{name} of {node} was undone, because its time was over")
            except InfrastructureError as error:
                self._say(f"{error}: trying again")
                self._active[name, node] = loop.call_later(AGAIN_S, self._overdue, name, node)

        loop = asyncio.get_running_loop()

        task = loop.create_task(end())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ran(self, hook: Hook, command: str, node: str) -> None:
        line = self._cluster.filled(command, node)
        status, words = await run(line, hook.patience_s)
        if status != 0:
            how = f"did not end within {hook.patience_s:g} s" if status is None else f"failed ({status})"
            raise InfrastructureError(f"hook {hook.name} of {node}: {line!r} {how}{words and ': ' + words}")


class ProcessHooks(Part):
    """The hooks that are nemeses of the same name; a probe of a node's process looks at them."""

    primitives: ClassVar[Sequence[str]] = PROCESS_HOOKS

    def __init__(self, runner: HookRunner, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._runner = runner

    def wanted(self, asked: PartFault) -> Any:
        """Return the name of the fault's hook. Raises UsageError if there is none."""
        return self._known(asked.primitive)

    def _known(self, name: str) -> str:
        if name not in self._names:
            raise UsageError(f'no hook "{name}"; there are {", ".join(self._names) or "none"}')
        return name

    async def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Begin the hook on nodes where a fault in force wants it, and end it on the others."""
        hook = changed.wanted

        def wanted(node: str) -> bool:
            return any(fault.wanted == hook and node in fault.nodes for fault in in_force)

        setting = [self._runner.set(hook, node, wanted=wanted(node)) for node in changed.nodes]
        for outcome in await asyncio.gather(*setting, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def look(self, node: str) -> str:
        """Return the node's state by the probes of the hooks that were begun there."""
        return _LOOKS.get(await self._runner.probe(self._names, node), "running")

    async def close(self) -> None:
        """Undo all that is in force; see `HookRunner.close`."""
        await self._runner.close()


class OtherHooks(ProcessHooks):
    """All other hooks, for the nemesis ``hook``."""

    name = "hook"
    primitives: ClassVar[Sequence[str]] = ("hook",)
    _turn = 0

    def wanted(self, asked: PartFault) -> Any:
        """Return the hook that an option names, or the next hook in turn."""
        if name := (asked.wanted or {}).get("name"):
            return self._known(name)
        self._turn += 1
        return self._known(self._names[(self._turn - 1) % len(self._names)])

    async def look(self, node: str) -> str:
        """Return which hook is in force on a node by its own probe."""
        found = await self._runner.probe(self._names, node)
        return f"{IN_FORCE} ({found})" if found else OVER


def parts(cluster: AttachedCluster, runner: HookRunner) -> tuple[Part, ...]:
    """Return the parts of a cluster that can be broken."""
    others = [hook.name for hook in cluster.hook if hook.name not in PROCESS_HOOKS]
    of_processes = ProcessHooks(runner, [hook.name for hook in cluster.hook if hook.name in PROCESS_HOOKS])
    return of_processes, *([OtherHooks(runner, others)] if others else [])


async def run(command: str, patience_s: float) -> tuple[int | None, str]:
    """Run a shell command; return its exit status and the last line of its output.

    The status is None if it took too long. Then it is killed, with all that it started.
    """
    with tempfile.TemporaryFile() as output:  # the end of a pipe would not come while a daemon holds it
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
        except TimeoutError:
            return None, ""
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        output.seek(0)
        lines = output.read(OUTPUT_MAX).decode(errors="replace").strip().splitlines()
    return process.returncode, lines[-1] if lines else ""
