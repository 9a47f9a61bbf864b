"""An administrator gives a queue other limits while the broker serves."""

import asyncio
from dataclasses import replace

import pytest
from engines import settings
from test_limits import LIMIT, fill, limited, message, post, run, texts, urgent

from broker.core.deletion import delete
from broker.core.limit_requests import LimitsRefusedError, update_limits
from broker.core.limits import LimitedQueue

COUNTS = replace(settings(), counts_all=True)
"""The settings of a broker of a conventional cluster, without any limit."""


async def update(broker, queue="q", **given):
    update_limits(broker.engine, queue, {name.replace("_", "-"): value for name, value in given.items()})
    await broker.settle()


@pytest.mark.parametrize("made_of", [COUNTS, limited("FLOW_CONTROL", 100)])
@pytest.mark.parametrize(
    ("behavior", "outcome", "left"),
    [
        ("FLOW_CONTROL", "waits", ["0", "1", "2"]),
        ("REJECT_NEWEST", "refused", ["0", "1", "2"]),
        ("REMOVE_OLDEST", "taken", ["2", "new"]),
        ("REMOVE_LOW_PRIORITY", "taken", ["2", "new"]),
    ],
)
def test_the_next_send_meets_the_new_limit_and_its_behavior(made_of, behavior, outcome, left):
    async def scenario(broker):
        await fill(broker, 3)
        await update(broker, max_messages=2, limit_behavior=behavior)
        assert texts(broker) == ["0", "1", "2"], "what is stored stays"
        assert post(broker, message("new")) == outcome
        await broker.settle()
        assert texts(broker) == left

    run(scenario, made_of)


def test_messages_that_were_there_before_are_removed_by_their_priority():
    async def scenario(broker):
        for text, priority in (("high", 8), ("low", 1), ("middle", 4)):
            post(broker, urgent(text, priority))
            await broker.settle()
        await update(broker, max_messages=3, limit_behavior="REMOVE_LOW_PRIORITY")
        assert post(broker, urgent("new", 5)) == "taken"
        await broker.settle()
        assert texts(broker) == ["high", "middle", "new"]

    run(scenario, COUNTS)


def test_a_send_that_waits_goes_on_when_the_limit_is_raised():
    async def scenario(broker):
        await fill(broker)
        woken = asyncio.Event()
        broker.engine.memory.wait("q", woken.set)
        await broker.settle()
        assert not woken.is_set()
        await update(broker, max_messages=LIMIT + 1)
        assert woken.is_set()
        assert post(broker, message("more")) == "taken"
        assert post(broker, message("too much")) == "waits"

    run(scenario, limited("FLOW_CONTROL"))


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_the_last_limits_hold_after_a_restart(end):
    async def scenario(broker):
        await fill(broker, 2)
        await update(broker, max_messages=1)
        await update(broker, max_messages=3, limit_behavior="REJECT_NEWEST")
        again = await getattr(broker, end)()
        assert post(again, message("third")) == "taken"
        await again.settle()
        assert post(again, message("fourth")) == "refused"
        assert texts(again) == ["0", "1", "third"]
        once_more = await again.restart()
        assert post(once_more, message("fourth")) == "refused"

    run(scenario, COUNTS)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_queue_that_is_deleted_and_made_again_has_the_limits_of_the_configuration(restarts):
    async def scenario(broker):
        await fill(broker, 1)
        await update(broker, max_messages=1)
        assert post(broker, message("waits")) == "waits"
        await delete(broker.engine, "q", remove_messages=True, remove_consumers=True)
        await broker.settle()
        again = await broker.restart() if restarts else broker
        await fill(again, 3)
        assert texts(again) == ["0", "1", "2"]

    run(scenario, COUNTS)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"max_messages": 0}, "max-messages is 0: nobody could send"),
        ({"max_messages": -2}, "max-messages"),
        ({"max_messages": "many"}, "max-messages"),
        ({"max_messages": 1, "limit_behavior": "REMOVE"}, "limit-behavior"),
        ({"limit_behavior": "REJECT_NEWEST"}, "nothing would be limited"),
    ],
)
def test_limits_that_are_none_are_refused_by_name(given, reason):
    async def scenario(broker):
        await fill(broker, 1)
        with pytest.raises(LimitsRefusedError, match=reason):
            await update(broker, **given)
        assert broker.engine.queues["q"].most > 100

    run(scenario, COUNTS)


def test_a_queue_that_does_not_count_is_refused_with_the_remedy():
    async def scenario(broker):
        broker.send("m")
        with pytest.raises(LimitsRefusedError, match="give it some there, and restart the broker"):
            await update(broker, max_messages=1)

    run(scenario, settings())


def test_only_queues_of_clients_are_counted_without_a_limit():
    async def scenario(broker):
        broker.send("m")
        broker.engine.queue("/temp-queue/n1/t")
        assert {name: isinstance(queue, LimitedQueue) for name, queue in broker.engine.queues.items()} == {
            "q": True,
            "/temp-queue/n1/t": False,
        }

    run(scenario, COUNTS)
