"""Who may take a live lock that is free.

By what the last live left, by role, and by who else waits.
"""

import asyncio

import pytest
from shared import in_world

from broker.ha_policy import SharedStoreMaster, SharedStoreSlave
from broker.policies.shared_store import lockfile
from broker.policies.shared_store.candidate import StoreCandidate
from broker.policies.shared_store.lockfile import LockFile, StoreMark

MASTER = SharedStoreMaster(lock_poll_period=100)
SLAVE = SharedStoreSlave(lock_poll_period=100)
NODE_ID = "41c7157e-8ae5-5545-b0b5-dbe72403a0dc"


def candidate(mount, section, name):
    return StoreCandidate(LockFile(mount), section, name, lambda mark: None)


async def left_behind(mount, state, name):
    """A live of that name was here and left the store so."""
    file = LockFile(mount)
    await file.prepare()
    lock = await file.take("live")
    if state != lockfile.NOT_STARTED:
        await file.begin(lock, NODE_ID, name)
        await file.leave(lock, state)
    await lock.release()


async def granted_within(waiting, seconds):
    done, _ = await asyncio.wait([waiting], timeout=seconds)
    return waiting.result() if done else None


@pytest.mark.parametrize(
    ("state", "last", "section", "takes"),
    [
        (lockfile.LIVE, "a1", SLAVE, True),
        (lockfile.PAUSED, "a1", SLAVE, False),
        (lockfile.PAUSED, "a2", SLAVE, True),
        (lockfile.FAILING_BACK, "a1", SLAVE, True),
        (lockfile.NOT_STARTED, "", SLAVE, False),
        (lockfile.LIVE, "a1", MASTER, True),
        (lockfile.PAUSED, "a1", MASTER, True),
        (lockfile.PAUSED, "a3", MASTER, True),
        (lockfile.FAILING_BACK, "a3", MASTER, True),
        (lockfile.NOT_STARTED, "", MASTER, True),
    ],
)
def test_a_broker_that_starts_takes_a_free_lock_by_what_was_left(state, last, section, takes):
    async def main(world, server, mounts):
        await left_behind(mounts["a1"], state, last)
        waiting = asyncio.ensure_future(candidate(mounts["a2"], section, "a2").run())
        granted = await granted_within(waiting, 2)
        assert (granted is not None) is takes
        if granted:
            await granted.live.verify()
            assert await LockFile(mounts["a1"]).take("live") is None
        waiting.cancel()

    in_world(main)


def test_a_master_that_waited_respects_that_the_live_was_stopped_on_purpose():
    """17.3.2.2: the slave's failover-on-shutdown decides whether the original live becomes live."""

    async def main(world, server, mounts):
        file = LockFile(mounts["a2"])
        await file.prepare()
        lock = await file.take("live")
        await file.begin(lock, NODE_ID, "a2")
        waiting = asyncio.ensure_future(candidate(mounts["a1"], MASTER, "a1").run())
        assert await granted_within(waiting, 1) is None
        await file.leave(lock, lockfile.PAUSED)
        await lock.release()
        assert await granted_within(waiting, 2) is None
        back = asyncio.ensure_future(candidate(mounts["a2"], SLAVE, "a2").run())
        assert (
            await granted_within(back, 2) is not None
        )  # whoever was stopped is live again once it is started
        waiting.cancel()

    in_world(main)


def test_a_backup_that_looks_is_not_taken_for_a_live():
    """Backups take the lock for a moment to read the state.

    A starting master that meets one must not believe in a live.
    """

    async def main(world, server, mounts):
        await left_behind(mounts["a1"], lockfile.PAUSED, "a1")
        peeking = await LockFile(mounts["a2"]).take("live")
        waiting = asyncio.ensure_future(candidate(mounts["a1"], MASTER, "a1").run())
        assert await granted_within(waiting, 1) is None
        await peeking.release()
        assert await granted_within(waiting, 1) is not None

    in_world(main)


def test_while_a_master_waits_failing_back_is_left_to_it_and_after_its_death_it_is_not():
    async def main(world, server, mounts):
        await left_behind(mounts["a2"], lockfile.FAILING_BACK, "a2")
        master = await LockFile(mounts["a1"]).take("master")
        waiting = asyncio.ensure_future(candidate(mounts["a2"], SLAVE, "a2").run())
        assert await granted_within(waiting, 2) is None
        await master.release()
        assert await granted_within(waiting, 2) is not None

    in_world(main)


def test_one_backup_is_next_and_another_moves_up_when_it_is_gone():
    async def main(world, server, mounts):
        file = LockFile(mounts["a1"])
        await file.prepare()
        live = await file.take("live")
        await file.begin(live, NODE_ID, "a1")
        first, second = candidate(mounts["a2"], SLAVE, "a2"), candidate(mounts["a3"], SLAVE, "a3")
        one = asyncio.ensure_future(first.run())
        await asyncio.sleep(1)
        two = asyncio.ensure_future(second.run())
        await asyncio.sleep(1)
        assert (first.next_in_line, second.next_in_line) == (True, False)
        one.cancel()
        await first.give_up()
        await asyncio.sleep(1)
        assert (first.next_in_line, second.next_in_line) == (False, True)
        await live.release()
        assert await granted_within(two, 1) is not None

    in_world(main, machines=("a1", "a2", "a3"))


def test_who_was_stopped_on_purpose_comes_back_past_a_backup_that_stays_passive_for_its_sake():
    async def main(world, server, mounts):
        await left_behind(mounts["a2"], lockfile.PAUSED, "a2")
        passive = asyncio.ensure_future(candidate(mounts["a3"], SLAVE, "a3").run())
        assert await granted_within(passive, 1) is None
        back = asyncio.ensure_future(candidate(mounts["a2"], SLAVE, "a2").run())
        assert await granted_within(back, 2) is not None
        passive.cancel()

    in_world(main, machines=("a1", "a2", "a3"))


def test_a_store_that_cannot_be_reached_is_asked_again():
    async def main(world, server, mounts):
        await left_behind(mounts["a1"], lockfile.LIVE, "a1")
        refusals = iter([OSError(5, "input/output error")] * 3)
        take = mounts["a2"].try_lock

        async def reluctant(path, offset):
            for error in refusals:
                raise error
            return await take(path, offset)

        mounts["a2"].try_lock = reluctant
        waiting = asyncio.ensure_future(candidate(mounts["a2"], SLAVE, "a2").run())
        assert await granted_within(waiting, 2) is not None

    in_world(main)


def test_a_lock_that_was_granted_late_is_confirmed_by_a_fresh_answer():
    """The request waited in a stalled server: what it proves is older than a lease."""

    async def main(world, server, mounts):
        await left_behind(mounts["a1"], lockfile.LIVE, "a1")
        server.set_state("stalled")
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(candidate(mounts["a2"], SLAVE, "a2").run())
        await asyncio.sleep(30)
        server.set_state("up")
        granted = await granted_within(waiting, 2)
        assert loop.time() - granted.asked_s < 2

    in_world(main)


def test_the_lock_file_says_who_was_live_and_as_which_node():
    async def main(world, server, mounts):
        file = LockFile(mounts["a1"])
        await file.prepare()
        assert await file.read() == StoreMark("", None, "")
        lock = await file.take("live")
        await file.begin(lock, NODE_ID, "ä" * 32)
        assert await LockFile(mounts["a2"]).read() == StoreMark("L", NODE_ID, "ä" * 32)
        await file.begin(lock, NODE_ID, "b")
        await file.leave(lock, lockfile.PAUSED)
        assert await file.read() == StoreMark("P", NODE_ID, "b")
        data = await mounts["a2"].read(lockfile.PATH)
        assert data[:1] == b"P"
        assert data[3:19].hex() == NODE_ID.replace("-", "")  # where Artemis has them

    in_world(main)


@pytest.mark.parametrize("seed", range(6))
def test_a_place_that_was_not_confirmed_once_is_not_lost_for_good(seed):
    """On a soft mount a question may fail though the lock is held.

    Whoever forgets it then waits behind itself, for ever.
    """

    async def main(world, server, mounts):
        await left_behind(mounts["a1"], lockfile.LIVE, "a1")
        live = await LockFile(mounts["a1"]).take("live")
        chance = world.random("cuts")
        backup = candidate(mounts["a2"], SLAVE, "a2")
        waiting = asyncio.ensure_future(backup.run())
        for _ in range(20):
            await asyncio.sleep(chance.uniform(0.001, 0.11))
            mounts["a2"].set_cut(True)
            await asyncio.sleep(1)  # less than the lease
            mounts["a2"].set_cut(False)
        await asyncio.sleep(1)
        assert backup.next_in_line
        await live.release()
        assert await granted_within(waiting, 2) is not None

    in_world(main, seed, options="soft,timeo=3,retrans=1")
