"""The changed product: copies of its packages in which texts are replaced.

It also says how a Python process runs from such a copy.

Why texts and not patches by line: a replacement names what it replaces. So it survives code that
moves, and fails loudly when the code that it names has changed. Why a copy and a process of its
own: the product carries no switch for a bug, and a module that is already imported cannot become
another one. Packages in which nothing is replaced are imported from their usual place: a checkout,
or the installed product.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory of the product's packages."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A change of a source file: ``old`` becomes ``new``.

    ``old`` occurs exactly once in the file at ``path``, which is relative to the packages'
    directory.
    """

    path: str
    old: str
    new: str


class StaleReplacementError(Exception):
    """The source has changed under a replacement: its text does not occur exactly once.

    Look for what became of that code and write the replacement again.
    """


def apply(text: str, replacement: Replacement) -> str:
    """Return the file's text with the replacement made. Raises StaleReplacementError."""
    occurrences = text.count(replacement.old)
    if occurrences != 1:
        raise StaleReplacementError(
            f"{replacement.path}: found {occurrences} times, not once:\n{replacement.old}"
        )
    return text.replace(replacement.old, replacement.new)


def texts(replacements: Iterable[Replacement], root: Path = ROOT) -> dict[str, str]:
    """Return the new text of each changed file, by its path. Raises StaleReplacementError."""
    changed: dict[str, str] = {}
    for replacement in replacements:
        before = changed.get(replacement.path)
        if before is None:
            file = root / replacement.path
            before = file.read_text(encoding="utf-8") if file.is_file() else ""
        changed[replacement.path] = apply(before, replacement)
    return changed


def grow(directory: Path, replacements: Iterable[Replacement], root: Path = ROOT) -> Path:
    """Copy every package with changes into ``directory`` and make the changes there.

    Returns ``directory``: the first place to import from.

    Compiled files are copied too, except those of changed modules: otherwise everything would be
    compiled again for each change. Raises StaleReplacementError.
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
    """Return the environment of a process that imports from these places first.

    Processes that it starts do so, too. Start Python with ``-P``: then nothing else decides.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(place) for place in places)}
