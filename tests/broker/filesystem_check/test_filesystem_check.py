"""A good directory passes, and each way a directory can deceive a store is recognised under its
name.

The bad ones are made at the seam of system calls, so that every one can be had anywhere; real NFS
mounts, good and bad, are in tests/filesystems/nfs.
"""

import asyncio
import errno
import fcntl
import json
import os
import struct
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.filesystem_check.basic import BasicCheck
from broker.filesystem_check.calls import Calls
from broker.filesystem_check.concurrent import ConcurrentCheck
from broker.filesystem_check.mounts import mount_table, unsafe
from broker.filesystem_check.results import REMEDIES

DISK = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
F_OFD_SETLK = 37


def quiet(_):
    pass


class OneProcess(Calls):
    """Two copies of the check in one process.

    Locks of the opening (F_OFD_SETLK), which do stand in each other's way.
    """

    def __init__(self):
        super().__init__(quiet)

    def lock(self, descriptor, kind):
        kinds = {fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}
        try:
            fcntl.fcntl(descriptor, F_OFD_SETLK, struct.pack("hhqqi4x", kinds[kind], os.SEEK_SET, 0, 0, 0))
        except BlockingIOError:
            return False
        return True


class LocalLocks(OneProcess):
    """As with the mount option nolock: each host has its own."""

    def lock(self, descriptor, kind):
        return True


class NoLocks(OneProcess):
    def lock(self, descriptor, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


class SharedLocks(OneProcess):
    """Locks that are granted to everybody, one time in two.

    Nothing but writing at the same time shows it.
    """

    def __init__(self):
        super().__init__()
        self.locks = 0

    def lock(self, descriptor, kind):
        self.locks += 1
        return super().lock(descriptor, kind) or self.locks > 10


class StuckLocks(OneProcess):
    """A server that never hears of an unlock."""

    def lock(self, descriptor, kind):
        return True if kind == fcntl.LOCK_UN else super().lock(descriptor, kind)


class StaleAttributes(OneProcess):
    """As with actimeo=3600: the first answer is believed for ever."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def stat(self, path):
        return self.known.setdefault(path, super().stat(path))


class LyingSync(OneProcess):
    """Bytes stay in a cache until the file is closed, and fsync says that they are safe."""

    def __init__(self):
        super().__init__()
        self.held = {}

    def write(self, descriptor, data):
        self.held.setdefault(descriptor, []).append(data)

    def fsync(self, descriptor):
        pass

    def close(self, descriptor):
        for data in self.held.pop(descriptor, []):
            os.write(descriptor, data)
        super().close(descriptor)


class OtherOwner(OneProcess):
    """User numbers that differ between the hosts."""

    def stat(self, path):
        return SimpleNamespace(
            st_uid=os.geteuid() + 1, st_gid=os.getegid(), st_size=super().stat(path).st_size
        )


@pytest.fixture
def place(tmp_path):
    """A directory in memory where there is one.

    What syncs cost on this machine's disk is not what is tested.
    """
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def failing(results):
    return [result.test for result in results if not result.passed]


def both(place, calls, patience_s=60.0):
    async def scenario():
        return await asyncio.gather(
            *(
                ConcurrentCheck(place, calls(), quiet, patience_s=patience_s, name=name).run()
                for name in ("one", "other")
            )
        )

    return asyncio.run(scenario())


def test_two_copies_on_a_good_directory_find_nothing_and_leave_nothing(place):
    for results in both(place, OneProcess):
        assert failing(results) == []
        assert len(results) == 8
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (LocalLocks, "lock-denied-to-the-other-host"),
        (NoLocks, "lock-denied-to-the-other-host"),
        (StuckLocks, "lock-passes-to-the-other-host"),
        (SharedLocks, "concurrent-writes"),
        (StaleAttributes, "fresh-attributes"),
        (LyingSync, "sync-is-seen"),
        (OtherOwner, "same-owner"),
    ],
)
def test_what_deceives_two_hosts_is_named_by_both_copies(place, calls, expected):
    for results in both(place, calls):
        assert expected in failing(results)
        assert set(failing(results)) <= ALSO.get(expected, set()) | {expected}
        assert REMEDIES[expected]
    assert list(place.iterdir()) == []


ALSO = {
    "lock-denied-to-the-other-host": {"lock-passes-to-the-other-host"},  # where there are none at all
    "lock-passes-to-the-other-host": {"lock-denied-to-the-other-host"},
    "sync-is-seen": {"concurrent-writes"},  # who writes cannot see what it should go on from
}


def test_a_copy_that_nobody_joins_says_so(place):
    results = asyncio.run(ConcurrentCheck(place, OneProcess(), quiet, patience_s=0.05, name="alone").run())
    assert failing(results) == ["meet"]
    assert list(place.iterdir()) == []


def test_what_an_earlier_copy_left_behind_does_not_disturb(place, monkeypatch):
    (place / ".brokerctl-check.gone-1.waiting").touch()
    monkeypatch.setattr("broker.filesystem_check.meeting._GONE_S", 0.2)
    for results in both(place, OneProcess):
        assert failing(results) == []
    assert list(place.iterdir()) == []


# ----------------------------------------------------------------------------------------- One host


def basic(directory, calls=None, mounts=DISK, variables=None):
    return asyncio.run(BasicCheck(directory, calls or Calls(quiet), mounts, variables or {}).run())


def test_a_good_directory_passes_all_basic_tests_and_is_left_empty(place):
    results = basic(place)
    assert failing(results) == []
    assert len(results) == 14
    assert list(place.iterdir()) == []


class Basic(Calls):
    def __init__(self):
        super().__init__(quiet)


class GrantsEverything(Basic):
    def lock(self, descriptor, kind):
        return True


class GrantsNothing(Basic):
    def lock(self, descriptor, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


class NeverReleases(Basic):
    """What is closed here stays open somewhere, as on a server that does not hear of it."""

    def __init__(self):
        super().__init__()
        self.locked = set()

    def lock(self, descriptor, kind):
        self.locked.add(descriptor)
        return super().lock(descriptor, kind)

    def close(self, descriptor):
        if descriptor not in self.locked:
            super().close(descriptor)


class CreatesTwice(Basic):
    def open(self, path, flags):
        return super().open(path, flags & ~os.O_EXCL)


class CannotSyncDirectories(Basic):
    def fsync(self, descriptor):
        if os.fstat(descriptor).st_mode & 0o40000:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class AppendsAnywhere(Basic):
    def open(self, path, flags):
        return super().open(path, flags & ~os.O_APPEND)


class CutsNothing(Basic):
    def ftruncate(self, descriptor, size):
        pass


class CopiesForARename(Basic):
    """The content of the replaced file is overwritten, as if a rename were a copy."""

    def rename(self, old, new):
        new.write_bytes(old.read_bytes())
        old.unlink()


class KeepsRemoved(Basic):
    def unlink(self, path):
        pass


class LosesWrites(Basic):
    def write(self, descriptor, data):
        super().write(descriptor, data[:-1])


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (CreatesTwice, ["create-exclusive"]),
        (LosesWrites, ["write-and-read"]),
        (AppendsAnywhere, ["append"]),
        (CutsNothing, ["truncate"]),
        (CopiesForARename, ["rename-replaces"]),
        (KeepsRemoved, ["unlink-while-open"]),
        (CannotSyncDirectories, ["sync-directory"]),
        (GrantsNothing, ["lock"]),
        (GrantsEverything, ["lock-denied"]),
        (NeverReleases, ["lock-released-by-close"]),
    ],
)
def test_what_deceives_one_host_is_named(place, calls, expected, monkeypatch):
    monkeypatch.setattr("broker.filesystem_check.basic._RELEASE_S", 0.3)
    assert failing(basic(place, calls()))[:1] == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("30 22 0:5 / {} rw - tmpfs tmpfs rw", "memory"),
        ("30 22 0:5 / {} rw - ext4 /dev/sdb rw,nobarrier", "nobarrier"),
        ("30 22 0:5 / {} rw - overlay overlay rw,volatile", "volatile"),
    ],
)
def test_a_sync_that_cannot_reach_a_disk_is_known_from_the_mount(place, line, says):
    mounts = DISK + line.format(place.resolve()) + "\n"
    results = basic(place, mounts=mounts)
    assert failing(results) == ["sync-to-a-disk"]
    assert says in results[-4].problem + "".join(result.problem for result in results)
    assert unsafe(place.parent, mounts, {}) == ""


def test_a_library_that_swallows_syncs_is_named(place):
    results = basic(place, variables={"LD_PRELOAD": "/usr/lib/libeatmydata.so"})
    assert failing(results) == ["sync-to-a-disk"]


def test_a_mount_whose_place_is_no_utf_8_hinders_nobody(place, tmp_path, monkeypatch):
    file = tmp_path / "mountinfo"
    odd = "30 22 0:5 / /\udcff\\040\u2028\x0b- rw - tmpfs tmpfs rw\n"
    file.write_bytes(os.fsencode(odd + DISK))
    monkeypatch.setattr("broker.filesystem_check.mounts.MOUNTS", file)
    assert unsafe(place, mount_table(), {}) == ""
    assert "memory" in unsafe(Path("/\udcff \u2028\x0b-"), mount_table(), {})


def test_this_machines_mounts_are_understood(place):
    assert isinstance(unsafe(place, mount_table(), {}), str)


# -------------------------------------------------------------------------------------- The command


async def start(*arguments):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "broker.ctl",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def run(*arguments):
    async def scenario():
        process = await start(*arguments)
        said, complaints = await process.communicate()
        return process.returncode, said.decode(), complaints.decode()

    return asyncio.run(scenario())


def test_the_command_says_success_as_documented_and_each_call_when_asked(tmp_path):
    expected = failing(basic(tmp_path, mounts=mount_table()))  # this machine's directory may be in memory
    status, said, _ = run("check-filesystem", str(tmp_path), "-v")
    assert status == (1 if expected else 0)
    assert f'System call: stat("{tmp_path}",&statbuf)' in said
    assert "System call: fcntl(fd,F_SETLK,F_WRLCK)" in said
    if not expected:
        assert said.endswith("The tests on the directory completed successfully.\n")


def test_a_failed_test_is_one_line_with_its_name_and_status_1(tmp_path):
    status, said, _ = run("check-filesystem", str(tmp_path / "missing"))
    assert status == 1
    assert said.splitlines()[0].startswith(
        f"FAILED: directory: {tmp_path / 'missing'}: No such file or directory (errno 2); give a directory"
    )
    assert said.splitlines()[1].startswith("1 of 1 tests")
    status, said, _ = run("--json", "check-filesystem", str(tmp_path / "missing"))
    assert status == 1
    answer = json.loads(said)
    assert (answer["passed"], answer["tests"][0]["test"]) == (False, "directory")


def test_two_checks_at_once_are_wrong_usage(tmp_path):
    status, _, complaints = run("check-filesystem", "-c", "-w", str(tmp_path))
    assert (status, complaints) == (254, "brokerctl: -c and -w are different checks: give one\n")


def test_two_processes_check_against_each_other(tmp_path):
    async def scenario():
        copies = [await start("check-filesystem", "-c", str(tmp_path)) for _ in range(2)]
        for copy, (said, _) in zip(
            copies, await asyncio.gather(*(c.communicate() for c in copies)), strict=True
        ):
            assert said.decode().endswith("The tests on the directory completed successfully.\n")
            assert b"Writing to test file." in said
            assert copy.returncode == 0

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


def test_the_second_copy_waits_for_the_lock_until_the_first_lets_go(tmp_path):
    async def until(copy, line):
        said = []
        while line not in said:
            word = await copy.stdout.readline()
            assert word, said
            said.append(word.decode().strip())
        return said

    async def scenario():
        first = await start("check-filesystem", "-wv", str(tmp_path))
        acquired = "File lock acquired. Press Enter or terminate this process to release the lock."
        said = await until(first, acquired)
        path = tmp_path / ".brokerctl-check.lkw"
        assert said == [
            f'System call: stat("{tmp_path}",&statbuf)',
            f'System call: fd = open("{path}",O_RDWR|O_CREAT,0666)',
            "System call: fstat(fd,&statbuf)",
            "System call: fchmod(fd,0666)",
            "System call: fcntl(fd,F_SETLK,F_WRLCK)",
            "Start a second copy of this program with the same parameters on another server.",
            acquired,
        ]
        second = await start("check-filesystem", "-w", str(tmp_path))
        assert await until(second, "Waiting for the file lock.") == ["Waiting for the file lock."]
        first.stdin.write(b"\n")
        assert (await until(first, "File lock released."))[0] == "System call: close(fd)"
        assert await first.wait() == 0
        await until(second, acquired)
        second.stdin.close()
        assert await second.wait() == 0

    asyncio.run(scenario())
