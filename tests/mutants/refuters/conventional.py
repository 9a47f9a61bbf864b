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
    "CV16": without(
        "the client of a transaction over several brokers is answered before its decision is durable",
        "broker/cluster/coordinator.py",
        "        sequence = engine.commit(transaction, decided, decision)\n",
        "        if done is not None:\n"
        "            engine.gate.when_durable(0, done)\n"
        "            done = None\n"
        "        sequence = engine.commit(transaction, decided, decision)\n",
        fails="lost",
    ),
    "CV16-stays": Refuter(
        without="a broker that loses another one stands still until one is back",
        fails="answers and deliveries meanwhile",
        changes=(
            Replacement(
                "broker/cluster/homes.py",
                "        del self._homes[home.link]\n",
                "        del self._homes[home.link]\n        self.engine.gate.hold()\n",
            ),
            Replacement(
                "broker/cluster/homes.py",
                "            home = self._homes[link] = Home(",
                "            self.engine.gate.release()\n            home = self._homes[link] = Home(",
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
