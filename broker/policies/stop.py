"""The stop of a broker: the wait for it, and the bound on the time of a clean one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final

STOP_PATIENCE_S: Final = 10.0
"""The time that a clean stop waits for the store before it becomes an unclean one."""

_log = logging.getLogger(__name__)


async def until(stopping: asyncio.Event, other: asyncio.Future[Any]) -> None:
    """Return when a stop is asked for or ``other`` is done, whichever comes first."""
    stop = asyncio.create_task(stopping.wait(), name="wait for stop")
    try:
        await asyncio.wait({stop, other}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()


async def in_time(closing: Awaitable[object], waited_for: str) -> None:
    """Await the end of a clean stop; after too long a wait, log what did not answer.

    ``waited_for`` names it.
    """
    try:
        async with asyncio.timeout(STOP_PATIENCE_S):
            await closing
    except TimeoutError:
        _log.warning("%s did not answer within %g s: the shutdown is not clean", waited_for, STOP_PATIENCE_S)
