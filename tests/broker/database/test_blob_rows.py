"""Blobs as rows: whole whatever happens to the connection, written and removed by their owner
alone, moved by takeovers without being touched.
"""

import asyncio
import random

import pytest
from database_places import SimulatedPlace

from broker.storage.blobs import LARGE_MESSAGES
from broker.storage.database import Statement
from broker.storage.database.blobs import BlobRows, OwnershipLostError
from broker.storage.database.journal import DatabaseJournal, JournalReplacedError
from broker.storage.database.locks import LIVE, LiveOwner, Locks
from broker.storage.database.registry import Registry
from broker.storage.database.schema import BLOB_PART, SESSION_SHIFT
from broker.storage.entry import ADD, Operation
from broker.storage.errors import JournalDamagedError

TIMEOUT_S = 60.0
NEVER_MS = 600_000
STORE = "test"


class Brokers:
    """Brokers on one store, each process of one with connections of its own."""

    def __init__(self, place):
        self.place = place
        self.databases = []
        self.journals = []

    def open(self, name):
        self.databases.append(self.place.open(name))
        return self.databases[-1]

    async def member(self, name, expiration_ms=NEVER_MS):
        """Of a high-availability cluster: its registry, who it registered as, its journal."""
        registry = Registry(self.open(name), STORE, name, expiration_ms=expiration_ms, timeout_s=TIMEOUT_S)
        await registry.create()
        registered = await registry.register(f"{name}:61616")
        records = await registry.load(registered, registered.sessions)
        return registry, registered, self._journal(name, registered, records)

    async def live(self, name):
        """Of a shared store: its journal. Whoever had the lock has lost it."""
        locks = Locks(self.open(name), STORE, f"{name}/1", expiration_ms=NEVER_MS, timeout_s=TIMEOUT_S)
        await locks.create()
        await locks.ask([Statement("UPDATE store_lock SET expires = 0")])
        holding = await locks.acquire(LIVE)
        return self._journal(name, LiveOwner(holding, name, holding.epoch), [])

    def _journal(self, name, owner, records):
        journal = DatabaseJournal(
            self.open(name), self.open(name), owner, records, sync_period_s=0.0, timeout_s=TIMEOUT_S
        )
        self.journals.append(journal)
        return journal

    async def rows(self):
        """(session, id, bytes) of all parts there are."""
        [found] = await self.open("reader").transact(
            [Statement("SELECT session, id, length(data) FROM store_blob ORDER BY id, start")], TIMEOUT_S
        )
        return found.rows

    async def close(self):
        for one in (*self.journals, *self.databases):
            await one.close()


def run_on(place, test):
    async def main():
        brokers = Brokers(place)
        try:
            return await test(brokers)
        finally:
            await brokers.close()

    return place.run(main)


def some(seed, size):
    """Bytes of all values, the same for the same seed."""
    return random.Random(seed).randbytes(size)


async def put(journal, data):
    writer = await journal.large.begin()
    writer.write(data)
    return await writer.finish()


async def got(journal, blob):
    return b"".join([chunk async for chunk in journal.large.chunks(blob)])


async def gone(journal):
    """Return when removals under way have ended."""
    await journal.large.close()


def test_a_body_comes_back_whole_however_its_pieces_and_its_syncs_fell(place):
    async def test(brokers):
        _, registered, journal = await brokers.member("a1")
        chance = random.Random(1)
        kept = {}
        for number, size in enumerate((0, 1, BLOB_PART - 1, BLOB_PART, BLOB_PART + 1, 300_001)):
            data = some(number, size)
            writer = await journal.large.begin()
            at = 0
            while at < size:
                piece = data[at : at + chance.choice((1, 1000, BLOB_PART, 100_000))]
                writer.write(piece)
                at += len(piece)
                if chance.random() < 0.3:
                    await writer.flush()
            kept[await writer.finish()] = data
        for blob, data in kept.items():
            assert await got(journal, blob) == data
            assert blob.id >> SESSION_SHIFT == registered.session
        assert await journal.large.medium.sizes() == {blob.id: len(data) for blob, data in kept.items()}
        assert max(size for _, _, size in await brokers.rows()) == BLOB_PART
        first, *others = kept
        for blob in others:
            journal.large.release(blob)
        await gone(journal)
        assert await journal.large.medium.sizes() == {first.id: 0}

    run_on(place, test)


def test_what_was_not_synced_is_not_there(place):
    async def test(brokers):
        _, _, journal = await brokers.member("a1")
        writer = await journal.large.begin()
        writer.write(b"x" * 1000)
        assert await brokers.rows() == []
        await writer.flush()
        assert [size for _, _, size in await brokers.rows()] == [1000]
        writer.write(b"y")
        writer.discard()
        await gone(journal)
        assert await brokers.rows() == []

    run_on(place, test)


@pytest.mark.parametrize("policy", ["ha-database", "shared-store"])
def test_a_broker_that_was_replaced_writes_no_part_and_removes_none(place, policy):
    async def test(brokers):
        async def start():
            return (await brokers.member("a1"))[2] if policy == "ha-database" else await brokers.live("a1")

        before = await start()
        blob = await put(before, b"kept")
        writer = await before.large.begin()
        writer.write(b"begun")
        await writer.flush()
        after = await start()
        rows = await brokers.rows()
        writer.write(b"too late")
        with pytest.raises(OwnershipLostError):
            await writer.flush()
        with pytest.raises(OSError, match="an earlier part"):
            await writer.finish()
        before.large.release(blob)
        await gone(before)
        with pytest.raises(JournalReplacedError):
            await before.sweep()
        assert await brokers.rows() == rows
        after.large.hold(blob)
        await after.sweep()
        assert await after.large.medium.sizes() == {blob.id: 4}
        assert await got(after, blob) == b"kept"

    run_on(place, test)


def test_a_start_removes_what_its_former_life_had_begun_and_nothing_of_others_or_of_its_own(place):
    async def test(brokers):
        _, _, before = await brokers.member("a1")
        _, _, other = await brokers.member("b1")
        kept, orphan, foreign = (
            await put(before, b"kept"),
            await put(before, b"orphan"),
            await put(other, b"b1's"),
        )
        _, _, after = await brokers.member("a1")
        young = await after.large.begin()
        young.write(b"under way")
        await young.flush()
        after.large.hold(kept)
        await after.sweep()
        assert {id_ for _, id_, _ in await brokers.rows()} == {kept.id, foreign.id, young.id}
        assert orphan.id not in await after.large.medium.sizes()

    run_on(place, test)


def test_a_body_that_a_record_names_and_that_is_not_there_is_damage(place):
    async def test(brokers):
        _, _, before = await brokers.member("a1")
        blob = await put(before, some(1, 3 * BLOB_PART))
        reader = brokers.open("reader")
        await reader.transact([Statement("DELETE FROM store_blob WHERE start = ?", (BLOB_PART,))], TIMEOUT_S)
        _, _, after = await brokers.member("a1")
        after.large.hold(blob)
        with pytest.raises(JournalDamagedError, match=rf"large-messages/{blob.id} .* are missing"):
            await after.sweep()
        with pytest.raises(JournalDamagedError, match="bytes should be here"):
            await got(after, blob)

    run_on(place, test)


def test_a_takeover_has_the_bodies_and_removes_only_what_the_victim_had_begun(place):
    async def test(brokers):
        taker, mine, journal = await brokers.member("b1")
        _, _, victim = await brokers.member("a1")
        kept, orphan = await put(victim, some(1, 100_000)), await put(victim, some(2, 100_000))
        own = await journal.large.begin()
        own.write(b"under way")
        await own.flush()
        epoch = await taker.begin_takeover(mine, await taker.row("a1"), forced=True)
        silence = Statement("UPDATE store_broker SET heartbeat = 0 WHERE broker_id = 'a1'")
        await brokers.open("b1").transact([silence], TIMEOUT_S)
        session, theirs = await taker.complete_takeover(mine, "a1", epoch)
        journal.adopt(session, [])
        journal.large.hold(kept)
        young = await put(journal, b"of the new session")
        await journal.sweep_adopted(theirs)
        assert {id_ for _, id_, _ in await brokers.rows()} == {kept.id, own.id, young.id}
        assert await got(journal, kept) == some(1, 100_000)
        own.write(b" and whole")
        assert await got(journal, await own.finish()) == b"under way and whole"
        with pytest.raises(OwnershipLostError):
            await victim.large.medium.remove(kept.id)
        assert orphan.id not in await journal.large.medium.sizes()

    run_on(place, test)


@pytest.mark.parametrize("seed", range(5))
def test_bodies_over_a_connection_that_breaks_are_whole_and_removed_ones_are_gone(seed):
    """Half of the transactions lose their connection, half of these after the commit."""
    place = SimulatedPlace(seed)

    async def test(brokers):
        _, _, journal = await brokers.member("a1")
        place.server.sever({"a1": (0.5, 0.5)})
        kept = {}
        for number in range(6):
            data = some(number, 200_000)
            writer = await journal.large.begin()
            for at in range(0, len(data), 50_000):
                writer.write(data[at : at + 50_000])
                await writer.flush()
            kept[await writer.finish()] = data
        for blob in list(kept)[::2]:
            journal.large.release(blob)
            del kept[blob]
        await gone(journal)
        assert place.server.committed_unanswered > 0
        for blob, data in kept.items():
            assert await got(journal, blob) == data
        assert await journal.large.medium.sizes() == {blob.id: len(data) for blob, data in kept.items()}

    run_on(place, test)


def test_a_journal_is_closed_though_the_database_is_away_and_a_body_is_still_to_be_removed():
    place = SimulatedPlace(2)

    async def test(brokers):
        _, _, journal = await brokers.member("a1")
        blob = await put(journal, b"x")
        place.server.stop()
        journal.large.release(blob)
        await asyncio.sleep(1.0)
        await journal.close()
        place.server.start()
        assert [id_ for _, id_, _ in await brokers.rows()] == [blob.id]
        _, _, after = await brokers.member("a1")
        await after.sweep()
        assert await brokers.rows() == []

    run_on(place, test)


def test_on_postgresql_neither_a_batch_nor_a_heartbeat_waits_for_a_body_that_is_being_written(postgresql):
    """A part that somebody else has locked holds the body up, before the proof.

    The owner's row is free meanwhile.
    """

    async def test(brokers):
        registry, registered, journal = await brokers.member("a1")
        rows = BlobRows(brokers.open("a1"), registered, LARGE_MESSAGES, TIMEOUT_S)
        id_ = journal.next_id()
        holder = await brokers.open("b1")._connected()
        await holder.execute(
            "INSERT INTO store_blob VALUES (%s, %s, %s, %s, %s, %s)",
            (STORE, LARGE_MESSAGES, registered.session, id_, 0, b"in the way"),
        )
        writing = asyncio.create_task(rows.put(id_, 0, b"of ours"))
        watch = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
            "'INSERT INTO store_blob%'"
        )
        observer = brokers.open("reader")
        while (await observer.transact([Statement(watch)], TIMEOUT_S))[0].rows != [(1,)]:
            await asyncio.sleep(0.01)
        journal.append([Operation(ADD, 2, journal.next_id(), b"a message")])
        await journal.flush()
        await registry.renew(registered)
        assert not writing.done()
        await holder.rollback()
        await writing
        assert await rows.read(id_, 0, 100) == b"of ours"

    run_on(postgresql, test)
