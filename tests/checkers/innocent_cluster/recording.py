"""The history: rows as the recorder of a test writes them."""

from __future__ import annotations

from typing import Any

from innocent_cluster.timeline import Timeline

Row = dict[str, Any]
NEMESIS, MONITOR, HARNESS = -1, -2, -3


class Recording:
    """Rows in the order of their time, and the numbers of processes."""

    def __init__(self, timeline: Timeline) -> None:
        self.rows: list[Row] = []
        self._timeline = timeline
        self._processes = 0
        self._free: list[int] = []

    def add(self, process: int, type_: str, f: str, **columns: Any) -> Row:
        row = {
            "index": len(self.rows), "time": self._timeline.now, "process": process, "type": type_, "f": f,
            **columns,
        }  # fmt: skip
        self.rows.append(row)
        return row

    def process(self) -> int:
        """A process that has no operation under way."""
        if self._free:
            return self._free.pop()
        self._processes += 1
        return self._processes

    def release(self, process: int) -> None:
        self._free.append(process)

    def finished(self) -> list[Row]:
        """The rows without what is null."""
        return [{name: value for name, value in row.items() if value is not None} for row in self.rows]
