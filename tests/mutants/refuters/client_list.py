"""The refuters of the rows about clients with an address list: they change the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import Refuter, without

_FAILOVER: Final = "stomp_protocol/client/failover.py"
_ADDRESSES: Final = "stomp_protocol/client/addresses.py"
_STATES: Final = "a client of b1 passed through other states"

REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV12-priority": without(
        "a client goes on at the last broker of its list in place of the next one",
        _FAILOVER,
        "first + [broker for broker in self._candidates if",
        "first + [broker for broker in reversed(self._candidates) if",
        fails=_STATES,
    ),
    "CV12-random": without(
        "each new client begins with the first broker of the list",
        _ADDRESSES,
        "(self._chance or random.Random()).sample(first, len(first))",
        "first",
        fails="connections of clients were accepted by",
    ),
    "CV12-all-down": without(
        "a client does not wait for the reconnect interval before it goes round its list again",
        _FAILOVER,
        "        await asyncio.sleep(self._chance.uniform(least_s, most_s))\n",
        "        await asyncio.sleep(0.1)\n",
        fails=_STATES,
    ),
    "CV12-iterations": without(
        "a client ignores the bound on its iterations",
        _FAILOVER,
        "        rounds = self._rules.iterations\n",
        "        rounds = 0\n",
        fails="none of not-recovered",
    ),
}
