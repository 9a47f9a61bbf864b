"""Our policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.systems.policies.ha_database import HaDatabase
from harness.systems.policies.multi_instance import MultiInstance
from harness.systems.policies.policy import Policy
from harness.systems.policies.replication import Replication
from harness.systems.policies.shared_store import SharedStore
from harness.systems.policies.standalone import Standalone

POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (Replication(), SharedStore(), HaDatabase(), MultiInstance(), Standalone())
}
