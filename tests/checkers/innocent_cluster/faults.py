"""Faults: what they do to brokers, and the rows that the nemesis writes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from innocent_cluster.brokers import Broker
from innocent_cluster.habits import CLOCKS, KILLS, LINKS, STORES
from innocent_cluster.recording import NEMESIS
from innocent_cluster.timeline import MS, S, Script

if TYPE_CHECKING:
    from innocent_cluster.world import World

SKEWS = (-60 * S, -500 * MS, S, 60 * S, 3600 * S)


class Fault:
    """One fault from its beginning to its healing."""

    def __init__(self, world: World, kind: str, label: str) -> None:
        self.world, self.kind, self.label = world, kind, label
        self.chance = world.chance
        self.broker: Broker | None = None
        self.links: list[str] = []

    def run(self, duration: int) -> Script:
        """Begin, last, and end; healed early when the load ends."""
        world = self.world
        self.broker = self._target()
        self._plan_links()
        self._row("invoke", self.kind)
        if self.broker is None:
            self._row("info", self.kind, bit=False, error="no broker of that role is there now")
            return
        yield self.chance.choice([0, MS, 50 * MS])
        begin, end, seen, healed = self._effect(self.broker)
        begin()
        yield self.chance.choice([0, MS, 300 * MS])
        self._row("info", self.kind, bit=True, observed=seen)
        until = world.timeline.now + duration
        while world.timeline.now < until and not world.is_healing:
            yield 50 * MS
        self._row("invoke", f"heal:{self.kind}")
        yield self.chance.choice([0, MS, 50 * MS])
        end()
        yield self.chance.choice([0, MS, 300 * MS])
        self._row("info", f"heal:{self.kind}", bit=True, observed=healed)

    def _target(self) -> Broker | None:
        """Some broker of the role that is asked for; often there is none."""
        role = self.chance.choice(["live", "live", "live", "backup"])
        fit = [
            one for pair in self.world.pairs for one in pair.brokers
            if one.role == role and one not in self.world.struck
        ]  # fmt: skip
        return self.chance.choice(fit) if fit else None

    def _plan_links(self) -> None:
        if self.kind not in LINKS or self.broker is None:
            return
        mine, others = self.broker.name, [b.name for pair in self.world.pairs for b in pair.brokers]
        ends = ["zone1", *(name for name in others if name != mine)]
        self.links = sorted([f"{mine}->{end}" for end in ends] + [f"{end}->{mine}" for end in ends])

    def _effect(self, broker: Broker) -> tuple[Callable[[], None], Callable[[], None], Any, Any]:
        """How it begins and ends, and what is observed then."""
        world, kind, name = self.world, self.kind, broker.name
        world.struck.add(broker)
        free: Callable[[], None] = lambda: world.struck.discard(broker)  # noqa: E731

        def ended(action: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                free()
                action()

            return run

        if kind in KILLS:
            is_clean = kind == "stop"
            return (
                lambda: world.kill(broker, cleanly=is_clean), ended(lambda: world.restart(broker)),
                {name: "gone"}, {name: "running"},
            )  # fmt: skip
        if kind == "pause":
            return (
                lambda: world.freeze(broker), ended(lambda: world.thaw(broker)),
                {name: "paused"}, {name: "running"},
            )  # fmt: skip
        if kind in STORES:
            return (
                lambda: world.hold_store(broker, kind == "disk-stall"),
                ended(lambda: world.free_store(broker)),
                {f"{name}/disk": kind.removeprefix("disk-")}, {f"{name}/disk": "sound"},
            )  # fmt: skip
        if kind in LINKS:
            word = {"partition": "lost", "slow": "slow over 500 ms", "stall": "stalled"}[kind]
            return (
                lambda: world.cut(broker, kind), ended(lambda: world.mend(broker)),
                dict.fromkeys(self.links, word), dict.fromkeys(self.links, "open"),
            )  # fmt: skip
        assert kind in CLOCKS, kind
        skew = self.chance.choice(SKEWS)

        def begin() -> None:
            broker.skew = skew
            broker.pair.push()

        def end() -> None:
            broker.skew = 0
            broker.pair.push()

        return begin, ended(end), {name: f"clock {skew / S:+g} s"}, {name: "clock +0 s"}

    def _row(
        self, type_: str, f: str, *, bit: bool | None = None, observed: Any = None, error: str | None = None
    ) -> None:
        name = None if self.broker is None else self.broker.name
        is_link = self.kind in LINKS
        value: dict[str, Any] = {
            "label": self.label, "links": self.links, "nodes": [] if is_link or name is None else [name],
            "shape": "isolate-live" if is_link else None, "target": name or "live",
        }  # fmt: skip
        if bit is not None:
            value |= {"bit": bit, "observed": observed or {}}
        self.world.recording.add(NEMESIS, type_, f, error=error, value=json.dumps(value))
