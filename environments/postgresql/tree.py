"""All processes of one PostgreSQL server, as a unit: stopped, resumed and killed together.

Why not by process group: each backend makes a session of its own. The postmaster is stopped first
and resumed last, so that no backend can start meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final, Literal

SETTLE_S: Final = 5.0
END_S: Final = 10.0
_EVERY_S: Final = 0.005

State = Literal["running", "paused", "gone"]


def members(postmaster: int) -> list[int]:
    """Return the postmaster and its children that live, the postmaster first."""
    found = [postmaster] if lives(postmaster) else []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            code, parent = _look(int(entry.name))
            if parent == postmaster and code not in "ZX":
                found.append(int(entry.name))
    return found


def lives(pid: int) -> bool:
    """Return whether a process of this number exists and has not ended."""
    return _look(pid)[0] not in "ZX"


def state(postmaster: int) -> State:
    """Return the state of all, as the kernel sees them: "paused" when every one is stopped."""
    codes = [code for code in (_look(pid)[0] for pid in members(postmaster)) if code not in "ZX"]
    if not codes:
        return "gone"
    return "paused" if all(code in "Tt" for code in codes) else "running"


def tell(postmaster: int, number: signal.Signals) -> list[int]:
    """Send a signal to all, in an order that lets none make another meanwhile.

    Returns the processes to which it was sent. SIGSTOP may have missed a process that was just
    being made: send it again until `state` is "paused".
    """
    if number == signal.SIGKILL:
        _signal(postmaster, signal.SIGSTOP)  # or it would end its children its own way, and begin anew
    told = members(postmaster)
    for pid in told if number == signal.SIGSTOP else reversed(told):
        _signal(pid, number)
    return told


async def pause(postmaster: int) -> None:
    """Stop all; returns when all have stopped, or after a while.

    A process that waits within the kernel may take longer; a probe is there to say so.
    """
    deadline = time.monotonic() + SETTLE_S
    while state(postmaster) == "running" and time.monotonic() < deadline:
        tell(postmaster, signal.SIGSTOP)
        await asyncio.sleep(_EVERY_S)


async def kill(postmaster: int) -> None:
    """Send SIGKILL to all; returns when none is left. Raises OSError if one does not end."""
    victims = tell(postmaster, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while left := [pid for pid in victims if lives(pid)]:
        if time.monotonic() > deadline:
            raise OSError(f"process {left[0]} of the database does not end: it waits within the kernel")
        await asyncio.sleep(_EVERY_S)


def _look(pid: int) -> tuple[str, int]:
    """Return the kernel's letter for a process' state, and its parent; "X" if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "X", 0
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain anything
    return fields[0].decode(), int(fields[1])


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
