"""The refuters of the rows about topics and replies across brokers, row CL19."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import FORGETS, Refuter, begins_without, without

_FORGETS: Final = begins_without(
    FORGETS, "broker/policies/solo.py", "            node_id = self._node_id = ", broker="a broker"
)
REFUTERS: Final[Mapping[str, Refuter]] = {
    "CL19-topics": without(
        "a broker keeps nothing for the durable subscriptions of a broker that it cannot reach",
        "broker/core/interests.py",
        "                one.interest = Interest(one.interest.durable)\n",
        "                one.interest = Interest()\n",
        fails="found lost",
    ),
    "CL19-kill": without(
        "a broker that starts knows no subscriptions at other brokers",
        "broker/core/recovery.py",
        "            image.interests.append((record.id, decode_interest(record.data)))\n",
        "            continue\n",
        fails="found lost",
    ),
    "CL19-one": _FORGETS,
    "CL19-replies": without(
        "a broker that starts drops what it keeps for other brokers, as it drops temporary queues",
        "broker/core/recovery.py",
        "            if name.startswith(TEMPORARY_PREFIX) and not keeps(name):\n",
        "            if name.startswith(TEMPORARY_PREFIX) or is_store_and_forward(name):\n",
        fails="found lost",
    ),
    "CL19-replies-one": _FORGETS,
}
