"""A live's journal and a backup's copy of it, over a real link in one process.

For the tests of the replication conversation.
"""

import asyncio
import random

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, Terms, connect
from broker.cluster.quorum import session_name
from broker.policies.replication.blobs import begin_copy
from broker.policies.replication.feed import ReplicaFeed
from broker.policies.replication.follower import Follower
from broker.storage.copy import JournalCopy
from broker.storage.entry import ADD, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


def terms(name):
    member = m.Member(name, "N", "live", f"{name}:1", f"{name}:2", None, 1, 1, 1, True)
    return Terms(
        user="u",
        password="p",
        ttl_s=30.0,
        call_timeout_s=5.0,
        nonce=lambda: random.Random(name).randbytes(32),
        member=lambda: member,
    )


async def until(condition, what, timeout_s=60.0):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.002)


class Pair:
    """A live's journal, gate and feed, and a backup's copy and follower, over a real link."""

    def __init__(self, patience_s=20.0):
        self.patience_s = patience_s
        self.answered = []
        self.sent = 0
        self.feed = None
        self.suspicions = 0
        self.endings = []

    async def __aenter__(self):
        self.live_volume = MemoryVolume()
        self.journal, _ = await Journal.open(self.live_volume, "journal")
        self.gate = DurabilityGate()
        self.journal.on_synced = self._synced
        self.volume = MemoryVolume()
        accepted = asyncio.get_running_loop().create_future()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClusterLink(terms("live"), None, on_open=accepted.set_result), "127.0.0.1", 0
        )
        self.copy = await JournalCopy.create(self.volume, "journal")
        await begin_copy(self.volume)
        self.backup_link = await connect(
            terms("backup"), self._server.sockets[0].getsockname(), "replication"
        )
        self.live_link = await accepted
        return self

    async def __aexit__(self, *_):
        self.feed.end("test over")
        await self.follower.close()
        self._server.close()
        await self.journal.close()

    def begin(self):
        self.feed = feed = ReplicaFeed(
            self.live_link,
            self.journal,
            session_name(1, 1, 1),
            patience_s=self.patience_s,
            sync_timeout_s=10.0,
            call_timeout_s=10.0,
        )
        feed.on_up_to_date = lambda sequence: setattr(self.gate, "remote", sequence)
        feed.on_acknowledged = lambda sequence: setattr(self.gate, "remote", sequence)
        feed.on_suspect = self._suspect
        feed.on_ended = lambda reason, clean: self._ended(reason)
        self.follower = Follower(self.backup_link, self.copy, self.volume)

    def send(self, size=20):
        """One message, as a client would send it.

        Its sequence is in ``answered`` once the gate lets it.
        """
        self.sent += 1
        sequence = self.journal.append([Operation(ADD, 2, self.journal.next_id(), b"x" * size)])
        self.gate.when_durable(sequence, lambda: self.answered.append(sequence))

    def _synced(self, sequence):
        self.gate.local = sequence

    def _suspect(self):
        self.suspicions += 1
        self.gate.hold()

    def _ended(self, reason):
        self.gate.hold()
        self.endings.append(reason)
