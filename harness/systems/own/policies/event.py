"""The making of the events of our brokers' logs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.interface import Event


def event(meaning: str, line: str, *needs: tuple[str, ...], plays: str = "") -> Event:
    """Return an event; ``line`` is a pattern of the log line, the rest is as in ``Event``."""
    return Event(meaning, re.compile(line), needs, plays)


def needing(trait: str, events: Mapping[str, Event]) -> dict[str, Event]:
    """Return the same events, each of which also needs a trait of the cluster."""
    return {name: event._replace(needs=((trait,), *event.needs)) for name, event in events.items()}
