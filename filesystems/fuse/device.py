"""/dev/fuse: mounting, unmounting, and ending a mount that is stuck.

No function here touches the mounted directory itself.

Root mounts by mount(2); other users mount through fusermount3, which passes the open device back
over a socket.
"""

from __future__ import annotations

import array
import ctypes
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DEVICE: Final = Path("/dev/fuse")
MOUNTS: Final = Path("/proc/self/mountinfo")
_NOSUID_NODEV: Final = 2 | 4
_READ_ONLY: Final = 1
_DETACH: Final = 2
_CONNECTIONS: Final = Path("/sys/fs/fuse/connections")


class MountError(OSError):
    """The kernel, or fusermount3, refused to mount."""


def missing() -> str:
    """Return what this machine lacks for a FUSE mount; "" if nothing."""
    if not DEVICE.exists():
        return (
            f"{DEVICE} is missing (load the kernel module: sudo modprobe fuse; in a container: "
            f"--device {DEVICE} --cap-add SYS_ADMIN)"
        )
    if os.geteuid() == 0:
        return ""
    if shutil.which("fusermount3") is None:
        return "fusermount3 is missing, which mounts for users other than root (sudo apt-get install fuse3)"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"no permission for {DEVICE}"
    return ""


def mount(source: str, directory: Path, *, kind: str, read_only: bool = False) -> int:
    """Mount a file system of a ``kind`` ("fuse.NAME") on a directory.

    Returns the descriptor that requests are read from. Raises MountError.
    """
    if os.geteuid() != 0:
        return _by_helper(source, directory, read_only=read_only, kind=kind)
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    data = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NOSUID_NODEV | (_READ_ONLY if read_only else 0)
    if libc.mount(
        source.encode(), os.fsencode(directory), kind.encode(), ctypes.c_ulong(flags), data.encode()
    ):
        number = ctypes.get_errno()
        os.close(device)
        raise MountError(number, f"mounting {directory} failed: {os.strerror(number)}")
    return device


def _by_helper(source: str, directory: Path, *, read_only: bool, kind: str) -> int:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        subtype = kind.partition(".")[2]
        options = f"nosuid,nodev,default_permissions,fsname={source},subtype={subtype}" + (
            ",ro" if read_only else ""
        )
        done = subprocess.run(
            ["fusermount3", "-o", options, "--", str(directory)],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=(theirs.fileno(),),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MountError(1, f"mounting {directory} failed: {' '.join(done.stderr.split())}")
        descriptors = array.array("i")
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
    for level, message, data in ancillary:
        if level == socket.SOL_SOCKET and message == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: descriptors.itemsize])
            os.set_inheritable(descriptors[0], False)
            return descriptors[0]
    raise MountError(1, f"mounting {directory} failed: fusermount3 passed no device")


def unmount(directory: Path) -> None:
    """Unmount a directory, if it is mounted, at once, whether or not the file system answers."""
    if os.geteuid() == 0:
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(directory), _DETACH)
    else:
        subprocess.run(["fusermount3", "-u", "-z", "--", str(directory)], capture_output=True, check=False)


def connection(directory: Path) -> int | None:
    """Return the number of the FUSE connection on a directory; None if there is none.

    The directory itself is not touched.
    """
    found = None
    for place, kind, device in places():
        if place == str(directory.parent.resolve() / directory.name) and kind.startswith("fuse"):
            found = int(device.partition(":")[2])
    return found


def places(mounts: bytes | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield the directory, the kind of file system and the device of each mount.

    ``mounts`` is the text of a ``mountinfo``; None: the kernel's now. Some bytes of a directory are
    octal numbers there, and all others are literal: it may not be UTF-8.
    """
    told = MOUNTS.read_bytes() if mounts is None else mounts
    for line in filter(None, told.split(b"\n")):
        words = line.split(b" ")
        directory = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), words[4])
        kind, device = words[words.index(b"-") + 1], words[2]
        yield os.fsdecode(directory), os.fsdecode(kind), os.fsdecode(device)


def abort(number: int) -> bool:
    """Abort a connection: processes that wait in it get ENOTCONN or ECONNABORTED.

    Returns false if this machine does not offer that (fusectl is not mounted).
    """
    try:
        (_CONNECTIONS / str(number) / "abort").write_text("1")
    except OSError:
        return False
    return True
