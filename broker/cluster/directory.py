"""The news of the other brokers of the cluster, and which of them are live.

Why direct links decide: a broker counts as live here only while we have a link to it on which it
said so. What others tell of third brokers is where to find them, never that they are alive. A vote
must not rest on hearsay (a silent broker stays in a cached topology until its time-out).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.cluster.neighbours import Neighbours

_log = logging.getLogger(__name__)


class Directory:
    """The last news of each other broker, from itself or from others.

    ``own`` returns how this broker introduces itself at this moment.
    """

    def __init__(self, neighbours: Neighbours, own: Callable[[], m.Member]) -> None:
        self.known: dict[str, m.Member] = {}
        """The last news of each other broker, by name."""
        self.live_nodes_seen = 0
        """The most live node IDs that were seen at one time since this process started.

        It is the ``n`` of the quorum votes (17.3.3.1: the threshold does not shrink before a
        restart).
        """
        self._neighbours = neighbours
        self._own = own
        self._warned: set[tuple[str, int, int]] = set()

    def lives(self, *, accepted: bool = False) -> dict[str, tuple[m.Member, ClusterLink]]:
        """Return the other lives that we are linked with, by node ID, see ``Neighbours.linked``.

        Of two lives of one node ID, it has the one of the higher activation.
        """
        lives: dict[str, tuple[m.Member, ClusterLink]] = {}
        for member, link in self._neighbours.linked(accepted=accepted):
            node_id = member.node_id
            if node_id is not None and member.live:
                other = lives.get(node_id)
                if other is None or other[0].activation < member.activation:
                    lives[node_id] = (member, link)
        return lives

    def live_with(self, node_id: str) -> m.Member | None:
        """Return another broker that is live with that node ID, or about to be.

        It is known from that broker or from those linked with it. Of several, it is the one of the
        highest activation; None if there is none.
        """
        claims = [member for member in self.known.values() if member.node_id == node_id and member.claims]
        return max(claims, key=lambda member: (member.activation, member.name), default=None)

    def heir_of(self, node_id: str) -> m.Member | None:
        """Return a linked backup whose copy of that node ID's journal is up to date, or None.

        It may be live in a moment.
        """
        linked = self._neighbours.linked()
        return next((member for member, _ in linked if member.node_id == node_id and member.heir), None)

    def lives_of_group(self, group_name: str | None) -> list[m.Member]:
        """Return the live brokers of a group, newest activation first."""
        lives = [member for member in self.known.values() if member.live and member.group_name == group_name]
        return sorted(lives, key=lambda member: (-member.activation, member.name))

    def is_over(self, member: m.Member) -> bool:
        """Return whether another life of that broker shook hands with us later.

        Only a broker that is alive can shake hands. So a message from a life that had done so
        before was under way when that life ended. Numbers do not tell: they may come from a clock.
        Returns False for a broker that we are not linked with.
        """
        present = self._present(member.name)
        return present is not None and present.life != member.life

    def _present(self, name: str) -> m.Member | None:
        """Return what a broker said last, in the life of it that shook hands with us last."""
        members = (link.member for link in reversed(self._neighbours.links) if link.member is not None)
        return next((member for member in members if member.name == name), None)

    def learn(self, member: m.Member, *, direct: bool) -> None:
        """Take in news of a broker, and dial it; ``direct`` if they are from itself.

        What is told of a broker that may not be dialled would never be corrected, and is ignored.
        """
        if member.name == self._own().name or not (direct or self._neighbours.may_dial(member.connector)):
            return
        previous = self.known.get(member.name)
        if not self.is_over(member) and (
            previous is None
            or (previous.incarnation, previous.version) < (member.incarnation, member.version)
            or (direct and previous.incarnation != member.incarnation)
        ):
            self.known[member.name] = member
        # Do this even if others had told us before: their word that a broker is live does not
        # count.
        if direct:
            self._hear(member)
        self._neighbours.dial(member.connector, answers=direct)
        self._warn_of_duplicate(member)

    def _hear(self, member: m.Member) -> None:
        """Set the member of that life's links to the last news from it.

        News comes over one of two links between us, and may overtake what the broker had said
        before over the other.
        """
        links = [
            link
            for link in self._neighbours.links
            if link.member is not None and link.member.life == member.life
        ]
        heard = (member, self.known.get(member.name), *(link.member for link in links))
        latest = max(
            (words for words in heard if words is not None and words.life == member.life),
            key=lambda words: words.version,
        )
        for link in links:
            link.member = latest

    def link_closed(self, former: m.Member) -> None:
        """Take in what another life of a broker said, if it is the present one from now on.

        The link to ``former`` has closed. Its handshake may have been read after that of the
        present life.
        """
        present = self._present(former.name)
        if present is not None and present.life != former.life:
            self.learn(present, direct=True)

    def forget(self, leaving: m.Leaving) -> bool:
        """Forget a broker that has left; return False if what is known is of another life."""
        member = self.known.get(leaving.name)
        if member is None or member.incarnation != leaving.incarnation:
            return False
        del self.known[leaving.name]
        self._neighbours.forget(member.connector)
        _log.info("cluster: broker %s has left the cluster", leaving.name)
        return True

    def keep(self, connectors: Collection[str]) -> None:
        """Forget each broker with another connector than these."""
        for name in [member.name for member in self.known.values() if member.connector not in connectors]:
            del self.known[name]

    def review(self) -> None:
        """Count the live node IDs, and warn of duplicates, after something has changed."""
        own = self._own()
        nodes = set(self.lives())
        if own.live and own.node_id is not None:
            nodes.add(own.node_id)
        self.live_nodes_seen = max(self.live_nodes_seen, len(nodes))
        for member in self.known.values():
            self._warn_of_duplicate(member)

    def _warn_of_duplicate(self, member: m.Member) -> None:
        own = self._own()
        sign = (*member.life, member.activation)
        both_live = own.role == "live" and member.role == "live"
        if (
            not both_live
            or member.node_id != own.node_id
            or sign in self._warned
            or self._neighbours.link_to(member.name) is None
        ):
            return
        self._warned.add(sign)
        _log.warning(
            "duplicate node ID: %s is live under the node ID of this broker, %s (its activation is %d, this "
            "broker's %d); if both stay live, each on a store of its own, the two stores differ from now on",
            member.name,
            own.node_id,
            member.activation,
            own.activation,
        )
