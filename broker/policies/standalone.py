"""The policy of a broker without a backup and without a table below [ha-policy]."""

from __future__ import annotations

from collections.abc import Callable

from broker.config import BrokerConfig
from broker.ha_policy import STANDALONE
from broker.policies.solo import SoloPolicy
from broker.seams import Seams
from broker.storage.database import Database
from broker.storage.volume import Volume


class StandalonePolicy(SoloPolicy):
    """The policy "standalone"."""

    name = STANDALONE


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> StandalonePolicy:
    """Return the policy; it needs no database."""
    del database
    return StandalonePolicy(config, seams, volume)
