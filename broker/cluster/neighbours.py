"""The brokers that this broker is linked with: whom it dials, whom it accepts.

In a symmetric cluster every broker dials every other broker whose address it learns: from its
static connectors, from a discovery group, from other brokers, or from a store that they share. It
accepts every broker that knows the password and has the common properties of the cluster. In any
other topology, such as a chain, a broker dials and accepts those of its static connectors only
(``allow-direct-connections-only``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.cluster import messages as m
from broker.cluster.broker_list import loopback_problem, version_problem
from broker.cluster.link import ClusterLink, LinkRefusedError, Terms
from broker.cluster.peer import Peer
from broker.config import BrokerConfig, ConfigurationError
from broker.seams import Seams
from broker.section import ClusterSection
from broker.start_error import StartError
from broker.strangers import printable
from broker.tls import Layer

_log = logging.getLogger(__name__)

STRANGERS_MAX: Final = 64
"""The most connections that have not proved who they are; beyond it, the oldest is closed."""


class Neighbours:
    """The links with other brokers, from ``start`` to ``stop``.

    ``own`` returns how this broker introduces itself at this moment.

    ``on_open`` and ``on_closed`` are called with each link with a member, whoever dialled, and
    ``on_message`` with each message that comes over one. ``on_replication`` gets links that a
    backup opened.
    """

    def __init__(
        self, config: BrokerConfig, section: ClusterSection, seams: Seams, own: Callable[[], m.Member]
    ) -> None:
        self._shared = {**_shared(section), **config.ha_policy.shared}
        self.static = section.static_connectors
        """The addresses of the brokers that are dialled in any case; a reload changes them."""
        self.terms = Terms(
            user=section.cluster_user,
            password=section.cluster_password,
            ttl_s=section.connection_ttl / 1000,
            check_period_s=section.check_period / 1000,
            call_timeout_s=section.call_timeout / 1000,
            nonce=seams.nonce,
            tls=Layer.of(section, config, "cluster"),
            member=own,
            shared=self._shared,
            refusal=self.refusal,
        )
        self.on_open: Callable[[ClusterLink], None] = lambda _: None
        self.on_message: Callable[[ClusterLink, m.LinkMessage], None] = lambda _, __: None
        self.on_closed: Callable[[ClusterLink], None] = lambda _: None
        self.on_replication: Callable[[ClusterLink], None] = lambda link: link.refuse(
            "this broker takes no backup"
        )
        self.links: dict[ClusterLink, None] = {}
        """The links with members, whoever dialled, in the order in which they were opened."""
        self._section = section
        self._conventional = config.ha_policy.conventional
        self._loopbacks: dict[str, str] = {}
        """The addresses that lead to a loopback address, each with the problem in words."""
        self._path = config.path or "broker.toml"
        self._seams = seams
        self._own = own
        self._peers: dict[str, Peer] = {}
        self._probed: dict[ClusterLink, None] = {}
        self._unproved: list[ClusterLink] = []
        self._listener: asyncio.Server | None = None
        self._stopped = False

    def may_dial(self, address: str) -> bool:
        """Return whether the broker at this address should be dialled."""
        return address != self._own().connector and self._is_listed(address)

    def _is_listed(self, address: str) -> bool:
        """Return whether the topology has a link with the broker at this address."""
        return not self._section.allow_direct_connections_only or address in self.static

    def refusal(self, member: m.Member, shared: Mapping[str, str]) -> str:
        """Return why a broker that knows the password is refused all the same, or "".

        Every link asks this once the other side has proved itself and introduced itself as
        ``member``, with the properties that all brokers of its cluster have in common.
        """
        expected, own_name = self.terms.shared, self._own().name
        for name in sorted({*expected, *shared}):
            if expected.get(name) != shared.get(name):
                their_value, our_value = (_quoted(values.get(name)) for values in (shared, expected))
                return f"{name} is {their_value} at {member.name} and {our_value} at {own_name}"
        section = self._conventional
        if section is not None:
            loopback = self._loopbacks.get(member.connector, "")
            return loopback or version_problem(section, self._own(), member)
        if not self._is_listed(member.connector):
            return (
                f"{member.connector} of {member.name} is not in cluster.static-connectors of {own_name}, "
                "which allows direct connections only"
            )
        return ""

    async def start(self) -> None:
        """Listen, and dial the static connectors.

        Raises StartError when it cannot listen at the address, ConfigurationError if the connector
        of a conventional cluster is a loopback address.
        """
        section = self._section
        try:
            await self._check_target(section.connector, self._seams.resolve(section.connector))
        except LinkRefusedError as error:
            raise ConfigurationError(f"{self._path}: cluster.connector: {error}") from None
        except (OSError, ValueError):
            pass  # The name is not known here: other brokers see where it leads.
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._take_in, section.host, section.port
            )
        except OSError as error:
            raise StartError(
                f"cluster address {section.host}:{section.port} cannot listen: {error.strerror or error};"
                " is another broker running there? (cluster.port)"
            ) from None
        for address in self.static:
            self.dial(address)

    async def _check_target(self, address: str, target: tuple[str, int]) -> None:
        """Raise LinkRefusedError if an announced address leads to a loopback address.

        A conventional cluster may allow that. Raises OSError if the name is not known.
        """
        if self._conventional is None or self._conventional.allow_loopback:
            return
        if problem := await loopback_problem(address, target):
            self._loopbacks[address] = problem
            self._part_from(address, problem)
            raise LinkRefusedError(problem)
        self._loopbacks.pop(address, None)

    def _part_from(self, address: str, reason: str) -> None:
        """End all links with the broker of that connector, and tell it the reason."""
        for link in [link for link in self.links if _connector(link) == address]:
            link.refuse(reason)

    @property
    def port(self) -> int:
        """The port on which it listens, which matters if the configuration says port 0."""
        assert self._listener is not None, "the broker does not listen for others yet"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def stop(self, farewell: m.LinkMessage) -> None:
        """Tell every member the farewell and close every link."""
        if self._stopped:
            return
        self._stopped = True
        self.broadcast(farewell)
        if self._listener is not None:
            self._listener.close()
        peers = list(dict.fromkeys(self._peers.values()))
        self._peers.clear()
        for peer in peers:
            await peer.stop()
        for link in [*self.links, *self._probed]:
            link.close("stopping")

    async def settled(self) -> None:
        """Return when each known address was tried once, or after the ``call-timeout``.

        Then everything that the known brokers can tell is known.
        """
        timeout_s = self.terms.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while untried := [peer for peer in self._peers.values() if not peer.tried.is_set()]:
                    await untried[0].tried.wait()
        except TimeoutError:
            _log.info("cluster: not every known broker answered within %g s", timeout_s)

    @property
    def is_settled(self) -> bool:
        """True if each known address was tried once, see ``settled``."""
        return all(peer.tried.is_set() for peer in self._peers.values())

    def linked(self, *, accepted: bool = False) -> Iterator[tuple[m.Member, ClusterLink]]:
        """Yield the members that we have dialled and are linked with, by name.

        With ``accepted``, also those that we are linked with only because they have dialled us.
        """
        open_links = [*(self.links if accepted else ()), *self._dialled_links()]
        links = {link.member.name: (link.member, link) for link in open_links if link.member is not None}
        for name in sorted(links):
            yield links[name]

    def _dialled_links(self) -> list[ClusterLink]:
        return [peer.link for peer in self._peers.values() if peer.link is not None and peer.link.is_open]

    def link_to(self, name: str) -> ClusterLink | None:
        """Return the link that we dialled to a broker, if it is open."""
        return next((link for member, link in self.linked() if member.name == name), None)

    def accepted_by(self, address: str) -> ClusterLink | None:
        """Return the open link that we dialled to a broker, once it has accepted us."""
        accepted = (peer.link for peer in self._peers.values() if peer.is_accepted)
        return next(
            (link for link in accepted if link is not None and link.is_open and _connector(link) == address),
            None,
        )

    def broadcast(self, message: m.LinkMessage) -> None:
        """Tell every member we are linked with, once each."""
        accepted = [link for link in self.links if not link.connecting]
        names: set[str] = set()
        for link in (*self._dialled_links(), *accepted):
            if link.member is not None and link.member.name not in names:
                names.add(link.member.name)
                link.send(message)

    def dial(self, address: str, *, answers: bool = False) -> None:
        """Keep a link to the broker at an address, if it may be dialled.

        ``answers`` is true if the broker has just been heard: then it is dialled without delay.
        """
        peer = self._peers.get(address)
        if peer is not None:
            if answers:
                peer.hurry()
        elif self.may_dial(address) and not self._stopped:
            self._peers[address] = Peer(
                address, self.terms, self._section, self._seams, self._dialled, self._check_target
            )

    def forget(self, address: str) -> None:
        """Stop dialling the broker at an address, unless it is a static connector."""
        if address not in self.static:
            peer = self._peers.pop(address, None)
            if peer is not None and peer.address not in self.static:
                peer.retire()

    def relist(self, connectors: tuple[str, ...], shared: Mapping[str, str]) -> None:
        """Replace the static connectors, and with them the properties that brokers compare.

        Links with brokers that stay go on. New ones are dialled, and those that are no longer
        listed are told so, and refused from now on.
        """
        removed = set(self.static) - set(connectors)
        self.static = connectors
        self._shared |= shared
        for address in sorted(removed):
            self._part_from(address, f"{address} is no longer in the list of brokers of {self._own().name}")
            self.forget(address)
        for address in connectors:
            self.dial(address)

    def give_up(self, address: str) -> None:
        """Stop dialling the broker at an address, unless there is a link with it."""
        if not any(link.member is not None and link.member.connector == address for link in self.links):
            self.forget(address)

    def _dialled(self, peer: Peer, link: ClusterLink) -> None:
        member = link.member
        assert member is not None
        if member.life == self._own().life:
            peer.retire()  # The address is a static connector that leads to ourselves.
            return
        other = self._peers.setdefault(member.connector, peer)
        if other is not peer and peer.address != member.connector:
            peer.retire()  # The address is another name for a broker that is dialled under its own.
            return
        link.on_message = lambda message: self._take(peer, link, message)
        link.on_closed = lambda reason: self._lost(peer, link, reason)
        if not peer.refusal:
            _log.info("cluster: linked with %s (%s)", member.name, member.role)
        self._opened(link)

    def _take(self, peer: Peer, link: ClusterLink, message: m.LinkMessage) -> None:
        peer.is_accepted = True
        if peer.refusal:
            peer.refusal = ""
            _log.info("cluster: linked with %s", link.peer)
        self.on_message(link, message)
        if isinstance(message, m.Members):
            peer.tried.set()  # The first message of the other side says which brokers it knows.

    def _lost(self, peer: Peer, link: ClusterLink, reason: str) -> None:
        if peer.is_accepted or not reason.startswith("refused: "):
            _log.info("cluster: link with %s lost: %s", link.peer, reason)
        elif reason != peer.refusal:
            peer.refusal = reason
            _log.warning("cluster: cannot connect to broker %s: %s", peer.address, printable(reason))
        self._closed(link)

    def _take_in(self) -> asyncio.Protocol:
        self._unproved = [link for link in self._unproved if not (link.is_open or link.closed)]
        if len(self._unproved) >= STRANGERS_MAX:
            self._unproved.pop(0).give_way(f"more than {STRANGERS_MAX} connections without a proof")
        link = ClusterLink(self.terms, None, on_open=self._accept)
        self._unproved.append(link)
        tls = self.terms.tls
        return link if tls is None else tls.accepting(link, self.terms.strangers, "cluster")

    def _accept(self, link: ClusterLink) -> None:
        member = link.member
        assert member is not None
        if link.purpose == "probe":
            self._probed[link] = None
            link.on_closed = lambda _: self._probed.pop(link, None)
        elif link.purpose == "replication":
            self.on_replication(link)
        else:
            link.on_message = lambda message: self.on_message(link, message)
            link.on_closed = lambda _: self._closed(link)
            dialled = self.link_to(member.name)
            if dialled is not None and dialled.member is not None and dialled.member.life != member.life:
                # The broker that answers there now shows which of the two lives goes on.
                dialled.abort(f"{member.name} has begun another life")
            link.send(m.Members((self._own(), *(other for other, _ in self.linked()))))
            self._opened(link)

    def _opened(self, link: ClusterLink) -> None:
        self.links[link] = None
        self.on_open(link)

    def _closed(self, link: ClusterLink) -> None:
        del self.links[link]
        self.on_closed(link)


def _shared(section: ClusterSection) -> dict[str, str]:
    """Return the properties of the cluster connection that all brokers have in common."""
    hops = {} if section.max_hops == 1 else {"cluster.max-hops": str(section.max_hops)}
    return {"cluster.name": section.name, **hops}


def _connector(link: ClusterLink) -> str:
    assert link.member is not None, "the link is not open yet"
    return link.member.connector


def _quoted(value: str | None) -> str:
    return "not set" if value is None else repr(value)
