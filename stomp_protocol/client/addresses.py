"""The brokers that the clients of a program know, and the order in which a new client tries them.

Why one list for several clients: each connection is to go to another broker of the list, and a
client that starts later profits from what an earlier one has learnt of the cluster.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final, Literal, get_args

from stomp_protocol.client.feed import FedNode

Behavior = Literal["PRIORITY", "RANDOM", "ROUND_ROBIN"]
"""The order in which new clients try brokers.

PRIORITY: as listed. RANDOM: in a random order. ROUND_ROBIN: as listed, each client from the next
broker on.
"""
BEHAVIORS: Final[tuple[Behavior, ...]] = get_args(Behavior)


class AddressList:
    """The names of brokers, such as "host:port", that clients know from the beginning or by a feed.

    Args:
        brokers: the static list; it must not be empty.
        behavior: the order in which a new client tries brokers.
        chance: the generator of a random order.
        grows: whether a feed, a redirection or a failure handler may add brokers to the list.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        behavior: Behavior = "PRIORITY",
        *,
        chance: random.Random | None = None,
        grows: bool = True,
    ) -> None:
        if not brokers:
            raise ValueError("an address list needs at least one broker")
        if isinstance(brokers, str):
            raise TypeError(f"{brokers!r} is one text; expected a list of brokers")
        if behavior not in BEHAVIORS:
            raise ValueError(f"{behavior!r} is no behavior: {', '.join(BEHAVIORS)}")
        self._static = tuple(brokers)
        self._behavior = behavior
        self._chance = chance
        self._grows = grows
        self._fed: Sequence[FedNode] = ()
        self._turns = itertools.count()

    def learn(self, nodes: Sequence[FedNode]) -> None:
        """Take the latest message of the feed, which replaces the one before."""
        self._fed = nodes

    @property
    def named(self) -> Sequence[str]:
        """The static list, and behind it the brokers that the latest message of the feed names."""
        fed = itertools.chain.from_iterable((node.live, node.backup) for node in self._fed)
        return [*dict.fromkeys((*self._static, *self._allowed(list(fed))))]

    def knows(self, broker: str) -> bool:
        """Return whether clients may connect to a broker."""
        return self._grows or broker in self._static

    def order(self) -> list[str]:
        """Return all brokers in the order in which a new client tries them.

        Where live brokers are known, RANDOM and ROUND_ROBIN choose among these, and the others come
        last.
        """
        lives = self._allowed([node.live for node in self._fed])
        backups = self._allowed([node.backup for node in self._fed])
        if self._behavior == "PRIORITY":
            return [*dict.fromkeys((*self._static, *lives, *backups))]
        first = lives or self._static
        if self._behavior == "RANDOM":
            first = (self._chance or random.Random()).sample(first, len(first))
        else:
            turn = next(self._turns) % len(first)
            first = [*first[turn:], *first[:turn]]
        return [*dict.fromkeys((*first, *self._static, *backups))]

    def order_after(self, broker: str) -> list[str]:
        """Return the brokers that a feed names, for a client that loses its connection to one.

        The broker itself comes first, then its backup, all lives, and all backups. So a broker that
        is still live is tried a second time. A list that does not grow may have the brokers of one
        pair only: there is no other live before which the backup must come.
        """
        successors = [node.backup for node in self._fed if node.live == broker and self._grows]
        lives = [node.live for node in self._fed]
        backups = [node.backup for node in self._fed]
        return self._allowed([broker, *successors, *lives, *backups])

    def _allowed(self, brokers: Sequence[str | None]) -> list[str]:
        return [broker for broker in brokers if broker and self.knows(broker)]
