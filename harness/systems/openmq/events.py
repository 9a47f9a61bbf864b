"""The events in the logs of Open MQ's brokers; only this module knows their wording."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.interface import Event

_LINES: Final[Mapping[str, tuple[str, str, tuple[tuple[str, ...], ...], str]]] = {
    "broker/served": ("a broker began to serve clients", r"\[B1039\]", (), ""),
    "broker/stopped-cleanly": ("a broker ended as it was asked to", r"\[B1048\]", (), ""),
    "broker/began-anew": ("a broker was taken over, and begins anew", r"\[B3(?:186|187|203)\]",
                          (("members",),), ""),
    "master/waited": ("a broker waits for the master broker", r"\[B(?:1073|2061|1262)\]",
                      (("several",),), ""),
    "member/suspected": ("a broker suspects another", r"\[B1182\]", (("members",),), ""),
    "member/takeover-begun": ("a broker begins to take over another", r"\[B1216\]", (("members",),), "taker"),
    "member/takeover-locked": ("a broker has the lock on what another had, and goes on to take it over",
                               r"\[B1168\]", (("members",),), "taker"),
    "member/taken-over": ("a broker has taken over another", r"\[B1223\]", (("members",),), ""),
}  # fmt: skip
"""Name -> (meaning, pattern of the log line, ``Event.needs``, ``Event.plays``)."""

EVENTS: Final[Mapping[str, Event]] = {
    name: Event(meaning, re.compile(line), needs, plays)
    for name, (meaning, line, needs, plays) in _LINES.items()
}
