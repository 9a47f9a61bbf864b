"""The events of a test over time, reduced until they can be drawn.

These are rates, latencies, faults and roles. In a cluster of several pairs, these are also links
between live brokers and the consumption of queues.

Why a step of its own: a report must show the whole of a history, not its first ten thousand
operations. So rows are reduced to a few hundred bins of equal width before anything is drawn. Times
are seconds of the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.schema import HARNESS, MONITOR, NEMESIS, TOPIC
from harness.history import parquet
from harness.report import cluster_lanes
from harness.report.cluster_lanes import Consumption, LinkSpan
from harness.report.narrative import subscriptions
from harness.report.narrative.cluster_state import breaks_of

BINS_MAX: Final = 300
BIN_WIDTHS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
NS: Final = 1_000_000_000

Floats = npt.NDArray[np.float64]


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A fault from its injection to its healing, with what was observed of it."""

    label: str
    start_s: float
    end_s: float
    target: str
    observed: str
    bit: bool
    found_target: bool = True


class RoleSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span in which a broker had one role.

    The change to it was seen between ``start_low_s`` and ``start_high_s``.
    """

    role: str
    start_low_s: float
    start_high_s: float
    end_s: float


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series of one value per bin; NaN if a bin has nothing to measure."""

    name: str
    values: list[float]


class SubscriptionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span in which a subscription existed, or (not ``sure``) may have existed."""

    sure: bool
    start_s: float
    end_s: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the picture of a test needs.

    Seconds are the history's. The picture begins at ``begin_s`` with the load, or with the first
    row if there was no load; ``set_up_s`` is the time before. Bins count from ``begin_s``.
    ``opened`` is how many transactions were open, ``ended`` how many a second ended in which way,
    ``subscriptions`` when each subscription existed; each is empty without any. ``links`` says for
    each broker with which others it was linked, ``consumption`` where queues were consumed.
    """

    set_up_s: float
    begin_s: float
    end_s: float
    bin_s: float
    rates: list[Series]
    latencies_ms: list[Series]
    bands: list[Band]
    lanes: dict[str, list[RoleSpan]]
    phases: list[tuple[str, float]]
    opened: list[Series]
    ended: list[Series]
    subscriptions: dict[str, list[SubscriptionSpan]]
    links: dict[str, list[LinkSpan]] = {}
    consumption: Consumption = Consumption()


def read(history: Path, pairs: Mapping[str, str] = MappingProxyType({}), *, placed: bool = False) -> Timeline:
    """Return the timeline of a history, reduced from its Parquet files.

    Args:
        history: the directory of ``part-*.parquet`` and ``control.parquet``.
        pairs: the pair of each broker. Links and consumption are read only if there are several.
        placed: whether the test says at which brokers clients work.
    """
    columns = ["index", "time", "process", "type", "f", "broker", "role", "time_low", "time_high", "value"]
    tables = [pq.read_table(file, columns=columns) for file in sorted(history.glob("*.parquet"))]
    if not tables:
        return _of_nothing()
    # Dictionaries and nullability differ from file to file; tables of plain strings can be joined.
    table = pa.concat_tables([_plain(part) for part in tables]).sort_by("index")
    if table.num_rows == 0:
        return _of_nothing()
    control = table.filter(pc.less(table["process"], 0))
    clients = table.filter(pc.greater_equal(table["process"], 0))
    phases = [(row["value"], row["time"]) for row in _rows(control, HARNESS, "phase")]
    first_ns: int = pc.min(table["time"]).as_py()
    begin_ns = next((at for value, at in phases if value == "load"), first_ns)
    last_ns: int = pc.max(table["time"]).as_py()

    def seconds(at_ns: int) -> float:
        return at_ns / NS

    begin_s, end_s = seconds(begin_ns), seconds(last_ns)
    span_s = end_s - begin_s
    bin_s = next((width for width in BIN_WIDTHS_S if span_s / width <= BINS_MAX), BIN_WIDTHS_S[-1])
    edges = begin_s + np.arange(0.0, span_s + bin_s, bin_s)
    if len(edges) < 2:
        edges = begin_s + np.array([0.0, bin_s])
    clustered = len(set(pairs.values())) > 1
    opened, ended = _transactions(_within(history), edges, seconds)
    return Timeline(
        set_up_s=begin_s - seconds(first_ns),
        begin_s=begin_s,
        end_s=end_s,
        bin_s=bin_s,
        rates=_rates(clients, edges),
        latencies_ms=_latencies(clients, edges),
        bands=_bands(control, seconds, end_s),
        lanes=_lanes(control, seconds, begin_s, end_s),
        phases=[(value, seconds(at)) for value, at in phases if at >= begin_ns],
        opened=opened,
        ended=ended,
        subscriptions=_subscriptions(_named(history), seconds, begin_s, end_s),
        links=_links(history, phases, seconds, last_ns) if clustered else {},
        consumption=cluster_lanes.consumption(history, pairs, begin_s, end_s, placed=placed)
        if clustered
        else Consumption(),
    )


def _of_nothing() -> Timeline:
    return Timeline(
        set_up_s=0, begin_s=0, end_s=1, bin_s=1, rates=[], latencies_ms=[], bands=[], lanes={}, phases=[],
        opened=[], ended=[], subscriptions={},
    )  # fmt: skip


def _plain(table: pa.Table) -> pa.Table:
    fields = [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _rows(control: pa.Table, process: int, f: str | None = None) -> list[dict[str, Any]]:
    mask = pc.equal(control["process"], process)
    if f is not None:
        mask = pc.and_(mask, pc.equal(control["f"], f))
    return list(control.filter(mask).to_pylist())


def _times(clients: pa.Table, mask: pa.ChunkedArray) -> Floats:
    times: npt.NDArray[np.int64] = clients.filter(mask)["time"].to_numpy()
    return times / NS


def _rates(clients: pa.Table, edges: Floats) -> list[Series]:
    width = float(edges[1] - edges[0])
    series = []
    curves = (
        ("sends acknowledged", "send", "ok"),
        ("deliveries", "deliver", "ok"),
        ("unknown outcome", None, "info"),
        ("failed", None, "fail"),
    )
    for name, f, kind in curves:
        mask = pc.equal(clients["type"], kind)
        operation = (
            pc.equal(clients["f"], f)
            if f
            else pc.is_in(clients["f"], pa.array(["send", "ack", "nack", "commit"]))
        )
        counts, _ = np.histogram(_times(clients, pc.and_(mask, operation)), bins=edges)
        series.append(Series(name=name, values=[float(count) / width for count in counts]))
    return series


def _latencies(clients: pa.Table, edges: Floats) -> list[Series]:
    sends = clients.filter(pc.equal(clients["f"], "send"))
    if sends.num_rows < 2:
        return []
    process = sends["process"].to_numpy()
    order = np.lexsort((sends["index"].to_numpy(), process))
    process, time = process[order], sends["time"].to_numpy()[order]
    invoked = pc.equal(sends["type"], "invoke").to_numpy()[order]
    completed = pc.equal(sends["type"], "ok").to_numpy()[order]
    pairs = np.nonzero(invoked[:-1] & completed[1:] & (process[:-1] == process[1:]))[0]
    if not len(pairs):
        return []
    latency_ms = (time[pairs + 1] - time[pairs]) / 1e6
    bins = np.digitize(time[pairs] / NS, edges) - 1
    order = np.argsort(bins, kind="stable")
    bins, latency_ms = bins[order], latency_ms[order]
    result = {"median": np.full(len(edges) - 1, np.nan), "99th percentile": np.full(len(edges) - 1, np.nan)}
    starts = np.flatnonzero(np.r_[True, bins[1:] != bins[:-1]])
    for begin, end in zip(starts, np.r_[starts[1:], len(bins)], strict=True):
        if 0 <= bins[begin] < len(edges) - 1:
            part = latency_ms[begin:end]
            result["median"][bins[begin]] = np.percentile(part, 50)
            result["99th percentile"][bins[begin]] = np.percentile(part, 99)
    return [Series(name=name, values=[float(value) for value in values]) for name, values in result.items()]


def _bands(control: pa.Table, seconds: Callable[[int], float], end_s: float) -> list[Band]:
    """Return the faults as bands, sorted by their begin, then by their healing."""
    faults = breaks_of(_rows(control, NEMESIS))
    faults.sort(key=lambda fault: (fault.begin, math.inf if fault.healed is None else fault.healed))
    return [
        Band(
            label=fault.name,
            start_s=seconds(fault.begin),
            end_s=end_s if fault.end is None else seconds(fault.end),
            target=fault.target,
            observed=fault.observed,
            bit=fault.bit,
            found_target=fault.found_target,
        )
        for fault in faults
    ]


def _lanes(
    control: pa.Table, seconds: Callable[[int], float], begin_s: float, end_s: float
) -> dict[str, list[RoleSpan]]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(control, MONITOR, "role"):
        changes.setdefault(row["broker"], []).append(row)
    lanes = {}
    for broker in sorted(changes):
        rows = changes[broker]
        ends = [seconds(row["time_high"] or row["time"]) for row in rows[1:]] + [end_s]
        lanes[broker] = [
            RoleSpan(
                role=row["role"],
                start_low_s=seconds(row["time_low"] if row["time_low"] is not None else row["time"]),
                start_high_s=seconds(row["time_high"] if row["time_high"] is not None else row["time"]),
                end_s=end,
            )
            for row, end in zip(rows, ends, strict=True)
            if end > begin_s  # roles that ended before the load are not drawn
        ]
    return lanes


def _links(
    history: Path, phases: Sequence[tuple[str, int]], seconds: Callable[[int], float], last_ns: int
) -> dict[str, list[LinkSpan]]:
    """Return the links of each broker that was asked for its views (``--watch-views``)."""
    columns = ["index", "time", "f", "broker", "role", "node_id", "time_low", "time_high", "value"]
    changes = _control(history, columns, ["role", "view-change"])
    if not any(row["f"] == "view-change" for row in changes):
        return {}
    asked_until = (at for phase, at in phases if phase in ("recovered", "not-recovered", "drain"))
    return cluster_lanes.links(changes, seconds, next(asked_until, last_ns))


# ----------------------------------------------------------------- transactions and subscriptions

ENDS: Final = ("committed", "rolled back", "unknown outcome", "failed", "cut off")
"""The ways in which transactions end; "cut off": the connection was lost before an end."""


def _control(history: Path, columns: Sequence[str], operations: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of the control rows that have one of the given operations."""
    file = history / parquet.CONTROL
    if not file.is_file():
        return []
    stored_columns = pq.read_schema(file).names
    table = pq.read_table(file, columns=[name for name in columns if name in stored_columns])
    chosen = table.filter(pc.is_in(table["f"].cast(pa.string()), pa.array(operations)))
    return [{**dict.fromkeys(columns), **row} for row in chosen.to_pylist()]


def _within(history: Path) -> list[dict[str, Any]]:
    """Return the rows that begin and end transactions, or that end their connections."""
    columns = ["index", "time", "type", "f", "transaction", "connection"]
    return _control(history, columns, ["begin", "commit", "abort", "disconnect"])


def _transactions(
    rows: Sequence[Mapping[str, Any]], edges: Floats, seconds: Callable[[int], float]
) -> tuple[list[Series], list[Series]]:
    """Return how many transactions were open, and how many ended in which way.

    The first is the average over each bin, the second a rate per second.
    """
    begun = {
        row["transaction"]: row for row in reversed(rows) if row["f"] == "begin" and row["type"] == "invoke"
    }
    if not begun:
        return [], []
    disconnects = {row["connection"]: row["time"] for row in rows if row["f"] == "disconnect"}
    ended: dict[int, tuple[str, float]] = {
        number: ("cut off", seconds(disconnects[row["connection"]]))
        for number, row in begun.items()
        if disconnects.get(row["connection"], -1) >= row["time"]
    }
    for row in rows:
        if row["f"] in ("commit", "abort") and row["type"] != "invoke" and row["transaction"] in begun:
            certain = "committed" if row["f"] == "commit" else "rolled back"
            how = {"ok": certain, "fail": "failed"}.get(row["type"], "unknown outcome")
            ended[row["transaction"]] = how, seconds(row["time"])
    width = float(edges[1] - edges[0])
    starts = np.sort([seconds(row["time"]) for row in begun.values()])
    ends = np.sort([at for _, at in ended.values()])
    spent = np.diff(_passed(starts, edges) - _passed(ends, edges))
    opened = [Series(name="open", values=[float(value) / width for value in spent])]
    outcomes = []
    for name in ENDS:
        counts, _ = np.histogram([at for how, at in ended.values() if how == name], bins=edges)
        if counts.any():
            outcomes.append(Series(name=name, values=[float(count) / width for count in counts]))
    return opened, outcomes


def _passed(since: Floats, until: Floats) -> Floats:
    """Return for each time of ``until`` the sum of the times since all earlier ``since``."""
    sums = np.concatenate(([0.0], np.cumsum(since)))
    before = np.searchsorted(since, until)
    return before * until - sums[before]


def _named(history: Path) -> list[dict[str, Any]]:
    """Return the rows in which subscriptions of topics were made and dropped, in order."""
    columns = ["index", "time", "process", "type", "f", "queue", "subscription", "value"]
    rows = _control(history, columns, ["subscribe", "drop"])
    named = (row for row in rows if row["subscription"] is not None)
    return [{name: value for name, value in row.items() if value is not None} for row in named]


def _subscriptions(
    rows: Sequence[Mapping[str, Any]], seconds: Callable[[int], float], begin_s: float, end_s: float
) -> dict[str, list[SubscriptionSpan]]:
    """Return the spans of each subscription, by its name, in the order in which they were made."""
    spans_by_name = {}
    for subscription in subscriptions.of_rows(rows):
        ends = [*(seconds(row["time"]) for _, _, row in subscription.changes[1:]), end_s]
        spans = [
            SubscriptionSpan(sure=state == "there", start_s=seconds(row["time"]), end_s=end)
            for (_, state, row), end in zip(subscription.changes, ends, strict=True)
            if state and end > begin_s
        ]
        spans_by_name[f"{subscription.called} of {subscription.topic.removeprefix(TOPIC)}"] = spans
    return spans_by_name
