"""The policies by name: a new one is added here and in ``broker.ha_policy``.

Why by the names of modules: a broker that starts imports its own policy and no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.ha_policy import STANDALONE

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.policies.policy import BrokerPolicy
    from broker.seams import Seams
    from broker.storage.database import Database
    from broker.storage.volume import Volume


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """The module of a policy, and what ``brokerctl`` says of it.

    The module has ``create(config, seams, volume, database)``. ``messages_in`` is where the
    messages are if no backup has a copy of them; "" if backups have copies, or there are none.
    """

    module: str
    messages_in: str = ""


POLICIES: Final[Mapping[str, RegisteredPolicy]] = {
    STANDALONE: RegisteredPolicy("broker.policies.standalone"),
    "conventional": RegisteredPolicy("broker.policies.conventional.policy"),
    "replication": RegisteredPolicy("broker.policies.replication.policy"),
    "shared-store": RegisteredPolicy("broker.policies.shared_store.policy", "the shared store"),
    "ha-database": RegisteredPolicy("broker.policies.ha_database.policy", "the database"),
    "multi-instance": RegisteredPolicy("broker.policies.multi_instance.policy", "the shared store"),
}


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None = None
) -> BrokerPolicy:
    """Return the configured policy; ``volume`` is shared if its brokers share a directory."""
    module = importlib.import_module(POLICIES[config.ha_policy.name].module)
    policy: BrokerPolicy = module.create(config, seams, volume, database)
    return policy


def messages_in(name: str | None) -> str:
    """Return where messages are under the policy of that name, as in ``RegisteredPolicy``."""
    registered = POLICIES.get(name or "")
    return "" if registered is None else registered.messages_in
