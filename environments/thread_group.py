"""A process whose first thread has ended, and whether it has ended with it.

Why that is a question: the kernel calls such a process a zombie, but while another of its threads
waits within a file system that does not answer, it keeps its files, its locks and its number. Only
the standard library is imported here: agents run where nothing else may be installed.
"""

from __future__ import annotations

from pathlib import Path


def threads_left(pid: int) -> bool:
    """Whether a process that looks like a zombie has threads yet."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False
