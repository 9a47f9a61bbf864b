"""A real NFSv4 server and real mounts: what hosts see of each other, and what becomes of locks, leases and waits.

Leases are six seconds: a machine that does not run a process for four would otherwise end them by itself.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
import time
from pathlib import Path

import pytest
from nfs_store import SAFE, store

from environments.fuse import device as fuse_device
from environments.nfs.mount import EXIT_FAILED, EXIT_USAGE
from harness.interface import InfrastructureError

pytestmark = pytest.mark.nfs


def locked(path, *, wait=False):
    """Open a file and lock it; the descriptor. Raises BlockingIOError if somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path):
    try:
        os.close(locked(path))
    except BlockingIOError:
        return True
    return False


def test_what_one_host_does_the_other_sees_at_once(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
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
            assert not (here.server.options.directory / "journal").exists()

    asyncio.run(scenario())


def test_many_files_are_listed_once_each(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a = (await here.host("a")).directory
            names = {f"{number:04}-{'n' * 100}" for number in range(1500)}
            for name in names:
                (here.server.options.directory / name).touch()
            listed = [path.name for path in a.iterdir()]
            assert sorted(listed) == sorted(names)

    asyncio.run(scenario())


def test_two_appenders_on_two_hosts_taking_turns_lose_nothing(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            with (a / "log").open("ab", buffering=0) as one, (b / "log").open("ab", buffering=0) as other:
                for turn in range(20):
                    one.write(b"a%02d" % turn)
                    other.write(b"b%02d" % turn)
            assert (a / "log").read_bytes() == b"".join(b"a%02db%02d" % (turn, turn) for turn in range(20))

    asyncio.run(scenario())


@pytest.mark.parametrize("take", [fcntl.lockf, fcntl.flock])
def test_a_lock_is_denied_to_the_other_host_until_its_holder_lets_go(tmp_path, take):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            with (a / "lock").open("w") as holder, (b / "lock").open("r+") as other:
                take(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with pytest.raises(BlockingIOError):
                    take(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                waiting = asyncio.create_task(asyncio.to_thread(take, other, fcntl.LOCK_EX))
                take(holder, fcntl.LOCK_UN)
                await waiting
                with pytest.raises(BlockingIOError):
                    take(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)

    asyncio.run(scenario())


def test_byte_ranges_are_locked_apart_and_shared_locks_are_shared(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            with (a / "lock").open("w+b") as one, (b / "lock").open("r+b") as other:
                fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
                fcntl.lockf(one, fcntl.LOCK_UN, 4, 3)  # the middle of what is held
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 3)
                with pytest.raises(BlockingIOError):
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 7)
                fcntl.lockf(one, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
                fcntl.lockf(other, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
                with pytest.raises(BlockingIOError):
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 105)

    asyncio.run(scenario())


def by_opening(path):
    """Lock one byte for an opening and not for a process, as brokers do; the descriptor. Raises BlockingIOError if somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, asked)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def once_free(path):
    while True:
        try:
            return await asyncio.to_thread(by_opening, path)
        except BlockingIOError:
            await asyncio.sleep(0.02)


def test_a_lock_of_an_opening_outlives_other_openings_and_goes_with_its_own(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            held = by_opening(a / "lock")
            os.close(os.open(a / "lock", os.O_RDONLY))
            with pytest.raises(BlockingIOError):
                by_opening(a / "lock")
            with pytest.raises(BlockingIOError):
                by_opening(b / "lock")
            os.close(held)
            # Nobody says at a close which locks of an opening go with it: if the mount forgot them, this would never end.
            os.close(await once_free(b / "lock"))
            os.close(await once_free(a / "lock"))

    asyncio.run(scenario())


def test_who_writes_through_an_opening_whose_lock_was_lost_is_told(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            silent, other = await here.host("silent"), await here.host("other")
            held = by_opening(silent.directory / "lock")
            os.write(held, b"mine")
            os.kill(silent.pid, signal.SIGSTOP)
            taken = await once_free(other.directory / "lock")
            os.kill(silent.pid, signal.SIGCONT)
            with pytest.raises(OSError, match="Input/output"):
                os.write(held, b"MINE")
            os.close(held)
            os.close(taken)

    asyncio.run(scenario())


def test_the_death_of_a_process_frees_its_lock_while_its_host_lives(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            holder = await holding(a / "lock")
            assert is_locked(b / "lock")
            holder.kill()
            await holder.wait()
            os.close(await asyncio.to_thread(locked, b / "lock", wait=True))

    asyncio.run(scenario())


async def holding(path):
    """Another process that holds a lock until it is killed."""
    program = (
        "import fcntl, sys, signal\n"
        "file = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\nprint('held', flush=True)\nsignal.pause()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert await process.stdout.readline() == b"held\n"
    return process


def test_a_healthy_host_keeps_its_lock_beyond_the_lease_and_a_silent_one_loses_it_and_is_told(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            silent, other = await here.host("silent"), await here.host("other")
            descriptor = locked(silent.directory / "lock")
            journal = os.open(silent.directory / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, b"mine")
            # Time is what is tested: idle for longer than the lease, only the renewals speak.
            await asyncio.sleep(1.5 * here.server.options.lease_s)
            assert is_locked(other.directory / "lock")
            os.kill(silent.pid, signal.SIGSTOP)
            taken = await asyncio.to_thread(locked, other.directory / "lock", wait=True)
            os.write(taken, b"ours")
            os.kill(silent.pid, signal.SIGCONT)
            with pytest.raises(OSError, match="Input/output") as refused:
                os.write(descriptor, b"MINE")
            assert refused.value.errno == errno.EIO
            with pytest.raises(OSError, match="Input/output"):
                os.read(descriptor, 4)
            assert (
                os.pread(taken, 4, 0) == b"ours"
            )  # not by a second opening: its close would let go of the lock
            assert "locks are gone" in here.log("silent").read_text()
            # As with the kernel's client a file that was never locked goes on: whoever holds a lock elsewhere must look at it.
            os.write(journal, b"a zombie's entry")
            fcntl.lockf(descriptor, fcntl.LOCK_UN)
            with pytest.raises(BlockingIOError):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(taken)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            assert os.pread(descriptor, 4, 0) == b"ours"
            os.close(descriptor)
            os.close(journal)

    asyncio.run(scenario())


def test_a_soft_mount_reports_an_error_after_timeo_times_retrans(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            mounted = await here.host("a", f"soft,{SAFE},timeo=10,retrans=3")
            with (mounted.directory / "journal").open("wb", buffering=0) as file:
                file.write(b"1")
                await here.server.pause()
                began = time.monotonic()
                with pytest.raises(OSError, match="Input/output"):
                    await asyncio.to_thread(file.write, b"2")
                assert time.monotonic() - began >= 3
                here.server.resume()
                while True:  # until it answers again
                    with contextlib.suppress(OSError):
                        file.write(b"3")
                        break
            # The write that was given up may still be carried out, even after the next one: that is the price of soft.
            assert (mounted.directory / "journal").read_bytes() in (b"12", b"13")

    asyncio.run(scenario())


def test_a_hard_mount_waits_and_goes_on(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            mounted = await here.host("a", f"hard,{SAFE},timeo=2,retrans=2")
            with (mounted.directory / "journal").open("wb", buffering=0) as file:
                await here.server.pause()
                writing = asyncio.create_task(asyncio.to_thread(file.write, b"whole"))
                await here.said("a", "not responding, still trying")
                assert not writing.done()
                here.server.resume()
                assert await writing == 5
                await here.said("a", "OK")
            assert (here.server.options.directory / "journal").read_bytes() == b"whole"

    asyncio.run(scenario())


async def writer(path):
    """Another process that writes once for each line it is given, and ends with status 7 as soon as it can handle a signal."""
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))\n"
        "file = open(sys.argv[1], 'ab', buffering=0)\nprint(file.fileno(), flush=True)\n"
        "for line in sys.stdin:\n    file.write(b'x')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    return process, int(await process.stdout.readline())


async def in_a_call_on(pid, descriptor):
    """Wait until a process is in a system call whose first argument is this descriptor."""
    while True:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
        if len(words) > 1 and int(words[1], 16) == descriptor:
            return
        await asyncio.sleep(0.01)


def test_intr_lets_a_signal_end_who_waits_and_without_it_only_sigkill_does(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            patient = await here.host("patient", f"hard,{SAFE},timeo=2,retrans=1")
            ready = await here.host("ready", f"hard,intr,{SAFE},timeo=2,retrans=1")
            waiting, _ = writers = [await writer(where.directory / "file") for where in (patient, ready)]
            await here.server.pause()
            for process, descriptor in writers:
                process.stdin.write(b"\n")
                await in_a_call_on(process.pid, descriptor)
                process.send_signal(signal.SIGUSR1)
            assert await process.wait() == 7
            await in_a_call_on(waiting[0].pid, waiting[1])
            waiting[0].kill()
            assert await waiting[0].wait() == -signal.SIGKILL
            here.server.resume()

    asyncio.run(scenario())


async def lock_writer(path):
    """Another process that locks a file, and writes and syncs what it is given line by line.

    Another one, because starting the server forks: the child would close its copy of our descriptors, and a close waits for the server.
    """
    program = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'ab', buffering=0)\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "file.write(b'before ')\nprint('held', flush=True)\n"
        "for line in sys.stdin:\n"
        "    file.write(line.strip().encode())\n    os.fsync(file.fileno())\n    print('synced', flush=True)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert await process.stdout.readline() == b"held\n"
    return process


def test_a_restarted_server_gives_locks_back_in_its_grace_and_nothing_written_is_lost(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            # async: what is written is in the server's memory until it is synced, and must be sent again
            a, b = await here.host("a", "hard,noac,lookupcache=none"), await here.host("b")
            process = await lock_writer(a.directory / "lock")
            await here.server.kill()
            (here.server.options.directory / "lock").write_bytes(
                b""
            )  # as if its memory had been all there was
            await here.server.start()
            process.stdin.write(b"after\n")
            assert await process.stdout.readline() == b"synced\n"
            assert await asyncio.to_thread(is_locked, b.directory / "lock")
            assert "reclaiming" in here.log("a").read_text()
            assert (b.directory / "lock").read_bytes() == b"before after"
            process.stdin.close()
            assert await process.wait() == 0
            os.close(await asyncio.to_thread(locked, b.directory / "lock", wait=True))

    asyncio.run(scenario())


def test_attributes_are_as_old_as_the_options_allow(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            writing = (await here.host("a")).directory
            fresh = (await here.host("fresh", "hard,noac,lookupcache=none")).directory
            stale = (await here.host("stale", "hard,actimeo=3600,lookupcache=all")).directory
            (writing / "file").write_bytes(b"1")
            assert (fresh / "file").stat().st_size == (stale / "file").stat().st_size == 1
            (writing / "file").write_bytes(b"12345")
            assert (fresh / "file").stat().st_size == 5
            assert (stale / "file").stat().st_size == 1

    asyncio.run(scenario())


def test_a_file_removed_while_open_stays_for_who_has_it_open(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            a, b = (await here.host("a")).directory, (await here.host("b")).directory
            for remove in (os.unlink, (a / "other").replace):
                (a / "other").write_bytes(b"new")
                with (a / "file").open("w+b", buffering=0) as file:
                    file.write(b"old")
                    remove(a / "file")
                    file.seek(0)
                    assert file.read() == b"old"
            assert (a / "file").read_bytes() == b"new"
            while sorted(path.name for path in b.iterdir()) != [
                "file"
            ]:  # its last close is in the background
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_a_host_that_comes_back_does_not_wait_for_the_lease_of_its_former_life(tmp_path):
    async def scenario():
        async with store(tmp_path, lease_s=120, grace_s=120) as here:
            before, other = await here.host("a"), await here.host("b")
            holder = await holding(before.directory / "lock")
            os.kill(before.pid, signal.SIGKILL)  # the machine crashes, with all its processes
            await before.process.wait()
            holder.kill()
            await holder.wait()
            assert is_locked(other.directory / "lock")
            await before.unmount()
            after = await here.host("a")
            os.close(locked(after.directory / "lock"))

    asyncio.run(scenario())


def test_a_mount_whose_server_never_answers_can_be_ended(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            mounted = await here.host("a")
            process, descriptor = await writer(mounted.directory / "file")
            await here.server.pause()
            process.stdin.write(b"\n")
            await in_a_call_on(process.pid, descriptor)
            await mounted.unmount()
            assert await process.wait() != 0
            assert fuse_device.connection(mounted.directory) is None

    asyncio.run(scenario())


def test_what_cannot_be_mounted_is_said_in_one_line(tmp_path):
    async def run(*arguments):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "environments.nfs.mount", *arguments, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        return process.returncode, said.decode()

    async def scenario():
        async with store(tmp_path) as here:
            place = f"127.0.0.1:{here.server.options.port}"
            (tmp_path / "m").mkdir()
            status, said = await run(f"{place}/nowhere", str(tmp_path / "m"))
            assert (status, said.count("\n")) == (EXIT_FAILED, 1)
            assert "NFS4ERR_NOENT" in said
            status, said = await run(f"{place}/store", str(tmp_path / "missing"))
            assert (status, said.count("\n")) == (EXIT_FAILED, 1)
            assert "No such file" in said
            status, said = await run(f"{place}/store", str(tmp_path / "m"), "-o", "sotf")
            assert (status, said) == (
                EXIT_USAGE,
                "mount: unknown mount option 'sotf': did you mean 'soft'?\n",
            )
            await here.server.stop()
            status, said = await run(
                f"{place}/store", str(tmp_path / "m"), "-o", "hard,timeo=2,retrans=1,retry=0"
            )
            assert status == EXIT_FAILED
            assert said.splitlines()[-1].endswith("no answer from the NFS server within 0.2 s")

    asyncio.run(scenario())


def test_a_server_that_cannot_start_says_why(tmp_path):
    async def scenario():
        async with store(tmp_path) as here:
            with pytest.raises(InfrastructureError, match="ganesha"):
                async with store(tmp_path / "second", host="192.0.2.1"):
                    pass
            assert here.server is not None

    asyncio.run(scenario())
