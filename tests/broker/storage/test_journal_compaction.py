import asyncio
import random

import pytest
from journals import DIRECTORY, Model, add, delete, plain, until, update

from broker.storage.errors import JournalDamagedError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions

OPTIONS = JournalOptions(segment_size=1024, compact_min_files=4, compact_percentage=30)
NEVER = JournalOptions(segment_size=1024, compact_min_files=0)


def segments(volume):
    return sorted(path for path in volume.image() if ".seg" in path)


async def filled(volume, options=NEVER, count=60, keep=5):
    """A journal of several segments in which one of ``keep`` records lives, updated once.

    And its model.
    """
    journal, _ = await Journal.open(volume, DIRECTORY, options)
    model = Model()

    def append(*operations):
        journal.append(operations)
        model.append(*operations)

    for id_ in range(1, count + 1):
        append(add(id_, b"%d" % id_ * 20))
        if id_ > 3:
            append(delete(id_ - 3) if (id_ - 3) % keep else update(id_ - 3, b"kept"))
    await journal.flush()
    return journal, model


def test_a_queue_that_is_consumed_in_order_needs_no_rewriting():
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY, OPTIONS)
        for id_ in range(1, 400):
            journal.append([add(id_, b"x" * 50)])
            if id_ > 5:
                journal.append([delete(id_ - 5)])
            if id_ % 10 == 0:
                await journal.flush()
        await until(lambda: journal._compactor._task is None)
        assert len(segments(volume)) <= 4
        assert journal._compactor.runs == 0
        await journal.close()
        _, recovered = await Journal.open(volume, DIRECTORY, OPTIONS)
        assert [record.id for record in recovered.records] == [395, 396, 397, 398, 399]

    asyncio.run(main())


def test_garbage_is_rewritten_by_itself_when_there_is_enough_of_it():
    async def main():
        volume = MemoryVolume()
        journal, model = await filled(volume, OPTIONS, count=400, keep=20)
        await until(lambda: journal._compactor.runs >= 1 and journal._compactor._task is None)
        assert len(segments(volume)) < 12
        await journal.close()
        _, recovered = await Journal.open(volume, DIRECTORY, OPTIONS)
        assert plain(recovered) == model.state()
        assert recovered.last_sequence == len(model.entries)

    asyncio.run(main())


def test_ids_and_sequences_survive_though_everything_is_deleted():
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY, NEVER)
        ids = [journal.next_id() for _ in range(100)]
        for id_ in ids:
            journal.append([add(id_, b"x" * 100)])
        for id_ in ids:
            last = journal.append([delete(id_)])
        await journal.close()
        for _ in range(3):
            journal, recovered = await Journal.open(volume, DIRECTORY, NEVER)
            assert recovered.records == []
            assert recovered.last_sequence == last
            assert await journal.compact()
            new = journal.next_id()
            assert new > max(ids)
            ids.append(new)
            await journal.close()
        assert len(segments(volume)) == 1

    asyncio.run(main())


def test_a_crash_at_any_change_of_a_compaction_loses_and_revives_nothing():
    async def main():
        def fresh():
            return asyncio.wait_for(filled(MemoryVolume()), 20)

        journal, model = await fresh()
        volume = journal._journal.volume
        before = volume.operations
        assert await journal.compact()
        changes = volume.operations - before
        assert changes > 8
        for seed in range(3):
            for count in range(changes + 1):
                journal, model = await fresh()
                volume = journal._journal.volume
                volume.fail_after = volume.operations + count
                assert await journal.compact() is (count == changes)
                volume.crash(random.Random(seed))
                journal, recovered = await Journal.open(volume, DIRECTORY, NEVER)
                assert plain(recovered) == model.state(), count
                assert recovered.last_sequence == len(model.entries)
                assert not [path for path in volume.image() if path.endswith(".tmp")]
                assert await journal.compact()
                await journal.close()
                _, recovered = await Journal.open(volume, DIRECTORY, NEVER)
                assert plain(recovered) == model.state()

    asyncio.run(main())


def test_appends_go_on_while_a_compaction_runs_and_what_they_delete_stays_deleted():
    async def main():
        volume = MemoryVolume()
        journal, model = await filled(volume, count=200)
        compaction = asyncio.create_task(journal.compact())
        live = [record[0] for record in model.state()]
        turns = 0
        while not compaction.done():
            if live:
                id_ = live.pop(len(live) // 2)
                journal.append([delete(id_)])
                model.append(delete(id_))
            new = journal.next_id() + 1000
            journal.append([add(new)])
            model.append(add(new))
            turns += 1
            await asyncio.sleep(0)
        assert await compaction
        assert turns > 10
        check_accounting(journal)
        await journal.close()
        journal, recovered = await Journal.open(volume, DIRECTORY, NEVER)
        assert plain(recovered) == model.state()
        check_accounting(journal)

    asyncio.run(main())


class Stuck:
    """An open file whose sync takes until it is told to go on."""

    def __init__(self, file):
        self._file = file
        self.stuck = asyncio.Event()
        self.write = file.write
        self.close = file.close

    async def sync(self):
        await self.stuck.wait()
        await self._file.sync()


@pytest.mark.parametrize("way", ["reclaim", "rewrite"])
def test_a_deletion_that_is_not_on_disk_yet_gives_no_space_back(way):
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY, NEVER)
        for id_ in (1, 2):
            journal.append([add(id_, b"must survive")])
        (await journal.snapshot()).release()  # seals the segment
        journal._journal._file = Stuck(journal._journal._file)
        compaction = asyncio.create_task(journal.compact())
        await asyncio.sleep(0)
        for id_ in (1, 2) if way == "reclaim" else (1,):
            journal.append([delete(id_)])
        for _ in range(100):
            await asyncio.sleep(0)
        assert journal.synced == 2
        volume.crash()
        journal._journal._file.stuck.set()
        assert await compaction is False
        await journal.close()
        _, recovered = await Journal.open(volume, DIRECTORY, NEVER)
        assert [record.id for record in recovered.records] == [1, 2]

    asyncio.run(main())


def check_accounting(journal):
    """The bytes counted per segment are those of the live records' places, and belong to
    segments that exist.
    """
    counted = dict.fromkeys(journal._liveness.bytes, 0)
    for place in journal._liveness.records.values():
        for part in (place,) if isinstance(place, int) else place:
            counted[part >> 40] += part & (1 << 40) - 1
    assert counted == journal._liveness.bytes
    assert set(counted) == {segment.ordinal for segment in journal._journal.segments}


def test_a_snapshot_gives_a_running_compaction_up_and_holds_the_next_off():
    async def main():
        volume = MemoryVolume()
        journal, model = await filled(volume, count=300)
        compaction = asyncio.create_task(journal.compact())
        await asyncio.sleep(0)
        snapshot = await journal.snapshot()
        assert await compaction is False
        assert await journal.compact() is False
        sizes = dict(snapshot.files)
        got = dict.fromkeys(sizes, b"")
        async for name, offset, data in snapshot.chunks():
            assert offset == len(got[name])
            got[name] += data
        assert {name: len(data) for name, data in got.items()} == sizes
        assert all(volume.image()[f"{DIRECTORY}/{name}"] == data for name, data in got.items())
        snapshot.release()
        snapshot.release()
        assert await journal.compact() is True
        await journal.close()
        _, recovered = await Journal.open(volume, DIRECTORY, NEVER)
        assert plain(recovered) == model.state()

    asyncio.run(main())


def test_a_rewrite_never_carries_damage_over(caplog):
    async def main():
        volume = MemoryVolume()
        journal, _ = await filled(volume)
        victim = segments(volume)[1]
        volume._files[victim].data[200] ^= 1
        assert await journal.compact() is False
        assert victim in caplog.text
        journal.append([add(journal.next_id() + 5000)])
        await journal.close()
        with pytest.raises(JournalDamagedError, match=victim):
            await Journal.open(volume, DIRECTORY, NEVER)

    asyncio.run(main())


def test_damage_in_a_compacted_segment_is_refused_at_every_byte():
    async def main():
        volume = MemoryVolume()
        journal, _ = await filled(volume, count=30)
        assert await journal.compact()
        await journal.close()
        image = volume.image()
        victim = segments(volume)[0]
        for offset in range(len(image[victim])):
            data = image[victim]
            for broken in (data[:offset], data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :]):
                with pytest.raises(JournalDamagedError) as raised:
                    await Journal.open(MemoryVolume({**image, victim: broken}), DIRECTORY, NEVER)
                assert raised.value.path == victim
                assert raised.value.offset <= offset

    asyncio.run(main())
