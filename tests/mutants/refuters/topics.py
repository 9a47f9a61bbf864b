"""The refuters of the rows about topics whose subscribers are at another broker, row CL19."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import FORGETS, Refuter, begins_without, without

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
    "CL19-one": begins_without(
        FORGETS, "broker/policies/solo.py", "            node_id = self._node_id = ", broker="a broker"
    ),
}
