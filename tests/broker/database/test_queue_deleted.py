"""A queue that is deleted leaves no row in the database, and whoever takes over from its broker
does not get it back.
"""

import asyncio
import random

import pytest
from test_pages_taken_over import TIMEOUT_S, Member

from broker.core.deletion import delete
from broker.core.message import Message
from broker.storage.database import Statement

TABLES = ("store_record", "store_update", "store_blob")


async def rows(place):
    """All that the brokers' stores hold."""
    database = place.open("reader")
    found = await database.transact(
        [Statement(f"SELECT session, id, kind FROM {table} ORDER BY session, id") for table in TABLES],
        TIMEOUT_S,
    )
    await database.close()
    return dict(zip(TABLES, (one.rows for one in found), strict=True))


async def send_large(member):
    writer = await member.journal.large.begin()
    writer.write(random.Random(1).randbytes(100_000))
    body = await writer.finish()
    member.engine.send("q", Message("q", b"a:b\n", b"", None, large=body))
    await member.rest()


@pytest.mark.parametrize("then", ["starts again", "is taken over"])
def test_no_row_of_a_deleted_queue_is_left(place, then):
    async def main():
        one = await Member.start(place, "x1")
        other = await Member.start(place, "v1")
        one.engine.send("kept", Message("kept", b"", b"k", None))
        await one.rest()
        before = await rows(place)
        await one.send("g", range(300))
        await send_large(one)
        held = []
        consumer = one.engine.subscribe("q", held.append, window=5)
        while len(held) < 2:
            await asyncio.sleep(0)
        one.engine.refuse(held[:2])  # rows of their own: how often each was delivered
        await one.rest()
        assert one.pages
        assert {
            table for table, found in (await rows(place)).items() if len(found) > len(before[table])
        } == set(TABLES)
        one.engine.unsubscribe(consumer)
        assert await delete(one.engine, "q", remove_messages=True) == 301
        await one.rest()
        await one.journal.large.close()
        await one.journal.pages.close()
        assert await rows(place) == before
        await one.end()
        if then == "is taken over":
            await other.take_over("x1")
            one = other
        else:
            one = await Member.start(place, "x1")
        assert list(one.engine.queues) == ["kept"]
        await one.send("g", range(3))
        assert await one.browsed() == {"g": [0, 1, 2]}
        await one.end()
        if one is not other:
            await other.end()

    place.run(main)
