"""The policy of a broker of a conventional cluster (SUN): live alone, on a store of its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from broker.cluster.home_model import HomeModel
from broker.config import BrokerConfig
from broker.policies.solo import SoloPolicy
from broker.seams import Seams
from broker.storage.database import Database
from broker.storage.volume import Volume


class ConventionalPolicy(SoloPolicy):
    """The policy "conventional"."""

    name = "conventional"

    async def _join(self, node_id: str) -> HomeModel:
        """Take our place in the cluster; see ``SoloPolicy``."""
        assert self.membership is not None, "a conventional cluster without a [cluster] section"
        await self.membership.start(self._volume)
        self.membership.announce(node_id=node_id)
        return HomeModel(self.membership)


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> ConventionalPolicy:
    """Return the policy; it needs no database.

    Its links are those of the broker list, and no message moves to another broker.
    """
    del database
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
    return ConventionalPolicy(msgspec.structs.replace(config, cluster=cluster), seams, volume)
