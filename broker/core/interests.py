"""Interests: what the subscriptions of other nodes want of the topics.

A message that is sent to a topic gets one copy for each node that has subscriptions which want it,
in the store-and-forward queue of that node. When it arrives there, it is copied to those that are
there then. So only topics and selectors matter here, and not the subscriptions themselves.

A message may be on its way when a subscription is made. It was sent before, so the subscription
must not get it. Records tell: a node that notes a subscription says which record it would write
next, and a message that it stored before has a lower one. What a node knew since when is an update
of the subscription's record (KNOWN). A subscription gets nothing from a node that does not know it.

An interest in lasting subscriptions is a record of the journal (INTEREST), so that a restart
forgets none of them while their broker cannot say them again. It ends when that broker says so, or
when an administrator deletes the store-and-forward queue of a node that never returns. An interest
in subscriptions that end with their connection is kept in memory, and ends with the link to their
broker: a dead broker has none of them, and messages for it would never be taken.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from broker.core.message import INTEREST
from broker.core.selector import Selector, SelectorError, compile_selector
from broker.storage.entry import ADD, DELETE, Operation

if TYPE_CHECKING:
    from broker.core.queue import Queue

_log = logging.getLogger(__name__)

SELECTORS_MAX: Final = 32
CHARACTERS_MAX: Final = 8192
"""If subscriptions to a topic have more selectors, or longer ones, they are taken to want all."""
_RECORD: Final = struct.Struct("<Q")
ALL: Final = ("",)
"""The selectors of subscriptions of which one has none."""


class Interest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The messages of a topic that the subscriptions of one node want, as texts of selectors.

    "" stands for all messages. ``durable`` are the lasting subscriptions, ``passing`` those that
    end with their connections.
    """

    durable: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is wanted."""
        return bool(self.durable or self.passing)


class NodeInterest(msgspec.Struct, frozen=True, array_like=True):
    """The data of an INTEREST record: what lasting subscriptions of a node want of a topic."""

    node_id: str
    topic: str
    selectors: tuple[str, ...]


def encode_known(node_id: str, record: int) -> bytes:
    """Return the data of a KNOWN update: what the node stores from that record on."""
    return _RECORD.pack(record) + node_id.encode()


def decode_known(data: bytes) -> tuple[str, int]:
    """Return node ID and record from a KNOWN update."""
    return data[_RECORD.size :].decode(), *_RECORD.unpack_from(data)


def wanted(selectors: Iterable[Selector | None]) -> tuple[str, ...]:
    """Return the texts of distinct selectors, or ``ALL`` if one wants all or they are too many."""
    texts: list[str] = []
    size = 0
    for selector in selectors:  # there may be thousands, and each new one asks
        if selector is None or len(texts) == SELECTORS_MAX:
            return ALL
        texts.append(selector.text)
        size += len(selector.text)
        if size > CHARACTERS_MAX:
            return ALL
    return tuple(sorted(texts))


def encode_interest(interest: NodeInterest) -> bytes:
    """Return the data of an INTEREST record."""
    return msgspec.json.encode(interest)


def decode_interest(data: bytes) -> NodeInterest:
    """Return what is in an INTEREST record; the journal's checksums have vouched for it."""
    return msgspec.json.decode(data, type=NodeInterest)


@dataclass(slots=True)
class _Known:
    """The interest of a node in a topic; ``record`` is that of its durable part, if it has one."""

    interest: Interest
    record: int | None


class Interests:
    """The interests of other nodes, by node and topic.

    ``forward`` is called with a topic, the store-and-forward queue of a node, and the selectors of
    what that queue gets from now on.
    """

    def __init__(self, forward: Callable[[str, Queue, Iterable[Selector | None]], None]) -> None:
        self._forward = forward
        self._nodes: dict[str, dict[str, _Known]] = {}

    def adopt(self, record: int, found: NodeInterest, queue: Queue) -> list[Operation]:
        """Take an interest from a journal; return what deletes its record if one is known."""
        known = self._nodes.setdefault(found.node_id, {})
        if found.topic in known:
            return [Operation(DELETE, INTEREST, record)]
        known[found.topic] = _Known(Interest(found.selectors), record)
        self._place(found.topic, queue, known[found.topic].interest)
        return []

    def of_node(self, node_id: str) -> Mapping[str, Interest]:
        """Return what a node wants, by topic."""
        return {topic: known.interest for topic, known in self._nodes.get(node_id, {}).items()}

    @property
    def nodes(self) -> list[str]:
        """The nodes that want something."""
        return [node_id for node_id, topics in self._nodes.items() if topics]

    def replace(
        self,
        node_id: str,
        queue: Queue,
        news: Mapping[str, Interest],
        next_id: Callable[[], int],
        *,
        whole: bool,
    ) -> list[Operation]:
        """Take what a node wants of some topics, or of all; return what has to be journalled.

        ``queue`` is the store-and-forward queue of the node. ``whole``: it wants nothing else.
        """
        known = self._nodes.setdefault(node_id, {})
        operations: list[Operation] = []
        for topic in [*(topic for topic in known if whole and topic not in news), *news]:
            operations += self._replace(node_id, queue, topic, news.get(topic, Interest()), next_id)
        return operations

    def end_passing(self, node_id: str, queue: Queue) -> None:
        """Forget what subscriptions of a node want that end with their connections."""
        known = self._nodes.get(node_id, {})
        for topic, one in list(known.items()):
            if one.interest.passing:
                one.interest = Interest(one.interest.durable)
                self._place(topic, queue, one.interest)
                if not one.interest:
                    del known[topic]

    def forget(self, node_id: str, queue: Queue) -> list[Operation]:
        """Forget a node whose store-and-forward queue is deleted; return what deletes records."""
        operations = []
        for topic, one in self._nodes.pop(node_id, {}).items():
            self._place(topic, queue, Interest())
            if one.record is not None:
                operations.append(Operation(DELETE, INTEREST, one.record))
        return operations

    def _replace(
        self, node_id: str, queue: Queue, topic: str, interest: Interest, next_id: Callable[[], int]
    ) -> Iterator[Operation]:
        known = self._nodes[node_id]
        former = known.get(topic) or _Known(Interest(), None)
        if former.interest == interest:
            return
        record = former.record
        if former.interest.durable != interest.durable:
            if former.record is not None:
                yield Operation(DELETE, INTEREST, former.record)
            record = next_id() if interest.durable else None
            if record is not None:
                data = encode_interest(NodeInterest(node_id, topic, interest.durable))
                yield Operation(ADD, INTEREST, record, data)
        self._place(topic, queue, interest)
        if interest:
            known[topic] = _Known(interest, record)
        else:
            known.pop(topic, None)

    def _place(self, topic: str, queue: Queue, interest: Interest) -> None:
        """Let the store-and-forward queue get what is wanted of a topic from now on."""
        texts = dict.fromkeys((*interest.durable, *interest.passing))
        self._forward(topic, queue, [None] if "" in texts else _compiled(topic, texts))


def _compiled(topic: str, texts: Iterable[str]) -> list[Selector | None]:
    """Return the selectors; None, which matches all, for one that we cannot read."""
    selectors: list[Selector | None] = []
    for text in texts:
        try:
            selectors.append(compile_selector(text))
        except SelectorError as error:
            _log.warning("cluster: a selector of topic %r is not understood: %s", topic, error)
            return [None]
    return selectors
