"""Restorations of a cluster's record of changes, and the changes that they put in doubt.

A nemesis backs the record up after the row that requests the fault, stops the cluster, restores the
record, and starts the cluster before the row that sees the fault healed. A change that was made
after the backup is undone. No row tells when the backup was taken, so every change is in doubt
whose time, from its request to its answer, meets the time of the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from checkers.excuses import FaultRecord, records
from checkers.rows import numbers_of
from checkers.schema import NEMESIS, json_object

NEVER: Final = 2**33 - 1
"""A number above every index."""
KIND: Final = "restore-record"
"""The kind of a fault that only restores a record."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client: the rows of its invocation and its answer, and the outcome.

    ``answered`` is ``NEVER`` and ``outcome`` is "open" if no row answers it. ``selector`` is that
    of a subscribe.
    """

    asked: int
    answered: int = NEVER
    outcome: str = "open"
    selector: Any = None
    broker: str | None = None
    asked_ns: int = 0
    answered_ns: int = 0


@dataclass(frozen=True, slots=True)
class Restore:
    """A restoration: the row that requested the fault, its moment, and the row of its healing."""

    begun: int
    begun_ns: int
    ended: int = NEVER

    def puts_in_doubt(self, request: Request) -> bool:
        """Return whether the restoration may have undone a change."""
        return request.outcome != "fail" and request.asked < self.ended and request.answered > self.begun

    @property
    def ending(self) -> Request:
        """The end, of unknown outcome, of each entity with a change in doubt."""
        return Request(self.begun, asked_ns=self.begun_ns)


def read(control: pa.Table) -> dict[int, list[Restore]]:
    """Return the restorations of each run from all control rows."""
    rows = control.filter(pa.array(numbers_of(control, "process") == NEMESIS)).to_pylist()
    by_run: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda one: one["index"]):
        by_run[row.get("run") or 0].append(row)
    return {
        run: [_restore(record) for record in records(run_rows) if restores_record(record)]
        for run, run_rows in by_run.items()
    }


def restores_record(record: FaultRecord) -> bool:
    """Return whether a fault restores the record: by its kind, or by the option ``command``."""
    options = (json_object((record.asked or {}).get("value")) or {}).get("options") or {}
    return record.kind == KIND or (record.kind == "administer" and options.get("command") == "restore")


def _restore(record: FaultRecord) -> Restore:
    first = record.asked or record.begun
    assert first is not None, "a fault without a row"
    return Restore(first["index"], first["time"], NEVER if record.healed is None else record.healed["index"])


def endings(
    changes: Sequence[Request], ends: Iterable[Request], restores: Sequence[Restore]
) -> list[Request]:
    """Return the ends of an entity, in order, with what restorations make of them.

    ``changes`` are all its changes. An end that is in doubt has an unknown outcome, and each
    restoration that puts any change in doubt is one more end.
    """
    doubting = [one for one in restores if any(one.puts_in_doubt(change) for change in changes)]
    result = [
        replace(end, outcome="info") if any(one.puts_in_doubt(end) for one in doubting) else end
        for end in ends
    ]
    return sorted([*result, *(one.ending for one in doubting)], key=lambda end: end.asked)
