"""The rule that a client which names itself has one connection in a conventional cluster.

A durable subscription belongs to a client, and a client has one connection, so that it has one
consumer, too. At one broker the acceptor ends the former connection. Here each broker tells those
that it is linked with which clients have connected, and these end the connections that came before.

Each connection is a *claim* with a number that is higher than all numbers that its broker has seen.
Of two claims of one client the higher holds, and of two equal ones that of the broker whose name is
higher: so both brokers end the same one. Brokers that are not linked know nothing of each other's
clients; when they are linked again, each tells all its claims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership
from broker.core.changes import NUMBER_MAX

Client = tuple[str, str]
"""The login and the ``client-id`` of a client that names itself."""

CLIENTS_MAX: Final = 1000
"""The most claims of one message."""


class ClientClaims:
    """The claims of a broker's clients, from its construction to ``stop``.

    ``end`` ends the connection of a client for the given reason.
    """

    def __init__(self, membership: Membership, end: Callable[[Client, str], None]) -> None:
        self._membership = membership
        self._end = end
        self._claims: dict[Client, int] = {}
        self._number = 0
        membership.handlers[m.ClientsClaimed] = self._take_claims
        membership.on_linked.append(self._greet)

    def stop(self) -> None:
        """Tell and hear nothing more."""
        self._membership.handlers.pop(m.ClientsClaimed, None)
        self._membership.on_linked.remove(self._greet)

    def claim(self, client: Client) -> None:
        """Note that a client has connected here, and tell the other brokers."""
        self._number = min(self._number + 1, NUMBER_MAX)  # a broken broker may have said any number
        self._claims[client] = self._number
        self._membership.neighbours.broadcast(m.ClientsClaimed(self._number, ((*client, self._number),)))

    def release(self, client: Client) -> None:
        """Note that a client has no connection here any more."""
        self._claims.pop(client, None)

    def _greet(self, link: ClusterLink) -> None:
        claims = [(*client, number) for client, number in self._claims.items()]
        for start in range(0, max(len(claims), 1), CLIENTS_MAX):
            link.send(m.ClientsClaimed(self._number, tuple(claims[start : start + CLIENTS_MAX])))

    def _take_claims(self, link: ClusterLink, message: m.ClientsClaimed) -> None:
        assert link.member is not None
        other, own = link.member.name, self._membership.own.name
        self._number = max(self._number, message.highest)
        for login, client_id, number in message.claims:
            client = login, client_id
            if client in self._claims and (number, other) > (self._claims[client], own):
                del self._claims[client]
                self._end(client, f"client-id {client_id[:64]!r} has connected to broker {other}")
