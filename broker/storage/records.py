"""The live records that a journal gives back when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Update(NamedTuple):
    """An UPDATE of a record: its own kind and data, as the caller gave them."""

    kind: int
    data: bytes


class Record(NamedTuple):
    """A live record with all its updates, oldest first."""

    id: int
    kind: int
    data: bytes
    updates: Sequence[Update] = ()
