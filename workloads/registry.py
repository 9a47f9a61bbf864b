"""Workloads by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.interface import Workload
from harness.interface.errors import choose
from workloads.groups import Groups
from workloads.load import Load
from workloads.queue import Queue

_CLASSES: Final[Mapping[str, type[Load]]] = {kind.name: kind for kind in (Groups, Queue)}

WORKLOADS: Final[Mapping[str, str]] = {name: kind.description for name, kind in _CLASSES.items()}
"""Name -> one line about it, for ``jepsen-run list``."""


def names() -> tuple[str, ...]:
    """What ``--workload`` takes."""
    return tuple(_CLASSES)


def create(name: str, *, pipeline: int | None = None) -> Workload:
    """A fresh workload for one test.

    Raises UsageError, with the near name, for one there is not.
    """
    return _CLASSES[choose("workload", name, _CLASSES)](pipeline=pipeline)
