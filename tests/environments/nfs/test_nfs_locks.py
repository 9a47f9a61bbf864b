"""Locks on real mounts of a real NFSv4 server.

Who has one, how long, and who is told that it is lost.

Leases are six seconds: a machine that does not run a process for four would otherwise end them by
itself.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys

import pytest
from nfs_store import SAFE

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


def confirm(descriptor):
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, asked)


def by_opening(path):
    """Lock one byte for an opening and not for a process, as brokers do; the descriptor.

    Raises BlockingIOError if somebody else has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        confirm(descriptor)
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


async def holding(path):
    """Another process that holds a lock until it is killed."""
    program = (
        "import fcntl, sys, signal\n"
        "file = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\nprint('held', "
        "flush=True)\nsignal.pause()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert await process.stdout.readline() == b"held\n"
    return process


async def lock_writer(path):
    """Another process that locks a file, and writes and syncs what it is given line by line.

    Another one, because starting the server forks: the child would close its copy of our
    descriptors, and a close waits for the server.
    """
    program = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'ab', buffering=0)\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "file.write(b'before ')\nprint('held', flush=True)\n"
        "for line in sys.stdin:\n"
        "    file.write(line.strip().encode())\n    os.fsync(file.fileno())\n    print('synced', "
        "flush=True)\n"
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


@pytest.mark.parametrize("take", [fcntl.lockf, fcntl.flock])
def test_a_lock_is_denied_to_the_other_host_until_its_holder_lets_go(hosts, run, take):
    a, b = hosts

    async def scenario():
        with (a / "lock").open("w") as holder, (b / "lock").open("r+") as other:
            take(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with pytest.raises(BlockingIOError):
                take(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            waiting = asyncio.create_task(asyncio.to_thread(take, other, fcntl.LOCK_EX))
            take(holder, fcntl.LOCK_UN)
            await waiting
            with pytest.raises(BlockingIOError):
                take(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)

    run(scenario())


def test_byte_ranges_are_locked_apart_and_shared_locks_are_shared(hosts):
    a, b = hosts
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


def test_a_lock_of_an_opening_outlives_other_openings_and_goes_with_its_own(hosts, run):
    a, b = hosts

    async def scenario():
        held = by_opening(a / "lock")
        os.close(os.open(a / "lock", os.O_RDONLY))
        with pytest.raises(BlockingIOError):
            by_opening(a / "lock")
        with pytest.raises(BlockingIOError):
            by_opening(b / "lock")
        os.close(held)
        # Nobody says at a close which locks of an opening go with it: if the mount forgot them,
        # this would never end.
        os.close(await once_free(b / "lock"))
        os.close(await once_free(a / "lock"))

    run(scenario())


def test_the_death_of_a_process_frees_its_lock_while_its_host_lives(hosts, run):
    a, b = hosts

    async def scenario():
        holder = await holding(a / "lock")
        assert is_locked(b / "lock")
        holder.kill()
        await holder.wait()
        os.close(await asyncio.to_thread(locked, b / "lock", wait=True))

    run(scenario())


def test_a_healthy_host_keeps_its_lock_beyond_the_lease_and_a_silent_one_loses_it_and_is_told(store, run):
    async def scenario():
        silent, other = await store.host("silent"), await store.host("other")
        descriptor = locked(silent.directory / "lock")
        journal = os.open(silent.directory / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, b"mine")
        # Time is what is tested: idle for longer than the lease, only the renewals speak.
        await asyncio.sleep(1.5 * store.server.options.lease_s)
        assert is_locked(other.directory / "lock")
        os.kill(silent.process.pid, signal.SIGSTOP)
        taken = await asyncio.to_thread(locked, other.directory / "lock", wait=True)
        os.write(taken, b"ours")
        os.kill(silent.process.pid, signal.SIGCONT)
        with pytest.raises(OSError, match="Input/output") as refused:
            os.write(descriptor, b"MINE")
        assert refused.value.errno == errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            os.read(descriptor, 4)
        assert os.pread(taken, 4, 0) == b"ours"  # not by a second opening: its close would let go of the lock
        assert "locks are gone" in store.log("silent").read_text()
        # As with the kernel's client a file that was never locked goes on: whoever holds a lock
        # elsewhere must look at it.
        os.write(journal, b"a zombie's entry")
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(taken)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        assert os.pread(descriptor, 4, 0) == b"ours"
        os.close(descriptor)
        os.close(journal)

    run(scenario())


def test_who_writes_through_an_opening_whose_lock_was_lost_is_told(store, run):
    async def scenario():
        silent, other = await store.host("silent"), await store.host("other")
        held = by_opening(silent.directory / "lock")
        os.write(held, b"mine")
        os.kill(silent.process.pid, signal.SIGSTOP)
        taken = await once_free(other.directory / "lock")
        os.kill(silent.process.pid, signal.SIGCONT)
        with pytest.raises(OSError, match="Input/output"):
            os.write(held, b"MINE")
        os.close(held)
        os.close(taken)

    run(scenario())


def test_a_lock_whose_confirmation_was_given_up_is_held_still(store, run):
    async def scenario():
        a = (await store.host("a", f"soft,{SAFE},timeo=2,retrans=1")).directory
        b = (await store.host("b")).directory
        held = by_opening(a / "lock")
        await store.server.pause()
        with pytest.raises(OSError, match="Input/output error"):
            await asyncio.to_thread(confirm, held)
        store.server.resume()
        while True:  # until it answers again
            with contextlib.suppress(OSError):
                await asyncio.to_thread(os.pwrite, held, b"0", 1)
                break
        for _ in range(20):
            with pytest.raises(BlockingIOError):
                await asyncio.to_thread(by_opening, b / "lock")
        os.close(held)

    run(scenario())


def test_a_restarted_server_gives_locks_back_in_its_grace_and_nothing_written_is_lost(store, run):
    async def scenario():
        # async: what is written is in the server's memory until it is synced, and must be sent
        # again
        a, b = await store.host("a", "hard,noac,lookupcache=none"), await store.host("b")
        process = await lock_writer(a.directory / "lock")
        await store.server.kill()
        (store.server.options.directory / "lock").write_bytes(b"")  # as if its memory had been all there was
        await store.server.start()
        process.stdin.write(b"after\n")
        assert await process.stdout.readline() == b"synced\n"
        assert await asyncio.to_thread(is_locked, b.directory / "lock")
        assert "reclaiming" in store.log("a").read_text()
        assert (b.directory / "lock").read_bytes() == b"before after"
        process.stdin.close()
        assert await process.wait() == 0
        os.close(await asyncio.to_thread(locked, b.directory / "lock", wait=True))

    run(scenario())


@pytest.mark.parametrize("store", [{"lease_s": 120, "grace_s": 120}], indirect=True)
def test_a_host_that_comes_back_does_not_wait_for_the_lease_of_its_former_life(store, run):
    async def scenario():
        before, other = await store.host("a"), await store.host("b")
        holder = await holding(before.directory / "lock")
        os.kill(before.process.pid, signal.SIGKILL)  # the machine crashes, with all its processes
        await before.process.wait()
        holder.kill()
        await holder.wait()
        assert is_locked(other.directory / "lock")
        await before.unmount()
        after = await store.host("a")
        os.close(locked(after.directory / "lock"))

    run(scenario())
