"""What is no history is refused in one line that names file, row and cause, by both judges.

What is one is judged.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from checker_rows import MS, Row, o, phase, table
from damaged import correct

from checkers import api, breakage, judge, part, reference
from checkers.breakage import of_tables
from checkers.source import with_messages
from harness.history import parquet
from harness.history.recorder import to_batch
from harness.interface import TestSpec
from harness.run.simulate import simulate

OPTIONS = api.CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000)


def whole() -> list[Row]:
    """A history in which something of everything happens, and nothing is wrong."""
    rows: list[Row] = []

    def add(process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> None:
        rows.append(o(len(rows), process, type_, f, message, **columns))

    add(-3, "info", "phase", value="load")
    add(-2, "info", "role", broker="a1", node_id="n", role="live", time_low=0, time_high=MS)
    add(5, "invoke", "connect")
    add(5, "ok", "connect", broker="a1", connection=1)
    for session in (1, 2):
        add(5, "invoke", "subscribe", session=session)
        add(5, "ok", "subscribe", session=session, broker="a1")
    told = '{"label": "kill-1", "nodes": ["a2"]}'
    add(-1, "invoke", "kill", value=told)
    for message in range(1, 41):
        group = f"g{message % 5}"
        place = {"group": group, "producer": 1, "sequence": (message - 1) // 5}
        add(1, "invoke", "send", message, digest=message, **place)
        add(1, "ok", "send", message, broker="a1", **place)
        add(9, "ok", "deliver", message, session=1, broker="a1", redelivered=False, digest=message, **place)
        add(6, "invoke", "ack", message, session=1, **place)
        add(6, "ok", "ack", message, session=1, broker="a1", **place)
    for message in range(41, 45):
        alone = {"group": None, "producer": message, "sequence": 0}
        add(1, "invoke", "send", message, digest=message, **alone)
        add(1, "info", "send", message, **alone)
    add(-1, "info", "kill", value='{"label": "kill-1", "bit": true}')
    add(7, "invoke", "begin", transaction=1)
    add(7, "ok", "begin", transaction=1, broker="a1")
    add(7, "invoke", "commit", transaction=1)
    add(7, "ok", "commit", transaction=1, broker="a1")
    add(5, "invoke", "unsubscribe", session=1)
    add(5, "ok", "unsubscribe", session=1, broker="a1")
    add(9, "info", "disconnect", session=2, broker="a1")
    add(10, "info", "state", broker="a1", value="lost", error="connection closed by the broker")
    for value in ("heal", "recovered", "drain", "browse"):
        rows.append(phase(len(rows), value))
    add(-3, "ok", "browse", broker="a1")
    change = '{"kind": "members", "key": "n", "value": null}'
    add(-2, "info", "view-change", broker="a1", time_low=1, time_high=2, value=change)
    add(
        -3,
        "ok",
        "view",
        broker="a1",
        time_low=2,
        time_high=1,
        value='{"kind": "members", "key": "n", "value": "a1"}',
    )
    rows.append(phase(len(rows), "end"))
    return rows


def store(directory: Path, rows: list[Row], parts: int = 4) -> Path:
    """As the recorder lays it out."""
    directory.mkdir(exist_ok=True)
    parquet.write(directory, table(rows).to_batches(), parts)
    return directory


def row(rows: list[Row], f: str, type_: str, nth: int = 0) -> Row:
    return [r for r in rows if (r["f"], r["type"]) == (f, type_)][nth]


def put(f_: str, type_: str, /, **columns: Any) -> Callable[[list[Row]], None]:
    """Other values in one row."""

    def edit(rows: list[Row]) -> None:
        row(rows, f_, type_, -1).update(columns)

    return edit


def cut(low: int, high: int) -> Callable[[list[Row]], None]:
    return lambda rows: rows.__delitem__(slice(low, high))


def renumbered(
    f: str, type_: str, edit: Callable[[Row, list[Row]], list[Row]]
) -> Callable[[list[Row]], None]:
    """One row replaced by others, and all indexes dense again."""

    def change(rows: list[Row]) -> None:
        one = row(rows, f, type_, 3)
        at = rows.index(one)
        rows[at : at + 1] = edit(one, rows)
        times = sorted(r["time"] for r in rows)
        for n, r in enumerate(rows):
            r["index"], r["time"] = n, times[n]

    return change


def again(one: Row, rows: list[Row]) -> list[Row]:
    return [one, dict(one)]


def gone(one: Row, rows: list[Row]) -> list[Row]:
    return []


def shifted(by: int) -> Callable[[list[Row]], None]:
    def edit(rows: list[Row]) -> None:
        for r in rows:
            r["index"] += by

    return edit


def everywhere(column: str, f: str | None = None) -> Callable[[list[Row]], None]:
    def edit(rows: list[Row]) -> None:
        for r in rows:
            if f is None or r["f"] == f:
                r.pop(column, None)

    return edit


BROKEN: dict[str, tuple[Callable[[list[Row]], None], str]] = {
    "an index twice": (put("send", "ok", index=60), r"row 60: there are two rows of this index"),
    "an index twice, in a part and in control": (
        put("view", "ok", index=60), r"row 60: there are two rows of this index"),
    "a gap": (
        lambda rows: [r.update(index=r["index"] + 1) for r in rows[70:]] and None,
        r"row 70: there is no row of this index"),
    "rows cut out": (cut(70, 90), r"row 70: there is no row of this index"),
    "rows cut out at the beginning": (cut(0, 3), r"row 0: there is no row of this index"),
    "an index that is negative": (put("send", "ok", index=-5), r"row -5: index is negative"),
    "all indexes negative": (shifted(-1000), r"row -\d+: index is negative"),
    "an index beyond 2^32": (shifted(2**32), r"index is beyond 4,294,967,294"),
    "time that goes back": (put("ack", "ok", time=1), r"row \d+: time goes back to 1 ns"),
    "time that goes back in control": (
        put("commit", "ok", time=1), r"control\.parquet: row \d+: time goes back to 1 ns"),
    "time of control that goes on": (put("commit", "ok", time=10**15), r"time goes back"),
    "time of the last row of a part that goes on": (
        put("send", "info", time=10**15), r"time goes back to \d+ ns from 1000000000000000 ns at row \d+"),
    "an unknown type": (
        put("send", "ok", type="done"), r'type is "done": it must be invoke, ok, fail or info'),
    "an unknown operation": (put("commit", "ok", f="committed"), r'f is "committed": no client does that'),
    "an unknown operation with a message": (put("ack", "ok", f="acknowledge"), r'f is "acknowledge"'),
    "a delivery that is invoked": (put("deliver", "ok", type="invoke"), r"deliver invoke is no operation"),
    "a send of the monitor": (put("send", "ok", process=-2), r"send is of process -2"),
    "a queue that is null everywhere": (everywhere("queue"), r"row \d+: queue is null in a (send|deliver)"),
    "a queue that is null once": (
        put("ack", "ok", queue=None), r"control\.parquet: row \d+: queue is null in an ack"),
    "a session that is null everywhere": (everywhere("session"), r"session is null in a"),
    "a session that is null in deliveries": (
        everywhere("session", "deliver"), r"session is null in a deliver"),
    "a session that is null in one disconnect": (
        put("disconnect", "info", session=None), r"session is null in a disconnect"),
    "a message that is null in a send": (put("send", "ok", message=None), r"message is null in a send"),
    "a transaction that is null": (put("commit", "ok", transaction=None), r"transaction is null in a commit"),
    "two completions": (
        renumbered("ack", "ok", again), r"ok of ack of message \d+ by process 6 is a second completion"),
    "a send completed twice": (
        renumbered("send", "ok", again), r"ok of send of message \d+ by process 1 is a second completion"),
    "ok without invoke": (
        renumbered("send", "invoke", gone),
        r"ok of send of message \d+ by process 1 completes what that process has not invoked"),
    "ok by another process": (
        renumbered("send", "ok", lambda one, _: [{**one, "process": 3}]),
        r"by process 3 completes what that process has not invoked"),
    "an ack without invoke": (
        renumbered("ack", "invoke", gone), r"ok of ack of message \d+ by process 6 completes what"),
    "an answer before its question": (
        renumbered("send", "invoke", lambda one, rows: [{**one, "type": "ok"}]), r"send of message"),
    "a question after its answer": (
        lambda rows: _swapped(rows, "send"),
        r"ok of send of message 4 by process 1 completes what that process has not invoked"),
    "an ack that is invoked while it is open": (
        renumbered("ack", "invoke", again),
        r"ack of message \d+ is invoked by process 6, which has asked for it before"),
    "a commit without invoke": (
        lambda rows: _without(rows, "commit", "invoke"),
        r"ok of commit of transaction 1 by process 7 completes what"),
    "a begin completed twice": (
        lambda rows: _doubled(rows, "begin", "ok"),
        r"ok of begin of transaction 1 by process 7 is a second completion"),
    "a connect without invoke": (
        lambda rows: _without(rows, "connect", "invoke"), r"ok of connect by process 5 completes what"),
    "a subscribe completed twice": (
        lambda rows: _doubled(rows, "subscribe", "ok"),
        r"ok of subscribe of session 2 by process 5 is a second"),
    "an unsubscribe without invoke": (
        lambda rows: _without(rows, "unsubscribe", "invoke"), r"ok of unsubscribe of session 1"),
    "a state that is null": (put("state", "info", value=None), r"value is null in a state"),
    "a state that is an answer": (
        put("state", "info", type="ok"), r"state is ok: it must be info"),
    "a disconnect that is invoked": (
        put("disconnect", "info", type="invoke"), r"disconnect is invoke: it must be info"),
    "a fault completed twice": (
        lambda rows: _doubled(rows, "kill", "info"), r"info of kill of fault kill-1 is a second completion"),
    "a fault that was not invoked": (
        lambda rows: _without(rows, "kill", "invoke"),
        r"info of kill of fault kill-1 completes what was not invoked"),
    "a fault invoked twice": (
        lambda rows: _doubled(rows, "kill", "invoke"), r"kill of fault kill-1 is invoked again"),
    "a fault without JSON": (put("kill", "info", value="kill-1"), r"value is not a JSON object: 'kill-1'"),
    "a fault without a label": (put("kill", "info", value="{}"), r'value has no text "label"'),
    "a view without JSON": (put("view", "ok", value='{"kind": '), r"value is not a JSON object"),
    "a view of nothing": (put("view", "ok", value='{"kind": "members"}'), r'value has no text "key"'),
    "a view of a number": (
        put("view", "ok", value='{"kind": "members", "key": "n", "value": 3}'),
        r'"value" is neither a text nor null'),
    "a changed view without JSON": (
        put("role", "info", f="view-change", value="{"), r"value is not a JSON object"),
    "a changed view of nothing": (
        put("role", "info", f="view-change", value='{"kind": "members"}'), r'value has no text "key"'),
    "a changed view at no time": (
        put("role", "info", f="view-change", value='{"kind": "members", "key": "n"}', time_low=None),
        r"time_low is null in a view-change"),
    "a changed view that is ok": (
        put("role", "info", type="ok", f="view-change", value='{"kind": "members", "key": "n"}'),
        r"view-change of the monitor is ok: it has no invocation and must be info"),
    "a phase that is invoked": (
        put("phase", "info", type="invoke"),
        r"phase of the harness is invoke: it has no invocation and must be info"),
    "a role that is ok": (
        put("role", "info", type="ok"), r"role of the monitor is ok: it has no invocation and must be info"),
    "a phase without a name": (put("phase", "info", value=None), r"value is null in a phase"),
    "a role at no time": (put("role", "info", time_low=None), r"time_low is null in a role"),
    "a row of the monitor that it does not write": (
        put("role", "info", f="mood"), r'f is "mood": the monitor records nothing of that name'),
}  # fmt: skip


def _without(rows: list[Row], f: str, type_: str) -> None:
    at = rows.index(row(rows, f, type_))
    del rows[at]
    for n, r in enumerate(rows):
        r["index"], r["time"] = n, n * MS


def _doubled(rows: list[Row], f: str, type_: str) -> None:
    at = rows.index(row(rows, f, type_, -1))
    rows.insert(at, dict(rows[at]))
    for n, r in enumerate(rows):
        r["index"], r["time"] = n, n * MS


def _swapped(rows: list[Row], f: str) -> None:
    """The answer of one operation before its question."""
    asked, answered = row(rows, f, "invoke", 3), row(rows, f, "ok", 3)
    asked["type"], answered["type"] = answered["type"], asked["type"]


def broken(case: str) -> list[Row]:
    rows = [dict(r) for r in whole()]
    BROKEN[case][0](rows)
    return [{k: v for k, v in r.items() if v is not None} for r in rows]


def refused(directory: Path, spark: Any = None) -> str:
    with pytest.raises(api.HistoryError) as caught:
        api.check(directory, OPTIONS, spark)
    text = str(caught.value)
    assert "\n" not in text
    assert str(directory) in text
    return text


def test_a_whole_history_is_judged(tmp_path):
    verdict = api.check(store(tmp_path / "s", whole()), OPTIONS)
    assert (verdict.valid, verdict.findings) == (True, ())


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.slow
def test_what_is_broken_is_refused_in_one_line(tmp_path, case, parts):
    text = refused(store(tmp_path / "s", broken(case), parts))
    assert re.search(BROKEN[case][1], text), text


@pytest.mark.parametrize("case", ["time that goes back", "time that goes back in control"])
def test_a_step_back_in_a_file_is_seen_however_few_rows_are_compared_with_those_of_others(
    tmp_path, monkeypatch, case
):
    monkeypatch.setattr(breakage, "KNOTS", 4)
    assert re.search(BROKEN[case][1], refused(store(tmp_path / "s", broken(case))))


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_refused_wherever_it_lies(tmp_path, case):
    rows = table(broken(case))
    half = len(rows) // 2
    for name, some in (("a.parquet", rows.slice(half)), ("b.parquet", rows.slice(0, half))):
        pq.write_table(some, tmp_path / name)
    assert re.search(BROKEN[case][1].replace("control\\.", "[ab]."), refused(tmp_path))


@pytest.mark.parametrize("case", BROKEN)
def test_a_history_in_one_table_is_looked_at_in_the_same_way(case):
    rows = table(broken(case))
    carried = with_messages(rows)
    whole_, confined = of_tables(rows.filter(carried), rows.filter(pc.invert(carried)))
    found = whole_ or confined[0]
    told = str(found)
    assert re.search(BROKEN[case][1].replace(r"control\.parquet: ", ""), told), told


def one_of(*cases):
    """The first case with every commit, the others in turn: each is refused without Spark, too."""
    return [cases[0], *(pytest.param(case, marks=pytest.mark.in_turn) for case in cases[1:])]


@pytest.mark.spark
@pytest.mark.parametrize(
    "case",
    one_of(
        "an index twice",
        "time that goes back",
        "a session that is null in deliveries",
        "two completions",
    ),
)
def test_what_is_broken_is_refused_by_spark_too(spark, tmp_path, case):
    laid_out = store(tmp_path / "s", broken(case))
    assert re.search(BROKEN[case][1], refused(laid_out, spark))


@pytest.mark.spark
@pytest.mark.parametrize(
    "case", one_of("rows cut out", "two completions", "an index twice", "a queue that is null everywhere")
)
def test_what_is_broken_is_refused_where_spark_moves_the_rows(spark, tmp_path, case):
    pq.write_table(table(broken(case)), tmp_path / "a.parquet")
    assert re.search(BROKEN[case][1], refused(tmp_path, spark))


def _split(history: Path) -> None:
    """The rows of one part in two."""
    part = next(
        file for file in sorted(history.glob("part-*")) if "g1" in pq.read_table(file)["group"].to_pylist()
    )
    rows = pq.read_table(part)
    pq.write_table(rows.slice(len(rows) // 2), part)
    pq.write_table(rows.slice(0, len(rows) // 2), history / "part-00009.parquet")


def _split_alone(history: Path) -> None:
    """What one producer sent without a group in two parts."""
    for file in sorted(history.glob("part-*")):
        rows = pq.read_table(file)
        mine = pc.fill_null(pc.equal(rows["producer"], 42), False)
        half = pc.and_(mine, pc.equal(rows["type"].cast(pa.string()), "invoke"))
        if pc.any(half).as_py():
            pq.write_table(rows.filter(pc.invert(half)), file)
            pq.write_table(rows.filter(half), history / "part-00009.parquet")


def _twice(history: Path) -> None:
    first = min(history.glob("part-*"))
    shutil.copy(first, history / "part-00009.parquet")


def _as(column: str, type_: pa.DataType) -> Callable[[Path], None]:
    def edit(history: Path) -> None:
        first = min(history.glob("part-*"))
        rows = pq.read_table(first)
        at = rows.column_names.index(column)
        pq.write_table(rows.set_column(at, column, pc.cast(rows[column], type_, safe=False)), first)

    return edit


def _numbered(history: Path) -> None:
    """Brokers as numbers."""
    first = min(history.glob("part-*"))
    rows = pq.read_table(first)
    at = rows.column_names.index("broker")
    pq.write_table(rows.set_column(at, "broker", pa.nulls(len(rows), pa.int64())), first)


def _nowhere(history: Path) -> None:
    """No row of a part names its queue.

    The recorder would have laid such rows among those of control.
    """
    first = min(history.glob("part-*"))
    rows = pq.read_table(first)
    field = rows.schema.field("queue")
    at = rows.column_names.index("queue")
    pq.write_table(rows.set_column(at, field, pa.nulls(len(rows), field.type)), first)


def _by_nobody(history: Path) -> None:
    for file in history.glob("part-*"):
        rows = pq.read_table(file)
        field = rows.schema.field("producer")
        at = rows.column_names.index("producer")
        pq.write_table(rows.set_column(at, field, pa.nulls(len(rows), field.type)), file)


def _control_in_a_part(history: Path) -> None:
    first = min(history.glob("part-*"))
    rows, control = pq.read_table(first), pq.read_table(history / "control.parquet")
    pq.write_table(pa.concat_tables([rows, control.slice(0, 1)]), first)
    pq.write_table(control.slice(1), history / "control.parquet")


def _part_in_control(history: Path) -> None:
    first = min(history.glob("part-*"))
    rows, control = pq.read_table(first), pq.read_table(history / "control.parquet")
    pq.write_table(pa.concat_tables([control, rows.slice(0, 1)]), history / "control.parquet")
    pq.write_table(rows.slice(1), first)


def _null(column: str, name: str = "part") -> Callable[[Path], None]:
    def edit(history: Path) -> None:
        file = min(history.glob(f"{name}*"))
        rows = pq.read_table(file)
        values = rows.to_pylist()
        values[3][column] = None
        plain = pa.schema([pa.field(f.name, f.type) for f in rows.schema])  # so that anything may be null
        pq.write_table(pa.Table.from_pylist(values, schema=plain), file)

    return edit


def _garbled(history: Path) -> None:
    first = min(history.glob("part-*"))
    data = bytearray(first.read_bytes())
    data[4:400] = bytes(396)
    first.write_bytes(data)


SPREAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "sends of nobody": (
        _by_nobody,
        r"part-0000\d\.parquet: row \d+: sequence counts the sends of a producer, and producer is null"),
    "a part without queues": (_nowhere, r"part-0000\d\.parquet: row \d+: queue is null in a send"),
    "a group over two files": (
        _split,
        (r'part-0000\d\.parquet: row \d+: group "g\d" of queue "q" is in .*part-00009\.parquet, too'
        r'|part-00009.*is in .*part-0000\d')),
    "a producer without groups over two files": (
        _split_alone, r'row \d+: what producer 42 sent without a group of queue "q" is in .*, too'),
    "a part file twice": (
        _twice, r"part-0000\d\.parquet and .*part-00009\.parquet: row \d+: there are two rows of this index"),
    "an index of texts": (_as("index", pa.string()), r'its column "index" is string: it must be int64'),
    "times as floating point numbers": (
        _as("time", pa.float64()), r'its column "time" is double: it must be int64'),
    "messages in half the width": (
        _as("message", pa.int32()), r'its column "message" is int32: it must be int64'),
    "operations as numbers": (
        _as("process", pa.string()), r'its column "process" is string: it must be int32'),
    "brokers as numbers": (_numbered, r'its column "broker" is int64: it must be string'),
    "a type that is null": (_null("type"), r"part-0000\d\.parquet: row \d+: type is null"),
    "an operation that is null": (_null("f"), r"part-0000\d\.parquet: row \d+: f is null"),
    "an index that is null": (_null("index"), r"history: a row has no index"),
    "a time that is null": (_null("time"), r"part-0000\d\.parquet: row \d+: time is null"),
    "a process that is null": (_null("process"), r"part-0000\d\.parquet: row \d+: \w+ is of process null"),
    "a type that is null in control": (_null("type", "control"), r"control\.parquet: row \d+: type is null"),
    "an operation that is null in control": (_null("f", "control"), r"control\.parquet: row \d+: f is null"),
    "an index that is null in control": (_null("index", "control"), r"history: a row has no index"),
    "a process that is null in control": (
        _null("process", "control"), r"control\.parquet: row \d+: \w+ of process null, which is no client"),
    "a control row in a part": (
        _control_in_a_part, r"part-0000\d\.parquet: row 0: phase info is no operation with a message"),
    "a message in control": (
        _part_in_control, r"control\.parquet: row \d+: \w+ of a message lies among the rows that carry none"),
    "a part that cannot be read": (_garbled, r"part-0000\d\.parquet.* can(not)? be read: "),
}  # fmt: skip


@pytest.mark.parametrize("case", SPREAD)
def test_what_does_not_lie_as_it_must_is_refused(tmp_path, case):
    history = store(tmp_path / "s", whole()) / "history"
    SPREAD[case][0](history)
    assert re.search(SPREAD[case][1], text := refused(tmp_path / "s")), text


@pytest.mark.spark
@pytest.mark.parametrize(
    "case", one_of("a group over two files", "a part file twice", "a part that cannot be read")
)
def test_what_does_not_lie_as_it_must_is_refused_by_spark_too(spark, tmp_path, case):
    history = store(tmp_path / "s", whole()) / "history"
    SPREAD[case][0](history)
    assert re.search(SPREAD[case][1], text := refused(tmp_path / "s", spark)), text


@pytest.mark.parametrize(
    ("moved", "sums"),
    [({0: 1, 3: 2}, 1), ({0: 1, 4: 2, 5: 6}, 2)],
    ids=["two rows whose indexes have the same sum", "three whose squares have the same sum, too"],
)
def test_rows_that_are_missing_while_others_are_doubled_are_noticed_whatever_sums_they_have(
    tmp_path, moved, sums
):
    """Range and number of rows are those of a whole history, the first power sums of the indexes
    as well, and no time and no pair tells of it: one delivery has the index of another, in
    another file.
    """
    assert all(sum(n**k for n in moved) == sum(n**k for n in moved.values()) for k in range(sums + 1))
    rows = [{**row, "time": 0} for row in whole() if row["f"] != "role"]
    for n, row_ in enumerate(rows):
        row_["index"] = n
    history = store(tmp_path / "s", rows, parts=16) / "history"
    lies = {n: file for file in history.glob("*.parquet") for n in pq.read_table(file)["index"].to_pylist()}
    delivered = [row["index"] for row in rows if row["f"] == "deliver"]
    at = next(
        at
        for at in range(10, 30)
        if not {lies[delivered[at + n]] for n in moved} & {lies[delivered[at + n]] for n in moved.values()}
    )
    instead = {delivered[at + one]: delivered[at + other] for one, other in moved.items()}
    for file in {lies[index] for index in instead}:
        some = pq.read_table(file)
        indexes = [instead.get(index, index) for index in some["index"].to_pylist()]
        column = some.column_names.index("index")
        pq.write_table(some.set_column(column, some.schema.field(column), [indexes]), file)
    assert "index is not dense: some are missing and as many are doubled" in refused(tmp_path / "s")


@pytest.mark.parametrize("seed", range(40))
def test_histories_of_a_correct_broker_are_whole_and_so_is_each_prefix(seed):
    rows = correct(seed, transactions=bool(seed % 2))
    for end in (len(rows), len(rows) // 2, 3, 1):
        assert of_rows(rows[:end]) is None, rows[:end]


def of_rows(rows: list[Row]) -> breakage.Breakage | None:
    whole = table(rows)
    carried = with_messages(whole)
    found, confined = of_tables(whole.filter(carried), whole.filter(pc.invert(carried)))
    return found or next(iter(confined), None)


@pytest.mark.parametrize(
    ("policy", "nemeses", "workload"),
    [
        ("replication", ("partition", "kill", "pause"), "groups"),
        ("shared-store", ("kill", "nfs-disconnect"), "queue"),
        ("ha-database", ("kill", "database-disconnect"), "groups"),
        ("multi-instance", ("stop", "kill"), "queue"), ("standalone", ("kill", "pause"), "groups"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_what_the_harness_records_is_whole_wherever_it_is_killed(policy, nemeses, workload):
    spec = TestSpec(
        name="look", policy=policy, nemeses=nemeses, workload=workload, pairs=1, time_limit_s=4,
        recovery_bound_s=15, quiet_period_s=0.3,
    )  # fmt: skip
    recorded = simulate(spec, judge=False).recorded
    whole = pa.Table.from_batches([to_batch(list(recorded))])
    carried = with_messages(whole)
    for end in (len(whole), *random.Random(policy).sample(range(len(whole)), 5)):
        some, mine = whole.slice(0, end), carried.slice(0, end)
        assert of_tables(some.filter(mine), some.filter(pc.invert(mine))) == (None, []), end


def test_a_zombie_that_a_control_row_shows_has_its_rows_as_witness(tmp_path):
    rows = whole()
    at = row(rows, "unsubscribe", "invoke")["index"]
    rows[at]["process"] = rows[at + 1]["process"] = 8
    for name, role_ in (("a1", "backup"), ("a2", "live")):
        rows.insert(at, o(0, -2, "info", "role", broker=name, node_id="n", role=role_))
    for n, r in enumerate(rows):
        r["index"], r["time"] = n, n * MS
        if r["f"] == "role":
            r["time_low"] = r["time_high"] = r["time"]
    verdict = api.check(store(tmp_path / "s", rows), OPTIONS)
    assert verdict.valid is False
    (zombie,) = [finding for finding in verdict.findings if finding.name == "zombie"]
    shown = list(zombie.witness.rows)
    assert {(r["f"], r["type"]) for r in shown} >= {
        ("unsubscribe", "invoke"),
        ("unsubscribe", "ok"),
        ("role", "info"),
    }
    assert "zombie" in {i.name for i in reference.find(shown, OPTIONS)}
    assert "unsubscribe" in zombie.sentence


LOST = {"group": "g1", "producer": 1, "sequence": 99}


def lossy() -> list[Row]:
    """The whole history, in which a message is lost, another delivered twice and a third
    altered.
    """
    rows = whole()
    at = row(rows, "begin", "invoke")["index"]
    again = dict(row(rows, "deliver", "ok"))
    altered = dict([r for r in rows if r["f"] == "deliver"][7], digest=1)
    lost = [o(0, 1, "invoke", "send", 99, **LOST), o(0, 1, "ok", "send", 99, broker="a1", **LOST)]
    rows[at:at] = [*lost, again, altered]
    for n, r in enumerate(rows):
        r["index"], r["time"] = n, n * MS
    return rows


@pytest.mark.parametrize(
    "case",
    [
        "a fault completed twice", "a fault without JSON", "a view without JSON", "a view of nothing",
        "a phase without a name", "a role at no time",
        "a row of the monitor that it does not write",
    ],
)  # fmt: skip
def test_a_bad_row_of_control_hides_nothing_that_other_rows_prove(tmp_path, case):
    rows = lossy()
    BROKEN[case][0](rows)
    rows = [{k: v for k, v in r.items() if v is not None} for r in rows]
    found = {"lost", "duplicate", "corrupted"}
    if case == "a phase without a name":  # it was the last: nobody knows that it was the end
        found.remove("lost")
    verdict = api.check(store(tmp_path / "s", rows), OPTIONS)
    assert verdict.valid is False
    assert found <= {finding.name for finding in verdict.findings}
    assert any(
        re.search(BROKEN[case][1], reason) and "cannot be judged" in reason for reason in verdict.reasons
    )
    assert not any("crashed" in reason for reason in verdict.reasons)


def test_what_the_subject_of_a_bad_row_might_excuse_is_not_told(tmp_path):
    options = api.CheckOptions(unavailable_bound_s=0.005, recovery_bound_s=1000)
    rows = lossy()
    told = {finding.name for finding in api.check(store(tmp_path / "s", rows), options).findings}
    assert {"unavailable", "lost"} <= told
    BROKEN["a fault without JSON"][0](rows)
    told = {finding.name for finding in api.check(store(tmp_path / "t", rows), options).findings}
    assert "lost" in told
    assert "unavailable" not in told


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("roles", "reigns"), ("views", "read"), ("takeovers", "doubles"), ("availability", "waiting"),
        ("roles", "answered"), ("facts", "read"),
    ],
)  # fmt: skip
def test_a_crash_in_what_control_rows_say_is_unknown_for_itself_alone(tmp_path, monkeypatch, module, name):
    def crash(*_: object) -> None:
        raise RuntimeError("our own bug")

    monkeypatch.setattr(getattr(judge, module), name, crash)
    verdict = api.check(store(tmp_path / "s", lossy()), OPTIONS)
    assert verdict.valid is False
    found = {finding.name for finding in verdict.findings}
    assert {"duplicate", "corrupted"} <= found
    assert "lost" in found or module == "facts"
    assert any("crashed: RuntimeError: our own bug" in reason for reason in verdict.reasons)
    monkeypatch.undo()
    monkeypatch.setattr(getattr(judge, module), name, crash)
    assert api.check(store(tmp_path / "t", whole()), OPTIONS).valid is None


@pytest.mark.spark
def test_a_crash_within_spark_says_what_was_raised(spark, tmp_path, monkeypatch):
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("our own bug,\nin two lines")

    monkeypatch.setattr(part, "answer", crash)
    verdict = api.check(store(tmp_path / "s", whole()), OPTIONS, spark)
    assert verdict.valid is None
    assert any("RuntimeError: our own bug" in reason for reason in verdict.reasons), verdict.reasons


def imported(directory: Path, rows: list[Row], *without: str, declared: bool = True) -> Path:
    """A history that others have made: without some columns, which it says."""
    history = store(directory, rows, 2) / "history"
    for file in history.glob("*.parquet"):
        some = pq.read_table(file).drop_columns(list(without))
        names = ",".join(some.column_names)
        pq.write_table(some.replace_schema_metadata({"jepsen-run-columns": names} if declared else {}), file)
    return directory


def test_a_history_that_says_which_columns_it_has_is_judged_by_those(tmp_path):
    without = ("session", "digest", "node_id", "role", "time_low", "time_high", "delivery_count")
    rows = [r for r in lossy() if r["f"] not in ("role", "view")]
    for n, r in enumerate(rows):
        r["index"], r["time"] = n, n * MS
    verdict = api.check(imported(tmp_path / "s", rows, *without), OPTIONS)
    assert {finding.name for finding in verdict.findings} == {"lost"}
    (told,) = [reason for reason in verdict.reasons if "not judged" in reason]
    assert told.startswith("split-brain, double-takeover, phantom, not-subscribed, ")
    assert told.endswith(
        "not judged, the history has no delivery_count, digest, node_id, role, session, time_high, time_low"
    )
    fine = [r for r in whole() if r["f"] not in ("role", "view")]
    for n, r in enumerate(fine):
        r["index"], r["time"] = n, n * MS
    verdict = api.check(imported(tmp_path / "t", fine, *without), OPTIONS)
    assert (verdict.valid, len(verdict.reasons)) == (True, 1)


def test_what_needs_a_column_that_is_missing_is_not_told_in_part(tmp_path):
    verdict = api.check(imported(tmp_path / "s", lossy(), "session"), OPTIONS)
    assert {finding.name for finding in verdict.findings} == {"lost", "corrupted"}
    (told,) = [reason for reason in verdict.reasons if "not judged" in reason]
    assert re.fullmatch(r".*duplicate, .* not judged, the history has no session", told)


def test_columns_that_are_missing_and_not_said_to_be_are_missed(tmp_path):
    assert 'it has no column "digest"' in refused(imported(tmp_path / "s", whole(), "digest", declared=False))
    broken_ = imported(tmp_path / "t", whole(), "message")
    assert 'it has no column "message"' in refused(broken_)
