"""Which faults explain a silence or a wrong clock: only those that can have caused it.

A fault explains something if all four hold:

    effect  it was observed to take effect, or nobody observed it. One that found no target, or
            whose probe shows no effect, explains nothing; of several places only those count that
            show the effect
    place   it lies on the way of the operation: a broker that the operation goes to, another of
            its pair, or a link of theirs. Other brokers matter for their votes alone, while the
            pair changes its roles; unless pairs need each other (``Promises.independent_pairs``)
    kind    faults of its kind can have that effect (``KINDS``)
    time    it was in force, from when it was asked for until its healing was observed, or had ended
            less than the recovery bound ago

Where the history does not tell a place (no roles, no brokers in its rows, no nodes in the fault's),
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
"""What a probe says of a process that is no more."""

Reach = Literal["none", "wall clock", "pair", "votes", "anywhere"]
"""What a kind of fault can silence.

``none``: nothing. ``wall clock``: brokers that measure time with the wall clock, and their pairs.
``pair``: the brokers that it hits, and their pairs. ``votes``: also pairs that need the votes of
those brokers. ``anywhere``: nobody knows.
"""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What faults of a kind can cause, and why.

    ``name`` is the kind, or how it begins where it ends in "-". ``effects`` are words in what a
    probe says of a place that shows the effect ("" is in all that it says). ``clocks``: the clocks
    by which messages expire and are due can be wrong under it.
    """

    name: str
    silence: Reach
    effects: tuple[str, ...]
    why: str
    clocks: bool = False

    def matches(self, kind: str) -> bool:
        """Whether a fault is of this kind."""
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
    FaultKind("switch-over", "votes", (GONE,), "a broker is down"),
    FaultKind("late-start", "votes", (GONE,), "a broker is down"),
    FaultKind("reconfigure", "pair", (GONE,), "a pair of two slaves waits for a master"),
    FaultKind("pause", "votes", ("paused",), "a broker stands still"),
    FaultKind("takeover", "pair", ("taken over by",), "a broker is replaced"),
    FaultKind("quiesce", "pair", ("QUIESCING", "QUIESCE_COMPLETE"), "a broker takes in no clients"),
    FaultKind("partition", "votes", ("lost",), "brokers or clients do not hear each other"),
    FaultKind("stall", "votes", ("lost",), "brokers or clients do not hear each other"),
    FaultKind("slow", "votes", ("slow", "lossy"), "brokers or clients hear each other late"),
    FaultKind("nfs-", "pair", ("silent",), "brokers wait for the file server of their store"),
    FaultKind("database-", "pair", ("stalled", "down", "severed", "silent"), "brokers wait for the database"),
)  # fmt: skip
"""What faults can cause, by kind: the first that matches.

One that an administrator's hook or somebody else's harness brought about can cause anything.
"""

_ANY: Final = FaultKind("", "anywhere", ("",), "nobody knows what it does", clocks=True)

_QUIET: Final = frozenset({"running", "open", "sound", "true", "serving", "answers"})
"""What a probe says of a place where nothing is broken."""
_NO_ANSWER: Final = "no answer"
_KEPT: Final = "kept down by"
"""In what a heal row says of a broker that another fault keeps from starting."""


def kind_of(kind: str) -> FaultKind:
    """Return what is known of faults of a kind."""
    return next((entry for entry in KINDS if entry.matches(kind)), _ANY)


def ends_processes(kind: str) -> bool:
    """Whether a fault of a kind can end a broker's process, or nobody knows what it does.

    One that is paused, or waits for its disk, goes on later, whatever a probe took it for.
    """
    known = kind_of(kind.removeprefix(HEAL))
    return known is _ANY or GONE in known.effects


@dataclass(slots=True)
class FaultRecord:
    """The rows of one fault: asked for, seen to begin, healing asked for, seen to be healed."""

    asked: Row | None = None
    begun: Row | None = None
    healing: Row | None = None
    healed: Row | None = None

    @property
    def kind(self) -> str:
        """The kind, as its first row names it."""
        first = self.asked or self.begun
        assert first is not None, "a fault without a row"
        return str(first["f"])

    @property
    def label(self) -> str:
        """The name of this fault in its test."""
        return str(_value(self.asked or self.begun).get("label", ""))

    @property
    def bit(self) -> bool:
        """Whether it was observed to take effect on all that it was to hit."""
        return _value(self.begun).get("bit") is True

    @property
    def found_target(self) -> bool:
        """Whether there was anything to hit, as far as the nemesis tells."""
        told = _value(self.begun)
        named = isinstance(told.get("nodes"), list) or isinstance(told.get("links"), list)
        return told.get("bit") is not False or not named or bool(_places(self) or _seen(self.begun))


def records(rows: Iterable[Row]) -> list[FaultRecord]:
    """Return the faults of one history from the rows of the nemesis, in order.

    The rows of one fault have one label. A label may be used again, also where nothing was healed.
    """
    found: list[FaultRecord] = []
    open_: dict[str, list[FaultRecord]] = defaultdict(list)
    for row in rows:
        label = str(_value(row).get("label", ""))
        mine = open_[label]
        if row["f"].startswith(HEAL):
            for record in mine:
                if row["type"] == "invoke":
                    record.healing = record.healing or row
                else:
                    record.healed = row
            if row["type"] != "invoke":
                open_[label] = []
            continue
        if row["type"] == "invoke" or not mine or mine[-1].begun is not None:
            mine.append(FaultRecord())
            found.append(mine[-1])
        if row["type"] == "invoke":
            mine[-1].asked = row
        else:
            mine[-1].begun = row
    return found


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault broke, from when to when (ns, and the rows of it; None: to the end).

    ``places`` are the nodes and the links ("a1->b1") that it concerned; None: nobody tells.
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
        """What faults of its kind can cause."""
        return kind_of(self.kind)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Both ends of each link that it concerned."""
        both = (place.partition("->") for place in self.places or ())
        return [(source, target) for source, arrow, target in both if arrow]

    @property
    def nodes(self) -> list[str]:
        """The nodes that it concerned, but for ends of links."""
        return [place for place in self.places or () if "->" not in place]


def effects(found: Iterable[FaultRecord]) -> list[Effect]:
    """Return what faults broke, or may have broken unseen.

    A fault of which some places were not seen to be healed is in force there to the end.
    """
    return [effect for record in found for effect in _effects(record)]


def _effects(record: FaultRecord) -> Iterable[Effect]:
    places = _hit(record)
    if places is not None and not places:
        return
    first = record.asked or record.begun
    assert first is not None, "a fault without a row"
    left = _unhealed(record, places)
    if record.healed is not None and (left is not None and (places is None or left < places)):
        over = None if places is None else places - left
        yield Effect(
            record.kind, record.label, over, first["time"], record.healed["time"], first["index"],
            record.healed["index"],
        )  # fmt: skip
    if left is None or left:
        yield Effect(record.kind, record.label, left, first["time"], None, first["index"], None)


def _hit(record: FaultRecord) -> frozenset[str] | None:
    """Return the places where a fault took effect, or may have; None where nobody tells which."""
    places = _places(record)
    begun = _value(record.begun)
    bit, seen = begun.get("bit"), _seen(record.begun)
    if record.begun is None or (bit is None and not seen):
        return places or None
    if bit is False:
        words = (*kind_of(record.kind).effects, _NO_ANSWER)
        if not seen and record.begun.get("error") is not None:
            return places  # it failed half-way, and nobody looked
        return frozenset(place for place, said in seen.items() if any(word in said for word in words))
    hit = frozenset(place for place in places | frozenset(seen) if seen.get(place) not in _QUIET)
    return hit or places or None


def _unhealed(record: FaultRecord, places: frozenset[str] | None) -> frozenset[str] | None:
    """Return where a fault was not seen to be healed; None: everywhere."""
    if record.healed is None:
        return places
    told = _value(record.healed)
    seen = _seen(record.healed)
    if told.get("bit") is True or (told.get("bit") is None and not seen):
        return frozenset()
    if places is None:
        return None
    words = kind_of(record.kind).effects
    over = {
        place
        for place, said in seen.items()
        if said in _QUIET or _KEPT in said or not any(word in said for word in words)
    }
    return places - over


def _value(row: Row | None) -> Mapping[str, Any]:
    return {} if row is None else json_object(row.get("value")) or {}


def _places(record: FaultRecord) -> frozenset[str]:
    """Return the nodes and links that a fault was to hit, as far as its rows name any."""
    told: set[str] = set()
    for row in (record.asked, record.begun):
        for name in ("nodes", "links"):
            some = _value(row).get(name)
            told.update(str(one) for one in some) if isinstance(some, list) else None
    return frozenset(told)


def _seen(row: Row | None) -> dict[str, str]:
    """Return by place what a probe said: "a1/disk" is the disk of node a1."""
    observed = _value(row).get("observed")
    if not isinstance(observed, dict):
        return {}
    return {str(place).partition("/")[0]: str(said) for place, said in observed.items()}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which brokers stood in for which: all that ever had one node ID or took it over.

    ``together`` has, of each broker whose node ID is told, all brokers of its pair.
    """

    together: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Pairs:
        """Return the pairs that the rows of the monitor tell of (``role`` and ``takeover``)."""
        groups: dict[str, set[str]] = {}
        brokers: dict[str, set[str]] = {}
        for row in rows:
            broker, node_id = row.get("broker"), row.get("node_id")
            if broker is None or node_id is None:
                continue
            one, other = brokers.get(broker, {broker}), groups.get(node_id, set())
            both = one | other
            for name in both:
                brokers[name] = both
            for node, some in list(groups.items()):
                if some & both:
                    groups[node] = both
            groups[node_id] = both
        return cls({broker: frozenset(some) for broker, some in brokers.items()})

    def around(self, brokers: Collection[str]) -> frozenset[str] | None:
        """Return these brokers with their pairs; None where that is not told."""
        if not brokers or any(broker not in self.together for broker in brokers):
            return None
        return frozenset().union(*(self.together[broker] for broker in brokers))

    def may_touch(self, effect: Effect, brokers: Collection[str]) -> bool:
        """Return whether an effect concerns one of these brokers or of their pairs, or may."""
        own = self.around(brokers)
        if own is None or effect.places is None:
            return True
        if any(node in own or node not in self.together for node in effect.nodes):
            return True
        return any(
            source in own or target in own or not {source, target} & self.together.keys()
            for source, target in effect.links
        )


class Window(Protocol):
    """A time in which nothing succeeded."""

    @property
    def begin(self) -> int:
        """The first unanswered question (ns)."""
        ...

    @property
    def end(self) -> int:
        """The next success, or the last failure (ns)."""
        ...

    @property
    def brokers(self) -> frozenset[str]:
        """The brokers that the operation goes to; empty where no row names any."""
        ...


@dataclass(frozen=True, slots=True)
class Excuses:
    """What the faults of one history explain."""

    effects: Sequence[Effect]
    pairs: Pairs
    changes: Mapping[str, Sequence[tuple[int, int]]]
    options: CheckOptions

    @classmethod
    def of(
        cls, faults: Iterable[FaultRecord], roles: Sequence[Row], takeovers: Iterable[Row],
        options: CheckOptions,
    ) -> Excuses:  # fmt: skip
        """Return them, from the faults, and from the monitor's rows in order."""
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

    def excuses(self, window: Window) -> bool:
        """Return whether what lies outside all effects is within the bound for unavailability."""
        uncovered, at = 0, window.begin
        for effect in sorted(self.explain(window), key=lambda one: one.begin):
            uncovered = max(uncovered, effect.begin - at)
            at = max(at, self._over(effect, window.end))
        return max(uncovered, window.end - at) <= int(self.options.unavailable_bound_s * 1e9)

    def _over(self, effect: Effect, end: int) -> int:
        """Until when an effect explains anything."""
        return end if effect.end is None else effect.end + int(self.options.recovery_bound_s * 1e9)

    def _can_cause(self, effect: Effect, window: Window) -> bool:
        silence, promises = effect.fault_kind.silence, self.options.broker
        if silence == "wall clock":
            silence = "none" if promises.monotonic_clocks else "pair"
        if silence in ("none", "anywhere"):
            return silence == "anywhere"
        if not promises.independent_pairs or self.pairs.may_touch(effect, window.brokers):
            return True
        return silence == "votes" and self._votes_may_be_needed(effect, window)

    def _votes_may_be_needed(self, effect: Effect, window: Window) -> bool:
        """Return whether the pair changed its roles around the window, under the effect."""
        begin = max(effect.begin, window.begin - int(self.options.recovery_bound_s * 1e9))
        end = min(self._over(effect, window.end), window.end)
        return any(
            low <= end and high >= begin
            for broker in self.pairs.around(window.brokers) or ()
            for low, high in self.changes.get(broker, ())
        )
