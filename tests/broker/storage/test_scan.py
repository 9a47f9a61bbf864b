"""The fast way of a recovery finds exactly what the long way finds, in whole journals and in
broken ones.
"""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import DIRECTORY, Model, add, delete, plain, update

from broker.storage import recovery
from broker.storage.errors import JournalDamagedError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions

OPTIONS = JournalOptions(segment_size=2048, compact_min_files=0)


async def written(chance, entries, compactions):
    """A disk with a journal of all kinds of entries, some synced one by one, and the model of
    it.
    """
    volume = MemoryVolume()
    model = Model()
    journal, _ = await Journal.open(volume, DIRECTORY, OPTIONS)
    live = []
    for number in range(entries):
        operations = []
        for _ in range(chance.choice([1, 1, 1, 1, 3])):
            doing = chance.random()
            if doing < 0.55 or not live:
                live.append(journal.next_id())
                operations.append(add(live[-1], chance.randbytes(chance.choice([0, 1, 30, 200])), kind=2))
            elif doing < 0.7:
                operations.append(update(chance.choice(live), chance.randbytes(8)))
            else:
                operations.append(delete(live.pop(chance.randrange(len(live)))))
        model.append(*operations)
        journal.append(operations)
        if chance.random() < 0.2:
            await journal.flush()
        if number in compactions:
            await journal.flush()
            await journal.compact()
    await journal.flush()
    return volume, journal, model


async def opened(image):
    """(what recovery finds: records, places, live bytes, last sequence, torn; or how it refuses,
    and what is left on the disk).
    """
    volume = MemoryVolume(image)
    try:
        journal, recovered = await Journal.open(volume, DIRECTORY, OPTIONS)
    except JournalDamagedError as error:
        return str(error), volume.image()
    places, live_bytes = dict(journal._liveness.records), dict(journal._liveness.bytes)
    found = (plain(recovered), places, live_bytes, recovered.last_sequence, recovered.torn, journal.next_id())
    await journal.close()
    return found, volume.image()


def both_ways(image):
    """The same disk recovered fast, and with nothing but the long way."""
    fast = asyncio.run(opened(image))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "scan", lambda image, data, position, *rest: (position, False))
        slow = asyncio.run(opened(image))
    assert fast == slow
    return fast


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    entries=st.integers(0, 120),
    compactions=st.sets(st.integers(0, 119), max_size=2),
)
def test_both_ways_find_the_same_records_and_places(seed, entries, compactions):
    async def write():
        volume, journal, model = await written(random.Random(seed), entries, compactions)
        await journal.close()
        return volume.image(), model

    image, model = asyncio.run(write())
    (records, *_), _ = both_ways(image)
    assert records == [tuple(record) for record in model.state()]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), entries=st.integers(1, 60), flips=st.integers(1, 3))
def test_both_ways_notice_the_same_damage_and_tears(seed, entries, flips):
    chance = random.Random(seed)

    async def write():
        volume, journal, _ = await written(chance, entries, set())
        journal.append([add(journal.next_id(), chance.randbytes(900))])
        await asyncio.sleep(0)
        volume.crash(chance)
        for _ in range(flips):
            volume.corrupt(chance)
        await journal.close()
        return volume.image()

    both_ways(asyncio.run(write()))


def test_most_entries_go_the_fast_way():
    """Else the two ways would agree by being one.

    All but the entries of several operations, the updates, and what follows them within a slice.
    """

    async def write():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, DIRECTORY)
        for _ in range(1000):
            id_ = journal.next_id()
            journal.append([add(id_, b"x" * 100)])
            await journal.flush()
            if id_ % 3:
                journal.append([delete(id_)])
        await journal.close()
        return volume.image()

    image = asyncio.run(write())
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_take_frames", lambda *arguments: taken.append(arguments))
        (records, *_), _ = asyncio.run(opened(image))
    assert len(records) == 1000 // 3
    assert taken == []
