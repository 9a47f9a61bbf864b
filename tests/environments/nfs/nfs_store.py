"""A real server and its clients, for one test.

Everything is gone at its end, whatever state it was in. Tests have it by the fixture ``store``.
"""

import asyncio
import socket
import tempfile
from pathlib import Path

from environments.ganesha import GaneshaServer, ServerOptions
from environments.nfs_mounting import mount
from harness.interface import Address

MEMORY = Path("/dev/shm")  # noqa: S108
SAFE = "sync,noac,lookupcache=none"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Store:
    """One server; ``host`` is one more machine that mounts it."""

    def __init__(self, directory: Path, **server):
        self.directory = directory
        # In memory where there is some: what syncs cost on this machine's disk is not what is
        # tested.
        self._memory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else directory)
        self.server = GaneshaServer(
            ServerOptions(
                directory=Path(self._memory.name),
                state=directory / "server",
                port=free_port(),
                **{"lease_s": 6, "grace_s": 6, **server},
            )
        )
        self.mounts = []

    async def host(self, name, options=f"hard,{SAFE}"):
        options_text = options if "timeo" in options else f"{options},timeo=100,retrans=2"
        mounted = await mount(
            Address(self.server.options.host, self.server.options.port),
            self.server.options.export,
            self.directory / name,
            options_text,
            self.log(name),
        )
        self.mounts.append(mounted)
        return mounted

    async def begin(self):
        try:
            await self.server.start()
        except BaseException:
            self._memory.cleanup()
            raise

    async def end(self):
        for mounted in self.mounts:
            await mounted.unmount()
        await self.server.kill()
        self._memory.cleanup()

    def log(self, name):
        return self.directory / f"{name}.log"

    async def said(self, name, words):
        """Wait until a client's log has these words."""
        while words not in self.log(name).read_text():
            await asyncio.sleep(0.02)
