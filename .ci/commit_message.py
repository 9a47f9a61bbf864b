"""Checks what a commit says: ``area: what changed`` in at most 72 characters, and why.

``commit_message.py FILE`` checks the message in a file, before the commit is made (a ``commit-msg``
hook). ``commit_message.py FIRST..LAST`` checks the commits of a range, except merges, as CI does
with those of a pull request. Each problem is one line; the exit status is 1 if there are any.

A body may be missing where nobody asks for a reason: if the commit changes at most 20 lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

SUBJECT_LENGTH_MAX: Final = 72
TRIVIAL_LINES_MAX: Final = 20
SUBJECT: Final = re.compile(r"[a-z0-9][a-z0-9._/ -]*: \S.*")
MELTING: Final = re.compile(r"(fixup|squash|amend)! ")
"""Subjects of commits that ``git rebase --autosquash`` melts into others; a range may have none."""


def problems(message: str, lines_changed: int) -> list[str]:
    """Return what is wrong with a commit message, each with its remedy."""
    subject, *rest = message.strip().split("\n")
    found = []
    if not SUBJECT.fullmatch(subject):
        found.append("the subject is not 'area: what changed', with the area in lower case")
    if subject.endswith("."):
        found.append("the subject ends with a full stop: remove it")
    if len(subject) > SUBJECT_LENGTH_MAX:
        found.append(f"the subject has {len(subject)} characters: {SUBJECT_LENGTH_MAX} are allowed")
    if rest and rest[0].strip():
        found.append("the second line is not blank: separate the body from the subject")
    if lines_changed > TRIVIAL_LINES_MAX and not any(line.strip() for line in rest):
        found.append(f"there is no body, and {lines_changed} lines change: say why")
    return found


def lines_changed(numstat: str) -> int:
    """Return how many lines ``git --numstat`` counts; a binary file counts as none."""
    return sum(
        int(count) for line in numstat.splitlines() for count in line.split("\t")[:2] if count.isdigit()
    )


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def _written(file: Path) -> list[str]:
    """Return the problems of the message that git is about to use, without git's own comments."""
    text = file.read_text(encoding="utf-8").partition("# ------------------------ >8")[0]
    message = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    if not message.strip() or MELTING.match(message) or message.startswith("Merge "):
        return []  # git refuses an empty message itself
    return problems(message, lines_changed(_git("diff", "--cached", "--numstat")))


def _committed(commits: str) -> list[str]:
    found = []
    for commit in _git("rev-list", "--reverse", "--no-merges", commits).split():
        message = _git("show", "--no-patch", "--format=%B", commit)
        numstat = _git("show", "--numstat", "--format=", commit)
        name = f"{commit[:10]} {message.partition(chr(10))[0]!r}"
        found += [f"{name}: {problem}" for problem in problems(message, lines_changed(numstat))]
    return found


def main() -> int:
    """Check what the one argument names."""
    (given,) = sys.argv[1:]
    found = _committed(given) if ".." in given else _written(Path(given))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
