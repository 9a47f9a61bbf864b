"""The brokers of a conventional cluster agree about its changes, whatever is lost, and when."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster import change_master
from broker.core.changes import (
    DESTINATION,
    SUBSCRIPTION,
    Change,
    ChangeRefusedError,
    Head,
    RequestId,
    key_of,
    value_of,
)
from broker.core.subscription import Subscription
from stateful.change_world import CALL_TIMEOUT_S, MASTER, MEMBERS, World
from stateful.machines import budget
from stateful.virtual_loop import VirtualLoop

NAMES = (MASTER, *MEMBERS)
brokers = st.sampled_from(NAMES)
members = st.sampled_from(MEMBERS)
keys = st.sampled_from("st")
delays = st.integers(0, 32)
"""Half milliseconds: within them a request is asked, stored, told, applied and answered."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), brokers, keys),
        st.tuples(st.just("unsubscribe"), brokers, keys),
        st.tuples(st.just("create"), brokers, keys),
        st.tuples(st.just("destroy"), brokers, keys),
        st.tuples(st.just("wait"), st.sampled_from([1, 2, 3, 5, 8, 13, 30, 200, 6000])),
        st.tuples(st.just("cut"), members),
        st.tuples(st.just("leave"), members),
        st.tuples(st.just("return"), members),
        st.tuples(st.just("crash"), brokers, st.integers(0, 15)),
        st.tuples(st.just("start"), brokers),
        st.tuples(st.just("set-back"), st.integers(1, 10_000)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.sampled_from(["crash-within", "cut-within"]), brokers, keys, delays, brokers),
    ),
    max_size=25,
)


async def do(world, number, what, which, more=None, delay=0, victim=None):
    broker = world.brokers.get(which)
    if what.endswith("-within"):
        await do(world, number, "subscribe", which, more)
        await asyncio.sleep(delay / 2000)
        if what == "crash-within":
            await do(world, number, "crash", victim, 0)
        elif victim != MASTER:
            await do(world, number, "cut", victim)
    if what == "subscribe":
        wanted = Subscription(f"topic{number}", more, "c", durable=True)
        world.request(which, SUBSCRIPTION, key_of(wanted.key), value_of(wanted))
    elif what == "unsubscribe":
        world.request(which, SUBSCRIPTION, key_of(("", "c", more)), None)
    elif what == "create":
        world.request(which, DESTINATION, more, "")
    elif what == "destroy":
        world.request(which, DESTINATION, more, None)
    elif what == "wait":
        await asyncio.sleep(which / 1000)
    elif what == "cut":
        world.cut(which)
    elif what == "leave":
        world.away.add(which)
        world.cut(which)
    elif what == "return":
        world.away.discard(which)
        world.connect(which)
    elif what == "crash":
        await broker.crash(more)
    elif what == "start" and broker.side is None:
        await broker.start()
        for name in MEMBERS:
            world.connect(name)
    elif what == "set-back":
        world.brokers[MASTER].clock_s -= which
    elif what == "compact" and world.brokers[MASTER].side is not None:
        world.brokers[MASTER].side.compact()


async def run(world, taken):
    for broker in world.brokers.values():
        await broker.start()
    for name in MEMBERS:
        world.connect(name)
    await asyncio.sleep(0.1)
    for number, step in enumerate(taken):
        await do(world, number, *step)
    await world.end()
    for broker in world.brokers.values():
        assert not getattr(broker.side, "problem", ""), broker.side.problem
    views = [broker.entities for broker in world.brokers.values()]
    assert views[0] == views[1] == views[2]
    stored = {change.value for change, _ in world.stored.values()}
    ever = {change.value for change in world.ever}
    for value, linked, life, broker, task in world.requests:
        assert linked or task.result() == "refused", "a request without a master was not refused"
        if not value:
            continue
        assert not task.done() or task.result() is not False, f"{value} was there before it was asked for"
        assert task.done() or broker.life > life, "a request was never answered"
        if task.done() and task.result() is True:
            assert value in stored, f"{value} was confirmed and is lost"
        if task.done() and task.result() == "refused":
            assert value not in ever, f"{value} was refused and is recorded"
    for *_, task in world.requests:
        task.cancel()


def test_drops_are_kept_for_the_brokers_of_the_present_list():
    async def scenario():
        world = World()
        for broker in world.brokers.values():
            await broker.start()
        world.away.add("c1")
        world.connect("b1")
        await asyncio.sleep(0.1)
        for value in ("", None):
            world.request(MASTER, DESTINATION, "q", value)
            await asyncio.sleep(0.1)
        master = world.brokers[MASTER].side
        assert master.compact() == (0, ["c1:1"])
        world.listed.remove("c1:1")
        world.listed.append("d1:1")
        assert master.compact() == (0, ["d1:1"])
        world.listed.remove("d1:1")
        assert master.compact() == (1, [])

    play(scenario)


def play(scenario):
    loop = VirtualLoop()
    try:
        loop.run(scenario())
        assert not loop.complaints, loop.complaints
    finally:
        loop.discard()


async def linked_world():
    world = World()
    for broker in world.brokers.values():
        await broker.start()
    for name in MEMBERS:
        world.connect(name)
    await asyncio.sleep(0.1)
    return world


def test_an_answer_for_the_state_before_a_reset_is_not_taken():
    async def scenario():
        world = await linked_world()
        member = world.brokers["b1"]
        extra = Change("i0", 7, RequestId("x", 1, 1), DESTINATION, "extra", "")
        world.stored[extra.place] = extra, 0
        member.record.take(Head("i0", (), 7), (extra,))
        member.side._want(member.side.feed)
        member.side.reset()
        await asyncio.sleep(0.1)
        assert member.side.feed is not None
        assert not member.entities, "the master lacks it"

    play(scenario)


def test_subscriptions_from_before_the_record_are_proposed_until_all_are_in_it():
    async def scenario():
        world = World()
        for broker in world.brokers.values():
            await broker.start()
        for name in "stu":
            world.brokers["b1"].engine.bind(Subscription("t", name, "c", durable=True))
        world.connect("b1")
        await asyncio.sleep(0.05)
        world.away.add("b1")
        world.cut("b1")
        await asyncio.sleep(2 * CALL_TIMEOUT_S)
        assert 0 < len(world.brokers[MASTER].entities) < 3, "cut in the middle"
        world.away.discard("b1")
        world.connect("b1")
        await asyncio.sleep(1)
        assert len(world.brokers[MASTER].entities) == 3

    play(scenario)


def test_a_destination_that_was_deleted_while_there_was_no_master_is_there_again():
    async def scenario():
        world = await linked_world()
        assert await world.brokers["b1"].side.request(DESTINATION, "q", "")
        for name in (MASTER, "b1"):
            broker = world.brokers[name]
            broker.engine.change([broker.engine.queues["q"]], (), (), ())
            await broker.engine.flushed()
            await broker.crash(0)
            await broker.start()
            assert broker.entities == {(DESTINATION, "q"): (("i0", 1), True)}

    play(scenario)


def test_a_change_that_no_broker_could_apply_is_refused():
    async def scenario():
        world = await linked_world()
        wanted = Subscription("t", "s", "c", durable=True, selector="a = ")
        for bad in (wanted, Subscription("t", "s", "c")):
            with pytest.raises(ChangeRefusedError, match="not "):
                await world.brokers["b1"].side.request(SUBSCRIPTION, key_of(bad.key), value_of(bad))
        assert not world.brokers[MASTER].entities

    play(scenario)


@given(steps, st.sampled_from([0, 1000]))
@budget(60, 1)
def test_all_brokers_agree_in_the_end_and_no_change_comes_before_the_master_has_it(taken, drops_kept):
    loop = VirtualLoop()
    change_master.DROPS_MAX = drops_kept
    try:
        loop.run(run(World(), taken))
        assert not loop.complaints, loop.complaints
    finally:
        loop.discard()
