"""Processes that run the product with a set of replacements, to be asked one job after the
other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mutants.changed import ROOT, Replacement, grow, variables


class Workshop:
    """One process; a context manager.

    ``ask`` raises RuntimeError with its last words when it ends instead of answering.

    ``module`` is what runs there: it answers each line of JSON with one.
    """

    def __init__(self, replacements: Sequence[Replacement], module: str = "mutants.worker") -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="mutant-")
        tree = grow(Path(self._directory.name), replacements)
        self._errors = (tree / "stderr").open("w+")
        self._process = subprocess.Popen(
            # -P: nothing but PYTHONPATH decides where the product comes from.
            [sys.executable, "-P", "-m", module],
            env=variables(tree, ROOT / "tests", ROOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, **job: Any) -> dict[str, Any]:
        """One job, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"the process of {job} ended:\n{self._errors.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and remove its copy."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
