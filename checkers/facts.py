"""The records of the harness, the monitor and the nemesis: phases, roles, faults, read stores.

These rows are few; they are read once and given to every rule that needs them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from checkers import reach
from checkers.excuses import Excuses, FaultRecord, records
from checkers.schema import HARNESS, MONITOR, NEMESIS

if TYPE_CHECKING:
    import pyarrow as pa

    from checkers.verdict import CheckOptions

Row = Mapping[str, Any]

LATE_S: Final = 0.5
"""The seconds by which a redelivery may be late."""
_OWN = [
    "run", "index", "time", "process", "type", "f", "message", "broker", "node_id", "role", "time_low",
    "time_high", "error", "value",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """The span of a fault, from the moment at which it was seen to begin until it was seen healed.

    All moments are in ns; ``end`` is None if it was never seen healed. ``asked`` is when the fault
    was asked for: from then on it may have been in force. ``healing`` is when its healing was asked
    for. A fault that found no target (``found_target``) was over when that was seen.
    """

    kind: str
    label: str
    bit: bool
    asked: int
    begin: int
    end: int | None
    healing: int | None = None
    found_target: bool = True


@dataclass(slots=True)
class Facts:
    """The facts of one history that no client recorded, and what its clients asked and reached."""

    phases: list[Row] = field(default_factory=list)
    roles: list[Row] = field(default_factory=list)
    replication: list[Row] = field(default_factory=list)
    takeovers: list[Row] = field(default_factory=list)
    views: list[Row] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)
    restarts: list[Row] = field(default_factory=list)
    """The rows of brokers that had ended by themselves, before they were started again."""
    closed: list[Row] = field(default_factory=list)
    """The rows of brokers whose stores could not be read when that was tried."""
    readings: list[Row] = field(default_factory=list)
    """The rows at which a reading of a broker's stores ended."""
    took: set[str] = field(default_factory=set)
    """The brokers that took or delivered a message, as far as is known."""
    sent_until: int = -1
    """The last row that says that a send was ``ok``, as far as is known."""
    receives: Counter[str] = field(default_factory=Counter)
    """The number of receives of unknown outcome, by queue: each may have taken a message."""
    missing: int = 0
    """The number of messages that are lost, or that ``receives`` may have taken."""
    census: dict[str, dict[str, int]] = field(default_factory=dict)
    reached: reach.Reach = field(default_factory=reach.Reach)
    """What clients asked for and got; ``read`` takes it from control rows alone."""
    last_ns: int = 0

    @property
    def drained_ns(self) -> int:
        """The moment at which the drain began (ns); -1 if it never did."""
        return next((row["time"] for row in self.phases if row["value"] == "drain"), -1)

    @property
    def browsed_from(self) -> int | None:
        """The index of the row with which the reading of the stores began; None if it never did."""
        return next((row["index"] for row in self.phases if row["value"] == "browse"), None)

    def waiting(self, redelivery_s: float) -> bool:
        """Return whether messages given back before the drain may be due only after it."""
        browsed_ns = next((row["time"] for row in self.phases if row["value"] == "browse"), -1)
        return redelivery_s > 0 and browsed_ns < self.drained_ns + int((redelivery_s + LATE_S) * 1e9)

    @property
    def unfinished(self) -> str | None:
        """The reason why the end of all messages is unknown; None if the history goes so far."""
        reached = {row["value"] for row in self.phases}
        if "browse" not in reached:
            return "the drain was not reached"
        if "end" not in reached:
            return "the stores were not looked into to the end"
        return None

    @property
    def unlooked(self) -> str | None:
        """The reason why the end of some messages is unknown; None if all were sent in time."""
        if self.browsed_from is None or self.sent_until < self.browsed_from:
            return None
        return "messages were sent when the stores were being read already"

    def undecided(self, *, missing: bool = True) -> str | None:
        """Return the reason why ``lost`` cannot be decided; None if it can.

        Where no message is ``missing``, none can be in a store that was not read.
        """
        if self.unfinished is not None:
            return self.unfinished
        closed = [row for row in self.closed if row["broker"] not in self._read]
        if closed and missing:
            why = {row["broker"] or "a broker": row.get("error") for row in closed}
            names = ", ".join(f"{name} ({error})" if error else name for name, error in sorted(why.items()))
            return f"the stores of {names} could not be read"
        if missing and not self.drained:
            return self._unread()
        return None

    @property
    def drained(self) -> bool:
        """True if an imported history says that everything was received in the end.

        The phase "drained" says so. Histories that were imported before that phase existed have the
        phases "drain", "browse" and "end" at one moment instead.
        """
        at = {row["value"]: row["time"] for row in self.phases}
        return "drained" in at or at.get("drain") == at.get("browse") == at.get("end") is not None

    @property
    def _read(self) -> set[str]:
        """The brokers whose stores were read in the end, at once or in a later attempt."""
        since = self.browsed_from or 0
        return {row["broker"] for row in self.readings if row["index"] > since}

    def _unread(self) -> str | None:
        """Return a sentence that names the brokers whose stores were not read; None if all were.

        A broker's stores count as read with its own, with those of another broker of its node ID,
        or with those of a broker that took its node over.
        """
        read = self._read
        if not read:
            return "no store was read"
        nodes = {row["broker"]: row["node_id"] for row in self.roles if row["node_id"] is not None}
        read_nodes = {nodes[broker] for broker in read if broker in nodes}
        read_nodes |= {row["node_id"] for row in self.takeovers if row["broker"] in read}
        serving = self.took.union(row["broker"] for row in self.roles if row["role"] == "live")
        unread = sorted(broker for broker in serving - read if nodes.get(broker) not in read_nodes)
        return f"the stores of {', '.join(unread)} were not read" if unread else None

    @property
    def drained_from(self) -> int:
        """The index of the row with which the drain began; beyond every index if it did not."""
        return max((row["index"] for row in self.phases if row["value"] == "drain"), default=2**32 - 1)

    def taken(self, missing: Mapping[str, int]) -> frozenset[str]:
        """Return the queues in which receives of unknown outcome may have taken all that is lost.

        ``missing`` has the number of missing messages by queue.
        """
        return frozenset(queue for queue, count in missing.items() if count <= self.receives[queue])

    def certain(self, missing: Mapping[str, int]) -> int:
        """Return how many messages are certainly lost.

        These are the ``missing`` messages of each queue, less those that receives of unknown
        outcome may have taken.
        """
        return sum(max(0, count - self.receives[queue]) for queue, count in missing.items())

    def fault_records(self) -> list[FaultRecord]:
        """Return the faults, each with its rows."""
        return records(self.faults)

    def spans(self) -> list[FaultSpan]:
        """Return the spans of the faults that were seen to begin, in order of their beginning."""
        faults = []
        for record in self.fault_records():
            if record.begun is None:
                continue
            begin: int = record.begun["time"]
            invoked: int = begin if record.asked is None else record.asked["time"]
            span = FaultSpan(
                record.begun["f"], record.label, record.bit, invoked, begin,
                None if record.healed is None else record.healed["time"],
                None if record.healed is None else (record.healing or record.healed)["time"],
                found_target=record.found_target,
            )  # fmt: skip
            if not span.found_target:
                span = replace(span, end=begin, healing=begin)
            faults.append(span)
        return sorted(faults, key=lambda span: span.begin)

    def excuses(self, options: CheckOptions) -> Excuses:
        """Return the excuses that the faults give."""
        return Excuses.of(self.fault_records(), self.roles, self.takeovers, options)

    def unprotected(self) -> dict[str, list[tuple[int, int | None]]]:
        """Return the spans (ns) in which a live broker certainly had no up-to-date backup.

        They are by broker; brokers without such a span are left out. A message that only this
        broker had acknowledged then is lost with its disk (AMQ 17.3.1.3).
        """
        windows = {
            row["broker"]: self._unprotected_spans(row["broker"]) for row in self.replication if row["broker"]
        }
        return {broker: spans for broker, spans in windows.items() if spans}

    def _unprotected_spans(self, broker: str) -> list[tuple[int, int | None]]:
        changes = sorted(
            (row for row in [*self.replication, *self.roles] if row["broker"] == broker),
            key=lambda row: row["index"],
        )
        windows = []
        for change, after in zip(changes, [*changes[1:], None], strict=False):
            if change["f"] == "replication" and change["value"] == "unreplicated":
                windows.append((change["time_high"], None if after is None else after["time_low"]))
        return [(begin, end) for begin, end in windows if end is None or end > begin]

    def forget(self, subject: str) -> None:
        """Drop the rows of a subject, because one of them says nothing sensible."""
        if subject == "roles":
            self.roles, self.takeovers, self.replication = [], [], []
        elif subject == "views":
            self.views = []

    def count(self, f: str, type_: str) -> int:
        """Return the number of rows of an operation and a type."""
        return self.census.get(f, {}).get(type_, 0)

    @property
    def transactions(self) -> bool:
        """True if the end of any transaction was asked for."""
        return "commit" in self.census or "abort" in self.census


def read(control: pa.Table, last_ns: Mapping[int, int]) -> dict[int, Facts]:
    """Return the facts by run (0 where rows have no run).

    ``control`` are all control rows; ``last_ns`` is the time of the last row of any kind, by run.

    The census and ``reached`` count only these rows; ``add_census`` and ``Reach.add`` add the rows
    that carry messages.
    """
    import pyarrow as pa  # noqa: PLC0415 - not needed where rows are plain
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    facts: dict[int, Facts] = defaultdict(Facts)
    for run, last in last_ns.items():
        facts[run].last_ns = last
    if "run" not in control.column_names:
        control = control.append_column("run", pa.repeat(pa.scalar(0, pa.int32()), len(control)))
    plain = {name: pc.cast(control[name], pa.string()) for name in ("f", "type")}
    counted = (
        pa.table({"run": control["run"], **plain})
        .group_by(["run", "f", "type"])
        .aggregate([([], "count_all")])
    )
    for row in counted.to_pylist():
        add_census(facts[row["run"]], row["f"], row["type"], row["count_all"])
    pulls = control.filter(pc.equal(plain["f"], "receive"))
    for run, queue in zip(pulls["run"].to_pylist(), pulls["queue"].to_pylist(), strict=True):
        facts[run].receives[queue] += 1
    observer_rows = control.filter(pc.less(control["process"], 0)).select(_OWN)
    for row in sorted(observer_rows.to_pylist(), key=lambda row: row["index"]):
        _note(facts[row["run"]], row)
    for run, run_reach in reach.of_control(control).items():
        facts[run].reached.add(run_reach)
    return dict(facts)


def gather(rows: Sequence[Row]) -> Facts:
    """Return the facts of one history, from all its rows in order, control or not."""
    facts = Facts()
    census = Counter((row["f"], row["type"]) for row in rows)
    for (f, type_), count in census.items():
        add_census(facts, f, type_, count)
    for row in rows:
        if row["process"] < 0:
            _note(facts, row)
        elif row["f"] == "receive":
            facts.receives[row["queue"]] += 1
        elif row["f"] in ("send", "deliver") and row["type"] in ("ok", "info"):
            if row.get("broker") is not None:
                facts.took.add(row["broker"])
            if (row["f"], row["type"]) == ("send", "ok"):
                facts.sent_until = row["index"]
        facts.last_ns = max(facts.last_ns, row["time"])
    facts.reached.add(reach.gather(rows))
    return facts


def _note(facts: Facts, row: Row) -> None:
    """Add a row that no client wrote to the facts."""
    if row["process"] == MONITOR and row["f"] == "role" and row.get("broker") is not None:
        facts.roles.append(row)
    elif row["process"] == MONITOR and row["f"] == "takeover":
        facts.takeovers.append(row)
    elif row["process"] == MONITOR and row["f"] == "replication":
        facts.replication.append(row)
    elif row["process"] == NEMESIS:
        facts.faults.append(row)
    elif row["process"] == HARNESS and row["f"] == "phase":
        facts.phases.append(row)
    elif row["process"] == HARNESS and row["f"] == "restart" and row.get("broker") is not None:
        facts.restarts.append(row)
    elif row["process"] == HARNESS and row["f"] == "view":
        facts.views.append(row)
    elif row["f"] == "browse" and row["type"] in ("info", "fail") and row["message"] is None:
        facts.closed.append(row)
    elif row["f"] == "browse" and row.get("queue") is None:
        facts.readings.append(row)


def add_census(facts: Facts, f: str, type_: str, count: int) -> None:
    """Add a number of rows of an operation and a type to the census."""
    by_type = facts.census.setdefault(f, {})
    by_type[type_] = by_type.get(type_, 0) + count
