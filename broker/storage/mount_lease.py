"""The time for which a file server keeps the locks of a machine that it does not hear of.

It is known where this machine's kernel knows it.

Why it matters: a live believes in its lock for ``lock-expiration`` after the store's last answer.
If the server forgets sooner, another broker is given the lock while the old live still believes in
it. The server tells its clients the time when they mount; Linux shows it in
``/proc/self/mountstats``::

    device server:/export mounted on /mnt/store with fstype nfs4 statvers=1.1
            nfsv4:  bm0=0xfdffbfff,...,lease_time=90,lease_expired=0

The time is unknown for other file systems. Those of one machine keep locks for as long as their
holder lives. Clients that are not part of the kernel (FUSE) do not say.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from broker.filesystem_check.mounts import mount_point

MOUNTSTATS: Final = Path("/proc/self/mountstats")

_DEVICE: Final = re.compile(r"device .* mounted on (.*) with fstype (\S+)")
_LEASE: Final = re.compile(r"\s+nfsv4:\s.*\blease_time=([0-9]+)")


def lease_s(directory: Path) -> int | None:
    """Return the lease of the file server that has ``directory``, in seconds; None if unknown.

    May hang as the file system does.
    """
    try:
        told = os.fsdecode(MOUNTSTATS.read_bytes())
    except OSError:
        return None
    return lease_in(told, os.path.realpath(directory))


def lease_in(mountstats: str, directory: str) -> int | None:
    """Return the lease for ``directory`` from the text of ``mountstats``.

    It is that of the longest mount point that ``directory`` is under. Of several equal ones it is
    that of the last, as later mounts cover earlier ones.
    """
    longest, lease = "", None
    here = False
    for line in mountstats.split("\n"):
        device = _DEVICE.match(line)
        if device is not None:
            point = mount_point(device[1])
            under = directory == point or directory.startswith(point.rstrip("/") + "/")
            here = under and len(point) >= len(longest)
            if here:
                longest, lease = point, None
        elif here and (told := _LEASE.match(line)) is not None:
            lease = int(told[1])
    return lease
