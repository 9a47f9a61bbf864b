"""A link: one authenticated TCP connection between two brokers.

It has frames, heartbeats, and requests that end.

Why our own heartbeats: TCP notices a lost peer after minutes, and nothing notices a partition. A
link is dead when no byte came for ``ttl`` seconds (``connection-ttl``, AMQ Appendix C).
``confirmed`` says more: the latest moment *of our own clock* at which the peer has certainly heard
us, because it answered a ping that was sent then. A live broker's right to answer clients depends
on that.

The handshake proves the cluster user and password both ways without sending them: each side
answers the other's nonce with an HMAC. No side introduces itself before the other has proved
itself, and each logs a refusal once, not at every attempt: the accepting side by its
``StrangerLog``, the connecting side where the ``LinkRefusedError`` of ``connect`` arrives.

    connecting side                accepting side
    Hello(versions, nonce)      ->
                                <- Challenge(nonce, version)        or Refusal
    Proof                       ->
                                <- Welcome(proof, member, shared)   or Refusal
    Introduction(member, shared)->
    or Refusal

``shared`` are the properties that all brokers of a cluster have in common. Two clusters may have
one password, and stay apart because their names differ. Each side compares them once the other has
proved itself, since they are nothing for strangers.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, cast

from broker.cluster import messages as m
from broker.handshake import NONCE_BYTES, Side, proof
from broker.strangers import StrangerLog, address_of, printable
from broker.tls import Layer, TlsError

_log = logging.getLogger(__name__)

PINGS_PER_TTL = 4
"""The heartbeats in one time to live: several may be lost before a link counts as dead.

The client of AMQ sends two per time to live.
"""

PINGS_PER_TTL_REPLICATING = 8
"""The heartbeats of a replication link in one time to live.

They are more, because a live's lease lasts from the latest ping that was answered.
"""

HANDSHAKE_S_MAX = 10.0
REASON_MAX = 200
"""The most characters of a stranger's reason that are logged."""

Purpose = Literal["cluster", "replication", "probe"]


class LinkError(ConnectionError):
    """The link does not exist, or was lost; the text says why. Connect again, or do without."""


class LinkRefusedError(LinkError):
    """The link was refused for settings that must be mended.

    They are the user, the password, the protocol version, or one that the cluster has in common.
    """


class Versions(NamedTuple):
    """The versions of the protocol that a broker speaks, from the oldest to the newest."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return f"version {self.newest}"
        return f"versions {self.oldest} to {self.newest}"

    def common(self, other: Versions) -> int | None:
        """Return the newest version that both speak; None if there is none."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None


SUPPORTED_VERSIONS: Final = Versions(m.OLDEST_VERSION, m.VERSION)
"""The versions that this program speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings that all links of a broker have in common; times in seconds."""

    user: str
    password: str
    ttl_s: float
    call_timeout_s: float
    nonce: Callable[[], bytes]
    member: Callable[[], m.Member]
    """Returns how we introduce ourselves at this moment."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """The properties that all brokers of the cluster have in common, by name."""
    versions: Versions = SUPPORTED_VERSIONS
    refusal: Callable[[m.Member, Mapping[str, str]], str] = lambda _, __: ""
    """Returns why a broker that has proved itself, and has those properties, is refused, or ""."""
    refusals_told: set[str] = field(default_factory=set)
    """What was logged of such brokers, which try again and again."""
    check_period_s: float = 30.0
    """The ``check-period``: the longest time that a link goes unchecked.

    A link with a short time to live is checked more often by itself.
    """
    tls: Layer | None = None
    strangers: StrangerLog = field(default_factory=lambda: StrangerLog(_log, "cluster port"))

    @property
    def handshake_s(self) -> float:
        """The time that a stranger may take to prove itself."""
        return min(self.call_timeout_s, self.ttl_s, HANDSHAKE_S_MAX)


class ClusterLink(asyncio.Protocol):
    """An end of a link.

    ``on_message`` gets every message that is not an answer to a request. ``on_closed`` is called
    once, with the reason, when an open link ends.

    ``purpose`` is None on the accepting side, which learns it from the other's introduction and
    then calls ``on_open``.
    """

    def __init__(
        self,
        terms: Terms,
        purpose: Purpose | None,
        *,
        on_open: Callable[[ClusterLink], None],
        ttl_s: float | None = None,
    ) -> None:
        self.terms = terms
        self.purpose = purpose
        self.connecting = purpose is not None
        self.ttl_s = ttl_s or terms.ttl_s
        self.member: m.Member | None = None
        """The peer, as it last introduced itself."""
        self.version = terms.versions.newest
        """The version of the protocol that both sides speak, once they have agreed on it."""
        self.on_open = on_open
        self.on_message: Callable[[m.LinkMessage], None] = _ignore
        self.on_closed: Callable[[str], None] = _ignore
        self.on_refused: Callable[[LinkError], None] = _ignore
        """Called instead of ``on_open`` when the link could not be made."""
        self.forwards = asyncio.Lock()
        """Held by whoever forwards messages: a body and its message come without others between."""
        self.proves = purpose == "replication"
        """True if the peer must prove again and again that it hears us: a lease depends on that."""
        self.is_open = False
        self.closed = False
        self.ended = asyncio.Event()
        self.received = 0.0
        """The time at which the last byte came."""
        self.confirmed = 0.0
        """The latest moment at which the peer has certainly heard us."""
        self.stalled = False
        """True if our own process did not run for long: a timer came late. A pong clears it."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._wanted = m.LENGTH.size
        self._frame_max = m.FRAME_MAX_STRANGER
        self._ours = terms.nonce()
        self._theirs = b""
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[m.Reply]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._begun = 0.0
        self._said = 0.0
        self._writable = asyncio.Event()
        self._writable.set()
        self._reason = ""

    # ------------------------------------------------------------------------------- to the outside

    @property
    def _peername(self) -> object:
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    @property
    def peer(self) -> str:
        """The other side, for logs."""
        if self.member is not None:
            return self.member.name
        name = self._peername
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) > 1 else "unknown"

    def send(self, message: m.LinkMessage) -> None:
        """Give a message to the connection; drops it if the link is closed (``on_closed``)."""
        if self._transport is not None and not self.closed:
            self._said = self._loop.time()
            self._transport.write(m.encode(message))

    def number(self) -> int:
        """Return the number of the next request."""
        self._numbers += 1
        return self._numbers

    async def call(self, request: m.Request, timeout_s: float | None = None) -> m.Reply:
        """Send a request, numbered by ``number``, and return its answer.

        Raises LinkError, TimeoutError.
        """
        future = self.ask(request)
        try:
            async with asyncio.timeout(self.terms.call_timeout_s if timeout_s is None else timeout_s):
                return await future
        finally:
            self._waiting.pop(request.number, None)

    def ask(self, request: m.Request) -> asyncio.Future[m.Reply]:
        """Send a request, and return its answer to come, which is a LinkError if the link ends.

        Raises LinkError if it has ended.
        """
        if not self.is_open:
            raise LinkError(f"no link to {self.peer}")
        future: asyncio.Future[m.Reply] = self._loop.create_future()
        self._waiting[request.number] = future
        self.send(request)
        return future

    async def drain(self) -> None:
        """Return when the connection has room for more.

        Await this between large messages, so that heartbeats never queue behind megabytes.
        """
        await self._writable.wait()

    @property
    def buffered(self) -> int:
        """The bytes that were given to the connection and have not left."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def ping(self) -> None:
        """Send a ping now, to learn whether the peer hears us."""
        self.send(m.Ping(self._loop.time()))

    def set_ttl(self, ttl_s: float) -> None:
        """Change how long silence is tolerated, and with it how often we send pings."""
        self.ttl_s = ttl_s
        if self.is_open:
            self._beat_later()

    def close(self, reason: str, error: LinkError | None = None) -> None:
        """End the link after what was written has left; ``error`` if it could not be made."""
        if self._transport is not None and not self.closed:
            self._reason = self._reason or reason
            self._transport.close()
            self._ended(error)

    def abort(self, reason: str) -> None:
        """End the link at once."""
        if not self.closed:
            self._reason = self._reason or reason
            if self._transport is not None:
                self._transport.abort()
            self._ended()

    def refuse(self, reason: str) -> None:
        """Tell the other side why it is refused, and end the link."""
        self.send(m.Refusal(reason))
        self.close(reason, LinkRefusedError(reason))

    # --------------------------------------------------------------------------- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's transports behave as such but are no subclass
        self._transport = transport
        if self.closed:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=512 * 1024)
        self.received = self._loop.time()
        if self.connecting:
            versions = self.terms.versions
            self.send(m.Hello(versions.newest, "", self._ours, versions.oldest))
        self._timer = self._loop.call_later(self.terms.handshake_s, self._handshake_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the other side, or the network, ended the link."""
        self._reason = self._reason or (str(exc) if exc else "closed by the other side")
        self._ended(LinkRefusedError(str(exc)) if isinstance(exc, TlsError) else None)

    def pause_writing(self) -> None:
        """Let ``drain`` wait, because the buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let ``drain`` return, because the buffer has room."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Cut the stream into frames; a part of a frame waits uncopied until the frame is whole."""
        self.received = self._loop.time()
        if self._rest:
            self._rest.append(data)
            self._rest_size += len(data)
            if self._rest_size < self._wanted:
                return
            data = b"".join(self._rest)
            self._rest = []
        position, end = 0, len(data)
        view = memoryview(data)
        while True:
            if end - position < m.LENGTH.size:
                self._wanted = m.LENGTH.size
                break
            (size,) = m.LENGTH.unpack_from(data, position)
            if size > self._frame_max:
                self._broken(f"the frame has {size} bytes, more than {self._frame_max}")
                return
            if end - position - m.LENGTH.size < size:
                self._wanted = size + m.LENGTH.size
                break
            position += m.LENGTH.size + size
            try:
                message = m.decode(view[position - size : position])
            except m.NotUnderstoodError as error:
                self._broken(f"the message cannot be decoded: {error}")
                return
            self._take(message)
            if self.closed:
                return
        if position < end:
            self._rest = [data[position:]]
            self._rest_size = end - position

    # --------------------------------------------------------------------------------------- inside

    def _take(self, message: m.LinkMessage) -> None:
        if not self.is_open:
            self._shake_hands(message)
        elif isinstance(message, m.Ping):
            self.send(m.Pong(message.at))
        elif isinstance(message, m.Pong):
            self.confirmed = max(self.confirmed, min(message.at, self._loop.time()))
            self.stalled = False
            self.on_message(message)
        elif isinstance(message, m.Reply):
            future = self._waiting.pop(message.number, None)
            if future is not None and not future.done():
                future.set_result(message)
        elif isinstance(message, m.Refusal):
            self.abort(f"refused: {message.reason}")
        else:
            self.on_message(message)

    def _shake_hands(self, message: m.LinkMessage) -> None:
        terms = self.terms
        if isinstance(message, m.Refusal) and (self.connecting or self._proved):
            reason = message.reason[:REASON_MAX]
            if not self.connecting:
                self._tell_of_refusal(f"cluster: a broker refused the connection: {reason}")
            self._fail(LinkRefusedError(f"refused: {reason}"))
        elif not self.connecting and isinstance(message, m.Hello) and not self._theirs:
            theirs = Versions(message.version if message.oldest is None else message.oldest, message.version)
            version = terms.versions.common(theirs)
            if version is None:
                self._reject(
                    f"the connecting broker speaks {theirs} of the cluster protocol, the accepting broker "
                    f"{terms.versions}"
                )
            elif len(message.nonce) != NONCE_BYTES:
                self._broken(f"the nonce has {len(message.nonce)} bytes, not {NONCE_BYTES}")
            else:
                self._theirs = message.nonce
                self.version = version
                self.send(m.Challenge(self._ours, version))
        elif self.connecting and isinstance(message, m.Challenge) and not self._theirs:
            if len(message.nonce) != NONCE_BYTES:
                self._broken(f"the nonce has {len(message.nonce)} bytes, not {NONCE_BYTES}")
                return
            if not terms.versions.oldest <= message.version <= terms.versions.newest:
                self._broken(f"version {message.version} was chosen, and this broker speaks {terms.versions}")
                return
            self._theirs = message.nonce
            self.version = message.version
            self.send(m.Proof(self._proof("connecting")))
        elif not self.connecting and isinstance(message, m.Proof) and self._theirs:
            if hmac.compare_digest(message.digest, self._proof("connecting")):
                self.send(m.Welcome(self._proof("accepting"), terms.member(), dict(terms.shared)))
                self._frame_max = m.FRAME_MAX
            else:  # A stranger does not learn which of the two is wrong.
                self._reject("wrong cluster-user or cluster-password")
        elif self.connecting and isinstance(message, m.Welcome) and self._theirs:
            if not hmac.compare_digest(message.digest, self._proof("accepting")):
                self._fail(LinkRefusedError("it does not know this broker's cluster-password"))
                return
            refusal = terms.refusal(message.member, message.shared)
            if refusal:
                self.refuse(refusal)
                return
            assert self.purpose is not None
            self.send(m.Introduction(terms.member(), self.purpose, dict(terms.shared)))
            self._open(message.member)
        elif not self.connecting and isinstance(message, m.Introduction) and self._proved:
            refusal = terms.refusal(message.member, message.shared)
            if refusal:
                self._tell_of_refusal(f"cluster: a broker was refused: {refusal}")
                self.refuse(refusal)
                return
            self.purpose = message.purpose
            self.proves = message.purpose == "replication"
            self._open(message.member)
        else:
            self._broken(f"{type(message).__name__} was not expected")

    @property
    def _proved(self) -> bool:
        """True if the other side has proved that it knows the password."""
        return self._frame_max == m.FRAME_MAX

    def _tell_of_refusal(self, text: str) -> None:
        """Log once what keeps a broker that knows our password out of our cluster."""
        if text not in self.terms.refusals_told:
            self.terms.refusals_told.add(text)
            _log.warning("%s", printable(text))

    def _proof(self, side: Side) -> bytes:
        """Return what a side says to prove that it knows our cluster user and password."""
        nonces = (self._ours, self._theirs) if self.connecting else (self._theirs, self._ours)
        return proof(self.terms.password, "cluster", side, *nonces, user=self.terms.user)

    def _open(self, member: m.Member) -> None:
        self.member = member
        self.is_open = True
        self._frame_max = m.FRAME_MAX
        self.confirmed = self.received = self._loop.time()
        self._beat_later()
        self.on_open(self)

    def _beat_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._beat_after(self._loop.time())

    def _beat_after(self, now: float) -> None:
        beats = PINGS_PER_TTL_REPLICATING if self.purpose == "replication" else PINGS_PER_TTL
        self._begun = now
        self._due = now + min(self.ttl_s / beats, self.terms.check_period_s)
        self._timer = self._loop.call_at(self._due, self._beat)

    def _beat(self) -> None:
        now = self._loop.time()
        late = now - self._due
        if late > self.ttl_s / 4:
            # We did not run: what the peer sent meanwhile is still unread, and will show whether it
            # is alive.
            self.stalled = True
        elif now - self.received > self.ttl_s:
            self.abort(f"nothing heard for {1000 * (now - self.received):.0f} ms (connection-ttl)")
            return
        if self.proves or now - self._said >= 0.9 * (self._due - self._begun):
            # On an ordinary link an answer to the other's ping shows as much as a ping of our own.
            # A broker with a lease must know what its peer has heard, and when.
            self.send(m.Ping(now))
        self._beat_after(now)

    def _handshake_late(self) -> None:
        late = f"no handshake within {1000 * self.terms.handshake_s:.0f} ms"
        if not self.connecting:
            self._warn(f"cluster: connection from {self.peer} closed: {late}")
        self._fail(LinkError(late))

    def _warn(self, text: str) -> None:
        """Log what a peer did that has not proved who it is."""
        self.terms.strangers.tell(address_of(self._peername), text)

    def _reject(self, reason: str) -> None:
        address = address_of(self._peername)
        text = f"cluster: connection from {address} refused: {reason}"
        self.terms.strangers.tell_once(address, text)
        self.refuse(reason)

    def give_way(self, why: str) -> None:
        """End a link whose peer has not proved who it is, to make room for another."""
        self._warn(f"cluster: connection from {self.peer} closed: {why}")
        self.abort(why)

    def _broken(self, what: str) -> None:
        text = f"cluster: connection with {self.peer} closed: {what}"
        if self.is_open:
            _log.warning("%s", text)
        else:
            self._warn(text)
        self.abort(what)

    def _fail(self, error: LinkError) -> None:
        self._reason = self._reason or str(error)
        refused, self.on_refused = self.on_refused, _ignore
        refused(error)
        self.abort(str(error))

    def _ended(self, error: LinkError | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(LinkError(f"link to {self.peer} lost: {self._reason}"))
        self._waiting.clear()
        if self.is_open:
            # The end may be read before the timer that would have noticed that we did not run.
            self.stalled = self.stalled or self._loop.time() - self._due > self.ttl_s / 4
            self.is_open = False
            self.on_closed(self._reason)
        else:
            refused, self.on_refused = self.on_refused, _ignore
            refused(error or LinkError(self._reason))
        self.on_message = self.on_closed = self.on_open = _ignore
        self.ended.set()


def _ignore(_: object) -> None:
    pass


async def connect(
    terms: Terms,
    address: tuple[str, int],
    purpose: Purpose,
    *,
    opened: Callable[[ClusterLink], None] = _ignore,
    ttl_s: float | None = None,
    timeout_s: float | None = None,
) -> ClusterLink:
    """Connect to a broker and return an open link.

    ``opened`` is called on it before any message is delivered, to set its callbacks.

    Raises LinkError (LinkRefusedError for wrong credentials), OSError, TimeoutError after
    ``timeout_s`` (default ``call-timeout``).
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[ClusterLink] = loop.create_future()

    def succeed(link: ClusterLink) -> None:
        opened(link)
        if not result.done():
            result.set_result(link)

    def fail(error: LinkError) -> None:
        if not result.done():
            result.set_exception(error)

    link = ClusterLink(terms, purpose, on_open=succeed, ttl_s=ttl_s)
    link.on_refused = fail
    try:
        async with asyncio.timeout(terms.call_timeout_s if timeout_s is None else timeout_s):
            await loop.create_connection(
                lambda: link if terms.tls is None else terms.tls.connecting(link), *address
            )
            return await result
    except BaseException:
        link.abort("given up")
        if result.done() and not result.cancelled():
            result.exception()
        raise
