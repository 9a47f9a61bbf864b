"""The place of a broker in its cluster: what it says of itself, and what it hears from others.

Members are learnt from any member (AMQ 17.2.1), the first ones from the static connectors or from a
discovery group. Each broker tells all its links what has changed about itself, and tells a newcomer
whom it is linked with. The newcomer dials the brokers that are new to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from broker.cluster import messages as m
from broker.cluster.directory import Directory
from broker.cluster.groups import Groups
from broker.cluster.incarnation import next_incarnation
from broker.cluster.link import ClusterLink
from broker.cluster.neighbours import Neighbours
from broker.config import BrokerConfig
from broker.seams import Seams
from broker.section import ClusterSection
from broker.start_error import StartError
from broker.storage.volume import Volume

Handler = Callable[[ClusterLink, Any], None]


class Membership:
    """Our place in the cluster, from ``start`` to ``stop``.

    ``announce`` changes what others are told of us.

    ``handlers`` has the handler of each type of message from a member. ``on_change`` is called
    whenever a member, or a link to one, has come, gone or changed.
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
            newest=m.VERSION,
        )
        self.neighbours = Neighbours(config, section, seams, lambda: self.own)
        self.neighbours.on_open = self._opened
        self.neighbours.on_message = self._take
        self.neighbours.on_closed = self._closed
        self.directory = Directory(self.neighbours, lambda: self.own)
        groups = Groups(config, section, seams, lambda: self.own)
        self._broadcasters = groups.broadcasters()
        self.discovery = groups.discovery(self.neighbours)
        self.handlers: dict[type[m.LinkMessage], Handler] = {}
        self.on_change: list[Callable[[], None]] = []
        self.on_linked: list[Callable[[ClusterLink], None]] = []
        """Called with each new cluster link, whoever dialled, to tell newcomers what they need."""
        self.on_unlinked: list[Callable[[ClusterLink], None]] = []
        """Called with each cluster link that has ended, whoever dialled."""
        self.on_leaving: list[Callable[[m.Leaving], None]] = []
        """Called with what each broker says that stops, before its links end."""
        self._seams = seams

    async def start(self, volume: Volume | None = None) -> None:
        """Take the next incarnation number, and meet the other brokers.

        Raises StartError when it cannot listen at the address.

        ``volume`` is this broker's own; None if it has none.
        """
        try:
            incarnation = await next_incarnation(volume, self._seams)
        except OSError as error:
            raise StartError(
                f"the incarnation number cannot be kept in the data directory: {error}"
            ) from None
        self.own = msgspec.structs.replace(self.own, incarnation=incarnation)
        await self.neighbours.start()
        if self.discovery is not None:
            self.discovery.start()
        for broadcaster in self._broadcasters:
            broadcaster.start()

    async def settled(self) -> None:
        """Return when everything that the known brokers can tell is known.

        With a discovery group, those brokers are known that were heard within a refresh-timeout.
        """
        if self.discovery is not None:
            await self.discovery.heard_all()
        await self.neighbours.settled()

    @property
    def is_settled(self) -> bool:
        """True if ``settled`` would return at once."""
        return self.neighbours.is_settled and (self.discovery is None or self.discovery.has_heard_all)

    async def stop(self) -> None:
        """Say goodbye and close every link."""
        for broadcaster in self._broadcasters:
            await broadcaster.stop()
        if self.discovery is not None:
            await self.discovery.stop()
        await self.neighbours.stop(m.Leaving(self.own.name, self.own.incarnation))

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
            self.neighbours.broadcast(m.Members((self.own,)))
            self._changed()

    def relist(self, connectors: tuple[str, ...], shared: Mapping[str, str]) -> None:
        """Replace the static connectors; brokers that are no longer listed are forgotten.

        ``shared`` are the properties that brokers compare from now on.
        """
        self.neighbours.relist(connectors, shared)
        self.directory.keep(connectors)
        self._changed()

    # --------------------------------------------------------------------------------------- inside

    def _opened(self, link: ClusterLink) -> None:
        assert link.member is not None
        self.directory.learn(link.member, direct=True)
        for greet in self.on_linked:
            greet(link)
        self._changed()

    def _closed(self, link: ClusterLink) -> None:
        assert link.member is not None
        self.directory.link_closed(link.member)
        if self.discovery is not None:
            self.discovery.link_closed(link.member.connector)
        for observer in self.on_unlinked:
            observer(link)
        if link.connecting:
            self._changed()

    def _take(self, link: ClusterLink, message: m.LinkMessage) -> None:
        if isinstance(message, m.Members):
            for member in message.members:
                direct = link.member is not None and member.name == link.member.name
                self.directory.learn(member, direct=direct)
            self._changed()
        elif isinstance(message, m.Leaving):
            for hear in self.on_leaving:
                hear(message)
            if self.directory.forget(message):
                self._changed()
        else:
            handler = self.handlers.get(type(message))
            if handler is not None:
                handler(link, message)

    def _changed(self) -> None:
        self.directory.review()
        for observer in self.on_change:
            observer()
