"""The smallest set of rows that shows a finding.

How: fetch the rows that could matter (those of the messages involved, of the ends of their sessions
and the proofs that these lived, and of their transactions). Then take away row after row, the
earliest first, as long as the second implementation still finds the same instance. The remaining
rows show the finding by construction, and none of them can be spared.

Why the earliest first: of three deliveries in one session with a nack after the first, the last two
are the anomaly. Rows that are taken away from the front never remove an excuse while the rows that
it excuses are still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers import reference
from checkers.anomaly import ANOMALIES, Evidence, named
from checkers.fetch import AnsweredBefore, IndexRange, RowSelection, control_rows, messages_rows
from checkers.instance import Instance
from checkers.schema import HARNESS, OF_QUEUES, TEMPORARY
from checkers.source import HistorySource
from checkers.subscriptions import split, topic_of
from checkers.verdict import CheckOptions, Witness

Row = dict[str, Any]
_PARTNER_ROWS: Final = 2_000
_REACH: Final = 20_000
_CONTEXT_ROWS: Final = 400
_ENDS: Final = ("subscribe", "unsubscribe", "disconnect", "drop")
"""The operations that say how long a temporary queue lived."""
_CONTROL: Final = sorted({f for anomaly in ANOMALIES for f in anomaly.evidence.control})
"""The operations of monitor and harness that can show an anomaly."""


def witnesses(
    source: HistorySource,
    instances: Sequence[Instance],
    options: CheckOptions,
    ends_ns: Mapping[Instance, int],
    shows: Mapping[Instance, Sequence[int]],
    known_partners: Mapping[Instance, set[int]],
) -> dict[Instance, Witness]:
    """Return a witness for each instance, by a few short jobs whatever the number of instances.

    ``shows`` has rows that are known to show some instances, ``ends_ns`` the time at which each
    window of unavailability ended. ``known_partners`` has messages that are known
    to be partners of some instances. A partner farther away than ``_REACH`` rows is not looked for:
    such a witness has only the row that completes the anomaly and the rows of its message.
    """
    if not instances:
        return {}
    table = source.control
    f = table["f"].cast(pa.string())
    is_observer_row = pc.and_(pc.less(table["process"], 0), pc.is_in(f, pa.array(_CONTROL)))
    control = [row for row in control_rows(source, is_observer_row) if _is_sensible(row)]
    is_shown = pc.is_in(table["index"], pa.array([i.index for i in instances], pa.int64()))
    asking = pc.is_in(
        table["process"],
        pc.unique(table["process"].filter(pc.and_(is_shown, pc.greater_equal(table["process"], 0)))),
    )
    if pc.any(asking).as_py():  # control rows of clients that answer: each with its invocation
        control = _unique([*control, *_with_invocations(control_rows(source, asking), instances)])
    messages = {i.message for i in instances if i.message is not None}
    paired = [i for i in instances if _evidence(i).paired]
    unpaired = [i for i in instances if not _evidence(i).paired]
    near = messages_rows(
        source,
        RowSelection(
            messages=frozenset(messages),
            ranges=[IndexRange(topic_of(i.queue), i.group, i.index - _REACH, i.index) for i in paired],
            indexes=frozenset(index for i in unpaired for index in (i.index, *shows.get(i, ()))),
            times=frozenset(ends_ns[i] for i in unpaired if i in ends_ns),
        ),
    )
    by_instance = {
        instance: _partner(instance, near) | known_partners.get(instance, set()) for instance in instances
    }
    partners = set[int]().union(*by_instance.values())
    missing = partners - messages
    if missing:
        near = _unique([*near, *messages_rows(source, RowSelection(messages=frozenset(missing)))])
    sessions = _values((r for r in near if r.get("message") in messages | partners), "session")
    transactions = _values(near, "transaction")
    links = [link for i in instances if _evidence(i).linked for link in _links(i, near)]
    if sessions or transactions:
        is_partner_row = pc.or_(
            _among(table["session"], sessions), _among(table["transaction"], transactions)
        )
        if links and "connection" in table.column_names:
            connections = {link.connection for link in links if link.connection is not None}
            is_partner_row = pc.or_(is_partner_row, _among(table["connection"], connections))
        control = _unique([*control, *control_rows(source, is_partner_row)[:_PARTNER_ROWS]])
    if "subscription" in table.column_names:
        names = sorted({subscription[1] for i in instances if (subscription := split(i.queue)) is not None})
        control = _unique(
            [
                *control,
                *control_rows(
                    source, pc.is_in(table["subscription"].cast(pa.string()), pa.array(names, pa.string()))
                ),
            ]
        )
    temporary = sorted({i.queue for i in instances if i.queue is not None and i.queue.startswith(TEMPORARY)})
    if temporary:
        of_them = pc.is_in(table["queue"].cast(pa.string()), pa.array(temporary, pa.string()))
        control = _unique([*control, *control_rows(source, of_them)])
    deleted = sorted({i.queue for i in instances if i.queue is not None and i.name == "resurrected"})
    if deleted:
        of_them = pc.is_in(table["queue"].cast(pa.string()), pa.array(deleted, pa.string()))
        of_them = pc.and_(of_them, pc.is_in(table["f"].cast(pa.string()), pa.array(OF_QUEUES)))
        control = _unique([*control, *control_rows(source, of_them)])
    proofs = _proofs(source, instances, by_instance, near)
    if links:
        proofs += messages_rows(source, RowSelection(links=links))
    result = {}
    for instance in instances:
        context = _context(
            instance, by_instance[instance], [*near, *control, *proofs], ends_ns.get(instance, -1)
        )
        small = minimal(context, instance, options)
        if small is None:
            small = [
                r
                for r in context
                if r["index"] == instance.index
                or (instance.message is not None and r.get("message") == instance.message)
            ]
        result[instance] = Witness(tuple(r["index"] for r in small), tuple(small))
    return result


def _is_sensible(row: Row) -> bool:
    """Return whether a role or takeover row says of which broker it is, and when it happened.

    The rules leave out rows that do not; the verdict names these.
    """
    return row["f"] not in ("role", "takeover") or {"broker", "time_low", "time_high"} <= row.keys()


def minimal(rows: Iterable[Row], instance: Instance, options: CheckOptions) -> list[Row] | None:
    """Return rows that show an instance, none of which can be spared.

    Return None if all rows together do not show it.
    """
    smallest = sorted(rows, key=lambda r: r["index"])

    def shows(subset: list[Row]) -> bool:
        return instance in reference.find(subset, options)

    if not shows(smallest):
        return None
    size = max(1, len(smallest) // 2)
    while True:
        n, before = 0, len(smallest)
        while n < len(smallest):
            fewer = smallest[:n] + smallest[n + size :]
            if shows(fewer):
                smallest = fewer
            else:
                n += size
        if size == 1 and len(smallest) == before:  # a row may become needless when others are gone
            return smallest
        size = max(1, size // 2)


def _with_invocations(rows: Sequence[Row], instances: Sequence[Instance]) -> Iterator[Row]:
    """Yield the rows (sorted) that show an instance, and the latest invocation before each."""
    indexes = {i.index for i in instances}
    latest: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row["type"] == "invoke":
            latest[row["process"], row["f"]] = row
        if row["index"] in indexes:
            yield row
            if (row["process"], row["f"]) in latest:
                yield latest[row["process"], row["f"]]


def _values(rows: Iterable[Row], column: str) -> set[Any]:
    """Return the values that some rows have in a column."""
    return {row[column] for row in rows if row.get(column) is not None}


def _unique(rows: Iterable[Row]) -> list[Row]:
    return list({r["index"]: r for r in rows}.values())


def _among(column: pa.ChunkedArray, values: Iterable[int]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(sorted(values), pa.int64()).cast(column.type))


def _partner(i: Instance, rows: Sequence[Row]) -> set[int]:
    """Return the possible other messages of an instance's pair, from the rows around it."""
    place_rows = [r for r in rows if _is_of(i.queue, r) and r.get("group") == i.group]
    before = [
        r for r in place_rows if r["f"] == "deliver" and r["index"] < i.index and r.get("message") is not None
    ]
    completing = next((r for r in place_rows if r["index"] == i.index), None)
    partner = _evidence(i).partner
    if completing is None or partner == "none":
        return set()
    if partner == "key":
        return {int(str(i.key))}
    if partner == "sent-later":
        ok = [
            r["index"]
            for r in place_rows
            if r.get("message") == i.message and r["f"] == "send" and r["type"] == "ok"
        ]
        sends = {r["message"]: r["index"] for r in place_rows if r["f"] == "send" and r["type"] == "invoke"}
        if not ok:  # its broker was seen gone before the message that was sent last
            latest = max(
                (r["message"] for r in before if r["message"] in sends), key=sends.__getitem__, default=None
            )
            return set() if latest is None else {latest}
        later = [r["message"] for r in before if sends.get(r["message"], -1) > max(ok)]
        return set(later[-1:])
    if partner in ("higher-number", "higher-number-in-session"):
        overtakers = [
            r["message"]
            for r in before
            if r.get("producer") == completing.get("producer")
            and r.get("sequence", -1) > completing.get("sequence", -1)
            and (partner == "higher-number" or r.get("session") == completing.get("session"))
        ]
        return set(overtakers[-1:])
    done = {  # a refused message may have come to the same session again
        (r.get("message"), r.get("session")): r["index"]
        for r in place_rows
        if r["f"] in ("ack", "nack")
        and r["type"] == "invoke"
        and r.get("transaction") is None
        and r["index"] < i.index
    }
    elsewhere = [
        r["message"]
        for r in before
        if r.get("session") != completing.get("session")
        and done.get((r["message"], r.get("session")), -1) < r["index"]
    ]
    recent = [r["message"] for r in before[-20:]]  # a group that alternates needs no second holder
    return (
        {*elsewhere[-20:], *recent, completing["message"]} if completing.get("message") is not None else set()
    )


def _is_of(place: str | None, row: Row) -> bool:
    """Return whether a row of the history is of a place."""
    subscription = split(place)
    if subscription is None:
        return bool(row.get("queue") == place)
    is_part = row["f"] == "send" or row.get("subscription") == subscription[1]
    return bool(row.get("queue") == subscription[0] and is_part)


def _proofs(
    source: HistorySource,
    instances: Sequence[Instance],
    partners: dict[Instance, set[int]],
    near: Sequence[Row],
) -> list[Row]:
    """Return rows that prove that the sessions of a conflict were alive after it."""
    moments = []
    for i in instances:
        if _evidence(i).alive:
            numbers = partners[i] | ({i.message} if i.message is not None else set())
            deliveries = (
                r
                for r in near
                if r["f"] == "deliver" and (r.get("message") in numbers or r["index"] == i.index)
            )
            sessions = _values(deliveries, "session")
            moments += [(session, i.index) for session in sorted(sessions)]
    if not moments:
        return []
    rows = messages_rows(source, RowSelection(after=moments[:8]))
    got = _values((r for r in rows if r["f"] == "deliver"), "message")
    return [*rows, *messages_rows(source, RowSelection(messages=frozenset(got)))] if got else rows


def _links(i: Instance, near: Sequence[Row]) -> list[AnsweredBefore]:
    """Return the session and connection of the delivery that completes an instance."""
    return [
        AnsweredBefore(r.get("session"), r.get("connection"), i.index)
        for r in near
        if r["index"] == i.index and r["f"] == "deliver"
    ]


def _context(i: Instance, partners: set[int], rows: Sequence[Row], end_ns: int) -> list[Row]:
    numbers = set(partners)
    if i.message is not None:
        numbers.add(i.message)
    near = [
        r
        for r in _unique(rows)
        if r.get("message") in numbers or r["index"] == i.index or r["time"] == end_ns or _belongs(i, r)
    ]
    sessions, transactions = _values(near, "session"), _values(near, "transaction")
    more = [r for r in _unique(rows) if r.get("session") in sessions or r.get("transaction") in transactions]
    if _evidence(i).linked:
        connections = {link.connection for link in _links(i, near)} - {None}
        more += [r for r in _unique(rows) if r.get("connection") in connections]
    if _evidence(i).alive:  # the send of a message that a session got proves the session alive
        got = _values((r for r in more if r["f"] == "deliver"), "message")
        more += [r for r in _unique(rows) if r["f"] == "send" and r.get("message") in got]
    chosen = sorted(_unique([*near, *more]), key=lambda r: r["index"])
    if _evidence(i).alone:
        chosen = [r for r in chosen if r.get("message") is None or r["message"] in numbers]
    if len(chosen) <= _CONTEXT_ROWS:
        return chosen
    return sorted(
        sorted(
            chosen,
            key=lambda r: (
                r.get("message") not in numbers and r["process"] != HARNESS,
                abs(r["index"] - i.index),
            ),
        )[:_CONTEXT_ROWS],
        key=lambda r: r["index"],
    )


def _belongs(i: Instance, r: Row) -> bool:
    evidence = _evidence(i)
    subscription = split(i.queue)
    if subscription is not None and r["f"] in ("subscribe", "drop") and _is_of(i.queue, r):
        return True
    if (i.queue or "").startswith(TEMPORARY) and r["f"] in _ENDS and r.get("queue") == i.queue:
        return True
    if i.name == "resurrected" and r["f"] in OF_QUEUES and r.get("queue") == i.queue:
        return True
    is_control = r["f"] in evidence.control and (r["f"] != "browse" or r.get("queue") is None)
    return is_control or (evidence.clients and r["process"] >= 0)


def _evidence(i: Instance) -> Evidence:
    return named(i.name).evidence
