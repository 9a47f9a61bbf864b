"""Copies of the product's packages with replacements made in them, and Python processes that run from such a copy.

Why a copy and a process of its own: the product carries no switch for a bug, and a module that is already imported cannot become another
one. Packages that nothing is replaced in are taken from where they always are.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mutants.mutant import Replacement

ROOT: Final = Path(__file__).resolve().parents[2]


class StaleReplacementError(Exception):
    """The source has changed under a mutant: its text is not there exactly once. Look what became of that code and write the mutant again."""


def apply(text: str, replacement: Replacement) -> str:
    """The file's text with the replacement made. Raises StaleReplacementError."""
    found = text.count(replacement.old)
    if found != 1:
        raise StaleReplacementError(f"{replacement.path}: found {found} times, not once:\n{replacement.old}")
    return text.replace(replacement.old, replacement.new)


def grow(directory: Path, replacements: Iterable[Replacement], root: Path = ROOT) -> Path:
    """Copy every package that is changed into ``directory`` and change it. Returns ``directory``: the first place to import from.

    Compiled files are copied too, except those of changed modules: all else would be compiled again for each mutant.
    """
    by_path: dict[str, list[Replacement]] = {}
    for replacement in replacements:
        by_path.setdefault(replacement.path, []).append(replacement)
    for package in sorted({path.partition("/")[0] for path in by_path}):
        shutil.copytree(
            root / package, directory / package, ignore=shutil.ignore_patterns("*.tmp", "*.pyc.*")
        )
    for path, changes in by_path.items():
        file = directory / path
        text = file.read_text()
        for change in changes:
            text = apply(text, change)
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
    return directory
