"""What is mounted below a deployment's directory, and taking it away.

A mount whose program was killed stays, and whoever looks into it gets an error.

Nothing here ever touches a mounted directory: the list is the kernel's.
"""

from __future__ import annotations

from pathlib import Path

from filesystems.fuse import device as fuse_device


def below(directory: Path) -> list[Path]:
    """The places below a directory where something is mounted, the deepest first.

    One that has two mounts is there twice.
    """
    inside = str(directory.resolve()) + "/"
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")
        if place.startswith(inside):
            found.append(Path(place))
    return sorted(found, key=lambda place: len(place.parts), reverse=True)


def unmount_below(directory: Path) -> list[str]:
    """Take all of them away, from under whoever uses them; what was done, in short phrases."""
    done = []
    for place in below(directory):
        fuse_device.unmount(place)
        done.append(f"mount {place}")
    return done
