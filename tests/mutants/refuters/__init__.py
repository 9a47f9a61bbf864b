"""The refuters of all rows of the claims.

A row without one proves nothing, and a test names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters import (
    change_record,
    client_failover,
    client_list,
    clusters,
    conventional,
    ha_database,
    limits,
    membership,
    multi_instance,
    replication,
    shared_store,
    shared_store_database,
    subscriptions,
    topics,
    transactions,
)
from mutants.refuters.refuter import Refuter

REFUTERS: Final[Mapping[str, Refuter]] = {
    **replication.REFUTERS,
    **shared_store.REFUTERS,
    **shared_store_database.REFUTERS,
    **ha_database.REFUTERS,
    **multi_instance.REFUTERS,
    **transactions.REFUTERS,
    **subscriptions.REFUTERS,
    **clusters.REFUTERS,
    **membership.REFUTERS,
    **limits.REFUTERS,
    **conventional.REFUTERS,
    **client_failover.REFUTERS,
    **client_list.REFUTERS,
    **topics.REFUTERS,
    **change_record.REFUTERS,
}
"""The refuter of each scenario and probe, by its id."""
