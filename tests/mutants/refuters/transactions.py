"""The refuters of the rows about transactions across a fail-over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mutants.changed import Replacement
from mutants.refuters.refuter import Refuter

_IN_TWO: Final = Refuter(
    without="a commit writes its acknowledgements at once and its sends in another entry a second later",
    fails="torn-transaction",
    changes=(
        Replacement(
            "broker/core/engine.py",
            "        operations += self.paging.removals([one.message for one in transaction.acknowledged])\n",
            "        removals = self.paging.removals([one.message for one in transaction.acknowledged])\n",
        ),
        Replacement(
            "broker/core/engine.py",
            "        sequence = self._refuse(transaction.refused, operations, arrivals, done, "
            "transaction.given_up)\n",
            "        sequence = self._append(removals, None) if removals else self.journal.last_sequence\n"
            "        asyncio.get_running_loop().call_later(\n"
            "            1.0, self._refuse, transaction.refused, operations, arrivals, done,\n"
            "            transaction.given_up,\n"
            "        )\n",
        ),
    ),
)

REFUTERS: Final[Mapping[str, Refuter]] = {
    **{f"TX{number}{case}": _IN_TWO for number in (1, 2, 3, 4) for case in ("", "-partition", "-stall")},
    **{row: msgspec.structs.replace(_IN_TWO, fails="wrong-total") for row in ("TX5", "TX5-shared-store")},
}
