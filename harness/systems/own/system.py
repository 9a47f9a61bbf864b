"""Our broker as a system under test: its configuration, its dialect, and how it is asked."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker import config
from broker.cluster.views import COMPARED
from broker.cluster_file import merged
from broker.multicast import open_multicast
from broker.seams import Seams
from broker.storage.memory import MemoryVolume
from broker.storage.volume import Volume
from checkers.verdict import Promises
from harness.interface import (
    Address,
    Disk,
    InProcessResources,
    Layout,
    NodePlan,
    Patience,
    PolicySummary,
    Status,
    Takeover,
    TestSpec,
    UsageError,
)
from harness.interface.errors import near
from harness.systems import readiness, store
from harness.systems.own import database_plan
from harness.systems.own.admin import AdminClients
from harness.systems.own.configuration import (
    ADDRESSES,
    BROADCASTS,
    CHAINED,
    REFUSALS_DRAWN,
    attempts,
    of_load,
    redelivery_s,
    table,
)
from harness.systems.own.credentials import Credentials
from harness.systems.own.database import WorldDatabase
from harness.systems.own.dialect import DIALECT
from harness.systems.own.disk import OwnDisk
from harness.systems.own.events import EVENTS
from harness.systems.own.policies import standalone
from harness.systems.own.policies.registry import POLICIES

if TYPE_CHECKING:
    from broker.policies.policy import BrokerPolicy

PORTS: Final = {"stomp": 61613, "cluster": 61616, "admin": 61612}

_REDISTRIBUTION: Final = f"{ADDRESSES}#.redistribution-delay"
_BALANCING: Final = "cluster.message-load-balancing"
_ON_DEMAND: Final = "ON_DEMAND"
_DRAWN: Final[Mapping[str, tuple[Any, ...]]] = {
    "cluster.connection-ttl": (1000, 4000),
    "cluster.call-timeout": (500, 2000),
    "cluster.retry-interval": (50, 300),
    _REDISTRIBUTION: (0, 500),
    "journal.segment-size": (8192, 65_536, 1_048_576),
    "journal.compact-min-files": (2, 4),
}


class OwnSystem(AdminClients):
    """``harness.interface.System`` for the brokers of ``broker/``, with all optional abilities."""

    name = "own"
    summary = "the broker of this project, written from the source documents"
    policies: Mapping[str, PolicySummary] = {
        name: PolicySummary(description=policy.description, variants=policy.variants, traits=policy.traits)
        for name, policy in POLICIES.items()
    }
    dialect = DIALECT
    patience = Patience()
    events = EVENTS
    lacking = staticmethod(readiness.lacking)
    made_secrets = ("admin",)
    mirrored = ("replication",)
    chained = CHAINED
    hops: Mapping[str, Sequence[int]] = {"cluster.max-hops": (1, 2, 3)}
    compared_views = COMPARED
    paging: Mapping[str, Sequence[int]] = {
        f"{ADDRESSES}#.max-size-bytes": (8192, 65_536),
        f"{ADDRESSES}#.page-size-bytes": (2048, 4096),
    }

    def __init__(self) -> None:
        super().__init__(Credentials())
        self._directories: dict[Path, MemoryVolume] = {}
        """The directories that simulated brokers share to find each other; no fault hits them."""

    def promises(self, spec: TestSpec) -> Promises:
        """Return what our broker promises: a NACK asks for the message again.

        So many NACKs, and acks that were rolled back, make it a dead letter.
        """
        # Of several settings, the one under which a message dies first counts: no broker is accused
        # of what another setting would allow.
        least, most = attempts(spec)
        dead_letters, expired = (
            all(
                value or not name.endswith(f".{address}")
                for properties in spec.properties.values()
                for name, value in properties.items()
                if name.startswith(ADDRESSES)
            )
            for address in ("dead-letter-address", "expiry-address")
        )
        # A client that may use brokers of several pairs sends one group to all of them, and each
        # gives what it took to a consumer of its own.
        listed = {node.pair for node in self.plan(spec) if node.name in spec.client_brokers}
        spreads_groups = len(listed) > 1 or (bool(listed) and spec.client_feed and spec.pairs > 1)
        return Promises(
            nack="requeue",
            groups=not spreads_groups,
            delivery_attempts=least,
            most_attempts=most,
            keeps_dead_letters=dead_letters,
            keeps_expired=expired,
            redelivery_s=redelivery_s(spec),
            counts="given back",
            durable_counts=True,  # a refusal is answered once its count is in the journal
        )

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return pairs "a", "b", ...: a1 master and a2 slave, or a1 alone.

        Raises UsageError, also for wrong properties.
        """
        policy = POLICIES[spec.policy]
        in_database = policy.in_database(spec)
        database = database_plan.plan(spec) if in_database else None
        groups = {
            name.rpartition(".")[2]
            for values in spec.properties.values()
            for name in values
            if name.startswith(BROADCASTS)
        }
        master = spec.master or "a1" if policy.has_master else ""
        nodes = tuple(
            NodePlan(
                name=f"{pair}{number}",
                pair=pair,
                configured=role,
                ports=dict(PORTS),
                store=store.plan(spec, pair, f"{pair}{number}")
                if policy.on_store and not in_database
                else None,
                after=policy.after(pair, number),
                database=database,
                commands=policy.commands,
                master=f"{pair}{number}" == master,
                broadcasts="group-address" in groups,
                finds_by_files="jgroups-file" in groups,
            )
            for pair, number, role in policy.layout(spec)
        )
        names = ["*", *(node.name for node in nodes), *policy.machines]
        names += [database_plan.NAME] if database is not None else []
        for name in (*spec.properties, *(store.named(spec) if policy.on_store else ())):
            if name not in names:
                raise UsageError(f'--set: no node "{name}" in this test: {near(name, names)}')
        for node in nodes:
            table(
                spec,
                node,
                nodes,
                Layout(etc="etc", data="data", logs="logs"),
                {},
                {},
                self.credentials,
            )
        return nodes

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return times and sizes on which bugs depend; for a single broker none of a cluster.

        Messages are redistributed only with ON_DEMAND.
        """
        drawn = {**_DRAWN, **POLICIES[spec.policy].drawn(nodes)}
        drawn |= REFUSALS_DRAWN if of_load(spec) else {}
        is_single = [node.configured for node in nodes] == [standalone.CONFIGURED]
        settings = (POLICIES[spec.policy].defaults(nodes[0], nodes, {}), *spec.properties.values())
        if is_single or any(values.get(_BALANCING, _ON_DEMAND) != _ON_DEMAND for values in settings):
            del drawn[_REDISTRIBUTION]
        return {
            name: choices
            for name, choices in drawn.items()
            if not (is_single and name.startswith("cluster."))
        }

    def files(
        self,
        spec: TestSpec,
        node: NodePlan,
        nodes: Sequence[NodePlan],
        layout: Layout,
        listen: Mapping[str, Address],
        hosts: Mapping[str, Address],
    ) -> dict[str, bytes]:
        """Return one file, ``broker.toml``."""
        if spec.environment == "simulation":
            self.credentials = Credentials(spec.seed)
        written = table(spec, node, nodes, layout, listen, hosts, self.credentials)
        return {"broker.toml": config.dumps(written).encode()}

    def command(self, layout: Layout) -> list[str]:
        """Return ``python -m broker.daemon --config etc/broker.toml``."""
        return ["python", "-m", "broker.daemon", "--config", f"{layout.etc}/broker.toml"]

    def disk(self) -> Disk:
        """Return a disk in memory that forgets what was not synced."""
        return OwnDisk()

    async def restore_record(
        self, node: str, backup: Mapping[str, Any], chance: random.Random, data: Mapping[str, bytes]
    ) -> Mapping[str, bytes]:
        """Store the backup as ``brokerctl restore-record`` does."""
        from broker.core.restoration import decode_backup, store_backup  # noqa: PLC0415 - as below
        from broker.storage.journal import Journal  # noqa: PLC0415 - as below

        volume = MemoryVolume(data)
        journal, recovered = await Journal.open(volume, "journal")
        incarnation = f"{node}-{chance.getrandbits(48):012x}"
        await store_backup(journal, recovered.records, decode_backup(backup["record"]), incarnation)
        await journal.close()
        return volume.image()

    async def serve(self, files: Mapping[str, bytes], outside: InProcessResources) -> int:
        """Run all of ``brokerd`` except its process."""
        from broker.daemon import serve  # noqa: PLC0415 - only who runs brokers in this process needs the whole of one

        async def read() -> config.BrokerConfig:
            return _configuration(files)

        settings = _configuration(files)
        seams = Seams(
            outside.random,
            outside.wall_clock,
            settings.resolved_hosts(),
            open_multicast=outside.open_multicast or open_multicast,
            open_directory=lambda path: self._directories.setdefault(path, MemoryVolume()),
            configuration=read,
        )
        name = settings.broker.name
        return await serve(
            settings,
            seams,
            _volume(outside.disk) if outside.store is None else outside.store,
            outside.stopping,
            lambda policy: outside.observe(partial(_status_of, name, policy)),
            None if outside.database is None else partial(WorldDatabase, outside.database, name),
        )


def _configuration(files: Mapping[str, bytes]) -> config.BrokerConfig:
    """Return the configuration of a broker that has these files. Raises ConfigurationError."""

    def read_table(name: str) -> dict[str, Any]:
        return tomllib.loads(files[name].decode())

    return config.validate(merged(read_table("broker.toml"), "broker.toml", read_table), "broker.toml")


def _volume(disk: Disk) -> Volume:
    assert isinstance(disk, OwnDisk), "a disk of another system"
    return disk.volume


def _status_of(name: str, policy: BrokerPolicy) -> Status:
    """Return what the admin port would answer, without queues and details."""
    life, takeovers = policy.succession
    return Status(
        name=name,
        node_id=policy.node_id,
        role=policy.role,
        epoch=policy.epoch,
        replicating=policy.replicating,
        life=life,
        takeovers=tuple(Takeover(node_id=node_id, life=number) for node_id, number in takeovers),
    )
