"""The refuters of the rows about clusters of brokers without backups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import Refuter, without

REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV11-apart": without(
        "brokers do not compare what their clusters have in common",
        "broker/cluster/link.py",
        "            if expected.get(name) != shared.get(name):\n",
        "            if False:\n",
        fails="messages were delivered by another broker",
    ),
    "CV11-together": without(
        "a broker keeps each message, whatever message-load-balancing is",
        "broker/cluster/balancing.py",
        '        if self._mode == "OFF":\n',
        "        if True:\n",
        fails="0 messages were delivered by another broker",
    ),
}
