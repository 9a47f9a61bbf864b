"""Guards against calls that code in a world must not make, because no seed decides their results.

The calls are replaced while a world runs, in the thread that runs it. Other threads (a JVM's, a
debugger's) are left alone. Code that took a function into a name of its own before (``from time
import time``), and calls that live in C only (``datetime.now``), cannot be caught here; the
comparison of two runs' digests is for these.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from environments.simulation.errors import ForbiddenCallError

CLOCK: Final = "time is loop.time(), and the wall clock comes through a seam"
WAIT: Final = "wait with asyncio.sleep"
CHANCE: Final = "chance comes through a seam, as a seeded random.Random"
THREAD: Final = "there are no threads in a simulation; put what blocks behind a seam"
PROCESS: Final = "a simulated process is spawned by World.spawn"
SOCKET: Final = "connect through the running loop"

RANDOM_FUNCTIONS: Final = tuple(
    name
    for name in random.__all__
    if isinstance(getattr(getattr(random, name), "__self__", None), random.Random)
)

FORBIDDEN: Final[tuple[tuple[Any, str, str, str], ...]] = (
    *(
        (time, name, f"time.{name}", CLOCK)
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
    ),
    (time, "sleep", "time.sleep", WAIT),
    *((random, name, f"random.{name}", CHANCE) for name in RANDOM_FUNCTIONS),
    (random, "_urandom", "random.SystemRandom", CHANCE),
    (os, "urandom", "os.urandom", CHANCE),
    (os, "getrandom", "os.getrandom", CHANCE),
    (uuid, "uuid1", "uuid.uuid1", CHANCE),
    (uuid, "uuid4", "uuid.uuid4", CHANCE),
    (threading.Thread, "start", "threading.Thread.start", THREAD),
    (asyncio, "to_thread", "asyncio.to_thread", THREAD),
    (subprocess.Popen, "__init__", "subprocess.Popen", PROCESS),
    (os, "fork", "os.fork", PROCESS),
    (os, "system", "os.system", PROCESS),
    (os, "posix_spawn", "os.posix_spawn", PROCESS),
    (socket.socket, "__init__", "socket.socket", SOCKET),
    (socket, "getaddrinfo", "socket.getaddrinfo", SOCKET),
    (socket, "gethostname", "socket.gethostname", "a simulated machine is named by its node"),
)
"""The forbidden calls: (owner, attribute, name in the message, what to do instead)."""

STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib")

_installed: list[Guards] = []


class Guards:
    """The guards of one world.

    ``fail`` is told of each forbidden call, whatever catches it; ``wall_s`` dates log records.
    """

    def __init__(
        self, fail: Callable[[BaseException], None], wall_s: Callable[[], float], node: Callable[[], str]
    ) -> None:
        self._fail = fail
        self._wall_s = wall_s
        self._node = node
        self._lifted = False
        self._thread = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make each forbidden call in this thread raise while the context lasts.

        Afterwards everything is as before. This is also so for code that took a guarded function
        into a name of its own, or is still in one (another thread's sleep). One world runs at a
        time.
        """
        if _installed:
            raise RuntimeError("a world already runs in this process; run one after the other")
        self._thread = threading.get_ident()
        saved = [(owner, name, vars(owner)[name]) for owner, name, _, _ in FORBIDDEN if name in vars(owner)]
        saved.append((random.Random, "seed", random.Random.seed))
        _installed.append(self)
        try:
            for owner, name, shown, instead in FORBIDDEN:
                if name in vars(owner):
                    setattr(owner, name, self._guard(vars(owner)[name], shown, instead))
            random.Random.seed = self._seeded(random.Random.seed)  # type: ignore[method-assign]
            yield
        finally:
            for owner, name, original in saved:
                setattr(owner, name, original)
            _installed.remove(self)
            self._thread = 0
            del self._fail, self._wall_s, self._node

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Lift the guards for the world's own work (garbage collection runs hooks of others)."""
        self._lifted = True
        try:
            yield
        finally:
            self._lifted = False

    def _guard(self, original: Callable[..., Any], shown: str, instead: str) -> Callable[..., Any]:
        wall_clock = {"time.time": 1.0, "time.time_ns": 1e9}.get(shown)

        def forbidden(*arguments: Any, **options: Any) -> Any:
            if self._lifted or threading.get_ident() != self._thread:
                return original(*arguments, **options)
            caller = sys._getframe(1)  # noqa: SLF001
            if wall_clock is not None and caller.f_globals.get("__name__") == "logging":
                return self._wall_s() if wall_clock == 1.0 else int(self._wall_s() * wall_clock)
            if _imports(caller):
                return original(*arguments, **options)
            raise self._refused(shown, instead, caller)

        return forbidden

    def _seeded(self, original: Callable[..., None]) -> Callable[..., None]:
        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None and not self._lifted and threading.get_ident() == self._thread:
                caller = sys._getframe(1)  # noqa: SLF001
                if not _imports(caller):
                    raise self._refused("random.Random() without a seed", CHANCE, caller)
            original(generator, a, version)

        return seed

    def _refused(self, shown: str, instead: str, caller: FrameType) -> ForbiddenCallError:
        frame: FrameType | None = caller
        while frame is not None and frame.f_code.co_filename.startswith(STANDARD_LIBRARY):
            frame = frame.f_back  # the caller is at fault, not a helper of the standard library
        code = (frame or caller).f_code
        error = ForbiddenCallError(
            f"{shown} called on node {self._node()} at {code.co_filename}:{(frame or caller).f_lineno} "
            f"in {code.co_name}: {instead}"
        )
        self._fail(error)
        return error


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: its code then runs once a process."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
