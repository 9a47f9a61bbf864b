"""The refuters of the rows about subscriptions across a fail-over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import Refuter

_ENGINE: Final = "broker/core/engine.py"

_DROP: Final = """\
        operations = self._ending(queue)
        return self.journal.append(operations) if operations else self.journal.last_sequence
"""

_UNDROPPED: Final = Refuter(
    without="a broker forgets a dropped subscription and its messages in memory, but not in its journal",
    fails="not-subscribed",
    changes=(
        Replacement(
            _ENGINE,
            _DROP,
            "        if queue.subscription is not None and queue.subscription.durable:\n"
            "            self._leave_out(queue)\n"
            "            return self.journal.last_sequence\n" + _DROP,
        ),
    ),
)

_UNMADE: Final = Refuter(
    without="the journal records each durable subscription as not durable",
    fails="lost",
    changes=(
        Replacement(
            _ENGINE,
            "encode_subscription(subscription))\n",
            "encode_subscription(type(subscription)(subscription.topic, subscription.name)))\n",
        ),
    ),
)

REFUTERS: Final[Mapping[str, Refuter]] = {
    f"DS{number}{case}": _UNMADE if case == "-partition" else _UNDROPPED
    for number in (1, 2, 3, 4)
    for case in ("", "-partition", "-stall")
}
