"""The disk that breaks: what a program sees that uses it, on a real mount."""

import asyncio
import errno
import os
import signal
import subprocess

import pytest

from filesystems.disk.conversation import DiskFailedError
from filesystems.disk.faulty_disk import FaultyDisk
from filesystems.fuse import device as fuse_device

pytestmark = pytest.mark.fuse


def append(path, data, *, sync):
    """What a journal does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def test_it_is_a_file_system_like_any_other(disk, root, run, tmp_path):
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
    assert run(disk.ask("probe")) == "sound"
    run(disk.close())
    assert list(root.iterdir()) == []
    assert [path.name for path in (tmp_path / "behind").iterdir()] == ["two"]


def test_power_loss_takes_what_was_not_synced_and_nothing_else(disk, root, run):
    append(root / "journal", b"s" * 5000, sync=True)
    append(root / "journal", b"u" * 100_000, sync=False)
    append(root / "other", b"o" * 700, sync=True)
    assert run(disk.ask("power-loss")) > 0
    journal = (root / "journal").read_bytes()
    assert journal[:5000] == b"s" * 5000
    assert journal[5000:] != b"u" * 100_000
    assert set(journal[5000:]) <= {0, ord("u")}
    assert (root / "other").read_bytes() == b"o" * 700
    # What is there now is on the disk: a second loss of power takes nothing.
    assert run(disk.ask("power-loss")) == 0


def test_power_loss_tears_no_sector(disk, root, run):
    names = [root / str(number) for number in range(40)]
    for name in names:
        append(name, b"s" * 100, sync=True)
        for size in (1, 1, 1, 1, 96, 1600):
            append(name, b"u" * size, sync=False)
    assert run(disk.ask("power-loss")) > 0
    left = [name.read_bytes() for name in names]
    assert {len(data) for data in left} <= {100, 512, 1024, 1536, 1800}
    assert {data[:100] for data in left} == {b"s" * 100}
    sectors = {data[max(100, start) : start + 512] for data in left for start in range(0, len(data), 512)}
    assert {len({*sector}) for sector in sectors if sector} == {1}
    assert len({len(data) for data in left}) > 2


def test_power_loss_keeps_a_sector_as_it_was_at_some_time(disk, root, run):
    names = [root / str(number) for number in range(60)]
    for name in names:
        append(name, b"0" * 1024, sync=True)
        descriptor = os.open(name, os.O_WRONLY)
        for place, data in ((10, b"1"), (20, b"2"), (500, b"3" * 100), (30, b"4")):
            os.pwrite(descriptor, data, place)
        os.close(descriptor)
    assert run(disk.ask("power-loss")) > 0
    left = [name.read_bytes() for name in names]
    assert {bytes((data[10], data[20], data[500], data[30])) for data in left} == {
        b"0000",
        b"1000",
        b"1200",
        b"1230",
        b"1234",
    }
    assert {data[512:600] for data in left} == {b"0" * 88, b"3" * 88}
    assert {data[500:512] == b"3" * 12 and data[512:600] == b"0" * 88 for data in left} == {False, True}


@pytest.mark.parametrize("flag", [os.O_DSYNC, os.O_SYNC])
def test_what_is_written_to_be_synced_at_once_is_synced(disk, root, run, flag):
    file = os.open(root / "x", os.O_WRONLY | os.O_CREAT | flag, 0o600)
    os.write(file, b"s" * 5000)
    assert run(disk.ask("power-loss")) == 0
    assert (root / "x").read_bytes() == b"s" * 5000
    run(disk.ask("condition", {"failing": ["sync"]}))
    with pytest.raises(OSError, match="Input/output error"):
        os.write(file, b"f" * 5000)
    os.close(file)


@pytest.mark.parametrize("size", [600, 2000])
def test_a_file_that_is_cut_is_not_synced_by_it(disk, root, run, size):
    names = [root / str(number) for number in range(20)]
    for name in names:
        append(name, b"u" * 1000, sync=False)
        os.truncate(name, size)
    assert run(disk.ask("power-loss")) > 0
    assert {name.stat().st_size for name in names} == {size}
    assert len({name.read_bytes()[:600] for name in names}) > 1


def test_what_is_done_to_an_open_file_that_lost_its_name_is_done_to_no_other(disk, root, run):
    append(root / "x", b"old", sync=False)
    with (root / "x").open("r+b", buffering=0) as old:
        append(root / "new", b"n" * 1000, sync=True)
        (root / "new").rename(root / "x")
        old.write(b"more")
        old.truncate(2)
        assert os.pread(old.fileno(), 9, 0) == b"mo"
        assert run(disk.ask("power-loss")) == 0
    assert (root / "x").read_bytes() == b"n" * 1000


def test_a_killed_program_loses_nothing_that_the_system_had_taken(root):
    program = (
        f"import os; f = os.open({str(root / 'x')!r}, os.O_WRONLY | os.O_CREAT); os.write(f, "
        "b'taken'); os.kill(0, 9)"
    )
    ended = subprocess.run(["python3", "-c", program], start_new_session=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (root / "x").read_bytes() == b"taken"


def test_a_sync_that_failed_has_lost_its_bytes_even_if_the_next_one_succeeds(disk, root, run):
    append(root / "x", b"1" * 600, sync=True)
    run(disk.ask("condition", {"failing": ["sync"]}))
    assert run(disk.ask("probe")) == "failing sync"
    with pytest.raises(OSError, match="Input/output error") as caught:
        append(root / "x", b"2" * 600, sync=True)
    assert caught.value.errno == errno.EIO
    run(disk.ask("condition"))
    append(root / "x", b"3" * 600, sync=True)
    assert (root / "x").read_bytes() == b"1" * 600 + b"2" * 600 + b"3" * 600
    assert run(disk.ask("power-loss")) == 600
    assert (root / "x").read_bytes() == b"1" * 600 + bytes(600) + b"3" * 600


def test_a_sync_that_failed_has_lost_what_was_overwritten_too_until_it_is_written_again(disk, root, run):
    append(root / "x", b"1" * 900, sync=True)
    with (root / "x").open("r+b", buffering=0) as file:
        run(disk.ask("condition", {"failing": ["sync"]}))
        for _ in range(2):
            os.pwrite(file.fileno(), b"2" * 900, 0)
            with pytest.raises(OSError, match="Input/output error"):
                os.fsync(file.fileno())
        run(disk.ask("condition"))
        os.pwrite(file.fileno(), b"3" * 300, 300)
        os.fsync(file.fileno())
    assert run(disk.ask("power-loss")) > 0
    assert (root / "x").read_bytes() == b"1" * 300 + b"3" * 300 + b"1" * 300


@pytest.mark.parametrize(
    ("condition", "number", "seen"),
    [({"full": True}, errno.ENOSPC, "full"), ({"failing": ["write"]}, errno.EIO, "failing write")],
)
def test_a_disk_that_takes_nothing_still_gives(disk, root, run, condition, number, seen):
    (root / "x").write_bytes(b"before")
    run(disk.ask("condition", condition))
    assert run(disk.ask("probe")) == seen
    with pytest.raises(OSError) as caught:
        (root / "y").write_bytes(b"1")
    assert caught.value.errno == number
    assert (root / "x").read_bytes() == b"before"
    run(disk.ask("condition"))
    (root / "y").write_bytes(b"1")


def test_a_stalled_disk_lets_go_when_it_is_healed(disk, root, run):
    async def scenario():
        await disk.ask("condition", {"stalled": True})
        waiting = asyncio.create_task(asyncio.to_thread(append, root / "x", b"late", sync=True))
        assert await disk.ask("probe") == "stalled"
        assert not waiting.done()
        await disk.ask("condition")
        await waiting

    run(scenario())
    assert (root / "x").read_bytes() == b"late"


def test_a_slow_disk_is_seen_to_be_slow(disk, run):
    run(disk.ask("condition", {"delay_ms": 40.0}))
    assert run(disk.ask("probe")).startswith("slow ")


def test_a_flipped_bit_is_found_until_it_is_overwritten(disk, root, run):
    assert run(disk.ask("corrupt")) is None
    (root / "x").write_bytes(b"\0" * 64)
    where = run(disk.ask("corrupt"))
    assert where.startswith("x byte ")
    assert run(disk.ask("probe")) == f"damaged {where}"
    assert (root / "x").read_bytes() != b"\0" * 64
    (root / "x").write_bytes(b"\0" * 64)
    assert run(disk.ask("probe")) == "sound"


def test_damage_may_be_a_cut_and_may_be_kept_to_some_files(disk, root, run):
    (root / "journal").mkdir()
    (root / "journal" / "1").write_bytes(bytes(500))
    (root / "server.lock").write_bytes(bytes(20))
    where = run(disk.ask("corrupt", {"files": "*.lock", "cut": True}))
    left = (root / "server.lock").read_bytes()
    assert len(left) < 20
    assert where == f"server.lock cut to {len(left)} bytes"
    assert run(disk.ask("probe")) == f"damaged {where}"
    where = run(disk.ask("corrupt", {"files": "journal/*"}))
    assert where.startswith("journal/1 byte ")
    assert run(disk.ask("corrupt", {"files": "*.none"})) is None


def test_the_disk_ends_with_whoever_ran_it_even_while_it_is_stalled(disk, root, run):
    """The standard input of its process is the leash.

    Nothing stays mounted behind a killed agent.
    """

    async def scenario():
        await disk.ask("condition", {"stalled": True})
        stuck = await asyncio.create_subprocess_exec("mkdir", str(root / "late"))
        disk._process.stdin.close()
        assert await disk._process.wait() == 0
        await stuck.wait()
        with pytest.raises(DiskFailedError):
            await disk.ask("probe")

    run(scenario())
    assert fuse_device.connection(root) is None


def test_a_disk_is_found_by_any_name_of_its_directory(tmp_path, run):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    disk = run(
        FaultyDisk.mount(tmp_path / "behind", tmp_path / "link" / "j\u00fcrgen's \\disk", tmp_path / "log")
    )
    try:
        assert fuse_device.connection(disk.directory) is not None
    finally:
        run(disk.close())


def test_who_did_not_wait_for_an_answer_leaves_it_to_nobody_else(disk, run):
    async def scenario():
        await disk.ask("condition", {"stalled": True})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):  # a probe of a stalled disk takes longer
                await disk.ask("probe")
        assert await disk.ask("power-loss") == 0

    run(scenario())


def test_what_it_does_not_know_is_refused(disk, run):
    with pytest.raises(DiskFailedError, match="no operation"):
        run(disk.ask("melt"))
    with pytest.raises(DiskFailedError, match="unexpected keyword"):
        run(disk.ask("condition", {"soggy": True}))
    assert run(disk.ask("probe")) == "sound"
