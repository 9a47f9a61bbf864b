"""The policy of a broker of a conventional cluster (SUN): live alone, on a store of its own.

If the cluster has a master broker, a broker is suspended until it has reached it for the first
time since its start: it listens and refuses every client, because it does not know yet which
destinations and durable subscriptions were made or dropped while it was away. A broker that loses
its master later goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from broker.cluster.change_master import ChangeMaster
from broker.cluster.change_member import ChangeMember
from broker.cluster.client_claims import ClientClaims
from broker.cluster.home_model import HomeModel
from broker.cluster.master import MasterBroker
from broker.config import BrokerConfig
from broker.core.change_record import ChangeRecord
from broker.core.changes import ChangeRefusedError, Kind
from broker.core.engine import Engine
from broker.policies.conventional.reloading import Reloading
from broker.policies.live import Live
from broker.policies.policy import Command, RequestRefusedError
from broker.policies.solo import OwnStore, SoloPolicy
from broker.seams import Seams
from broker.storage.database import Database
from broker.storage.journal import Recovered
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)


class ConventionalPolicy(SoloPolicy):
    """The policy "conventional"; ``master`` is the cluster's master broker."""

    name = "conventional"

    def __init__(self, config: BrokerConfig, seams: Seams, volume: Volume) -> None:
        super().__init__(config, seams, volume)
        section = config.ha_policy.conventional
        assert section is not None, "the configuration has no table ha-policy.conventional"
        assert self.membership is not None, "a conventional cluster without a [cluster] section"
        self.master = MasterBroker(self.membership, section.master_broker)
        self._changes: ChangeMaster | ChangeMember | WithoutMaster | None = None
        self._claims: ClientClaims | None = None
        self.commands: dict[str, Command] = {
            "backup-record": self._backup_record,
            "compact-record": self._compact_record,
            "reset-record": self._reset_record,
        }
        if seams.configuration is not None:
            self._reloading = Reloading(config, self.membership, seams.configuration)
            self.commands["reload"] = self._reload

    def details(self) -> dict[str, Any]:
        """Return the policy's name, and the master broker if there is one.

        With it, how far this broker has the change record.
        """
        if not self.master.is_configured:
            return super().details()
        return {
            **super().details(),
            "master-broker": self.master.address,
            "master-linked": self.master.is_own or self.master.link() is not None,
            **({} if self._changes is None else self._changes.details()),
        }

    async def _reload(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.role not in ("live", "suspended"):
            raise RequestRefusedError(f"{self.config.broker.name} is {self.role}: reload when it serves")
        return await self._reloading.reload(request)

    async def _join(self, node_id: str) -> HomeModel:
        """Take our place in the cluster; see ``SoloPolicy``."""
        assert self.membership is not None, "a conventional cluster without a [cluster] section"
        await self.membership.start(self._volume)
        self.membership.announce(node_id=node_id)
        return HomeModel(self.membership)

    async def _backup_record(self, _: Mapping[str, Any]) -> dict[str, Any]:
        master = self._keeper("backup-record")
        await self._flushed()
        return {"record": master.backup()}

    async def _compact_record(self, _: Mapping[str, Any]) -> dict[str, Any]:
        master = self._keeper("compact-record")
        forgotten, behind = master.compact()
        await self._flushed()
        return {"forgotten": forgotten, "left": master.drops, "behind": behind}

    async def _reset_record(self, _: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(self._changes, ChangeMember):
            raise RequestRefusedError("reset-record is for a member of a cluster with a master broker")
        self._changes.reset()
        await self._flushed()
        return {}

    def _keeper(self, command: str) -> ChangeMaster:
        if not isinstance(self._changes, ChangeMaster):
            master = self.master.address or "none is configured"
            raise RequestRefusedError(f"{command} is for the master broker ({master})")
        return self._changes

    async def _flushed(self) -> None:
        assert self._live is not None, "a change record without a live"
        await self._live.engine.flushed()

    async def _begin(self, live: Live, recovered: Recovered) -> None:
        """Serve clients, or refuse them until the master is reached. Raises as ``Live.open``."""
        assert self.membership is not None, "a conventional cluster without a [cluster] section"
        self._changes = live.engine.changes = self._share_changes(live.engine, recovered)
        self._claims = live.server.claims = ClientClaims(self.membership, live.server.end_client)
        if self.master.is_own:
            _log.info("conventional: this broker is the master broker")
        if self._may_serve():
            await super()._begin(live, recovered)
            return
        live.server.admission = Suspension(self.master.address)
        assert isinstance(self._changes, ChangeMember), "only a member waits for the master"
        self._changes.on_looked = self._reached
        await live.open()
        if self._may_serve():
            self._resume(live)
        else:
            _log.info(
                "conventional: suspended: clients are refused until the master broker %s is reached",
                self.master.address,
            )
            self.become("suspended")

    def _end(self) -> None:
        if self._changes is not None:
            self._changes.stop()
        if self._claims is not None:
            self._claims.stop()

    def _share_changes(
        self, engine: Engine, recovered: Recovered
    ) -> ChangeMaster | ChangeMember | WithoutMaster:
        """Return the way in which changes of the whole cluster are made."""
        membership = self.membership
        assert membership is not None, "a conventional cluster without a [cluster] section"
        record = ChangeRecord(engine, recovered.records)
        if not self.master.is_configured:
            return WithoutMaster()
        if self.master.is_own:
            incarnation = f"{self.node_id}-{self.seams.random.getrandbits(48):012x}"
            return ChangeMaster(membership, engine, record, incarnation)
        return ChangeMember(membership, engine, record, self.master)

    def _may_serve(self) -> bool:
        return not isinstance(self._changes, ChangeMember) or self._changes.has_looked

    def _reached(self) -> None:
        if self.role == "suspended" and self._live is not None:
            _log.info("conventional: the master broker %s is reached", self.master.address)
            self._resume(self._live)

    def _resume(self, live: Live) -> None:
        """Take in clients from now on."""
        live.server.admission = None
        self.become("live")

    def use_store(self, store: OwnStore) -> None:
        """Keep the messages in a store in place of the disk."""
        self._store = store


class WithoutMaster:
    """The ``Changes`` of a broker without a master: destinations are its own (SUN)."""

    has_master = False

    async def request(self, kind: Kind, key: str, value: str | None) -> bool:
        """Refuse any change."""
        del kind, key, value
        raise ChangeRefusedError(
            "the cluster has no master broker (ha-policy.conventional.master-broker), so that no durable "
            "subscription can be made or dropped; those that exist can be used"
        )

    def views(self) -> dict[str, dict[str, str]]:
        """Return nothing: no two brokers need to agree."""
        return {}

    def details(self) -> dict[str, Any]:
        """Return nothing: there is no record."""
        return {}

    def stop(self) -> None:
        """Do nothing, because nothing was begun."""


class Suspension:
    """The ``Admission`` of a suspended broker: it refuses every client."""

    told = ""

    def __init__(self, master: str) -> None:
        self._master = master

    def redirect_for(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """Return why the client is refused; where it could go is not known."""
        del headers
        reason = (
            f"suspended: this broker has not reached its master broker {self._master} since it started; "
            "connect again later, or to another broker"
        )
        return reason, ""


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> ConventionalPolicy:
    """Return the policy; its messages are on its disk, or in a store of its own in a database.

    Its links are those of the broker list, and no message moves to another broker.
    """
    section, cluster = config.ha_policy.conventional, config.cluster
    assert section is not None, "the configuration has no table ha-policy.conventional"
    assert cluster is not None, "a conventional cluster without a [cluster] section"
    others = tuple(address for address in section.broker_list if address != cluster.connector)
    cluster = msgspec.structs.replace(
        cluster,
        static_connectors=others,
        allow_direct_connections_only=True,
        message_load_balancing="OFF",
    )
    policy = ConventionalPolicy(msgspec.structs.replace(config, cluster=cluster), seams, volume)
    if database is not None:
        from broker.policies.conventional.database import OwnDatabaseStore  # noqa: PLC0415 - a broker starts fast with what it needs

        policy.use_store(OwnDatabaseStore(config, seams, database))
    return policy
