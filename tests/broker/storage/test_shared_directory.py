"""What the seam to a shared directory promises, on a real one.

Locks of bytes, kept by the kernel, lost with the file or the process.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from broker.storage.journal import Journal
from broker.storage.shared_directory import SharedDirectoryVolume
from broker.storage.subdirectory import Subdirectory

HOLDER = """
import asyncio, sys
from broker.storage.shared_directory import SharedDirectoryVolume
async def hold():
    lock = await SharedDirectoryVolume(sys.argv[1]).try_lock("server.lock", 1)
    print("held" if lock else "denied", flush=True)
    sys.stdin.read()
asyncio.run(hold())
"""


def on(tmp_path, main):
    async def run():
        volume = SharedDirectoryVolume(tmp_path / "store")
        try:
            return await main(volume)
        finally:
            await volume.close()

    return asyncio.run(run())


@pytest.fixture
def other_process(tmp_path):
    """Another broker's process that holds byte 1."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_byte_is_locked_once_and_its_neighbour_is_free(tmp_path):
    async def main(volume):
        first = await volume.try_lock("server.lock", 1)
        assert first is not None
        assert await volume.try_lock("server.lock", 1) is None
        assert await volume.try_lock("server.lock", 2) is not None
        await first.release()
        await first.release()
        assert await volume.try_lock("server.lock", 1) is not None

    on(tmp_path, main)


def test_another_process_is_denied_until_the_holder_dies(tmp_path, other_process):
    async def main(volume):
        assert await volume.try_lock("server.lock", 1) is None
        other_process.send_signal(signal.SIGKILL)
        other_process.wait()
        assert await volume.try_lock("server.lock", 1) is not None

    on(tmp_path, main)


def test_a_stopped_process_keeps_its_lock(tmp_path, other_process):
    other_process.send_signal(signal.SIGSTOP)

    async def main(volume):
        assert await volume.try_lock("server.lock", 1) is None

    on(tmp_path, main)


def test_reading_the_lock_file_does_not_drop_the_lock(tmp_path):
    """ARTEMIS-2567: with locks of the process, closing any descriptor of the file drops all of
    them.
    """

    async def main(volume):
        lock = await volume.try_lock("server.lock", 1)
        await lock.write(0, b"L")
        assert (await volume.read("server.lock"))[:1] == b"L"
        await lock.verify()
        denied = subprocess.run(
            [sys.executable, "-c", HOLDER, str(tmp_path / "store")],
            input="",
            capture_output=True,
            text=True,
            check=True,
        )
        assert denied.stdout == "denied\n"

    on(tmp_path, main)


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_lock_of_a_file_that_is_gone_is_no_lock(tmp_path, what):
    """AMQ-4705: whoever comes next locks another file."""

    async def main(volume):
        lock = await volume.try_lock("server.lock", 1)
        await lock.verify()
        path = tmp_path / "store" / "server.lock"
        path.unlink()
        if what == "replaced":
            path.write_bytes(b"")
        with pytest.raises(OSError, match="deleted or replaced"):
            await lock.verify()

    on(tmp_path, main)


def test_a_released_lock_can_neither_be_verified_nor_written_under(tmp_path):
    async def main(volume):
        lock = await volume.try_lock("server.lock", 1)
        await lock.release()
        with pytest.raises(OSError, match="released"):
            await lock.verify()
        with pytest.raises(OSError, match="released"):
            await lock.write(0, b"L")

    on(tmp_path, main)


def test_what_is_written_is_in_the_file_after_sync_and_after_close(tmp_path):
    async def main(volume):
        file = await volume.open("segment")
        file.write(b"one ")
        file.write(b"two ")
        assert (tmp_path / "store" / "segment").read_bytes() == b""
        await file.sync()
        assert (tmp_path / "store" / "segment").read_bytes() == b"one two "
        file.write(b"three")
        await file.close()
        await file.close()
        assert await volume.read("segment") == b"one two three"

    on(tmp_path, main)


def test_a_link_is_the_same_file_under_another_name(tmp_path):
    async def main(volume):
        await volume.write_atomic("old", b"data")
        await volume.link("old", "new")
        await volume.remove("old")
        assert await volume.read("new") == b"data"
        with pytest.raises(FileExistsError):
            await volume.link("new", "new")

    on(tmp_path, main)


def test_a_store_that_hangs_blocks_neither_the_loop_nor_the_end_of_the_broker(tmp_path):
    """A hard mount: the call never returns, yet the loop turns and the process can end."""
    hangs, lets_go = threading.Event(), threading.Event()

    def hang():
        hangs.set()
        lets_go.wait()

    async def main(volume):
        stuck = asyncio.ensure_future(volume.call(hang))
        while not hangs.is_set():
            await asyncio.sleep(0.001)
        waiting = asyncio.ensure_future(volume.try_lock("server.lock", 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stuck.done()
        assert not waiting.done()
        waiting.cancel()
        stuck.cancel()

    on(tmp_path, main)
    lets_go.set()


def test_a_lock_granted_to_nobody_is_given_back(tmp_path):
    """Whoever asked was cancelled while the store hung.

    The lock that comes later must not be held for ever.
    """
    lets_go = threading.Event()

    async def main(volume):
        stuck = asyncio.ensure_future(volume.call(lets_go.wait))
        waiting = asyncio.ensure_future(volume.try_lock("server.lock", 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        lets_go.set()
        await stuck
        other = SharedDirectoryVolume(tmp_path / "store")
        while (lock := await other.try_lock("server.lock", 1)) is None:
            await asyncio.sleep(0.001)
        await lock.release()
        await other.close()

    on(tmp_path, main)


def test_an_error_of_the_store_reaches_whoever_waits(tmp_path):
    async def main(volume):
        with pytest.raises(FileNotFoundError):
            await volume.read("nothing")
        with pytest.raises(FileNotFoundError):
            await volume.open("no/such/directory")

    on(tmp_path, main)


def test_the_root_is_made_by_the_first_call_and_not_before(tmp_path):
    """On a mount that hangs, not even making the volume may touch it."""
    volume = SharedDirectoryVolume(tmp_path / "store")
    assert not (tmp_path / "store").exists()

    async def use():
        assert await volume.list(".") == []
        await volume.close()

    asyncio.run(use())
    assert os.path.isdir(tmp_path / "store")  # noqa: PTH112


def test_whether_a_byte_is_held_can_be_seen_without_taking_it(tmp_path, other_process):
    async def main(volume):
        assert await volume.locked("server.lock", 1) is True
        assert await volume.locked("server.lock", 2) is False
        assert await volume.locked("absent.lock", 1) is False
        assert not (tmp_path / "store" / "absent.lock").exists()
        mine = await volume.try_lock("server.lock", 2)
        assert await volume.locked("server.lock", 2) is True  # our own as well
        await mine.verify()
        other_process.kill()
        other_process.wait()
        assert await volume.locked("server.lock", 1) is False

    on(tmp_path, main)


def test_the_owner_of_a_directory_is_told_as_numbers(tmp_path):
    async def main(volume):
        await volume.mkdir("qmgrs/QM1")
        assert await volume.owner("qmgrs/QM1") == volume.ids() == (os.geteuid(), os.getegid())
        with pytest.raises(FileNotFoundError):
            await volume.owner("qmgrs/QM2")

    on(tmp_path, main)


def test_a_part_of_a_shared_directory_is_one_itself_and_the_rest_is_out_of_its_way(tmp_path):
    async def main(volume):
        await volume.mkdir("logs/QM1")
        part = Subdirectory(volume, "logs/QM1")
        journal, recovered = await Journal.open(part, "journal")
        assert recovered.records == []
        await journal.close()
        assert await part.list(".") == ["journal", "journal.lock"]
        assert await volume.list("logs") == ["QM1"]
        lock = await part.try_lock("log.lock", 0)
        assert await volume.locked("logs/QM1/log.lock", 0) is True
        await part.link("journal.lock", "second")
        await part.rename("second", "third")
        assert (await part.exists("second"), await part.exists("third")) == (False, True)
        await lock.release()
        assert await part.owner(".") == await volume.owner("logs/QM1") == part.ids()

    on(tmp_path, main)
