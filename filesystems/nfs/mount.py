"""``python -m filesystems.nfs.mount SERVER[:PORT]/EXPORT DIRECTORY [-o OPTIONS]``.

The program is an NFSv4 mount through FUSE.

It writes ``mounted DIRECTORY`` to its standard output when the file system can be used. Events of
the server and the lease go to its standard error, as the kernel would log them. It ends on SIGTERM,
SIGINT or an unmount, and then gives back what is open and locked. Exit status: 0 if it ended as
asked, 1 if the server or the machine refused, 254 for wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filesystems.fuse import device as fuse_device
from filesystems.fuse.mount import log, mounted
from filesystems.nfs.client import DEFAULT_PORT, NfsClient
from filesystems.nfs.filesystem import FileSystem
from filesystems.nfs.options import MountOptionError, MountOptions, parse

KIND: Final = "fuse.nfs4"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 254
_SOURCE: Final = re.compile(r"(?P<host>\[[^]]+\]|[^:/\[\]]+)(?::(?P<port>\d+)(?=/)|:)?(?P<export>/.*)")
_FAREWELL_S: Final = 2.0


@dataclass(frozen=True)
class MountSource:
    """The source of a mount: ``SERVER[:PORT]/EXPORT``."""

    host: str
    port: int
    export: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}{self.export}"


def source(text: str, options: MountOptions) -> MountSource:
    """Read SERVER:/EXPORT or SERVER:PORT/EXPORT. Raises MountOptionError."""
    found = _SOURCE.fullmatch(text)
    if found is None:
        raise MountOptionError(f"{text!r} is not SERVER[:PORT]/EXPORT (example: 10.0.0.5:2049/store)")
    port = int(found["port"]) if found["port"] else (options.port or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise MountOptionError(f"{text!r}: the port must be from 1 to 65535")
    return MountSource(found["host"].strip("[]"), port, found["export"])


tell = functools.partial(log, "nfs")


async def serve(where: MountSource, directory: Path, options: MountOptions, name: str) -> None:
    """Mount, serve until the end, unmount. Raises OSError if mounting fails."""
    client = NfsClient(where.host, where.port, options, name=name, tell=tell)
    try:
        root = await client.connect(where.export)
        file_system = FileSystem(client, root, tell)
        async with mounted(
            str(where), directory, file_system.serve, tell,
            kind=KIND, read_only=options.read_only, interruptible=options.intr,
        ):  # fmt: skip
            print(f"mounted {directory} from {where}, lease {client.lease_s} s", flush=True)
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await file_system.close()
        except TimeoutError:
            tell("the server does not answer: open files and locks end when their lease expires")
    finally:
        await client.close()


def main(arguments: list[str] | None = None) -> int:
    """Run the program, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m filesystems.nfs.mount", description="Mount an NFSv4 export through FUSE."
    )
    parser.add_argument("source", metavar="SERVER[:PORT]/EXPORT")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "-o", dest="options", default="", help="mount options, as in nfs(5), with commas between"
    )
    parser.add_argument(
        "--name", help="who this client is to the server; the same again ends its former life"
    )
    parser.exit_on_error = False
    try:
        given = parser.parse_args(arguments)
        options = parse(given.options)
        where = source(given.source, options)
    except (argparse.ArgumentError, MountOptionError) as error:
        print(f"mount: {error}", file=sys.stderr)
        return EXIT_USAGE
    except SystemExit as ended:
        return EXIT_USAGE if ended.code else 0
    directory = given.directory.absolute()
    if lack := fuse_device.missing():
        print(f"mount: {lack}", file=sys.stderr)
        return EXIT_FAILED
    name = given.name or f"{socket.gethostname()} {directory}"
    try:
        asyncio.run(serve(where, directory, options, name))
    except OSError as error:
        print(f"mount: {where} on {directory}: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
