"""The world's file server does to its clients what NFSv4 does.

Leases, locks, late requests, soft and hard mounts, grace.
"""

import asyncio
import random

import pytest

from environments.simulation import World
from environments.simulation.filestore import FileServer
from environments.simulation.mount import SimulatedMount
from filesystems.nfs.options import parse

LEASE_S = 4.0
GRACE_S = 2.0


def in_world(main, seed=1, options="hard"):
    """Run ``main(server, a1, a2)``: a server and its mounts on two machines."""
    world = World(seed)
    server = FileServer(
        "a", world.scheduler, world.trace, world.random("store"), lease_s=LEASE_S, grace_s=GRACE_S
    )
    mounts = [SimulatedMount(server, name, parse(options), world.random(name)) for name in ("a1", "a2")]
    return world.run(lambda: main(server, *mounts))


async def now():
    return asyncio.get_running_loop().time()


def test_files_are_shared_and_locks_exclude():
    async def main(server, a1, a2):
        await a1.mkdir("journal")
        file = await a1.open("journal/segment")
        file.write(b"one")
        assert await a2.read("journal/segment") == b""
        await file.sync()
        assert await a2.read("journal/segment") == b"one"
        lock = await a1.try_lock("journal/lock", 1)
        assert await a2.try_lock("journal/lock", 1) is None
        assert await a2.try_lock("journal/lock", 2) is not None
        await lock.release()
        assert await a2.try_lock("journal/lock", 1) is not None
        with pytest.raises(BlockingIOError):
            await a1.lock("journal/lock") and await a2.lock("journal/lock")

    in_world(main)


def test_a_connected_client_keeps_its_lock_far_beyond_the_lease():
    async def main(server, a1, a2):
        lock = await a1.try_lock("lock", 1)
        await asyncio.sleep(10 * LEASE_S)
        await lock.verify()
        assert await a2.try_lock("lock", 1) is None

    in_world(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_silent_client_loses_its_lock_when_its_lease_runs_out_and_not_before(seed):
    async def main(server, a1, a2):
        await a1.try_lock("lock", 1)
        a1.set_cut(True)
        began = await now()
        while (lock := await a2.try_lock("lock", 1)) is None:
            await asyncio.sleep(0.05)
        waited = await now() - began
        assert LEASE_S * 2 / 3 <= waited <= LEASE_S + 0.1
        await lock.verify()

    in_world(main, seed)


def test_what_an_expired_client_had_open_or_locked_is_refused_and_what_it_opens_anew_is_not():
    async def main(server, a1, a2):
        file = await a1.open("segment")
        file.write(b"before")
        await file.sync()
        lock = await a1.try_lock("lock", 1)
        a1.set_cut(True)
        file.write(b"late")
        late = asyncio.ensure_future(file.sync())
        await asyncio.sleep(2 * LEASE_S)
        assert not late.done()  # a hard mount waits
        a1.set_cut(False)
        for refused in (late, lock.verify(), lock.write(0, b"L")):
            with pytest.raises(OSError, match="EXPIRED"):
                await refused
        assert await a2.read("segment") == b"before"
        again = await a1.open("segment")
        again.write(b" after")
        await again.sync()
        assert await a2.read("segment") == b"before after"

    in_world(main)


def test_a_name_needs_no_lease_so_a_late_rename_still_happens():
    async def main(server, a1, a2):
        await a1.write_atomic("old", b"data")
        a1.set_cut(True)
        late = asyncio.ensure_future(a1.rename("old", "new"))
        await asyncio.sleep(2 * LEASE_S)
        assert await a2.list("") == ["old"]
        a1.set_cut(False)
        await late
        assert await a2.list("") == ["new"]

    in_world(main)


def test_a_client_that_is_back_in_time_keeps_what_it_had():
    async def main(server, a1, a2):
        lock = await a1.try_lock("lock", 1)
        a1.set_cut(True)
        asking = asyncio.ensure_future(lock.verify())
        await asyncio.sleep(LEASE_S / 2)
        assert not asking.done()
        a1.set_cut(False)
        await asking

    in_world(main)


def test_a_soft_mount_gives_up_after_timeo_times_retrans():
    async def main(server, a1, a2):
        server.set_state("stalled")
        began = await now()
        with pytest.raises(OSError, match="mounted soft"):
            await a1.read("anything")
        assert await now() - began == pytest.approx(0.5 * 3)

    in_world(main, options="soft,timeo=5,retrans=3")


def test_a_stalled_server_does_afterwards_what_was_in_its_socket_though_nobody_waits():
    async def main(server, a1, a2):
        server.set_state("stalled")
        with pytest.raises(OSError, match="mounted soft"):
            await a1.write_atomic("file", b"data")
        server.set_state("up")
        await asyncio.sleep(0.1)
        assert await a2.list("") == ["file.tmp"]  # what it had sent, and not what it would have sent next

    in_world(main, options="soft,timeo=5,retrans=1")


def test_after_a_stall_longer_than_the_lease_locks_are_kept_or_lost_and_never_shared():
    kept = set()
    for seed in range(12):

        async def main(server, a1, a2):
            lock = await a1.try_lock("lock", 1)
            server.set_state("stalled")
            await asyncio.sleep(2 * LEASE_S)
            server.set_state("up")
            other = await a2.try_lock("lock", 1)
            try:
                await lock.verify()
            except OSError:
                assert other is not None
                return False
            assert other is None
            return True

        kept.add(in_world(main, seed))
    assert kept == {True, False}


def test_after_a_restart_what_was_held_is_kept_and_nothing_new_is_had_before_the_grace_is_over():
    async def main(server, a1, a2):
        lock = await a1.try_lock("lock", 1)
        server.set_state("down")
        asking = asyncio.ensure_future(lock.verify())
        await asyncio.sleep(1)
        assert not asking.done()
        server.set_state("up")
        began = await now()
        await asking
        assert await a2.look() == "in grace"
        assert await a2.try_lock("lock", 2) is not None
        assert await now() - began >= GRACE_S
        assert await a2.look() == "answers"
        assert await a2.try_lock("lock", 1) is None

    in_world(main)


def test_who_misses_the_grace_period_has_lost_what_it_held():
    async def main(server, a1, a2):
        lock = await a1.try_lock("lock", 1)
        a1.set_cut(True)
        server.set_state("down")
        server.set_state("up")
        assert await a2.try_lock("lock", 1) is not None
        a1.set_cut(False)
        with pytest.raises(OSError, match="EXPIRED"):
            await lock.verify()

    in_world(main)


def test_the_kernel_of_a_killed_process_unlocks_at_once_and_that_of_a_dead_machine_does_not():
    async def main(server, a1, a2):
        assert await a1.try_lock("lock", 1)
        a1.process_ended(random.Random(1))
        await asyncio.sleep(0.1)
        lock = await a2.try_lock("lock", 1)
        assert lock is not None
        a2.power_lost(random.Random(1))
        await asyncio.sleep(LEASE_S / 2)
        assert await a1.try_lock("lock", 1) is None
        a2.boot()  # with its boot the server learns that nothing is held any more
        assert await a1.try_lock("lock", 1) is not None

    in_world(main)


def test_of_what_a_killed_process_had_not_synced_any_prefix_arrives():
    found = set()
    for seed in range(20):

        async def main(server, a1, a2, seed=seed):
            file = await a1.open("segment")
            file.write(b"abc")
            a1.process_ended(random.Random(seed))
            await asyncio.sleep(0.1)
            return await a2.read("segment")

        found.add(in_world(main, seed))
    assert found == {b"", b"a", b"ab", b"abc"}


def test_a_lock_granted_to_a_call_that_was_given_up_is_not_kept():
    async def main(server, a1, a2):
        server.set_state("stalled")
        asking = asyncio.ensure_future(a1.try_lock("lock", 1))
        await asyncio.sleep(0.1)
        asking.cancel()
        server.set_state("up")
        await asyncio.sleep(0.1)
        assert await a2.try_lock("lock", 1) is not None

    in_world(main)


def test_a_probe_tells_a_server_that_answers_from_one_that_does_not():
    async def main(server, a1, a2):
        assert (await a1.look(), await a1.probe()) == ("answers", "sound")
        server.set_state("stalled")
        assert (await a1.look(), await a1.probe()) == ("silent", "stalled")
        server.set_state("up")
        a1.set_cut(True)
        assert (await a1.look(), await a2.look()) == ("silent", "answers")

    in_world(main)
