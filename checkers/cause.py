"""The cause of an error in one line, also of an error that a worker or Java raised."""

from __future__ import annotations

import itertools
import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_WORKER: Final = "Error from python worker:"
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # the line of a traceback that names the exception


def in_a_line(error: BaseException) -> str:
    """Return the cause of an error in one line.

    For an error in a worker of Spark this is the last line of the traceback there, or the reason
    why the worker could not start. For an error in Java it is the last cause. For any other error
    it is the name of its class and its first line.
    """
    lines = [line.rstrip() for line in str(error).strip().splitlines() if line.strip()]
    if _WORKER in lines[:-1]:
        problem = lines[lines.index(_WORKER) + 1].strip()
        return (
            f"a worker's Python could not start ({problem}): it needs this package, and PYSPARK_PYTHON "
            "names it where it has another path"
        )
    if _TRACEBACK in lines:
        trace = itertools.takewhile(lambda line: line[0] != "\t", lines[lines.index(_TRACEBACK) + 1 :])
        raised = [line for line in trace if _RAISED.match(line)]
        if raised:
            return raised[-1]
    causes = [
        line.strip().removeprefix("Caused by: ") for line in lines if line.strip().startswith("Caused by: ")
    ]
    return (
        causes[-1] if causes else f"{type(error).__name__}: {lines[0].strip() if lines else ''}".rstrip(": ")
    )
