"""A lock that is asked for by a process that is gone, or that was lost with the lease.

Nobody may hold it in the end.
"""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import POSIX, FileState, LockHolder, LockRange, StateLostError
from filesystems.nfs.open_files import OpenFiles
from filesystems.nfs.options import parse
from filesystems.nfs.status import NfsError, NfsStatus

KEY = (POSIX, 7)
BYTE = LockRange(1, 1, ops.WRITE_LOCK)
EXPIRED = NfsError(NfsStatus.EXPIRED, "LOCK")


class Client:
    """The client's part that open files need.

    ``lost`` is done when the lease turns out to be lost.
    """

    def __init__(self):
        self.life = 1
        self.client_id = 1
        self.recovering = None
        self.lost = lambda: asyncio.sleep(0)

    async def recover(self, life, status, *, hard):
        await self.lost()
        self.life += 1

    async def settled(self, *, hard):
        pass

    async def later(self, attempt):
        pass

    async def patiently(self, work):
        return await asyncio.shield(work)


def opened(*ranges):
    """One open file, its holder, and the locks and unlocks that a server would see."""
    client, seen = Client(), []
    files = OpenFiles(client, [], seen.append)
    node = SimpleNamespace(handle=b"h", name=b"server.lock", parent=None, state=None, hidden=False)
    holder = LockHolder(stateid=b"s", ranges=list(ranges))
    node.state = state = FileState(b"", 3, b"o", holders={KEY: holder} if ranges else {})
    return client, files, node, state, holder, seen


def test_what_was_lost_and_let_go_of_meanwhile_is_not_taken_anew():
    async def test():
        client, files, node, state, holder, seen = opened(BYTE)
        tries = []

        async def ask(*_, **__):
            tries.append(1)
            if len(tries) == 1:
                raise EXPIRED

        async def lost():
            holder.stateid, holder.lost = None, True
            await files.unlock(node, state, KEY, BYTE)  # its process has ended

        files._operations.lock, client.lost = ask, lost
        with pytest.raises(StateLostError):
            await files.lock(node, state, KEY, BYTE)
        assert (len(tries), holder.ranges, seen) == (
            1,
            [],
            ["an operation was given up: the lock of this file was lost with the lease"],
        )

    asyncio.run(test())


def test_a_lock_that_nobody_waits_for_any_more_is_let_go_of_before_its_file_is_closed():
    async def test():
        _, files, node, state, _, _ = opened()
        answer, asked, done = asyncio.Event(), asyncio.Event(), []

        async def ask(_, __, holder, ___, **____):
            asked.set()
            await answer.wait()
            holder.stateid = b"s"
            done.append("lock")

        async def unlock(*_):
            done.append("unlock")

        async def close(*_):
            done.append("close")

        files._operations.lock, files._operations.unlock, files._operations.close = ask, unlock, close
        asking = asyncio.create_task(files.lock(node, state, KEY, BYTE))
        await asked.wait()
        asking.cancel()
        closing = asyncio.create_task(files.close(node, state))
        files.forget(state, KEY)
        await asyncio.sleep(0)
        answer.set()
        await closing
        assert dict.fromkeys(done) == dict.fromkeys(["lock", "unlock", "close"])
        assert (done[0], done[-1], state.holders[KEY].ranges) == ("lock", "close", [])
        assert asking.cancelled()

    asyncio.run(test())


def test_a_recovery_leaves_alone_what_was_locked_under_the_new_name_while_it_went_on():
    async def test():
        client, _, node, state, old, _ = opened(BYTE)
        client.client_id, old.client = 2, 1
        new = LockHolder(stateid=b"n", client=2, ranges=[BYTE])
        state.holders[POSIX, 8] = new
        files = OpenFiles(client, [node], lambda _: None)

        async def opened_anew(*_):
            pass

        files._opened_anew = opened_anew
        await files.recover(reclaim=False)
        assert (old.lost, old.stateid) == (True, None)
        assert (new.lost, new.stateid) == (False, b"n")

    asyncio.run(test())


def test_a_file_is_not_lost_because_opening_or_locking_it_overtook_a_read():
    async def test():
        client, files, _, state, _, _ = opened()
        client.recover = lambda *_, **__: asyncio.sleep(0)  # the server knows us
        answers = [NfsError(NfsStatus.OLD_STATEID, "READ"), None]

        async def read():
            if error := answers.pop(0):
                raise error

        await files.surviving(state, read)
        assert (answers, state.lost) == ([], "")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (NfsStatus.SERVERFAULT, pytest.raises(NfsError, match="SERVERFAULT")),
        (NfsStatus.CB_PATH_DOWN, contextlib.nullcontext()),  # which says that it is renewed
    ],
)
def test_a_server_that_does_not_renew_is_not_asked_without_end(status, outcome):
    async def test():
        client = NfsClient("127.0.0.1", 2049, parse("hard"), name="a1", tell=lambda _: None)

        async def call(*_, **__):
            await asyncio.sleep(0)
            raise NfsError(status, "RENEW")

        client.call = call
        with outcome:
            async with asyncio.timeout(10):
                await client.recover(client.life, NfsStatus.BAD_STATEID, hard=True)

    asyncio.run(test())


def test_nothing_is_locked_while_a_recovery_goes_on():
    async def test():
        client = NfsClient("127.0.0.1", 2049, parse("hard"), name="a1", tell=lambda _: None)
        introduced, seen = asyncio.Event(), []

        async def introduce():
            await introduced.wait()
            seen.append("introduced")

        client._introduce = introduce
        files = OpenFiles(client, [], lambda _: None)
        recovery = asyncio.create_task(client.recover(client.life, NfsStatus.EXPIRED, hard=True))
        await asyncio.sleep(0)

        async def action():
            seen.append("locked")

        locking = asyncio.create_task(files.surviving(None, action, hard=True))
        await asyncio.sleep(0)
        introduced.set()
        await asyncio.gather(recovery, locking)
        assert seen == ["introduced", "locked"]

    asyncio.run(test())


def test_who_lost_the_lease_comes_back_as_another_life_and_who_met_a_restarted_server_as_the_same():
    """A server that was late only once may refuse a client and yet keep its locks for as long as
    that renews under its old verifier.
    """

    async def test():
        client = NfsClient("127.0.0.1", 2049, parse("hard"), name="a1", tell=lambda _: None)
        lives = [client._verifier]

        async def introduce():
            lives.append(client._verifier)

        client._introduce = introduce
        await client.recover(client.life, NfsStatus.STALE_CLIENTID, hard=True)
        await client.recover(client.life, NfsStatus.EXPIRED, hard=True)
        await client.recover(client.life, NfsStatus.STALE_STATEID, hard=True)
        first, restarted, lost, again = lives
        assert first == restarted
        assert first != lost
        assert lost == again

    asyncio.run(test())
