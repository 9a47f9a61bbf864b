"""Our policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.systems.own.policies.conventional import Conventional
from harness.systems.own.policies.ha_database import HaDatabase
from harness.systems.own.policies.multi_instance import MultiInstance
from harness.systems.own.policies.policy import Policy
from harness.systems.own.policies.replication import Replication
from harness.systems.own.policies.shared_store import SharedStore
from harness.systems.own.policies.standalone import Standalone

POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (Replication(), SharedStore(), HaDatabase(), MultiInstance(), Standalone(), Conventional())
}
