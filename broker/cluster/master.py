"""The master broker of a conventional cluster (SUN), as one of its brokers sees it.

The master broker keeps the record of the cluster's changes. It is named by its address, so that a
broker knows which one is the master before it has reached it.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership


class MasterBroker:
    """The configured master broker, which may be this broker, another one, or none.

    ``address`` is the master's connector; "" for a cluster without a master broker. ``on_linked``
    are called with each link over which the master has accepted this broker, and ``on_unlinked``
    when that link has ended. Of a broker that is the master itself, neither is ever called.
    """

    def __init__(self, membership: Membership, address: str) -> None:
        self.address = address
        self.on_linked: list[Callable[[ClusterLink], None]] = []
        self.on_unlinked: list[Callable[[ClusterLink], None]] = []
        self._membership = membership
        self._link: ClusterLink | None = None
        if self.is_configured and not self.is_own:
            membership.on_change.append(self._look)
            membership.on_unlinked.append(self._closed)

    @property
    def is_configured(self) -> bool:
        """True if the cluster has a master broker."""
        return bool(self.address)

    @property
    def is_own(self) -> bool:
        """True if this broker is the master."""
        return self.address == self._membership.own.connector

    def link(self) -> ClusterLink | None:
        """Return the link to the master; None while there is none, or if it is this broker."""
        return self._link

    @property
    def life(self) -> tuple[str, int] | None:
        """The name and the incarnation of the master; None while it is not linked."""
        if self.is_own:
            return self._membership.own.life
        return None if self._link is None or self._link.member is None else self._link.member.life

    def _look(self) -> None:
        """Take the link that this broker has dialled, once the master has answered over it."""
        link = self._membership.neighbours.accepted_by(self.address)
        if link is not None and link is not self._link:
            self._link = link
            for observer in self.on_linked:
                observer(link)

    def _closed(self, link: ClusterLink) -> None:
        if link is self._link:
            self._link = None
            for observer in self.on_unlinked:
                observer(link)
