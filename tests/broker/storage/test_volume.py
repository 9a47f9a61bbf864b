"""One contract, both volumes: what a test of the journal on memory shows must hold on a disk."""

import asyncio
import contextlib
import random
import subprocess
import sys

import pytest

from broker.storage.directory import DirectoryVolume
from broker.storage.memory import MemoryVolume, VolumeCrashedError
from broker.storage.volume import VolumeLockedError


@pytest.fixture(params=["directory", "memory"])
def volume(request, tmp_path):
    return DirectoryVolume(tmp_path / "disk") if request.param == "directory" else MemoryVolume()


def run(scenario, volume):
    async def main():
        try:
            await scenario(volume)
        finally:
            if isinstance(volume, DirectoryVolume):
                await volume.close()

    asyncio.run(main())


def test_a_file_is_appended_to_and_read_back_in_parts(volume):
    async def scenario(volume):
        await volume.mkdir("a/b")
        file = await volume.open("a/b/f")
        file.write(b"hello ")
        file.write(b"world")
        await file.sync()
        await file.close()
        await file.close()
        again = await volume.open("a/b/f")
        again.write(b"!")
        await again.close()
        assert await volume.read("a/b/f") == b"hello world!"
        assert await volume.read("a/b/f", 6, 5) == b"world"
        assert await volume.read("a/b/f", 6, 100) == b"world!"
        assert await volume.size("a/b/f") == 12
        await volume.truncate("a/b/f", 5)
        assert await volume.read("a/b/f") == b"hello"

    run(scenario, volume)


def test_directories_list_sorted_names_and_missing_ones_are_empty(volume):
    async def scenario(volume):
        await volume.mkdir("d/sub")
        for name in ("b", "a"):
            await volume.write_atomic(f"d/{name}", b"x")
        assert await volume.list("d") == ["a", "b", "sub"]
        assert await volume.list("nowhere") == []
        assert await volume.exists("d")
        assert await volume.exists("d/a")
        assert not await volume.exists("d/c")
        await volume.mkdir("d/sub")
        await volume.remove("d/a")
        await volume.remove("d/a")
        assert await volume.list("d") == ["b", "sub"]
        await volume.remove_tree("d")
        await volume.remove_tree("d")
        assert not await volume.exists("d")

    run(scenario, volume)


def test_a_rename_replaces_a_file_but_never_a_directory(volume):
    async def scenario(volume):
        await volume.mkdir("d")
        await volume.mkdir("e")
        await volume.write_atomic("d/old", b"1")
        await volume.write_atomic("d/new", b"2")
        file = await volume.open("d/old")
        await volume.rename("d/old", "d/new")
        file.write(b"+")
        await file.close()
        assert await volume.read("d/new") == b"1+"
        with pytest.raises(FileExistsError):
            await volume.rename("d", "e")
        await volume.rename("d", "f")
        assert await volume.list("f") == ["new"]
        with pytest.raises(FileNotFoundError):
            await volume.rename("d", "g")

    run(scenario, volume)


def test_missing_files_and_directories_are_named(volume):
    async def scenario(volume):
        for call in (volume.read("f"), volume.size("f"), volume.truncate("f", 0), volume.open("no/f")):
            with pytest.raises(FileNotFoundError):
                await call

    run(scenario, volume)


def test_a_lock_has_one_owner(volume):
    async def scenario(volume):
        lock = await volume.lock("l")
        with pytest.raises(VolumeLockedError):
            await volume.lock("l")
        await lock.release()
        await lock.release()
        await (await volume.lock("l")).release()

    run(scenario, volume)


def test_a_lock_keeps_other_processes_out_until_its_own_is_gone(tmp_path):
    program = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )

    async def scenario(volume):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "l")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout.readline() == b"locked\n"
            with pytest.raises(VolumeLockedError):
                await volume.lock("l")
            other.kill()
            other.wait(10)
        await (await volume.lock("l")).release()

    run(scenario, DirectoryVolume(tmp_path))


def test_no_path_leads_out_of_a_directory_volume(tmp_path):
    async def scenario(volume):
        for path in ("../x", "a/../../x", "/etc/x"):
            with pytest.raises(ValueError, match="leads out"):
                await volume.read(path)

    run(scenario, DirectoryVolume(tmp_path))


def test_syncs_do_not_stop_the_loop(tmp_path, monkeypatch):
    import threading

    gate = threading.Event()
    monkeypatch.setattr("os.fdatasync", lambda _: gate.wait(20))

    async def scenario(volume):
        file = await volume.open("f")
        file.write(b"x")
        sync = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        assert not sync.done()
        gate.set()
        await sync
        await file.close()

    run(scenario, DirectoryVolume(tmp_path))


def test_a_crash_loses_exactly_what_was_not_synced():
    async def scenario(volume):
        file = await volume.open("f")
        file.write(b"kept")
        await file.sync()
        file.write(b" lost")
        volume.crash()
        assert await volume.read("f") == b"kept"
        with pytest.raises(VolumeCrashedError):
            file.write(b"x")
        with pytest.raises(VolumeCrashedError):
            await file.sync()

    run(scenario, MemoryVolume())


def test_what_is_written_during_a_sync_is_not_synced_by_it():
    async def scenario(volume):
        file = await volume.open("f")
        file.write(b"before")
        sync = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.write(b" during")
        await sync
        volume.crash()
        assert await volume.read("f") == b"before"

    run(scenario, MemoryVolume())


def test_a_torn_crash_never_touches_synced_bytes_and_shows_every_kind_of_tear():
    kinds = set()

    async def scenario(_):
        for seed in range(60):
            volume = MemoryVolume()
            file = await volume.open("f")
            file.write(b"s" * 700)
            await file.sync()
            file.write(b"u" * 3000)
            volume.crash(random.Random(seed))
            data = await volume.read("f")
            assert data[:700] == b"s" * 700
            rest = data[700:]
            assert set(rest) <= {0, ord("u")}
            kinds.add(
                "lost" if not rest else "kept" if rest == b"u" * 3000 else "sectors" if 0 in rest else "cut"
            )

    run(scenario, MemoryVolume())
    assert kinds == {"lost", "kept", "sectors", "cut"}


def test_the_power_goes_out_at_any_chosen_change():
    async def changes(volume):
        await volume.mkdir("d")
        await volume.write_atomic("d/f", b"new")
        await volume.remove("d/f")

    async def scenario(_):
        whole = MemoryVolume()
        await changes(whole)
        for count in range(whole.operations):
            volume = MemoryVolume()
            volume.fail_after = count
            with contextlib.suppress(VolumeCrashedError):
                await changes(volume)
                pytest.fail("the power stayed on")
            with pytest.raises(VolumeCrashedError):
                await volume.list("")
            volume.crash()
            assert volume.image().get("d/f", b"new") == b"new"

    run(scenario, MemoryVolume())
