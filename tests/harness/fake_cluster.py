"""A cluster in memory: roles as a test wants them, clients that record what a test wants, and no
process anywhere.
"""

import asyncio
import contextlib
import time

from checkers.verdict import Promises
from harness.interface import (
    Address,
    Dialect,
    Effect,
    InfrastructureError,
    NodePlan,
    Patience,
    PolicySummary,
    Schedule,
    Status,
    TestSpec,
)
from harness.run.compose import Composition
from harness.systems import readiness


class FakeSystem:
    name = "fake"
    dialect = Dialect()
    policies = {"replication": PolicySummary(description="two brokers")}
    patience = Patience()
    events = {}
    lacking = staticmethod(readiness.lacking)
    compared_views = ("members",)

    def __init__(self, environment, stored=()):
        self.environment = environment
        self.stored = list(stored)
        self.viewed = {}

    def promises(self, spec):
        return Promises()

    async def status(self, admin):
        node = admin.host
        if node not in self.environment.up:
            raise ConnectionRefusedError(node)
        role = self.environment.roles[node]
        return Status(
            name=node, node_id="n", role=role, epoch=self.environment.epochs[node], replicating=True
        )

    async def browse(self, admin):
        return self.stored

    async def views(self, admin):
        return self.viewed.get(admin.host, {})

    async def stop(self, admin, *, failover=None):
        self.environment.up.discard(admin.host)


class FakeEnvironment:
    name = "fake"
    zones = ("c1",)
    virtual = False

    async def execute(self, main, *, seed):
        return await main()

    def clock_ns(self):
        return time.monotonic_ns()

    def __init__(self, *, fails=None, roles=None):
        self.fails = fails
        self.roles = roles or {"a1": "live", "a2": "backup"}
        self.epochs = dict.fromkeys(self.roles, 1)
        self.up = set()
        self.calls = []

    def supports(self):
        return dict.fromkeys(("cut", "kill", "pause", "stop"), "")

    async def deploy(self, system, spec, nodes, directory):
        self._did("deploy")

    def resolve(self, source, node, port):
        return Address(node, 1)

    async def start(self, node):
        self._did("start")
        self.up.add(node)

    async def wait_exit(self, node):
        while node in self.up:
            await asyncio.sleep(0.01)
        return 1

    async def running(self, node):
        return node in self.up

    async def kill(self, node):
        self.up.discard(node)

    async def heal_all(self):
        self.calls.append("heal_all")

    async def probe(self, links=(), nodes=()):
        return Effect(bit=False, observed={})

    async def collect(self, destination):
        self.calls.append("collect")
        (destination / "a1").mkdir(parents=True, exist_ok=True)
        (destination / "a1" / "broker.log").write_text("first line\nthe port is in use\n")

    async def teardown(self):
        self.calls.append("teardown")

    def _did(self, what):
        self.calls.append(what)
        if self.fails == what:
            raise InfrastructureError(f"{what} did not work: no disk")


class FakeWorkload:
    """Sends, delivers and acknowledges a few messages a moment.

    ``misbehave`` is called with the context while it runs.
    """

    name = "fake"

    def __init__(self, misbehave=None, silent=False, fails=0):
        self.misbehave = misbehave
        self.silent = silent
        self.fails = fails
        self.drained = False

    async def run(self, context):
        number = 0
        process, consumer = context.recorder.next_process(), context.recorder.next_process()
        session = {"queue": "q0", "session": 1, "broker": "a1"}
        context.recorder.event(consumer, "invoke", "subscribe", **session)
        context.recorder.event(consumer, "ok", "subscribe", **session)
        while not context.stopping.is_set():
            if self.misbehave is not None:
                await self.misbehave(context)
            if self.silent:
                context.counters["fail"] = context.counters.get("fail", 0) + self.fails
            else:
                message = {"queue": "q0", "group": "g0", "message": number, "producer": 0, "sequence": number}
                context.recorder.event(process, "invoke", "send", **message, digest=5)
                context.recorder.event(process, "ok", "send", **message, digest=5, broker="a1")
                context.recorder.event(
                    consumer,
                    "ok",
                    "deliver",
                    **message,
                    digest=5,
                    broker="a1",
                    session=1,
                    redelivered=False,
                    delivery_count=1,
                )
                context.recorder.event(consumer, "invoke", "ack", **message, session=1)
                context.recorder.event(consumer, "ok", "ack", **message, session=1, broker="a1")
                context.counters["ok"] = context.counters.get("ok", 0) + 2
                number += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), 0.01)
        context.recorder.event(consumer, "invoke", "unsubscribe", **session)
        context.recorder.event(consumer, "ok", "unsubscribe", **session)

    def answered(self):
        return {}

    def answered_queues(self):
        return {}

    async def drain(self, context):
        self.drained = True


class SilentProgress:
    def __init__(self):
        self.phases = []
        self.notes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def note(self, text):
        self.notes.append(text)

    def update(self, snapshot):
        if snapshot.phase not in self.phases:
            self.phases.append(snapshot.phase)


NODES = (
    NodePlan(name="a1", pair="a", configured="master", ports={"stomp": 1, "admin": 2}),
    NodePlan(name="a2", pair="a", configured="slave", ports={"stomp": 1, "admin": 2}),
)


def composition(environment=None, workload=None, stored=(), faults=(), **spec):
    """A test of one pair in memory, short."""
    environment = environment or FakeEnvironment()
    values = {"name": "fake", "pairs": 1, "time_limit_s": 0.3, "recovery_bound_s": 2.0, **spec}
    return Composition(
        spec=TestSpec(**values),
        system=FakeSystem(environment, stored),
        nodes=NODES,
        environment=environment,
        environment_reason="environment fake: it is a test",
        workload=workload or FakeWorkload(),
        schedule=Schedule(faults=tuple(faults)),
    )
