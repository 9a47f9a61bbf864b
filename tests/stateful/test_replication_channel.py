"""The replication channel under faults.

What the live has released is on the backup's disk, or the live had gone on alone by decision.

Real are both journals, the copy, the feed, the follower, the gate and both ends of the link. The
machine is the network, the disks, the power, and the vote: for each interruption it decides once,
for the live ("go on alone") or for the backup ("promote"), as a majority would. The model is the
list of entries and the highest one that was released.
"""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, Terms
from broker.cluster.quorum import session_name
from broker.policies.replication.blobs import begin_copy
from broker.policies.replication.feed import ReplicaFeed
from broker.policies.replication.follower import Follower
from broker.storage.copy import JournalCopy
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions
from stateful.entries import Entries, plain
from stateful.machines import LoopMachine, assert_found, budget
from stateful.pipe import Pipe

SYNC_S = 0.01
PATIENCE_S = 4.0
MOMENTS = st.sampled_from([0.0, 0.005, 0.05, 0.5])
OPTIONS = JournalOptions(segment_size=1024, compact_min_files=3, compact_percentage=50)


def terms(name):
    member = m.Member(name, "N", "live", f"{name}:1", f"{name}:2", None, 1, 1, 1, True)
    return Terms(
        user="u",
        password="p",
        ttl_s=PATIENCE_S,
        call_timeout_s=5.0,
        nonce=lambda: random.Random(name).randbytes(32),
        member=lambda: member,
    )


class LiveSide:
    """A live's journal, gate and feed, and of its role only what every live does when it is told
    something by its feed.
    """

    def __init__(self, machine, volume, journal):
        self.machine = machine
        self.volume = volume
        self.journal = journal
        self.gate = DurabilityGate(journal.synced)
        self.feed = None
        self.deciding = False
        self.link = None
        journal.on_synced = self.synced

    def attach(self, link):
        self.machine.sessions += 1
        feed = self.feed = ReplicaFeed(
            link,
            self.journal,
            session_name(1, self.machine.sessions, 1),
            patience_s=PATIENCE_S,
            sync_timeout_s=10.0,
            call_timeout_s=5.0,
        )
        feed.on_up_to_date = feed.on_acknowledged = lambda sequence: setattr(self.gate, "remote", sequence)
        feed.on_suspect = self.gate.hold
        feed.on_trusted = self.trusted
        feed.on_ended = lambda reason, clean: self.interrupted(feed, clean)

    def synced(self, sequence):
        if self.feed is not None and self.feed.up_to_date:
            self.feed.check()
        self.gate.local = sequence

    def trusted(self):
        if not self.deciding:
            self.gate.release()

    def interrupted(self, feed, clean):
        if feed is not self.feed:
            return
        if not feed.up_to_date:
            self.feed = None
            return
        self.gate.hold()
        self.deciding = True
        if clean:
            self.go_on_alone()

    def go_on_alone(self):
        self.machine.decisions[self.feed.session] = "alone"
        self.feed = None
        self.deciding = False
        self.gate.remote = None
        self.gate.release()


class ChannelMachine(LoopMachine):
    @initialize(piece=st.sampled_from([50, 700, 70_000]))
    def begin(self, piece):
        self.piece = piece
        self.model = Entries()
        self.released = 0
        self.sessions = 0
        self.decisions = {}
        self.pipe = self.copy = self.follower = None
        self.spare = MemoryVolume(latency_s=SYNC_S)
        self.live = None
        self.become_live(MemoryVolume(latency_s=SYNC_S))
        self.loop.settle()
        self.attach(1.0)

    # ---- lives

    def become_live(self, volume):
        """Start on what that disk has: all that was ever released must be there."""
        journal, recovered = self.loop.run(Journal.open(volume, "journal", OPTIONS))
        count = recovered.last_sequence
        assert self.released <= count <= len(self.model.entries), (
            f"entry {self.released} was released; the new live has {count}"
        )
        del self.model.entries[count:]
        assert plain(recovered) == self.model.state()
        self.records = [record.id for record in recovered.records]
        self.live = LiveSide(self, volume, journal)

    def write(self, live, size=20):
        record = live.journal.next_id()
        sequence = live.journal.append([Operation(ADD, 2, record, bytes(size))])
        live.gate.when_durable(sequence, lambda: self.release(live, sequence))
        return record, sequence

    def release(self, live, sequence):
        """A client is answered."""
        assert live is self.live, "a broker that is no longer live answers"
        assert not live.gate.held
        assert sequence <= live.journal.synced, "answered before it is on our disk"
        feed = live.feed
        if feed is not None and feed.up_to_date:
            assert self.decisions.get(feed.session) != "promoted", "answered after the backup took over"
            assert self.copies[feed.session].synced >= sequence, "answered before it is on the backup's disk"
        self.released = max(self.released, sequence)

    @precondition(lambda self: self.live is not None)
    @rule(
        sizes=st.lists(st.sampled_from([0, 20, 400, 3000]), min_size=1, max_size=6),
        delete=st.integers(0, 9),
        then_s=MOMENTS,
    )
    def load(self, sizes, delete, then_s):
        """Clients send and acknowledge."""
        live = self.live
        with self.loop.inside():
            for size in sizes:
                record, sequence = self.write(live, size)
                self.model.entries.append([Operation(ADD, 2, record, bytes(size))])
                assert sequence == len(self.model.entries)
                self.records.append(record)
            for _ in range(min(delete, len(self.records) // 2)):
                operation = Operation(DELETE, 2, self.records.pop(0))
                sequence = live.journal.append([operation])
                self.model.entries.append([operation])
                live.gate.when_durable(sequence, lambda number=sequence: self.release(live, number))
        self.loop.advance(then_s)

    # ---- the backup

    @precondition(lambda self: self.live is not None and self.live.feed is None and self.copy is None)
    @rule(then_s=MOMENTS)
    def attach(self, then_s):
        """A backup starts, finds the live, moves its old data aside, and begins a copy."""
        live = self.live
        self.spare.crash(None)
        self.copy = self.loop.run(JournalCopy.create(self.spare, "journal", OPTIONS))
        self.loop.run(begin_copy(self.spare))
        with self.loop.inside():
            accepting = ClusterLink(terms("live"), None, on_open=live.attach)
            connecting = ClusterLink(terms("backup"), "replication", on_open=self.follow, ttl_s=PATIENCE_S)
            self.pipe = Pipe(connecting, accepting, piece=self.piece)
        self.loop.advance(0.02 + then_s)

    def follow(self, link):
        self.follower = Follower(link, self.copy, self.spare)

    @property
    def copies(self):
        """The copy that follows in each session: the machine has one at a time."""
        return {self.live.feed.session: self.copy or self.last_copy} if self.live.feed else {}

    def drop_backup(self):
        """Its process ends; what it has synced stays on its disk."""
        follower, self.follower = self.follower, None
        copy, self.copy = self.copy, None
        self.last_copy = copy
        if follower is not None:
            follower.copy.on_synced = None
            self.loop.run(follower.close())
        else:
            self.loop.run(copy.close())

    @precondition(lambda self: self.copy is not None)
    @rule(what=st.sampled_from(["crashes", "crashes unheard", "leaves", "disk"]), seed=st.integers(0, 15))
    def backup(self, what, seed):
        """Its power or its process ends, or its disk will fail within one of the next
        operations.
        """
        if what == "disk":
            self.spare.fail_after = self.spare.operations + seed
        elif what == "leaves":
            if self.follower is not None:
                self.backup_leaves()
        else:
            self.backup_crashes(seed, heard=what == "crashes")

    def backup_crashes(self, seed, heard):
        with self.loop.inside():
            if not heard:
                self.pipe.stall(self.pipe.one)
            self.pipe.one.abort()
        self.spare.crash(random.Random(seed) if seed else None)
        self.drop_backup()

    def backup_leaves(self):
        with self.loop.inside():
            self.follower.leave()
        self.loop.advance(0.02)
        self.drop_backup()

    # ---- the network and time

    @precondition(lambda self: self.pipe is not None)
    @rule(
        what=st.sampled_from(["live mute", "backup mute", "both mute", "heal", "heal", "cut"]),
        then_s=st.sampled_from([0.0, 0.0, 1.0, 2 * PATIENCE_S]),
    )
    def network(self, what, then_s):
        pipe = self.pipe
        with self.loop.inside():
            if what.endswith("mute"):
                for end, name in ((pipe.other, "live"), (pipe.one, "backup")):
                    if what.split()[0] in (name, "both"):
                        pipe.stall(end)
            elif what == "heal":
                pipe.heal()
            else:
                pipe.cut()
        self.loop.advance(then_s)

    @precondition(lambda self: self.live is not None and self.follower is not None)
    @rule(
        sizes=st.lists(st.sampled_from([0, 20, 400]), min_size=1, max_size=4),
        then_s=st.sampled_from([0.001, 0.012, 0.013, 0.02, 1.0]),
        longer_s=st.sampled_from([0.0, 1.0, 3.0]),
        writes=st.integers(0, 2),
        heal=st.booleans(),
    )
    def part(self, sizes, then_s, longer_s, writes, heal):
        """They lose sight of each other under load, the backup first, and it takes over as soon
        as its patience ends.
        """
        self.load(sizes, 0, then_s)
        self.network("live mute", longer_s)
        self.network("both mute", 0.0)
        self.loop.until(self.follower.ended.done, 2 * PATIENCE_S)
        if self.promotable():
            self.backup_wins(writes, heal=heal)

    @rule(how=st.sampled_from(["turn", "turns", "0.005", "0.05", "1", "2", "5", "5"]))
    def wait(self, how):
        if how.startswith("turn"):
            self.loop.turn(1 if how == "turn" else 5)
        else:
            self.loop.advance(float(how))

    # ---- the vote

    @precondition(lambda self: self.live is not None and self.live.deciding)
    @rule()
    def live_wins(self):
        assert self.decisions.get(self.live.feed.session) is None
        with self.loop.inside():
            self.live.go_on_alone()

    def promotable(self):
        follower = self.follower
        if follower is None or not follower.ended.done():
            return False
        ending = follower.ended.result()
        return ending.kind == "lost" and ending.up_to_date and ending.session not in self.decisions

    @precondition(promotable)
    @rule(writes=st.integers(0, 3), heal=st.booleans())
    def backup_wins(self, writes, heal):
        """It takes over.

        The old live, if it still runs, may try what it likes: it answers nobody any more.
        """
        session = self.follower.ended.result().session
        assert session == session_name(1, self.sessions, 1)
        self.decisions[session] = "promoted"
        if self.live is not None:
            with self.loop.inside():
                if self.live.feed is not None:
                    self.live.feed.check()  # as it does before it answers, delivers, or says what it is
            assert self.live.gate.held, "its backup may take over, and the live has not stopped"
        self.drop_backup()
        self.spare.crash(None)
        old, self.live = self.live, None
        old_volume = self.dead_volume if old is None else old.volume
        if old is not None:
            with self.loop.inside():
                for _ in range(writes):
                    self.write(old)
                if heal:
                    self.pipe.heal()
            self.loop.advance(2 * PATIENCE_S)
            self.complain()
            self.end(old)
        self.become_live(self.spare)
        self.spare = old_volume

    def end(self, live):
        """It lost the vote, or its power is gone."""
        with self.loop.inside():
            live.gate.abandon()
            feed, live.feed = live.feed, None
            if feed is not None:
                feed.on_ended = lambda reason, clean: None
                feed.end("no longer live")
        self.loop.run(live.journal.close())

    @precondition(lambda self: self.live is not None and self.follower is not None)
    @rule(
        seed=st.integers(0, 9),
        heard=st.booleans(),
        then=st.sampled_from(["backup", "backup", "restart", "nothing"]),
    )
    def live_crashes(self, seed, heard, then):
        """Its power fails; its backup hears that, or notices it when its patience is over."""
        live, self.live = self.live, None
        with self.loop.inside():
            live.gate.abandon()
            if not heard and self.pipe is not None:
                self.pipe.stall(self.pipe.other)
        live.volume.crash(random.Random(seed) if seed else None)
        self.end(live)
        self.dead_volume = live.volume
        if then == "restart":
            self.restart()
        elif then == "backup":
            self.loop.advance(0.02 if heard else 2 * PATIENCE_S)
            if self.promotable():
                self.backup_wins(0, heal=False)

    @precondition(lambda self: self.live is None)
    @rule()
    def restart(self):
        """It comes back first and is live again.

        A backup of its former life is nobody's any more.
        """
        self.decisions[session_name(1, self.sessions, 1)] = "restarted"
        if self.copy is not None:
            self.drop_backup()
        self.become_live(self.dead_volume)

    @precondition(
        lambda self: self.follower is not None and self.follower.ended.done() and not self.promotable()
    )
    @rule()
    def backup_gives_up(self):
        """Its copy is not up to date, or history: it looks for a live again."""
        self.drop_backup()
        self.spare.crash(None)

    # ---- what must hold

    @invariant()
    def nothing_complains(self):
        self.complain()

    def teardown(self):
        try:
            if self.live is not None or hasattr(self, "dead_volume"):
                self.reunite()
        finally:
            super().teardown()

    def reunite(self):
        """Once nothing is broken any more, the pair replicates and answers."""
        if self.live is None:
            self.restart()
        if self.copy is not None:
            with self.loop.inside():
                self.pipe.cut()
            self.loop.settle()
            self.drop_backup()
        self.spare.crash(None)
        self.loop.advance(2 * PATIENCE_S)
        if self.live.deciding:
            self.live_wins()
        self.loop.settle()
        self.attach(0.0)
        self.load([20, 20], 1, 2.0)
        self.complain()
        assert self.follower.up_to_date, "the backup never gets up to date"
        assert self.released == len(self.model.entries), "clients wait for ever"
        assert self.copy.synced == self.released
        self.drop_backup()
        self.end(self.live)


TestChannel = ChannelMachine.TestCase
TestChannel.settings = budget(100, 50)


# ---- parts broken on purpose that the machine must find


@pytest.mark.in_turn
def test_acknowledgements_before_the_backups_disk_are_found(monkeypatch):
    append = Follower._append

    def hasty(self, first, data):
        append(self, first, data)
        self.link.send(m.Acknowledgement(self.copy.last_sequence))

    monkeypatch.setattr(Follower, "_append", hasty)
    assert_found(ChannelMachine)


@pytest.mark.in_turn
def test_a_live_without_a_lease_is_found(monkeypatch):
    monkeypatch.setattr(ReplicaFeed, "trusted", property(lambda self: not self.ended))
    assert_found(ChannelMachine)


@pytest.mark.in_turn
def test_a_live_that_does_not_wait_for_its_backup_is_found(monkeypatch):
    monkeypatch.setattr(DurabilityGate, "durable", property(lambda self: self.local))
    assert_found(ChannelMachine)
