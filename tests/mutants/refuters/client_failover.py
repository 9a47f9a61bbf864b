"""The refuters of the rows about clients that have a list of brokers.

Some change the client in ``stomp_protocol/client``: what the row promises is the client's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import Refuter, without

_FAILOVER: Final = "stomp_protocol/client/failover.py"
_ADDRESSES: Final = "stomp_protocol/client/addresses.py"
_TOPOLOGY: Final = "broker/cluster/topology.py"
_MORE: Final = "                    if not more:\n"
_CHOSEN: Final = "            if chosen:\n"
_RANDOM: Final = "(self._chance or random.Random()).sample(first, len(first))"
_ACCEPTED: Final = "connections of clients were accepted by"
_AGAIN: Final = "clients of a1 connected again"


def _knows(broker: str) -> tuple[str, str, str, str]:
    return (
        f"clients know {broker} although nobody has told them",
        _ADDRESSES,
        "        self._static = tuple(brokers)\n",
        f'        self._static = (*brokers, "{broker}")\n',
    )


REFUTERS: Final[Mapping[str, Refuter]] = {
    "CL13-kill": without(
        "the feed names the live where the backup's name belongs",
        _TOPOLOGY,
        '"backup": _shown(node.get("backup"))',
        '"backup": _shown(node.get("live"))',
        fails=_AGAIN,
    ),
    "CL13-unfed": without(*_knows("a2"), fails=_ACCEPTED),
    "CL13-cut": without(
        "a client tries each broker once, whatever its rules",
        _FAILOVER,
        _MORE,
        "                    if True:\n",
        fails=_AGAIN,
    ),
    "CL13-cut-long": without(
        "a client tries its broker without end",
        _FAILOVER,
        _MORE,
        "                    if False:\n",
        fails=_AGAIN,
    ),
    "CL13-handler": without(
        "a client does not follow its failure handler",
        _FAILOVER,
        _CHOSEN,
        "            if False:\n",
        fails=_AGAIN,
    ),
    "CL13-no-handler": without(
        "after a failure a client goes from the end of its list to the beginning",
        _FAILOVER,
        "first + [broker for broker in self._candidates if",
        "first + [broker for broker in reversed(self._candidates) if",
        fails=_AGAIN,
    ),
    "CL20-static": without(
        "each new client begins with the first broker of the list",
        _ADDRESSES,
        _RANDOM,
        "first",
        fails=_ACCEPTED,
    ),
    "CL20-priority": without(
        "PRIORITY is taken for ROUND_ROBIN",
        _ADDRESSES,
        '        if self._behavior == "PRIORITY":\n',
        "        if False:\n",
        fails=_ACCEPTED,
    ),
    "CL20-fed": without(
        "a broker does not tell its clients what has changed",
        "broker/core/feed.py",
        "        if value != self.value:\n",
        "        if self.value is None:\n",
        fails=_ACCEPTED,
    ),
    "CL20-unfed": without(*_knows("d1"), fails=_ACCEPTED),
}
