"""``python -m filesystems.disk.mount BEHIND DIRECTORY``: a disk that breaks on command.

The disk is mounted on DIRECTORY; its files are stored in BEHIND.

The program writes ``{"mounted": DIRECTORY}`` when the disk can be used. Then it answers a line of
JSON ``{"do": NAME, "with": {...}}`` on its standard input with a line ``{"ok": ...}`` or
``{"error": TEXT}`` on its standard output:

    condition    sets delay_ms, jitter_ms, stalled, full, failing from now on (none: a sound disk)
    power-loss   drops what was not synced, and returns how many bytes that was
    corrupt      flips a bit, or cuts a file (cut), of some files (files, a pattern of names), and
                 returns where; null if there is nothing to damage
    probe        returns "sound", "slow 20 ms", "stalled", "full", "failing write", "failing sync",
                 "damaged FILE byte N bit K"

It unmounts and ends when its standard input ends: a disk never outlives the program that runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import functools
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from filesystems.disk.condition import SYNC, WRITE
from filesystems.disk.passthrough import Passthrough
from filesystems.fuse import device as fuse_device
from filesystems.fuse.connection import FuseConnection
from filesystems.fuse.mount import log, mounted

KIND: Final = "fuse.disk"

PROBE_S: Final = 0.3
"""The seconds after which a probe calls the disk stalled."""

SLOW_S: Final = 0.001


tell = functools.partial(log, "disk")


async def look(disk: Passthrough) -> str:
    """Return the state of the disk, as a write and a sync would find it."""
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(PROBE_S):
            disk.state.change(grows=True)
            await disk.state.settle()
            if disk.state.sync_fails:
                return f"failing {SYNC}"
    except TimeoutError:
        return "stalled"
    except OSError as error:
        return "full" if error.errno == errno.ENOSPC else f"failing {WRITE}"
    took_s = time.monotonic() - began_s
    if took_s > SLOW_S and (disk.state.condition.delay_ms or disk.state.condition.jitter_ms):
        return f"slow {took_s * 1000:.0f} ms"
    damage = disk.damages.last()
    return f"damaged {damage}" if damage else "sound"


async def answer(disk: Passthrough, request: dict[str, Any]) -> Any:
    """Carry out a command, and return its answer. Raises ValueError for an unknown command."""
    name, given = request["do"], request.get("with", {})
    if name == "condition":
        disk.state.set(**given)
        tell(f"the condition of the disk is now {given or 'sound'}")
        return None
    if name == "power-loss":
        lost = disk.power_lost()
        tell(f"power loss: {lost} bytes that were not synced are lost")
        return lost
    if name == "corrupt":
        where = disk.damages.corrupt(**given)
        tell(f"stored data is damaged, as requested: {where}")
        return where
    if name == "probe":
        return await look(disk)
    raise ValueError(f"no operation {name!r}")


async def serve(behind: Path, directory: Path) -> None:
    """Mount, serve until the standard input ends, unmount. Raises OSError if mounting fails."""
    disk = Passthrough(behind, random.Random())
    async with mounted(str(behind), directory, disk.serve, tell, kind=KIND) as connection:
        loop = asyncio.get_running_loop()
        commands = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        print(json.dumps({"mounted": str(directory)}), flush=True)
        listening = loop.create_task(listen(disk, commands, connection))
        await connection.ended
        listening.cancel()


async def listen(disk: Passthrough, commands: asyncio.StreamReader, connection: FuseConnection) -> None:
    """Answer lines until the input ends; then end the mount."""
    while line := await commands.readline():
        try:
            said: dict[str, Any] = {"ok": await answer(disk, json.loads(line))}
        except (OSError, ValueError, TypeError, KeyError) as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)
    disk.state.set()  # operations that wait for a stalled disk go on
    connection.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run the program: 0 if it ended as asked, 1 if the machine refused, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m filesystems.disk.mount", description="Mount a disk that breaks when it is told to."
    )
    parser.add_argument("behind", type=Path, metavar="BEHIND")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    given = parser.parse_args(arguments)
    lack = fuse_device.missing()
    if lack:
        print(f"disk: {lack}", file=sys.stderr)
        return 1
    behind, directory = given.behind.absolute(), given.directory.absolute()
    try:
        for place in (behind, directory):
            place.mkdir(parents=True, exist_ok=True)
        asyncio.run(serve(behind, directory))
    except OSError as error:
        print(f"disk: {behind} on {directory}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
