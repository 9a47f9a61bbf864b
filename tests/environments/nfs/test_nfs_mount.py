"""A real NFSv4 server and real mounts.

What hosts see of each other's files, and what is said where nothing can be mounted.
"""

import asyncio
import contextlib
import os
import sys

import pytest
from nfs_store import SAFE, Store

from filesystems.nfs.mount import EXIT_FAILED, EXIT_USAGE
from harness.interface import InfrastructureError

pytestmark = pytest.mark.nfs


def test_what_one_host_does_the_other_sees_at_once(hosts, store):
    a, b = hosts
    (a / "journal").mkdir()
    with (a / "journal" / "1.log").open("wb", buffering=0) as file:
        for size in (1, 100_000, 3):
            file.write(b"x" * size)
            os.fsync(file.fileno())
            assert (b / "journal" / "1.log").stat().st_size == file.tell()
    assert (b / "journal" / "1.log").read_bytes() == b"x" * 100_004
    (b / "journal" / "1.log").rename(b / "journal" / "2.log")
    assert [path.name for path in a.glob("journal/*")] == ["2.log"]
    os.truncate(a / "journal" / "2.log", 10)
    assert (b / "journal" / "2.log").read_bytes() == b"x" * 10
    (b / "journal" / "latest").symlink_to("2.log")
    os.link(a / "journal" / "2.log", a / "journal" / "3.log")
    assert (a / "journal" / "latest").read_bytes() == b"x" * 10
    assert (b / "journal" / "3.log").stat().st_nlink == 2
    for path in (a / "journal").iterdir():
        path.unlink()
    (a / "journal").rmdir()
    assert list(b.iterdir()) == []
    assert not (store.server.options.directory / "journal").exists()


def test_many_files_are_listed_once_each(hosts, store):
    names = {f"{number:04}-{'n' * 100}" for number in range(1500)}
    for name in names:
        (store.server.options.directory / name).touch()
    listed = [path.name for path in hosts[0].iterdir()]
    assert sorted(listed) == sorted(names)


def test_two_appenders_on_two_hosts_taking_turns_lose_nothing(hosts):
    a, b = hosts
    with (a / "log").open("ab", buffering=0) as one, (b / "log").open("ab", buffering=0) as other:
        for turn in range(20):
            one.write(b"a%02d" % turn)
            other.write(b"b%02d" % turn)
    assert (a / "log").read_bytes() == b"".join(b"a%02db%02d" % (turn, turn) for turn in range(20))


def test_attributes_are_as_old_as_the_options_allow(store, run):
    async def scenario():
        writing = (await store.host("a")).directory
        fresh = (await store.host("fresh", "hard,noac,lookupcache=none")).directory
        stale = (await store.host("stale", "hard,actimeo=3600,lookupcache=all")).directory
        (writing / "file").write_bytes(b"1")
        assert (fresh / "file").stat().st_size == (stale / "file").stat().st_size == 1
        (writing / "file").write_bytes(b"12345")
        assert (fresh / "file").stat().st_size == 5
        assert (stale / "file").stat().st_size == 1

    run(scenario())


def test_a_file_removed_while_open_stays_for_who_has_it_open(hosts, run):
    a, b = hosts

    async def scenario():
        for remove in (os.unlink, (a / "other").replace):
            (a / "other").write_bytes(b"new")
            with (a / "file").open("w+b", buffering=0) as file:
                file.write(b"old")
                remove(a / "file")
                file.seek(0)
                assert file.read() == b"old"
        assert (a / "file").read_bytes() == b"new"
        while sorted(path.name for path in b.iterdir()) != ["file"]:  # its last close is in the background
            await asyncio.sleep(0.02)

    run(scenario())


HOLDER = """
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
signal.pause()
"""


def test_a_file_is_closed_though_a_soft_mount_gave_up_unlocking_it(store, run):
    async def scenario():
        place = (await store.host("a", f"soft,{SAFE},timeo=2,retrans=1")).directory
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(place / "file"), stdout=asyncio.subprocess.PIPE
        )
        await holder.stdout.readline()
        await store.server.pause()
        holder.kill()
        await holder.wait()
        await store.said("a", "not responding")
        store.server.resume()
        while (place / "file").exists():
            with contextlib.suppress(OSError):
                (place / "file").unlink()
        while [*store.server.options.directory.iterdir()]:  # one that is open is only renamed
            await asyncio.sleep(0.02)

    run(scenario())


def test_it_is_mounted_on_a_directory_with_a_long_name(store, run):
    run(store.host("/".join(["long" * 15] * 5)))


def test_what_cannot_be_mounted_is_said_in_one_line(tmp_path, store, run):
    async def tried(*arguments):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "filesystems.nfs.mount", *arguments, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        return process.returncode, said.decode()

    async def scenario():
        place = f"127.0.0.1:{store.server.options.port}"
        (tmp_path / "m").mkdir()
        status, said = await tried(f"{place}/nowhere", str(tmp_path / "m"))
        assert (status, said.count("\n")) == (EXIT_FAILED, 1)
        assert "NFS4ERR_NOENT" in said
        status, said = await tried(f"{place}/store", str(tmp_path / "missing"))
        assert (status, said.count("\n")) == (EXIT_FAILED, 1)
        assert "No such file" in said
        status, said = await tried(f"{place}/store", str(tmp_path / "m"), "-o", "sotf")
        assert (status, said) == (
            EXIT_USAGE,
            "mount: unknown mount option 'sotf': did you mean 'soft'?\n",
        )
        await store.server.kill()
        status, said = await tried(
            f"{place}/store", str(tmp_path / "m"), "-o", "hard,timeo=2,retrans=1,retry=0"
        )
        assert status == EXIT_FAILED
        assert said.splitlines()[-1].endswith("no answer from the NFS server within 0.2 s")

    run(scenario())


def test_a_server_that_cannot_start_says_why(tmp_path, run):
    elsewhere = Store(tmp_path, host="192.0.2.1")
    with pytest.raises(InfrastructureError, match="ganesha"):
        run(elsewhere.begin())
