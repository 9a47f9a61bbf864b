"""A bridge: brings messages to one remote node, each exactly once.

It takes them from the store-and-forward queue of that node.

Why exactly once although it repeats itself: a message leaves our journal only when the other broker
says that it is durable there. If an answer is lost, the message is sent again, and the receiver
recognises it by its identity (``accept_forwarded``). The bridge belongs to a node ID, not to a
broker: when the live fails, it goes on with the backup that takes over.

The body of a large message goes before it, in chunks. The bridge asks for that: the queue there may
be full, or the message may be there already, because an answer was lost. A message whose body is
damaged or missing stays in the queue, and the others overtake it; it is tried again over each link.

If there is no link with that node, messages go to the next broker on the way to it, which stores
them in its own store-and-forward queue of the node. Then several bridges share a link, and take
turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.cluster import messages as m
from broker.cluster.blobs import BlobSender
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.membership import Membership
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.engine import DemotedError, Engine
from broker.storage.blobs import Blob
from broker.storage.errors import JournalDamagedError, JournalError

_log = logging.getLogger(__name__)

BATCH = 200
BATCH_BYTES = 1024 * 1024
WINDOW = 2000
"""The most messages that are taken from the queue and not yet confirmed."""
WINDOW_BYTES = 2 * BATCH_BYTES
"""The most bytes of them, and one message: a request is under way, and the next one is at hand."""


NextBroker = tuple[m.Member, ClusterLink]
"""A live broker that we are linked with, and the link."""


class Bridge:
    """Forwards while there is a way to a live broker of ``node_id``; ``wake`` tells it to look.

    ``next_to`` returns the next broker on the way to a node, None if there is no way.
    """

    def __init__(
        self,
        engine: Engine,
        membership: Membership,
        node_id: str,
        next_to: Callable[[str], NextBroker | None],
    ) -> None:
        self.node_id = node_id
        self.queue = engine.settings.forwarding_queue(node_id)
        self._engine = engine
        self._membership = membership
        self._next_to = next_to
        self._changed = asyncio.Event()
        self._link: ClusterLink | None = None
        self._passing = False
        """Whether the broker at the other end of ``_link`` is to pass messages on."""
        self._body: BlobSender | None = None
        """Sends the body that is under way over ``_link``."""
        self._task = asyncio.create_task(self._run(), name=f"bridge to {node_id}")

    def wake(self) -> None:
        """Look again, because the cluster has changed."""
        self._changed.set()
        if self._body is not None and not self._reaches(self._link):
            self._body.stop()

    def taken(self, link: ClusterLink, count: int) -> None:
        """Note that the broker at the other end of a link has written so many bytes of a body."""
        if self._body is not None and link is self._link:
            self._body.taken(count)

    def stop(self) -> None:
        """Stop forwarding; what was not confirmed stays in the queue."""
        self._task.cancel()

    async def _run(self) -> None:
        section = self._membership.section
        while True:
            self._changed.clear()
            neighbour = self._next_to(self.node_id)
            if neighbour is None:
                await self._changed.wait()
                continue
            member, link = neighbour
            try:
                await self._forward(link, passing=member.node_id != self.node_id)
            except (LinkError, TimeoutError) as error:
                _log.info(
                    "forwarding messages to broker %s is interrupted: %s; trying again",
                    member.name,
                    str(error) or "no confirmation within call-timeout",
                )
            except OSError as error:
                _log.error(
                    "forwarding messages to broker %s is interrupted: a large message cannot be read: %s; "
                    "trying again",
                    member.name,
                    error,
                )
            except DemotedError:
                return
            except JournalError as error:
                _log.error("forwarding messages to broker %s has ended: %s", member.name, error)
                return
            await asyncio.sleep(section.retry_interval / 1000)

    async def _forward(self, link: ClusterLink, *, passing: bool) -> None:
        """Forward over this link until it fails, or another one is next."""
        self._link, self._passing = link, passing
        waiting: list[Delivery] = []
        arrived = asyncio.Event()

        def deliver(delivery: Delivery) -> None:
            delivery.consumer.spend(delivery.message.size)
            waiting.append(delivery)
            arrived.set()

        consumer = self._engine.subscribe(
            self.queue, deliver, window=WINDOW, window_bytes=WINDOW_BYTES, internal=True
        )
        try:
            while self._reaches(link):
                if not waiting:
                    arrived.clear()
                    if self._engine.abandoned:
                        return
                    await _either(arrived, self._changed)
                    self._changed.clear()
                    continue
                count = _batch(waiting)
                batch, waiting[:count] = waiting[:count], []
                try:
                    async with link.forwards:  # others send over it, too, if it leads to their nodes
                        await self._send(link, batch)
                except (FileNotFoundError, JournalDamagedError) as error:
                    _log.error(
                        "a large message for %s stays in %s, because its body cannot be read: %s",
                        batch[0].message.target[:128],
                        self.queue,
                        error,
                    )
                consumer.refund(sum(delivery.message.size for delivery in batch))
        finally:
            self._end(consumer)

    async def _send(self, link: ClusterLink, batch: list[Delivery]) -> None:
        sender = self._engine.settings.node_id
        passing = self._passing
        envelopes = tuple([m.Envelope.of(delivery.message, sender, passing=passing) for delivery in batch])
        if envelopes[0].blob is not None:
            await self._send_body(link, envelopes[0], envelopes[0].blob)
        number = link.number()
        reply = await link.call(
            m.PassRequest(number, sender, envelopes, self.node_id)
            if passing
            else m.ForwardRequest(number, sender, envelopes)
        )
        if not isinstance(reply, m.Forwarded) or reply.count != len(batch):
            raise LinkError(reply.reason if isinstance(reply, m.Forwarded) else "not understood")
        self._engine.acknowledge(batch)

    async def _send_body(self, link: ClusterLink, envelope: m.Envelope, blob: Blob) -> None:
        """Send the body of a large message ahead, if the other broker wants it."""
        store = self._engine.large.store
        assert store is not None, "a blob where none can be kept"
        target = self.queue if self._passing else envelope.target
        answer = await link.call(m.BodyRequest(link.number(), envelope.id, target))
        if not isinstance(answer, m.BodyAnswer) or answer.reason:
            raise LinkError(answer.reason if isinstance(answer, m.BodyAnswer) else "not understood")
        if not answer.wanted:
            return
        # The answer came behind all that was said of bodies before: whatever is taken from now on
        # is of this one.
        self._body = BlobSender(link, link.terms.call_timeout_s)
        try:
            await self._body.send(store, blob)
        finally:
            self._body = None

    def _reaches(self, link: ClusterLink | None) -> bool:
        """Return whether the link is open, and leads to the next broker on the way to our node."""
        neighbour = self._next_to(self.node_id)
        return link is not None and link.is_open and neighbour is not None and neighbour[1] is link

    def _end(self, consumer: QueueConsumer) -> None:
        if not self._engine.abandoned:
            self._engine.unsubscribe(consumer)


def _batch(waiting: list[Delivery]) -> int:
    """Return how many of the messages go into one request; at least one, a large one alone."""
    size = 0
    for count, delivery in enumerate(waiting[:BATCH]):
        size += delivery.message.size
        if count and (size > BATCH_BYTES or delivery.message.large is not None):
            return count
        if delivery.message.large is not None:
            return 1
    return min(len(waiting), BATCH)


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    """Return when one of two events is set."""
    waits = [asyncio.ensure_future(first.wait()), asyncio.ensure_future(second.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
