"""A stream of a world gives its bytes in order, whole and once, whatever happens on the way.

Or a reset cuts off its end.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.simulation import LinkCondition, World
from environments.simulation.pipe import WINDOW_BYTES
from harness.interface import Link

THERE, BACK = Link("harness", "a1"), Link("a1", "harness")
PORT = 7
VIRTUAL_S = 8


BLOCK = random.Random(1).randbytes(10_007)
"""Of a length that no buffer has."""


def pattern(size, offset=0):
    """A part of an endless text in which each place differs from its neighbours."""
    start = offset % len(BLOCK)
    return (BLOCK * (size // len(BLOCK) + 2))[start : start + size]


class End(asyncio.Protocol):
    """One end of a stream, which keeps what it received, and holds its writes while it is told
    to.
    """

    def __init__(self):
        self.received = bytearray()
        self.arrivals = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.paused_writing = 0
        self.ended = False
        self.lost = None
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data

    def eof_received(self):
        self.ended = True
        return True

    def pause_writing(self):
        self.paused_writing += 1
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    def connection_lost(self, error):
        self.lost = error
        self.writable.set()
        if not self.over.done():
            self.over.set_result(error)

    async def write_all(self, writes, sent):
        """Write (after how many seconds, how many bytes) with flow control.

        Tell what was written.
        """
        for after_s, size in writes:
            await asyncio.sleep(after_s)
            await self.writable.wait()
            if self.transport.is_closing():
                return
            data = pattern(size, len(sent))
            sent += data
            self.transport.write(data)


@dataclass
class Pair:
    """A connection from the harness to a1."""

    world: World
    near: End = None
    far: End = None
    process: object = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    from_far: bytearray = field(default_factory=bytearray)

    async def connect(self, far_writes=()):
        async def node():
            def accept():
                self.far = End()
                return self.far

            await asyncio.get_running_loop().create_server(accept, "a1", PORT)
            self.ready.set()
            await self.go.wait()
            await self.far.write_all(far_writes, self.from_far)
            await asyncio.Event().wait()

        self.process = self.world.spawn("a1", node)
        await self.ready.wait()
        _, self.near = await asyncio.get_running_loop().create_connection(End, "a1", PORT)
        self.go.set()
        await asyncio.sleep(0.01)
        return self


def in_world(main, seed=1, **options):
    world = World(seed, **options)
    return world.run(lambda: main(world))


seconds = st.floats(0, VIRTUAL_S / 2, allow_nan=False).map(lambda s: round(s, 4))
writes = st.lists(
    st.tuples(
        st.floats(0, 0.5).map(lambda s: round(s, 4)), st.sampled_from([1, 2, 100, 1460, 70_000, 300_000])
    ),
    max_size=8,
)
conditions = st.builds(
    LinkCondition,
    cut=st.booleans(),
    delay_ms=st.sampled_from([0, 1, 50, 700]),
    jitter_ms=st.sampled_from([0, 5, 300]),
    rate_bytes_s=st.sampled_from([None, 500_000, 5_000_000]),
    loss=st.sampled_from([0, 0.1, 0.6]),
)
faults = st.lists(
    st.one_of(
        st.tuples(st.just("link"), seconds, seconds, st.sampled_from([THERE, BACK]), conditions),
        st.tuples(st.just("pause"), seconds, seconds, st.none(), st.none()),
        st.tuples(st.just("stop reading"), seconds, seconds, st.sampled_from(["near", "far"]), st.none()),
    ),
    max_size=6,
)


async def break_it(pair, fault):
    kind, start_s, duration_s, where, condition = fault
    await asyncio.sleep(start_s)
    if kind == "link":
        pair.world.network.apply(where, condition)
        await asyncio.sleep(duration_s)
        pair.world.network.apply(where, LinkCondition())
    elif kind == "pause":
        pair.process.pause()
        await asyncio.sleep(duration_s)
        pair.process.resume()
    else:
        transport = getattr(pair, where).transport
        transport.pause_reading()
        await asyncio.sleep(duration_s)
        transport.resume_reading()


@given(seed=st.integers(0, 1000), there=writes, back=writes, plan=faults)
def test_bytes_arrive_in_order_whole_and_once_under_cuts_delays_pauses_and_flow_control(
    seed, there, back, plan
):
    async def main(world):
        pair, sent = await Pair(world).connect(back), bytearray()
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.near.write_all(there, sent))
            for fault in plan:
                group.create_task(break_it(pair, fault))
        world.network.apply(THERE, LinkCondition())
        world.network.apply(BACK, LinkCondition())
        pair.process.resume()
        pair.near.transport.resume_reading()
        pair.far.transport.resume_reading()
        pair.near.transport.write_eof()
        await asyncio.sleep(60)
        assert bytes(pair.far.received) == bytes(sent)
        assert bytes(pair.near.received) == bytes(pair.from_far)
        assert len(pair.from_far) == sum(size for _, size in back)
        assert pair.far.ended
        assert pair.near.lost is pair.far.lost is None

    in_world(main, seed)


cuts = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.001, 2)), min_size=1, max_size=5)


@given(seed=st.integers(0, 1000), there=writes, plan=cuts, link=st.sampled_from([THERE, BACK]))
def test_nothing_arrives_across_a_cut_before_it_heals(seed, there, plan, link):
    intervals = []

    async def main(world):
        pair, sent = await Pair(world).connect(there), bytearray()
        writing = asyncio.create_task(pair.near.write_all(there, sent))
        for after_s, duration_s in plan:
            await asyncio.sleep(after_s)
            world.network.apply(link, LinkCondition(cut=True))
            began = world.now_ns
            await asyncio.sleep(duration_s)
            intervals.append((began, world.now_ns))
            world.network.apply(link, LinkCondition())
        await writing
        await asyncio.sleep(30)
        assert bytes(pair.far.received) == bytes(sent)
        assert bytes(pair.near.received) == bytes(pair.from_far)
        return [
            event.at_ns for event in world.trace.events if event.size and event.node.startswith(link.target)
        ]

    for at_ns in in_world(main, seed, record=True):
        assert not any(began < at_ns < healed for began, healed in intervals)


@given(
    seed=st.integers(0, 1000),
    there=writes,
    back=writes,
    after_s=seconds,
    how=st.sampled_from(["link", "kill", "abort", "power"]),
)
def test_a_broken_connection_loses_only_the_end_of_its_stream(seed, there, back, after_s, how):
    async def main(world):
        pair, sent = await Pair(world).connect(back), bytearray()
        writing = asyncio.create_task(pair.near.write_all(there, sent))
        await asyncio.sleep(after_s)
        if how == "link":
            world.network.apply(THERE, LinkCondition(reset=True))
            await asyncio.sleep(0)
        elif how == "kill":
            pair.process.kill()
        elif how == "power":
            pair.process.lose_power()
        else:
            pair.near.transport.abort()
        await writing  # who waits for a machine without power gives up after a quarter of an hour
        await asyncio.sleep(60)
        assert bytes(sent).startswith(bytes(pair.far.received))
        assert bytes(pair.from_far).startswith(bytes(pair.near.received))
        if how == "link":
            assert isinstance(pair.near.lost, ConnectionResetError)
            assert isinstance(pair.far.lost, ConnectionResetError)
        if how == "abort":
            assert pair.near.lost is None
            assert pair.far.ended or isinstance(pair.far.lost, ConnectionResetError)

    in_world(main, seed)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_what_was_written_before_a_close_arrives(seed, sizes):
    async def main(world):
        pair, sent = await Pair(world).connect(), bytearray()
        await pair.near.write_all([(0, size) for size in sizes], sent)
        pair.near.transport.close()
        await asyncio.sleep(5)
        assert bytes(pair.far.received) == bytes(sent)
        assert pair.far.ended

    in_world(main, seed)


def test_a_receiver_that_does_not_read_stops_the_sender_and_no_byte_is_lost():
    async def main(world):
        pair = await Pair(world).connect()
        pair.far.transport.pause_reading()
        size = 2 * WINDOW_BYTES
        pair.near.transport.write(pattern(size))
        assert pair.near.paused_writing == 1
        assert pair.near.transport.get_write_buffer_size() == WINDOW_BYTES
        await asyncio.sleep(10)
        assert not pair.near.writable.is_set()
        assert not pair.far.received
        pair.far.transport.resume_reading()
        await asyncio.sleep(1)
        assert pair.near.writable.is_set()
        assert pair.near.transport.get_write_buffer_size() == 0
        assert bytes(pair.far.received) == pattern(size)

    in_world(main)


def test_acknowledgements_travel_back_over_the_other_direction():
    async def main(world):
        pair = await Pair(world).connect()
        world.network.apply(BACK, LinkCondition(cut=True))
        size = 3 * WINDOW_BYTES
        pair.near.transport.write(pattern(size))
        await asyncio.sleep(10)
        assert len(pair.far.received) == WINDOW_BYTES
        world.network.apply(BACK, LinkCondition())
        await asyncio.sleep(10)
        assert bytes(pair.far.received) == pattern(size)

    in_world(main)


def test_writes_of_one_step_arrive_together():
    async def main(world):
        pair = await Pair(world).connect()
        for number in range(50):
            pair.near.transport.write(b"%d," % number)
        await asyncio.sleep(1)
        return [event for event in world.trace.events if event.size]

    assert (
        sum(len(in_world(main, seed, record=True)) for seed in range(20)) <= 20 + 5
    )  # a few are split on purpose


def test_a_stream_keeps_no_boundaries():
    async def main(world):
        pair = await Pair(world).connect()
        for _ in range(300):
            pair.near.transport.write(b"one message")
            await asyncio.sleep(0.01)
        return {event.size for event in world.trace.events if event.size}

    assert len(in_world(main, record=True)) > 3


def test_a_stream_writer_and_reader_work_as_on_a_real_network():
    async def main(world):
        async def node():
            async def serve(reader, writer):
                async for line in reader:
                    writer.write(line.upper())
                    await writer.drain()
                writer.write(b"END")
                writer.close()
                await writer.wait_closed()

            async with await asyncio.start_server(serve, "a1", PORT) as server:
                assert server.sockets[0].getsockname() == ("a1", PORT)
                await server.serve_forever()

        world.spawn("a1", node)
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("a1", PORT)
        assert writer.get_extra_info("peername") == ("a1", PORT)
        assert writer.get_extra_info("socket") is None
        writer.writelines([b"one\n", b"two\n"])
        assert await reader.readline() == b"ONE\n"
        writer.write_eof()
        assert await reader.read() == b"TWO\nEND"
        writer.close()
        await writer.wait_closed()

    in_world(main)


def test_writing_to_a_closed_peer_ends_in_a_reset():
    async def main(world):
        pair = await Pair(world).connect()
        pair.far.transport.close()
        await asyncio.sleep(1)
        assert pair.near.ended  # half open: the other side will not write, and does not read either
        pair.near.transport.write(b"too late")
        await asyncio.sleep(1)
        assert isinstance(pair.near.lost, ConnectionResetError)

    in_world(main)


def test_a_close_with_unread_bytes_resets():
    async def main(world):
        pair = await Pair(world).connect()
        pair.far.transport.pause_reading()
        pair.near.transport.write(b"never read")
        await asyncio.sleep(1)
        pair.far.transport.close()
        await asyncio.sleep(1)
        assert isinstance(pair.near.lost, ConnectionResetError)

    in_world(main)


def test_a_protocol_that_fails_loses_its_connection_and_nothing_else():
    class Failing(End):
        def data_received(self, data):
            raise LookupError("cannot read this")

    async def main(world):
        pair = await Pair(world).connect()
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        pair.near.transport.set_protocol(Failing())
        pair.far.transport.write(b"anything")
        await asyncio.sleep(1)
        assert [str(error) for error in told] == ["cannot read this"]
        assert pair.near.transport.is_closing()
        assert pair.process.state == "running"

    in_world(main)


def test_write_after_write_eof_is_refused():
    async def main(world):
        pair = await Pair(world).connect()
        pair.near.transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            pair.near.transport.write(b"more")
        with pytest.raises(TypeError, match="bytes-like"):
            pair.far.transport.write("text")

    in_world(main)


@pytest.mark.parametrize("how", ["cut", "power"])
def test_a_kernel_gives_up_after_a_quarter_of_an_hour_without_an_answer(how):
    async def broken(world):
        pair = await Pair(world).connect()
        if how == "cut":
            world.network.apply(THERE, LinkCondition(cut=True))
        else:
            pair.process.lose_power()
        pair.near.transport.write(b"anybody there?")
        began = world.now_ns
        error = await pair.near.over
        assert isinstance(error, TimeoutError)
        return (world.now_ns - began) / 1e9

    assert in_world(broken) == pytest.approx(924.6, abs=0.01)
