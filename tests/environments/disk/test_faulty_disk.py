"""The disk that breaks: what a program sees that uses it, on a real mount."""

import asyncio
import contextlib
import errno
import os
import signal

import pytest

from environments.disk.conversation import DiskFailedError
from environments.disk.faulty_disk import FaultyDisk
from environments.fuse import device as fuse_device

pytestmark = pytest.mark.fuse


@contextlib.asynccontextmanager
async def mounted(directory):
    disk = await FaultyDisk.mount(directory / "behind", directory / "disk", directory / "log")
    try:
        yield disk
    finally:
        await disk.close()


def with_disk(tmp_path, use):
    async def main():
        async with mounted(tmp_path) as disk:
            return await use(disk, tmp_path / "disk")

    return asyncio.run(main())


def append(path, data, *, sync):
    """What a journal does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def test_it_is_a_file_system_like_any_other(tmp_path):
    async def use(disk, root):
        def work():
            (root / "journal").mkdir()
            append(root / "journal" / "one", b"abc", sync=True)
            append(root / "journal" / "one", b"def", sync=False)
            (root / "journal" / "one").rename(root / "two")
            os.link(root / "two", root / "three")
            with (root / "two").open("r+b") as file:
                file.truncate(4)
                file.seek(0)
                file.write(b"A")
            (root / "journal").rmdir()
            (root / "new").write_bytes(b"x" * 300_000)
            (root / "new").replace(root / "two")
            assert sorted(path.name for path in root.iterdir()) == ["three", "two"]
            assert (root / "three").read_bytes() == b"Abcd"
            assert (root / "two").stat().st_size == 300_000
            with pytest.raises(FileExistsError):
                os.open(root / "two", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            gone = os.open(root / "three", os.O_RDWR)
            (root / "three").unlink()
            assert os.pread(gone, 10, 0) == b"Abcd"
            assert os.fstat(gone).st_size == 4
            os.close(gone)

        await asyncio.to_thread(work)
        assert await disk.ask("probe") == "sound"

    with_disk(tmp_path, use)
    assert list((tmp_path / "disk").iterdir()) == []
    assert [path.name for path in (tmp_path / "behind").iterdir()] == ["two"]


def test_power_loss_takes_what_was_not_synced_and_nothing_else(tmp_path):
    async def use(disk, root):
        def work():
            append(root / "journal", b"s" * 5000, sync=True)
            append(root / "journal", b"u" * 100_000, sync=False)
            append(root / "other", b"o" * 700, sync=True)

        await asyncio.to_thread(work)
        lost = await disk.ask("power-loss")

        def look():
            return (root / "journal").read_bytes(), (root / "other").read_bytes()

        journal, other = await asyncio.to_thread(look)
        assert lost > 0
        assert journal[:5000] == b"s" * 5000
        assert journal[5000:] != b"u" * 100_000
        assert set(journal[5000:]) <= {0, ord("u")}
        assert other == b"o" * 700
        # What is there now is on the disk: a second loss of power takes nothing.
        assert await disk.ask("power-loss") == 0

    with_disk(tmp_path, use)


def test_a_killed_program_loses_nothing_that_the_system_had_taken(tmp_path):
    async def use(disk, root):
        program = f"import os; f = os.open({str(root / 'x')!r}, os.O_WRONLY | os.O_CREAT); os.write(f, b'taken'); os.kill(0, 9)"
        process = await asyncio.create_subprocess_exec("python3", "-c", program, start_new_session=True)
        assert await process.wait() == -signal.SIGKILL
        assert await asyncio.to_thread((root / "x").read_bytes) == b"taken"

    with_disk(tmp_path, use)


def test_a_sync_that_failed_has_lost_its_bytes_even_if_the_next_one_succeeds(tmp_path):
    async def use(disk, root):
        def fill(data):
            append(root / "x", data, sync=True)

        await asyncio.to_thread(fill, b"1" * 600)
        await disk.ask("condition", {"failing": ["sync"]})
        assert await disk.ask("probe") == "failing sync"
        with pytest.raises(OSError, match="Input/output error") as caught:
            await asyncio.to_thread(fill, b"2" * 600)
        assert caught.value.errno == errno.EIO
        await disk.ask("condition")
        await asyncio.to_thread(fill, b"3" * 600)
        assert await asyncio.to_thread((root / "x").read_bytes) == b"1" * 600 + b"2" * 600 + b"3" * 600
        assert await disk.ask("power-loss") == 600
        assert await asyncio.to_thread((root / "x").read_bytes) == b"1" * 600 + bytes(600) + b"3" * 600

    with_disk(tmp_path, use)


@pytest.mark.parametrize(
    ("condition", "number", "seen"),
    [({"full": True}, errno.ENOSPC, "full"), ({"failing": ["write"]}, errno.EIO, "failing write")],
)
def test_a_disk_that_takes_nothing_still_gives(tmp_path, condition, number, seen):
    async def use(disk, root):
        await asyncio.to_thread((root / "x").write_bytes, b"before")
        await disk.ask("condition", condition)
        assert await disk.ask("probe") == seen
        with pytest.raises(OSError) as caught:
            await asyncio.to_thread((root / "y").write_bytes, b"1")
        assert caught.value.errno == number
        assert await asyncio.to_thread((root / "x").read_bytes) == b"before"
        await disk.ask("condition")
        await asyncio.to_thread((root / "y").write_bytes, b"1")

    with_disk(tmp_path, use)


def test_a_stalled_disk_lets_go_when_it_is_healed(tmp_path):
    async def use(disk, root):
        await disk.ask("condition", {"stalled": True})
        waiting = asyncio.create_task(asyncio.to_thread(append, root / "x", b"late", sync=True))
        assert await disk.ask("probe") == "stalled"
        assert not waiting.done()
        await disk.ask("condition")
        await waiting
        assert await asyncio.to_thread((root / "x").read_bytes) == b"late"

    with_disk(tmp_path, use)


def test_a_slow_disk_is_seen_to_be_slow(tmp_path):
    async def use(disk, root):
        del root
        await disk.ask("condition", {"delay_ms": 40.0})
        assert (await disk.ask("probe")).startswith("slow ")

    with_disk(tmp_path, use)


def test_a_flipped_bit_is_found_until_it_is_overwritten(tmp_path):
    async def use(disk, root):
        assert await disk.ask("corrupt") is None
        await asyncio.to_thread((root / "x").write_bytes, b"\0" * 64)
        where = await disk.ask("corrupt")
        assert where.startswith("x byte ")
        assert await disk.ask("probe") == f"damaged {where}"
        assert (await asyncio.to_thread((root / "x").read_bytes)) != b"\0" * 64
        await asyncio.to_thread((root / "x").write_bytes, b"\0" * 64)
        assert await disk.ask("probe") == "sound"

    with_disk(tmp_path, use)


def test_damage_may_be_a_cut_and_may_be_kept_to_some_files(tmp_path):
    async def use(disk, root):
        def fill():
            (root / "journal").mkdir()
            (root / "journal" / "1").write_bytes(bytes(500))
            (root / "server.lock").write_bytes(bytes(20))

        await asyncio.to_thread(fill)
        where = await disk.ask("corrupt", {"files": "*.lock", "cut": True})
        left = await asyncio.to_thread((root / "server.lock").read_bytes)
        assert len(left) < 20
        assert where == f"server.lock cut to {len(left)} bytes"
        assert await disk.ask("probe") == f"damaged {where}"
        where = await disk.ask("corrupt", {"files": "journal/*"})
        assert where.startswith("journal/1 byte ")
        assert await disk.ask("corrupt", {"files": "*.none"}) is None

    with_disk(tmp_path, use)


def test_the_disk_ends_with_whoever_ran_it_even_while_it_is_stalled(tmp_path):
    """The standard input of its process is the leash: nothing stays mounted behind a killed agent."""

    async def main():
        disk = await FaultyDisk.mount(tmp_path / "behind", tmp_path / "disk", tmp_path / "log")
        await disk.ask("condition", {"stalled": True})
        stuck = await asyncio.create_subprocess_exec("mkdir", str(tmp_path / "disk" / "late"))
        disk._process.stdin.close()
        assert await disk._process.wait() == 0
        await stuck.wait()
        with pytest.raises(DiskFailedError):
            await disk.ask("probe")

    asyncio.run(main())
    assert fuse_device.connection(tmp_path / "disk") is None


def test_what_it_does_not_know_is_refused(tmp_path):
    async def use(disk, root):
        del root
        with pytest.raises(DiskFailedError, match="no operation"):
            await disk.ask("melt")
        with pytest.raises(DiskFailedError, match="unexpected keyword"):
            await disk.ask("condition", {"soggy": True})
        assert await disk.ask("probe") == "sound"

    with_disk(tmp_path, use)
