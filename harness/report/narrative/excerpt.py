"""The excerpt of a stored history that the story of one finding is made of.

Why not the whole history: it may have fifty million rows, and a story needs some dozens. All rows
of a message lie in one file of the history (``harness.history.parquet``). So one column of one file
says where they are, and only the row groups that have them are read. Rows of a span of time are
found by the row groups' statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers import totals, transactions, views
from checkers.anomaly import AT_END
from checkers.availability import of_group, of_queue
from checkers.schema import COLUMNS, HARNESS, TEMPORARY
from checkers.subscriptions import split, topic_of
from checkers.verdict import Finding
from harness.history import parquet

Row = Mapping[str, Any]
"""A row of the history without its empty columns."""

MESSAGES_MAX: Final = 6
TRANSACTIONS_MAX: Final = 3
"""The maximum number of transactions whose operations are all read."""
QUEUE_CHANGES: Final = ("create", "delete")
"""What an administrator does with a whole queue."""
LAST_CHANGES: Final = 6
"""The number of such rows of a queue that brokers disagree about."""
ROWS_MAX: Final = 2_000
"""The maximum number of rows of one finding.

A message that was delivered again without end must not fill the memory.
"""
READ_MAX: Final = 50_000
"""The maximum number of rows of one file; nothing that a person reads needs more."""
FEW: Final = 200
"""The maximum number of rows of one file near one moment."""
SAMPLED: Final = 4
"""The number of files to take operations from if any operations prove that none succeeded."""
SPANS_NS: Final = (200_000_000, 5_000_000_000)
"""The spans in which the first sends that both sides of a split brain acknowledged are sought (ns).

The second span is tried if the first has none.
"""


_DECIDING: Final = ["time", "process", "message", "sequence", "session", "transaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The rows that were read for one finding.

    ``rows`` are those of the finding: its messages, their sessions, transactions and subscriptions.
    ``neighbours`` are the rows of other messages that a story compares with. ``control`` is
    everything that monitor, nemesis and harness recorded, whatever the finding. Each is in order of
    ``index``.
    """

    rows: Sequence[Row]
    control: Sequence[Row]
    neighbours: Sequence[Row] = ()


class ExcerptReader:
    """A reader of one stored history; rows that several findings need are read once.

    Args:
        history: the directory of ``part-*.parquet`` and ``control.parquet``; one that does not
            exist has no rows.
    """

    def __init__(self, history: Path) -> None:
        self._history = history

    @functools.cached_property
    def control(self) -> list[Row]:
        """The rows of faults, roles and phases."""
        file = self._history / parquet.CONTROL
        return _read(file, lambda table: pc.less(table["process"], 0)) if file.is_file() else []

    def excerpt_of(self, finding: Finding) -> Excerpt:
        """Return the rows around the first example of a finding."""
        witness_rows = [dict(row) for row in finding.witness.rows]
        example = example_of(finding)
        messages = _messages(finding)
        rows = [*witness_rows, *self._of_messages(example, witness_rows, messages)]
        if finding.name == "split-brain":
            rows += self._answers(finding.details)
        if finding.name in {"unavailable", "not-recovered"}:
            rows += self._around(finding)
        rows += self._of_transactions(finding, rows)
        sessions = {row["session"] for row in rows if "session" in row}
        neighbours = self._neighbours(finding, rows)
        sessions |= {row["session"] for row in neighbours if "session" in row}
        rows += self._of_control("session", sessions)
        rows += self._of_subscriptions(example, rows)
        rows += self._of_temporaries(rows)
        rows += self._queue_changes(finding, rows)
        chosen = _ordered(rows)
        if len(chosen) > ROWS_MAX:  # the first and the last rows
            chosen = [*chosen[: ROWS_MAX // 2], *chosen[-ROWS_MAX // 2 :]]
        return Excerpt(rows=_ordered([*chosen, *witness_rows]), control=self.control, neighbours=neighbours)

    def _of_messages(self, example: Row, witness_rows: Sequence[Row], messages: Sequence[int]) -> list[Row]:
        if not messages:
            return []
        proven = next((row for row in witness_rows if row.get("message") == messages[0]), {})
        place = {**proven, **example}
        home = self._home(topic_of(place.get("queue")), place.get("group"), proven.get("producer"))
        rows = _rows_of(home, "message", messages) if home is not None else []
        missing = set(messages) - {row["message"] for row in rows}
        if missing:
            for file in self._parts():
                if file != home:
                    rows += _rows_of(file, "message", missing)
        return rows

    def _of_transactions(self, finding: Finding, rows: Sequence[Row]) -> list[Row]:
        """Return begin and end of each transaction, and all operations of the first of them.

        Of a transaction that was never ended, these are the operations soon after its begin.
        """
        finding_transaction = named_in(finding)
        named = [
            *([finding_transaction] if finding_transaction is not None else []),
            *(row["transaction"] for row in rows if "transaction" in row),
        ]
        numbers = list(dict.fromkeys(named))
        operations = self._of_control("transaction", set(numbers))
        first = set(numbers[:TRANSACTIONS_MAX])
        first_operations = [row for row in operations if row["transaction"] in first]
        if first_operations:  # begin and end are known, which bounds the search
            times = [row["time"] for row in first_operations]
            ended = {row["transaction"] for row in first_operations if row["f"] != "begin"} == first
            low, high = min(times), max(times) + (0 if ended else SPANS_NS[1])
            for file in self._parts():
                operations += _read(file, lambda table: _among(table["transaction"], first), low, high)
        return operations

    def _of_subscriptions(self, example: Row, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in which the subscriptions of these rows were made and dropped."""
        file, place = self._history / parquet.CONTROL, split(example.get("queue"))
        names = {row["subscription"] for row in rows if "subscription" in row} | (
            {place[1]} if place else set()
        )
        if not file.is_file() or not names:
            return []
        return _read(
            file,
            lambda table: pc.and_(
                pc.is_in(table["f"].cast(pa.string()), pa.array(["subscribe", "drop"])),
                pc.is_in(table["subscription"].cast(pa.string()), pa.array(sorted(names))),
            ),
            columns=["time", "f", "subscription"],
        )

    def _of_temporaries(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in which the temporary queues of these rows were made and ended."""
        file = self._history / parquet.CONTROL
        names = {row["queue"] for row in rows if str(row.get("queue")).startswith(TEMPORARY)}
        if not file.is_file() or not names:
            return []
        return _read(
            file,
            lambda table: pc.and_(
                pc.is_in(table["f"].cast(pa.string()), pa.array(["subscribe", "drop"])),
                pc.is_in(table["queue"].cast(pa.string()), pa.array(sorted(names))),
            ),
            columns=["time", "f", "queue"],
        )

    def _queue_changes(self, finding: Finding, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in which the finding's queue was made and deleted.

        These are the last ones before the finding's own rows and those among them; if clients had
        nothing to do with the finding, the last of all.
        """
        file, queue = self._history / parquet.CONTROL, queue_of(finding)
        own_rows = [row for row in rows if row["process"] >= 0]
        times = [row["time"] for row in own_rows]
        if not file.is_file() or queue is None:
            return []
        changes = _read(
            file,
            lambda table: pc.and_(
                pc.is_in(table["f"].cast(pa.string()), pa.array(QUEUE_CHANGES)),
                pc.equal(table["queue"].cast(pa.string()), queue),
            ),
            min(times) - SPANS_NS[1] if times else None,
            max(times) + SPANS_NS[1] if times else None,
            most=READ_MAX if times else -LAST_CHANGES,
            columns=["time", "f", "queue"],
        )
        return _among_own(changes, own_rows) if own_rows else changes

    def _neighbours(self, finding: Finding, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of the messages sent directly before and after a missing message.

        They come from the same producer and are in the same group.
        """
        if finding.name not in AT_END:
            return []
        send = next((row for row in rows if row["f"] == "send" and "sequence" in row), None)
        home = (
            None if send is None else self._home(send.get("queue"), send.get("group"), send.get("producer"))
        )
        if send is None or home is None:
            return []
        sequences = {send["sequence"] - 1, send["sequence"] + 1}
        candidates = _rows_of(home, "sequence", sequences)
        same = ("queue", "group", "producer")
        return [row for row in candidates if all(row.get(name) == send.get(name) for name in same)]

    def _answers(self, details: Mapping[str, Any]) -> list[Row]:
        """Return the first sends that each side of an overlap acknowledged after it began."""
        begin = details.get("begin_ns")
        named = {messages[0] for messages in details.get("messages", {}).values() if messages}
        if begin is None or not named:
            return []
        for span in SPANS_NS:
            rows = [
                row
                for file in self._parts()
                for row in _read(file, lambda table: _among(table["message"], named), begin, begin + span)
            ]
            if {row["message"] for row in rows if row["type"] == "ok"} >= named:
                break
        return rows

    def _around(self, finding: Finding) -> list[Row]:
        """Return operations near the begin and the end of a time in which nothing succeeded."""
        details = finding.details
        index = example_of(finding).get("index", -1)
        at = next((row["time"] for row in finding.witness.rows if row["index"] == index), None)
        if at is None:
            return []
        begin, end = details.get("begin_ns", at), details.get("end_ns", at)
        near = SPANS_NS[0]
        spans = [(begin - near, begin, -FEW), (begin, begin + near, FEW), (end - near, end + near, -FEW)]
        rows: list[Row] = []
        for low, high, most in spans:
            files = self._parts()[:SAMPLED]
            near_it = [row for file in files for row in _read(file, None, low, high, most=most)]
            rows += _of_key(near_it, example_of(finding).get("key"))
        return rows

    def _parts(self) -> list[Path]:
        return sorted(self._history.glob("part-*.parquet"))

    def _home(self, queue: str | None, group: str | None, producer: int | None) -> Path | None:
        """Return the file that has the rows of a place.

        The number of files is a power of two; it is derived from the highest number in a file's
        name.
        """
        parts = self._parts()
        if queue is None or not parts:
            return None
        most = int(parts[-1].stem.removeprefix("part-")) + 1
        count = 1 << (most - 1).bit_length()
        name = parquet.file_name(parquet.file_number(queue, group, producer, count))
        return self._history / name if (self._history / name).is_file() else None

    def _of_control(self, column: str, values: set[int]) -> list[Row]:
        file = self._history / parquet.CONTROL
        if not file.is_file() or not values:
            return []
        return _rows_of(file, column, values)


def example_of(finding: Finding) -> Row:
    """Return the first example: queue, group, message, index and key, as far as they are known."""
    examples = finding.details.get("examples") or [{}]
    return dict(examples[0])


def _among_own(changes: Sequence[Row], own_rows: Sequence[Row]) -> list[Row]:
    """Return the last request before other rows with its answer, and the requests among them."""
    first, last = (pick(row["index"] for row in own_rows) for pick in (min, max))
    before = [row for row in changes if row["index"] < first][-2:]
    among = [row for row in changes if first <= row["index"] <= last]
    latest = {row["process"]: row for row in among}
    answers: dict[int, Row] = {}
    for row in changes:
        request = latest.get(row["process"])
        if request is not None and request["type"] == "invoke" and row["index"] > last:
            answers.setdefault(row["process"], row)
    return [*before, *among, *answers.values()]


def queue_of(finding: Finding) -> str | None:
    """Return the queue that a finding is about, or None."""
    details = finding.details
    if finding.name == views.NAME and details.get("kind") == views.QUEUE:
        return str(details["key"])
    queue: str | None = example_of(finding).get("queue")
    return queue


def named_in(finding: Finding) -> int | None:
    """Return the transaction that a finding is about, or None."""
    wrong: Row = next(iter(finding.details.get("accounts", ())), {})
    transaction: int | None = finding.details.get("transaction", wrong.get("transaction"))
    return transaction


def _messages(finding: Finding) -> list[int]:
    """Return the messages of a finding, its own first.

    Messages of other groups only prove that a session was alive, and are left out.
    """
    example = example_of(finding)
    message = example.get("message")
    place = topic_of(example.get("queue")), example.get("group")
    further = [
        row["message"]
        for row in finding.witness.rows
        if "message" in row
        and (
            "queue" not in example
            or finding.name in (transactions.NAME, totals.NAME)
            or (row.get("queue"), row.get("group")) == place
        )
    ]
    if finding.name == transactions.NAME:
        further += [
            effect["message"] for part in ("missing", "happened") for effect in finding.details.get(part, ())
        ]
    return list(dict.fromkeys([*([message] if message is not None else []), *further]))[:MESSAGES_MAX]


def _of_key(rows: Iterable[Row], key: object) -> list[Row]:
    """Return the operations that a window of unavailability is about.

    ``key`` is that of the window in ``checkers.availability``.
    """
    words = str(key or "").split(" ")
    if words[0] == "queue":
        return [row for row in rows if of_queue(row.get("queue"), row["f"]) == key]
    if words[0] == "group":
        return [row for row in rows if of_group(row.get("queue"), row.get("group"), row["f"]) == key]
    if words[0] == "operation":
        return [row for row in rows if row["f"] == words[1]]
    if words[0] == "client":
        return [row for row in rows if row["f"] == "send" and str(row.get("producer")) == words[-1]]
    if words[0] == "broker":
        return [row for row in rows if row["f"] == "send" and row.get("broker") == words[1]]
    return [row for row in rows if row["f"] == "send"]


def _rows_of(file: Path, column: str, values: Iterable[int]) -> list[Row]:
    return _read(file, lambda table: _among(table[column], values))


def _among(column: pa.ChunkedArray, values: Iterable[int]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(sorted(values), pa.int64()).cast(column.type))


def _read(
    file: Path,
    condition: Callable[[pa.Table], pa.ChunkedArray] | None,
    low_ns: int | None = None,
    high_ns: int | None = None,
    *,
    most: int = READ_MAX,
    columns: Sequence[str] = _DECIDING,
) -> list[Row]:
    """Return the rows of a span of time for which ``condition`` holds.

    These are the first ``most`` rows, or the last ones if ``most`` is negative. Of row groups
    without such rows only the columns that decide are read.
    """
    rows_read: list[Row] = []
    with pq.ParquetFile(file) as parquet:
        time = parquet.schema_arrow.get_field_index("time")
        for number in range(parquet.num_row_groups):
            span = parquet.metadata.row_group(number).column(time).statistics
            if (
                low_ns is not None
                and span is not None
                and span.has_min_max
                and not (span.min <= high_ns and span.max >= low_ns)
            ):
                continue
            decisive = parquet.read_row_group(number, columns=list(columns) if condition else ["time"])
            mask = _true(decisive) if condition is None else pc.fill_null(condition(decisive), False)
            if low_ns is not None:
                within = pc.and_(
                    pc.greater_equal(decisive["time"], low_ns), pc.less_equal(decisive["time"], high_ns)
                )
                mask = pc.and_(mask, within)
            if pc.any(mask).as_py():
                rows = parquet.read_row_group(number).filter(mask)
                rows_read += _plain(rows.slice(0, most) if most > 0 else rows.slice(max(0, len(rows) + most)))
            if most > 0 and len(rows_read) >= most:
                break
    return rows_read[:most] if most > 0 else rows_read[most:]


def _true(table: pa.Table) -> pa.ChunkedArray:
    return pc.is_valid(table["time"])


def _plain(table: pa.Table) -> list[Row]:
    names = [name for name in COLUMNS if name in table.column_names]
    return [{name: row[name] for name in names if row[name] is not None} for row in table.to_pylist()]


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return [row for _, row in sorted({row["index"]: row for row in rows}.items())]


def load_began_ns(control: Iterable[Row]) -> int:
    """Return the history's time at which the load began.

    A story and the picture of the run begin there.
    """
    phases = (row for row in control if row["process"] == HARNESS and row["f"] == "phase")
    return next((row["time"] for row in phases if row.get("value") == "load"), 0)
