"""Whole workloads against scripted brokers.

What is sent is recorded, stops are prompt, drains are complete.
"""

import asyncio
from collections import Counter, defaultdict

import msgspec
import pytest
from stomp_doubles import BOUND_S, UNREACHABLE, Server, in_loop, make_context, shortened, until, well_formed

import workloads.registry
from harness.interface import InfrastructureError, UsageError
from stomp_protocol.frames import Frame
from workloads import destinations, load
from workloads.payload import PRODUCER_SHIFT, Payload, encode
from workloads.placement import pairs_of, seats


async def conduct(context, workload, enough):
    """Run until ``enough``, stop, drain; within bounds."""
    run = asyncio.create_task(workload.run(context))
    try:
        await until(lambda: run.done() or enough(context.recorder))
    finally:
        context.stopping.set()
        async with asyncio.timeout(BOUND_S):
            await run
    well_formed(context.recorder.rows)
    async with asyncio.timeout(BOUND_S):
        await workload.drain(context)
    well_formed(context.recorder.rows)


def messages(rows, f, type):  # noqa: A002
    return [row["message"] for row in rows.of(f, type=type)]


@pytest.mark.parametrize("name", ["groups", "queue"])
@pytest.mark.parametrize("rate", [400.0, 0.0])
def test_everything_sent_is_delivered_and_acknowledged(name, rate):
    @in_loop
    async def run():
        async with Server("a1") as a, Server("b1") as b:
            context = make_context(
                {"a1": a, "b1": b}, rate=rate, producers=4, consumers=4, groups=5, queues=2
            )
            await conduct(
                context, workloads.registry.create(name), lambda rows: rows.types("send").count("ok") > 300
            )
            rows = context.recorder
            sent, delivered = messages(rows, "send", "ok"), messages(rows, "deliver", "ok")
            first = [row["message"] for row in rows.of("deliver") if not row["redelivered"]]
            assert sorted(sent) == sorted(first)
            assert sorted(sent) == sorted(messages(rows, "ack", "ok"))
            digests = {row["message"]: row["digest"] for row in rows.of("send", type="invoke")}
            assert all(digests[row["message"]] == row["digest"] for row in rows.of("deliver"))
            assert context.counters["deliver"] == len(delivered)
            assert context.counters["ok"] == len(rows.of("send", "ack", type="ok"))
            assert not a.stored + b.stored

    run()


@in_loop
async def test_a_lane_counts_from_0_without_gaps_and_has_one_send_under_way():
    async with Server("a1") as a:
        context = make_context({"a1": a}, producers=3, groups=4)
        await conduct(context, workloads.registry.create("groups"), lambda rows: len(rows.of("send")) > 400)
        lanes = defaultdict(list)
        for row in context.recorder.of("send"):
            lanes[row["producer"], row["group"]].append(row)
        assert set(lanes) == {(producer, f"g{group}") for producer in range(3) for group in range(4)}
        for rows in lanes.values():
            assert [row["type"] for row in rows] == ["invoke", "ok"] * (len(rows) // 2)
            assert [row["sequence"] for row in rows[::2]] == list(range(len(rows) // 2))
            assert {row["message"] >> PRODUCER_SHIFT for row in rows} == {rows[0]["producer"]}


@in_loop
async def test_pipeline_lets_a_lane_have_several_processes():
    async with Server("a1") as a:
        held = []
        a.script["SEND"] = lambda peer, frame: held.append((peer, frame))
        context = make_context({"a1": a}, producers=1, groups=1)
        workload = workloads.registry.create("groups", pipeline=5)
        run = asyncio.create_task(workload.run(context))
        await until(lambda: len(held) == 5)
        rows = context.recorder.of("send")
        assert [row["sequence"] for row in rows] == list(range(5))
        assert len({row["process"] for row in rows}) == 5
        context.stopping.set()
        del a.script["SEND"]
        for peer, frame in held:
            a.answer(peer, frame)
        await run
        assert context.recorder.types("send").count("ok") == 5


@in_loop
async def test_a_group_stays_with_its_pair_and_a_message_without_group_has_none():
    async with Server("a1") as a, Server("b1") as b:
        context = make_context({"a1": a, "b1": b}, producers=4, groups=6)
        await conduct(context, workloads.registry.create("groups"), lambda rows: len(rows.of("send")) > 200)
        homes = defaultdict(set)
        producers = defaultdict(set)
        for row in context.recorder.of("send", type="ok"):
            homes[row["group"]].add(row["broker"])
            producers[row["group"]].add(row["producer"])
        assert len(homes) == 6
        assert Counter(broker for brokers in homes.values() for broker in brokers) == {"a1": 3, "b1": 3}
        assert all(len(some) == 2 for some in producers.values())
        context = make_context({"a1": a, "b1": b})
        await conduct(context, workloads.registry.create("queue"), lambda rows: len(rows.of("deliver")) > 50)
        assert not [row for row in context.recorder.rows if "group" in row]


@in_loop
async def test_the_rate_is_kept_and_not_exceeded():
    async with Server("a1") as a:
        context = make_context({"a1": a}, rate=100.0)
        loop = asyncio.get_running_loop()
        times = []
        event = context.recorder.event

        def timed(process, type, f, **columns):  # noqa: A002
            if (type, f) == ("invoke", "send"):
                times.append(loop.time())
            return event(process, type, f, **columns)

        context.recorder.event = timed
        await conduct(context, workloads.registry.create("queue"), lambda _: len(times) >= 100)
        span = times[99] - times[0]
        assert span >= 0.99 - 0.11, "no more than a tenth of a second's worth is sent at once"


@in_loop
async def test_after_info_a_lane_goes_on_with_the_next_number_under_a_new_process():
    async with Server("a1") as a:
        context = make_context({"a1": a}, producers=1, groups=1)
        count = 0

        def lose_the_third(peer, frame):
            nonlocal count
            count += 1
            if count == 3:
                peer.transport.abort()
            else:
                a.answer(peer, frame)

        a.script["SEND"] = lose_the_third
        await conduct(
            context, workloads.registry.create("groups"), lambda rows: rows.types("send").count("ok") > 10
        )
        rows = context.recorder.of("send")
        (unknown,) = [row for row in rows if row["type"] == "info"]
        assert unknown["sequence"] == 2
        assert unknown["broker"] == "a1"
        later = rows[rows.index(unknown) + 1 :]
        assert later[0]["sequence"] == 3
        assert unknown["process"] not in {row["process"] for row in later}
        refused = [row for row in later if row["type"] == "fail"]
        assert all(row["error"] == "not connected" for row in refused)


@in_loop
async def test_what_nobody_answered_is_sent_again_under_its_id_where_that_is_asked_for():
    async with Server("a1") as a:
        context = make_context({"a1": a}, producers=1, groups=1)
        context = msgspec.structs.replace(
            context,
            spec=msgspec.structs.replace(context.spec, send_again=True),
            dialect=msgspec.structs.replace(context.dialect, once_header="once"),
        )
        ids = []

        def lose_the_third(peer, frame):
            ids.append(frame.headers.get("once"))
            if len(ids) == 3:
                peer.transport.abort()
            else:
                a.answer(peer, frame)

        a.script["SEND"] = lose_the_third
        await conduct(
            context, workloads.registry.create("groups"), lambda rows: rows.types("send").count("ok") > 10
        )
        assert ids[2] == ids[3]
        assert len(set(ids)) == len(ids) - 1
        rows = context.recorder.of("send")
        (unknown,) = [row for row in rows if row["type"] == "info"]
        again = [row for row in rows if row["message"] == unknown["message"] and row["type"] == "ok"]
        assert [(row["sequence"], row["digest"]) for row in again] == [(2, unknown["digest"])]


@in_loop
async def test_some_messages_close_their_group_where_that_is_asked_for():
    async with Server("a1") as a:
        context = make_context({"a1": a}, producers=1, groups=2)
        context = msgspec.structs.replace(
            context,
            spec=msgspec.structs.replace(context.spec, close_groups=True),
            dialect=msgspec.structs.replace(context.dialect, closing={"sequence": "-1"}),
        )
        closing = []

        def note(peer, frame):
            closing.append(frame.headers.get("sequence"))
            a.answer(peer, frame)

        a.script["SEND"] = note
        await conduct(
            context, workloads.registry.create("groups"), lambda rows: rows.types("send").count("ok") > 40
        )
        asked = [row.get("value") for row in context.recorder.of("send") if row["type"] == "invoke"]
        assert [told == '{"close": true}' for told in asked] == [one == "-1" for one in closing]
        assert {*asked} == {None, '{"close": true}'}


@in_loop
async def test_a_pair_that_is_gone_shows_as_failing_sends_at_no_more_than_the_rate():
    async with Server("a1") as a:
        context = make_context({"a1": a, "b1": None}, producers=2, groups=2)
        workload = workloads.registry.create("groups")
        with shortened(load, "UP_S", 1.0):
            run = asyncio.create_task(workload.run(context))
            await until(lambda: context.recorder.types("send").count("fail") > 20)
            context.stopping.set()
            await run
        failed = context.recorder.of("send", type="fail")
        assert {row["producer"] for row in failed} == {1}
        assert context.recorder.of("send", type="ok")
        await workload.drain(context)
        assert {row["broker"] for row in context.recorder.of("connect", type="fail")} == {"b1"}
        well_formed(context.recorder.rows)


@in_loop
async def test_at_full_speed_a_pair_that_is_gone_is_not_asked_in_a_circle():
    async with Server("a1") as a:
        context = make_context({"a1": a, "b1": None}, producers=2, groups=2, rate=0.0)
        loop = asyncio.get_running_loop()
        failed_at = []
        event = context.recorder.event

        def timed(process, type, f, **columns):  # noqa: A002
            if (type, f) == ("fail", "send"):
                failed_at.append(loop.time())
            return event(process, type, f, **columns)

        context.recorder.event = timed
        with shortened(load, "UP_S", 1.0):
            run = asyncio.create_task(workloads.registry.create("groups", pipeline=1).run(context))
            await until(lambda: len(failed_at) >= 4)
            assert failed_at[3] - failed_at[0] > 0.2
            context.stopping.set()
            await run


@in_loop
async def test_nobody_to_connect_to_is_the_machines_fault():
    context = make_context({"a1": None})
    with shortened(load, "UP_S", 0.2), pytest.raises(ExceptionGroup) as caught:
        await workloads.registry.create("groups").run(context)
    assert caught.value.subgroup(InfrastructureError)
    assert not context.recorder.of("send")


@in_loop
async def test_clients_of_brokers_that_join_later_are_not_waited_for():
    async with Server("a1") as a:
        context = make_context({"a1": a, "b1": None}, producers=2, groups=2)
        context.joining = {"b1"}
        with shortened(load, "UP_S", 10 * BOUND_S):
            run = asyncio.create_task(workloads.registry.create("groups").run(context))
            await until(lambda: context.recorder.of("send", type="ok"))
            context.stopping.set()
            await run
        assert context.recorder.of("connect", type="fail")


@in_loop
async def test_clients_of_suspended_brokers_are_waited_for():
    context = make_context({"a1": None})
    context.suspended_s = BOUND_S
    addresses = [UNREACHABLE]
    context.resolve = lambda zone, node: addresses[-1]
    with shortened(load, "UP_S", 0.1):
        run = asyncio.create_task(workloads.registry.create("groups").run(context))
        await asyncio.sleep(0.3)
        assert not context.recorder.of("send")
        async with Server("a1") as server:
            addresses.append(server.address)
            await until(lambda: context.recorder.of("send", type="ok"))
            context.stopping.set()
            await run


@in_loop
async def test_consumers_leave_and_return_but_never_the_last():
    async with Server("a1") as a:
        context = make_context({"a1": a}, consumers=3)
        least = []
        a_dispatch = a.dispatch

        def watch():
            a_dispatch()
            if context.recorder.of("send", type="ok") and not context.stopping.is_set():
                least.append(sum(bool(peer.subscriptions) for peer in a.peers))

        a.dispatch = watch
        with shortened(load, "PRESENT_S", (0.01, 0.05)), shortened(load, "AWAY_S", (0.01, 0.02)):
            await conduct(
                context,
                workloads.registry.create("groups"),
                lambda rows: len(rows.of("unsubscribe", type="ok")) >= 3 and len(rows.of("disconnect")) >= 3,
            )
        rows = context.recorder
        assert min(least) >= 1
        assert len({row["session"] for row in rows.of("subscribe", type="ok")}) == len(
            rows.of("subscribe", type="ok")
        )
        ends = [row["session"] for row in rows.of("disconnect") + rows.of("unsubscribe", type="ok")]
        assert sorted(ends) == sorted(row["session"] for row in rows.of("subscribe", type="ok"))


@in_loop
async def test_the_drain_takes_what_the_load_left_and_what_comes_late():
    async with Server("a1") as a:
        a.deliver = False
        context = make_context({"a1": a})
        workload = workloads.registry.create("queue")
        run = asyncio.create_task(workload.run(context))
        await until(lambda: context.recorder.types("send").count("ok") >= 20)
        context.stopping.set()
        await run
        assert not context.recorder.of("deliver")
        a.deliver = True
        late = a.stored.pop()

        def bring_late(peer, frame):
            a.answer(peer, frame)
            if late not in a.stored and not a.unacknowledged:
                a.stored.append(late)
                del a.script["ACK"]
                a.dispatch()

        a.script["ACK"] = bring_late
        await workload.drain(context)
        assert sorted(messages(context.recorder, "deliver", "ok")) == sorted(
            messages(context.recorder, "send", "ok")
        )
        well_formed(context.recorder.rows)


@in_loop
async def test_the_drain_waits_for_brokers_that_believe_in_a_dead_connection():
    async with Server("a1") as a:
        context = make_context({"a1": a})
        workload = workloads.registry.create("queue")
        loop = asyncio.get_running_loop()
        workload._unclean_at = loop.time()
        await workload.drain(context)
        assert loop.time() - workload._unclean_at >= 3.0


@in_loop
async def test_the_drain_waits_for_a_pair_that_comes_back_within_the_recovery_bound():
    async with Server("a1") as a:
        a.stored.append(Frame("SEND", {"destination": "/queue/q0"}, encode(Payload(1, "q0", None, 0, 0))))
        a.refuse = True
        context = make_context({"a1": a}, recovery_bound_s=BOUND_S)
        drain = asyncio.create_task(workloads.registry.create("queue").drain(context))
        await until(lambda: len(context.recorder.of("connect", type="fail")) >= 3)
        a.refuse = False
        await asyncio.wait_for(drain, BOUND_S)
        assert messages(context.recorder, "ack", "ok") == [1]


@in_loop
async def test_the_drain_waits_for_its_acknowledgements():
    async with Server("a1") as a:
        a.stored.append(Frame("SEND", {"destination": "/queue/q0"}, encode(Payload(1, "q0", None, 0, 0))))
        loop = asyncio.get_running_loop()
        a.script["ACK"] = lambda peer, frame: loop.call_later(0.4, a.answer, peer, frame)
        context = make_context({"a1": a}, quiet_period_s=0.1)
        await workloads.registry.create("queue").drain(context)
        order = [(row["f"], row["type"]) for row in context.recorder.of("ack", "unsubscribe")]
        assert order == [("ack", "invoke"), ("ack", "ok"), ("unsubscribe", "invoke"), ("unsubscribe", "ok")]


@in_loop
async def test_the_only_consumer_that_is_attached_does_not_leave():
    looks, left = [], []

    class Idle:
        def __init__(self, *, attached):
            self.attached = self
            self.is_attached = attached

        def is_set(self):
            looks.append(self)
            return self.is_attached

        async def run(self):
            await asyncio.Event().wait()

        async def leave(self, style):
            left.append(style)

    churn = load.Churn([Idle(attached=True), Idle(attached=False)], 1)
    with shortened(load, "PRESENT_S", (0.001, 0.002)):
        async with asyncio.TaskGroup() as group:
            churn.begin(group)
            churning = group.create_task(churn.run())
            await until(lambda: len(looks) > 20)
            churning.cancel()
            assert left == []
            await churn.end()
    assert left == ["unsubscribe"] * 2


@in_loop
async def test_consumers_that_are_renewed_while_they_leave_all_leave_in_the_end():
    class Guest:
        def __init__(self):
            self.attached = asyncio.Event()
            self.stays = 0

        async def run(self):
            self.stays += 1
            self.attached.set()
            await asyncio.Event().wait()

        async def leave(self, style):
            self.attached.clear()
            await asyncio.sleep(0.002)
            self.attached.set()  # its connection was lost and made again meanwhile
            await asyncio.sleep(0.002)

    guests = [Guest(), Guest()]
    churn = destinations.Absences(guests, 1)
    with (
        shortened(destinations, "PRESENT_S", (0.001, 0.002)),
        shortened(destinations, "AWAY_S", (0.001, 0.002)),
    ):
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            churn.begin(group)
            churning = group.create_task(churn.run())
            while sum(guest.stays for guest in guests) < 100:
                await churn.renew()
                await asyncio.sleep(0.001)
            churning.cancel()
            await asyncio.wait([churning])
            await churn.end()


@in_loop
async def test_stopping_during_the_start_ends_the_run():
    context = make_context({"a1": None})
    context.stopping.set()
    async with asyncio.timeout(BOUND_S):
        await workloads.registry.create("queue").run(context)
    well_formed(context.recorder.rows)


@in_loop
async def test_operations_without_an_answer_are_completed_when_the_load_ends():
    async with Server("a1") as a:
        a.script["SEND"] = lambda *_: None
        context = make_context({"a1": a}, operation_timeout_s=0.5)
        await conduct(context, workloads.registry.create("queue"), lambda rows: len(rows.of("send")) > 3)
        assert set(context.recorder.types("send")) == {"invoke", "info"}


def test_the_same_seed_gives_the_same_clients():
    def plan(seed):
        async def staff():
            context = make_context({"a1": None, "b1": None}, seed=seed, zones=("c1", "c2"), producers=5)
            pairs = workloads.registry.create("groups")._staff(context, full_speed=False)
            return [
                (producer.number, client.zone, client._chance.random())
                for pair in pairs
                for producer, client in pair.producers
            ] + [consumer._random.random() for pair in pairs for consumer in pair.consumers]

        return asyncio.run(staff())

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_every_pair_has_clients_in_every_zone_when_there_are_enough():
    async def staff():
        context = make_context(
            {"a1": None, "b1": None, "c1": None}, zones=("c1", "c2"), producers=6, consumers=6
        )
        pairs = workloads.registry.create("groups")._staff(context, full_speed=False)
        return [
            ({client.zone for _, client in pair.producers}, {consumer.zone for consumer in pair.consumers})
            for pair in pairs
        ]

    assert asyncio.run(staff()) == [({"c1", "c2"}, {"c1", "c2"})] * 3


@pytest.mark.parametrize(("wanted", "pairs"), [(0, 3), (1, 3), (3, 3), (8, 3), (5, 1)])
def test_no_pair_is_without_a_client(wanted, pairs):
    staff = list(seats(wanted, {str(pair): ("node",) for pair in range(pairs)}, ("c1", "c2")))
    assert {seat.place for seat in staff} == set(range(pairs))
    assert {seat.pair for seat in staff} == set(map(str, range(pairs)))
    assert [seat.number for seat in staff] == list(range(max(wanted, pairs)))


def test_masters_are_asked_first():
    context = None

    async def make():
        nonlocal context
        context = make_context({"a2": None, "a1": None, "b1": None})

    asyncio.run(make())
    assert pairs_of(context.nodes) == {"a": ("a1", "a2"), "b": ("b1",)}


def test_an_unknown_workload_is_told_with_the_near_one():
    with pytest.raises(UsageError, match='unknown workload "group": did you mean "groups"'):
        workloads.registry.create("group")
    with pytest.raises(UsageError, match="known: bank, destinations, groups, mixed, queue"):
        workloads.registry.create("xyz")


def test_every_workload_has_a_line_about_it():
    queues = {"bank", "groups", "queue", "refusals", "request-reply", "selectors", "transactions"}
    known = queues | {"destinations", "subscriptions"}
    assert set(workloads.registry.WORKLOADS) == known
    lines = [kind.description for kind in workloads.registry.WORKLOADS.values()]
    assert all("\n" not in line and line for line in lines)
