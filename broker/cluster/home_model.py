"""The home model of a conventional cluster: messages stay, and consumers at all brokers get them.

Each broker plays two parts: a home for the messages that it took (``home_service``), and a host
for the consumers of its clients, which get the messages of all homes (``homes``). Here they are put
together, with the feed of the topology for clients.
"""

from __future__ import annotations

from broker.cluster.home_service import HomeService
from broker.cluster.homes import LinkedHomes
from broker.cluster.membership import Membership
from broker.cluster.topology import DESTINATION, encoded
from broker.cluster.transaction_links import TransactionLinks
from broker.core.engine import Engine
from broker.core.feed import WatchedValue
from broker.core.message import Message


class HomeModel:
    """The ``Router`` of a broker of a conventional cluster, from ``attach`` to ``detach``."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._homes: LinkedHomes | None = None
        self._service: HomeService | None = None
        self._transactions: TransactionLinks | None = None

    def attach(self, engine: Engine) -> None:
        """Begin, with an engine that serves no clients yet."""
        membership = self._membership
        section = membership.section
        lease_s = section.connection_ttl / 1000
        self._service = HomeService(membership, engine, lease_s)
        self._transactions = TransactionLinks(membership, engine, section.call_timeout / 1000)
        self._homes = LinkedHomes(membership, engine, self._service, self._transactions.coordinator, lease_s)
        engine.feeds[DESTINATION] = WatchedValue()
        membership.on_change.append(self._publish)
        self._publish()

    def detach(self) -> None:
        """Serve no other broker any more, and consume nothing there."""
        for each in (self._homes, self._service, self._transactions):
            if each is not None:
                each.stop()
        if self._homes is not None:
            self._membership.on_change.remove(self._publish)
        self._homes = self._service = self._transactions = None

    def route(self, queue: str, message: Message) -> str | None:
        """Return None: every message stays here."""
        del queue, message
        return None

    def forwards_to(self, node_id: str) -> bool:
        """Return whether a reply for that node can be kept here: its broker gets it from here."""
        return self._homes is not None and self._homes.knows(node_id)

    def _publish(self) -> None:
        engine = None if self._homes is None else self._homes.engine
        if engine is not None and not engine.abandoned:
            engine.feeds[DESTINATION].publish(encoded(self._membership))
