"""What a recovery has accepted stays.

A tail that only the system's memory held is synced before anything is built on it.
"""

import asyncio
import random

from broker.storage.entry import ADD, Operation
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.memory_content import Content


def unsynced(volume):
    """Kill a process that had appended one record and handed it to the system, but not synced
    it.
    """

    async def life():
        journal, _ = await Journal.open(volume, "journal")
        journal.append([Operation(ADD, 7, journal.next_id(), b"handed over")])
        while not any(len(content.data) > content.synced for content in volume._files.values()):
            await asyncio.sleep(0)
        for content in volume._files.values():
            content.handed = len(content.data)
        volume.process_ended(random.Random(1))

    asyncio.run(life())


async def data_of(volume):
    journal, recovered = await Journal.open(volume, "journal")
    journal.append([Operation(ADD, 8, journal.next_id(), b"later")])
    await journal.flush()
    return [record.data for record in recovered.records]


def test_a_record_that_a_recovery_has_shown_survives_a_power_loss_right_after_it():
    volume = MemoryVolume(latency_s=0.001)
    unsynced(volume)
    assert asyncio.run(data_of(volume)) == [b"handed over"]
    volume.crash()
    assert asyncio.run(data_of(volume)) == [b"handed over", b"later"]


def test_the_end_of_a_process_takes_nothing_of_what_an_earlier_one_had_handed_over():
    content = Content(b"synced")
    content.data += b", handed over"
    content.handed = len(content.data)
    for seed in range(20):
        content.process_ended(random.Random(seed))
    assert bytes(content.data) == b"synced, handed over"
    content.data += b", not yet"
    content.process_ended(random.Random(1))
    kept = bytes(content.data)
    assert kept.startswith(b"synced, handed over")
    content.process_ended(random.Random(2))
    assert bytes(content.data) == kept
    content.power_lost(None)
    assert bytes(content.data) == b"synced"
