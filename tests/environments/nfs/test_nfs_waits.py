"""A server that does not answer.

Who waits for it on a real mount, for how long, and what ends the waiting.
"""

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path

import pytest
from nfs_store import SAFE

from filesystems.fuse import device as fuse_device

pytestmark = pytest.mark.nfs


async def writer(path):
    """Another process that writes once for each line it is given, and ends with status 7 as soon
    as it can handle a signal.
    """
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


def test_a_soft_mount_reports_an_error_after_timeo_times_retrans(store, run):
    async def scenario():
        mounted = await store.host("a", f"soft,{SAFE},timeo=10,retrans=3")
        with (mounted.directory / "journal").open("wb", buffering=0) as file:
            file.write(b"1")
            await store.server.pause()
            began = time.monotonic()
            with pytest.raises(OSError, match="Input/output"):
                await asyncio.to_thread(file.write, b"2")
            assert time.monotonic() - began >= 3
            store.server.resume()
            while True:  # until it answers again
                with contextlib.suppress(OSError):
                    file.write(b"3")
                    break
        # The write that was given up may still be carried out, even after the next one: that is the
        # price of soft.
        assert (mounted.directory / "journal").read_bytes() in (b"12", b"13")

    run(scenario())


def test_a_hard_mount_waits_and_goes_on(store, run):
    async def scenario():
        mounted = await store.host("a", f"hard,{SAFE},timeo=2,retrans=2")
        with (mounted.directory / "journal").open("wb", buffering=0) as file:
            await store.server.pause()
            writing = asyncio.create_task(asyncio.to_thread(file.write, b"whole"))
            await store.said("a", "not responding, still trying")
            assert not writing.done()
            store.server.resume()
            assert await writing == 5
            await store.said("a", "OK")
        assert (store.server.options.directory / "journal").read_bytes() == b"whole"

    run(scenario())


def test_intr_lets_a_signal_end_who_waits_and_without_it_only_sigkill_does(store, run):
    async def scenario():
        patient = await store.host("patient", f"hard,{SAFE},timeo=2,retrans=1")
        ready = await store.host("ready", f"hard,intr,{SAFE},timeo=2,retrans=1")
        waiting, _ = writers = [await writer(where.directory / "file") for where in (patient, ready)]
        await store.server.pause()
        for process, descriptor in writers:
            process.stdin.write(b"\n")
            await in_a_call_on(process.pid, descriptor)
            process.send_signal(signal.SIGUSR1)
        assert await process.wait() == 7
        await in_a_call_on(waiting[0].pid, waiting[1])
        waiting[0].kill()
        assert await waiting[0].wait() == -signal.SIGKILL
        store.server.resume()

    run(scenario())


def test_a_mount_whose_server_never_answers_can_be_ended(store, run):
    async def scenario():
        mounted = await store.host("a")
        process, descriptor = await writer(mounted.directory / "file")
        await store.server.pause()
        process.stdin.write(b"\n")
        await in_a_call_on(process.pid, descriptor)
        await mounted.unmount()
        assert await process.wait() != 0
        assert fuse_device.connection(mounted.directory) is None

    run(scenario())
