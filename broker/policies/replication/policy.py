"""The life of a replicated broker: the role with which it begins, and what follows each role.

    master  check-for-live-server off: live at once, with the data it has (duplicates after a
            failover: RP14) on: looks for a live with its node ID; found: its backup, and then live
            again by failback; else live
    slave   backup; live after a takeover; backup again after a failback (restart-backup)

A master whose data is an unfinished copy can only be a backup: partial data is never served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.cluster.membership import Membership
from broker.cluster.messages import Member
from broker.cluster.start import voted_in
from broker.config import BrokerConfig
from broker.core.contents import served
from broker.ha_policy import MasterSection, SlaveSection
from broker.policies.identity import own_node_id, read_node_id
from broker.policies.journal import open_journal
from broker.policies.policy import BrokerPolicy, RequestRefusedError
from broker.policies.replication.backup import BackupRole
from broker.policies.replication.live import LiveEnd, ReplicatedReign
from broker.policies.replication.state import State, read_state, write_state
from broker.policies.stop import until
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.database import Database
from broker.storage.errors import JournalDamagedError
from broker.storage.manifest import read_manifest
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)

EXIT_VOTE_LOST: Final = 3
"""The exit status of a live that lost its vote.

It stopped on purpose, and its backup may be live.
"""


VOTE_POLL_S: Final = 0.05
"""The interval of a starting master's checks whether a vote of its backup has ended."""


class VoteLostError(StartError):
    """The live vote was lost: look for what separates it from the others, then start it again."""

    status = EXIT_VOTE_LOST


class ReplicationPolicy(BrokerPolicy):
    """The policy "replication"; see ``BrokerPolicy``."""

    membership: Membership
    reign: ReplicatedReign | None

    def __init__(self, config: BrokerConfig, seams: Seams, volume: Volume) -> None:
        assert config.cluster is not None
        assert config.replication is not None
        super().__init__(config, seams)
        self.section = config.replication
        self.backup: BackupRole | None = None
        self._volume = volume
        self._activation = 0
        self._took_over = False
        self.commands = {"contents": self._contents}

    @property
    def replicating(self) -> bool:
        """True for a live whose receipts wait for an up-to-date backup, and for such a backup."""
        if self.reign is not None:
            return self.reign.replicating
        return self.backup is not None and self.backup.replicating

    def details(self) -> dict[str, Any]:
        """Return names, counts, and what is known of others; nothing secret."""
        membership = self.membership
        linked = {member.name for member, _ in membership.neighbours.linked()}
        shown: dict[str, Any] = {
            "policy": "replication",
            "configured": "master" if isinstance(self.section, MasterSection) else "slave",
            "group-name": self.section.group_name,
            "activation": self._activation,
            "live-nodes-seen": membership.directory.live_nodes_seen,
            "peers": [
                {
                    "name": member.name,
                    "role": member.role,
                    "node-id": member.node_id,
                    "linked": member.name in linked,
                }
                for member in sorted(membership.directory.known.values(), key=lambda member: member.name)
            ],
        }
        if self.reign is not None:
            shown |= self.reign.details()
        elif self.backup is not None and self.backup.follower is not None:
            shown["live"] = self.backup.follower.link.peer
            shown["journal-synced"] = self.backup.follower.copy.synced
        return shown

    async def _contents(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the queues hold after which entry of the journal, here or in our copy.

        Only a live that waits for its backup, and that backup, can tell.
        """
        if not self.replicating:
            raise RequestRefusedError("nothing is replicated here, or this copy is not up to date")
        reign = self.reign
        if reign is None:
            assert self.backup is not None
            assert self.backup.follower is not None
            last, held = await self.backup.follower.contents()
            return {"last": last, "contents": held}
        assert reign.live is not None
        last = reign.live.journal.last_sequence
        held = await served(reign.live.engine)
        if reign.live.journal.last_sequence != last:
            raise RequestRefusedError("messages came or went meanwhile")
        return {"last": last, "contents": held}

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping``; see ``BrokerPolicy``.

        Raises VoteLostError when the live vote was lost.
        """
        self._activation = (await read_state(self._volume)).activation
        await self.membership.start(self._volume)
        try:
            await self._live_through(stopping)
        finally:
            self.become("stopped")
            await self.membership.stop()

    async def _live_through(self, stopping: asyncio.Event) -> None:
        live = isinstance(self.section, MasterSection) and not await self._must_follow(stopping)
        while not stopping.is_set():
            if live:
                end = await self._be_live(stopping)
                self._took_over = False
                if end in ("stopped", "disk", "vote-lost"):
                    self._report(end)
                    return
                if (
                    end == "handed-over"
                    and isinstance(self.section, SlaveSection)
                    and not self.section.restart_backup
                ):
                    _log.info("failback is done and restart-backup is off: this broker stops")
                    return
                live = end == "again"
            else:
                live = await self._be_backup(stopping)
                if not live:
                    return

    async def _must_follow(self, stopping: asyncio.Event) -> bool:
        """Return whether a starting master must begin as a backup.

        It must if another broker is live with our node ID, or if our data is incomplete.
        """
        section = self.section
        assert isinstance(section, MasterSection)
        node_id = await read_node_id(self._volume)
        if node_id is None:
            return False
        self.membership.announce(node_id=node_id)
        try:
            manifest = await read_manifest(self._volume, "journal")
        except JournalDamagedError as error:
            raise StartError(f"{self.config.data_path}: {error}") from error
        if manifest is not None and manifest.state == "incomplete":
            _log.warning(
                "the journal of this broker is an unfinished copy: this broker can only be a backup until "
                "the copy is complete"
            )
            return True
        if not section.check_for_live_server:
            return False
        search = asyncio.create_task(self._search(node_id), name="look for a live with our node ID")
        await until(stopping, search)
        found = search.result() if search.done() else None
        search.cancel()
        if found is not None:
            _log.info(
                "check-for-live-server: %s is live under the node ID of this broker, which becomes its "
                "backup",
                found.name,
            )
        return found is not None

    async def _search(self, node_id: str) -> Member | None:
        """Return the broker that is live with our node ID, after the end of a vote under way.

        A backup of our last life may not have noticed yet that this life is over. So its silence
        about a vote does not mean that there will be none. If the backup cannot be reached, the
        voters know.
        """
        membership = self.membership
        await membership.settled()
        waited = ""
        deadline: float | None = None
        while True:
            found = membership.directory.live_with(node_id) or membership.directory.heir_of(node_id)
            if found is not None and found.live:
                return found
            if found is not None and membership.neighbours.link_to(found.name) is not None:
                if waited != found.name:
                    waited = found.name
                    _log.info(
                        "check-for-live-server: %s may become live: waiting for the end of its vote", waited
                    )
            else:
                elected = await voted_in(membership, node_id, self._activation + 1)
                if elected is None:
                    return None
                now = asyncio.get_running_loop().time()
                if deadline is None:
                    deadline = now + self._patience_s
                    _log.info(
                        "check-for-live-server: %s won the vote to replace this broker but cannot be "
                        "reached: waiting for it for %g s",
                        elected,
                        self._patience_s,
                    )
                elif now > deadline:
                    _log.warning(
                        "check-for-live-server: %s won the vote to replace this broker but has not been "
                        "reached: this broker starts with its own data",
                        elected,
                    )
                    return None
            await asyncio.sleep(VOTE_POLL_S)

    @property
    def _patience_s(self) -> float:
        """The time in which a broker that was voted in becomes live, and we connect to it."""
        return self.section.quorum_vote_wait / 1000 + 2 * self.membership.neighbours.terms.call_timeout_s

    async def _be_live(self, stopping: asyncio.Event) -> LiveEnd:
        journal, recovered = await open_journal(self._volume, self.config, self.seams)
        try:
            node_id = await own_node_id(self._volume, self.seams, self.config.broker.name)
            self._activation += 1
            await write_state(self._volume, State(self._activation))
            reign = ReplicatedReign(
                self, journal, recovered, node_id, self._activation, took_over=self._took_over
            )
            self.membership.announce(node_id=node_id, activation=self._activation)
            self.reign = reign
            try:
                end = await reign.run(stopping)
            finally:
                self.reign = None
            if end == "disk":
                raise StartError(f"{self.config.data_path}/journal: {reign.failure}")
            return end
        finally:
            await journal.close()

    async def _be_backup(self, stopping: asyncio.Event) -> bool:
        """Be a backup; True when it is time to be live. Raises StartError if our disk failed."""
        # A slave belongs to a group; a master to its node ID, wherever that is live now.
        node_id = self.node_id if isinstance(self.section, MasterSection) else None
        role = self.backup = BackupRole(self, self._volume, node_id)
        try:
            end = await role.run(stopping)
        finally:
            self.backup = None
        if end.kind == "disk":
            raise StartError(f"{self.config.data_path}/journal: {end.reason}")
        if end.kind == "activate":
            self._activation = max(self._activation, end.activation)
            self._took_over = True
            _log.warning("this broker takes over as live")
            return True
        return False

    def _report(self, end: LiveEnd) -> None:
        if end == "vote-lost":
            raise VoteLostError("stopped: the live vote was lost, or the backup is live in our place")

    def become(self, role: str, **said: Any) -> None:
        """Take a role, and announce whether our copy is up to date; see ``BrokerPolicy``."""
        heir = role == "backup" and self.backup is not None and self.backup.replicating
        if role == self._role:
            self.membership.announce(heir=heir)
        else:
            live = self.reign is not None and role in ("live", "voting")
            super().become(role, live=live, heir=heir, **said)


def create(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> ReplicationPolicy:
    """Return the policy; it needs no database."""
    del database
    return ReplicationPolicy(config, seams, volume)
