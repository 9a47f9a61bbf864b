"""The state of the cluster as a story tells it: roles, faults, and changes between two moments.

Why only from the rows of monitor and nemesis: what a story says of a broker must be what an
observer outside it saw. A change of role is known within an interval; it is dated to the interval's
end, from which on it is certain.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkers.excuses import kind_of, records
from checkers.schema import MONITOR, NEMESIS
from checkers.words import seconds
from harness.report.narrative.excerpt import Row

HEAL: Final = "heal:"
ZONE: Final = "zone"
"""The begin of the names of client zones."""
SILENT: Final = "unreachable"
CHANGES_MAX: Final = 6
"""The maximum number of changes in one sentence."""
_PLACES: Final = 6
_ORDINALS: Final = {2: "2nd", 3: "3rd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A fault as it happened.

    ``name`` is its kind with its shape, ``observations`` what probes saw, by place. ``begin`` is
    when the fault was requested, ``end`` when its healing was; ``healed`` is the index of the row
    of that healing. Both are None if it was never healed. ``bit`` says whether it was seen to take
    effect; ``ends`` are the nodes and zones that it concerned. A fault that found no target ended
    where it began.
    """

    name: str
    target: str
    begin: int
    end: int | None
    bit: bool
    observations: Mapping[str, str] | str
    ends: frozenset[str]
    rows: tuple[Row, ...]
    healed: int | None
    found_target: bool = True

    @property
    def words(self) -> str:
        """The fault in words: ``partition isolate-live of a1``.

        The sides and directions of a partition are in brackets.
        """
        whom = self.target
        if "|" in whom or whom.startswith("to "):
            return f"{self.name} ({whom})"
        return f"{self.name} of {whom}" if whom else self.name

    @property
    def observed(self) -> str:
        """The observations of probes, equal ones together: ``a1, zone1 <-> a2, b1 lost``.

        Links between two sides are named by the sides. Of many other places only the first are
        named.
        """
        if isinstance(self.observations, str):
            return self.observations
        alike: dict[str, list[str]] = {}
        for where, observation in self.observations.items():
            alike.setdefault(str(observation), []).append(str(where))
        return "; ".join(
            f"{_sides(places) or _listed_places(places)} {observation}"
            for observation, places in alike.items()
        )

    def in_force(self, at: int) -> bool:
        """Return whether the fault had begun and was not healed yet."""
        return self.begin <= at and (self.end is None or at < self.end)

    def around(self, index: int) -> bool:
        """Return whether the fault had begun and was not healed when the row of that index came."""
        return self.rows[0]["index"] <= index and (self.healed is None or index < self.healed)

    def touches(self, low: int, high: int) -> bool:
        """Return whether the fault was in force at some moment of a span."""
        return self.begin <= high and (self.end is None or self.end >= low)


class Standing:
    """The rows that were not recorded by clients, and answers from them about the cluster's state.

    ``began`` is when the load began, ``is_drained`` whether another harness says that everything
    was received in the end. Moments in words are those of the history, as in its rows.
    """

    def __init__(self, control: Iterable[Row], began: int) -> None:
        self.began = began
        self._control = sorted(control, key=lambda row: row["index"])
        self.loaded = next(
            (row["index"] for row in self._control if row["f"] == "phase" and row.get("value") == "load"), -1
        )
        self.is_drained = any(row["f"] == "phase" and row.get("value") == "drained" for row in self._control)
        self.roles: dict[str, list[Row]] = {}
        self.protection: dict[str, list[Row]] = {}
        for row in self._control:
            if row["process"] == MONITOR and "broker" in row:
                rows_by_broker = {"role": self.roles, "replication": self.protection}.get(row["f"])
                if rows_by_broker is not None:
                    rows_by_broker.setdefault(row["broker"], []).append(row)

    def seconds(self, at: int | None) -> str:
        """Return a moment in words for people."""
        return seconds(at)

    # ---------------------------------------------------------------------------------------- roles

    def role_row(self, broker: str, at: int) -> Row | None:
        """Return the row of the latest change of a broker's role that is certain at a moment."""
        certain = [row for row in self.roles.get(broker, ()) if moment(row) <= at]
        return certain[-1] if certain else None

    def role_before(self, broker: str, index: int) -> str | None:
        """Return the role that a broker had when the row of that index was recorded.

        A picture of the rows shows this role.
        """
        earlier = [row for row in self.roles.get(broker, ()) if row["index"] < index]
        return str(earlier[-1].get("role")) if earlier else None

    def peers(self, brokers: Iterable[str]) -> list[str]:
        """Return the given brokers and all that ever shared a node ID with one of them."""
        named = set(brokers)
        ids = {row.get("node_id") for name in named for row in self.roles.get(name, ())} - {None}
        shared = {name for name, rows in self.roles.items() if any(row.get("node_id") in ids for row in rows)}
        return sorted(named | shared)

    def replaced(self, broker: str, at: int) -> Row | None:
        """Return the row from which on another broker was certainly live in a broker's place.

        The other broker is live under the same node ID and became so after the broker itself was
        live.
        """
        lives = [row for row in self.roles.get(broker, ()) if row.get("role") == "live" and moment(row) <= at]
        if not lives:
            return None
        later = [
            row
            for name, rows in self.roles.items()
            if name != broker
            for row in rows
            if row.get("role") == "live"
            and row.get("node_id") == lives[-1].get("node_id")
            and row["index"] > lives[-1]["index"]
            and moment(row) <= at
        ]
        return min(later, key=moment, default=None)

    def as_seen(self, broker: str | None, at: int | None) -> str:
        """Return a broker with its role: ``a1 (live since 2.050 s, replaced by a2 at 3.100 s)``.

        If its role was just changing, both roles are named.
        """
        if broker is None or at is None:
            return "a broker"
        words = self._role_words(broker, at)
        return f"{broker} ({', '.join(words)})" if words else broker

    def role_since(self, broker: str, at: int) -> str:
        """Return a broker with the begin of its role alone: ``a1 since 2.050 s``."""
        row = self.role_row(broker, at)
        return broker if row is None else f"{broker} {self._since(row)}"

    def _role_words(self, broker: str, at: int) -> list[str]:
        row = self.role_row(broker, at)
        if row is None:
            return []
        rows = self.roles[broker]
        following = next((change for change in rows if moment(change) > at), None)
        words = [self._one_role(row, following, at)]
        life = 1 + sum(change.get("role") == "stopped" and moment(change) < moment(row) for change in rows)
        if life > 1 and row["role"] != "stopped":
            words.append(f"in its {_ORDINALS.get(life, f'{life}th')} life")
        successor = self.replaced(broker, at)
        if successor is not None and row["role"] != "stopped":
            words.append(f"replaced by {successor['broker']} at {self.seconds(moment(successor))}")
        return words

    def _one_role(self, row: Row, following: Row | None, at: int) -> str:
        """Return a role in words, or that it was changing, or that the broker was not seen."""
        role, silent = row["role"], row["role"] == SILENT
        if following is None or following.get("time_low", at + 1) > at:
            return f"unseen {self._since(row)}" if silent else f"{role} {self._since(row)}"
        low, high = self.seconds(following["time_low"]), self.seconds(moment(following))
        if silent:
            return f"unseen from {low} until {high}, then {following['role']}"
        if following["role"] == SILENT:
            return f"{role} {self._since(row)}, unseen from {low} on"
        return f"turning from {role} to {following['role']} between {low} and {high}"

    def _since(self, row: Row) -> str:
        before = moment(row) <= self.began or row["index"] < self.loaded
        return "since before the load" if before else f"since {self.seconds(moment(row))}"

    def unprotected(self, broker: str | None, at: int) -> int | None:
        """Return since when a live had no up-to-date backup; None if it had one at that moment."""
        certain = [row for row in self.protection.get(broker or "", ()) if moment(row) <= at]
        return moment(certain[-1]) if certain and certain[-1].get("value") == "unreplicated" else None

    # --------------------------------------------------------------------------------------- faults

    @functools.cached_property
    def breaks(self) -> list[Break]:
        """The faults, in order of their begin."""
        faults = breaks_of(row for row in self._control if row["process"] == NEMESIS)
        healing = [row for row in self._control if row["f"] == "phase" and row.get("value") == "heal"]
        return [_ended(fault, healing) for fault in faults]

    def in_force(self, at: int | None) -> list[Break]:
        """Return the faults that had been requested and not yet healed at a moment."""
        return [] if at is None else [fault for fault in self.breaks if fault.in_force(at)]

    def concerns(self, fault: Break, brokers: Iterable[str]) -> bool:
        """Return whether a fault may concern these brokers.

        A fault of something that all share, a store or a database, always may.
        """
        uninvolved = set(self.roles) - set(brokers)
        elsewhere = {end for end in fault.ends if end in uninvolved or end.startswith(ZONE)}
        return not fault.ends or fault.ends > elsewhere

    def force(self, at: int | None) -> str:
        """Return the faults in force as the end of a sentence; nothing if there were none.

        ``, while partition isolate-live of a1 (3.370 s to 9.370 s) was in force``
        """
        faults = self.in_force(at)
        if not faults:
            return ""
        named = " and ".join(f"{fault.words} {self._span(fault)}" for fault in faults[:3])
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        return f", while {named}{more} {'was' if len(faults) == 1 else 'were'} in force"

    def _span(self, fault: Break) -> str:
        end = "the end" if fault.end is None else self.seconds(fault.end)
        return f"({self.seconds(fault.begin)} to {end}{'' if fault.bit else ', no effect seen'})"

    # -------------------------------------------------------------------------------------- changes

    def changes(self, brokers: Iterable[str], low: int, high: int) -> list[tuple[int, str]]:
        """Return (time, words) of each change strictly after ``low`` and up to ``high``.

        These are changes of role and restarts of the given brokers, and faults that may concern
        them.
        """
        named = set(brokers)
        changes: list[tuple[int, str]] = []
        for name in sorted(named):
            changes += [
                (moment(row), f"{name} {self._changed(row)}")
                for row in self.roles.get(name, ())
                if low < moment(row) <= high
            ]
            changes += self._restarts(name, low, high)
        for fault in self.breaks:
            if not self.concerns(fault, named):
                continue
            if low < fault.begin <= high:
                changes.append((fault.begin, f"{fault.words} began"))
            if fault.end is not None and low < fault.end <= high:
                changes.append((fault.end, f"{fault.words} was healed"))
        return sorted(changes)

    def _changed(self, row: Row) -> str:
        if self.passed_unseen(row):
            return "had another role for a moment"
        return "fell silent" if row["role"] == SILENT else f"was seen {row['role']}"

    def passed_unseen(self, row: Row) -> bool:
        """Return whether a row says that a role was left and taken again between two polls.

        The broker was not silent then: the next row comes from the same answer.
        """
        following = next(
            (
                change
                for change in self.roles.get(row.get("broker", ""), ())
                if change["index"] > row["index"]
            ),
            None,
        )
        same = ("time_low", "time_high")
        return (
            row.get("role") == SILENT
            and following is not None
            and all(following.get(name) == row.get(name) for name in same)
        )

    def _restarts(self, broker: str, low: int, high: int) -> list[tuple[int, str]]:
        times = [
            row["time"]
            for row in self._control
            if row["f"] == "restart" and row.get("broker") == broker and low < row["time"] <= high
        ]
        if not times:
            return []
        repetitions = "" if len(times) == 1 else f" {len(times)} times until {self.seconds(times[-1])}, first"
        return [(times[0], f"{broker}, which had ended by itself, was started again{repetitions}")]

    def meanwhile(
        self, brokers: Iterable[str], low: int, high: int, opening: str, most: int = CHANGES_MAX
    ) -> str:
        """Return a sentence about the changes between two moments; nothing if there were none.

        Of more than ``most`` changes only the first and last are named.
        """
        clauses = [f"{words} at {self.seconds(at)}" for at, words in self.changes(brokers, low, high)]
        if len(clauses) > most:
            half = most // 2
            hidden = len(clauses) - 2 * half
            clauses[half:-half] = [f"{hidden} change{'s' if hidden > 1 else ''} more"]
        return f"{opening} {listed(clauses)}." if clauses else ""


def moment(row: Row) -> int:
    """Return the time from which on a row's change is certain."""
    return int(row.get("time_high", row["time"]))


def listed(words: Sequence[str]) -> str:
    """Return words as ``a, b and c``; nothing for no words."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _value(row: Row) -> dict[str, Any]:
    try:
        value = json.loads(row.get("value") or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def breaks_of(rows: Iterable[Row]) -> list[Break]:
    """Return the faults in the nemesis' rows, in order of their begin."""
    rows_by_fault: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_fault.setdefault(_value(row).get("label") or row["f"].removeprefix(HEAL), []).append(row)
    return [break_of(fault_rows) for fault_rows in rows_by_fault.values()]


def break_of(rows: Sequence[Row]) -> Break:
    """Return the fault that rows describe: those of its begin, of its end, or both."""
    begun = [row for row in rows if not row["f"].startswith(HEAL)]
    healed = [row for row in rows if row["f"].startswith(HEAL)]
    value: dict[str, Any] = {}
    for row in begun or healed:
        value |= _value(row)
    target = value.get("target") or value.get("nodes") or ""
    kind = rows[0]["f"].removeprefix(HEAL)
    nodes = [str(node) for node in value.get("nodes") or ()]
    links = [end for link in value.get("links") or () for end in str(link).split("->")]
    ends = [row for row in healed if row["type"] == "invoke"] or healed
    observations = value.get("observed")
    found_target = all(record.found_target for record in records(begun))
    ended = ends[0] if ends else None if found_target else rows[0]
    return Break(
        name=" ".join(str(part) for part in (kind, value.get("shape")) if part),
        target=", ".join(map(str, target)) if isinstance(target, list) else str(target),
        begin=rows[0]["time"],
        end=None if ended is None else ended["time"],
        bit=bool(value.get("bit")),
        observations=observations if isinstance(observations, dict) else str(observations or ""),
        ends=frozenset([*nodes, *links]),
        rows=tuple(rows),
        healed=None if ended is None else ended["index"],
        found_target=found_target,
    )


def _listed_places(places: list[str]) -> str:
    """Return the first of the places, and how many more there are."""
    more = len(places) - _PLACES
    return ", ".join(places[:_PLACES]) + (f" and {more} more" if more > 0 else "")


def _sides(places: Sequence[str]) -> str:
    """Return the two sides that links separate, ``a1 <-> a2, b1``; "" if they separate none.

    Links of one direction are named ``a1 -> a2, b1``. There are no links between client zones.
    """
    links = {(start, end) for start, arrow, end in (place.partition("->") for place in places) if arrow}
    if len(links) != len(places) or len(links) < 2:
        return ""
    back = {(end, start) for start, end in links}
    ends = list(dict.fromkeys(end for place in places for end in place.split("->")))
    if links == back:
        arrow, left_side, right_side = "<->", [ends[0]], list[str]()
        for _ in ends:  # each time the sides grow by the ends that are linked to the other side
            right_side = [end for end in ends if any((other, end) in links for other in left_side)]
            left_side = [
                ends[0],
                *(end for end in ends[1:] if any((other, end) in links for other in right_side)),
            ]
    else:
        arrow = "->"
        left_side, right_side = (
            [end for end in ends if any(link[at] == end for link in links)] for at in (0, 1)
        )
    crossing = {
        (start, end)
        for start in left_side
        for end in right_side
        if not (start.startswith(ZONE) and end.startswith(ZONE))
    }
    separated = crossing | {(end, start) for start, end in crossing} if arrow == "<->" else crossing
    return f"{', '.join(left_side)} {arrow} {', '.join(right_side)}" if separated == links else ""


def observed(row: Row) -> dict[str, Any]:
    """Return what probes saw according to a row of the nemesis, by place."""
    observations = _value(row).get("observed")
    return observations if isinstance(observations, dict) else {}


def _ended(fault: Break, healing: Sequence[Row]) -> Break:
    """Return a fault with an end: one without a healing of its own ended with the load.

    All faults are healed when the load ends, except for those that last for good.
    """
    later = [row for row in healing if row["index"] > fault.rows[0]["index"]]
    if fault.end is not None or not later or kind_of(fault.rows[0]["f"]).for_good:
        return fault
    return replace(fault, end=later[0]["time"], healed=later[0]["index"])
