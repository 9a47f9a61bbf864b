"""A faster start, without what a verdict does not need.

Why: Arrow looks for pandas at its first conversion, to recognise objects of pandas. There are none
here, and importing pandas takes longer than judging a history of a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def without_pandas() -> None:
    """Let Arrow look for pandas now and find none; it never looks again.

    Only for a process of our own: it can have no data frames after this.
    """
    if "pandas" not in sys.modules:
        hiding = _Hiding()
        sys.meta_path.insert(0, hiding)
        try:
            pa.array(())
        finally:
            sys.meta_path.remove(hiding)


class _Hiding(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed", name=fullname)
        return None
