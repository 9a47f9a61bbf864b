"""The members of the cluster, and the live brokers among them.

Members are learnt from any member (static discovery, AMQ 17.2.1).

Why direct links decide: a broker counts as live here only while we have a link to it on which it
said so. What others tell of third brokers is where to find them, never that they are alive. A vote
must not rest on hearsay (a silent broker stays in a cached topology until its time-out).

Every broker dials every other. Each tells all its links what has changed about itself, and tells a
newcomer whom it is linked with; a broker that is new to the listener is dialled. The largest number
of live node IDs seen at one time is remembered until this process ends: it is the ``n`` of the
quorum votes (17.3.3.1: the threshold does not shrink before a restart).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from broker.cluster import messages as m
from broker.cluster.incarnation import next_incarnation
from broker.cluster.link import ClusterLink, LinkError, Terms
from broker.cluster.peer import Peer
from broker.config import BrokerConfig
from broker.seams import Seams
from broker.section import ClusterSection
from broker.start_error import StartError
from broker.storage.volume import Volume
from broker.tls import Layer

_log = logging.getLogger(__name__)

STRANGERS_MAX: Final = 64
"""The most connections that have not proved who they are; beyond it, the oldest is closed."""

Handler = Callable[[ClusterLink, Any], None]


class Membership:
    """Our place in the cluster, from ``start`` to ``stop``.

    ``announce`` changes what others are told of us.

    ``handlers`` has the handler of each type of message from a member. ``on_change`` is called
    whenever a member, or a link to one, has come, gone or changed. ``on_replication`` gets links
    that a backup opened.
    """

    def __init__(self, config: BrokerConfig, section: ClusterSection, seams: Seams) -> None:
        role = config.replication
        self.section = section
        self.own = m.Member(
            name=config.broker.name,
            node_id=None,
            role="starting",
            connector=section.connector,
            stomp_connector=section.stomp_connector,
            group_name=role.group_name if role is not None else None,
            incarnation=0,
            version=0,
            activation=0,
        )
        self.terms = Terms(
            user=section.cluster_user,
            password=section.cluster_password,
            ttl_s=section.connection_ttl / 1000,
            check_period_s=section.check_period / 1000,
            call_timeout_s=section.call_timeout / 1000,
            nonce=seams.nonce,
            tls=Layer.of(section, config, "cluster"),
            member=lambda: self.own,
            shared={"cluster.name": section.name, **config.ha_policy.shared},
        )
        self.handlers: dict[type[m.LinkMessage], Handler] = {}
        self.on_change: list[Callable[[], None]] = []
        self.on_linked: list[Callable[[ClusterLink], None]] = []
        """Called with each new cluster link, whoever dialled, to tell newcomers what they need."""
        self.on_replication: Callable[[ClusterLink], None] = lambda link: link.refuse(
            "this broker takes no backup"
        )
        self.live_nodes_seen = 0
        """The most live node IDs that were seen at one time since this process started."""
        self.known: dict[str, m.Member] = {}
        """The last news of each other broker, from itself or from others, by name."""
        self._seams = seams
        self._peers: dict[str, Peer] = {}
        self._open: dict[ClusterLink, None] = {}
        """The links with members, whoever dialled, in the order in which they were opened."""
        self._probed: dict[ClusterLink, None] = {}
        self._unproved: list[ClusterLink] = []
        self._listener: asyncio.Server | None = None
        self._warned: set[tuple[str, int, int]] = set()
        self._stopped = False

    # ----------------------------------------------------------------------------------------- life

    async def start(self, volume: Volume | None = None) -> None:
        """Take the next incarnation number, listen, and dial the static connectors.

        Raises StartError when it cannot listen at the address.

        ``volume`` is this broker's own; None if it has none.
        """
        section = self.section
        try:
            incarnation = await next_incarnation(volume, self._seams)
        except OSError as error:
            raise StartError(
                f"the incarnation number cannot be kept in the data directory: {error}"
            ) from None
        self.own = msgspec.structs.replace(self.own, incarnation=incarnation)
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._take_in, section.host, section.port
            )
        except OSError as error:
            raise StartError(
                f"cluster address {section.host}:{section.port} cannot listen: {error.strerror or error};"
                " is another broker running there? (cluster.port)"
            ) from None
        for address in section.static_connectors:
            self._dial(address)

    def _take_in(self) -> asyncio.Protocol:
        self._unproved = [one for one in self._unproved if not (one.is_open or one.closed)]
        if len(self._unproved) >= STRANGERS_MAX:
            self._unproved.pop(0).give_way(f"more than {STRANGERS_MAX} connections without a proof")
        link = ClusterLink(self.terms, None, on_open=self._accept)
        self._unproved.append(link)
        tls = self.terms.tls
        return link if tls is None else tls.accepting(link, self.terms.strangers, "cluster")

    @property
    def port(self) -> int:
        """The port on which it listens, which matters if the configuration says port 0."""
        assert self._listener is not None, "membership has not been started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Say goodbye and close every link."""
        if self._stopped:
            return
        self._stopped = True
        self.broadcast(m.Leaving(self.own.name, self.own.incarnation))
        if self._listener is not None:
            self._listener.close()
        peers = list(dict.fromkeys(self._peers.values()))
        self._peers.clear()
        for peer in peers:
            await peer.stop()
        for link in [*self._open, *self._probed]:
            link.close("stopping")

    async def settled(self, timeout_s: float) -> None:
        """Return when each known address was tried once, or after the time-out.

        Then everything that the known brokers can tell is known.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while untried := [peer for peer in self._peers.values() if not peer.tried.is_set()]:
                    await untried[0].tried.wait()
        except TimeoutError:
            _log.info("cluster: not every known broker answered within %g s", timeout_s)

    def meet(self, address: str) -> None:
        """Dial a broker whose address another broker has told us."""
        self._dial(address)

    # ---------------------------------------------------------------------------------- what we say

    def announce(self, **changes: Any) -> None:
        """Change what we say of ourselves, and tell every link.

        The changes may be role, node_id, activation, live and heir.

        ``live`` follows from the role if it is not given: only a live that votes has to give it.
        ``heir`` ends with the role with which it was given.
        """
        if "role" in changes:
            changes.setdefault("live", changes["role"] == "live")
            changes.setdefault("heir", False)
        own = msgspec.structs.replace(self.own, **changes)
        if own != self.own:
            self.own = msgspec.structs.replace(own, version=self.own.version + 1)
            self.broadcast(m.Members((self.own,)))
            self._changed()

    def broadcast(self, message: m.LinkMessage) -> None:
        """Tell every member we are linked with, once each."""
        told: set[str] = set()
        for link in self._links():
            if link.member is not None and link.member.name not in told:
                told.add(link.member.name)
                link.send(message)

    # --------------------------------------------------------------------------------- what we know

    def linked(self) -> Iterator[tuple[m.Member, ClusterLink]]:
        """Yield the members that we have dialled and are linked with, by name."""
        found = {}
        for peer in self._peers.values():
            link = peer.link
            if link is not None and link.is_open and link.member is not None:
                found[link.member.name] = (link.member, link)
        for name in sorted(found):
            yield found[name]

    def lives(self) -> dict[str, tuple[m.Member, ClusterLink]]:
        """Return the other lives that we are linked with, by node ID.

        Of two lives of one node ID, it has the one of the higher activation.
        """
        found: dict[str, tuple[m.Member, ClusterLink]] = {}
        for member, link in self.linked():
            node_id = member.node_id
            if node_id is not None and member.live:
                other = found.get(node_id)
                if other is None or other[0].activation < member.activation:
                    found[node_id] = (member, link)
        return found

    def live_with(self, node_id: str) -> m.Member | None:
        """Return another broker that is live with that node ID, or about to be.

        It is known from that broker or from those linked with it. Of several, it is the one of the
        highest activation; None if there is none.
        """
        claims = [
            member
            for member in self.known.values()
            if member.node_id == node_id and member.claims and member.name != self.own.name
        ]
        return max(claims, key=lambda member: (member.activation, member.name), default=None)

    def heir_of(self, node_id: str) -> m.Member | None:
        """Return a linked backup whose copy of that node ID's journal is up to date, or None.

        It may be live in a moment.
        """
        return next(
            (member for member, _ in self.linked() if member.node_id == node_id and member.heir), None
        )

    def lives_of_group(self, group_name: str | None) -> list[m.Member]:
        """Return the live brokers of a group, newest activation first."""
        found = [
            member
            for member in self.known.values()
            if member.live and member.group_name == group_name and member.name != self.own.name
        ]
        return sorted(found, key=lambda member: (-member.activation, member.name))

    def link_to(self, name: str) -> ClusterLink | None:
        """Return the link that we dialled to a broker, if it is open."""
        return next((link for member, link in self.linked() if member.name == name), None)

    def is_over(self, member: m.Member) -> bool:
        """Return whether another life of that broker shook hands with us later.

        Only a broker that is alive can shake hands. So a message from a life that had done so
        before was under way when that life ended. Numbers do not tell: they may come from a clock.
        Returns False for a broker that we are not linked with.
        """
        present = self._present(member.name)
        return present is not None and not _same_life(present, member)

    # --------------------------------------------------------------------------------------- inside

    def _links(self) -> Iterator[ClusterLink]:
        for peer in dict.fromkeys(self._peers.values()):
            if peer.link is not None and peer.link.is_open:
                yield peer.link
        yield from [link for link in self._open if not link.connecting]

    def _dial(self, address: str) -> None:
        if address not in self._peers and address != self.own.connector and not self._stopped:
            self._peers[address] = Peer(address, self.terms, self.section, self._seams, self._dialled)

    def _dialled(self, peer: Peer, link: ClusterLink) -> None:
        member = link.member
        assert member is not None
        if member.name == self.own.name and member.incarnation == self.own.incarnation:
            peer.retire()  # The address is a static connector that leads to ourselves.
            return
        known = self._peers.setdefault(member.connector, peer)
        if known is not peer and peer.address != member.connector:
            peer.retire()  # The address is another name for a broker that is dialled under its own.
            return
        link.on_message = lambda message: self._first(peer, link, message)
        link.on_closed = lambda reason: self._lost(link, reason)
        _log.info("cluster: linked with %s (%s)", member.name, member.role)
        self._meet(link, member)

    def _accept(self, link: ClusterLink) -> None:
        member = link.member
        assert member is not None
        if link.purpose == "probe":
            self._probed[link] = None
            link.on_closed = lambda _: self._probed.pop(link, None)
        elif link.purpose == "replication":
            self.on_replication(link)
        else:
            link.on_message = lambda message: self._take(link, message)
            link.on_closed = lambda _: self._closed(link)
            dialled = self.link_to(member.name)
            if dialled is not None and not _same_life(dialled.member, member):
                # The broker that answers there now shows which of the two lives goes on.
                dialled.abort(f"{member.name} has begun another life")
            link.send(m.Members((self.own, *(known for known, _ in self.linked()))))
            self._meet(link, member)

    def _meet(self, link: ClusterLink, member: m.Member) -> None:
        self._open[link] = None
        self._learn(member, direct=True)
        for greet in self.on_linked:
            greet(link)
        self._changed()

    def _lost(self, link: ClusterLink, reason: str) -> None:
        _log.info("cluster: link with %s lost: %s", link.peer, reason)
        self._closed(link)
        self._changed()

    def _closed(self, link: ClusterLink) -> None:
        """Take in what another life said, if it is the present one from now on.

        The handshake of a former life may have been read after that of the present one.
        """
        del self._open[link]
        closed = link.member
        assert closed is not None
        present = self._present(closed.name)
        if present is not None and not _same_life(present, closed):
            self._learn(present, direct=True)

    def _present(self, name: str) -> m.Member | None:
        """Return what a broker said last, in the life of it that shook hands with us last."""
        members = (link.member for link in reversed(self._open) if link.member is not None)
        return next((member for member in members if member.name == name), None)

    def _first(self, peer: Peer, link: ClusterLink, message: m.LinkMessage) -> None:
        """Take the other side's first message, its members; then the address has been tried."""
        self._take(link, message)
        if isinstance(message, m.Members):
            peer.tried.set()
            if link.is_open:
                link.on_message = lambda message: self._take(link, message)

    def _take(self, link: ClusterLink, message: m.LinkMessage) -> None:
        if isinstance(message, m.Members):
            for member in message.members:
                direct = link.member is not None and member.name == link.member.name
                self._learn(member, direct=direct)
            self._changed()
        elif isinstance(message, m.Leaving):
            self._forget(message)
        else:
            handler = self.handlers.get(type(message))
            if handler is not None:
                handler(link, message)

    def _learn(self, member: m.Member, *, direct: bool) -> None:
        """Take in news of a broker; ``direct`` if they are from itself."""
        if member.name == self.own.name:
            return
        known = self.known.get(member.name)
        if not self.is_over(member) and (
            known is None
            or (known.incarnation, known.version) < (member.incarnation, member.version)
            or (direct and known.incarnation != member.incarnation)
        ):
            self.known[member.name] = member
        # Do this even if others had told us before: their word that a broker is live does not
        # count.
        if direct:
            self._hear(member)
        peer = self._peers.get(member.connector)
        if peer is None:
            self._dial(member.connector)
        elif direct:
            peer.hurry()
        self._warn_of_duplicate(member)

    def _hear(self, member: m.Member) -> None:
        """Set the member of that life's links to the last news from it.

        News comes over one of two links between us, and may overtake what the broker had said
        before over the other.
        """
        links = [link for link in self._open if _same_life(link.member, member)]
        heard = (member, self.known.get(member.name), *(link.member for link in links))
        latest = max(
            (words for words in heard if words is not None and _same_life(words, member)),
            key=lambda words: words.version,
        )
        for link in links:
            link.member = latest

    def _warn_of_duplicate(self, member: m.Member) -> None:
        own = self.own
        sign = (member.name, member.incarnation, member.activation)
        both_live = own.role == "live" and member.role == "live"
        if (
            not both_live
            or member.node_id != own.node_id
            or sign in self._warned
            or self.link_to(member.name) is None
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

    def _forget(self, leaving: m.Leaving) -> None:
        member = self.known.get(leaving.name)
        if member is None or member.incarnation != leaving.incarnation:
            return
        del self.known[leaving.name]
        if member.connector not in self.section.static_connectors:
            gone = self._peers.pop(member.connector, None)
            if gone is not None and gone.address not in self.section.static_connectors:
                gone.retire()
        _log.info("cluster: broker %s has left the cluster", leaving.name)
        self._changed()

    def _changed(self) -> None:
        nodes = set(self.lives())
        if self.own.live and self.own.node_id is not None:
            nodes.add(self.own.node_id)
        self.live_nodes_seen = max(self.live_nodes_seen, len(nodes))
        if self.own.live:
            for member in list(self.known.values()):
                self._warn_of_duplicate(member)
        for observer in self.on_change:
            observer()


def _same_life(other: m.Member | None, member: m.Member) -> bool:
    return other is not None and (other.name, other.incarnation) == (member.name, member.incarnation)


__all__ = ["LinkError", "Membership"]
