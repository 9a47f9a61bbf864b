"""One transaction of a story: what was asked for in it, and how it ended.

Why a thing of its own: its rows belong to several messages, and a message that was sent in it is
explained by its other rows, by when its end was asked for and by what came back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.report.narrative.excerpt import Row

State = Literal["", "open", "ending"]
"""Of a transaction at a moment: not begun or over, open, or its end is asked for."""
Outcome = Literal["committed", "rolled back", "refused", "unknown", "cut off", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Its rows, in order.

    ``taken`` and ``sent`` are the questions about what was not refused; ``asked`` is the question
    for its commit or roll-back, ``end`` the answer to that, or where nobody asked the end of its
    connection. None: not recorded.
    """

    number: int
    begun: Row
    taken: tuple[Row, ...]
    sent: tuple[Row, ...]
    asked: Row | None
    end: Row | None
    indexes: frozenset[int]

    @property
    def name(self) -> str:
        """Of its lane."""
        return f"transaction {self.number}"

    @property
    def outcome(self) -> Outcome:
        """How it ended, as far as its client knows."""
        if self.asked is None:
            return "open" if self.end is None else "cut off"
        if self.end is None or self.end["type"] == "info":
            return "unknown"
        if self.end["type"] == "fail":
            return "refused"
        return "committed" if self.asked["f"] == "commit" else "rolled back"

    def before(self, index: int) -> State:
        """How it stood just before the row of that index."""
        if index <= self.begun["index"] or (self.end is not None and index > self.end["index"]):
            return ""
        return "ending" if self.asked is not None and index > self.asked["index"] else "open"


def of_rows(rows: Sequence[Row]) -> dict[int, Transaction]:
    """The transactions that rows in order belong to, by number."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        if "transaction" in row:
            found.setdefault(row["transaction"], []).append(row)
    return {number: _transaction(number, its, rows) for number, its in found.items()}


def _transaction(number: int, its: Sequence[Row], rows: Iterable[Row]) -> Transaction:
    asked = _first(row for row in its if row["f"] in {"commit", "abort"} and row["type"] == "invoke")
    end = None
    if asked is not None:
        end = _first(row for row in its if row["f"] == asked["f"] and row["type"] != "invoke")
    else:
        last = its[-1]["index"]
        end = _first(row for row in rows if row["index"] > its[0]["index"] and _parted(row, its, last))
    refused = {(row["f"], row.get("message")) for row in its if row["type"] == "fail"}
    effects = [
        row for row in its if row["type"] == "invoke" and (row["f"], row.get("message")) not in refused
    ]
    return Transaction(
        number=number,
        begun=its[0],
        taken=tuple(row for row in effects if row["f"] == "ack"),
        sent=tuple(row for row in effects if row["f"] == "send"),
        asked=asked,
        end=end,
        indexes=frozenset(row["index"] for row in its),
    )


def _parted(row: Row, its: Sequence[Row], last: int) -> bool:
    """Whether a row says that the connection of these is gone."""
    if row["f"] != "disconnect":
        return False
    connections = {one["connection"] for one in its if "connection" in one}
    if connections and "connection" in row:
        return row["connection"] in connections
    return row["index"] > last and row.get("session") in {one["session"] for one in its if "session" in one}


def _first(rows: Iterable[Row]) -> Row | None:
    return next(iter(rows), None)
