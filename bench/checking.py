"""How fast the safety rules judge a history.

Beside plain Spark on the same rows in the same minutes.

    python bench/checking.py --events 50000000

Bar: 5 million events a second on 2 cores, warm, under 8 GB of JVM and Python together (this issue:
within half of it). The history is made with numpy, looks like a run with fail-overs (several
producers a group, consumers that come and go, redeliveries after each change of consumers, unknown
sends) and is correct: a verdict other than "nothing found" ends the bench with an error. It is
written once for each size and kept in the temporary directory.

The baseline is what one would write first: one aggregation by (group, message), and one window per
group, on the same files, without knowledge of how they are laid out.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from checkers import judge, part, session
from checkers.arrow_schema import SCHEMA
from checkers.inspection import Inspection
from checkers.source import Files
from checkers.spark_source import open_with
from checkers.verdict import CheckOptions
from harness.history.parquet import WRITING

BAR_EVENTS_S = 5_000_000
BAR_MEMORY_GB = 8.0
EVENTS_PER_MESSAGE = 5  # send and ack with their completions, and a delivery
MESSAGES_PER_GROUP = 2_000
PRODUCERS = 64
SESSION_MESSAGES = 500  # deliveries of a group before its consumer changes
SLOT = 32  # indexes a message may use in its file's lane: its own below 25, then those of roles
REDELIVERED = 4  # unacknowledged messages a consumer leaves behind
ROWS_PER_FILE = 500_000
SAFETY = ("roles", "transactions")  # beside those of groups
ASKED: dict[str, dict[str, bool]] = {
    "all safety rules": {"only_safety": True},
    "and the look at the history's form": {"only_safety": True, "look": True},
    "all that a verdict asks": {"look": True},
}
BROKERS = ("a1", "a2", "b1", "b2", "c1", "c2")


def _part(
    seed: int, groups: np.ndarray, stride: int, reigns: np.ndarray, per: int = MESSAGES_PER_GROUP,
    messages: int = 0, sessions: int = 0,
) -> pa.Table:  # fmt: skip
    """The rows of some groups of ``per`` messages, numbered from ``messages``, as sessions are.

    Times are slots of the whole history: one message every ``stride`` indexes of its file's lane.

    ``reigns`` are the slots at which the first pair changes its live: its two brokers take turns.
    """
    random = np.random.default_rng(seed)
    count = len(groups) * per
    group = np.tile(groups, per)  # all groups advance together
    nth = np.repeat(np.arange(per), len(groups))
    message = messages + group.astype(np.int64) * per + nth
    producer = (group * 7 + random.integers(0, 3, count)) % PRODUCERS
    order = np.lexsort((nth, producer, group))
    same = np.ones(count, dtype=np.int64)
    starts = np.flatnonzero(np.diff(group[order] * PRODUCERS + producer[order], prepend=-1))
    position = np.arange(count)
    same[order] = position - np.repeat(starts, np.diff(np.append(starts, count)))
    slot = np.arange(count, dtype=np.int64) * SLOT
    consumer = sessions + group * (per // SESSION_MESSAGES + 1) + nth // SESSION_MESSAGES
    last = nth % SESSION_MESSAGES >= SESSION_MESSAGES - REDELIVERED
    last &= nth < per - REDELIVERED
    lag = SLOT * len(groups) * 2
    digest = (message * 2_654_435_761) & 0xFFFFFFFF
    unknown = random.random(count) < 0.001

    def rows(index: np.ndarray, f: int, kind: int, which: np.ndarray, process: np.ndarray,
             who: np.ndarray | None,
             flagged: np.ndarray | None = None, with_digest: bool = False,
             with_broker: bool = True) -> dict[str, np.ndarray]:  # fmt: skip
        n = len(which)
        return {
            "index": index, "process": process, "type": np.full(n, kind), "f": np.full(n, f),
            "group": group[which], "message": message[which], "producer": producer[which],
            "sequence": same[which], "session": who if who is not None else np.full(n, -1),
            "redelivered": flagged if flagged is not None else np.full(n, -1),
            "digest": digest[which] if with_digest else np.full(n, -1),
            "broker": group[which] % len(BROKERS) if with_broker else np.full(n, -1),
        }  # fmt: skip

    every = np.arange(count)
    acked = every[~last]
    left = every[last]
    rank = nth[left] % SESSION_MESSAGES - (SESSION_MESSAGES - REDELIVERED)
    later = slot[left] + (REDELIVERED - 1 - rank) * SLOT * len(groups) + lag + 13 + rank
    pieces = [
        rows(slot, 0, 0, every, producer, None, with_digest=True, with_broker=False),
        rows(slot[~unknown] + 3, 0, 1, every[~unknown], producer[~unknown], None),
        rows(slot[unknown] + 3, 0, 3, every[unknown], producer[unknown], None),
        rows(slot + lag + 1, 2, 1, every, 1000 + consumer, consumer, np.zeros(count, dtype=np.int64),
             with_digest=True),
        rows(slot[acked] + lag + 5, 1, 0, acked, 1000 + consumer[acked], consumer[acked], with_broker=False),
        rows(slot[acked] + lag + 8, 1, 1, acked, 1000 + consumer[acked], consumer[acked]),
        rows(later, 2, 1, left, 1001 + consumer[left], consumer[left] + 1, np.ones(len(left), dtype=np.int64),
             with_digest=True),
        rows(later + 4, 1, 0, left, 1001 + consumer[left], consumer[left] + 1, with_broker=False),
        rows(later + 8, 1, 1, left, 1001 + consumer[left], consumer[left] + 1),
    ]  # fmt: skip
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    by_time = np.argsort(columns["index"], kind="stable")
    columns = {name: values[by_time] for name, values in columns.items()}
    columns["index"] = columns["index"] * stride + seed
    first_pair = (columns["broker"] == 0) | (columns["broker"] == 1)
    turn = np.searchsorted(reigns, columns["index"], "right") % 2
    columns["broker"] = np.where(first_pair, turn, columns["broker"])
    return _table(columns)


def _table(columns: dict[str, np.ndarray]) -> pa.Table:
    n = len(columns["index"])

    def text(codes: np.ndarray, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32), mask=codes < 0), pa.array(names)
        )

    def number(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array(columns[name], mask=columns[name] < 0).cast(kind)

    groups, codes = np.unique(columns["group"], return_inverse=True)
    arrays = {
        "index": pa.array(columns["index"]),
        "time": pa.array(columns["index"] * 1000),
        "process": pa.array(columns["process"].astype(np.int32)),
        "type": text(columns["type"], ["invoke", "ok", "fail", "info"]),
        "f": text(columns["f"], ["send", "ack", "deliver"]),
        "queue": text(np.zeros(n), ["orders"]),
        "group": text(codes, [f"g{g:05d}" for g in groups]),
        "message": pa.array(columns["message"]),
        "producer": number("producer", pa.int32()),
        "sequence": pa.array(columns["sequence"]),
        "session": number("session", pa.int32()),
        "broker": text(columns["broker"], list(BROKERS)),
        "redelivered": pa.array(columns["redelivered"] == 1, mask=columns["redelivered"] < 0),
        "digest": number("digest", pa.int64()),
    }
    return pa.table([arrays.get(field.name, pa.nulls(n, field.type)) for field in SCHEMA], schema=SCHEMA)


def _control(
    parts: int, groups: int, end: int, reigns: np.ndarray, large: int = 0, messages: int = 0
) -> pa.Table:
    """The control rows of a history.

    Phases, the end of every session that left messages behind, and the reigns of the first pair.
    ``large`` is the number of a file with one group of so many ``messages``, if there is one.
    """
    rows: list[dict[str, object]] = [
        {"index": end + i, "process": -3, "type": "info", "f": "phase", "value": value}
        for i, value in enumerate(["load", "heal", "recovered", "drain", "browse"])
    ]
    readings = [{"type": "ok", "f": "browse", "broker": broker} for broker in BROKERS]
    for row in (*readings, {"type": "info", "f": "phase", "value": "end"}):
        rows.append({"index": end + len(rows), "process": -3, **row})
    stride = parts + bool(messages)
    for turn, at in enumerate([0, *reigns.tolist()]):
        for n, (broker, role) in enumerate(((BROKERS[1 - turn % 2], "backup"), (BROKERS[turn % 2], "live"))):
            rows.append({
                "index": at + (25 + n) * stride, "process": -2, "type": "info", "f": "role",
                "broker": broker, "node_id": "a", "role": role, "time_low": at * 1000, "time_high": at * 1000,
                "value": str(turn),
            })  # fmt: skip
    sessions = MESSAGES_PER_GROUP // SESSION_MESSAGES + 1
    rows += [
        {
            "index": ((nth - 1) * SLOT + SLOT * 2 + 12) * stride + large,
            "process": 0,
            "type": "info",
            "f": "disconnect",
            "session": groups * sessions + nth // SESSION_MESSAGES - 1,
        }
        for nth in range(SESSION_MESSAGES, messages, SESSION_MESSAGES)
    ]
    in_file = groups // parts
    lag = SLOT * in_file * 2
    for file in range(parts):
        for lane in range(in_file):
            for nth in range(SESSION_MESSAGES, MESSAGES_PER_GROUP, SESSION_MESSAGES):
                last_slot = ((nth - 1) * in_file + lane) * SLOT
                rows.append({
                    "index": (last_slot + lag + 12) * stride + file, "process": 0, "type": "info",
                    "f": "disconnect",
                    "session": (file + lane * parts) * sessions + nth // SESSION_MESSAGES - 1,
                })  # fmt: skip
    for row in rows:
        row["time"] = row["index"] * 1000  # type: ignore[operator]
    rows.sort(key=lambda row: row["index"])  # type: ignore[arg-type, return-value]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def history(events: int, changes: int = 50, *, skewed: bool = False) -> Path:
    """A directory of Parquet files with about ``events`` rows and so many changes of role.

    Made if it is not there yet. ``skewed``: half of the rows are of one group.
    """
    large = events // 2 // EVENTS_PER_MESSAGE if skewed else 0
    messages = events // EVENTS_PER_MESSAGE - large
    parts = 1
    while parts * ROWS_PER_FILE < messages * EVENTS_PER_MESSAGE:
        parts *= 2
    groups = max(parts, round(messages / MESSAGES_PER_GROUP / parts) * parts)
    name = f"jepsen-bench-checking-v9-{groups}-{parts}-{changes}" + ("-skewed" if skewed else "")
    directory = Path(tempfile.gettempdir()) / name / "history"
    if (directory / "control.parquet").is_file():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    stride = parts + bool(large)
    end = SLOT * stride * max(MESSAGES_PER_GROUP * (groups // parts), large) * 2
    # Of what a pair's change of live takes two rows, one of each broker.
    reigns = (
        np.linspace(0, end // 2, changes // 2 + 1, dtype=np.int64)[1:-1] // (SLOT * stride) * (SLOT * stride)
    )
    slots = []
    for number in range(parts):
        table = _part(number, np.arange(number, groups, parts), stride, reigns)
        slots.append(_keep(table, directory / f"part-{number:05d}.parquet"))
    if large:
        others = groups * MESSAGES_PER_GROUP, groups * (MESSAGES_PER_GROUP // SESSION_MESSAGES + 1)
        table = _part(parts, np.array([0]), stride, reigns, large, *others)
        groups_column = pa.DictionaryArray.from_arrays(np.zeros(len(table), dtype=np.int32), ["large"])
        table = table.set_column(table.column_names.index("group"), SCHEMA.field("group"), groups_column)
        slots.append(_keep(table, directory / f"part-{parts:05d}.parquet"))
        del table
    control = _control(parts, groups, end, reigns, parts, large)
    slots.append(_keep(control, directory / "control.new"))
    ranks = np.sort(np.concatenate(slots))
    assert np.all(ranks[1:] > ranks[:-1]), "two rows in one slot"
    for file in (*sorted(directory.glob("part-*")), directory / "control.new"):
        table = pq.read_table(file)
        dense = pa.array(np.searchsorted(ranks, table["index"].to_numpy()))
        _keep(table.set_column(0, SCHEMA.field("index"), dense), file)
    (directory / "control.new").rename(directory / "control.parquet")
    return directory


def _keep(table: pa.Table, file: Path) -> np.ndarray:
    """Write a part; the index of its rows."""
    pq.write_table(table, file, row_group_size=1 << 20, **WRITING)
    index: np.ndarray = table["index"].to_numpy()
    return index


@contextlib.contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """The highest memory in GB while the block runs.

    Of the JVM, Spark's Python workers and this process together.
    """
    processes = [psutil.Process()]  # the JVM is its child, the workers are those of the JVM
    peak = {"gb": 0.0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            peak["gb"] = max(peak["gb"], sum(_resident(process) for process in processes) / 1e9)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _resident(process: psutil.Process) -> int:
    """The resident bytes of a process and its children.

    What several share (the workers are forks) is counted in parts.
    """
    total = 0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total


def baseline(spark: SparkSession, directory: Path) -> None:
    """Plain Spark: one aggregation by (group, message), one window per group.

    Compiled, as Spark does by default.
    """
    spark = spark.newSession()
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    rows = spark.read.parquet(str(directory)).where("message is not null")
    kind = F.concat(F.col("f"), F.lit("-"), F.col("type"))
    life = rows.groupBy("queue", "group", "message").agg(
        F.min(F.when(kind == "send-invoke", F.col("index"))).alias("sent"),
        F.min(F.when(kind == "send-ok", F.col("index"))).alias("ok"),
        F.min(F.when(kind == "deliver-ok", F.col("index"))).alias("delivered"),
        F.count(F.when(kind == "deliver-ok", 1)).alias("deliveries"),
        F.min(F.when(kind == "ack-ok", F.col("index"))).alias("acked"),
        F.max("producer").alias("producer"),
        F.max("sequence").alias("sequence"),
    )
    earlier = (
        Window.partitionBy("queue", "group", "producer")
        .orderBy("delivered")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    late = F.max("sequence").over(earlier) > F.col("sequence")
    life.withColumn("late", late).agg(
        F.count(F.when(F.col("late"), 1)),
        F.count(F.when(F.col("ok").isNotNull() & F.col("delivered").isNull(), 1)),
    ).collect()


def everything(
    spark: SparkSession, directory: Path, *, only_safety: bool = False, look: bool = False
) -> list[str]:
    """Every rule over the history; what was found, which must be nothing.

    A verdict asks all and looks at the history's form; the bar is about the safety rules.
    """
    asked = SAFETY if only_safety else part.ROW_FAMILIES
    rows = {name: part.ROW_FAMILIES[name] for name in asked}
    source = open_with(Files.of(directory), spark)
    bench = judge.CheckRun(
        source,
        CheckOptions(unavailable_bound_s=3600),
        row_families=rows,
        inspection=Inspection(source) if look else None,
    )
    case = judge.examine(bench)
    if case is None:
        return bench.unknown
    undecided = case.facts_by_run[0].undecided()
    wrong = [name for name in case.found.get(0, {}) if not name.startswith("~")]
    return wrong + bench.unknown + ([undecided] if undecided else [])


@dataclass(slots=True)
class Measured:
    """The best of some rounds of a piece of work: by the clock, and in seconds of processor time.

    On a machine that does other things the clock tells of those. ``peak_gb`` is of all rounds.
    """

    label: str
    work: Callable[[], object]
    clock_s: float = float("inf")
    processor_s: float = float("inf")
    peak_gb: float = 0.0

    def once(self) -> None:
        """One round."""
        with peak_memory() as peak:
            begun, used = time.monotonic(), processor_s()
            self.work()
            now = processor_s()
            self.clock_s = min(self.clock_s, time.monotonic() - begun)
            self.processor_s = min(
                self.processor_s, sum(seconds - used.get(pid, 0.0) for pid, seconds in now.items())
            )
        self.peak_gb = max(self.peak_gb, peak["gb"])

    def line(self, events: int) -> str:
        """What came out, of a history of so many events."""
        clock, processor = self.clock_s, self.processor_s
        return (
            f"{self.label:<34}{clock:8.2f} s {events / clock / 1e6:8.2f} million events/s   "
            f"{processor:8.2f} s of processor time {events / processor / 1e6:8.2f} million a second of it   "
            f"peak {self.peak_gb:.1f} GB"
        )


def processor_s() -> dict[int, float]:
    """What this process, its JVM and their workers have used, by process.

    Workers that had nothing to do for a minute have ended, and are of no round any more.
    """
    used = {}
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            used[one.pid] = sum(one.cpu_times()[:2])
    return used


def main() -> int:
    """Measure, print beside the bar, and fail if the rules found anything in a correct history."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=50_000_000, help="rows of the history")
    parser.add_argument("--changes", type=int, default=50, help="changes of role in it")
    parser.add_argument("--skewed", action="store_true", help="half of the rows are of one group")
    parser.add_argument(
        "--rounds", type=int, default=2, help="measured rounds of each after one that warms up"
    )
    options = parser.parse_args()
    begun = time.monotonic()
    directory = history(options.events, options.changes, skewed=options.skewed)
    events = sum(pq.read_metadata(file).num_rows for file in directory.glob("*.parquet"))
    print(
        f"{events:,} events in {len(list(directory.iterdir()))} files, ready after "
        f"{time.monotonic() - begun:.1f} s"
    )
    spark = session.start()
    warm = history(min(options.events, 2_000_000))
    wrong = everything(spark, warm)
    baseline(spark, warm)
    works = [
        Measured("baseline: plain Spark", lambda: baseline(spark, directory)),
        *(
            Measured(label, lambda asked=asked: wrong.extend(everything(spark, directory, **asked)))  # type: ignore[misc]
            for label, asked in ASKED.items()
        ),
    ]
    for _ in range(options.rounds):  # in turn, so that all see the same of what others do here
        for one in works:
            one.once()
    for one in works:
        print(one.line(events), flush=True)
    plain, safety, *_ = works
    print(f"bar {BAR_EVENTS_S / 1e6:.1f} million events/s on two cores, {BAR_MEMORY_GB:.0f} GB; by "
          f"processor time {2 * events / safety.processor_s / BAR_EVENTS_S:.2f} of the bar, plain Spark took "
          f"{plain.processor_s / safety.processor_s:.2f} times as much")  # fmt: skip
    session.stop()
    if wrong:
        print(f"error: the history is correct, yet found: {', '.join(sorted(set(wrong)))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
