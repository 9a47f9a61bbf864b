"""The backup broker of a pair.

It finds a live of its group, copies its journal, follows it, and decides what to do when the live
is gone.

The one rule above all others: a copy that is not up to date never becomes live (AMQ 17.3.1.2;
Artemis' split-brain while catching up, ARTEMIS-2297). It is up to date from ``UpToDate`` until the
live may have answered any client without it. As soon as a live of that node ID is known to go on
alone, the copy is obsolete and a new one must be made.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError, connect
from broker.cluster.quorum import vote, votes_needed, withdraw
from broker.ha_policy import MasterSection
from broker.policies.identity import write_node_id
from broker.policies.journal import journal_options
from broker.policies.policy import BrokerPolicy
from broker.policies.replication.blobs import begin_copy
from broker.policies.replication.follower import Ending, Follower
from broker.policies.replication.probe import probe
from broker.policies.replication.state import State, write_state
from broker.policies.stop import until
from broker.start_error import StartError
from broker.storage.copy import JournalCopy
from broker.storage.errors import JournalError
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)

SETTLE_S = 0.05
"""The pause between a lost connection and the first round of a vote that needs votes.

So the live asks first, if there is one.
"""


@dataclass(frozen=True, slots=True)
class BackupEnd:
    """The reason why being a backup ended.

    For "activate" our copy is up to date and no other broker may be live; ``activation`` is the
    last live's.
    """

    kind: Literal["activate", "stopped", "disk"]
    activation: int = 0
    reason: str = ""


class BackupRole:
    """A backup, from looking for a live to taking over from it, again and again.

    ``run`` returns why it ended; the copy is closed then.

    ``node_id`` is None for a slave. For a master it is that of its data: only a live with that node
    ID will do.
    """

    def __init__(self, policy: BrokerPolicy, volume: Volume, node_id: str | None) -> None:
        section = policy.config.replication
        assert section is not None
        assert policy.membership is not None, "a backup without a cluster"
        self.section = section
        self.node_id = node_id
        self.follower: Follower | None = None
        self._config = policy.config
        self._seams = policy.seams
        self._volume = volume
        self._membership = policy.membership
        self._become = policy.become
        self._master = isinstance(section, MasterSection)
        self._changed = asyncio.Event()
        self._refusals: dict[str, str] = {}
        self._round = 0

    @property
    def replicating(self) -> bool:
        """True if our copy is up to date, as far as can be known."""
        follower = self.follower
        return follower is not None and follower.up_to_date and not follower.ended.done()

    @property
    def patience_s(self) -> float:
        """The time for which the live may be silent before we count it as lost."""
        return (self.section.replication_patience or self._membership.section.connection_ttl) / 1000

    async def run(self, stopping: asyncio.Event) -> BackupEnd:
        """Be a backup until ``stopping`` is set or it is time to be live."""
        self._membership.on_change.append(self._changed.set)
        self._membership.on_linked.append(self._met)
        work = asyncio.create_task(self._work(), name="backup")
        try:
            await until(stopping, work)
            if work.done():
                return work.result()
            self._become("stopping")
            return BackupEnd("stopped")
        finally:
            if self.follower is not None:
                self.follower.leave()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            self._membership.on_change.remove(self._changed.set)
            self._membership.on_linked.remove(self._met)
            await self._drop_copy()

    # -------------------------------------------------------------------------- the way of a backup

    async def _work(self) -> BackupEnd:
        self._become("backup")
        while True:
            live, activation = await self._follow_somebody()
            follower = self.follower
            assert follower is not None
            ending = await follower.ended
            if ending.kind == "disk":
                return BackupEnd("disk", reason=ending.reason)
            _log.info("replication: the live broker %s is lost: %s", live.name, ending.reason)
            if await self._may_activate(live, ending):
                await self._drop_copy()
                return BackupEnd("activate", max(activation, ending.activation))
            await self._drop_copy()
            self._become("backup")

    def _met(self, link: ClusterLink) -> None:
        """Drop the live that we follow if a later life of it has met us.

        Then the followed life is over, though its connection may not show that for long.
        """
        follower = self.follower
        if follower is None or follower.link.member is None or link.member is None:
            return
        met, followed = link.member, follower.link.member
        if met.name == followed.name and met.incarnation > followed.incarnation:
            follower.link.abort(f"{met.name} has started anew")

    async def _may_activate(self, live: m.Member, ending: Ending) -> bool:
        if not ending.up_to_date:
            _log.warning(
                "the copy was not up to date: this broker stays passive and looks for another live broker"
            )
            return False
        if ending.kind == "handed-over":
            return True
        if ending.kind == "failover":
            _log.info("%s stopped and lets this broker take over (failover-on-shutdown)", live.name)
            return True
        if ending.kind == "passive":
            _log.info("%s stopped cleanly and wants no failover: this broker stays passive", live.name)
            return False
        return await self._win(live, ending.session)

    async def _win(self, live: m.Member, session: str) -> bool:
        """Ask for the backup vote; return whether we may take over.

        There are ``vote-retries`` more rounds after the first, ``vote-retry-wait`` apart.
        """
        self._become("voting")
        section, membership = self.section, self._membership
        assert live.node_id is not None
        for attempt in range(section.vote_retries + 1):
            if await self._goes_on(live):
                _log.info(
                    "%s is still live, so the copy is no longer up to date: this broker stays passive",
                    live.name,
                )
                return False
            needed = votes_needed(membership.directory.live_nodes_seen, section.quorum_size)
            if needed and not attempt:
                await asyncio.sleep(SETTLE_S)
            self._round += 1
            result = await vote(
                membership,
                live.node_id,
                session,
                self._round,
                stays=False,
                needed=needed,
                timeout_s=section.quorum_vote_wait / 1000,
            )
            _log.info("backup vote, round %d of %d: %s", attempt + 1, section.vote_retries + 1, result)
            if result.passed:
                return True
            withdraw(membership, live.node_id, session, self._round)
            if attempt < section.vote_retries:
                await asyncio.sleep(section.vote_retry_wait / 1000)
        _log.warning(
            "the backup vote failed %d times (vote-retries): this broker stays passive and looks for a "
            "live broker",
            section.vote_retries + 1,
        )
        return False

    async def _goes_on(self, live: m.Member) -> bool:
        """Return whether the live that we lost, or another of its node ID, says that it is live.

        Then it may have gone on without us.
        """
        stalled = self.follower is not None and self.follower.link.stalled
        answer = await probe(self._membership, self._seams, live.connector, stalled=stalled)
        if answer is not None:
            return answer.role == "live" and answer.node_id == live.node_id
        return False

    # ------------------------------------------------------------------------------- finding a live

    async def _follow_somebody(self) -> tuple[m.Member, int]:
        """Attach to a live broker, however long that takes; ``follower`` follows it then."""
        while True:
            self._changed.clear()
            for member in self._candidates():
                followed = await self._try(member)
                if followed is not None:
                    return member, followed
            try:
                async with asyncio.timeout(self.section.retry_replication_wait / 1000):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _candidates(self) -> list[m.Member]:
        if self._master and self.node_id is not None:
            live = self._membership.directory.live_with(self.node_id)
            return [live] if live is not None else []
        return self._membership.directory.lives_of_group(self.section.group_name)

    async def _try(self, member: m.Member) -> int | None:
        """Ask one broker whether we may be its backup.

        Returns its activation; None if it refuses or does not answer.
        """
        early: list[m.LinkMessage] = []
        try:
            link = await connect(
                self._membership.neighbours.terms,
                self._seams.resolve(member.connector),
                "replication",
                opened=lambda opened: setattr(opened, "on_message", early.append),
                ttl_s=self.patience_s,
            )
        except (LinkError, OSError, TimeoutError, ValueError) as error:
            self._refused(member, str(error) or "no answer")
            return None
        try:
            answer = await link.call(
                m.Attach(link.number(), self.section.group_name, self.node_id, self._master, self.patience_s)
            )
            assert isinstance(answer, m.Attached)
            if answer.reason:
                self._refused(member, answer.reason)
                link.close("refused")
                return None
            await self._begin(link, answer)
        except (LinkError, TimeoutError) as error:
            link.abort("attach failed")
            self._refused(member, str(error) or "no answer")
            return None
        self._refusals.clear()
        return answer.activation

    async def _begin(self, link: ClusterLink, answer: m.Attached) -> None:
        """Move our own data aside and begin a copy under the live's node ID."""
        _log.info("replication: synchronising with the live broker %s", link.peer)
        try:
            copy = await JournalCopy.create(self._volume, "journal", journal_options(self._config))
        except (JournalError, OSError) as error:
            link.close("no copy can be made")
            raise StartError(f"{self._config.data_path}: no copy can be made: {error}") from error
        try:
            await begin_copy(self._volume)
            await write_node_id(self._volume, answer.node_id)
            await write_state(self._volume, State(answer.activation))
        except BaseException:
            await copy.close()
            raise
        self.node_id = answer.node_id if self._master else None
        self._membership.announce(node_id=answer.node_id, activation=answer.activation)
        self._become("synchronizing")
        self.follower = follower = Follower(link, copy, self._volume)
        follower.on_up_to_date = lambda: self._become("backup")

    def _refused(self, member: m.Member, reason: str) -> None:
        """Log one line per news, not one per attempt."""
        if self._refusals.get(member.name) != reason:
            self._refusals[member.name] = reason
            _log.info("replication: %s does not accept this broker as its backup: %s", member.name, reason)

    async def _drop_copy(self) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            await follower.close()
