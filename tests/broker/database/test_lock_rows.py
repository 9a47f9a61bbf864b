"""The locks of a shared store as rows.

Of several candidates one is given a lock, silence loses it, and whoever lost it writes nothing,
however late.
"""

import asyncio

import pytest
from database_places import SimulatedPlace

from broker.storage.database import DatabaseUnavailableError, Statement, UnexpectedCountError
from broker.storage.database.journal import DatabaseJournal, JournalReplacedError
from broker.storage.database.locks import BACKUP, LIVE, MASTER, LiveOwner, LockGoneError, Locks
from broker.storage.entry import ADD, Operation

NEVER_MS = 3_600_000
"""No holder is silent for so long in a test."""
AT_ONCE_MS = -1
"""A lock that has expired as soon as it is given."""
TIMEOUT_S = 30.0
STORE = "shared-store/test"


class Brokers:
    """Brokers at one store, each with a connection of its own."""

    def __init__(self, place):
        self.place = place
        self.databases = []
        self.journals = []

    async def locks(self, name, expiration_ms=NEVER_MS, timeout_s=TIMEOUT_S, store=STORE):
        database = self.place.open(name)
        self.databases.append(database)
        locks = Locks(database, store, f"{name}/1", expiration_ms=expiration_ms, timeout_s=timeout_s)
        await locks.create()
        return locks

    def journal(self, name, holding, timeout_s=TIMEOUT_S):
        database, blobs = self.place.open(name), self.place.open(name)
        self.databases += database, blobs
        journal = DatabaseJournal(
            database,
            blobs,
            LiveOwner(holding, name, holding.epoch),
            [],
            sync_period_s=0.0,
            timeout_s=timeout_s,
        )
        self.journals.append(journal)
        return journal

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


def written(journal, data):
    journal.append([Operation(ADD, 2, journal.next_id(), data)])
    return journal.flush()


async def stored(locks):
    [found] = await locks.ask(
        [Statement("SELECT data FROM store_record WHERE cluster_id = ? ORDER BY id", (STORE,))]
    )
    return [bytes(data) for (data,) in found.rows]


def test_of_candidates_that_ask_together_one_is_given_the_lock(place):
    async def test(brokers):
        candidates = [await brokers.locks(f"a{number}") for number in range(1, 5)]
        given = await asyncio.gather(*(locks.acquire(LIVE) for locks in candidates))
        assert sum(holding is not None for holding in given) == 1
        assert await candidates[0].held(LIVE)
        assert not await candidates[0].held(BACKUP)

    run_on(place, test)


def test_brokers_that_start_together_on_an_empty_database_make_one_set_of_rows(place):
    async def test(brokers):
        first, *_ = await asyncio.gather(*(brokers.locks(f"a{number}") for number in range(1, 5)))
        [found] = await first.ask(
            [Statement("SELECT place FROM store_lock WHERE cluster_id = ? ORDER BY place", (STORE,))]
        )
        assert [row[0] for row in found.rows] == sorted((LIVE, BACKUP, MASTER))

    run_on(place, test)


def test_a_lock_that_is_given_back_is_free_and_one_that_is_not_renewed_expires(place):
    async def test(brokers):
        one, two = await brokers.locks("a1"), await brokers.locks("a2")
        silent = await brokers.locks("a3", AT_ONCE_MS)
        held = await one.acquire(LIVE)
        assert await two.acquire(LIVE) is None
        await one.release(held)
        lapsed = await silent.acquire(LIVE)
        assert lapsed is not None
        given = await two.acquire(LIVE)
        assert given is not None
        assert given.epoch > lapsed.epoch > held.epoch
        for locks, gone in ((one, held), (silent, lapsed)):
            with pytest.raises(LockGoneError, match="somebody else has been given the live lock"):
                await locks.hold(gone)
        await two.hold(given)

    run_on(place, test)


def test_a_lock_that_expired_and_that_nobody_wanted_is_renewed(place):
    async def test(brokers):
        one = await brokers.locks("a1", AT_ONCE_MS)
        held = await one.acquire(LIVE)
        await one.hold(held)
        assert not await one.held(LIVE)

    run_on(place, test)


def test_stores_of_other_names_have_locks_of_their_own(place):
    async def test(brokers):
        one, other = await brokers.locks("a1"), await brokers.locks("b1", store="shared-store/other")
        assert await one.acquire(LIVE) is not None
        assert await other.acquire(LIVE) is not None

    run_on(place, test)


def test_a_live_whose_lock_was_given_away_writes_nothing_from_then_on(place):
    async def test(brokers):
        one, two = await brokers.locks("a1", AT_ONCE_MS), await brokers.locks("a2")
        held = await one.acquire(LIVE)
        journal = brokers.journal("a1", held)
        await written(journal, b"mine")
        given = await two.acquire(LIVE)
        with pytest.raises(JournalReplacedError, match="a1 .* is not the owner"):
            await written(journal, b"a zombie's")
        assert await stored(two) == [b"mine"]
        await written(brokers.journal("a2", given), b"the new live's")
        assert await stored(two) == [b"mine", b"the new live's"]

    run_on(place, test)


def test_without_the_epoch_in_its_proof_a_zombie_writes_into_the_new_lives_rows(place, monkeypatch):
    """What the test before shows is the statement's doing and nobody else's."""

    def unfenced(self, before, after):
        return Statement(
            "UPDATE store_lock SET entry = ? WHERE cluster_id = ? AND place = ?", (after, STORE, LIVE)
        )

    monkeypatch.setattr(LiveOwner, "prove_batch", unfenced)

    async def test(brokers):
        one, two = await brokers.locks("a1", AT_ONCE_MS), await brokers.locks("a2")
        journal = brokers.journal("a1", await one.acquire(LIVE))
        await two.acquire(LIVE)
        await written(journal, b"a zombie's")
        assert await stored(two) == [b"a zombie's"]

    run_on(place, test)


def test_every_batch_renews_the_lock(place):
    async def test(brokers):
        one = await brokers.locks("a1", AT_ONCE_MS)
        held = await one.acquire(LIVE)
        assert not await one.held(LIVE)
        longer = type(held)(held.cluster_id, held.place, held.epoch, NEVER_MS)
        await written(brokers.journal("a1", longer), b"x")
        assert await one.held(LIVE)

    run_on(place, test)


def test_what_is_sent_under_a_lock_that_was_given_back_finds_no_row(place):
    async def test(brokers):
        one = await brokers.locks("a1")
        held = await one.acquire(LIVE)
        await one.release(held)
        with pytest.raises(LockGoneError):
            await one.hold(held)
        assert not await one.held(LIVE)

    run_on(place, test)


# ------------------------------------------------------------------------ answers that nobody heard


def test_a_lock_that_was_given_without_an_answer_is_given_again_to_the_same_process_and_to_nobody_else():
    place = SimulatedPlace(3)

    async def test(brokers):
        one, two = await brokers.locks("a1"), await brokers.locks("a2")
        transact = one._database.transact

        async def unheard(statements, timeout_s):
            if statements[0].sql.startswith("UPDATE"):
                place.server.sever({"a1": (1.0, 1.0)})
            return await transact(statements, timeout_s)

        one._database.transact = unheard
        with pytest.raises(OSError, match="bytes read"):
            await one.acquire(LIVE)
        assert place.server.committed_unanswered == 1
        one._database.transact = transact
        place.server.sever({})
        assert await two.acquire(LIVE) is None
        again = await one.acquire(LIVE)
        assert again is not None
        await one.hold(again)

    run_on(place, test)


@pytest.mark.parametrize("winner", ["a1", "a2"])
def test_an_attempt_that_takes_effect_after_it_was_given_up_takes_nothing_from_anybody(place, winner):
    """As a server that was asked long ago does it when nobody waits any more.

    Of another broker's lock, and of one that the same process has got since.
    """

    async def test(brokers):
        late, other = await brokers.locks("a1"), await brokers.locks("a2")
        transact, sent = late._database.transact, []

        async def given_up(statements, timeout_s):
            if statements[0].sql.startswith("UPDATE"):
                sent.append(statements)
                raise DatabaseUnavailableError("given up")
            return await transact(statements, timeout_s)

        late._database.transact = given_up
        with pytest.raises(OSError, match="given up"):
            await late.acquire(LIVE)
        late._database.transact = transact
        holder = late if winner == "a1" else other
        held = await holder.acquire(LIVE)
        with pytest.raises(UnexpectedCountError):
            await transact(sent[0], TIMEOUT_S)
        await holder.hold(held)

    run_on(place, test)


def test_a_renewal_is_asked_again_until_the_database_answers():
    place = SimulatedPlace(5)

    async def test(brokers):
        one = await brokers.locks("a1", timeout_s=0.5)
        held = await one.acquire(LIVE)
        place.server.stop()
        renewing = asyncio.ensure_future(one.hold(held))
        await asyncio.sleep(2.0)
        assert not renewing.done()
        place.server.start()
        await renewing

    run_on(place, test)


def test_a_batch_in_doubt_of_a_live_that_was_replaced_meanwhile_is_not_taken_for_done():
    place = SimulatedPlace(3)

    async def test(brokers):
        one, two = await brokers.locks("a1", AT_ONCE_MS), await brokers.locks("a2")
        journal = brokers.journal("a1", await one.acquire(LIVE))
        place.server.sever({"a1": (1.0, 0.5)})
        journal.append([Operation(ADD, 2, journal.next_id(), b"in doubt")])
        while not place.server.committed_unanswered:
            await asyncio.sleep(0.01)
        await two.acquire(LIVE)
        place.server.sever({})
        with pytest.raises(JournalReplacedError):
            await journal.flush()
        assert journal.synced == 0

    run_on(place, test)
