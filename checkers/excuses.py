"""The faults that explain a silence or a wrong clock: only those that can have caused it.

A fault explains something if all four hold:

    effect  it was observed to take effect, or it was not observed at all. A fault that found no
            target, or whose probe shows no effect, explains nothing; of several places only those
            count that show the effect
    place   it lies on the way of the operation: a broker that the operation goes to, another of
            its pair, or a link of theirs. Other brokers matter for their votes alone, while the
            pair changes its roles; unless pairs need each other (``Promises.independent_pairs``)
    kind    faults of its kind can have that effect (``KINDS``)
    time    it was in force, from when it was asked for until its healing was observed, or had ended
            less than the recovery bound ago

Where the history does not name a place (no roles, no brokers in its rows, no nodes in the fault's),
the fault may lie anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from checkers.schema import json_object
from checkers.verdict import CheckOptions

Row = Mapping[str, Any]

HEAL: Final = "heal:"
GONE: Final = "gone"
"""The word of a probe for a process that has ended."""

Reach = Literal["none", "wall clock", "pair", "votes", "anywhere"]
"""The brokers that a kind of fault can silence.

``none``: no broker. ``wall clock``: brokers that measure time with the wall clock, and their pairs.
``pair``: the brokers that it hits, and their pairs. ``votes``: also pairs that need the votes of
those brokers. ``anywhere``: any broker, since its effect is not known.
"""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The effects that faults of a kind can have, and the reason (``why``).

    ``name`` is the kind, or a prefix of kinds where it ends in "-". ``effects`` are words by which
    a probe's answer about a place shows the effect ("" is part of every answer). ``clocks``: the
    clocks by which messages expire and are due can be wrong under such a fault. ``for_good``: it
    lasts to the end of the test, after the load.
    """

    name: str
    silence: Reach
    effects: tuple[str, ...]
    why: str
    clocks: bool = False
    for_good: bool = False

    def matches(self, kind: str) -> bool:
        """Return whether ``kind``, the kind of a fault, is this one."""
        return kind.startswith(self.name) if self.name.endswith("-") else kind == self.name


KINDS: Final = (
    FaultKind("clock-rate", "votes", ("rate",), "leases, heart-beats and votes take shorter or longer",
              clocks=True),
    FaultKind("clock-", "wall clock", ("skewed", "strobing"),
              "a wall clock is wrong, and our brokers measure time with the monotonic clock", clocks=True),
    FaultKind("disk-slow", "pair", ("slow", "stalled"), "a broker and its pair wait for the disk"),
    FaultKind("disk-corrupt", "votes", ("",), "a broker is down until its disk is found damaged"),
    FaultKind("disk-", "votes", ("stalled", "full", "failing"),
              "a broker waits for its disk or ends, and stores no vote"),
    FaultKind("kill", "votes", (GONE,), "a broker is down"),
    FaultKind("destroy", "votes", (GONE,), "a broker is down, and copies all data when it is back"),
    FaultKind("power-loss", "votes", (GONE,), "a broker is down"),
    FaultKind("stop", "votes", (GONE,), "a broker is down"),
    FaultKind("leave", "votes", (GONE,), "a broker has left", for_good=True),
    FaultKind("switch-over", "votes", (GONE,), "a broker is down"),
    FaultKind("late-start", "votes", (GONE,), "a broker is down"),
    FaultKind("restore-record", "votes", (GONE,), "all brokers are down"),
    FaultKind("copy-data", "pair", (GONE,), "a broker has the data of another one"),
    FaultKind("reconfigure", "pair", (GONE,), "a pair of two slaves waits for a master"),
    FaultKind("pause", "votes", ("paused",), "a broker stands still"),
    FaultKind("takeover", "pair", ("taken over by",), "a broker is replaced"),
    FaultKind("quiesce", "pair", ("QUIESCING", "QUIESCE_COMPLETE"), "a broker takes in no clients"),
    FaultKind("administer", "none", ("done",), "brokers serve while they do an administrator's commands"),
    FaultKind("partition", "votes", ("lost",), "brokers or clients do not hear each other"),
    FaultKind("stall", "votes", ("lost",), "brokers or clients do not hear each other"),
    FaultKind("slow", "votes", ("slow", "lossy"), "brokers or clients hear each other late"),
    FaultKind("datagram-", "none", ("lossy", "lost", "doubled", "held back"),
              "brokers need datagrams only to find each other"),
    FaultKind("nfs-", "pair", ("silent",), "brokers wait for the file server of their store"),
    FaultKind("database-", "pair", ("stalled", "down", "severed", "silent"), "brokers wait for the database"),
)  # fmt: skip
"""The kinds of faults, of which the first that matches counts.

A fault of an administrator's hook, or of another harness, can cause anything (``_ANY``).
"""

_ANY: Final = FaultKind("", "anywhere", ("",), "nobody knows what it does", clocks=True)

_QUIET: Final = frozenset({"running", "open", "sound", "true", "serving", "answers"})
"""The answers of a probe about a place where nothing is broken."""
_NO_ANSWER: Final = "no answer"
_KEPT: Final = "kept down by"
"""The words in a heal row about a broker that another fault keeps from starting."""


def kind_of(kind: str) -> FaultKind:
    """Return the entry of ``KINDS`` for a kind; ``_ANY`` where there is none."""
    return next((entry for entry in KINDS if entry.matches(kind)), _ANY)


def ends_processes(kind: str) -> bool:
    """Return whether a fault of a kind can end a broker's process; true for unknown kinds.

    A process that is paused, or waits for its disk, goes on later, whatever a probe took it for.
    """
    fault_kind = kind_of(kind.removeprefix(HEAL))
    return fault_kind is _ANY or GONE in fault_kind.effects


@dataclass(slots=True)
class FaultRecord:
    """The rows of one fault.

    The fault was ``asked`` for and ``begun``, its ``healing`` was asked for, and it was ``healed``.
    """

    asked: Row | None = None
    begun: Row | None = None
    healing: Row | None = None
    healed: Row | None = None

    @property
    def kind(self) -> str:
        """The kind of the fault, from its first row."""
        first = self.asked or self.begun
        assert first is not None, "a fault without a row"
        return str(first["f"])

    @property
    def label(self) -> str:
        """The name of this fault in its test."""
        return str(_value(self.asked or self.begun).get("label", ""))

    @property
    def bit(self) -> bool:
        """True if the fault was observed to take effect on everything that it was to hit."""
        return _value(self.begun).get("bit") is True

    @property
    def found_target(self) -> bool:
        """False if the nemesis recorded that there was nothing for the fault to hit."""
        value = _value(self.begun)
        named = isinstance(value.get("nodes"), list) or isinstance(value.get("links"), list)
        return value.get("bit") is not False or not named or bool(_places(self) or _probe_answers(self.begun))


def records(rows: Iterable[Row]) -> list[FaultRecord]:
    """Return the faults of one history from the rows of the nemesis, in order.

    The rows of one fault have one label. A label may be used again, also where nothing was healed.
    """
    faults: list[FaultRecord] = []
    open_: dict[str, list[FaultRecord]] = defaultdict(list)
    for row in rows:
        label = str(_value(row).get("label", ""))
        open_records = open_[label]
        if row["f"].startswith(HEAL):
            for record in open_records:
                if row["type"] == "invoke":
                    record.healing = record.healing or row
                else:
                    record.healed = row
            if row["type"] != "invoke":
                open_[label] = []
            continue
        if row["type"] == "invoke" or not open_records or open_records[-1].begun is not None:
            open_records.append(FaultRecord())
            faults.append(open_records[-1])
        if row["type"] == "invoke":
            open_records[-1].asked = row
        else:
            open_records[-1].begun = row
    return faults


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a fault: its places, its begin and its end.

    ``begin`` and ``end`` are moments (ns), ``begin_row`` and ``end_row`` the indexes of their rows.
    The ends are None where the effect lasted to the end of the history. ``places`` are the nodes
    and the links ("a1->b1") that the fault concerned; None: the history does not say which.
    """

    kind: str
    label: str
    places: frozenset[str] | None
    begin: int
    end: int | None
    begin_row: int
    end_row: int | None

    @property
    def fault_kind(self) -> FaultKind:
        """The effects that faults of this kind can have."""
        return kind_of(self.kind)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Both ends of each link that the fault concerned."""
        ends = (place.partition("->") for place in self.places or ())
        return [(source, target) for source, arrow, target in ends if arrow]

    @property
    def nodes(self) -> list[str]:
        """The nodes that the fault concerned, without the ends of links."""
        return [place for place in self.places or () if "->" not in place]


def effects(faults: Iterable[FaultRecord]) -> list[Effect]:
    """Return the effects that faults had, or may have had unseen.

    A fault is in force to the end at those of its places that were not seen to be healed.
    """
    return [effect for record in faults for effect in _effects(record)]


def _effects(record: FaultRecord) -> Iterable[Effect]:
    places = _hit(record)
    first = record.asked or record.begun
    assert first is not None, "a fault without a row"
    unhealed = _unhealed(record, places)
    if record.healed is not None and (unhealed is not None and (places is None or unhealed < places)):
        over = None if places is None else places - unhealed
        yield Effect(
            record.kind, record.label, over, first["time"], record.healed["time"], first["index"],
            record.healed["index"],
        )  # fmt: skip
    if unhealed is None or unhealed:
        yield Effect(record.kind, record.label, unhealed, first["time"], None, first["index"], None)


def _hit(record: FaultRecord) -> frozenset[str] | None:
    """Return the places where a fault took effect, or may have; None: the history names none."""
    places = _places(record)
    begun = _value(record.begun)
    bit, answers = begun.get("bit"), _probe_answers(record.begun)
    if record.begun is not None and bit is False:
        words = (*kind_of(record.kind).effects, _NO_ANSWER)
        if not answers and record.begun.get("error") is not None:
            return places  # the fault failed half-way, and no probe looked
        return frozenset(place for place, answer in answers.items() if any(word in answer for word in words))
    hit = frozenset(place for place in places | frozenset(answers) if answers.get(place) not in _QUIET)
    return hit or places or None


def _unhealed(record: FaultRecord, places: frozenset[str] | None) -> frozenset[str] | None:
    """Return the places where a fault was not seen to be healed; None: everywhere."""
    if record.healed is None:
        return places
    value = _value(record.healed)
    answers = _probe_answers(record.healed)
    if value.get("bit") is True or (value.get("bit") is None and not answers):
        return frozenset()
    if places is None:
        return None
    words = kind_of(record.kind).effects
    over = {
        place
        for place, answer in answers.items()
        if answer in _QUIET or _KEPT in answer or not any(word in answer for word in words)
    }
    return places - over


def _value(row: Row | None) -> Mapping[str, Any]:
    return {} if row is None else json_object(row.get("value")) or {}


def _places(record: FaultRecord) -> frozenset[str]:
    """Return the nodes and links that a fault was to hit, as far as its rows name them."""
    names_of_places: set[str] = set()
    for row in (record.asked, record.begun):
        for name in ("nodes", "links"):
            listed = _value(row).get(name)
            names_of_places.update(str(place) for place in listed) if isinstance(listed, list) else None
    return frozenset(names_of_places)


def _probe_answers(row: Row | None) -> dict[str, str]:
    """Return the answers of a probe by node or link: "a1/disk", the disk of a1, counts as a1."""
    observed = _value(row).get("observed")
    if not isinstance(observed, dict):
        return {}
    return {str(place).partition("/")[0]: str(answer) for place, answer in observed.items()}


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of brokers: all brokers that ever had one node ID, or took it over, are a pair.

    ``together`` has all brokers of the pair of each broker whose node ID is known.
    """

    together: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Pairs:
        """Return the pairs that the monitor's rows show (``role`` and ``takeover``)."""
        groups: dict[str, set[str]] = {}
        brokers: dict[str, set[str]] = {}
        for row in rows:
            broker, node_id = row.get("broker"), row.get("node_id")
            if broker is None or node_id is None:
                continue
            own_pair, other = brokers.get(broker, {broker}), groups.get(node_id, set())
            pair = own_pair | other
            for name in pair:
                brokers[name] = pair
            for node, members in list(groups.items()):
                if members & pair:
                    groups[node] = pair
            groups[node_id] = pair
        return cls({broker: frozenset(members) for broker, members in brokers.items()})

    def around(self, brokers: Collection[str]) -> frozenset[str] | None:
        """Return these brokers with their pairs; None if there are none, or a pair is unknown."""
        if not brokers or any(broker not in self.together for broker in brokers):
            return None
        return frozenset().union(*(self.together[broker] for broker in brokers))

    def may_touch(self, effect: Effect, brokers: Collection[str]) -> bool:
        """Return whether an effect concerns, or may concern, these brokers or their pairs."""
        own_pair = self.around(brokers)
        if own_pair is None or effect.places is None:
            return True
        if any(node in own_pair or node not in self.together for node in effect.nodes):
            return True
        return any(
            source in own_pair or target in own_pair or not {source, target} & self.together.keys()
            for source, target in effect.links
        )


class Window(Protocol):
    """A span of time in which no operation succeeded."""

    @property
    def begin(self) -> int:
        """The moment of the first unanswered question (ns)."""
        ...

    @property
    def end(self) -> int:
        """The moment of the next success, or of the last failure (ns)."""
        ...

    @property
    def brokers(self) -> frozenset[str]:
        """The brokers that the operation goes to; empty where no row names one."""
        ...


@dataclass(frozen=True, slots=True)
class Excuses:
    """The faults of one history, and the windows that they explain.

    ``changes`` has the role changes of each broker, as (earliest, latest) moments in ns.
    """

    effects: Sequence[Effect]
    pairs: Pairs
    changes: Mapping[str, Sequence[tuple[int, int]]]
    options: CheckOptions

    @classmethod
    def of(
        cls, faults: Iterable[FaultRecord], roles: Sequence[Row], takeovers: Iterable[Row],
        options: CheckOptions,
    ) -> Excuses:  # fmt: skip
        """Return the excuses that faults give; ``roles`` are the monitor's rows in order."""
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        latest: dict[str, str] = {}
        for row in roles:
            broker = row["broker"]
            if latest.get(broker, row["role"]) != row["role"]:
                changes[broker].append((row["time_low"], row["time_high"]))
            latest[broker] = row["role"]
        return cls(effects(faults), Pairs.of([*roles, *takeovers]), dict(changes), options)

    def explain(self, window: Window) -> list[Effect]:
        """Return the effects that can have caused a silence."""
        return [
            effect
            for effect in self.effects
            if effect.begin < window.end and self._over(effect, window.end) > window.begin
            if self._can_cause(effect, window)
        ]

    def may_cut(self, begin: int, end: int, brokers: Collection[str]) -> bool:
        """Return whether one of these brokers may not have heard another between two moments (ns).

        The reason is an effect that can silence them, or a link of theirs. It was in force then, or
        had ended less than the recovery bound before.
        """
        return any(
            effect.begin <= end and self._over(effect, begin) >= begin and self._can_silence(effect, brokers)
            for effect in self.effects
        )

    def excuses(self, window: Window) -> bool:
        """Return whether the effects explain a window.

        They do if no part of the window outside all effects, and outside the recovery bound after
        each, is longer than the bound for unavailability.
        """
        uncovered, at = 0, window.begin
        for effect in sorted(self.explain(window), key=lambda one: one.begin):
            uncovered = max(uncovered, effect.begin - at)
            at = max(at, self._over(effect, window.end))
        return max(uncovered, window.end - at) <= int(self.options.unavailable_bound_s * 1e9)

    def _over(self, effect: Effect, end: int) -> int:
        """Return the moment until which an effect explains anything (ns)."""
        return end if effect.end is None else effect.end + int(self.options.recovery_bound_s * 1e9)

    def _can_cause(self, effect: Effect, window: Window) -> bool:
        if self._can_silence(effect, window.brokers):
            return True
        return effect.fault_kind.silence == "votes" and self._votes_may_be_needed(effect, window)

    def _can_silence(self, effect: Effect, brokers: Collection[str]) -> bool:
        silence, promises = effect.fault_kind.silence, self.options.broker
        if silence == "wall clock":
            silence = "none" if promises.monotonic_clocks else "pair"
        if silence in ("none", "anywhere"):
            return silence == "anywhere"
        return not promises.independent_pairs or self.pairs.may_touch(effect, brokers)

    def _votes_may_be_needed(self, effect: Effect, window: Window) -> bool:
        """Return whether the pair changed its roles around the window, under the effect."""
        begin = max(effect.begin, window.begin - int(self.options.recovery_bound_s * 1e9))
        end = min(self._over(effect, window.end), window.end)
        return any(
            low <= end and high >= begin
            for broker in self.pairs.around(window.brokers) or ()
            for low, high in self.changes.get(broker, ())
        )
