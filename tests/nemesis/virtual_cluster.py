"""A cluster on virtual time, in which every fault can be seen, and everything that was done to
it.
"""

import asyncio
import json
import random
import selectors

from harness.interface import Effect, InfrastructureError, NemesisContext, NodePlan, TestSpec, UsageError

LEASE_S = 5.0


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        if timeout is None:
            raise AssertionError("everything waits for something that never comes")
        self._loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.now = 1000.0
        super().__init__(_Selector(self))

    def time(self):
        return self.now


def run_virtually(coroutine):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def plan(pairs=3, backups=True):
    nodes = []
    for pair in "abcdefghijklmnop"[:pairs]:
        nodes.append(
            NodePlan(name=f"{pair}1", pair=pair, configured="master" if backups else "standalone", ports={})
        )
        if backups:
            nodes.append(NodePlan(name=f"{pair}2", pair=pair, configured="slave", ports={}))
    return tuple(nodes)


class VirtualEnvironment:
    """Nodes run, stand still or are gone.

    Links are open, lost or slow; leases end by themselves.
    """

    name = "virtual"
    zones = ("zone1", "zone2")

    def __init__(self, nodes, down=()):
        self.state = {node.name: "gone" if node.name in down else "running" for node in nodes}
        self.disks = set(self.state)
        self.leases = {}
        self.calls = []
        self.effect_after_s = 0.0
        self.fails = {}
        self._next = 0
        self._exits = {}

    def supports(self):
        return dict.fromkeys(("cut", "reset", "slow", "stall", "pause", "kill", "stop", "destroy-data"), "")

    def _now(self):
        return asyncio.get_running_loop().time()

    async def _did(self, what, *details):
        self.calls.append((round(self._now() - 1000.0, 3), what, *details))
        await asyncio.sleep(0)
        if what in self.fails:
            raise self.fails[what]

    def done(self, *kinds):
        return [call for call in self.calls if call[1] in kinds]

    async def start(self, node):
        await self._did("start", node)
        assert self.state[node] == "gone", f"{node} runs already"
        self.state[node] = "running"

    async def wait_exit(self, node):
        while self.state[node] != "gone":
            await self._exits.setdefault(node, asyncio.Event()).wait()

    async def running(self, node):
        await asyncio.sleep(0)
        return self.state[node] != "gone"

    async def kill(self, node):
        await self._did("kill", node)
        self.exit(node)

    def exit(self, node):
        self.state[node] = "gone"
        self._exits.setdefault(node, asyncio.Event()).set()

    async def reconfigure(self, node, configured):
        await self._did("reconfigure", node, configured)

    async def destroy_data(self, node):
        await self._did("destroy", node)
        if self.state[node] != "gone":
            raise UsageError(f"{node} is running")
        self.disks.discard(node)

    async def copy_data(self, source, node):
        for name in (source, node):
            if self.state[name] != "gone":
                raise UsageError(f"{name} is running")
        await self._did("copy", source, node)

    async def inject(self, primitive, *, links=(), nodes=(), options=None):
        self._next += 1
        lease = f"lease-{self._next}"
        await self._did("inject", primitive, lease)
        self.leases[lease] = {
            "primitive": primitive,
            "links": tuple(links),
            "nodes": tuple(nodes),
            "options": dict(options or {}),
            "since": self._now(),
            "until": self._now() + LEASE_S,
        }
        return lease

    def in_force(self):
        return {lease: fault for lease, fault in self.leases.items() if fault["until"] > self._now()}

    async def renew(self, lease):
        await self._did("renew", lease)
        if lease not in self.in_force():
            raise InfrastructureError(f"{lease} was healed on the node before its time")
        self.leases[lease]["until"] = self._now() + LEASE_S

    async def heal(self, lease):
        await self._did("heal", lease)
        self.leases.pop(lease, None)

    async def probe(self, links=(), nodes=()):
        await asyncio.sleep(0)
        faults = [
            fault for fault in self.in_force().values() if self._now() >= fault["since"] + self.effect_after_s
        ]
        observed = {}
        for link in links:
            here = {fault["primitive"] for fault in faults if link in fault["links"]}
            lost = here & {"cut", "stall"}
            observed[f"{link.source}->{link.target}"] = (
                "lost" if lost else "slow 200 ms" if "slow" in here else "open"
            )
        for node in nodes:
            paused = any(node in fault["nodes"] for fault in faults) and self.state[node] == "running"
            observed[node] = "paused" if paused else self.state[node]
        return Effect(bit=False, observed=observed)


class Rows:
    """A recorder that keeps rows."""

    def __init__(self):
        self.rows = []

    def event(self, process, type, f, *, error=None, value=None, **columns):  # noqa: A002
        assert not columns
        at_s = round(asyncio.get_running_loop().time() - 1000.0, 3)
        self.rows.append((process, type, f, at_s, json.loads(value), error))
        return len(self.rows) - 1

    def of(self, f, type):  # noqa: A002
        return [
            (at_s, value, error) for _, t, name, at_s, value, error in self.rows if (name, t) == (f, type)
        ]

    def only(self, f, type="info"):  # noqa: A002
        (row,) = self.of(f, type)
        return row


class Cluster:
    """Everything a conductor needs; roles are as configured unless a test says otherwise."""

    def __init__(self, pairs=3, *, seed=1, down=(), backups=True):
        self.nodes = plan(pairs, backups)
        self.environment = VirtualEnvironment(self.nodes, down)
        self.recorder = Rows()
        self.roles = {node.name: "backup" if node.configured == "slave" else "live" for node in self.nodes}
        self.stop_takes_s = 0.5
        self.answers = {}
        self.context = NemesisContext(
            spec=TestSpec(name="t"),
            recorder=self.recorder,
            environment=self.environment,
            random=random.Random(seed),
            nodes=self.nodes,
            zones=self.environment.zones,
            roles=lambda: self.roles,
            stop_cleanly=self.stop_cleanly,
            administer=self.administer,
            restore_record=self.restore_record,
        )

    async def stop_cleanly(self, node, failover):
        await self.environment._did("stop", node, *([] if failover is None else [failover]))
        asyncio.get_running_loop().call_later(self.stop_takes_s, self.environment.exit, node)

    async def restore_record(self, node, backup):
        if self.environment.state[node] != "gone":
            raise UsageError(f"{node} is running")
        await self.environment._did("restore", node, dict(backup))

    async def administer(self, node, command, arguments):
        await self.environment._did(command, node, dict(arguments))
        return self.answers[command](node, arguments)
