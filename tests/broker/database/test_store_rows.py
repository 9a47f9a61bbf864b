"""The rows of a shared store.

Of several takers one wins, who was replaced writes nothing, and what was confirmed moves with its
owner.
"""

import asyncio
import random

import pytest
from database_places import SimulatedPlace

from broker.storage.database import OutcomeUnknownError
from broker.storage.database.journal import DatabaseJournal, JournalReplacedError
from broker.storage.database.registry import Registry, ReplacedError, RowChangedError
from broker.storage.database.schema import (
    OPERATING,
    SESSION_SHIFT,
    SHUTDOWN_COMPLETE,
    SHUTDOWN_FAILOVER,
    TAKEOVER_COMPLETE,
    TAKEOVER_STARTED,
)
from broker.storage.entry import ADD, DELETE, UPDATE, Operation

MESSAGE = 2
NEVER_MS = 3_600_000
"""No broker is silent for so long in a test."""
AT_ONCE_MS = -1
"""Every broker counts as silent.

Its last heartbeat is older than a moment that is still to come.
"""
TIMEOUT_S = 30.0


def add(id_, data=b"", kind=MESSAGE):
    return Operation(ADD, kind, id_, data)


def update(id_, data, kind=5):
    return Operation(UPDATE, kind, id_, data)


def delete(id_):
    return Operation(DELETE, MESSAGE, id_)


class Cluster:
    """Brokers of one cluster, each with a connection of its own."""

    def __init__(self, place):
        self.place = place
        self.databases = []
        self.journals = []

    def registry(self, name, expiration_ms=NEVER_MS):
        database = self.place.open(name)
        self.databases.append(database)
        return Registry(database, "test", name, expiration_ms=expiration_ms, timeout_s=TIMEOUT_S)

    async def broker(self, name, expiration_ms=NEVER_MS):
        """(registry, who it registered as)."""
        registry = self.registry(name, expiration_ms)
        await registry.create()
        return registry, await registry.register(f"{name}:61616")

    async def journal(self, registry, registered, sync_period_s=0.0):
        records = await registry.load(registered, registered.sessions)
        blobs = self.place.open(registry.broker_id)
        self.databases.append(blobs)
        journal = DatabaseJournal(
            registry.database, blobs, registered, records, sync_period_s=sync_period_s, timeout_s=TIMEOUT_S
        )
        self.journals.append(journal)
        return journal

    async def close(self):
        for one in (*self.journals, *self.databases):
            await one.close()


def run_on(place, test):
    async def main():
        cluster = Cluster(place)
        try:
            return await test(cluster)
        finally:
            await cluster.close()

    return place.run(main)


def shown(records):
    return [
        (record.id, record.kind, record.data, [(u.kind, u.data) for u in record.updates])
        for record in records
    ]


# -------------------------------------------------------------------------------------- registering


def test_brokers_register_themselves_each_with_a_session_of_its_own(place):
    async def test(cluster):
        _, a = await cluster.broker("a1")
        registry, b = await cluster.broker("b1")
        assert a.session != b.session
        rows = await registry.rows()
        assert [(row.broker_id, row.address, row.state) for row in rows] == [
            ("a1", "a1:61616", OPERATING),
            ("b1", "b1:61616", OPERATING),
        ]
        assert all(0 <= row.silence_ms < NEVER_MS for row in rows)

    run_on(place, test)


def test_brokers_that_start_together_on_an_empty_database_all_register(place):
    async def test(cluster):
        brokers = await asyncio.gather(*(cluster.broker(f"b{number}") for number in range(4)))
        assert len({registered.session for _, registered in brokers}) == 4

    run_on(place, test)


def test_a_broker_that_starts_again_fences_its_former_life(place):
    async def test(cluster):
        registry, before = await cluster.broker("a1")
        journal = await cluster.journal(registry, before)
        first = journal.next_id()
        journal.append([add(first, b"kept")])
        await journal.flush()
        again, after = await cluster.broker("a1")
        assert after.epoch > before.epoch
        assert after.sessions == (*before.sessions, after.session)
        journal.append([add(journal.next_id(), b"too late")])
        with pytest.raises(JournalReplacedError):
            await journal.flush()
        with pytest.raises(ReplacedError):
            await registry.renew(before)
        assert shown(await again.load(after, after.sessions)) == [(first, MESSAGE, b"kept", [])]

    run_on(place, test)


def test_an_id_that_a_broker_at_another_address_uses_is_refused_until_that_one_is_silent(place):
    async def test(cluster):
        await cluster.broker("a1")
        with pytest.raises(RowChangedError) as caught:
            await cluster.registry("a1").register("elsewhere:61616")
        assert caught.value.row.address == "a1:61616"
        await cluster.registry("a1", AT_ONCE_MS).register("elsewhere:61616")

    run_on(place, test)


# ----------------------------------------------------------------------------------------- takeover


def test_of_several_takers_only_one_succeeds(place):
    async def test(cluster):
        registry, _ = await cluster.broker("a1")
        takers = [await cluster.broker(f"b{number}", AT_ONCE_MS) for number in range(4)]
        victim = await registry.row("a1")

        async def take(taker, registered):
            try:
                return await taker.begin_takeover(registered, victim)
            except RowChangedError:
                return None

        epochs = await asyncio.gather(*(take(*taker) for taker in takers))
        winners = [taker.broker_id for (taker, _), epoch in zip(takers, epochs, strict=True) if epoch]
        assert len(winners) == 1
        row = await registry.row("a1")
        assert (row.state, row.taker) == (TAKEOVER_STARTED, winners[0])

    run_on(place, test)


def test_a_broker_that_has_shown_life_is_not_taken_over(place):
    async def test(cluster):
        registry, registered = await cluster.broker("a1")
        taker, me = await cluster.broker("b1", NEVER_MS)
        with pytest.raises(RowChangedError):
            await taker.begin_takeover(me, await registry.row("a1"))
        await registry.renew(registered)

    run_on(place, test)


def test_what_was_read_before_the_victim_started_again_is_no_ground_for_a_takeover(place):
    async def test(cluster):
        registry, _ = await cluster.broker("a1")
        taker, me = await cluster.broker("b1", AT_ONCE_MS)
        old = await registry.row("a1")
        again, registered = await cluster.broker("a1")
        with pytest.raises(RowChangedError):
            await taker.begin_takeover(me, old)
        await again.renew(registered)

    run_on(place, test)


def test_confirmed_entries_move_to_the_taker_and_the_victim_writes_nothing_more(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        ids = [journal.next_id() for _ in range(4)]
        journal.append([add(id_, b"%d" % id_) for id_ in ids])
        journal.append([update(ids[1], b"one"), update(ids[1], b"two"), delete(ids[2])])
        await journal.flush()
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        epoch = await taker.begin_takeover(b, await registry.row("a1"))
        journal.append([delete(ids[0])])
        with pytest.raises(JournalReplacedError):
            await journal.flush()
        session, moved = await taker.complete_takeover(b, "a1", epoch)
        assert moved == a.sessions
        assert session > max(*moved, b.session)
        assert shown(await taker.load(b, moved)) == [
            (ids[0], MESSAGE, b"%d" % ids[0], []),
            (ids[1], MESSAGE, b"%d" % ids[1], [(5, b"two")]),
            (ids[3], MESSAGE, b"%d" % ids[3], []),
        ]
        counts = {row.broker_id: row.messages for row in await taker.rows(count_messages=MESSAGE)}
        assert counts == {"a1": 0, "b1": 3}
        assert await taker.owned_sessions(b) == (a.session, b.session, session)

    run_on(place, test)


def test_a_victim_that_starts_again_during_the_takeover_waits_and_then_begins_empty(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        epoch = await taker.begin_takeover(b, await registry.row("a1"))
        with pytest.raises(RowChangedError) as caught:
            await cluster.registry("a1").register("a1:61616")
        assert caught.value.row.state == TAKEOVER_STARTED
        await taker.complete_takeover(b, "a1", epoch)
        assert (await taker.row("a1")).state == TAKEOVER_COMPLETE
        again = await cluster.registry("a1").register("a1:61616")
        assert again.sessions == (again.session,)
        assert again.session not in a.sessions

    run_on(place, test)


def test_a_takeover_whose_taker_died_is_completed_by_another(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        first, b = await cluster.broker("b1", AT_ONCE_MS)
        epoch = await first.begin_takeover(b, await registry.row("a1"))
        patient, c = await cluster.broker("c1", NEVER_MS)
        with pytest.raises(RowChangedError):
            await patient.begin_takeover(c, await registry.row("a1"))
        second, d = await cluster.broker("d1", AT_ONCE_MS)
        later = await second.begin_takeover(d, await registry.row("a1"))
        with pytest.raises(RowChangedError):
            await first.complete_takeover(b, "a1", epoch)
        _, moved = await second.complete_takeover(d, "a1", later)
        assert moved == a.sessions

    run_on(place, test)


def test_a_taker_that_started_again_has_left_its_takeover_to_others(place):
    """Even one whose row is fresh: it is another life, which knows nothing of the takeover."""

    async def test(cluster):
        registry, _ = await cluster.broker("a1")
        first, b = await cluster.broker("b1", AT_ONCE_MS)
        await first.begin_takeover(b, await registry.row("a1"))
        await cluster.broker("b1")
        second, c = await cluster.broker("c1", NEVER_MS)
        await second.begin_takeover(c, await registry.row("a1"))

    run_on(place, test)


def test_a_taker_that_was_itself_replaced_takes_nothing(place):
    async def test(cluster):
        registry, _ = await cluster.broker("a1")
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        await cluster.broker("b1")
        with pytest.raises(ReplacedError):
            await taker.begin_takeover(b, await registry.row("a1"))
        assert (await registry.row("a1")).state == OPERATING

    run_on(place, test)


def test_a_broker_that_was_shut_down_is_taken_over_only_where_it_asked_for_that(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        await registry.become(a, SHUTDOWN_COMPLETE)
        with pytest.raises(RowChangedError):
            await taker.begin_takeover(b, await registry.row("a1"))
        await registry.become(a, SHUTDOWN_FAILOVER)
        patient, c = await cluster.broker("c1", NEVER_MS)
        await patient.begin_takeover(c, await registry.row("a1"))

    run_on(place, test)


def test_a_forced_takeover_asks_for_nothing_but_the_row_that_was_read(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        taker, b = await cluster.broker("b1", NEVER_MS)
        seen = await registry.row("a1")
        await taker.begin_takeover(b, seen, forced=True)
        with pytest.raises(ReplacedError):
            await registry.renew(a)
        with pytest.raises(RowChangedError):
            await taker.begin_takeover(b, seen, forced=True)

    run_on(place, test)


# -------------------------------------------------------------------------------------- the journal


def test_a_restarted_broker_finds_what_its_journal_said_was_durable(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        confirmed = []
        journal.on_synced = confirmed.append
        ids = [journal.next_id() for _ in range(30)]
        for id_ in ids:
            journal.append([add(id_, b"x" * (id_ % 7))])
        for id_ in ids[::3]:
            journal.append([delete(id_)])
        await journal.flush()
        assert confirmed == sorted(confirmed)
        assert confirmed[-1] == journal.synced == journal.last_sequence == 40
        again, after = await cluster.broker("a1")
        left = [id_ for id_ in ids if id_ not in ids[::3]]
        assert [record.id for record in await again.load(after, after.sessions)] == left

    run_on(place, test)


def test_the_journal_refuses_what_a_journal_on_disk_refuses(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        id_ = journal.next_id()
        for wrong in (
            [delete(id_)],
            [update(id_, b"")],
            [add(id_), add(id_)],
            [add(id_), delete(id_), add(id_)],
        ):
            with pytest.raises(ValueError):
                journal.append(wrong)
        assert journal.last_sequence == 0
        journal.append([add(id_), update(id_, b"x"), delete(id_)])
        assert journal.live == 0
        await journal.flush()
        assert await registry.load(a, a.sessions) == []

    run_on(place, test)


def test_a_store_larger_than_a_page_is_read_whole(place, monkeypatch):
    monkeypatch.setattr("broker.storage.database.registry.PAGE", 3)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        ids = [journal.next_id() for _ in range(10)]
        for id_ in ids:
            journal.append([add(id_, b"%d" % id_), update(id_, b"u%d" % id_)])
        await journal.flush()
        assert shown(await registry.load(a, a.sessions)) == [
            (id_, MESSAGE, b"%d" % id_, [(5, b"u%d" % id_)]) for id_ in ids
        ]

    run_on(place, test)


def test_ids_of_two_brokers_never_meet(place):
    async def test(cluster):
        journals = [await cluster.journal(*await cluster.broker(name)) for name in ("a1", "b1", "a1")]
        ids = [journal.next_id() for journal in journals for _ in range(5)]
        assert len(set(ids)) == len(ids)

    run_on(place, test)


def test_adopted_records_are_changed_where_they_lie_and_what_comes_then_is_younger(place):
    async def test(cluster):
        registry, a = await cluster.broker("a1")
        old = await cluster.journal(registry, a)
        queue, one, two = old.next_id(), old.next_id(), old.next_id()
        old.append([add(queue, b"q", kind=1), add(one, b"1"), add(two, b"2")])
        await old.flush()
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        mine = await cluster.journal(taker, b)
        own = mine.next_id()
        mine.append([add(own, b"own")])
        epoch = await taker.begin_takeover(b, await registry.row("a1"))
        session, moved = await taker.complete_takeover(b, "a1", epoch)
        mine.adopt(session, await taker.load(b, moved))
        assert max(own, two) < mine.next_id()
        mine.append([delete(one), update(two, b"seen")])
        await mine.flush()
        left = shown(await taker.load(b, await taker.owned_sessions(b)))
        assert sorted(left) == sorted(
            [(queue, 1, b"q", []), (two, MESSAGE, b"2", [(5, b"seen")]), (own, MESSAGE, b"own", [])]
        )
        assert two >> SESSION_SHIFT == a.session

    run_on(place, test)


@pytest.mark.parametrize("seed", range(5))
def test_random_entries_over_a_connection_that_breaks_are_each_there_once(seed):
    """Half of the transactions lose their connection, half of these after the commit.

    Every entry happens exactly once.
    """
    place = SimulatedPlace(seed)
    chance = random.Random(seed)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a, sync_period_s=0.005)
        place.server.sever({"a1": (0.5, 0.5)})
        model = {}
        for _ in range(200):
            operations = []
            for _ in range(chance.randint(1, 4)):
                choice = chance.random()
                if choice < 0.5 or not model:
                    id_ = journal.next_id()
                    model[id_] = (b"%d" % id_, [])
                    operations.append(add(id_, b"%d" % id_))
                else:
                    id_ = chance.choice(sorted(model))
                    if choice < 0.7:
                        data = b"%d" % chance.randrange(1000)
                        model[id_] = (model[id_][0], [(5, data)])
                        operations.append(update(id_, data))
                    else:
                        del model[id_]
                        operations.append(delete(id_))
                        break  # an id that was deleted is not named again within its entry
            journal.append(operations)
            await asyncio.sleep(chance.uniform(0, 0.004))
        await journal.flush()
        assert place.server.committed_unanswered > 0
        place.server.sever({})
        found = shown(await registry.load(a, a.sessions))
        assert found == [(id_, MESSAGE, data, updates) for id_, (data, updates) in sorted(model.items())]

    run_on(place, test)


def test_a_broker_that_is_replaced_while_its_batch_is_in_doubt_does_not_take_it_for_done():
    place = SimulatedPlace(3)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        place.server.sever({"a1": (1.0, 0.5)})
        journal.append([add(journal.next_id(), b"in doubt")])
        while not place.server.committed_unanswered:
            await asyncio.sleep(0.01)
        taker, b = await cluster.broker("b1", AT_ONCE_MS)
        await taker.begin_takeover(b, await taker.row("a1"))
        place.server.sever({})
        with pytest.raises(JournalReplacedError):
            await journal.flush()
        assert journal.synced == 0

    run_on(place, test)


def test_a_stalled_database_delays_the_confirmation_and_loses_nothing():
    place = SimulatedPlace(5)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = DatabaseJournal(
            registry.database, registry.database, a, [], sync_period_s=0.0, timeout_s=0.5
        )
        cluster.journals.append(journal)
        renewed = []
        journal.on_renewed = renewed.append
        place.server.pause()
        journal.append([add(journal.next_id(), b"late")])
        await asyncio.sleep(2.0)
        assert journal.synced == 0
        place.server.resume()
        await journal.flush()
        assert len(await registry.load(a, a.sessions)) == 1

    run_on(place, test)


def test_the_lease_counts_from_when_the_batch_was_sent():
    place = SimulatedPlace(5)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        journal = await cluster.journal(registry, a)
        renewed = []
        journal.on_renewed = renewed.append
        loop = asyncio.get_running_loop()
        before = loop.time()
        place.server.pause()
        journal.append([add(journal.next_id())])
        await asyncio.sleep(1.0)
        place.server.resume()
        await journal.flush()
        assert before <= renewed[0] < before + 0.5

    run_on(place, test)


def test_the_outcome_of_a_heartbeat_that_nobody_heard_is_unknown():
    place = SimulatedPlace(1)

    async def test(cluster):
        registry, a = await cluster.broker("a1")
        place.server.sever({"a1": (1.0, 0.5)})
        with pytest.raises(OutcomeUnknownError):
            await registry.renew(a)

    run_on(place, test)
