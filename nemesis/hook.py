"""Hooks: faults of the user's own, each a command of an attached cluster that another undoes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from nemesis.kind import PAIR, Option, some_text
from nemesis.node import NodeKind


class Hook(NodeKind):
    """A hook in the file of ``--attach`` that does not have the name of a nemesis."""

    name = "hook"
    description = "a command of yours runs, and another one undoes it (--attach)"
    primitives: ClassVar[tuple[str, ...]] = ("hook",)
    default_target = "one"
    part = "hook"
    seen_as = "in force"
    unpromised = "only its author knows what a hook breaks"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "name": Option("which hook of the file; each in turn by default", some_text),
    }

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether the hook's own probe says that the fault is over, everywhere."""
        return bool(observed) and super().healed(observed)
