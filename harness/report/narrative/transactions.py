"""The transactions of a story: their operations, and how they ended.

Why an object of its own: the rows of a transaction belong to several messages. A message that was
sent in it is explained by the other rows: by when its end was requested, and by what was answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.report.narrative.excerpt import Row

State = Literal["", "open", "ending"]
"""The state of a transaction at a moment.

"": not begun or over; "open"; "ending": its end has been requested.
"""
Outcome = Literal["committed", "rolled back", "refused", "unknown", "cut off", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction and its rows, in order.

    ``taken`` and ``sent`` are the acknowledgements and sends in it that were not refused.
    ``request`` is the request for its commit or roll-back. ``end`` is the answer to that, or the
    end of its connection if there was no such request. None: not recorded.
    """

    number: int
    begun: Row
    taken: tuple[Row, ...]
    sent: tuple[Row, ...]
    request: Row | None
    end: Row | None
    indexes: frozenset[int]

    @property
    def name(self) -> str:
        """The name of its lane."""
        return f"transaction {self.number}"

    @property
    def outcome(self) -> Outcome:
        """The outcome of the transaction, as far as its client knows."""
        if self.request is None:
            return "open" if self.end is None else "cut off"
        if self.end is None or self.end["type"] == "info":
            return "unknown"
        if self.end["type"] == "fail":
            return "refused"
        return "committed" if self.request["f"] == "commit" else "rolled back"

    def before(self, index: int) -> State:
        """Return the state just before the row of that index."""
        if index <= self.begun["index"] or (self.end is not None and index > self.end["index"]):
            return ""
        return "ending" if self.request is not None and index > self.request["index"] else "open"


def of_rows(rows: Sequence[Row]) -> dict[int, Transaction]:
    """Return the transactions that rows belong to, by number; the rows are in order."""
    rows_by_number: dict[int, list[Row]] = {}
    for row in rows:
        if "transaction" in row:
            rows_by_number.setdefault(row["transaction"], []).append(row)
    return {number: _transaction(number, own_rows, rows) for number, own_rows in rows_by_number.items()}


def _transaction(number: int, own_rows: Sequence[Row], rows: Iterable[Row]) -> Transaction:
    request = _first(row for row in own_rows if row["f"] in {"commit", "abort"} and row["type"] == "invoke")
    end = None
    if request is not None:
        end = _first(row for row in own_rows if row["f"] == request["f"] and row["type"] != "invoke")
    else:
        last = own_rows[-1]["index"]
        end = _first(
            row for row in rows if row["index"] > own_rows[0]["index"] and _parted(row, own_rows, last)
        )
    refused = {(row["f"], row.get("message")) for row in own_rows if row["type"] == "fail"}
    effects = [
        row for row in own_rows if row["type"] == "invoke" and (row["f"], row.get("message")) not in refused
    ]
    return Transaction(
        number=number,
        begun=own_rows[0],
        taken=tuple(row for row in effects if row["f"] == "ack"),
        sent=tuple(row for row in effects if row["f"] == "send"),
        request=request,
        end=end,
        indexes=frozenset(row["index"] for row in own_rows),
    )


def _parted(row: Row, own_rows: Sequence[Row], last: int) -> bool:
    """Return whether a row says that the connection of a transaction's rows is gone."""
    if row["f"] != "disconnect":
        return False
    connections = {operation["connection"] for operation in own_rows if "connection" in operation}
    if connections and "connection" in row:
        return row["connection"] in connections
    return row["index"] > last and row.get("session") in {
        operation["session"] for operation in own_rows if "session" in operation
    }


def _first(rows: Iterable[Row]) -> Row | None:
    return next(iter(rows), None)
