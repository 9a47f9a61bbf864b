"""The broker's own volume and journal on real NFS.

One host at a time has the lock, and the next finds all that was synced.
"""

import asyncio

import pytest

from broker.storage.directory import DirectoryVolume
from broker.storage.entry import Operation
from broker.storage.errors import JournalLockedError
from broker.storage.journal import Journal
from broker.storage.options import JournalOptions
from broker.storage.volume import VolumeLockedError

pytestmark = pytest.mark.nfs


async def when_free(take):
    """A lock ends a moment after its file is closed: FUSE does not wait for that."""
    while True:
        try:
            return await take()
        except (VolumeLockedError, JournalLockedError):
            await asyncio.sleep(0.02)


def test_a_journal_synced_on_one_host_is_recovered_on_the_other_when_the_lock_has_passed(hosts, run):
    async def scenario():
        first, second = [DirectoryVolume(directory) for directory in hosts]
        lock = await first.lock("live.lock")
        with pytest.raises(VolumeLockedError):
            await second.lock("live.lock")
        journal, _ = await Journal.open(first, "journal", JournalOptions())
        synced = asyncio.Event()
        last = 50
        journal.on_synced = lambda sequence: synced.set() if sequence >= last else None
        for number in range(last):
            journal.append([Operation(1, 1, journal.next_id(), b"%d" % number * 100)])
        await synced.wait()
        with pytest.raises(JournalLockedError):
            await Journal.open(second, "journal", JournalOptions())
        await journal.close()
        await lock.release()
        passed = await when_free(lambda: second.lock("live.lock"))
        again, recovered = await when_free(lambda: Journal.open(second, "journal", JournalOptions()))
        assert [record.data for record in recovered.records] == [
            b"%d" % number * 100 for number in range(last)
        ]
        await again.close()
        await passed.release()
        for volume in (first, second):
            await volume.close()

    run(scenario())
