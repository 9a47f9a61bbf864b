"""All mutants by name, and those that wait for a feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.mutant import Mutant, Waiting
from mutants.parts import clients, forwarding, groups, journal, replication, votes

MUTANTS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant
    for part in (journal, replication, votes, groups, forwarding, clients)
    for mutant in part.MUTANTS
}

NOT_FOUND: Final[Mapping[str, str]] = {
    "copy-trusted-too-early": (
        "a live must be cut off in the few hundred milliseconds in which its backup's copy is complete and not yet trusted: no fault is drawn to meet"
        " a synchronisation"
    ),
    "lease-ignored": (
        "a second guard hides it: receipts wait for the backup all the same until the connection is given up, and the two lives overlap for less than the"
        " monitor can prove; only schedules with a dozen faults showed a duplicate, which may be the late arrival of an earlier dispatch"
    ),
    "torn-record-accepted": (
        "the power must fail during one write of several entries, and the tear must spare the head of an entry: two kinds of faults that take turns"
        " seldom meet so closely"
    ),
}
"""Mutants that the search has not found within its budget, and why as far as is known: work for the search, not excuses for it."""

WAITING: Final = (
    Waiting(
        "check-then-insert-fencing",
        "openmq: message inserts of a zombie are fenced by select-then-insert only",
        "the HA database does not exist yet, so nothing is fenced by a row",
        "takeover-not-noticed-after-a-pause",
    ),
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
)
