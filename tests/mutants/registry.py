"""All mutants by name, and those that wait for a feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.mutant import Mutant, Waiting
from mutants.parts import (
    clients,
    conventional,
    discovery,
    forwarding,
    groups,
    ha_database,
    journal,
    messages,
    multi_instance,
    paging,
    redistribution,
    refusals,
    replication,
    routes,
    shared_store,
    store_database,
    temporaries,
    topics,
    transactions,
    votes,
)

MUTANTS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant
    for part in (
        journal,
        replication,
        votes,
        groups,
        forwarding,
        redistribution,
        routes,
        discovery,
        clients,
        shared_store,
        store_database,
        multi_instance,
        ha_database,
        paging,
        messages,
        transactions,
        temporaries,
        topics,
        refusals,
        conventional,
    )
    for mutant in part.MUTANTS
}

WAITING: Final = (
    Waiting(
        "scale-down-crash-between-copy-and-acknowledgement",
        "Artemis: scale-down sends copies and acknowledges originals in batches",
        "there is no scale-down yet; bridges copy and then acknowledge in the same way",
        "copied-again-after-a-crash",
    ),
    Waiting(
        "grouping-time-out-routes-anyway",
        "Artemis: ten tries for a grouping decision, then the message is routed without one",
        "there is no clustered grouping handler yet; a message with a group is never forwarded",
        "group-routed-without-a-decision",
    ),
    Waiting(
        "half-open-link-kept",
        "openmq 223",
        "a link over which nothing comes is ended by the lease of messages, too, and what is left of it "
        "ends when the network is back; no search draws a cut that lasts to the end of the test",
        "interest-of-a-dead-broker-kept",
    ),
    Waiting(
        "subscription-made-twice-at-two-brokers",
        "own",
        "it needs two clients that ask for one subscription at two brokers at one moment, and clients that "
        "use any broker have groups at several homes, whose order is not promised",
        "changes-told-out-of-order",
    ),
)
