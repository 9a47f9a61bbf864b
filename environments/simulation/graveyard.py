"""The place where tasks of dead processes are kept until the end of the world.

Python runs the ``finally`` blocks of a coroutine that it drops. A process that was killed must not
do anything, so its tasks are kept as they are until the world is over and its trace is closed. Then
they are closed, in silence and against a dead loop: their memory is given back, and what their
``finally`` blocks do has no effect on the world.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from environments.simulation.tasks import sorted_tasks

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop

CLOSES_MAX: Final = 100
"""The most calls of ``close``: a coroutine needs one more for each await in its ``finally``."""


class Graveyard:
    """The loops of dead processes, with everything that they had not finished."""

    def __init__(self) -> None:
        self._loops: list[tuple[NodeLoop, list[asyncio.Task[Any]]]] = []

    def take(self, loop: NodeLoop) -> None:
        """Keep a dead loop and its tasks from being dropped."""
        self._loops.append((loop, sorted_tasks(asyncio.all_tasks(loop))))

    def bury(self) -> None:
        """Close the tasks of the dead loops, and give back what they held."""
        with _silence():
            before = events._get_running_loop()  # noqa: SLF001
            try:
                for loop, left in self._loops:
                    tasks = left
                    events._set_running_loop(loop)  # noqa: SLF001
                    buried: set[asyncio.Task[Any]] = set()
                    while tasks:
                        for task in tasks:
                            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                            _close(task.get_coro().close)
                        # A ``finally`` may have made tasks of its own, which are never
                        # stepped.
                        buried.update(tasks)
                        tasks = [task for task in sorted_tasks(asyncio.all_tasks(loop)) if task not in buried]
                    for generator in list(loop._asyncgens):  # type: ignore[attr-defined]  # noqa: SLF001
                        closing = generator.aclose()
                        _close(lambda closing=closing: closing.send(None))  # type: ignore[misc]
                    loop.close()
            finally:
                events._set_running_loop(before)  # noqa: SLF001
            self._loops.clear()


def _close(close: Callable[[], object]) -> None:
    for _ in range(CLOSES_MAX):
        try:
            close()
        except RuntimeError:  # it awaited again, or failed with RuntimeError: try again
            continue
        except BaseException:  # noqa: BLE001 - the outcome of a dead coroutine's finally does not matter
            return
        return


@contextmanager
def _silence() -> Iterator[None]:
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook
