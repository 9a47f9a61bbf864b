"""Tasks and futures that sort the same in every process.

``TaskGroup`` and ``asyncio.wait`` keep sets of tasks, and iterate over them when they cancel or
call back. A set's order follows the hash. The stock hash is the object's address, which differs
from one process to the next whatever ``PYTHONHASHSEED`` says. Here the hash is a number that the
loop counts up, assigned when the hash is first asked for. So a set's order depends only on what the
program did before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop


class _Numbered:
    """An object whose hash is a number of its `NodeLoop`."""

    sequence: int
    get_loop: Callable[[], NodeLoop]

    def __hash__(self) -> int:
        try:
            return self.sequence
        except AttributeError:
            self.sequence = self.get_loop().next_sequence()
            return self.sequence


class SimulatedFuture(_Numbered, asyncio.Future[Any]):
    """A future of a `NodeLoop`."""


class SimulatedTask(_Numbered, asyncio.Task[Any]):
    """A task of a `NodeLoop`."""


def sorted_tasks(tasks: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Return tasks in the order of their numbers."""
    return sorted(tasks, key=hash)


def describe(task: asyncio.Task[Any]) -> str:
    """Return a task's name and where it waits: "link to b1 at link.py:404 in connect"."""
    awaited: Any = task.get_coro()
    place = ""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            place = f" at {Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()}{place}"
