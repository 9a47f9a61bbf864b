"""All processes of one PostgreSQL server, as one thing: stopped, resumed and killed together.

Why not by process group: each backend makes a session of its own. The postmaster is stopped first
and resumed last, so that no backend can come to be meanwhile.
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
    """The postmaster and its children that live, the postmaster first."""
    found = [postmaster] if lives(postmaster) else []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            code, parent = _look(int(entry.name))
            if parent == postmaster and code not in "ZX":
                found.append(int(entry.name))
    return found


def lives(pid: int) -> bool:
    """Whether it is a process that has not ended."""
    return _look(pid)[0] not in "ZX"


def state(postmaster: int) -> State:
    """As the kernel sees them: "paused" when every one is stopped."""
    codes = [code for code in (_look(pid)[0] for pid in members(postmaster)) if code not in "ZX"]
    if not codes:
        return "gone"
    return "paused" if all(code in "Tt" for code in codes) else "running"


def tell(postmaster: int, number: signal.Signals) -> list[int]:
    """Send a signal to all, in the order that leaves nobody time to make another.

    Whom it was sent to. One that was just being made may have been missed by SIGSTOP: send it again
    until `state` is "paused".
    """
    if number == signal.SIGKILL:
        _signal(postmaster, signal.SIGSTOP)  # or it would end its children its own way, and begin anew
    told = members(postmaster)
    for pid in told if number == signal.SIGSTOP else reversed(told):
        _signal(pid, number)
    return told


async def pause(postmaster: int) -> None:
    """Stop all; returns when all have stopped.

    What waits within the kernel may take longer: it is for a probe to say what is.
    """
    deadline = time.monotonic() + SETTLE_S
    while state(postmaster) == "running" and time.monotonic() < deadline:
        tell(postmaster, signal.SIGSTOP)
        await asyncio.sleep(_EVERY_S)


async def kill(postmaster: int) -> None:
    """SIGKILL to all; returns when none is left. Raises OSError naming one that does not end."""
    victims = tell(postmaster, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while left := [pid for pid in victims if lives(pid)]:
        if time.monotonic() > deadline:
            raise OSError(f"process {left[0]} of the database does not end: it waits within the kernel")
        await asyncio.sleep(_EVERY_S)


def _look(pid: int) -> tuple[str, int]:
    """The kernel's letter for a process' state, and its parent; "X" for none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "X", 0
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain anything
    return fields[0].decode(), int(fields[1])


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
