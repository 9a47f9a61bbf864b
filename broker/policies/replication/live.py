"""The live broker of a pair.

It serves clients, feeds a backup, and decides what to do when it loses the backup.

When the replication connection is interrupted (AMQ 17.3.3.1):
    1. the gate is held: no client is answered any more. Artemis releases waiting receipts here as
       if they were replicated; if its vote is lost then, what it answered is gone.
    2. with ``vote-on-replication-failure`` the other lives vote, else it counts as passed.
    3. passed: the gate is released, receipts wait for our own disk only. Lost: the broker ends
       without another answer to a client.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from broker.cluster import messages as m
from broker.cluster.balancing import Balancing
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.quorum import session_name
from broker.ha_policy import SlaveSection
from broker.policies.live import Live
from broker.policies.policy import BrokerPolicy, LiveReign, NodeTakeover, Succession
from broker.policies.replication.ballots import Ballots
from broker.policies.replication.decision import LiveVote, partner_took_over
from broker.policies.replication.feed import ReplicaFeed
from broker.policies.stop import until
from broker.storage.errors import JournalFailedError
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal, Recovered

_log = logging.getLogger(__name__)

LiveEnd = Literal["stopped", "vote-lost", "handed-over", "again", "disk"]


class ReplicatedReign(LiveReign):
    """A reign over an open journal, which its owner closes; ``run`` returns why it ended.

    ``took_over`` says that our copy became the data of the node.
    """

    live: Live
    _balancing: Balancing
    store = "disk or backup"

    def __init__(
        self,
        policy: BrokerPolicy,
        journal: Journal,
        recovered: Recovered,
        node_id: str,
        activation: int,
        *,
        took_over: bool,
    ) -> None:
        section = policy.config.replication
        assert section is not None
        super().__init__(policy, failover_on_shutdown=section.failover_on_shutdown)
        self.section = section
        self.node_id = node_id
        self.activation = activation
        self.gate = DurabilityGate(journal.synced)
        self._balancing = Balancing(self.membership, node_id)
        self.live = Live(policy.config, policy.seams, journal, recovered, node_id, self.gate, self._balancing)
        self.feed: ReplicaFeed | None = None
        self.failure: JournalFailedError | None = None
        self._journal = journal
        self._took_over = took_over
        self._sessions = 0
        self._deciding: asyncio.Task[None] | None = None
        self._handing_over: asyncio.Task[None] | None = None
        partner_gone = section.backup_vote == "partner-gone"
        self.voter = Ballots(node_id, journal, self.gate, recovered, partner_gone=partner_gone).voter

    @property
    def patience_s(self) -> float:
        """The time for which a backup that hears nothing of us stays passive.

        We stop answering after half of it.
        """
        section = self.membership.section
        return (self.section.replication_patience or section.connection_ttl) / 1000

    @property
    def replicating(self) -> bool:
        """True if receipts wait for an up-to-date backup."""
        return self.feed is not None and self.feed.up_to_date and not self.feed.ended

    @property
    def succession(self) -> Succession:
        """The activation, and a takeover if our copy became the data of the node."""
        if self.membership.own.role not in ("live", "voting"):
            return Succession()
        taken = (NodeTakeover(self.node_id, self.activation),) if self._took_over else ()
        return Succession(self.activation, taken)

    def look(self) -> None:
        """Change the role to "voting" if the backup may have taken over while we did not run."""
        if self.feed is not None and self.feed.up_to_date:
            self.feed.check()

    def details(self) -> dict[str, Any]:
        """Return what ``status`` shows of the reign."""
        feed = self.feed
        return {
            "backup": None if feed is None else feed.backup,
            "backup-state": None if feed is None else ("up to date" if feed.up_to_date else "synchronizing"),
            "acknowledged-by-backup": None if feed is None else feed.acknowledged,
            "journal-last": self._journal.last_sequence,
            "journal-synced": self._journal.synced,
            "waiting-for-durability": self.gate.waiting,
        }

    async def run(self, stopping: asyncio.Event) -> LiveEnd:
        """Serve until ``stopping`` is set or something else ends it.

        Raises StartError when the acceptor cannot listen at its port.
        """
        self._journal.on_synced = self._synced
        self._journal.on_failed = self._failed
        self.gate.local = self._journal.synced
        self._balancing.attach(self.live.engine)
        await self.live.open()
        self._serving = True
        self.membership.neighbours.on_replication = self._attached
        self.voter.install(self.membership)
        self._become("live")
        _log.info(
            "live as node %s, activation %d; nothing is replicated until a backup is up to date",
            self.node_id,
            self.activation,
        )
        try:
            await until(stopping, self._ended)
            if not self._ended.done():
                await self._stop_cleanly()
            end: LiveEnd = self._ended.result()
            return end
        finally:
            await self._clean_up()

    # ----------------------------------------------------------------------------------- durability

    def _synced(self, sequence: int) -> None:
        if self.feed is not None and self.feed.up_to_date:
            self.feed.check()
        self.gate.local = sequence

    def _acknowledged(self, sequence: int) -> None:
        self.gate.remote = sequence

    def _failed(self, error: JournalFailedError) -> None:
        _log.error("%s", error)
        self.failure = error
        self.live.abandon()
        self._end("disk")

    # ----------------------------------------------------------------------------------- the backup

    def _attached(self, link: ClusterLink) -> None:
        """Wait for a request to attach, which a new replication connection must begin with."""

        def first(message: m.LinkMessage) -> None:
            if isinstance(message, m.Attach):
                self._attach(link, message)

        link.on_message = first

    def _attach(self, link: ClusterLink, request: m.Attach) -> None:
        member = link.member
        assert member is not None
        reason = self._objection(request)
        link.send(m.Attached(request.number, reason, self.node_id, self.activation))
        if reason:
            _log.info("replication: %s is refused as the backup of this broker: %s", member.name, reason)
            link.close(reason)
            return
        self._sessions += 1
        cluster = self.membership.section
        feed = self.feed = ReplicaFeed(
            link,
            self._journal,
            session_name(self.activation, self._sessions, self._seams.random.getrandbits(48)),
            patience_s=min(self.patience_s, request.patience_s),
            sync_timeout_s=self.section.initial_replication_sync_timeout / 1000,
            call_timeout_s=cluster.call_timeout / 1000,
        )
        feed.failback = request.failback
        feed.on_up_to_date = self._up_to_date
        feed.on_acknowledged = self._acknowledged
        feed.on_suspect = self._suspect
        feed.on_trusted = self._trusted
        feed.on_ended = lambda reason, clean: self._interrupted(feed, reason, clean=clean)
        _log.info("replication: %s attaches as backup (session %s)", member.name, feed.session)

    def _objection(self, request: m.Attach) -> str:
        if request.group_name != self.section.group_name:
            return f"group-name {request.group_name!r} is not {self.section.group_name!r}"
        if self.feed is not None:
            return f"the live broker already has the backup {self.feed.backup}"
        if not self._serving or self._ended.done():
            return "the live broker is stopping"
        if self._deciding is not None:
            return "the live broker is waiting for a vote"
        return ""

    def _up_to_date(self, acknowledged: int) -> None:
        feed = self.feed
        assert feed is not None
        self.gate.remote = acknowledged
        _log.info(
            "replication: %s is up to date at entry %d; from now on, receipts wait for this backup",
            feed.backup,
            acknowledged,
        )
        self.membership.announce()
        if feed.failback and isinstance(self.section, SlaveSection) and self.section.allow_failback:
            self._handing_over = asyncio.create_task(self._hand_over(feed), name="failback")
            self._handing_over.add_done_callback(self._crashed)

    def _hold(self) -> None:
        """Answer and deliver to no client until we know that we are the live."""
        self.gate.hold()
        if self._serving:
            self.live.engine.suspend()

    def _release(self) -> None:
        if self._serving:
            self.live.engine.resume()
        self.gate.release()

    def _suspect(self) -> None:
        self._hold()
        self._become("voting")

    def _trusted(self) -> None:
        if self._deciding is None and self._serving:
            self._become("live")
        self._release()

    def _interrupted(self, feed: ReplicaFeed, reason: str, *, clean: bool) -> None:
        if self.feed is not feed:
            return
        was_up_to_date = feed.up_to_date
        if not was_up_to_date:
            self.feed = None
            _log.info("replication: the backup %s was lost before it was up to date: %s", feed.backup, reason)
            return
        self._hold()
        if self._ended.done():
            return
        if clean:
            _log.info("replication: the backup %s has left: %s", feed.backup, reason)
            self._go_on_alone()
            return
        _log.warning(
            "replication interrupted: %s; this broker answers no client until it is decided who is live",
            reason,
        )
        if self._serving:
            self._become("voting")
        self._deciding = asyncio.create_task(self._decide(feed), name="decide")
        self._deciding.add_done_callback(self._crashed)

    async def _decide(self, feed: ReplicaFeed) -> None:
        section, membership = self.section, self.membership
        vote = LiveVote(membership, section, self.node_id, feed.session)
        if section.vote_on_replication_failure and not await vote.passes():
            self.live.abandon()
            vote.give_up()
            self._end("vote-lost")
        elif feed.link.stalled and await partner_took_over(membership, self._seams, self.node_id, feed):
            _log.error("%s took over while this broker was suspended: this broker stops", feed.backup)
            self.live.abandon()
            self._end("vote-lost")
        else:
            self._deciding = None
            self._go_on_alone()

    def _go_on_alone(self) -> None:
        """Go on unreplicated (RP11): announce that, then answer the clients that wait."""
        self.feed = None
        _log.warning(
            "replication: no backup; messages acknowledged from now on are only on the disk of this broker"
        )
        if self._serving:
            self._become("live")
        self.gate.remote = None
        self._release()

    # -------------------------------------------------------------------------------------- endings

    def _end(self, end: LiveEnd) -> None:
        if not self._ended.done():
            self._ended.set_result(end)

    async def _stop_cleanly(self) -> None:
        """Answer what is under way, then tell the backup whether to take over, and end.

        The backup takes over if ``failover-on-shutdown`` says so.
        """
        await self._serve_no_more()
        feed = self.feed
        if feed is not None and feed.up_to_date and not feed.ended and not self._ended.done():
            failover = self.failover_on_shutdown
            feed.flush()
            try:
                await feed.link.call(m.LiveStopping(feed.link.number(), failover))
                _log.info(
                    "replication: this broker stops, and its backup %s %s",
                    feed.backup,
                    "takes over" if failover else "stays passive",
                )
            except (LinkError, TimeoutError) as error:
                _log.warning(
                    "replication: the backup %s has not confirmed that this broker stops: %s",
                    feed.backup,
                    error,
                )
        self._end("stopped")

    async def _serve_no_more(self) -> None:
        self.voter.remove(self.membership)
        await self._quiesce(self.live.close())

    async def _hand_over(self, feed: ReplicaFeed) -> None:
        """Fail back: end cleanly, stop being live, then tell the backup, which becomes live."""
        _log.info("failback: %s is up to date and takes over from this broker", feed.backup)
        await self._serve_no_more()
        if feed.ended or self._ended.done():
            _log.warning("failback: %s was lost before it took over; this broker stays live", feed.backup)
            self._end("again")
            return
        self.gate.hold()
        self.live.abandon()
        self._become("backup")
        feed.link.send(m.HandOver(self.activation))
        self._end("handed-over")

    async def _clean_up(self) -> None:
        self._ended.cancel()
        self.membership.neighbours.on_replication = lambda link: link.refuse("not live")
        self.voter.remove(self.membership)
        self._detach()
        for task in (self._deciding, self._handing_over):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.live.abandon()
        feed, self.feed = self.feed, None
        if feed is not None:
            feed.on_ended = lambda _, __: None
            feed.link.close("no longer live")
            feed.end("no longer live", clean=True)
