"""The dialect of STOMP that one system's brokers speak, where brokers differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from checkers.schema import TEMPORARY, TOPIC
from stomp_protocol.client.feed import Feed
from stomp_protocol.client.settings import never

_COUNT_MAX: Final = 2**31 - 1
"""The highest delivery count for which the history's column has room."""


def _literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return f"""'{text.replace("'", "''")}'"""


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """The headers and destinations with which a client uses topics and subscribes to them.

    ``send`` and ``subscribe`` are headers that make the destination of a SEND, or of a SUBSCRIBE, a
    topic, and what is sent durable. ``durable`` and ``shared`` are headers of a SUBSCRIBE to a
    subscription that outlives its connections, and of the UNSUBSCRIBE that drops it. A durable
    subscription belongs to one client (named by the header ``client`` of CONNECT) and has one
    consumer; several may consume from a shared one. None: the brokers have no such subscriptions.
    "{}" stands for the name of the subscription, "{topic}" for that of its topic.
    """

    destination: str = "/topic/{}"
    send: Mapping[str, str] = {}
    subscribe: Mapping[str, str] = {}
    client: str = "client-id"
    durable: Mapping[str, str] | None = None
    shared: Mapping[str, str] | None = None
    drops: Literal["alone", "with-consumer", "either"] = "alone"
    """The way in which an UNSUBSCRIBE drops a subscription.

    "alone": it follows the UNSUBSCRIBE that ends the consumer. "with-consumer": it is that very
    frame. "either": brokers accept both.
    """
    selector: str | None = "selector"  # header of SUBSCRIBE for an SQL selector; None: there is none
    remakes: bool = False
    """Whether a durable subscription is made anew if it is requested with another selector."""
    shared_by: frozenset[str] = frozenset()
    """The policies of clusters in which a message reaches the subscriptions at all brokers.

    Under other policies each broker has topics of its own.
    """

    def wanting(self, selector: Mapping[str, Sequence[str]] | None) -> dict[str, str]:
        """Return the header that selects messages by their properties.

        A message must have one of the given texts in each of the given properties.
        """
        if self.selector is None or not selector:
            return {}
        some = [f"{name} IN ({', '.join(map(_literal, texts))})" for name, texts in selector.items()]
        return {self.selector: " AND ".join(some)}


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a SEND with which a message asks for something; None: there is no such header.

    ``expires`` is in milliseconds: since the epoch or, if it ``lasts``, from the message's arrival.
    ``delay`` is how many milliseconds the message must not be delivered. ``priority`` is 0 to 9.
    """

    expires: str | None = None
    lasts: bool = False
    delay: str | None = None
    priority: str | None = None


class Temporaries(msgspec.Struct, frozen=True, kw_only=True):
    """The headers and destinations with which a client uses its connection's temporary queues.

    A SUBSCRIBE to ``destination`` makes the queue. A SEND on the same connection names it in the
    header ``reply_to``; the value that the broker puts into that header of the MESSAGE is the
    destination to which others send. ``send`` and ``subscribe`` are further headers.
    """

    destination: str = "/temp-queue/{}"
    reply_to: str = "reply-to"
    send: Mapping[str, str] = {}
    subscribe: Mapping[str, str] = {}
    shared_by: frozenset[str] = frozenset()
    """The policies of clusters in which a reply may be sent to any broker.

    Under other policies only the broker of a temporary queue takes messages to it.
    """


class QueueCommands(msgspec.Struct, frozen=True, kw_only=True):
    """The commands of the admin port with which an administrator creates and deletes queues.

    Each is the name of a command; its argument ``queue`` is the name in a history. ``deleting`` are
    further arguments of ``delete``, with which the messages and the consumers go, too.
    """

    create: str = "create"
    delete: str = "delete"
    deleting: Mapping[str, bool] = {}
    policies: frozenset[str] = frozenset()
    """The policies under which a ``delete`` ends all that a pair's clients can reach of a queue."""
    shared_by: frozenset[str] = frozenset()
    """Those of them under which, with a master broker, the commands act at all brokers."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """STOMP 1.2 as one system's brokers speak it.

    A default is what most brokers do. If the name of a header is None, the brokers have no such
    header. ``System.promises`` says what acknowledgements and refusals mean.
    """

    login: str = ""
    passcode: str = ""
    virtual_host: str | None = None  # of CONNECT; None is the name of the node
    queue: str = "/queue/{}"  # the destination of a queue
    durable: Mapping[str, str] = {}  # headers that make a send durable
    subscribe: Mapping[str, str] = {}  # headers of SUBSCRIBE that make its destination a queue
    group_header: str | None = "JMSXGroupID"
    closing: Mapping[str, str] = {}
    """The headers of a SEND that closes its group, so that another consumer may get later messages.

    Empty: brokers cannot be asked for that.
    """
    window_header: str | None = "prefetch-count"  # of SUBSCRIBE: how much may be unacknowledged
    window_unit: int = 1  # the size of a message in a window that counts bytes
    ack_mode: str = "client-individual"
    """The mode of acknowledgement in a SUBSCRIBE.

    With "client" an ACK also acknowledges all earlier deliveries. Those are answered already:
    consumers here acknowledge each subscription's messages in the order of their deliveries.
    """
    redelivered_header: str = "redelivered"
    count_header: str | None = None  # of MESSAGE: how often it has been delivered
    first_count: int | None = 1  # its value at the first delivery; None: a first delivery does not have it
    once_header: str | None = None  # of SEND: an id; a second send with it is answered, but not stored
    name_header: str | None = None  # of CONNECTED: the broker's own name
    store_header: str | None = None
    """A header for systems whose brokers take over stores from each other.

    In CONNECTED it names the store in which the broker keeps what this connection sends. In CONNECT
    it leads to the broker that owns that store by then.
    """
    redirect_header: str | None = None  # of ERROR: "name:port" of the broker to connect to instead
    feed: Feed | None = None
    topics: Topics | None = None
    temporaries: Temporaries | None = None
    wishes: Wishes = Wishes()
    queue_commands: QueueCommands | None = None
    nacks: bool = True
    """Whether a client can refuse a message; ``System.promises`` says what becomes of it then."""
    transactional_acks: bool = True
    """Whether an ACK can be part of a transaction, which STOMP leaves open."""
    redelivers_aborted: bool = False
    """Whether a session gets again what it acknowledged in a transaction that it rolled back.

    If not, a client has to leave and come again for it.
    """
    refused: Callable[[Mapping[str, str]], bool] = never
    """Whether the headers of an ERROR say that the requested operation certainly did not happen."""

    heart_beat_s: float = 0.5  # 0: brokers have none
    silent_beats: float = 2.5
    """The heart-beats without a byte after which a client gives the broker up.

    This must be sooner than the broker gives up a silent client; else two consumers would believe
    that they hold one message.
    """
    connect_s: float = 1.0  # from the first packet to CONNECTED
    unnoticed_s: float = 3.0  # longer than a broker takes to give up a silent client
    on_the_way_s: float = 0.0
    """The time that a message may take between brokers (s): a shorter silence proves nothing."""

    def quiet_s(self, asked_s: float) -> float:
        """Return how long nothing must arrive for a drain to be over; at least ``asked_s``."""
        return max(asked_s, self.on_the_way_s)

    def destination(self, queue: str) -> str:
        """Return the destination header for a queue or topic that has this name in a history.

        For a temporary queue it is the destination that its owner uses.
        """
        topics, temporaries = self._topics_of(queue), self._temporaries_of(queue)
        if temporaries is not None:
            return temporaries.destination.format(queue.removeprefix(TEMPORARY))
        if topics is None:
            return self.queue.format(queue)
        return topics.destination.format(queue.removeprefix(TOPIC))

    def send_headers(self, group: str | None, queue: str = "") -> dict[str, str]:
        """Return the headers that make a send durable and put it into a group.

        The send is to a queue, unless ``queue`` is the name of a topic or of a temporary queue.
        """
        other = self._topics_of(queue) or self._temporaries_of(queue)
        durable = self.durable if other is None else other.send
        if group is None or self.group_header is None:
            return dict(durable)
        return {**durable, self.group_header: group}

    def subscribe_headers(self, prefetch: int, queue: str = "") -> dict[str, str]:
        """Return the headers that make a client a queue's consumer and limit its window.

        If ``queue`` is the name of a topic or of a temporary queue, it becomes a consumer of that.
        The window is how many deliveries may be unacknowledged.
        """
        other = self._topics_of(queue) or self._temporaries_of(queue)
        subscribe = self.subscribe if other is None else other.subscribe
        if self.window_header is None:
            return dict(subscribe)
        return {**subscribe, self.window_header: str(prefetch * self.window_unit)}

    def _topics_of(self, queue: str) -> Topics | None:
        return self.topics if queue.startswith(TOPIC) else None

    def _temporaries_of(self, queue: str) -> Temporaries | None:
        return self.temporaries if queue.startswith(TEMPORARY) else None

    def delivery(self, headers: Mapping[str, str]) -> tuple[bool, int | None]:
        """Return (redelivered, number of the delivery or None) from the headers of a MESSAGE frame.

        Raises ValueError for a count that is not a number, or for which a history has no room.
        """
        count = headers.get(self.count_header) if self.count_header else None
        which = None if count is None else int(count) - (self.first_count or 0) + 1
        if which is not None and not -_COUNT_MAX <= which <= _COUNT_MAX:
            raise ValueError(f"{self.count_header} is {count}")
        return headers.get(self.redelivered_header) == "true", which
