"""A recorded schedule and ``jepsen-run replay``, as whoever gets the file would see it.

In a copy of the project, from its command line.

Why the command line and not the simulation behind it: that a schedule shows a bug is worth what a
stranger can do with the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.changed import ROOT, Replacement, grow, variables


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the command said: its exit status and its words."""

    status: int
    words: str

    @property
    def reproduced(self) -> bool:
        """Its word for it; the exit status must agree."""
        return self.status == 1 and "\nREPRODUCED " in self.words

    @property
    def not_reproduced(self) -> bool:
        """As ``reproduced``."""
        return self.status == 0 and "\nNOT REPRODUCED " in self.words


def clone(directory: Path) -> Path:
    """What is committed, and nothing else of this checkout. Returns where it is."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(directory)], check=True, timeout=600)
    return directory


def replay(recorded: Path, replacements: Sequence[Replacement], root: Path = ROOT) -> Replayed:
    """``jepsen-run replay`` of that file by the project at ``root`` with the replacements made."""
    with tempfile.TemporaryDirectory(prefix="replay-") as directory:
        tree = grow(Path(directory), replacements, root)
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                "import sys; from harness.commands.cli import main; sys.exit(main())",
                "replay",
                str(recorded),
            ],
            env=variables(tree, root),
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    return Replayed(done.returncode, f"\n{done.stdout}{done.stderr}")
