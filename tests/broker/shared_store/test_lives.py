"""What an old life does after it was replaced never reaches the data of a new one, whether or
not the store stops it.
"""

import errno
import random

import pytest
from shared import in_world

from broker.policies.shared_store import lives, lockfile
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.journal import Journal
from broker.storage.options import JournalOptions

NODE_ID = "41c7157e-8ae5-5545-b0b5-dbe72403a0dc"
SMALL = JournalOptions(segment_size=1024, compact_min_files=2, compact_percentage=60)


class LostError(Exception):
    pass


def certain():
    pass


async def reign(store, check=certain):
    """A new life, recovered and complete."""
    life = await lives.begin(store, check)
    journal, recovered = await Journal.open(store, lives.directory(life), SMALL)
    await lives.complete(store, life, NODE_ID)
    return life, journal, {record.data for record in recovered.records}


async def add(journal, *data):
    for each in data:
        journal.append([Operation(ADD, 1, journal.next_id(), each)])
    await journal.flush()


async def prepared(store):
    await lockfile.LockFile(store).prepare()


def test_a_store_has_the_documented_layout():
    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        assert await mounts["a2"].list("") == ["bindings", "journal", "large-messages", "paging"]

    in_world(main)


def test_each_life_has_what_the_last_one_had():
    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        wanted = set()
        for number in range(1, 6):
            store = mounts["a1" if number % 2 else "a2"]
            life, journal, found = await reign(store)
            assert (life, found) == (number, wanted)
            new = {b"%d-%d" % (number, place) + bytes(100) for place in range(20)}
            await add(journal, *sorted(new))
            wanted |= new
            await journal.close()
            await lives.remove_older(store, life)
            assert [name for name in await store.list("journal") if name.startswith("life")] == [
                f"life-{number:010d}",
                f"life-{number:010d}.lock",
            ]

    in_world(main)


@pytest.mark.parametrize("seed", range(6))
def test_an_old_life_that_nobody_stops_changes_nothing_of_a_new_one(seed):
    """Without any fence of the store.

    The old life appends, begins segments and compacts beside two later ones.
    """

    async def main(world, server, mounts):
        chance = random.Random(seed)
        store = mounts["a1"]
        await prepared(store)
        _, old, _ = await reign(store)
        ids = {}

        def append(journal, data):
            record = journal.next_id()
            journal.append([Operation(ADD, 1, record, data)])
            ids.setdefault(id(journal), []).append(record)

        def forget(journal):
            mine = ids.get(id(journal))
            if mine:
                journal.append([Operation(DELETE, 1, mine.pop(chance.randrange(len(mine))))])

        for number in range(30):
            append(old, b"before %d" % number + bytes(60))
        for _ in range(12):
            forget(old)
        await old.flush()
        kept = old.live
        _, new, found = await reign(mounts["a2"])
        assert len(found) == kept
        ours = set()
        for number in range(60):
            append(old, b"zombie %d" % number + bytes(60))
            if chance.random() < 0.6:
                forget(old)
            if number % 7 == chance.randrange(7):
                await old.flush()
            data = b"ours %d" % number + bytes(60)
            await add(new, data)
            ours.add(data)
            if chance.random() < 0.1:
                await old.compact()
                await new.compact()
        await old.flush()
        _, last, after = await reign(mounts["a2"])
        assert after == found | ours
        for journal in (old, new, last):
            await journal.close()

    in_world(main, seed)


def test_a_compaction_that_ends_between_two_files_of_a_takeover_costs_nothing(monkeypatch):
    """Bug 48 of docs/bugs: a takeover lost the records that had just been compacted."""
    copy = lives._copy

    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        _, old, _ = await reign(mounts["a1"])
        wanted = {b"%d" % number + bytes(100) for number in range(30)}
        await add(old, *sorted(wanted))
        compacted = []

        async def copied(store, old_name, new_name, check):
            if not compacted:
                compacted.append(await old.compact())
            await copy(store, old_name, new_name, check)

        monkeypatch.setattr(lives, "_copy", copied)
        _, new, found = await reign(mounts["a2"])
        assert compacted == [True]
        assert found == wanted
        await old.close()
        await new.close()

    in_world(main)


def test_who_was_overtaken_while_it_took_over_means_nothing_however_late_it_ends():
    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        _, journal, _ = await reign(mounts["a1"])
        await add(journal, b"data")
        overtaken = await lives.begin(mounts["a1"], certain)
        life, new, found = await reign(mounts["a2"])
        assert life > overtaken
        await add(new, b"more")
        await lives.complete(mounts["a1"], overtaken, "another")
        assert await lives.latest(mounts["a2"]) == life
        _, _, found = await reign(mounts["a2"])
        assert found == {b"data", b"more"}

    in_world(main)


@pytest.mark.parametrize("steps", range(6))
def test_a_takeover_that_stops_anywhere_leaves_the_data_as_they_were(steps):
    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        _, journal, _ = await reign(mounts["a1"])
        wanted = {b"%d" % number + bytes(200) for number in range(12)}
        await add(journal, *sorted(wanted))
        left = steps

        def check():
            nonlocal left
            if not left:
                raise LostError
            left -= 1

        with pytest.raises(LostError):
            await lives.begin(mounts["a1"], check)
        _, _, found = await reign(mounts["a2"])
        assert found == wanted

    in_world(main)


@pytest.mark.parametrize("problem", [errno.EPERM, errno.EMLINK, errno.ENOSYS])
def test_a_file_system_without_links_is_copied(problem):
    async def main(world, server, mounts):
        store = mounts["a1"]
        await prepared(store)
        _, journal, _ = await reign(store)
        wanted = {b"%d" % number + bytes(200) for number in range(12)}
        await add(journal, *sorted(wanted))
        assert len(journal.files) > 2

        async def link(old, new):
            raise OSError(problem, "no links here", new)

        store.link = link
        life, _, found = await reign(store)
        assert found == wanted
        await lives.remove_older(store, life)
        _, _, found = await reign(store)
        assert found == wanted

    in_world(main)


def test_a_segment_that_goes_away_while_it_is_inherited_is_looked_for_again():
    """The end of a compaction that the old life had sent.

    Its input disappears under the hands of the new one.
    """

    async def main(world, server, mounts):
        store = mounts["a1"]
        await prepared(store)
        _, journal, _ = await reign(mounts["a2"])
        for number in range(12):
            record = journal.next_id()
            journal.append([Operation(ADD, 1, record, b"%d" % number + bytes(200))])
            if number < 9:
                journal.append([Operation(DELETE, 1, record)])
        await journal.flush()
        link, late = store.link, [True]

        async def compacts_meanwhile(old, new):
            if late.pop() if late else False:
                assert await journal.compact()
            await link(old, new)

        store.link = compacts_meanwhile
        life, _, found = await reign(store)
        assert found == {b"%d" % number + bytes(200) for number in (9, 10, 11)}
        assert life == 3  # the directory of the first attempt is left behind, incomplete

    in_world(main)


def test_an_incomplete_life_is_nobodys_data():
    async def main(world, server, mounts):
        await prepared(mounts["a1"])
        assert await lives.latest(mounts["a1"]) == 0
        first = await lives.begin(mounts["a1"], certain)
        assert await lives.latest(mounts["a1"]) == 0
        await lives.complete(mounts["a1"], first, NODE_ID)
        assert await lives.latest(mounts["a2"]) == first == 1
        assert await lives.node_id_of(mounts["a2"], first) == NODE_ID
        assert await lives.node_id_of(mounts["a2"], 0) is None

    in_world(main)
