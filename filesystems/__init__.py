"""Our own file systems: FUSE, an NFSv4 client, and a disk that breaks."""

from pathlib import Path


def modules_of(*packages: str) -> tuple[str, ...]:
    """Return the modules of some of our packages, and this one, as paths from the project's root.

    They need only the standard library on the machine to which they are copied.
    """
    here = Path(__file__).parent
    paths = [
        here / "__init__.py",
        *(path for name in packages for path in sorted((here / name).glob("*.py"))),
    ]
    return tuple(path.relative_to(here.parent).as_posix() for path in paths)
