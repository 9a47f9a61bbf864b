import asyncio

import pytest
from journals import DIRECTORY, SMALL, Model, add, delete, plain, until, update

from broker.storage.directory import DirectoryVolume
from broker.storage.entry import Operation
from broker.storage.errors import JournalError, JournalFailedError, JournalLockedError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions


def test_what_was_synced_is_there_again_in_order_of_its_add():
    async def main():
        volume = MemoryVolume()
        journal, recovered = await Journal.open(volume, DIRECTORY)
        assert recovered.records == []
        first, second, third = (journal.next_id() for _ in range(3))
        assert journal.append([add(second, b"two"), add(first, b"one")]) == 1
        assert journal.append([add(third, b"")]) == 2
        assert journal.append([update(second, b"again", 9), delete(first)]) == 3
        assert journal.synced == 0
        await journal.flush()
        assert journal.synced == 3
        volume.crash()
        _, recovered = await Journal.open(volume, DIRECTORY)
        assert plain(recovered) == [(second, 1, b"two", [(9, b"again")]), (third, 1, b"", [])]
        assert recovered.last_sequence == 3

    asyncio.run(main())


def test_one_sync_serves_all_that_came_while_the_last_one_ran():
    async def main():
        volume = MemoryVolume(latency_s=0.001)
        journal, _ = await Journal.open(volume, DIRECTORY)
        synced = []
        journal.on_synced = synced.append
        journal.append([add(1)])
        await until(lambda: journal._journal._flying is not None)
        for id_ in range(2, 1000):
            journal.append([add(id_)])
        await journal.flush()
        assert synced == [1, 999]

    asyncio.run(main())


def test_a_callback_after_a_sync_may_append():
    async def main():
        journal, _ = await Journal.open(MemoryVolume(), DIRECTORY)
        journal.on_synced = lambda sequence: sequence < 5 and journal.append([add(sequence + 1)])
        journal.append([add(1)])
        await until(lambda: journal.synced == 5)
        assert journal.live == 5

    asyncio.run(main())


def test_close_makes_everything_durable_and_gives_the_lock_back():
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY)
        with pytest.raises(JournalLockedError, match="in use"):
            await Journal.open(volume, DIRECTORY)
        journal.append([add(1)])
        await journal.close()
        await journal.close()
        with pytest.raises(JournalError, match="closed"):
            journal.append([add(2)])
        volume.crash()
        _, recovered = await Journal.open(volume, DIRECTORY)
        assert [record.id for record in recovered.records] == [1]

    asyncio.run(main())


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [add(1)],
        [add(2), add(2)],
        [delete(2)],
        [update(2)],
        [delete(1), update(1)],
        [delete(1), delete(1)],
        [delete(1), add(1)],
        [Operation(0, 0, 1)],
        [Operation(4, 0, 1)],
        [Operation(4, 0, 1), add(5)],
        [add(2**64)],
        [add(-1)],
        [add(2, kind=256)],
    ],
)
def test_a_wrong_entry_is_refused_as_a_whole(operations):
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY)
        journal.append([add(1)])
        with pytest.raises(ValueError):
            journal.append(operations)
        with pytest.raises(ValueError):
            journal.append([add(7), *operations, add(7)])
        assert journal.append([delete(1)]) == 2
        await journal.close()
        _, recovered = await Journal.open(volume, DIRECTORY)
        assert recovered.records == []
        assert recovered.last_sequence == 2

    asyncio.run(main())


def test_entries_of_any_size_cross_segments_without_a_gap():
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY, SMALL)
        model = Model()
        for id_, size in enumerate([0, 1, 900, 1, 5000, 200_000, 3, 1024, 0], 1):
            operation = add(id_, bytes([id_]) * size)
            journal.append([operation])
            model.append(operation)
        await journal.close()
        assert len(journal.files) > 4
        for name, size in journal.files:
            assert len(volume.image()[f"{DIRECTORY}/{name}"]) == size
        _, recovered = await Journal.open(volume, DIRECTORY, SMALL)
        assert plain(recovered) == model.state()

    asyncio.run(main())


def test_ids_are_never_given_out_twice_even_if_they_were_never_written():
    async def main():
        volume = MemoryVolume()
        seen = []
        for _ in range(4):
            journal, _ = await Journal.open(volume, DIRECTORY)
            seen += [journal.next_id() for _ in range(3)]
            volume.crash()
        assert len(set(seen)) == 12
        assert seen == sorted(seen)
        assert seen[:3] == [1, 2, 3]

    asyncio.run(main())


def test_the_tap_gets_every_entry_in_order():
    async def main():
        journal, _ = await Journal.open(MemoryVolume(), DIRECTORY)
        tapped = []
        journal.append([add(1)])
        journal.tap = lambda sequence, entry: tapped.append((sequence, entry[-1:]))
        journal.append([add(2, b"b")])
        journal.append([add(3, b"c")])
        assert tapped == [(2, b"b"), (3, b"c")]

    asyncio.run(main())


def test_a_disk_that_fails_ends_the_journal_at_once_and_nothing_is_called_synced():
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY)
        journal.append([add(1)])
        await journal.flush()
        failures = []
        journal.on_failed = failures.append
        journal.on_synced = lambda _: pytest.fail("nothing was synced")
        volume.fail_after = volume.operations
        journal.append([add(2)])
        with pytest.raises(JournalFailedError, match=r"journal-0000000000000001\.seg"):
            await journal.flush()
        assert len(failures) == 1
        assert journal.failure is failures[0]
        with pytest.raises(JournalFailedError):
            journal.append([add(3)])
        with pytest.raises(JournalFailedError):
            await journal.flush()
        with pytest.raises(JournalFailedError):
            await journal.snapshot()
        assert journal.synced == 1
        await journal.close()

    asyncio.run(main())


def test_options_out_of_range_are_named():
    for options in (
        {"segment_size": 100},
        {"compact_percentage": 101},
        {"compact_min_files": -1},
        {"keep_moved": -1},
    ):
        with pytest.raises(ValueError, match=r"is -?\d+"):
            JournalOptions(**options)


def test_it_works_on_a_real_disk(tmp_path):
    async def main():
        volume = DirectoryVolume(tmp_path)
        journal, _ = await Journal.open(volume, DIRECTORY, SMALL)
        model = Model()
        for id_ in range(1, 200):
            journal.append([add(id_, b"%d" % id_)])
            model.append(add(id_, b"%d" % id_))
            if id_ % 3:
                journal.append([delete(id_)])
                model.append(delete(id_))
            if id_ % 40 == 0:
                await journal.flush()
        await journal.flush()
        assert await journal.compact()
        await journal.close()
        journal, recovered = await Journal.open(volume, DIRECTORY, SMALL)
        assert plain(recovered) == model.state()
        await journal.close()
        await volume.close()

    asyncio.run(main())
