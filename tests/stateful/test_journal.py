"""Any life of a journal beside a list of entries.

The power may fail within any operation of the disk, recovery included.

The model is the list of all entries that were taken; what lives after the first n of them is a loop
over them. After every opening n is what the journal says, and it must not be less than anybody was
ever told.
"""

import asyncio
import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.storage import journal as journal_module
from broker.storage.compaction import Compactor
from broker.storage.entry import ADD, DELETE, UPDATE, Operation, decode_entry
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.log import SegmentLog
from broker.storage.manifest import Manifest, write_manifest
from broker.storage.memory import MemoryVolume, VolumeCrashedError
from broker.storage.options import JournalOptions
from stateful.entries import Entries, plain
from stateful.machines import LoopMachine, assert_found, budget

DIRECTORY = "data/journal"
SYNC_S = 0.01
OPTIONS = JournalOptions(segment_size=1024, compact_min_files=3, compact_percentage=50)

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "delete", "delete", "update"]), st.integers(0, 9), st.integers(0, 700)
    ),
    min_size=1,
    max_size=4,
)


class JournalMachine(LoopMachine):
    @initialize()
    def begin(self):
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.model = Entries()
        self.told = 0
        self.ids = set()
        self.journal = None
        self.background = []
        self.open()

    # ---- openings

    def open(self):
        """Open, if need be after more failures of the power, each of which finds the disk as the
        one before left it.
        """
        self.background.clear()
        self.snapshot = None
        try:
            self.journal, recovered = self.loop.run(Journal.open(self.volume, DIRECTORY, OPTIONS))
        except VolumeCrashedError:
            self.volume.crash(random.Random(len(self.model.entries)))
            self.journal, recovered = self.loop.run(Journal.open(self.volume, DIRECTORY, OPTIONS))
        count = recovered.last_sequence
        assert self.told <= count <= len(self.model.entries), (
            f"{self.told} entries were durable, {count} are there"
        )
        del self.model.entries[count:]
        assert plain(recovered) == self.model.state(), "what is there is what the entries mean"
        assert self.journal.synced == self.journal.last_sequence == self.told or count >= self.told
        self.told = count
        self.live = [record.id for record in recovered.records]
        self.tapped = []
        self.journal.tap = lambda sequence, entry: self.tapped.append((sequence, entry))
        self.journal.on_synced = self.synced

    def synced(self, sequence):
        assert self.told <= sequence <= len(self.model.entries)
        self.told = sequence

    # ---- what a broker does

    @rule(changes=CHANGES)
    def append(self, changes):
        operations, live, gone = [], list(self.live), set()
        for what, which, size in changes:
            if what == "add" or not live:
                id_ = self.new_id()
                operations.append(Operation(ADD, which, id_, bytes([size % 256]) * size))
                live.append(id_)
            else:
                id_ = live[which % len(live)]
                if what == "delete":
                    operations.append(Operation(DELETE, 0, id_))
                    live.remove(id_)
                    gone.add(id_)
                else:
                    operations.append(Operation(UPDATE, which, id_, bytes(size % 20)))
        with self.loop.inside():
            try:
                sequence = self.journal.append(operations)
            except JournalError:
                assert self.journal.failure is not None
                return
        self.live = live
        self.model.entries.append(operations)
        assert sequence == len(self.model.entries) == self.journal.last_sequence
        assert self.tapped[-1][0] == sequence
        assert decode_entry(self.tapped[-1][1]) == (sequence, operations)

    def new_id(self):
        id_ = self.journal.next_id()
        assert id_ not in self.ids, f"id {id_} was given out before"
        self.ids.add(id_)
        return id_

    @rule(count=st.integers(1, 3))
    def ids_that_are_never_used(self, count):
        for _ in range(count):
            self.new_id()

    @rule(what=st.sampled_from(["wrong add", "wrong update", "wrong delete"]), which=st.integers(0, 9))
    def refused(self, what, which):
        """What cannot be is refused as a whole, and nothing has happened."""
        if self.journal.failure is not None:
            return
        fresh = self.new_id()
        bad = {
            "wrong add": Operation(ADD, 1, self.live[which % len(self.live)] if self.live else fresh),
            "wrong update": Operation(UPDATE, 1, self.new_id()),
            "wrong delete": Operation(DELETE, 1, self.new_id()),
        }[what]
        with self.loop.inside(), pytest.raises(ValueError):
            self.journal.append([Operation(ADD, 1, fresh), bad])
        assert self.journal.last_sequence == len(self.model.entries)

    # ---- the disk and time

    @rule(what=st.sampled_from(["turn", "turns", "time", "flush", "flush"]))
    def go_on(self, what):
        if what.startswith("turn"):
            self.loop.turn(1 if what == "turn" else 4)
        elif what == "time":
            self.loop.advance(SYNC_S * 1.5)
        else:
            try:
                self.loop.run(self.journal.flush())
            except JournalError:
                return
            assert self.told == len(self.model.entries)

    @rule(wait=st.booleans())
    def compact(self, wait):
        with self.loop.inside():
            self.background.append(asyncio.create_task(self.journal.compact()))
        self.loop.turn(2)
        if wait:
            self.loop.advance(SYNC_S * 20)

    @precondition(lambda self: self.snapshot is None and self.journal.failure is None)
    @rule()
    def freeze(self):
        """A backup begins a copy: what it reads now must mean what was appended up to then."""
        count = len(self.model.entries)
        try:
            self.snapshot = self.loop.run(self.journal.snapshot())
        except JournalError:
            return
        assert self.snapshot.last_sequence == count

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def thaw(self):
        snapshot, self.snapshot = self.snapshot, None
        with self.loop.inside():
            sizes = dict(snapshot.files)
            files = self.volume.image()
            assert all(len(files[f"{DIRECTORY}/{name}"]) == size for name, size in sizes.items())
            snapshot.release()

    # ---- endings

    @rule()
    def close_and_open(self):
        self.loop.run(self.journal.close())
        if self.journal.failure is not None:
            self.volume.crash(None)
        else:
            self.told = len(self.model.entries)
        self.reopen(0)

    @rule(seed=st.integers(0, 30), again=st.integers(0, 12))
    def power_fails(self, seed, again):
        self.lose_power(seed)
        self.reopen(again)

    @rule(operations=st.integers(0, 12), seed=st.integers(0, 30))
    def power_will_fail(self, operations, seed):
        """Within one of the next operations that change the disk, whatever that is."""
        self.volume.fail_after = self.volume.operations + operations
        self.loop.advance(SYNC_S * 5)
        if self.journal.failure is not None:
            self.lose_power(seed)
            self.reopen(0)

    def lose_power(self, seed):
        self.volume.crash(random.Random(seed) if seed else None)
        self.loop.run(self.journal.close())

    def reopen(self, again):
        """``again``: the power fails once more, within so many operations of the recovery."""
        if again:
            self.volume.fail_after = self.volume.operations + again - 1
            try:
                journal, _ = self.loop.run(Journal.open(self.volume, DIRECTORY, OPTIONS))
                self.loop.run(journal.close())
            except VolumeCrashedError:
                pass
            self.volume.crash(random.Random(again))
        self.open()

    # ---- what must hold

    @invariant()
    def accounts_are_right(self):
        self.complain()
        if self.journal.failure is None:
            assert self.journal.live == len(self.live) == len(self.model.state())
        assert self.journal.synced == self.told, "synced is what was told"

    def teardown(self):
        if getattr(self, "journal", None) is not None:
            self.volume.fail_after = None
            self.loop.run(self.journal.close())
        super().teardown()


TestJournal = JournalMachine.TestCase
TestJournal.settings = budget(150, 50)


# ---- parts broken on purpose that the machine must find


@pytest.mark.in_turn
def test_entries_called_durable_before_their_sync_are_found(monkeypatch):
    append = SegmentLog.append

    def hasty(self, entry):
        sequence = append(self, entry)

        def tell():
            self.synced = max(self.synced, sequence)
            self.on_synced(sequence)

        asyncio.get_running_loop().call_soon(tell)
        return sequence

    monkeypatch.setattr(SegmentLog, "append", hasty)
    assert_found(JournalMachine)


@pytest.mark.in_turn
def test_ids_given_out_twice_are_found(monkeypatch):
    monkeypatch.setattr(journal_module, "ID_BLOCK_BITS", 0)
    assert_found(JournalMachine)


@pytest.mark.long
@pytest.mark.in_turn
def test_a_compaction_that_believes_an_unsynced_deletion_is_found(monkeypatch):
    """Bug 1, put back."""

    async def credulous(self):
        count = self._reclaimable()
        if count:
            log = self._journal
            await write_manifest(log.volume, log.directory, Manifest("complete", log.segments[count].first))
            await self._drop(log.segments[:count])

    monkeypatch.setattr(Compactor, "_reclaim", credulous)
    assert_found(JournalMachine)
