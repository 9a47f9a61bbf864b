"""File systems of our making: FUSE, an NFSv4 client, and a disk that breaks."""

from pathlib import Path


def modules_of(*packages: str) -> tuple[str, ...]:
    """The modules of these packages of ours, and this one, as paths from the project's root.

    Copied to a machine they run there on the standard library alone.
    """
    here = Path(__file__).parent
    paths = [
        here / "__init__.py",
        *(path for name in packages for path in sorted((here / name).glob("*.py"))),
    ]
    return tuple(path.relative_to(here.parent).as_posix() for path in paths)
