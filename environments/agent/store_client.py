"""The NFS client of a container.

It mounts the shared directory, and mounts it again if its program ever ends.

Why this is separate from the broker: a mount belongs to the machine. When the broker is killed, the
machine's locks must stay with the machine's client, which gives them back. When the machine is
killed, both end, and the server learns of it by the end of the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from environments.agent.child import Child
from filesystems.fuse import device as fuse_device

_AGAIN_S: Final = 1.0


class StoreClient:
    """The mount of a node, or none.

    ``child`` is the mount program; what it says of server and lease goes to ``log``.
    """

    def __init__(self, log: Path, say: Callable[[str], object]) -> None:
        self.child = Child(log)
        self._say = say
        self._keeping: asyncio.Task[None] | None = None

    def begin(self, source: str, directory: str, options: str) -> None:
        """Mount ``SERVER:PORT/EXPORT`` from now on, waiting for a server that is silent.

        Does nothing if that has begun.
        """
        if self._keeping is None:
            Path(directory).mkdir(parents=True, exist_ok=True)
            command = ["python", "-m", "filesystems.nfs.mount", source, directory, "-o", options]
            self._keeping = asyncio.get_running_loop().create_task(self._keep(command, Path(directory)))

    async def _keep(self, command: list[str], directory: Path) -> None:
        while True:
            try:
                fuse_device.unmount(directory)  # the mount of a killed client: nothing else is mounted there
                self.child.start(command, {})
            except OSError as error:  # no process to be had, say
                self._say(f"the NFS client could not be started: {error}; trying again")
            else:
                await self.child.exited.wait()
                self._say(f"the NFS client ended with status {self.child.status}; starting it again")
            await asyncio.sleep(_AGAIN_S)
