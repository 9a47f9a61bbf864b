"""The refuters of the rows about conventional clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import FORGETS, Refuter, begins_without, without

_SERVICE: Final = "broker/cluster/home_service.py"

REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV1": begins_without(
        FORGETS, "broker/policies/solo.py", "            node_id = self._node_id = ", broker="a broker"
    ),
    "CV2": Refuter(
        without="broker b1 keeps no message: it forwards each to another broker",
        fails="none of lost",
        changes=(
            Replacement(
                "broker/policies/conventional/policy.py",
                "        return HomeModel(self.membership)\n",
                "        from broker.cluster.balancing import Balancing\n\n"
                "        return Balancing(self.membership, node_id)\n",
            ),
            Replacement(
                "broker/cluster/balancing.py",
                '        if self._mode == "OFF":\n            return []\n',
                '        if self._mode == "OFF":\n'
                '            here = self._membership.own.name == "b1"\n'
                "            lives = sorted(self._membership.directory.lives())\n"
                "            return [(name, ()) for name in lives[:here]]\n",
            ),
        ),
    ),
    "CV15-cut": without(
        "a home that restarts gives messages out at once, whoever holds them",
        _SERVICE,
        "            engine.suspend()\n            over",
        "            over",
        fails="found double-delivery",
    ),
    "CV15-heard": without(
        "a home that restarts waits for the longest lease, whoever has greeted it",
        _SERVICE,
        "        self._expected.discard(link.member.connector)\n",
        "",
        fails="each other broker has shown that it holds none",
    ),
}
