"""The events in the logs of Classic's brokers; only this module knows their wording."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.interface import Event

_LINES: Final[Mapping[str, tuple[str, str, tuple[tuple[str, ...], ...], str]]] = {
    "broker/served": ("a broker began to serve clients", r"Apache ActiveMQ \S+ \(.*\) started", (), ""),
    "broker/stopped-cleanly": ("a broker ended", r"Apache ActiveMQ \S+ \(.*\) is shutdown", (), ""),
    "broker/began-anew": ("a broker gave up and begins anew", "Restarting broker", (), ""),
    "lock/waited": ("a broker waits for the lock", "slave mode waiting a lock|ttempting to acquire .*exclus",
                    (("shared-store", "locks"),), ""),
    "lock/taken": ("a broker got the lock", "Becoming the master|becoming master with lease",
                   (("locks",),), "taker"),
    "lock/lost": ("a broker noticed that the lock is no longer its own",
                  "no longer able to keep the exclusive lock", (("shared-store", "locks"),), ""),
    "store/failed": ("a broker could not use its store", "due to exception,|due to IO exception,", (), ""),
    "cluster/linked": ("brokers found each other", "Network connection between .* has been established",
                       (("several",),), ""),
    "cluster/link-lost": ("brokers lost each other", "Network connection between .* shutdown due to a remote",
                          (("several",),), ""),
}  # fmt: skip
"""Name -> (meaning, pattern of the log line, ``Event.needs``, ``Event.plays``)."""

EVENTS: Final[Mapping[str, Event]] = {
    name: Event(meaning, re.compile(line), needs, plays)
    for name, (meaning, line, needs, plays) in _LINES.items()
}
