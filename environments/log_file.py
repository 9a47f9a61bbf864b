"""The log of a program that runs elsewhere: followed while it grows, or only its last words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path


async def follow(
    read: Callable[[int], Awaitable[bytes]], position: int | None, every_s: float
) -> tuple[list[str], int]:
    """Wait until there are whole lines behind ``position`` (bytes).

    Those, and the position behind them. None: no lines, and where the log ends now.

    ``read`` gives what lies behind a position, nothing where there is no log yet; it is asked every
    ``every_s``.
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
    """What a program said last; ``nothing`` where it said nothing."""
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), nothing)
