"""Faults: what they do to brokers, and the rows that the nemesis writes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from innocent_cluster.brokers import Broker
from innocent_cluster.habits import ADMINISTER, CLOCKS, KILLS, LINKS, ORDERLY, STORES
from innocent_cluster.recording import NEMESIS
from innocent_cluster.timeline import MS, S, Script

if TYPE_CHECKING:
    from innocent_cluster.world import World

SKEWS = (-60 * S, -500 * MS, S, 60 * S, 3600 * S)
SHAPES = (
    "isolate-live", "isolate-live", "isolate-backup", "pair-link", "one-way", "halves", "majorities-ring",
    "bridge", "random",
)  # fmt: skip
TARGETS = ("live", "live", "backup", "lives", "backups", "one", "minority", "all")
WORDS = {"partition": "lost", "slow": "slow over 500 ms", "stall": "stalled"}


class Fault:
    """One fault from its beginning to its healing; what is not given is drawn when it begins."""

    def __init__(
        self,
        world: World,
        kind: str,
        label: str,
        chance: random.Random | None = None,
        brokers: Sequence[Broker] = (),
    ) -> None:
        self.world, self.kind, self.label = world, kind, label
        self.chance = chance or world.chance
        self.target = self.chance.choice(TARGETS)
        self.shape = self.chance.choice(SHAPES) if kind in LINKS else None
        self.options = {} if brokers else self._draw_options()
        self.brokers = [*brokers]
        self.links: list[str] = []

    def run(self, duration: int) -> Script:
        """Begin, last, and end; healed early when the load ends."""
        world = self.world
        self.brokers = self.brokers or self._find()
        self._plan_links()
        self._row("invoke", self.kind)
        if not self.brokers:
            self._row("info", self.kind, bit=False, error=f"no broker is {self.target} now")
            return
        world.struck.update(self.brokers)
        if self.kind not in (*CLOCKS, ADMINISTER):
            world.unheard.update(self.brokers)
        yield self.chance.choice([0, MS, 50 * MS])
        for broker in self.brokers:
            self._begin(broker)
        yield self.chance.choice([0, MS, 300 * MS])
        self._row("info", self.kind, bit=True, observed=self._observed(is_healed=False))
        if self.kind == "leave":
            return
        until = world.timeline.now + duration
        while world.timeline.now < until and not world.is_healing:
            yield 50 * MS
        self._row("invoke", f"heal:{self.kind}")
        yield self.chance.choice([0, MS, 50 * MS])
        world.struck.difference_update(self.brokers)
        world.unheard.difference_update(self.brokers)
        for broker in self.brokers:
            self._end(broker)
        yield self.chance.choice([0, MS, 300 * MS])
        self._row("info", f"heal:{self.kind}", bit=True, observed=self._observed(is_healed=True))

    def _draw_options(self) -> dict[str, Any]:
        """Options as a search draws them; what they say is what the fault does."""
        chance, kind = self.chance, self.kind
        options: dict[str, Any] = {}
        if kind in ("slow", "disk-slow"):
            options = {"delay_ms": chance.choice([5.0, 50.0, 300.0, 500.0]), "jitter_ms": 50.0}
        if kind == "slow":
            options["rate_bytes_s"] = 50000.0
        if kind == "clock-skew":
            options["skew_ms"] = chance.choice(SKEWS) / MS
        if kind in ("clock-step", "clock-strobe"):
            options["step_ms"] = chance.choice(SKEWS) / MS
        if kind == "clock-strobe":
            options["period_ms"] = chance.choice([20.0, 200.0])
        if kind == ADMINISTER:
            options = {"command": chance.choice(["destinations", "reload", "compact"])}
        if kind == "stop" and chance.random() < 0.5:
            options["failover"] = True
        if kind == "database-disconnect":
            options = {"chance": 1.0, "committed": chance.choice([0.0, 1.0])}
        if chance.random() < 0.5:
            options["pair"] = chance.choice(self.world.pairs).name
        return options

    def _find(self) -> list[Broker]:
        """The brokers in the role that is asked for; often there is none."""
        pairs = [pair for pair in self.world.pairs if self.options.get("pair", pair.name) == pair.name]
        brokers = [one for pair in pairs for one in pair.brokers if one not in self.world.struck]
        of_role = {
            "live": [one for one in brokers if one.role == "live"][:1],
            "backup": [one for one in brokers if one.role == "backup"][:1],
            "lives": [one for one in brokers if one.role == "live"],
            "backups": [one for one in brokers if one.role == "backup"],
            "one": brokers[-1:],
            "minority": brokers[: len(brokers) // 2],
            "all": brokers,
        }
        found = of_role[self.target]
        if self.kind in ORDERLY:
            found = [one for one in found if one.is_live and one.pair.successors]
        return found[:1] if self.kind in LINKS else found

    def _plan_links(self) -> None:
        if self.kind not in LINKS or not self.brokers:
            return
        (broker,) = self.brokers
        others = [one.name for pair in self.world.pairs for one in pair.brokers if one is not broker]
        mates = [one.name for one in broker.pair.brokers if one is not broker]
        ends = {
            "pair-link": mates, "halves": others, "majorities-ring": others, "bridge": others,
        }.get(self.shape or "", ["zone1", *others])  # fmt: skip
        if self.shape == "one-way":
            self.links = [f"zone1->{broker.name}"]
            return
        self.links = sorted(
            [f"{broker.name}->{end}" for end in ends] + [f"{end}->{broker.name}" for end in ends]
        )

    def _begin(self, broker: Broker) -> None:
        world, kind = self.world, self.kind
        if kind in (*KILLS, "leave"):
            if broker.role != "stopped":
                world.kill(broker, cleanly=kind in ("stop", "leave"))
        elif kind == "pause":
            world.freeze(broker)
        elif kind in STORES:
            world.hold_store(broker, is_whole=kind != "disk-slow")
        elif kind in LINKS:
            if any("zone1" in link for link in self.links):
                world.cut(broker, kind)
        elif kind in ORDERLY:
            if broker.is_live and broker.pair.successors:
                world.switch_over(broker)
        elif kind != ADMINISTER:
            assert kind in CLOCKS, kind
            broker.skew = round(self.options.get("skew_ms", self.options.get("step_ms", 0)) * MS)
            broker.pair.push()

    def _end(self, broker: Broker) -> None:
        world, kind = self.world, self.kind
        if kind in KILLS:
            world.restart(broker)
        elif kind == "pause":
            world.thaw(broker)
        elif kind in STORES:
            world.free_store(broker)
        elif kind in LINKS:
            world.mend(broker)
        elif kind in CLOCKS:
            broker.skew = 0
            broker.pair.push()

    def _observed(self, *, is_healed: bool) -> dict[str, str]:
        kind, names = self.kind, [broker.name for broker in self.brokers]
        if kind in LINKS:
            return dict.fromkeys(self.links, "open" if is_healed else WORDS[kind])
        if kind in STORES:
            part = {"disk": "disk", "nfs": "store", "database": "database"}[kind.partition("-")[0]]
            word = "sound" if is_healed else kind.partition("-")[2]
            return {f"{name}/{part}": word for name in names}
        if kind in CLOCKS:
            skews = [0 if is_healed else broker.skew for broker in self.brokers]
            return {name: f"clock {skew / S:+g} s" for name, skew in zip(names, skews, strict=True)}
        if kind == ADMINISTER:
            return dict.fromkeys(names, "done 3 of 4")
        word = "gone" if kind in (*KILLS, "leave") else "paused" if kind == "pause" else "left"
        return dict.fromkeys(names, "running" if is_healed else word)

    def _row(
        self, type_: str, f: str, *, bit: bool | None = None, observed: Any = None, error: str | None = None
    ) -> None:
        names = [broker.name for broker in self.brokers]
        value: dict[str, Any] = {
            "label": self.label, "links": self.links, "nodes": [] if self.kind in LINKS else names,
            "shape": self.shape, "target": ", ".join(names) or self.target,
        }  # fmt: skip
        if bit is not None:
            value |= {"bit": bit, "observed": observed or {}}
        if type_ == "invoke" and self.options:
            value["options"] = self.options
        self.world.recording.add(NEMESIS, type_, f, error=error, value=json.dumps(value))
