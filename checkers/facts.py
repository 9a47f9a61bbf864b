"""What the harness, the monitor and the nemesis wrote down.

Phases, roles, faults, and which stores were looked into.

These rows are few; they are read once and given to whoever needs them.
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
"""By how much a redelivery may be late."""
_OWN = [
    "run", "index", "time", "process", "type", "f", "message", "broker", "node_id", "role", "time_low",
    "time_high", "error", "value",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A fault from when it was seen to begin to when to be healed (ns; None: never).

    ``asked`` is when it was asked for: from then on it may have been in force; ``healing`` when its
    healing was. One that found no target (``found_target``) was over when that was seen.
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
    """Of one history."""

    phases: list[Row] = field(default_factory=list)
    roles: list[Row] = field(default_factory=list)
    replication: list[Row] = field(default_factory=list)
    takeovers: list[Row] = field(default_factory=list)
    views: list[Row] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)
    restarts: list[Row] = field(default_factory=list)
    """Brokers that had ended by themselves, before they were started again."""
    closed: list[Row] = field(default_factory=list)
    """Brokers whose stores could not be read when that was tried."""
    readings: list[Row] = field(default_factory=list)
    """The end of each reading of a broker's stores."""
    took: set[str] = field(default_factory=set)
    """Brokers that took or delivered a message, as far as is known."""
    sent_until: int = -1
    """The last row that says that a send was ``ok``, as far as is known."""
    receives: Counter[str] = field(default_factory=Counter)
    """By queue how many were asked to hand out a message and were never heard to have done so."""
    missing: int = 0
    """Messages that are lost, or that those may have taken."""
    census: dict[str, dict[str, int]] = field(default_factory=dict)
    reached: reach.Reach = field(default_factory=reach.Reach)
    """What clients asked for and had; ``read`` knows it as far as control rows tell."""
    last_ns: int = 0

    @property
    def drained_ns(self) -> int:
        """When the drain began; before everything if it never did."""
        return next((row["time"] for row in self.phases if row["value"] == "drain"), -1)

    @property
    def browsed_from(self) -> int | None:
        """The row with which the reading of the stores began; None if it never did."""
        return next((row["index"] for row in self.phases if row["value"] == "browse"), None)

    def waiting(self, redelivery_s: float) -> bool:
        """Whether what was given back before the drain may wait until after it."""
        browsed_ns = next((row["time"] for row in self.phases if row["value"] == "browse"), -1)
        return redelivery_s > 0 and browsed_ns < self.drained_ns + int((redelivery_s + LATE_S) * 1e9)

    @property
    def unfinished(self) -> str | None:
        """Why nobody knows what became of messages in the end; None if the history goes so far."""
        reached = {row["value"] for row in self.phases}
        if "browse" not in reached:
            return "the drain was not reached"
        if "end" not in reached:
            return "the stores were not looked into to the end"
        return None

    @property
    def unlooked(self) -> str | None:
        """Why nobody knows what became of some messages alone; None if all were sent in time."""
        if self.browsed_from is None or self.sent_until < self.browsed_from:
            return None
        return "messages were sent when the stores were being read already"

    def undecided(self, *, missing: bool = True) -> str | None:
        """Why ``lost`` cannot be decided; None if it can.

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
        """Whether a history of others says that everything was received in the end.

        Those that were imported before that had a phase of its own have its three at one moment.
        """
        at = {row["value"]: row["time"] for row in self.phases}
        return "drained" in at or at.get("drain") == at.get("browse") == at.get("end") is not None

    @property
    def _read(self) -> set[str]:
        """The brokers whose stores were read in the end, at once or when it was tried again."""
        since = self.browsed_from or 0
        return {row["broker"] for row in self.readings if row["index"] > since}

    def _unread(self) -> str | None:
        """Which brokers had stores that no row says to have been read; None: none had.

        The stores of a broker are read with it, with another of its node ID, or with one that took
        its node over.
        """
        read = self._read
        if not read:
            return "no store was read"
        nodes = {row["broker"]: row["node_id"] for row in self.roles if row["node_id"] is not None}
        known = {nodes[broker] for broker in read if broker in nodes}
        known |= {row["node_id"] for row in self.takeovers if row["broker"] in read}
        serving = self.took.union(row["broker"] for row in self.roles if row["role"] == "live")
        unread = sorted(broker for broker in serving - read if nodes.get(broker) not in known)
        return f"the stores of {', '.join(unread)} were not read" if unread else None

    @property
    def drained_from(self) -> int:
        """The row with which the drain began; one behind all others where it did not."""
        return max((row["index"] for row in self.phases if row["value"] == "drain"), default=2**32 - 1)

    def taken(self, missing: Mapping[str, int]) -> frozenset[str]:
        """Queues of which all that is ``missing`` may have been received without being heard of."""
        return frozenset(queue for queue, count in missing.items() if count <= self.receives[queue])

    def certain(self, missing: Mapping[str, int]) -> int:
        """How many of the ``missing`` messages are lost, whatever was received unheard."""
        return sum(max(0, count - self.receives[queue]) for queue, count in missing.items())

    def fault_records(self) -> list[FaultRecord]:
        """The faults, by their rows."""
        return records(self.faults)

    def spans(self) -> list[FaultSpan]:
        """Faults that were begun, in order of their beginning."""
        found = []
        for record in self.fault_records():
            if record.begun is None:
                continue
            begin: int = record.begun["time"]
            asked: int = begin if record.asked is None else record.asked["time"]
            healing = record.healing or record.healed
            span = FaultSpan(
                record.begun["f"], record.label, record.bit, asked, begin,
                None if record.healed is None else record.healed["time"],
                None if record.healed is None or healing is None else healing["time"],
                found_target=record.found_target,
            )  # fmt: skip
            if not span.found_target:
                span = replace(span, end=begin, healing=begin)
            found.append(span)
        return sorted(found, key=lambda span: span.begin)

    def excuses(self, options: CheckOptions) -> Excuses:
        """What the faults explain."""
        return Excuses.of(self.fault_records(), self.roles, self.takeovers, options)

    def unprotected(self) -> dict[str, list[tuple[int, int | None]]]:
        """When which live certainly had no up-to-date backup; those without such a time left out.

        What it alone had acknowledged then went with its disk (AMQ 17.3.1.3).
        """
        windows = {row["broker"]: self._alone(row["broker"]) for row in self.replication if row["broker"]}
        return {broker: alone for broker, alone in windows.items() if alone}

    def _alone(self, broker: str) -> list[tuple[int, int | None]]:
        changes = sorted(
            (row for row in [*self.replication, *self.roles] if row["broker"] == broker),
            key=lambda row: row["index"],
        )
        windows = []
        for here, after in zip(changes, [*changes[1:], None], strict=False):
            if here["f"] == "replication" and here["value"] == "unreplicated":
                windows.append((here["time_high"], None if after is None else after["time_low"]))
        return [(begin, end) for begin, end in windows if end is None or end > begin]

    def forget(self, subject: str) -> None:
        """Claim nothing by the rows of a subject of which one says nothing sensible."""
        if subject == "roles":
            self.roles, self.takeovers, self.replication = [], [], []
        elif subject == "views":
            self.views = []

    def count(self, f: str, type_: str) -> int:
        """Rows of that operation and type."""
        return self.census.get(f, {}).get(type_, 0)

    @property
    def transactions(self) -> bool:
        """Whether any transaction was ended."""
        return "commit" in self.census or "abort" in self.census


def read(control: pa.Table, last_ns: Mapping[int, int]) -> dict[int, Facts]:
    """Facts by run (0 where rows have none).

    From all control rows and the time of the last row of any kind.

    The census has only these rows, and so has what clients reached; ``add_census`` and
    ``Reach.add`` add those that carry messages.
    """
    import pyarrow as pa  # noqa: PLC0415 - not needed where rows are plain
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    found: dict[int, Facts] = defaultdict(Facts)
    for run, last in last_ns.items():
        found[run].last_ns = last
    if "run" not in control.column_names:
        control = control.append_column("run", pa.repeat(pa.scalar(0, pa.int32()), len(control)))
    plain = {name: pc.cast(control[name], pa.string()) for name in ("f", "type")}
    counted = (
        pa.table({"run": control["run"], **plain})
        .group_by(["run", "f", "type"])
        .aggregate([([], "count_all")])
    )
    for row in counted.to_pylist():
        add_census(found[row["run"]], row["f"], row["type"], row["count_all"])
    pulls = control.filter(pc.equal(plain["f"], "receive"))
    for run, queue in zip(pulls["run"].to_pylist(), pulls["queue"].to_pylist(), strict=True):
        found[run].receives[queue] += 1
    own = control.filter(pc.less(control["process"], 0)).select(_OWN)
    for row in sorted(own.to_pylist(), key=lambda row: row["index"]):
        _note(found[row["run"]], row)
    for run, some in reach.of_control(control).items():
        found[run].reached.add(some)
    return dict(found)


def gather(rows: Sequence[Row]) -> Facts:
    """Of one history, from all its rows in order, control or not."""
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
    """One row that no client wrote."""
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
    elif row["f"] == "browse" and row["type"] == "ok" and row.get("queue") is None:
        facts.readings.append(row)


def add_census(facts: Facts, f: str, type_: str, count: int) -> None:
    """Count rows of an operation and type."""
    by_type = facts.census.setdefault(f, {})
    by_type[type_] = by_type.get(type_, 0) + count
