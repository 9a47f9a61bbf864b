"""A live says that it is certain only while nobody else can have its lock, by whatever clock."""

import asyncio

import pytest
from shared import LEASE_S, in_world

from broker.policies.ownership.lease import Lease, LeaseLostError


async def lease_on(mount, period_s=0.25):
    loop = asyncio.get_running_loop()
    asked_s = loop.time()
    lock = await mount.try_lock("lock", 1)
    assert lock is not None

    async def verify():
        asked_s = loop.time()
        try:
            await lock.verify()
        except OSError as error:
            raise LeaseLostError(str(error)) from error
        return asked_s

    return Lease("the lock", verify, proven_s=asked_s, period_s=period_s, expiration_s=LEASE_S)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def test_a_confirmed_lock_stays_certain_and_a_silent_store_is_doubted_after_half_the_lease():
    async def main(world, server, mounts):
        lease = await lease_on(mounts["a1"])
        running = asyncio.ensure_future(lease.run())
        said = []
        lease.on_doubt = lambda: said.append(("doubt", asyncio.get_running_loop().time()))
        lease.on_certain = lambda: said.append(("certain", asyncio.get_running_loop().time()))
        await asyncio.sleep(20)
        assert lease.certain()
        assert not said
        mounts["a1"].set_cut(True)
        cut_s = asyncio.get_running_loop().time()
        await until(lambda: said)
        assert said[0][0] == "doubt"
        assert said[0][1] - cut_s <= LEASE_S / 2
        assert not lease.certain()
        with pytest.raises(LeaseLostError):
            lease.require()
        mounts["a1"].set_cut(False)
        await until(lambda: len(said) == 2)
        assert said[1][0] == "certain"
        assert lease.certain()
        running.cancel()

    in_world(main)


def test_a_store_that_stays_silent_ends_the_reign_at_the_end_of_the_lease():
    async def main(world, server, mounts):
        lease = await lease_on(mounts["a1"])
        running = asyncio.ensure_future(lease.run())
        await asyncio.sleep(3)
        server.set_state("stalled")
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(LeaseLostError, match="lock-expiration"):
            await running
        assert LEASE_S * 0.9 <= asyncio.get_running_loop().time() - began_s <= LEASE_S

    in_world(main)


def test_a_lost_lock_ends_the_reign_at_once():
    async def main(world, server, mounts):
        lease = await lease_on(mounts["a1"])
        running = asyncio.ensure_future(lease.run())
        await asyncio.sleep(1)
        server.expire(server.client("a1"))
        with pytest.raises(LeaseLostError, match="EXPIRED"):
            await running
        assert not lease.certain()

    in_world(main)


@pytest.mark.parametrize("rate", [0.5, 0.75, 1.0, 2.0])
def test_whoever_is_certain_has_the_lock_though_its_clock_runs_at_another_speed(rate):
    """Cut off, the live must have stopped being certain by the time the other machine can get
    the lock.
    """

    async def main(world, server, mounts):
        world.clock("a1").rate = rate
        certain = []

        async def broker():
            lease = await lease_on(mounts["a1"])
            certain.append(lease.certain)
            await lease.run()

        process = world.spawn("a1", broker)
        await asyncio.sleep(5)
        assert certain[0]()
        mounts["a1"].set_cut(True)
        while await mounts["a2"].try_lock("lock", 1) is None:
            await asyncio.sleep(0.01)
        assert not certain[0]()
        process.kill()

    in_world(main)


def test_a_process_that_stood_still_is_in_doubt_when_it_goes_on_and_asks_before_it_gives_up():
    async def main(world, server, mounts):
        found = []

        async def broker():
            lease = await lease_on(mounts["a1"])
            lease.on_doubt = lambda: found.append("doubt")
            lease.on_certain = lambda: found.append("certain")
            await lease.run()

        for standing_s in (3, 5, 30):
            process = world.spawn("a1", broker)
            await asyncio.sleep(2)
            process.pause()
            await asyncio.sleep(standing_s)
            assert not found
            process.resume()
            await asyncio.sleep(1)
            assert found == ["doubt", "certain"]
            assert process.state == "running"
            process.kill()
            mounts["a1"].process_ended(world.random("end"))
            await asyncio.sleep(1)
            found.clear()

    in_world(main)
