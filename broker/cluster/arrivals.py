"""Messages that other brokers forward here, and the bodies of the large ones among them.

    bridge                                          here
    BodyRequest                                 ->
                                                <-  BodyAnswer: wanted, or not, or no room
    BlobChunk ... the last one                  ->  written to a blob of ours
                                                <-  BlobTaken, see ``cluster.blobs``
    ForwardRequest with the message             ->  body complete and durable, message stored
                                                <-  Forwarded

Why a message waits for its body, and all behind it on its link: what a record names has to be
there, also at the backup, before the record is. Other links and other messages on the link (its
heartbeats, news, votes) go on meanwhile. A body whose link ends before its message has come is
discarded; the bridge sends it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.core.engine import DemotedError, Engine
from broker.section import HOPS_MAX
from broker.storage.blobs import Blob, BlobWriter
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)

_KINDS: Final = (m.ForwardRequest, m.PassRequest, m.BodyRequest, m.BlobChunk)
"""The messages that are handled here."""


class Arrivals:
    """Takes what bridges of other brokers send, until ``stop``, by ``handlers`` of its messages.

    ``reaches`` returns whether there is a way to another broker, by its node ID; it is asked of
    each that messages are to be passed on to.
    """

    def __init__(
        self,
        engine: Engine,
        handlers: dict[type[m.LinkMessage], Callable[..., None]],
        reaches: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._engine = engine
        self._reaches = reaches
        self._handlers = handlers
        self._bodies: dict[ClusterLink, _BodyArrival] = {}
        """The links whose messages wait because a body is under way."""
        for kind in _KINDS:
            handlers[kind] = self._take

    def stop(self) -> None:
        """Take nothing more; a body whose message has not come is discarded."""
        for kind in _KINDS:
            self._handlers.pop(kind, None)
        for body in self._bodies.values():
            body.stop()

    def _take(self, link: ClusterLink, message: m.ForwardRequest | m.BodyRequest | m.BlobChunk) -> None:
        body = self._bodies.get(link)
        if body is not None:
            body.take(message)
        elif isinstance(message, m.ForwardRequest):
            self._accept(link, message, None)
        elif isinstance(message, m.BodyRequest):
            body = self._bodies[link] = _BodyArrival(self._engine, link, self._accept, self._ended)
            body.take(message)
        # Else it is a chunk of a body that was given up.

    def _accept(self, link: ClusterLink, request: m.ForwardRequest, body: Blob | None) -> None:
        passing = ""
        if isinstance(request, m.PassRequest):
            passing = self._engine.settings.forwarding_queue(request.destination)
            refusal = ""
            if not self._reaches(request.destination):
                refusal = f"there is no way to node {request.destination} from here"
            elif any(envelope.id.hops > HOPS_MAX for envelope in request.messages):
                refusal = f"a message was passed on {HOPS_MAX} times"
            if refusal:
                _release(self._engine, body)
                link.send(m.Forwarded(request.number, 0, refusal))
                return
        _take_in(self._engine, link, request, body, passing)

    def _ended(self, link: ClusterLink) -> None:
        del self._bodies[link]


class _BodyArrival:
    """Handles what comes over a link, in its order, while a body or something behind it waits."""

    def __init__(
        self,
        engine: Engine,
        link: ClusterLink,
        accept: Callable[[ClusterLink, m.ForwardRequest, Blob | None], None],
        ended: Callable[[ClusterLink], None],
    ) -> None:
        self._engine = engine
        self._link = link
        self._accept = accept
        self._ended = ended
        self._waiting: deque[m.ForwardRequest | m.BodyRequest | m.BlobChunk] = deque()
        self._arrived = asyncio.Event()
        self._writer: BlobWriter | None = None
        self._body: Blob | None = None
        """The body that is complete, and has no message yet."""
        self._task = asyncio.create_task(self._run(), name=f"large messages from {link.peer}")

    def take(self, message: m.ForwardRequest | m.BodyRequest | m.BlobChunk) -> None:
        """Handle a message behind those that wait."""
        self._waiting.append(message)
        self._arrived.set()

    def stop(self) -> None:
        """Handle nothing more."""
        self._task.cancel()

    async def _run(self) -> None:
        link_ended = asyncio.create_task(self._link.ended.wait(), name="the end of a link")
        link_ended.add_done_callback(lambda _: self._arrived.set())
        try:
            while not self._link.closed:
                if self._waiting:
                    await self._handle(self._waiting.popleft())
                elif self._writer is not None or self._body is not None:
                    self._arrived.clear()
                    await self._arrived.wait()
                else:
                    return
        except (OSError, JournalError) as error:
            _log.error("a large message from broker %s could not be stored: %s", self._link.peer, error)
        finally:
            link_ended.cancel()
            self._discard()
            self._ended(self._link)  # at once: what comes from now on must not wait here

    async def _handle(self, message: m.ForwardRequest | m.BodyRequest | m.BlobChunk) -> None:
        if isinstance(message, m.BodyRequest):
            self._discard()
            await self._begin(message)
        elif isinstance(message, m.ForwardRequest):
            body, self._body = self._body, None
            self._accept(self._link, message, body)
        elif self._writer is not None:
            await self._write(self._writer, message)

    async def _begin(self, request: m.BodyRequest) -> None:
        engine = self._engine
        reason = _refusal(engine, request.target)
        wanted = not engine.was_forwarded(request.id)
        if wanted and not reason:
            assert engine.large.store is not None, "a blob where none can be kept"
            self._writer = await engine.large.store.begin()
        self._link.send(m.BodyAnswer(request.number, wanted, reason if wanted else ""))

    async def _write(self, writer: BlobWriter, chunk: m.BlobChunk) -> None:
        writer.write(chunk.data)
        if writer.due:
            await writer.flush()
        if chunk.last:
            self._body = await writer.finish()
            self._writer = None
        self._link.send(m.BlobTaken(len(chunk.data)))

    def _discard(self) -> None:
        """Remove the body, if its message has not come."""
        if self._writer is not None:
            self._writer.discard()
        if self._body is not None:
            _release(self._engine, self._body)
        self._writer = self._body = None


def _take_in(
    engine: Engine, link: ClusterLink, request: m.ForwardRequest, body: Blob | None, passing: str
) -> None:
    """Take messages; the answer goes out when all of them are durable.

    ``body`` is that of the only message, if it is a large one; else of one that was given up.
    ``passing`` is the store-and-forward queue for messages that are to be passed on, else "".
    """
    if len(request.messages) > 1 or request.messages[0].blob is None:
        _release(engine, body)
        body = None
    if any(
        sent.blob is not None and not _is_whole(sent.blob, body) and not engine.was_forwarded(sent.id)
        for sent in request.messages
    ):
        _release(engine, body)
        link.send(m.Forwarded(request.number, 0, "the body of a large message did not come"))
        return
    messages = [envelope.opened(body) for envelope in request.messages]

    def durable() -> None:
        if count == len(messages):
            link.send(m.Forwarded(request.number, count, ""))

    try:
        count = engine.accept_forwarded(request.sender, messages, durable, passing)
    except DemotedError as error:
        _release(engine, body)
        link.send(m.Forwarded(request.number, 0, str(error)))
        return
    if count < len(messages):
        link.send(m.Forwarded(request.number, 0, _refusal(engine, passing or messages[count].target)))


def _is_whole(sent: Blob, body: Blob | None) -> bool:
    """Return whether a body is the one that its sender has."""
    return body is not None and (body.size, body.checksum) == (sent.size, sent.checksum)


def _release(engine: Engine, body: Blob | None) -> None:
    """Remove a body that no message will have."""
    if body is not None:
        engine.large.let_go((body,))


def _refusal(engine: Engine, target: str) -> str:
    """Return why no message for that queue or topic is taken now, "" if one is."""
    if not engine.memory.is_full(target, forwarded=True):
        return ""
    engine.memory.want_room()
    return f"{target} is full here"
