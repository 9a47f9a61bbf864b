"""The command lines that this program prints for people who paste them into their shell.

Why not just "jepsen-run": most people have it in a virtual environment that is not activated, or
run it with ``python -m``. A command that ends in "not on_path" is no help.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "jepsen-run"
_MODULES: Final = "harness.commands."
"""The prefix of the modules that can be run with ``python -m`` instead of the script."""


def command(*arguments: str) -> str:
    """Return a command line of this program, quoted for a shell, that works where it is pasted."""
    return shlex.join([*called(), *arguments])


def called() -> tuple[str, ...]:
    """Return the words with which this program was called; its name if another one imports it.

    A path below the current directory is relative. A script that the shell finds by its name is
    that name.
    """
    module = getattr(sys.modules["__main__"], "__spec__", None)
    if module is not None and module.name.startswith(_MODULES):
        before = len(sys.orig_argv) - len(sys.argv) + 1
        return (_program(sys.orig_argv[0]), *sys.orig_argv[1:before])
    script = sys.argv[0] if sys.argv else ""
    return (_program(script),) if Path(script).name == NAME else (NAME,)


def _program(path: str) -> str:
    """Return how a shell in the current directory names a program."""
    on_path = shutil.which(Path(path).name)
    if os.sep not in path or (on_path is not None and Path(on_path).absolute() == Path(path).absolute()):
        return Path(path).name
    absolute, directory = Path(path).absolute(), Path.cwd()
    if Path(path).is_absolute() and absolute.is_relative_to(directory):
        relative = str(absolute.relative_to(directory))
        return relative if os.sep in relative else f".{os.sep}{relative}"
    return path
