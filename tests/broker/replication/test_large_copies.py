"""Large bodies of a live and its backup.

What may be served from a copy has every file that its entries name.
"""

import asyncio
import random
import re

import pytest
from pair import Pair, until

from broker.core.message import MESSAGE, Message, encode
from broker.core.recovery import read
from broker.storage.blobs import LARGE_MESSAGES
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.journal import Journal


async def store(pair, chance, size):
    """A large message as a session and an engine store it.

    Its body's bytes by its record's id once it is answered.
    """
    data = chance.randbytes(size)
    writer = await pair.journal.large.begin()
    for place in range(0, size, 50_000):
        writer.write(data[place : place + 50_000])
        await asyncio.sleep(0)
    body = await writer.finish()
    id_ = pair.journal.next_id()
    message = Message("q", b"", writer.start, large=body)
    sequence = pair.journal.append([Operation(ADD, MESSAGE, id_, encode(message, 1))])
    pair.gate.when_durable(sequence, lambda: pair.answered.append(id_))
    return id_, body, data


def remove(pair, id_, body):
    """The message is acknowledged."""
    sequence = pair.journal.append([Operation(DELETE, MESSAGE, id_)])
    pair.gate.when_durable(sequence, lambda: pair.journal.large.release(body))


async def found(volume):
    """Bodies by record id, as a broker that takes over from this disk finds them.

    Raises if one is missing or damaged.
    """
    journal, recovered = await Journal.open(volume, "journal")
    image = read(recovered.records)
    for body in image.large:
        journal.large.hold(body)
    await journal.sweep()
    ids = [record.id for records in image.messages.values() for record in records]
    bodies = {}
    for id_, body in zip(ids, image.large, strict=True):
        bodies[id_] = b"".join([chunk async for chunk in journal.large.chunks(body)])
    names = await volume.list(LARGE_MESSAGES)
    assert len(names) == len(bodies)
    await journal.close()
    return bodies


def run(scenario):
    asyncio.run(scenario())


def test_a_backup_gets_the_bodies_that_were_there_and_those_that_come():
    async def scenario():
        chance = random.Random(1)
        async with Pair() as pair:
            sent = {}
            for _ in range(3):
                id_, _, data = await store(pair, chance, 300_000)
                sent[id_] = data
            pair.begin()
            id_, _, data = await store(pair, chance, 3_000_000)
            sent[id_] = data
            await until(lambda: pair.follower.up_to_date, "up to date")
            for _ in range(3):
                id_, _, data = await store(pair, chance, 200_000)
                sent[id_] = data
            await until(lambda: len(pair.answered) == 7, "all are answered")
            pair.live_link.abort("killed")
            await pair.follower.ended
            await pair.follower.close()
            assert await found(pair.volume) == sent

    run(scenario)


def test_a_body_that_nobody_needs_is_removed_from_both_disks():
    async def scenario():
        async with Pair() as pair:
            early = await store(pair, random.Random(1), 200_000)
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            late = await store(pair, random.Random(2), 200_000)
            remove(pair, *early[:2])
            remove(pair, *late[:2])
            for volume in (pair.live_volume, pair.volume):
                names = [""]
                while names:
                    names = await volume.list(LARGE_MESSAGES)
                    await asyncio.sleep(0.002)

    run(scenario)


def test_nothing_is_answered_before_the_body_is_on_the_disk_of_the_backup():
    async def scenario():
        async with Pair() as pair:
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            written, go_on = asyncio.Event(), asyncio.Event()
            write = pair.follower.blobs._write

            async def slow(chunk):
                if chunk.last:
                    written.set()
                    await go_on.wait()
                await write(chunk)

            pair.follower.blobs._write = slow
            await store(pair, random.Random(1), 200_000)
            await written.wait()
            await until(lambda: pair.copy.synced == pair.journal.last_sequence, "the entry is on both disks")
            for _ in range(20):
                await asyncio.sleep(0)
            assert pair.answered == []
            go_on.set()
            await until(lambda: len(pair.answered) == 1, "answered")

    run(scenario)


def test_a_backup_that_takes_nothing_more_is_given_up():
    async def scenario():
        async with Pair() as pair:
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            pair.follower.blobs._work = _Nothing()
            pair.feed._blobs._sender._patience_s = 0.05
            await store(pair, random.Random(1), 5_000_000)
            [ending] = pair.endings
            assert re.fullmatch(
                r"the backup has not taken a part of large-messages/\d+\.msg within call-timeout", ending
            )
            assert pair.answered == []

    run(scenario)


class _Nothing(list):
    """A disk that does nothing for ever: what is put here is never seen."""

    def append(self, _):
        pass


@pytest.mark.parametrize("seed", range(15))
def test_wherever_the_connection_breaks_a_copy_that_may_be_served_has_the_bodies_of_all_that_was_answered(
    seed,
):
    async def scenario():
        chance = random.Random(seed)
        async with Pair() as pair:
            kept = {}
            for _ in range(chance.randrange(3)):
                id_, _, data = await store(pair, chance, chance.randrange(100_000, 400_000))
                kept[id_] = data
            pair.begin()
            if seed % 2:
                await until(lambda: pair.follower.up_to_date, "up to date")
            for _ in range(chance.randrange(1, 6)):
                id_, body, data = await store(pair, chance, chance.randrange(100_000, 2_000_000))
                if chance.random() < 0.3:
                    remove(pair, id_, body)
                else:
                    kept[id_] = data
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(chance.choice((0, 0, 0.001)))
            answered = list(pair.answered)
            pair.live_link.abort("killed")
            ending = await pair.follower.ended
            await pair.follower.close()
            assert ending.up_to_date or not seed % 2
            if ending.up_to_date:
                bodies = await found(pair.volume)
                assert {id_: kept[id_] for id_ in answered if id_ in kept}.items() <= bodies.items()

    run(scenario)
