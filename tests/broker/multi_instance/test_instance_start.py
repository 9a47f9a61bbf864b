"""What an instance becomes.

By which instances run, by what they permit, and however many start at once.
"""

import asyncio

import pytest
from queue_managers import LEASE_S, in_world, outcome

from broker.start_error import StartError


@pytest.mark.parametrize(
    ("active", "standby", "permitted", "becomes"),
    [
        (None, False, True, "active"),
        (None, False, False, "active"),
        ("permits", False, True, "standby"),
        ("permits", False, False, 31),
        ("permits", True, True, 47),
        ("permits", True, False, 31),
        ("alone", False, True, 43),
        ("alone", False, False, 43),
    ],
)
def test_an_instance_has_a_place_or_is_refused_as_documented(active, standby, permitted, becomes):
    async def main(world, server, hosts):
        if active:
            assert await outcome(hosts["one"], hosts["one"].strmqm(permitted=active == "permits")) == "active"
        if standby:
            assert await outcome(hosts["two"], hosts["two"].strmqm()) == "standby"
        three = hosts["three"]
        assert await outcome(three, three.strmqm(permitted=permitted)) == becomes

    in_world(main)


@pytest.mark.parametrize("seed", range(8))
def test_of_instances_that_start_at_once_one_is_active_one_stands_by_and_the_third_is_refused(seed):
    async def main(world, server, hosts):
        starting = [(host, host.strmqm()) for host in hosts.values()]
        became = [await outcome(host, task) for host, task in starting]
        assert sorted(map(str, became)) == ["47", "active", "standby"]

    in_world(main, seed)


@pytest.mark.parametrize("seed", range(8))
def test_whoever_starts_while_the_active_instance_is_lost_never_overtakes_the_standby_one(seed):
    async def main(world, server, hosts):
        one, two = hosts["one"], hosts["two"]
        assert await outcome(one, one.strmqm()) == "active"
        standing_by = two.strmqm()
        assert await outcome(two, standing_by) == "standby"
        server.expire(one.mount.client)  # its machine is lost: so are its locks
        again = one.strmqm()
        assert await outcome(two, standing_by) in ("active", "standby")
        assert await outcome(one, again) == "standby"
        async with asyncio.timeout(5):
            assert await standing_by is not None

    in_world(main, seed)


@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        ("running", "active"),
        ("switched-over", "active"),
        ("ended-normally", "ended"),
        ("ended-immediately", "ended"),
    ],
)
def test_the_standby_instance_takes_over_or_ends_by_how_the_active_one_ended(state, becomes):
    async def main(world, server, hosts):
        one, two, three = hosts.values()
        granted = await one.strmqm()
        await one.run_active(granted)
        standing_by = two.strmqm()
        assert await outcome(two, standing_by) == "standby"
        assert two.beside[-1].instance == "one"
        await one.run_active(granted, state)
        await granted.live.release()
        await asyncio.wait([standing_by], timeout=2)
        assert await outcome(two, standing_by) == becomes
        if becomes == "ended":
            await two.candidate.give_up()
            assert await outcome(three, three.strmqm()) == "active"  # ended is not forbidden

    in_world(main)


def test_a_standby_instance_that_lost_its_place_ends_too_when_the_queue_manager_was_ended_meanwhile():
    async def main(world, server, hosts):
        one, two, _ = hosts.values()
        granted = await one.strmqm()
        await one.run_active(granted)
        standing_by = two.strmqm()
        assert await outcome(two, standing_by) == "standby"
        two.mount.set_cut(True)
        await asyncio.sleep(LEASE_S + 1)
        await one.run_active(granted, "ended-immediately")
        await granted.live.release()
        two.mount.set_cut(False)
        async with asyncio.timeout(5):
            assert await standing_by is None
        assert not server.locks

    in_world(main)


def test_a_standby_instance_whose_place_was_taken_meanwhile_is_refused():
    async def main(world, server, hosts):
        one, two, three = hosts.values()
        await one.run_active(await one.strmqm())
        standing_by = two.strmqm()
        assert await outcome(two, standing_by) == "standby"
        two.mount.set_cut(True)
        await asyncio.sleep(LEASE_S + 1)
        assert await outcome(three, three.strmqm()) == "standby"
        two.mount.set_cut(False)
        await asyncio.wait([standing_by], timeout=2)
        assert await outcome(two, standing_by) == 47

    in_world(main)


def test_data_without_their_logs_make_nobody_active():
    """The two have locks of their own; whoever holds one of them alone must not begin."""

    async def main(world, server, hosts):
        one, two, _ = hosts.values()
        await one.places.create()
        logs = await one.places.take("logs")
        starting = two.strmqm()
        assert await outcome(two, starting) == "waits"
        assert await one.places.held("active") is False
        await logs.release()
        assert await outcome(two, starting) == "active"

    in_world(main)


@pytest.mark.parametrize("user", [(502, 501), (501, 502)])
def test_an_instance_with_other_ids_ends_before_anything_is_changed(user):
    async def main(world, server, hosts):
        one, two, _ = hosts.values()
        await one.run_active(await one.strmqm())
        files = {path: bytes(file.data) for path, file in server.files.items()}
        directories, locks = set(server.directories), dict(server.locks)
        with pytest.raises(
            StartError, match=f"runs as uid {user[0]}, gid {user[1]}: both must have the same"
        ):
            async with asyncio.timeout(5):
                await two.strmqm()
        assert files == {path: bytes(file.data) for path, file in server.files.items()}
        assert (directories, locks) == (server.directories, server.locks)

    in_world(main, users={"two": user})


@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.02, 0.2])
def test_a_start_that_is_given_up_at_any_moment_leaves_no_lock(after_s):
    async def main(world, server, hosts):
        one = hosts["one"]
        starting = one.strmqm()
        await asyncio.sleep(after_s)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().live.release()
        await one.candidate.give_up()
        await asyncio.sleep(0.1)
        assert not server.locks

    in_world(main)


@pytest.mark.parametrize("seed", range(12))
def test_a_lock_that_could_not_be_given_back_is_given_back_later(seed):
    """On a soft mount a request may fail though nothing else does.

    An instance that kept a lock so would be in everybody's way for as long as it runs.
    """

    async def main(world, server, hosts):
        one, two, _ = hosts.values()
        chance = world.random("cuts")
        starting = [(host, host.strmqm()) for host in (one, two)]
        for _ in range(6):
            await asyncio.sleep(chance.uniform(0.001, 0.06))
            host = chance.choice((one, two))
            host.mount.set_cut(True)
            await asyncio.sleep(LEASE_S / 4)
            host.mount.set_cut(False)
        became = [await outcome(host, task, within_s=LEASE_S) for host, task in starting]
        assert sorted(map(str, became)) == ["active", "standby"]

    in_world(main, seed, options="soft,timeo=3,retrans=1")
