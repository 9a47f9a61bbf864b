"""The lock-wait test: take a lock and keep it until told, or wait for the holder.

Run on two hosts, it shows by hand how a lock passes over.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from broker.filesystem_check.calls import Calls
from broker.filesystem_check.results import PREFIX, CheckResult

_AGAIN_S: Final = 1.0
NAME: Final = f"{PREFIX}.lkw"


async def lock_wait(
    directory: Path, calls: Calls, say: Callable[[str], None], released: Callable[[], Awaitable[None]]
) -> list[CheckResult]:
    """Take the lock, waiting for it as long as it takes; keep it until ``released`` returns.

    The file stays, because the other host waits on it.
    """
    try:
        calls.stat(directory)
        descriptor = calls.open(directory / NAME, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        return [CheckResult("directory", f"{error.strerror} (errno {error.errno})")]
    try:
        if calls.fstat(descriptor).st_uid == os.geteuid():
            calls.fchmod(descriptor)
        if calls.lock(descriptor, fcntl.LOCK_EX):
            say("Start a second copy of this program with the same parameters on another server.")
        else:
            say("Waiting for the file lock.")
            await asyncio.sleep(_AGAIN_S)
            while not calls.lock(descriptor, fcntl.LOCK_EX):
                say("Waiting for the file lock.")
                await asyncio.sleep(_AGAIN_S)
        say("File lock acquired. Press Enter or terminate this process to release the lock.")
        await released()
    except OSError as error:
        return [CheckResult("lock", f"{error.strerror} (errno {error.errno})")]
    finally:
        calls.close(descriptor)
    say("File lock released.")
    return [CheckResult("lock")]
