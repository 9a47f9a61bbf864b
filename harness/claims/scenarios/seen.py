"""The results of a run that a scenario's expectations look at: verdict, rows, logs.

Why lazily: most scenarios are decided by their verdict and a few control rows. Only an expectation
about messages or about log lines pays for reading them.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import pyarrow.parquet as pq

from checkers import reference
from checkers.asked import Selector, properties_of, selector_of
from checkers.instance import Instance
from checkers.schema import HARNESS, MONITOR, NEMESIS
from checkers.subscriptions import matches
from checkers.verdict import CheckOptions
from harness.history import parquet
from harness.history import store as stores

if TYPE_CHECKING:
    from checkers.verdict import Verdict
    from harness.run.simulate import Simulated

Row = Mapping[str, Any]

HEAL: Final = "heal"
"""The moment when the load is healed of everything: the phase of that name."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A change of what a broker knew: another broker was ``present`` in a view of it from then on.

    The change lies within [``low_ns``, ``high_ns``].
    """

    present: bool
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class NewestChange:
    """A change of the cluster that a broker had, and none with a higher ``number``.

    It got that within [``low_ns``, ``high_ns``].
    """

    number: int
    low_ns: int
    high_ns: int


def _is_about(broker: str, kind: str, view: Mapping[str, str]) -> bool:
    """Return whether an entry of a view is about that broker."""
    if kind == "discovery":
        return view["key"].startswith(f"{broker}:")
    return view["value"].startswith(f"{broker} ")


def _outlives_connections(row: Row) -> bool:
    """Return whether a row is of a subscription that outlives its connections."""
    name = row.get("subscription")
    return name is not None and not name.startswith("plain")


class ObservedRun:
    """A run that has ended.

    Args:
        valid: its verdict.
        grave: names of the findings that made it invalid.
        reported: names of all findings, whatever their severity.
        rows: the whole history, in order.
        logs: the lines of each node's logs.
        reasons: why the verdict is what it is.
        store: where rows and logs are read from if they are not given.
    """

    def __init__(
        self,
        *,
        valid: bool | None,
        grave: frozenset[str] = frozenset(),
        reported: frozenset[str] = frozenset(),
        rows: Sequence[Row] | None = None,
        logs: Mapping[str, Sequence[str]] | None = None,
        reasons: Sequence[str] = (),
        store: Path | None = None,
    ) -> None:
        self.valid = valid
        self.grave = grave
        self.reported = grave | reported
        self.reasons = tuple(reasons)
        self._store = store
        if rows is not None:
            self.rows = rows
        if logs is not None:
            self.logs = logs

    @classmethod
    def of_store(cls, store: Path, verdict: Verdict) -> Self:
        """Return a judged run, from its directory."""
        return cls(
            valid=verdict.valid,
            grave=frozenset(finding.name for finding in verdict.findings if finding.severity == "grave"),
            reported=frozenset(finding.name for finding in verdict.findings),
            reasons=verdict.reasons,
            store=store,
        )

    @classmethod
    def of_simulated(cls, run: Simulated) -> Self:
        """Return a simulated run that the reference judged."""
        return cls(
            valid=run.valid,
            grave=run.grave,
            reported=frozenset(finding.name for finding in run.findings),
            rows=run.rows,
            logs=run.logs,
            reasons=() if run.trouble is None else (run.trouble,),
        )

    # ---- what was recorded

    @functools.cached_property
    def rows(self) -> Sequence[Row]:
        """The whole history, in order."""
        files = [] if self._store is None else parquet.complete_files(self._store) or []
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted(rows, key=lambda row: row["index"])

    @functools.cached_property
    def control(self) -> Sequence[Row]:
        """The rows that harness, monitor and nemesis recorded, in order."""
        if "rows" in vars(self) or self._store is None:
            return [row for row in self.rows if row["process"] < 0]
        rows = pq.read_table(self._store / parquet.DIRECTORY / parquet.CONTROL).to_pylist()
        return sorted((row for row in rows if row["process"] < 0), key=lambda row: row["index"])

    @functools.cached_property
    def logs(self) -> Mapping[str, Sequence[str]]:
        """The lines of each node's logs."""
        if self._store is None:
            return {}
        lines: dict[str, list[str]] = {}
        for directory in sorted((self._store / stores.LOGS).iterdir()):
            if directory.is_dir():
                lines[directory.name] = [
                    line
                    for file in sorted(directory.rglob("*"))
                    if file.is_file()
                    for line in file.read_text(errors="replace").splitlines()
                ]
        return lines

    def lines(self, broker: str | None, pattern: str) -> list[str]:
        """Return the log lines of a broker (any, if None) that match."""
        sought = re.compile(pattern)
        logs = self.logs.values() if broker is None else (self.logs.get(broker, ()),)
        return [line for lines in logs for line in lines if sought.search(line)]

    def first_logged(self, broker: str | None, pattern: str) -> str:
        """Return when a broker (any, if None) first logged a matching line; "" if never.

        The time is that of the broker's clock, as its log has it (it sorts as text).
        """
        return min((line.split(" ", 1)[0] for line in self.lines(broker, pattern)), default="")

    def instances(self, finding: str) -> list[Instance]:
        """Return every instance of a finding: the verdict names only the first few."""
        return [instance for instance in self._instances if instance.name == finding]

    @functools.cached_property
    def _instances(self) -> list[Instance]:
        return reference.find(self.rows, CheckOptions())

    def known_members(self, broker: str, other: str, kind: str) -> Iterator[MemberChange]:
        """Yield when a broker learnt of another one, and when it forgot it, by a kind of view."""
        keys: set[str] = set()
        for row in self.control:
            if row["f"] != "view-change" or row["broker"] != broker:
                continue
            view = msgspec.json.decode(row["value"])
            if view["kind"] != kind:
                continue
            had = bool(keys)
            if view["value"] is not None and _is_about(other, kind, view):
                keys.add(view["key"])
            else:
                keys.discard(view["key"])
            if bool(keys) != had:
                yield MemberChange(bool(keys), row["time_low"], row["time_high"])

    def newest_changes(self, broker: str, kind: str) -> Iterator[NewestChange]:
        """Yield each change record's entry of a kind that a broker had first and that was newest.

        It is told by the broker's view of that kind during the load (``watch-views``).
        """
        newest = 0
        for row in self.control:
            if row["f"] != "view-change" or row["broker"] != broker:
                continue
            view = msgspec.json.decode(row["value"])
            number = (view["value"] or "").partition(" ")[0]
            if view["kind"] == kind and number.isdecimal() and int(number) > newest:
                newest = int(number)
                yield NewestChange(newest, row["time_low"], row["time_high"])

    # ---- when it was

    @functools.cached_property
    def _nemesis(self) -> Sequence[tuple[str, Row]]:
        """The rows of the nemesis, each with its fault's label; a healing has "heal:kill-1"."""
        labelled = []
        for row in self.control:
            if row["process"] == NEMESIS and row["value"]:
                prefix = "heal:" if row["f"].startswith("heal:") else ""
                labelled.append((prefix + msgspec.json.decode(row["value"])["label"], row))
        return labelled

    @functools.cached_property
    def moments(self) -> Mapping[str, int]:
        """The time of each moment (ns).

        "kill-1" and "heal:kill-1" for the fault of that label, "heal" for the end of the load.
        """
        requests = [(label, row) for label, row in self._nemesis if row["type"] == "invoke"]
        phases = [
            (row["value"], row) for row in self.control if row["process"] == HARNESS and row["f"] == "phase"
        ]
        return {name: row["time"] for name, row in reversed([*requests, *phases])}

    @functools.cached_property
    def effects(self) -> Mapping[str, int]:
        """The time when each fault was seen to have taken effect (ns), by its label.

        Between its request and this time the fault may or may not have taken effect.
        """
        return {
            label: row["time"]
            for label, row in self._nemesis
            if row["type"] != "invoke" and not label.startswith("heal:")
        }

    def between(self, window: tuple[str, str]) -> tuple[float, float]:
        """Return the moments of a window (ns).

        NaN if it never began, infinity if it never ended.
        """
        begin, end = (self.moments.get(moment) for moment in window)
        return math.nan if begin is None else begin, math.inf if end is None else end

    def window_since_effect(self, window: tuple[str, str]) -> tuple[float, float]:
        """Return the moments of a window that begins with the observed effect of a fault (ns).

        If no effect of the first moment was seen, or it is no fault, the window is that of
        ``between``.
        """
        begin, end = self.between(window)
        return self.effects.get(window[0], begin), end

    @property
    def began_ns(self) -> int | None:
        """The time when the first fault was requested; None without faults."""
        return min(
            (row["time"] for label, row in self._nemesis if not label.startswith("heal:")), default=None
        )

    # ---- who had what

    def operations(self, f: str) -> Iterator[tuple[Row, Row | None]]:
        """Yield each operation of this kind (a send, an attempt to connect) with its completion."""
        open_: dict[int, Row] = {}
        for row in self.rows:
            if row["process"] < 0 or row["f"] != f:
                continue
            if row["type"] == "invoke":
                open_[row["process"]] = row
            elif row["process"] in open_:
                yield open_.pop(row["process"]), row
        for row in open_.values():
            yield row, None

    @functools.cached_property
    def taken(self) -> Mapping[int, Row]:
        """The row that acknowledged its send, for each message."""
        return {
            row["message"]: row
            for row in self.rows
            if row["process"] >= 0 and row["f"] == "send" and row["type"] == "ok"
        }

    @functools.cached_property
    def first_deliveries(self) -> Sequence[Row]:
        """The first delivery of each message, or of each of its copies for subscriptions."""
        first: dict[tuple[int, str | None], Row] = {}
        for row in self.rows:
            if row["f"] == "deliver" and row.get("message") is not None:
                first.setdefault((row["message"], row.get("subscription")), row)
        return [*first.values()]

    @functools.cached_property
    def remaining(self) -> Sequence[Row]:
        """The messages in the main stores of each broker, by the last reading of its stores."""
        reading: dict[str, list[Row]] = {}
        last: dict[str, list[Row]] = {}
        for row in self.rows:
            if row["f"] == "browse" and row["type"] == "ok":
                if row["queue"] is None:  # the end of a reading
                    last[row["broker"]] = reading.pop(row["broker"], [])
                else:
                    reading.setdefault(row["broker"], []).append(row)
        return [row for rows in last.values() for row in rows if row["value"] == "main"]

    def stored_at(self, broker: str | None, moment_ns: int) -> int:
        """Return how many messages accepted before a moment no consumer had acknowledged by then.

        They were accepted by that broker, or by any if None.
        """
        taken = {
            message
            for message, row in self.taken.items()
            if row["time"] < moment_ns and broker in (None, row["broker"])
        }
        settled = {
            row["message"]
            for row in self.rows
            if row["process"] >= 0 and row["f"] == "ack" and row["time"] < moment_ns
        }
        return len(taken - settled)

    def changes_between(self, begin_ns: float, end_ns: float) -> tuple[int, int]:
        """Return how many subscriptions clients asked to make, and to drop, in that time.

        Only subscriptions that outlive their connections count, and only drops by a frame. A
        subscribe makes a subscription if there was none when it was requested.
        """
        made = dropped = 0
        existing: set[tuple[str, str]] = set()
        for row in self.rows:
            if (
                row["type"] != "invoke"
                or row["f"] not in ("subscribe", "drop")
                or not _outlives_connections(row)
            ):
                continue
            name = row["queue"], row["subscription"]
            counts = begin_ns <= row["time"] <= end_ns
            if row["f"] == "drop":
                dropped += counts
                existing.discard(name)
            elif name not in existing:
                made += counts
                existing.add(name)
        return made, dropped

    def backlog_at(self, broker: str | None, moment_ns: int) -> int:
        """Return how many messages were owed to subscriptions that outlive their connections.

        Each message counts for each subscription. Only messages that a broker (any, if None) had
        accepted by then count. A message is not owed if it was acknowledged, or if its
        acknowledgement was requested.
        """
        since: dict[tuple[str, str], int] = {}
        selectors: dict[tuple[str, str], Selector | None] = {}
        settled: dict[tuple[str, str], set[int]] = defaultdict(set)
        sent: dict[int, Row] = {}
        taken: dict[int, Row] = {}
        for row in self.rows:
            if row["time"] >= moment_ns:
                break
            if row["f"] == "send":
                (sent if row["type"] == "invoke" else taken).setdefault(row["message"], row)
            elif _outlives_connections(row):
                name = row["queue"], row["subscription"]
                if row["f"] == "drop":
                    since.pop(name, None)
                elif row["f"] == "ack":
                    settled[name].add(row["message"])
                elif row["f"] == "subscribe" and row["type"] == "invoke":
                    selectors[name] = selector_of(row["value"])
                elif row["f"] == "subscribe" and row["type"] == "ok":
                    since.setdefault(name, row["index"])
        return sum(
            row["type"] == "ok"
            and broker in (None, row["broker"])
            and row["queue"] == topic
            and sent[message]["index"] > began
            and message not in settled[topic, name]
            and matches(selectors[topic, name] or {}, properties_of(sent[message]["value"]))
            for (topic, name), began in since.items()
            for message, row in taken.items()
        )

    def under_way_at(self, moment_ns: int) -> int:
        """Return how many transactions had begun, and neither ended nor lost their connection."""
        begun: dict[int, int] = {}
        ended: set[int] = set()
        heard: dict[int, int] = {}
        for row in self.rows:
            if row["process"] < 0:
                continue
            if row.get("connection") is not None:
                heard[row["connection"]] = row["time"]
            if row["time"] < moment_ns and row["f"] == "begin" and row["type"] == "ok":
                begun[row["transaction"]] = row["connection"]
            elif row["time"] < moment_ns and row["f"] in ("commit", "abort") and row["type"] != "invoke":
                ended.add(row["transaction"])
        return sum(heard[begun[number]] >= moment_ns for number in begun.keys() - ended)

    def unknown_commits(self, label: str) -> int | None:
        """Return how many commits that were under way when a fault struck got no answer later.

        The fault strikes at some time between its request, ``label``, and its observed effect. None
        if it was not requested.
        """
        requested = self.moments.get(label)
        if requested is None:
            return None
        struck = self.effects.get(label, requested)
        invoked: dict[int, int] = {}
        answered: dict[int, int] = {}
        for row in self.rows:
            if row["f"] == "commit" and row["process"] >= 0:
                times = invoked if row["type"] == "invoke" else answered
                if row["type"] in ("invoke", "ok", "fail"):
                    times[row["transaction"]] = row["time"]
        return sum(time < struck and number not in answered for number, time in invoked.items())

    def successions(self) -> list[tuple[str, str]]:
        """Return, in order, which broker took over whose data between first fault and healing.

        ("a1", "a2") if a2 continued as the node that had begun with a1.

        They are read from ``takeover`` rows, and from which broker was live as which node. A broker
        that is live with a node ID with which another was live last has taken over, and so has a
        master that returns. If the taker continues under its own node ID (brokers that share a
        database), a victim that starts again begins without data: that is no takeover.
        """
        first: dict[str, str] = {}
        last: dict[str, str] = {}
        living_as: dict[str, str] = {}
        absorbed: set[str] = set()
        takeovers: list[tuple[str, str]] = []
        began, heal = self.began_ns, self.moments.get(HEAL)
        for row in self.control:
            if row["process"] != MONITOR or row.get("node_id") is None:
                continue
            if row["f"] not in ("role", "takeover") or (row["f"] == "role" and row["role"] != "live"):
                continue
            if heal is not None and row["time"] >= heal:
                break
            node, broker = row["node_id"], row["broker"]
            first.setdefault(node, broker)
            before = last.get(node, broker)
            last[node] = broker
            if row["f"] == "role":
                living_as[broker] = node
                if node in absorbed:
                    absorbed.remove(node)
                    continue
            elif living_as.get(broker, node) != node:
                absorbed.add(node)
            if before != broker and began is not None and row["time"] >= began:
                takeovers.append((first[node], broker))
        return takeovers
