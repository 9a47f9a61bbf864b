"""What a disk in memory does when it is broken on purpose.

What its fault's name says, and nothing else.
"""

import asyncio
import errno
import random

import pytest

from broker.storage.entry import ADD, Operation
from broker.storage.errors import JournalDamagedError, JournalFailedError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.memory_faults import SOUND, DiskFault


def run(coroutine):
    return asyncio.run(coroutine)


async def written(volume, path, synced, unsynced=b""):
    file = await volume.open(path)
    file.write(synced)
    await file.sync()
    file.write(unsynced)
    return file


def test_a_full_disk_refuses_what_needs_space_and_nothing_else():
    async def main():
        volume = MemoryVolume()
        file = await written(volume, "log", b"old", b"new")
        volume.fault = DiskFault(full=True)
        for attempt in (volume.open("other"), volume.write_atomic("state", b"x"), volume.mkdir("d")):
            with pytest.raises(OSError) as raised:
                await attempt
            assert raised.value.errno == errno.ENOSPC
        with pytest.raises(OSError) as raised:
            file.write(b"more")
        assert raised.value.errno == errno.ENOSPC
        await file.sync()
        await volume.truncate("log", 2)
        await volume.remove("log")
        volume.fault = SOUND
        await written(volume, "log", b"again")
        assert volume.image() == {"log": b"again"}

    run(main())


def test_what_a_failed_sync_held_is_not_on_the_disk_whatever_a_later_sync_says():
    async def main():
        volume = MemoryVolume()
        file = await written(volume, "log", b"safe", b"dropped")
        volume.fault = DiskFault(failing=frozenset({"sync"}))
        with pytest.raises(OSError) as raised:
            await file.sync()
        assert raised.value.errno == errno.EIO
        volume.fault = SOUND
        file.write(b"later")
        await file.sync()
        assert volume.image()["log"] == b"safedroppedlater", "a reader still sees the page cache"
        volume.crash(random.Random(1))
        assert volume.image()["log"] == b"safe" + bytes(7) + b"later"

    run(main())


def test_failing_writes_fail_and_reading_goes_on():
    async def main():
        volume = MemoryVolume()
        file = await written(volume, "log", b"safe")
        volume.fault = DiskFault(failing=frozenset({"write"}))
        with pytest.raises(OSError):
            file.write(b"x")
        for attempt in (volume.rename("log", "b"), volume.remove("log"), volume.write_atomic("a", b"")):
            with pytest.raises(OSError) as raised:
                await attempt
            assert raised.value.errno == errno.EIO
        assert await volume.read("log") == b"safe"
        assert await volume.list("") == ["log"]

    run(main())


def test_a_slow_disk_takes_its_time_and_a_stalled_one_waits_for_the_end_of_the_stall():
    async def main():
        volume = MemoryVolume()
        loop = asyncio.get_running_loop()
        file = await written(volume, "log", b"", b"x")
        volume.fault = DiskFault(delay_s=0.05)
        began = loop.time()
        await file.sync()
        assert loop.time() - began >= 0.049
        volume.fault = DiskFault(stalled=True)
        file.write(b"y")
        syncing = asyncio.ensure_future(file.sync())
        renaming = asyncio.ensure_future(volume.rename("log", "other"))
        done, _ = await asyncio.wait([syncing, renaming], timeout=0.1)
        assert not done
        volume.fault = SOUND
        await asyncio.gather(syncing, renaming)
        volume.crash()
        assert volume.image() == {"other": b"xy"}

    run(main())


def test_a_killed_process_leaves_a_prefix_which_is_as_unsynced_as_it_was():
    async def main(seed):
        volume = MemoryVolume()
        await written(volume, "log", b"safe", bytes(range(1, 200)))
        volume.process_ended(random.Random(seed))
        left = volume.image()["log"]
        assert left == (b"safe" + bytes(range(1, 200)))[: len(left)]
        assert len(left) >= 4
        volume.crash()
        assert volume.image()["log"] == b"safe", "what a kill left in the page cache goes with the power"
        return len(left)

    assert len({run(main(seed)) for seed in range(20)}) > 5


def test_a_killed_process_releases_its_locks_and_its_handles_write_no_more():
    async def main():
        volume = MemoryVolume()
        await volume.lock("lock")
        file = await written(volume, "log", b"x")
        volume.process_ended(random.Random(1))
        with pytest.raises(OSError):
            file.write(b"from the grave")
        await volume.lock("lock")

    run(main())


def test_the_image_of_another_disk_replaces_everything():
    source, target = MemoryVolume({"data/journal": b"of a1"}), MemoryVolume({"data/own": b"of b1"})
    target.restore(source.image())
    assert target.image() == source.image() == {"data/journal": b"of a1"}


def test_one_bit_is_flipped_only_of_what_was_synced_and_it_can_be_told_which():
    async def main(seed):
        volume = MemoryVolume()
        await written(volume, "a", b"\0" * 50, b"\0" * 1000)
        await written(volume, "b", b"\0" * 50)
        before = volume.image()
        flip = volume.corrupt(random.Random(seed))
        after = volume.image()
        changed = [
            (path, place)
            for path in before
            for place, (old, new) in enumerate(zip(before[path], after[path], strict=True))
            if old != new
        ]
        assert changed == [(flip.path, flip.offset)]
        assert after[flip.path][flip.offset] == 1 << flip.bit
        assert flip.offset < 50
        assert volume.damaged() == [flip]
        await volume.remove(flip.path)
        assert volume.damaged() == []
        return flip.path

    assert {run(main(seed)) for seed in range(20)} == {"a", "b"}
    assert MemoryVolume().corrupt(random.Random(1)) is None


def test_damage_may_be_a_cut_and_may_be_kept_to_some_files():
    async def main(seed):
        volume = MemoryVolume()
        await written(volume, "journal", b"\0" * 500)
        await written(volume, "server.lock", b"\0" * 20)
        done = volume.corrupt(random.Random(seed), files="*.lock", cut=True)
        assert done.path == "server.lock"
        assert 0 <= done.size < 20
        assert volume.image() == {"journal": b"\0" * 500, "server.lock": b"\0" * done.size}
        assert volume.damaged() == [done]
        await volume.write_atomic("server.lock", b"\0" * 20)
        assert volume.damaged() == []
        assert volume.corrupt(random.Random(seed), files="*.none") is None

    for seed in range(5):
        run(main(seed))


@pytest.mark.parametrize(
    ("fault", "phrase"),
    [
        (SOUND, "sound"),
        (DiskFault(full=True), "full"),
        (DiskFault(stalled=True), "stalled"),
        (DiskFault(failing=frozenset({"write"})), "failing write"),
        (DiskFault(failing=frozenset({"sync"})), "failing sync"),
    ],
)
def test_a_probe_says_what_is_wrong_and_leaves_nothing_behind(fault, phrase):
    async def main():
        volume = MemoryVolume(latency_s=0.05)
        volume.fault = fault
        said = await volume.probe()
        assert volume.image() == {}
        return said

    assert run(main()) == phrase


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_journal_on_a_failing_disk_takes_nothing_more_and_loses_nothing_it_had_synced(failing):
    async def main():
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, "journal")
        failures = []
        journal.on_failed = failures.append
        kept = journal.next_id()
        sequence = journal.append([Operation(ADD, 1, kept, b"kept")])
        while journal.synced < sequence:
            await asyncio.sleep(0)
        volume.fault = DiskFault(failing=frozenset({failing}))
        journal.append([Operation(ADD, 1, journal.next_id(), b"lost")])
        while not failures:
            await asyncio.sleep(0)
        with pytest.raises(JournalFailedError):
            journal.append([Operation(ADD, 1, journal.next_id(), b"refused")])
        await journal.close()
        volume.crash()
        volume.fault = SOUND
        _, recovered = await Journal.open(volume, "journal")
        assert [record.id for record in recovered.records] == [kept]

    run(main())


def test_every_flipped_bit_of_a_journal_is_refused_or_harmless():
    """Damage is noticed, or it hit what nobody reads.

    Never is a record served that was not written.
    """

    async def main(seed):
        volume = MemoryVolume()
        journal, _ = await Journal.open(volume, "journal")
        data = {journal.next_id(): bytes([n]) * 40 for n in range(20)}
        sequence = 0
        for identifier, body in data.items():
            sequence = journal.append([Operation(ADD, 1, identifier, body)])
        while journal.synced < sequence:
            await asyncio.sleep(0)
        await journal.close()
        volume.crash()
        volume.corrupt(random.Random(seed))
        try:
            _, recovered = await Journal.open(volume, "journal")
        except (JournalDamagedError, OSError):
            return "refused"
        assert {record.id: record.data for record in recovered.records} == data
        return "harmless"

    outcomes = [run(main(seed)) for seed in range(60)]
    assert outcomes.count("refused") > 30


def test_a_disk_that_fills_up_says_so_before_and_ends_the_journal_in_order(caplog):
    async def main():
        volume = MemoryVolume()
        assert await volume.space() is None
        volume.capacity = 10_000
        journal, _ = await Journal.open(volume, "journal")
        failed = []
        journal.on_failed = failed.append
        appended = 0
        while not failed:
            before = (await journal.space()).used_percent
            try:
                journal.append([Operation(ADD, 1, journal.next_id(), b"x" * 500)])
                await journal.flush()
            except JournalFailedError:
                break
            appended += 1
            assert before <= (await journal.space()).used_percent <= 120
        assert "No space left" in str(failed[0]) or "no space left" in str(failed[0])
        assert "make room on the disk and start the broker again" in str(failed[0])
        await journal.close()
        volume.capacity = None
        _, recovered = await Journal.open(volume, "journal")
        assert len(recovered.records) >= appended

    asyncio.run(main())
