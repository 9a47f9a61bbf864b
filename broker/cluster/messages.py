"""The messages between brokers: one type per message, as MessagePack arrays.

Why one place: both ends of every conversation are in this program, and a reader who wants to know
the protocol needs only this file. A frame is ``length u32`` (big endian), then one message.
``VERSION`` changes whenever a message does. Two brokers speak the newest version that both know; if
there is none, they refuse each other in the handshake, by name, rather than misunderstand each
other later.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from broker.core.changes import Change, Kind, Sequence64
from broker.core.identity import Count, MessageId, Name
from broker.core.interests import Interest
from broker.core.message import Message
from broker.core.properties import unpack
from broker.core.subscription import Subscription
from broker.core.two_phase import Outcome, TransactionId
from broker.storage.blobs import Blob

VERSION: Final = 10
OLDEST_VERSION: Final = 10
"""The oldest version that this program still speaks."""

STATE_VERSION_MAX: Final = 2**62
"""The highest version of a ``LinkState``; one begins with microseconds since the epoch."""

LENGTH: Final = struct.Struct(">I")
FRAME_MAX: Final = 256 * 1024 * 1024
"""The most bytes of one frame between brokers that have proved themselves."""
FRAME_MAX_STRANGER: Final = 4096
"""The most bytes of one frame from a peer that has not proved yet that it is of the cluster."""


class NotUnderstoodError(ValueError):
    """The bytes of a frame are not a message; their sender is not a broker of this version."""


class LinkMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A message that travels on a link."""


class Request(LinkMessage, frozen=True):
    """A message that wants an answer; ``number`` is the asker's, unique on its link."""

    number: int


class Reply(LinkMessage, frozen=True):
    """The answer to the request of that number."""

    number: int


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A broker as it introduces itself (AMQ 17.1.3, 17.2.1).

    ``incarnation`` orders the lives of one broker (``cluster.incarnation``), and ``version`` what
    it said in one of them. ``activation`` counts the takeovers of a node ID: of two brokers that
    claim one, the higher took over last.
    """

    name: str
    node_id: str | None
    role: str
    connector: str
    stomp_connector: str
    group_name: str | None
    incarnation: int
    version: int
    activation: int
    live: bool = False
    """True if the broker has an engine.

    It serves clients, or waits for the vote that says whether it may go on.
    """
    heir: bool = False
    """True for a backup whose copy is up to date.

    It takes over, or asks to, as soon as it notices that its live is gone.
    """
    newest: int = 0
    """The newest version of this protocol that the broker speaks; 0 if it does not say so."""

    @property
    def life(self) -> tuple[str, int]:
        """The name and the number that tell this life of the broker from all others."""
        return self.name, self.incarnation

    @property
    def claims(self) -> bool:
        """True if the broker is live, or may be in a moment: a backup whose vote is under way."""
        return self.live or self.role == "voting"


# ---------------------------------------------------------------------------------------- handshake


class Hello(LinkMessage, frozen=True):
    """The first message of the connecting side, whose password the other proves over ``nonce``.

    It speaks the versions from ``oldest`` to ``version``. Brokers up to version 5 name one only.
    ``user`` is empty: only those brokers show their cluster user to whoever answers.
    """

    version: int
    user: str
    nonce: bytes
    oldest: int | None = None


class Challenge(LinkMessage, frozen=True):
    """The nonce over which the connecting side must prove its password.

    ``version`` is the one that both sides speak from now on.
    """

    nonce: bytes
    version: int


class Proof(LinkMessage, frozen=True):
    """HMAC-SHA-256 of the cluster user and both nonces under the cluster password.

    Neither the user nor the password itself travels.
    """

    digest: bytes


class Welcome(LinkMessage, frozen=True):
    """The accepting side's proof, its introduction, and its ``Terms.shared``."""

    digest: bytes
    member: Member
    shared: dict[str, str]


class Introduction(LinkMessage, frozen=True):
    """The connecting side's introduction and purpose, sent once the other has proved itself."""

    member: Member
    purpose: Literal["cluster", "replication", "probe"]
    shared: dict[str, str]


class Refusal(LinkMessage, frozen=True):
    """A refusal; ``reason`` is for both logs and tells a stranger nothing of use."""

    reason: str


# ----------------------------------------------------------------------------------------- liveness


class Ping(LinkMessage, frozen=True):
    """A ping; ``at`` is the sender's clock in seconds.

    It comes back in the ``Pong``, which proves that the peer has heard the sender since then.
    """

    at: float


class Pong(LinkMessage, frozen=True):
    """The answer to a ping; ``at`` is that of the ping."""

    at: float


# --------------------------------------------------------------------------------------- membership


class Members(LinkMessage, frozen=True):
    """The brokers that the sender knows, itself included."""

    members: tuple[Member, ...]


class Leaving(LinkMessage, frozen=True):
    """The sender stops cleanly and will not be back under this start."""

    name: str
    incarnation: int


class Reload(Request, frozen=True):
    """The request to read the cluster file again, because an administrator has changed it."""


class Reloaded(Reply, frozen=True):
    """The answer to ``Reload``; ``problem`` says why the file is not read, "" if it is."""

    problem: str


class Consumers(LinkMessage, frozen=True):
    """Numbers of clients' consumers of the sender's queues; ``whole``: other queues have none.

    ``selectors`` are those of a queue whose consumers all have one: they want nothing else.
    """

    counts: dict[str, int]
    whole: bool
    selectors: dict[str, tuple[str, ...]] = {}


class LinkState(LinkMessage, frozen=True):
    """The state of a live broker, for all others that it reaches over whatever brokers.

    ``origin`` is its name, ``start`` its incarnation, and ``version`` the number of what it says:
    higher ones are newer. ``neighbours`` are the live brokers that it is linked with, by name, and
    ``consumers`` its own, all of them.
    """

    origin: str
    node_id: Name
    start: int
    version: Annotated[int, Meta(ge=0, le=STATE_VERSION_MAX)]
    neighbours: tuple[str, ...]
    consumers: Consumers


class Interests(LinkMessage, frozen=True):
    """The news of what the subscriptions of a node want of some topics; ``whole``: of no others.

    ``version`` orders what one engine (``engine`` names it) says; news may come over two links.
    ``upto`` is the number of the last subscription that it includes.
    """

    node_id: Name
    engine: str
    version: int
    upto: int
    topics: dict[str, Interest]
    whole: bool


class InterestsNoted(LinkMessage, frozen=True):
    """The answer to ``Interests``: the sender knows that news, also after a restart.

    What it stores for subscriptions up to number ``upto`` has higher records than ``record``.
    """

    engine: str
    version: int
    upto: int
    record: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class InterestsWanted(LinkMessage, frozen=True):
    """The request for all ``Interests`` of the receiver."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message on its way to another broker's queue or topic, with all that it is.

    ``closes``: it ends its group. ``deliveries`` and ``refusals`` count those to clients so far.
    ``properties`` are packed ones, b"" for none; ``headers`` are header lines. With a ``blob``, the
    body is large and came before, in chunks; ``body`` has only its beginning.

    What does not fit into a record is refused here: half of it would be stored before that shows.
    """

    id: MessageId
    target: Annotated[Name, Meta(min_length=1)]
    group: Name | None
    closes: bool
    deliveries: Count
    refusals: Count
    properties: bytes
    headers: bytes
    body: bytes
    blob: Blob | None

    @classmethod
    def of(cls, message: Message, node_id: str, *, passing: bool = False) -> Envelope:
        """Return the envelope of a message that is stored at the broker with that node ID.

        Its identity is the one that it has at the receiver, which is to pass it on if ``passing``.
        """
        properties = message.properties
        identity = message.identity_at(node_id)
        return cls(
            identity.passed() if passing else identity.arrived(),
            message.target,
            message.group,
            message.closes,
            message.deliveries,
            message.refusals,
            b"" if properties is None else properties.packed(),
            message.headers,
            message.body,
            message.large,
        )

    def opened(self, large: Blob | None = None) -> Message:
        """Return the message as a new one, not stored yet; ``large`` is our blob of its body."""
        message = Message(
            self.target,
            self.headers,
            self.body,
            self.group,
            closes=self.closes,
            large=large,
            properties=unpack(self.properties) if self.properties else None,
        )
        message.identity = self.id
        message.deliveries = self.deliveries
        message.refusals = self.refusals
        return message


class ForwardRequest(Request, frozen=True, tag="Forward"):
    """Messages for the receiver, from the store-and-forward queue of the node ID ``sender``."""

    sender: Name
    messages: Annotated[tuple[Envelope, ...], Meta(min_length=1)]


class PassRequest(ForwardRequest, frozen=True, tag="Pass"):
    """Messages that the receiver is to pass on to the broker with the node ID ``destination``."""

    destination: Name


class BodyRequest(Request, frozen=True):
    """The question whether the receiver wants the body of a large message, in chunks.

    The message itself follows behind the body, in a ``ForwardRequest`` of its own. ``target`` is
    where the receiver will store it: the queue of the message, or a store-and-forward queue.
    """

    id: MessageId
    target: str


class BodyAnswer(Reply, frozen=True):
    """The answer: ``wanted`` is False for a message that was taken before.

    With a ``reason`` the message cannot be taken now.
    """

    wanted: bool
    reason: str


class Forwarded(Reply, frozen=True):
    """The first ``count`` messages are durable here; 0 with a reason if none can be taken."""

    count: int
    reason: str


# ------------------------------------------------------------------------------------ home brokers
#
# A message of a conventional cluster stays at its home, the broker that took it. The broker of a
# consumer, the *host*, consumes at every home over the link that the host has dialled:
#
#     host                                          home
#     HomeGreeting                              ->
#                                               <-  HomeGreeted
#     RemoteConsume, for each consumer          ->
#                                               <-  RemoteConsumed, for each
#     ConsumersTold                             ->
#                                               <-  RemoteDelivery, at most a window of them; the
#                                                   body of a large message goes before it, in
#                                                   ``BlobChunk`` (see ``cluster.blobs``)
#     RemotePassed: clients have them           ->  it may send more bytes
#     RemoteTaken: a transaction has them       ->
#     SettleRequest: ACK, NACK, COMMIT, ABORT   ->  one entry
#                                               <-  Settled, once that is durable
#     PrepareRequest: COMMIT, over brokers      ->
#                                               <-  Settled, once that is durable
#     RemoteGiveBack                            ->
#                                               <-  RemotePaused, if it pauses
#     RemoteResume, RemoteEnd                   ->
#                                               <-  RemoteGone, if the home ends a consumer
#                                               <-  ReplyWaits, in a queue that nobody asked for
#     ReplyUnwanted, if it has ended            ->
#
# The coordinator of a transaction over brokers tells those that have prepared it, over any link:
# DecisionRequest, which they answer by Settled. They ask it, too: OutcomeRequest and OutcomeAnswer.
#
# A link loses nothing unless it ends, so nothing else is repeated. When it ends, both sides forget
# all of it; see ``cluster.home_service`` for when the home gives the messages to others.


class HomeGreeting(LinkMessage, frozen=True):
    """The first word of a host over a link: it holds nothing that came over earlier ones.

    It offers to hold what comes over this one only until ``lease_s`` after it sent the last ping
    that was answered.
    """

    lease_s: Annotated[float, Meta(gt=0)]


class HomeGreeted(LinkMessage, frozen=True):
    """The home's answer: the host may hold messages for ``lease_s``, perhaps less than offered.

    ``at`` is the home's clock, as in ``Settled`` and ``RemoteDelivery``: what the host had asked
    before, it had asked before that. So the host knows when a message expires at the latest,
    however long that was under way.
    """

    lease_s: Annotated[float, Meta(gt=0)]
    at: float


class RemoteConsume(LinkMessage, frozen=True):
    """A consumer of the host wants the messages of a queue, or of a subscription to a topic.

    ``consumer`` is its number, unique in the life of the host. It holds ``window`` messages of the
    home at the most. ``made`` is the place of the change that made the queue at the host, None if
    the change record does not have it there. If the home has another one under that name, or none,
    the consumer waits. Only a subscription that is not durable is made at the home if it is not
    there. If ``claims``, a client has just asked for it, and the consumer takes the place of one
    that is there.
    """

    consumer: int
    queue: Annotated[str, Meta(min_length=1)]
    subscription: Subscription | None
    made: tuple[str, int] | None
    selector: str
    window: Annotated[int, Meta(ge=0)]
    claims: bool


class RemoteConsumed(LinkMessage, frozen=True):
    """The home has the consumer.

    For a queue that is not there, or is another one, this is said at once. For a durable
    subscription of the change record it is said when that has made it at the home.
    """

    consumer: int


class ConsumersTold(LinkMessage, frozen=True):
    """The host has told the home of all its consumers.

    Queues that end with a client of the host, and have no consumer by now, are nobody's.
    """


class RemoteDelivery(LinkMessage, frozen=True):
    """A message for a consumer of the host, which holds it from now on.

    ``record`` is its record at the home, and part of its message-id. It expires when the home's
    clock (of its loop) shows ``expires``; None: never.
    """

    consumer: int
    tag: int
    record: int
    expires: float | None
    envelope: Envelope


class RemotePassed(LinkMessage, frozen=True):
    """The host has no message waiting that it got for a consumer up to the delivery ``tag``.

    The host says so from time to time: the home stops when too many bytes are on their way or wait.
    """

    consumer: int
    tag: int


class RemoteTaken(LinkMessage, frozen=True):
    """A transaction of a client holds these deliveries: its consumer may get more."""

    consumer: int
    tags: tuple[int, ...]


class SettleRequest(Request, frozen=True):
    """Deliveries that clients have acknowledged or refused, by consumer, as one entry.

    Those that are ``given_up`` are dead letters at once.
    """

    acknowledged: dict[int, tuple[int, ...]]
    refused: dict[int, tuple[int, ...]]
    given_up: dict[int, tuple[int, ...]]


class Settled(Reply, frozen=True):
    """The deliveries of a request are settled, durably; with a ``reason``, none of them is."""

    reason: str
    at: float


class PrepareRequest(SettleRequest, frozen=True):
    """A promise to settle deliveries, or to keep them, as the transaction's coordinator decides.

    The answer is ``Settled``, once the promise is durable.
    """

    transaction: TransactionId


class DecisionRequest(Request, frozen=True):
    """The coordinator has decided; ``Settled`` says that the home has done so, durably.

    A home that has not prepared the transaction (any more) has nothing to do.
    """

    transaction: TransactionId
    commits: bool


class OutcomeRequest(Request, frozen=True):
    """A home that has prepared a transaction asks its coordinator what became of it."""

    transaction: TransactionId


class OutcomeAnswer(Reply, frozen=True):
    """The coordinator's answer."""

    outcome: Outcome


class RemoteGiveBack(LinkMessage, frozen=True):
    """The host gives deliveries back: no client has refused them.

    ``seen`` is False if no client has seen them. If it ``pauses``, the consumer has no room, and
    gets no more until ``RemoteResume``. What was on its way then is given back, too: a younger
    message must not come before those. The home says where that ends, by ``RemotePaused``.
    """

    consumer: int
    tags: tuple[int, ...]
    seen: bool
    pauses: bool


class RemotePaused(LinkMessage, frozen=True):
    """The home gives the consumer no more messages from here on, until ``RemoteResume``."""

    consumer: int


class RemoteResume(LinkMessage, frozen=True):
    """The consumer has room again; sent after ``RemotePaused`` only."""

    consumer: int


class RemoteEnd(LinkMessage, frozen=True):
    """The consumer has ended, and gives back all that no transaction holds."""

    consumer: int


class RemoteGone(LinkMessage, frozen=True):
    """The home has ended the consumer; its client is told the reason, and its connection ends."""

    consumer: int
    reason: str


class ReplyWaits(LinkMessage, frozen=True):
    """The home has a reply for a temporary queue of the host that no consumer has asked for."""

    queue: str


class ReplyUnwanted(LinkMessage, frozen=True):
    """That temporary queue has ended."""

    queue: str


# -------------------------------------------------------------------------------------------- votes


class VoteRequest(Request, frozen=True):
    """The question who may be live after replication ``session`` of ``node_id`` was interrupted.

    ``claimant`` asks for itself, for the ``round``-th time.

    ``stays`` is True for the live, which would stay, and False for its backup, which would take
    over.
    """

    vote: str
    node_id: str
    session: str
    claimant: str
    round: int
    stays: bool


class VoteAnswer(Reply, frozen=True):
    """The answer of a voter.

    ``vote`` repeats the question's; ``voter`` is the node ID that answers.
    """

    vote: str
    voter: str
    granted: bool
    reason: str


class VoteWithdrawal(LinkMessage, frozen=True):
    """The claimant's rounds up to ``round`` failed: what was granted in them is free again."""

    node_id: str
    session: str
    claimant: str
    round: int


class StartRequest(Request, frozen=True):
    """The question whether another broker was voted into the sender's place.

    The sender is about to be live again as ``node_id``, with that activation, if none was.
    """

    node_id: str
    activation: int


class StartAnswer(Reply, frozen=True):
    """The broker that was voted into the asker's place, or None.

    After None, the sender votes none into it while the link stands.
    """

    claimant: str | None


# -------------------------------------------------------------------------------------- replication


class Attach(Request, frozen=True):
    """A request to become the receiver's backup.

    ``node_id`` is that of the asker's data. ``failback`` is True for a master that wants to be live
    again. ``patience_s`` is how long the asker will wait in silence before it counts the receiver
    as lost.
    """

    group_name: str | None
    node_id: str | None
    failback: bool
    patience_s: float


class Attached(Reply, frozen=True):
    """The answer to ``Attach``: yes if ``reason`` is empty; the backup takes the live's node ID."""

    reason: str
    node_id: str
    activation: int


class Ready(LinkMessage, frozen=True):
    """The backup has moved its old data aside, and is ready to receive."""


class SnapshotBegin(LinkMessage, frozen=True):
    """A snapshot begins: entries up to ``last_sequence`` come in chunks, later ones as entries."""

    last_sequence: int


class Chunk(LinkMessage, frozen=True):
    """A chunk of a segment of the snapshot, each file in order."""

    name: str
    offset: int
    data: bytes


class SnapshotEnd(LinkMessage, frozen=True):
    """The last chunk is sent: the backup is to verify, sync, and say so."""

    last_sequence: int


class Synchronized(LinkMessage, frozen=True):
    """The copy is complete and on the backup's disk, up to ``sequence``."""

    sequence: int


class UpToDate(LinkMessage, frozen=True):
    """Receipts wait for the backup now; it may take over once it has all up to ``sequence``."""

    session: str
    sequence: int


class JournalEntries(LinkMessage, frozen=True, tag="Entries"):
    """Encoded journal entries, one after the other, from sequence ``first`` on."""

    first: int
    data: bytes


class Acknowledgement(LinkMessage, frozen=True):
    """Everything up to ``sequence`` is on the backup's disk."""

    sequence: int


class BlobChunk(LinkMessage, frozen=True):
    """A chunk of a large body or a page (``kind`` names its directory), in order; ``last``: all."""

    kind: str
    id: int
    offset: int
    data: bytes
    last: bool


class BlobTaken(LinkMessage, frozen=True):
    """A number of bytes of blobs that were written: as many more may come."""

    count: int


class BlobRemoved(LinkMessage, frozen=True):
    """A blob that no record names any more."""

    kind: str
    id: int


class LiveStopping(Request, frozen=True):
    """The live stops cleanly; ``failover``: the backup shall take over, else it stays passive."""

    failover: bool


class LiveStopped(Reply, frozen=True):
    """The answer to ``LiveStopping``: everything is on the backup's disk."""


class HandOver(LinkMessage, frozen=True):
    """The live is no longer live; the broker that gets this becomes live (failback)."""

    activation: int


class BackupLeaving(LinkMessage, frozen=True):
    """The backup stops cleanly: nothing was interrupted, and no vote is needed."""


# ------------------------------------------------------------------------------------ change record


class ChangesOffered(LinkMessage, frozen=True):
    """The sender is the master broker, and gives its change record to whoever asks for it."""


class ChangesWanted(LinkMessage, frozen=True):
    """The sender has the changes of an incarnation up to ``sequence``, and wants the later ones.

    The ``incarnation`` is "" if the sender has joined no record. The answer has the same
    ``question``.
    """

    incarnation: str
    sequence: int
    question: int


class ChangesGiven(LinkMessage, frozen=True):
    """The answer to ``ChangesWanted``; later changes follow as ``ChangesMade``.

    ``whole``: these are all entities that there are. With a ``reason`` the sender has no record to
    give.
    """

    incarnation: str
    ancestors: tuple[str, ...]
    sequence: int
    whole: bool
    changes: tuple[Change, ...]
    reason: str
    question: int


class ChangesMade(LinkMessage, frozen=True):
    """A change that the master has stored, durably."""

    change: Change


class ChangesApplied(LinkMessage, frozen=True):
    """The sender has applied, durably, the changes of an incarnation up to ``sequence``."""

    incarnation: str
    sequence: int


class ChangeRequest(Request, frozen=True):
    """The request that the master store a change; None as a ``value``: drop the entity.

    A repeated request has the same ``asker``, ``life`` and ``ordinal`` as before, which are those
    of its ``RequestId``.
    """

    asker: Name
    life: int
    ordinal: int
    kind: Kind
    key: str
    value: str | None


class ChangeAnswer(Reply, frozen=True):
    """The answer: the record has what was asked for, since a change at or before ``sequence``.

    ``made`` is False if it had that before. With a ``reason`` the change is refused.
    """

    sequence: int
    made: bool
    reason: str


class ClientsClaimed(LinkMessage, frozen=True):
    """Clients that named themselves, by login and ``client-id``, and connected to the sender.

    The number of each is higher than all that its broker had seen then; ``highest`` is the highest
    that the sender has seen.
    """

    highest: Sequence64
    claims: tuple[tuple[str, str, Sequence64], ...]


Any = (
    Hello | Challenge | Proof | Welcome | Introduction | Refusal | Ping | Pong | Members | Leaving
    | Consumers | Interests | InterestsNoted | InterestsWanted | LinkState | Reload | Reloaded
    | ForwardRequest | PassRequest | BodyRequest | BodyAnswer | Forwarded | VoteRequest | VoteAnswer
    | VoteWithdrawal | StartRequest
    | StartAnswer | Attach | Attached | Ready | SnapshotBegin | Chunk | SnapshotEnd | Synchronized
    | UpToDate | JournalEntries | Acknowledgement | BlobChunk | BlobTaken | BlobRemoved | LiveStopping
    | LiveStopped | HandOver | BackupLeaving
    | HomeGreeting | HomeGreeted | RemoteConsume | RemoteConsumed | ConsumersTold | RemoteDelivery
    | RemoteTaken | SettleRequest | Settled | RemoteGiveBack | RemoteResume | RemoteEnd | RemoteGone
    | RemotePassed | RemotePaused | ReplyWaits | ReplyUnwanted
    | ChangesOffered | ChangesWanted | ChangesGiven | ChangesMade | ChangesApplied | ChangeRequest
    | ChangeAnswer | ClientsClaimed
    | PrepareRequest | DecisionRequest | OutcomeRequest | OutcomeAnswer
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Any)


def encode(message: LinkMessage) -> bytes:
    """Return a message as a whole frame."""
    content = _encoder.encode(message)
    return LENGTH.pack(len(content)) + content


def decode(content: bytes | memoryview) -> Any:
    """Return the message in a frame without its length. Raises NotUnderstoodError."""
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstoodError(str(error)) from None
