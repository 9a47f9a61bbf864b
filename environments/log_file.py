"""Reading the log of a program that runs elsewhere: new lines while it grows, or the last line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path


async def follow(
    read: Callable[[int], Awaitable[bytes]], position: int | None, every_s: float
) -> tuple[list[str], int]:
    """Wait until the log has whole lines behind ``position`` (bytes), and return them.

    Returns these lines and the position behind them. For the position None: no lines, and the
    position where the log ends now.

    ``read`` returns the bytes behind a position, and none where there is no log yet. It is called
    every ``every_s`` seconds.
    """
    if position is None:
        return [], len(await read(0))
    while True:
        data = await read(position)
        end = data.rfind(b"\n") + 1
        if end:
            return data[:end].decode(errors="replace").splitlines(), position + end
        await asyncio.sleep(every_s)


def last_line(path: Path, nothing: str) -> str:
    """Return the last line that is not blank in a program's log, or ``nothing`` without one."""
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), nothing)
