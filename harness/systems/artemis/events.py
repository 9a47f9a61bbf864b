"""The events in the logs of Artemis' brokers; only this module knows their wording.

The codes (AMQ221...) are the same in all releases of Artemis, the words are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.interface import Event

_LINES: Final[Mapping[str, tuple[str, str, tuple[tuple[str, ...], ...], str]]] = {
    "broker/served": ("a broker began to serve clients", "AMQ221(?:007|010): ", (), ""),
    "broker/stopped-cleanly": ("a broker ended as it was asked to", "AMQ221002: ", (), ""),
    "failover/taken": ("a backup became live", "AMQ221010: ", (("replication", "locks"),), "taker"),
    "sync/finished": ("a backup became up to date", "AMQ221024: ", (("replication",),), ""),
    "sync/snapshot-sent": ("a live sent its journal", "AMQ221025: ", (("replication",),), "source"),
    "replication/lost": ("a live lost its backup", "AMQ222092: ", (("replication",),), ""),
    # Lives and backups ask with the same words; a vote that was won shows which takes over.
    "vote/asked": ("a live or a backup asked for votes", "AMQ221066: ", (("replication",),), ""),
    "vote/won": ("a backup won its vote", "AMQ221071: ", (("replication",),), "taker"),
    "vote/live-lost": ("a live stopped itself for lack of votes", "AMQ221069: ", (("replication",),), ""),
    "vote/backup-lost": ("a backup gave up after all rounds", "AMQ221070: ", (("replication",),), ""),
    "journal/moved-aside": ("old data was moved aside for a copy", "AMQ222162: ", (("replication",),), ""),
    "lock/waited": ("a broker waited for the live lock", "AMQ221034: ", (("shared-store",),), ""),
    "lock/taken": ("a broker got the live lock", "AMQ221035: ", (("shared-store",),), ""),
    "cluster/link-lost": ("brokers lost each other", "AMQ2(?:12037|22095): ", (("several",),), ""),
    "cluster/linked": ("brokers found each other", "AMQ221027: ", (("several",),), ""),
}
"""Name -> (meaning, pattern of the log line, ``Event.needs``, ``Event.plays``)."""

EVENTS: Final[Mapping[str, Event]] = {
    name: Event(meaning, re.compile(line), needs, plays)
    for name, (meaning, line, needs, plays) in _LINES.items()
}
