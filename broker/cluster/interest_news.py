"""The news of subscriptions between the live brokers of a cluster.

A live broker that has subscriptions tells every linked live broker of another node what they want
of which topics (``core.interests``), all of it over a new link, and changes when they come. The
other notes it, durably for lasting subscriptions, and says so. Nothing is said in a cluster without
subscriptions.

Why a SUBSCRIBE is answered only when all linked live brokers have noted the news (``told``): its
client may tell another one to send from now on, at any broker. And why the first message to a topic
waits (``heard``): a broker that has just become live may not have heard of a subscription that was
made before. It asks every live broker that it is linked with. Both waits end after the
``call-timeout``. The news is not withdrawn then: it is on its way, and arrives if the link lasts.

A broker that cannot be reached gets all news when it is linked again. Until then it knows the
lasting subscriptions that it had noted before, and keeps messages for these. Subscriptions that end
with their connection are forgotten when the last link to their broker is lost.

A message goes to linked brokers only, and never on from there: a broker says nothing about the
subscriptions of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.cluster.membership import Membership
from broker.core.engine import DemotedError, Engine
from broker.core.interests import Interest
from broker.storage.errors import JournalError

_NOTHING: Final = Interest()


class _Channel:
    """A link over which another broker is told of our subscriptions.

    ``told`` is the last version that was sent over it, ``noted`` the last that the other one has.
    """

    __slots__ = ("noted", "told")

    def __init__(self) -> None:
        self.told = 0
        self.noted = 0


class _Wait(NamedTuple):
    """A wait that ends when ``condition`` holds, or when ``timer`` gives up.

    ``version`` is that of the news that others have to note, 0 if it is we who have to hear.
    """

    condition: Callable[[], bool]
    version: int
    timer: asyncio.TimerHandle


class LinkedInterests:
    """The ``InterestNews`` of a live broker, from its construction to ``stop``.

    ``forwards`` is called with each node ID for which messages may have to be forwarded.
    """

    def __init__(self, membership: Membership, engine: Engine, forwards: Callable[[str], None]) -> None:
        self._membership = membership
        self._engine = engine
        self._node_id = engine.settings.node_id
        self._timeout_s = membership.section.call_timeout / 1000
        self._forwards = forwards
        self._version = 1
        self._count = engine.topics.count
        """The number of the last subscription that the others are told of."""
        self._own: dict[str, Interest] = {}
        """What our subscriptions want, by topic, as the others are told."""
        self._changed: dict[str, None] = {}
        """The topics whose subscriptions have changed since."""
        self._channels: dict[ClusterLink, _Channel] = {}
        self._heard: dict[str, tuple[str, int]] = {}
        """Broker -> its engine and the version of what it told us last, since it told all."""
        self._asks = False
        """True from the first message to a topic on: then we ask every live broker."""
        self._asked: dict[ClusterLink, float] = {}
        """When we asked over each link (s, of the loop)."""
        self._silent: dict[ClusterLink, None] = {}
        """Links over which no answer came within the ``call-timeout``."""
        self._is_settled = False
        self._stopped = False
        self._waiting: dict[asyncio.Future[None], _Wait] = {}
        self._hearing: asyncio.Future[None] | None = None
        """That for which all messages to topics wait."""
        self._settling: asyncio.Task[None] | None = None
        membership.handlers[m.Interests] = self._take
        membership.handlers[m.InterestsNoted] = self._noted
        membership.handlers[m.InterestsWanted] = self._wanted
        membership.on_change.append(self._review)
        membership.on_unlinked.append(self._unlinked)
        engine.topics.observers.append(self._observe)
        engine.news = self
        for topic in engine.topics.names:
            self._own[topic] = engine.topics.interest(topic)
        self._review()

    def stop(self) -> None:
        """Tell the others that only lasting subscriptions are left, and hear nothing more.

        What waits is never answered: it is not known elsewhere, or does not know of all.
        """
        membership = self._membership
        for kind in (m.Interests, m.InterestsNoted, m.InterestsWanted):
            membership.handlers.pop(kind, None)
        membership.on_change.remove(self._review)
        membership.on_unlinked.remove(self._unlinked)
        self._engine.topics.observers.remove(self._observe)
        self._stopped = True
        self._own = {
            topic: Interest(interest.durable) for topic, interest in self._own.items() if interest.durable
        }
        self._version += 1
        for link in self._channels:
            self._tell(link, self._own, whole=True)
        self._channels.clear()
        if self._settling is not None:
            self._settling.cancel()
        for wait in self._waiting.values():
            wait.timer.cancel()
        self._waiting.clear()

    # ---------------------------------------------------------------------------------- for clients

    def told(self) -> asyncio.Future[None] | None:
        """Return None if every linked live broker knows our subscriptions; see ``InterestNews``."""
        self._tell_changes()
        version = self._version
        return self._future(lambda: self._all_know(version), version)

    def heard(self) -> asyncio.Future[None] | None:
        """Return None if we know the subscriptions of each linked one; see ``InterestNews``."""
        if not self._asks:
            self._asks = True
            self._review()
        if self._hearing is None or self._hearing.done():
            self._hearing = self._future(self._knows_all, 0)
        return self._hearing

    def ask_again(self, node_id: str) -> None:
        """Ask for the subscriptions of a node again if it is linked; see ``InterestNews``."""
        for member, link in self._others():
            if member.node_id == node_id:
                self._heard.pop(member.name, None)
                link.send(m.InterestsWanted())

    def _future(self, condition: Callable[[], bool], version: int) -> asyncio.Future[None] | None:
        loop = asyncio.get_running_loop()
        if self._stopped:
            return loop.create_future()
        if not self._is_settled:
            self._settle()
        if self._is_settled and condition():
            return None
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(self._timeout_s, self._give_up, future)
        self._waiting[future] = _Wait(condition, version, timer)
        return future

    def _settle(self) -> None:
        """Wait once until every known broker was tried: until then some may not be linked."""
        self._is_settled = self._membership.is_settled
        if not self._is_settled and self._settling is None:
            self._settling = asyncio.create_task(self._membership.settled(), name="settle")
            self._settling.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._is_settled = True
            self._review()

    def _give_up(self, future: asyncio.Future[None]) -> None:
        """Wait no longer for brokers that have not answered; what they were told is on its way."""
        version, now = self._waiting[future].version, asyncio.get_running_loop().time()
        for channel in self._channels.values():
            channel.noted = max(channel.noted, version)
        if not version:
            long_ago = now - self._timeout_s
            self._silent.update(
                (link, None) for _, link in self._others() if self._asked.get(link, 0) <= long_ago
            )
        self._end_wait(future)
        self._check_waiting()

    def _end_wait(self, future: asyncio.Future[None]) -> None:
        self._waiting.pop(future).timer.cancel()
        if not future.done():
            future.set_result(None)

    def _check_waiting(self) -> None:
        if not self._is_settled:
            return
        for future, wait in list(self._waiting.items()):
            if wait.condition():
                self._end_wait(future)

    def _all_know(self, version: int) -> bool:
        return all(channel.noted >= version for channel in self._channels.values())

    def _knows_all(self) -> bool:
        return all(member.name in self._heard or link in self._silent for member, link in self._others())

    # -------------------------------------------------------------------------------------- telling

    def _others(self) -> list[tuple[m.Member, ClusterLink]]:
        """Return the live brokers of other nodes that we are linked with, whoever has dialled."""
        lives = self._membership.directory.lives(accepted=True)
        return [live for node_id, live in lives.items() if node_id != self._node_id]

    def _observe(self, topic: str) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changes)
        self._changed[topic] = None

    def _tell_changes(self) -> None:
        """Tell the others what subscriptions want of the topics that have changed."""
        news: dict[str, Interest] = {}
        for topic in self._changed:
            interest = self._engine.topics.interest(topic)
            if interest == self._own.get(topic, _NOTHING):
                continue
            news[topic] = interest
            if interest:
                self._own[topic] = interest
            else:
                del self._own[topic]
        self._changed.clear()
        count = self._engine.topics.count
        if (news or count > self._count) and not self._engine.abandoned:
            self._count = count
            self._version += 1
            for link in self._channels:
                self._tell(link, news, whole=False)
            self._open_channels()

    def _open_channels(self) -> None:
        """Tell all to each linked live broker that was told nothing yet, if there is anything."""
        if not self._own or not self._membership.own.live:
            return
        told = {link.member.name for link in self._channels if link.member is not None}
        for member, link in self._others():
            if member.name not in told:
                self._open(link)

    def _open(self, link: ClusterLink) -> None:
        self._channels[link] = _Channel()
        self._tell(link, self._own, whole=True)

    def _tell(self, link: ClusterLink, topics: dict[str, Interest], *, whole: bool) -> None:
        self._channels[link].told = self._version
        engine = self._engine.incarnation
        link.send(m.Interests(self._node_id, engine, self._version, self._count, dict(topics), whole=whole))

    def _noted(self, link: ClusterLink, message: m.InterestsNoted) -> None:
        channel = self._channels.get(link)
        node_id = None if link.member is None else link.member.node_id
        if channel is None or node_id is None or message.engine != self._engine.incarnation:
            return
        try:
            self._engine.note_known(node_id, min(message.upto, self._count), message.record)
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        channel.noted = max(channel.noted, message.version)
        self._check_waiting()

    def _wanted(self, link: ClusterLink, message: m.InterestsWanted) -> None:
        del message
        self._tell_changes()
        name = None if link.member is None else link.member.name
        for other in [other for other in self._channels if other.member and other.member.name == name]:
            del self._channels[other]
        self._open(link)

    # -------------------------------------------------------------------------------------- hearing

    def _take(self, link: ClusterLink, message: m.Interests) -> None:
        directory, member = self._membership.directory, link.member
        assert member is not None
        if directory.is_over(member) or message.node_id == self._node_id:
            return
        other = directory.live_with(message.node_id)
        superseded = other is not None and other.name != member.name and other.activation > member.activation
        engine, version = self._heard.get(member.name, ("", 0))
        if superseded or (engine == message.engine and message.version < version):
            link.send(m.InterestsNoted(message.engine, message.version, 0, 0))
            return
        if message.whole or engine == message.engine:
            self._heard[member.name] = message.engine, message.version
        else:
            link.send(m.InterestsWanted())  # it told the rest before we listened

        def noted() -> None:
            link.send(m.InterestsNoted(message.engine, message.version, message.upto, record))

        try:
            self._engine.take_interest(message.node_id, message.topics, noted, whole=message.whole)
            record = self._engine.journal.next_id()
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        self._forwards(message.node_id)
        self._check_waiting()

    def _review(self) -> None:
        """Tell and ask those that were not linked or live before, and forget those that are not."""
        for link in [link for link in self._channels if not _is_live(link)]:
            del self._channels[link]
        if self._engine.abandoned:
            return
        self._open_channels()
        for member, link in self._others():
            known = self._asks or self._engine.interests.of_node(member.node_id or "")
            if known and link not in self._asked and member.name not in self._heard:
                self._asked[link] = asyncio.get_running_loop().time()
                link.send(m.InterestsWanted())
        self._forget_lost()
        self._check_waiting()

    def _unlinked(self, link: ClusterLink) -> None:
        self._channels.pop(link, None)
        self._asked.pop(link, None)
        self._silent.pop(link, None)
        if not self._engine.abandoned:
            self._open_channels()
            self._forget_lost()
        self._check_waiting()

    def _forget_lost(self) -> None:
        """Forget what was heard of brokers that no open link leads to as live ones."""
        live_links = [link for link in self._membership.neighbours.links if _is_live(link)]
        names = {link.member.name for link in live_links if link.member is not None}
        for name in [name for name in self._heard if name not in names]:
            del self._heard[name]
        for link in [link for link in self._asked if not _is_live(link)]:
            del self._asked[link]
            self._silent.pop(link, None)
        nodes = {link.member.node_id for link in live_links if link.member is not None}
        for node_id in self._engine.interests.nodes:
            if node_id not in nodes:
                self._engine.end_passing_interest(node_id)


def _is_live(link: ClusterLink) -> bool:
    return link.is_open and link.member is not None and link.member.live
