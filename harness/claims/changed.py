"""A product with something changed in it.

Copies of its packages with replacements of text made in them, and how a Python process runs from
such a copy.

Why texts and not patches by line: a replacement names what it replaces, so it survives code that
moves, and fails loudly when the code it speaks of has changed. Why a copy and a process of its own:
the product carries no switch for a bug, and a module that is already imported cannot become another
one. Packages that nothing is replaced in are taken from where they always are: a checkout, or where
the product is installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where the packages of the product lie."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A change of a source file: ``old`` becomes ``new``.

    ``old`` stands in the file at ``path`` (from where the packages lie) exactly once.
    """

    path: str
    old: str
    new: str


class StaleReplacementError(Exception):
    """The source has changed under a replacement: its text is not there exactly once.

    Look what became of that code and write the replacement again.
    """


def apply(text: str, replacement: Replacement) -> str:
    """The file's text with the replacement made. Raises StaleReplacementError."""
    found = text.count(replacement.old)
    if found != 1:
        raise StaleReplacementError(f"{replacement.path}: found {found} times, not once:\n{replacement.old}")
    return text.replace(replacement.old, replacement.new)


def texts(replacements: Iterable[Replacement], root: Path = ROOT) -> dict[str, str]:
    """What becomes of each changed file, by its path. Raises StaleReplacementError."""
    changed: dict[str, str] = {}
    for replacement in replacements:
        before = changed.get(replacement.path)
        if before is None:
            file = root / replacement.path
            before = file.read_text(encoding="utf-8") if file.is_file() else ""
        changed[replacement.path] = apply(before, replacement)
    return changed


def grow(directory: Path, replacements: Iterable[Replacement], root: Path = ROOT) -> Path:
    """Copy every package that is changed into ``directory`` and change it.

    Returns ``directory``: the first place to import from.

    Compiled files are copied too, except those of changed modules: all else would be compiled again
    for each change. Raises StaleReplacementError.
    """
    changed = texts(replacements, root)
    for package in sorted({path.partition("/")[0] for path in changed}):
        shutil.copytree(
            root / package, directory / package, ignore=shutil.ignore_patterns("*.tmp", "*.pyc.*")
        )
    for path, text in changed.items():
        file = directory / path
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
    return directory


def variables(*places: Path) -> dict[str, str]:
    """The environment of a process that imports from these places first.

    So do its own processes. Start Python with ``-P``: then nothing else decides.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(place) for place in places)}
