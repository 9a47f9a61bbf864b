"""Whatever faults come and go, a connection that survives delivers every byte, in order, both
ways.
"""

import asyncio
import contextlib
import random

import pytest
import uvloop
from echo_system import PATIENCE_S, connect, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from environments.link_condition import CLEAR, LinkCondition
from environments.link_proxy import LinkProxy
from harness.interface import Address, Link

THERE, BACK = Link("c1", "a1"), Link("a1", "c1")

CONNECTIONS = 3
STREAM_BYTES = 200_000

conditions = st.one_of(
    st.just(CLEAR),
    st.just(LinkCondition(cut=True)),
    st.builds(
        LinkCondition,
        cut=st.booleans(),
        delay_ms=st.floats(0, 8),
        jitter_ms=st.floats(0, 8),
        rate_bytes_s=st.none() | st.floats(200_000, 10_000_000),
    ),
)
steps = st.lists(
    st.tuples(st.sampled_from([THERE, BACK]), conditions, st.integers(0, 12)), min_size=1, max_size=15
)


async def _pour(writer, data, chance):
    position = 0
    while position < len(data):
        size = chance.choice((1, 7, 100, 4096, 65536))
        writer.write(data[position : position + size])
        position += size
        await writer.drain()
        if chance.random() < 0.1:
            await asyncio.sleep(0)
    writer.write_eof()


async def _scenario(plan, seed, *, resets):
    chance = random.Random(seed)
    proxy = LinkProxy(chance=random.Random(seed))
    accepted = []
    server = await asyncio.start_server(lambda *pair: accepted.append(pair), "127.0.0.1", 0)
    address = await proxy.add_route(THERE, Address(*server.sockets[0].getsockname()))
    clients = []
    for number in range(CONNECTIONS):
        clients.append(await connect(address))
        await until(lambda number=number: len(accepted) > number, "the connection")
    up = [chance.randbytes(STREAM_BYTES) for _ in clients]
    down = [chance.randbytes(STREAM_BYTES) for _ in clients]
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            work = []
            for number in range(CONNECTIONS):
                for (reader, _), (_, writer), data in (
                    (accepted[number], clients[number], up[number]),
                    (clients[number], accepted[number], down[number]),
                ):
                    pouring = group.create_task(_shielded(_pour(writer, data, chance)))
                    work.append((group.create_task(_drink(reader)), pouring, data))
            for link, condition, pause_ms in plan:
                proxy.set_condition(link, condition)
                await asyncio.sleep(pause_ms / 1000)
            if resets:
                proxy.set_condition(THERE, LinkCondition(reset=True))
            for link in (THERE, BACK):
                proxy.set_condition(link, CLEAR)
        for drinking, _, data in work:
            got, complete = drinking.result()
            assert data.startswith(got), "bytes were changed, lost or reordered"
            assert resets or (complete and got == data), f"{len(got)} of {len(data)} bytes arrived"
        await until(
            lambda: not any(line.pipes for line in proxy._lines.values()),
            "the proxy to forget ended connections",
        )
    finally:
        for _, writer in (*clients, *accepted):
            writer.transport.abort()
        await proxy.close()
        server.close()


async def _shielded(work):
    with contextlib.suppress(ConnectionError):
        await work


async def _drink(reader):
    """(what arrived, whether the stream ended properly)"""
    got = bytearray()
    try:
        while piece := await reader.read(65536):
            got += piece
    except ConnectionError:
        return bytes(got), False
    return bytes(got), True


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=steps, seed=st.integers(0, 2**32))
def test_every_byte_arrives_in_order_through_any_faults(plan, seed):
    uvloop.run(_scenario(plan, seed, resets=False))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=steps, seed=st.integers(0, 2**32))
def test_what_arrives_before_a_reset_is_a_prefix(plan, seed):
    uvloop.run(_scenario(plan, seed, resets=True))


@pytest.mark.parametrize("seed", range(3))
def test_the_stock_loop_keeps_order_too(seed):
    plan = [
        (THERE, LinkCondition(cut=True), 5),
        (BACK, LinkCondition(delay_ms=5, jitter_ms=5), 5),
        (THERE, CLEAR, 5),
    ]
    asyncio.run(_scenario(plan, seed, resets=False))
