"""What a life of a shared store leaves in a database, the next one has.

Every record with the latest of its updates, in order, over pages and lives.
"""

import asyncio
import random

import pytest
from database_places import SimulatedPlace

from broker import config
from broker.policies.ownership.lease import LeaseLostError
from broker.policies.shared_store import database as store_database
from broker.policies.shared_store.database import DatabaseStore
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.database import Statement
from broker.storage.entry import ADD, DELETE, UPDATE, Operation

MESSAGE = 2


def store_of(place, name, /, process=1, **changed):
    section = {"url": "sqlite:unused", "network-timeout": 20_000, "lock-expiration": 60_000, **changed}
    settings = config.validate(
        {
            "broker": {"name": name},
            "cluster": {"cluster-password": "p", "connector": f"{name}:1", "stomp-connector": f"{name}:2"},
            "ha-policy": {"shared-store": {"store": "database", "master": {}}},
            "database-store": section,
        }
    )
    return DatabaseStore(
        settings, Seams(random.Random(f"{name}/{process}"), lambda: 0.0), lambda: place.open(name)
    )


def certain():
    pass


async def reign(store, require=certain):
    await store.places.prepare()
    live = await store.places.take("live")
    assert live is not None
    return live, await store.inherit(live, require)


def shown(records):
    return [
        (record.id, record.kind, bytes(record.data), [(u.kind, bytes(u.data)) for u in record.updates])
        for record in records
    ]


def test_each_life_has_all_that_the_lives_before_it_left(place, monkeypatch):
    monkeypatch.setattr(store_database, "PAGE", 3)

    async def main():
        chance = random.Random(1)
        model = {}
        node_ids = set()
        for number in range(1, 5):
            store = store_of(place, f"a{number}")
            live, inherited = await reign(store)
            assert inherited.life == number
            assert shown(inherited.recovered.records) == [
                (id_, MESSAGE, data, updates) for id_, (data, updates) in sorted(model.items())
            ]
            node_ids.add(inherited.node_id)
            journal = inherited.journal
            for step in range(9):
                id_ = journal.next_id()
                assert id_ > max(model, default=0)
                journal.append([Operation(ADD, MESSAGE, id_, b"%d" % step)])
                model[id_] = (b"%d" % step, [])
                other = chance.choice(sorted(model))
                if chance.random() < 0.5:
                    journal.append([Operation(UPDATE, 5, other, b"u%d" % step)])
                    model[other] = (model[other][0], [(5, b"u%d" % step)])
                elif chance.random() < 0.5:
                    journal.append([Operation(DELETE, MESSAGE, other)])
                    del model[other]
                if chance.random() < 0.3:
                    await journal.flush()
            await journal.flush()
            await journal.close()
            await store.leave(live, "L")
            await live.release()
            await store.close()
        assert len(node_ids) == 1
        assert len(model) > 9

    place.run(main)


def test_a_takeover_that_is_not_certain_of_its_lock_any_more_reads_no_further():
    place = SimulatedPlace(3)

    async def main():
        store = store_of(place, "a1")
        asked = []

        def require():
            asked.append(None)
            if len(asked) == 2:
                raise LeaseLostError("in doubt")

        with pytest.raises(LeaseLostError):
            await reign(store, require)
        await store.close()

    place.run(main)


def test_a_takeover_goes_on_when_the_database_was_away_for_a_moment():
    place = SimulatedPlace(3)

    async def main():
        store = store_of(place, "a1")
        _, first = await reign(store)
        first.journal.append([Operation(ADD, MESSAGE, first.journal.next_id(), b"x")])
        await first.journal.flush()
        await first.journal.close()
        await store.close()
        again = store_of(place, "a2")
        assert await again.places.take("live") is None  # it is kept for whoever was killed
        place.server.stop()
        reading = asyncio.ensure_future(again._load(certain))
        await asyncio.sleep(1.0)
        assert not reading.done()
        place.server.start()
        assert shown(await reading) == [(first.journal.next_id() - 1, MESSAGE, b"x", [])]
        await again.close()

    place.run(main)


OTHERS = {
    "network-timeout": 9_000,
    "lock-renew-period": 1_500,
    "lock-expiration": 90_000,
    "journal-sync-period": 7,
}


def test_each_setting_that_must_be_alike_is_tried():
    assert [name.replace("-", "_") for name in OTHERS] == [*store_database.ALIKE]


@pytest.mark.parametrize(("name", "value"), OTHERS.items(), ids=OTHERS)
def test_who_has_other_settings_than_the_live_is_refused_by_the_name_of_the_setting(place, name, value):
    async def main():
        live_store, other, alike = (
            store_of(place, broker, **more)
            for broker, more in (("a1", {}), ("a2", {name: value}), ("a3", {}))
        )
        await other.places.prepare()  # a new store has no live to differ from
        live, inherited = await reign(live_store)
        with pytest.raises(
            StartError, match=rf"database-store\.{name} is {value} here and \d+ at a1, the live of this store"
        ):
            await other.places.prepare()
        await alike.places.prepare()
        await inherited.journal.close()
        await live.release()
        await other.places.prepare()  # the next live may have others
        live, inherited = await reign(other)
        with pytest.raises(StartError, match=rf"{name} is \d+ here and {value} at a2"):
            await alike.places.prepare()
        await inherited.journal.close()
        await live.release()
        for store in (live_store, other, alike):
            await store.close()

    place.run(main)


def test_what_an_earlier_live_had_is_not_compared_while_the_present_one_has_not_begun(place):
    async def main():
        changed = {"lock-expiration": 90_000}
        first, second, third = (
            store_of(place, broker, **more) for broker, more in (("a1", {}), ("a2", changed), ("a3", changed))
        )
        live, inherited = await reign(first)
        await inherited.journal.close()
        await live.release()
        assert await second.places.take("live")
        await third.places.prepare()
        for store in (first, second, third):
            await store.close()

    place.run(main)


def test_a_broker_that_waits_is_refused_once_the_live_has_begun_with_other_settings(place):
    async def main():
        early, alike, live_store = (
            store_of(place, broker, **more)
            for broker, more in (("a2", {"lock-expiration": 90_000}), ("a3", {}), ("a1", {}))
        )
        for store in (early, alike):
            await store.places.prepare()
            assert (await store.places.read()).name == ""  # no live yet, and nothing to compare
        live, inherited = await reign(live_store)
        with pytest.raises(StartError, match="lock-expiration is 90000 here and 60000 at a1"):
            await early.places.read()
        assert (await alike.places.read()).name == "a1"
        await inherited.journal.close()
        await live.release()
        assert (await early.places.read()).name == "a1"
        for store in (early, alike, live_store):
            await store.close()

    place.run(main)


def test_a_live_that_was_killed_may_return_with_other_settings_before_its_lock_expires(place):
    async def main():
        killed, again, other = (
            store_of(place, broker, **more)
            for broker, more in (("a1", {}), ("a1", {"process": 2, "lock-expiration": 90_000}), ("a2", {}))
        )
        live, inherited = await reign(killed)
        await again.places.prepare()
        assert (await again.places.read()).name == "a1"
        assert await again.places.take("live") is None
        await inherited.journal.close()
        await live.release()  # stands for the end of its time
        live, inherited = await reign(again)
        with pytest.raises(StartError, match="lock-expiration is 60000 here and 90000 at a1"):
            await other.places.prepare()
        await inherited.journal.close()
        await live.release()
        for store in (killed, again, other):
            await store.close()

    place.run(main)


def test_a_store_of_a_version_that_kept_no_settings_is_used_as_it_is(place):
    async def main():
        old, backup, successor = (
            store_of(place, broker, **more)
            for broker, more in (("a1", {}), ("a2", {"lock-expiration": 90_000}), ("a3", {}))
        )
        live, inherited = await reign(old)
        id_ = inherited.journal.next_id()
        inherited.journal.append([Operation(ADD, MESSAGE, id_, b"kept")])
        await inherited.journal.flush()
        await inherited.journal.close()
        database = place.open("a4")
        await database.transact([Statement("DROP TABLE store_settings")], 10)
        await backup.places.prepare()
        assert (await backup.places.read()).name == "a1"
        await live.release()
        live, inherited = await reign(backup)
        assert shown(inherited.recovered.records) == [(id_, MESSAGE, b"kept", [])]
        with pytest.raises(StartError, match="lock-expiration is 60000 here and 90000 at a2"):
            await successor.places.prepare()
        await inherited.journal.close()
        await live.release()
        await database.close()
        for store in (old, backup, successor):
            await store.close()

    place.run(main)
