import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import DIRECTORY, Model, add, delete, plain, until, update

from broker.storage.copy import JournalCopy
from broker.storage.entry import BadFrameError, encode_entry
from broker.storage.errors import (
    JournalDamagedError,
    JournalError,
    JournalFailedError,
    JournalIncompleteError,
    JournalLockedError,
)
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions

OPTIONS = JournalOptions(segment_size=1024, compact_min_files=3, compact_percentage=40)


class Pair:
    """A live journal under load and the copy that is being made of it."""

    def __init__(self, chance):
        self.chance = chance
        self.model = Model()
        self.stream = []
        self.live = []

    async def begin(self, before):
        self.source = MemoryVolume()
        self.target = MemoryVolume()
        self.journal, _ = await Journal.open(self.source, DIRECTORY, OPTIONS)
        self.load(before)
        await self.journal.flush()
        self.snapshot = await self.journal.snapshot(lambda *entry: self.stream.append(entry))
        self.copy = await JournalCopy.create(self.target, DIRECTORY, OPTIONS)
        self.last = self.snapshot.last_sequence
        self.chunks = [chunk async for chunk in self.snapshot.chunks()]

    def load(self, count):
        for _ in range(count):
            choice = self.chance.random()
            if choice < 0.55 or not self.live:
                operation = add(self.journal.next_id(), bytes(self.chance.randrange(300)))
                self.live.append(operation.id)
            elif choice < 0.9:
                operation = delete(self.live.pop(self.chance.randrange(len(self.live))))
            else:
                operation = update(self.chance.choice(self.live), b"u")
            self.journal.append([operation])
            self.model.append(operation)

    def pass_on(self, count=10**9):
        for entry in self.stream[:count]:
            self.copy.append_encoded(*entry)
        del self.stream[:count]

    async def check_equal(self):
        await self.journal.close()
        await self.copy.close()
        _, source = await Journal.open(self.source, DIRECTORY, OPTIONS)
        journal, target = await Journal.open(self.target, DIRECTORY, OPTIONS)
        assert plain(source) == plain(target) == self.model.state()
        assert source.last_sequence == target.last_sequence == len(self.model.entries)
        assert journal.append([add(journal.next_id())]) == len(self.model.entries) + 1
        await journal.close()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    before=st.integers(0, 80),
    turns=st.lists(st.sampled_from(["chunk", "entry", "entries", "load", "turn", "drain"]), max_size=80),
    after=st.integers(0, 60),
)
def test_however_the_streams_interleave_the_copy_is_equal(seed, before, turns, after):
    async def main():
        pair = Pair(random.Random(seed))
        await pair.begin(before)
        for turn in turns:
            if turn == "chunk" and pair.chunks:
                pair.copy.write_chunk(*pair.chunks.pop(0))
            elif turn == "entry":
                pair.pass_on(1)
            elif turn == "entries":
                pair.pass_on()
            elif turn == "load":
                pair.load(4)
            elif turn == "drain":
                await pair.copy.drained()
            else:
                await asyncio.sleep(0)
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        completing = asyncio.create_task(pair.copy.complete(pair.last, pair.snapshot.files))
        while not completing.done():
            pair.load(1)
            pair.pass_on(1)
            await asyncio.sleep(0)
        await completing
        assert pair.copy.up_to_date
        pair.snapshot.release()
        pair.load(after)
        pair.pass_on()
        await until(lambda: pair.copy.synced == len(pair.model.entries))
        await pair.check_equal()

    asyncio.run(main())


def test_synced_follows_the_disk_and_is_told():
    async def main():
        pair = Pair(random.Random(1))
        await pair.begin(10)
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        told = []
        pair.copy.on_synced = told.append
        await pair.copy.complete(pair.last)
        assert pair.copy.synced == pair.last == 10
        pair.load(3)
        pair.pass_on()
        assert pair.copy.synced == 10
        await until(lambda: pair.copy.synced == 13)
        assert told[-1] == 13
        pair.target.crash()
        await pair.copy.close()
        _, recovered = await Journal.open(pair.target, DIRECTORY, OPTIONS)
        assert plain(recovered) == pair.model.state()

    asyncio.run(main())


def test_an_empty_journal_is_copied_too():
    async def main():
        pair = Pair(random.Random(1))
        await pair.begin(0)
        assert pair.chunks == []
        await pair.copy.complete(0)
        pair.load(5)
        pair.pass_on()
        await pair.check_equal()

    asyncio.run(main())


def test_a_copy_that_was_not_completed_is_refused_for_ever():
    async def main():
        pair = Pair(random.Random(1))
        await pair.begin(30)
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        pair.load(5)
        pair.pass_on()
        await pair.copy.close()
        for _ in range(2):
            with pytest.raises(JournalIncompleteError, match="never ended"):
                await Journal.open(pair.target, DIRECTORY, OPTIONS)

    asyncio.run(main())


def test_a_crash_at_any_change_leaves_an_incomplete_copy_or_all_of_it():
    async def begun():
        pair = Pair(random.Random(5))
        await pair.begin(25)
        return pair, pair.target.operations

    async def synchronise(pair):
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        pair.load(8)
        pair.pass_on()
        await pair.copy.complete(pair.last)

    async def main():
        pair, start = await begun()
        await synchronise(pair)
        changes = pair.target.operations - start
        assert changes > 10
        for count in range(changes):
            pair, start = await begun()
            pair.target.fail_after = start + count
            with pytest.raises((JournalError, OSError)):
                await synchronise(pair)
            pair.target.crash(random.Random(count))
            await pair.copy.close()
            with pytest.raises(JournalIncompleteError):
                await Journal.open(pair.target, DIRECTORY, OPTIONS)

    asyncio.run(main())


def test_damage_on_the_way_is_found_before_the_copy_counts():
    async def main():
        pair = Pair(random.Random(2))
        await pair.begin(30)
        name, offset, data = pair.chunks[0]
        pair.chunks[0] = (name, offset, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        with pytest.raises(JournalDamagedError, match=name):
            await pair.copy.complete(pair.last)
        await pair.copy.close()
        with pytest.raises(JournalIncompleteError):
            await Journal.open(pair.target, DIRECTORY, OPTIONS)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["first file", "last file", "chunk", "stream"])
def test_what_is_missing_is_found_before_the_copy_counts(what):
    async def main():
        pair = Pair(random.Random(2))
        await pair.begin(60)
        assert len(pair.chunks) > 1
        if what == "first file":
            del pair.chunks[0]
        elif what == "last file":
            del pair.chunks[-1]
        elif what == "chunk":
            name, offset, data = pair.chunks[-1]
            pair.chunks[-1] = (name, offset, data[:-50])
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        pair.load(3)
        if what == "stream":
            pair.stream.pop(0)
        pair.pass_on()
        with pytest.raises(JournalDamagedError):
            await pair.copy.complete(pair.last, pair.snapshot.files)
        assert not pair.copy.up_to_date
        await pair.copy.close()

    asyncio.run(main())


def test_wrong_input_is_refused_where_it_comes_in():
    async def main():
        copy = await JournalCopy.create(MemoryVolume(), DIRECTORY, OPTIONS)
        for name in (
            "../../etc/passwd",
            "journal.manifest",
            "journal-1.seg",
            "journal-0000000000000001.seg/x",
        ):
            with pytest.raises(ValueError, match="is no segment"):
                copy.write_chunk(name, 0, b"x")
        with pytest.raises(ValueError, match="0 is next"):
            copy.write_chunk("journal-0000000000000001.seg", 5, b"x")
        copy.append_encoded(7, encode_entry(7, [add(1)]))
        with pytest.raises(ValueError, match="8 is next"):
            copy.append_encoded(9, encode_entry(9, [add(2)]))
        with pytest.raises(ValueError, match="came as 8"):
            copy.append_encoded(8, encode_entry(9, [add(2)]))
        entry = encode_entry(8, [add(2)])
        for damaged in (b"", entry[:-1], entry + b"x", entry[:-1] + b"?", entry[:4] + b"????" + entry[8:]):
            with pytest.raises(BadFrameError):
                copy.append_encoded(8, damaged)
        copy.append_encoded(8, entry)
        await copy.close()
        with pytest.raises(JournalError, match="closed"):
            copy.append_encoded(9, encode_entry(9, [add(3)]))

    asyncio.run(main())


def test_the_old_journal_is_moved_aside_and_the_newest_two_are_kept():
    async def main():
        volume = MemoryVolume()
        for number in range(1, 5):
            journal, _ = await Journal.open(volume, DIRECTORY, OPTIONS)
            journal.append([add(journal.next_id(), b"life %d" % number)])
            with pytest.raises(JournalLockedError):
                await JournalCopy.create(volume, DIRECTORY, OPTIONS)
            await journal.close()
            copy = await JournalCopy.create(volume, DIRECTORY, OPTIONS)
            await copy.close()
            copy = await JournalCopy.create(
                volume, DIRECTORY, OPTIONS
            )  # an unfinished one is not worth keeping
            await copy.complete(0)
            await copy.close()
        names = await volume.list("data")
        assert names == ["journal", "journal.moved-3", "journal.moved-4"]
        _, recovered = await Journal.open(volume, "data/journal.moved-4", OPTIONS)
        assert recovered.records[-1].data == b"life 4"

    asyncio.run(main())


def test_a_copy_compacts_too():
    async def main():
        pair = Pair(random.Random(3))
        await pair.begin(50)
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        await pair.copy.complete(pair.last)
        pair.snapshot.release()
        for _ in range(40):
            pair.load(10)
            while len(pair.live) > 4:
                id_ = pair.live.pop(0)
                pair.journal.append([delete(id_)])
                pair.model.append(delete(id_))
            pair.pass_on()
            await until(lambda: pair.copy.synced == len(pair.model.entries))
        await until(lambda: pair.copy._compactor._task is None)
        segments = [path for path in pair.target.image() if ".seg" in path]
        assert len(segments) < 12
        await pair.check_equal()

    asyncio.run(main())


def test_a_failing_disk_is_told_once_and_ends_the_copy():
    async def main():
        pair = Pair(random.Random(4))
        await pair.begin(10)
        failures = []
        pair.copy.on_failed = failures.append
        pair.target.fail_after = pair.target.operations
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        pair.load(1)
        pair.pass_on()
        await until(lambda: failures)
        with pytest.raises(JournalFailedError):
            await pair.copy.complete(pair.last)
        assert len(failures) == 1
        await pair.copy.close()

    asyncio.run(main())


def test_a_copy_tells_what_lives_in_it_and_only_once_it_is_complete():
    async def main():
        pair = Pair(random.Random(5))
        await pair.begin(50)
        with pytest.raises(JournalError):
            await pair.copy.records()
        for chunk in pair.chunks:
            pair.copy.write_chunk(*chunk)
        await pair.copy.complete(pair.last)
        pair.load(30)
        pair.pass_on()
        assert sorted(record.id for record in await pair.copy.records()) == sorted(pair.live)

    asyncio.run(main())
