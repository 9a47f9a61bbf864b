"""How one broker speaks STOMP, where brokers differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from checkers.schema import TEMPORARY, TOPIC

_COUNT_MAX: Final = 2**31 - 1
"""What the history's column of delivery counts has room for."""


def _never(headers: Mapping[str, str]) -> bool:
    """No ERROR says for certain that nothing was done."""
    del headers
    return False


def _literal(text: str) -> str:
    """A text in SQL."""
    return f"""'{text.replace("'", "''")}'"""


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """Where brokers tell their clients who is live.

    ``nodes`` reads a message from there: names, those to be tried first before others; none where
    it makes no sense.
    """

    destination: str
    nodes: Callable[[bytes], Sequence[str]]


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """How topics and subscriptions to them are spoken of.

    ``send`` and ``subscribe`` are headers that make the destination of a SEND, or SUBSCRIBE, a
    topic, and what is sent durable. ``durable`` and ``shared`` are those of a SUBSCRIBE, and of the
    UNSUBSCRIBE that drops it, to a subscription that outlives its connections: one of the client's
    own (``client`` of CONNECT names it), which has one consumer, and one that several may consume
    from. None: there are none. "{}" stands for the name of the subscription, "{topic}" for that of
    its topic.
    """

    destination: str = "/topic/{}"
    send: Mapping[str, str] = {}
    subscribe: Mapping[str, str] = {}
    client: str = "client-id"
    durable: Mapping[str, str] | None = None
    shared: Mapping[str, str] | None = None
    drops: Literal["alone", "with-consumer", "either"] = "alone"
    """Whether the UNSUBSCRIBE that drops comes behind that of the consumer, or is that of it."""
    selector: str | None = "selector"  # header of SUBSCRIBE: in SQL, what is wanted; None: none
    remakes: bool = False
    """Whether a durable subscription that is asked for with another selector is made anew."""

    def wanting(self, selector: Mapping[str, Sequence[str]] | None) -> dict[str, str]:
        """The header that asks for messages with one of these texts in each of these properties."""
        if self.selector is None or not selector:
            return {}
        some = [f"{name} IN ({', '.join(map(_literal, texts))})" for name, texts in selector.items()]
        return {self.selector: " AND ".join(some)}


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Headers of a SEND with which a message asks for something; None: brokers have no such.

    ``expires`` is in milliseconds, since the epoch or, if it ``lasts``, from when the message came;
    so is ``delay``, until when it is not to be delivered. ``priority`` is 0 to 9.
    """

    expires: str | None = None
    lasts: bool = False
    delay: str | None = None
    priority: str | None = None


class Temporaries(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection's own temporary queues are spoken of.

    A SUBSCRIBE to ``destination`` makes the queue; a SEND on the same connection says it in the
    header ``reply_to``, and what the broker says in that header of the MESSAGE is where others
    send. ``send`` and ``subscribe`` are further headers.
    """

    destination: str = "/temp-queue/{}"
    reply_to: str = "reply-to"
    send: Mapping[str, str] = {}
    subscribe: Mapping[str, str] = {}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """STOMP 1.2 as one system's brokers speak it.

    A default is what most brokers do; None for the name of a header is what a broker has not. What
    acknowledgements and refusals mean is told by ``System.promises``.
    """

    login: str = ""
    passcode: str = ""
    virtual_host: str | None = None  # of CONNECT; None is the name of the node
    queue: str = "/queue/{}"  # the destination of a queue
    durable: Mapping[str, str] = {}  # headers that make a send durable
    subscribe: Mapping[str, str] = {}  # headers of SUBSCRIBE that make its destination a queue
    group_header: str | None = "JMSXGroupID"
    closing: Mapping[str, str] = {}
    """Headers of a SEND that closes its group, so that another consumer may get what follows.

    Empty: brokers cannot be asked for that.
    """
    window_header: str | None = "prefetch-count"  # of SUBSCRIBE: what may be unacknowledged
    window_unit: int = 1  # what a message counts in a window, where that is in bytes
    ack_mode: str = "client-individual"
    """Of SUBSCRIBE. With "client" an ACK stands for all before it, too, which are answered already:
    consumers here acknowledge each subscription's messages in the order of their deliveries.
    """
    redelivered_header: str = "redelivered"
    count_header: str | None = None  # of MESSAGE: how often it has been delivered
    first_count: int | None = 1  # what that header says at the first delivery; None: it has none yet
    once_header: str | None = None  # of SEND: an id; another send with it is answered, and not stored
    name_header: str | None = None  # of CONNECTED: what the broker calls itself
    store_header: str | None = None
    """Of CONNECTED: names the store in which the broker keeps what comes here, where brokers take
    over stores from each other. Of CONNECT, it leads to whoever owns that store then.
    """
    redirect_header: str | None = None  # of ERROR: "name:port" of the broker to connect to instead
    feed: Feed | None = None
    topics: Topics | None = None
    temporaries: Temporaries | None = None
    wishes: Wishes = Wishes()
    nacks: bool = True
    """Whether a client can refuse a message; what becomes of it then, brokers promise."""
    transactional_acks: bool = True
    """Whether an ACK can be part of a transaction, which STOMP leaves open."""
    redelivers_aborted: bool = False
    """Whether a session gets again what was acknowledged in a transaction that it rolled back.

    Where not, a client has to leave and come again for it.
    """
    refused: Callable[[Mapping[str, str]], bool] = _never
    """Whether the headers of an ERROR say that what was asked has certainly not happened."""

    heart_beat_s: float = 0.5  # 0: brokers have none
    silent_beats: float = 2.5
    """Heart-beats without a byte after which a client gives the broker up.

    Sooner than the broker gives up a silent client, or two would believe to hold one message.
    """
    connect_s: float = 1.0  # from the first packet to CONNECTED
    unnoticed_s: float = 3.0  # longer than a broker takes to give up a silent client
    on_the_way_s: float = 0.0
    """How long a message may be on its way between brokers: for less, silence means nothing."""

    def quiet_s(self, asked_s: float) -> float:
        """How long nothing must arrive until a drain is over, where ``asked_s`` are asked for."""
        return max(asked_s, self.on_the_way_s)

    def destination(self, queue: str) -> str:
        """The destination header for a queue, or for a topic, as a history calls them.

        Of a temporary queue as its owner says it.
        """
        topics, temporaries = self._topics_of(queue), self._temporaries_of(queue)
        if temporaries is not None:
            return temporaries.destination.format(queue.removeprefix(TEMPORARY))
        if topics is None:
            return self.queue.format(queue)
        return topics.destination.format(queue.removeprefix(TOPIC))

    def send_headers(self, group: str | None, queue: str = "") -> dict[str, str]:
        """Headers that make a send durable and put it into a group.

        To a queue, unless ``queue`` is a topic's name, or a temporary queue's.
        """
        other = self._topics_of(queue) or self._temporaries_of(queue)
        durable = self.durable if other is None else other.send
        if group is None or self.group_header is None:
            return dict(durable)
        return {**durable, self.group_header: group}

    def subscribe_headers(self, prefetch: int, queue: str = "") -> dict[str, str]:
        """Headers that make it a queue's consumer and limit its unacknowledged deliveries.

        A topic's or a temporary queue's, if ``queue`` is the name of one.
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
        """(redelivered, which delivery it is if the broker tells) of a MESSAGE frame's headers.

        Raises ValueError for a count that is no number, or none that a history has room for.
        """
        count = headers.get(self.count_header) if self.count_header else None
        which = None if count is None else int(count) - (self.first_count or 0) + 1
        if which is not None and not -_COUNT_MAX <= which <= _COUNT_MAX:
            raise ValueError(f"{self.count_header} is {count}")
        return headers.get(self.redelivered_header) == "true", which
