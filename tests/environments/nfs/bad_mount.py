"""``python bad_mount.py WAY SOURCE DIRECTORY -o OPTIONS``.

The NFS mount, deceiving its users in one way.

local-locks: as with nolock, locks are this host's own. lying-sync: what is written goes to the
server when the file is closed, and fsync says it is there.
"""

import sys

from filesystems.fuse import kernel
from filesystems.nfs import filesystem
from filesystems.nfs.data import FileContent
from filesystems.nfs.mount import main


class LyingSync(FileContent):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.held = {}

    async def write(self, identity, opened, process, offset, data, *, append):
        self.held.setdefault(opened[0], []).append((identity, opened, process, offset, data, append))
        return len(data)

    async def sync(self, identity, node):
        if sys._getframe(1).f_code.co_name == "flush":  # close() lets it out
            for who, opened, process, offset, data, append in self.held.pop(node, []):
                await super().write(who, opened, process, offset, data, append=append)


way = sys.argv[1]
if way == "local-locks":
    kernel.WANTED &= ~(kernel.POSIX_LOCKS | kernel.FLOCK_LOCKS)
elif way == "lying-sync":
    filesystem.FileContent = LyingSync
else:
    sys.exit(f"unknown way {way!r}")
sys.exit(main(sys.argv[2:]))
