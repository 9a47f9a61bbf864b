"""Ids of records: no two lives of one store give out the same."""

import asyncio
import random
import shutil

import pytest
from journals import add

from broker import config
from broker.core.message import block
from broker.policies.journal import open_journal
from broker.policies.shared_store.directory import begin_life
from broker.seams import Seams
from broker.storage.directory import DirectoryVolume
from broker.storage.shared_directory import SharedDirectoryVolume


async def of_a_broker(path, parsed, seams):
    volume = DirectoryVolume(path)
    journal, _ = await open_journal(volume, parsed, seams)
    return volume, journal


async def of_a_shared_store(path, parsed, seams):
    volume = SharedDirectoryVolume(path)
    inherited = await begin_life(parsed, seams, volume, "n1", lambda: None)
    return volume, inherited.journal


async def life(opened, path, name, now, count):
    """Open the store as a broker of that name, at that time: the ids that it gave out."""
    parsed = config.validate({"broker": {"name": name}})
    volume, journal = await opened(path, parsed, Seams(random.Random(1), lambda: now))
    ids = [journal.next_id() for _ in range(count)]
    journal.append([add(ids[-1])])
    await journal.flush()
    await journal.close()
    await volume.close()
    return ids


@pytest.mark.parametrize("opened", [of_a_broker, of_a_shared_store])
@pytest.mark.parametrize(("name", "now"), [("b1", 5.0), ("a1", 5.000001)])
def test_lives_that_begin_with_copies_of_one_store_give_out_other_ids(tmp_path, name, now, opened):
    async def main():
        here, there = tmp_path / "here", tmp_path / "there"
        here.mkdir()
        former = await life(opened, here, "a1", 1.0, 10)
        shutil.copytree(here, there)
        ours = await life(opened, here, "a1", 5.0, 100_000)
        theirs = await life(opened, there, name, now, 100_000)
        assert not set(ours) & set(theirs)
        assert {block(id_) for id_ in (*ours, *theirs)} == {block(former[-1]) + 1}
        assert min(await life(opened, here, "a1", 9.0, 10)) > ours[-1]

    asyncio.run(main())
