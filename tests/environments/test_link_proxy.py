import asyncio
import contextlib
import hashlib
import resource
import socket
import time

import pytest
import uvloop
from echo_system import PATIENCE_S, connect, receive, until

from environments.link_condition import CLEAR, LinkCondition
from environments.link_pipe import HELD_BYTES_MAX
from environments.link_proxy import LOOK_S, LinkProxy
from harness.interface import Address, InfrastructureError, Link

THERE, BACK = Link("c1", "a1"), Link("a1", "c1")
CUT, RESET = LinkCondition(cut=True), LinkCondition(reset=True)
SILENCE_S = 0.2
"""How long a test listens to be sure that nothing comes; a slow machine can only make it pass."""


class Target:
    """A server that keeps what it gets on each connection, and can send.

    asyncio's own raises if it is closed while it accepts a connection (CPython gh-109564).
    """

    def __init__(self):
        self.connections = []

    async def __aenter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())
        self.address = Address(*self._listener.getsockname())
        return self

    async def stop_listening(self):
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        self._listener.close()

    async def __aexit__(self, *_):
        await self.stop_listening()
        for _, writer in self.connections:
            writer.transport.abort()

    async def _accept(self):
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            with contextlib.suppress(OSError):  # it has gone again
                self.connections.append(await asyncio.open_connection(sock=sock))

    async def connection(self, number=0):
        await until(lambda: len(self.connections) > number, f"connection {number}")
        return self.connections[number]


@contextlib.asynccontextmanager
async def network():
    """A target, a proxy before it, and the way to open client connections."""
    proxy = LinkProxy()
    clients = []
    async with Target() as target:
        address = await proxy.add_route(THERE, target.address)

        async def dial():
            reader, writer = await connect(address)
            clients.append(writer)
            return reader, writer

        try:
            yield proxy, target, dial
        finally:
            for writer in clients:
                writer.transport.abort()
            await proxy.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    return uvloop.run if request.param == "uvloop" else asyncio.run


async def silent(reader):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), SILENCE_S)


def test_bytes_pass_both_ways_and_ends_of_stream_too(run):
    async def main():
        async with network() as (proxy, target, dial):
            reader, writer = await dial()
            writer.write(b"question")
            writer.write_eof()
            there, back = await target.connection()
            assert await asyncio.wait_for(there.read(), PATIENCE_S) == b"question"
            back.write(b"answer after the client ended its side")
            back.close()
            assert (
                await asyncio.wait_for(reader.read(), PATIENCE_S) == b"answer after the client ended its side"
            )
            await until(
                lambda: not any(line.pipes for line in proxy._lines.values()),
                "the proxy to forget the connection",
            )

    run(main())


def test_a_one_way_cut_stops_one_direction_and_leaves_the_other(run):
    async def main():
        async with network() as (proxy, target, dial):
            reader, writer = await dial()
            writer.write(b"1")
            there, back = await target.connection()
            assert await receive(there, 1) == b"1"
            proxy.set_condition(THERE, CUT)
            writer.write(b"2")
            back.write(b"still flows")
            assert await receive(reader, 11) == b"still flows"
            await silent(there)
            proxy.set_condition(THERE, CLEAR)
            assert await receive(there, 1) == b"2"
            proxy.set_condition(BACK, CUT)
            writer.write(b"3")
            back.write(b"held")
            assert await receive(there, 1) == b"3"
            await silent(reader)
            proxy.set_condition(BACK, CLEAR)
            assert await receive(reader, 4) == b"held"

    run(main())


def test_held_bytes_and_the_close_come_in_order_when_a_cut_heals(run):
    async def main():
        async with network() as (proxy, target, dial):
            _, writer = await dial()
            there, _ = await target.connection()
            proxy.set_condition(THERE, CUT)
            sent = b"".join(b"%06d" % number for number in range(1000))
            for start in range(0, len(sent), 60):
                writer.write(sent[start : start + 60])
            writer.close()
            await silent(there)
            proxy.set_condition(THERE, CLEAR)
            assert await asyncio.wait_for(there.read(), PATIENCE_S) == sent

    run(main())


def test_a_cut_hides_that_the_peer_died(run):
    async def main():
        async with network() as (proxy, target, dial):
            reader, _ = await dial()
            _, back = await target.connection()
            proxy.set_condition(BACK, CUT)
            back.transport.abort()
            await silent(reader)
            proxy.set_condition(BACK, CLEAR)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    run(main())


@pytest.mark.parametrize("link", [THERE, BACK], ids=["there", "back"])
def test_a_new_connection_reaches_its_target_only_when_both_directions_are_open(run, link):
    async def main():
        async with network() as (proxy, target, dial):
            proxy.set_condition(link, CUT)
            _, writer = await dial()
            writer.write(b"patient")
            _, impatient = await dial()
            impatient.close()
            await asyncio.sleep(SILENCE_S)
            assert target.connections == []
            proxy.set_condition(link, CLEAR)
            there, _ = await target.connection()
            assert await receive(there, 7) == b"patient"
            # The one that gave up would have been first or second: another one is now the second.
            _, writer = await dial()
            writer.write(b"second")
            there, _ = await target.connection(1)
            assert await receive(there, 6) == b"second"
            assert len(target.connections) == 2

    run(main())


@pytest.mark.parametrize("link", [THERE, BACK], ids=["there", "back"])
def test_a_reset_ends_connections_and_refuses_new_ones_until_it_heals(run, link):
    async def main():
        async with network() as (proxy, target, dial):
            reader, _ = await dial()
            there, _ = await target.connection()
            proxy.set_condition(link, RESET)
            for side in (reader, there):
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(side.read(1), PATIENCE_S)
            with pytest.raises(ConnectionRefusedError):
                await dial()
            proxy.set_condition(link, CLEAR)
            reader, writer = await dial()
            writer.write(b"again")
            there, _ = await target.connection(1)
            assert await receive(there, 5) == b"again"

    run(main())


def test_a_link_that_could_not_be_healed_at_once_is_healed_when_it_is_tried_again(run, monkeypatch):
    class Scarce(socket.socket):
        def listen(self, backlog):
            monkeypatch.undo()
            raise OSError(24, "Too many open files")

    async def main():
        async with network() as (proxy, _, dial):
            proxy.set_condition(THERE, RESET)
            monkeypatch.setattr(socket, "socket", Scarce)
            with pytest.raises(InfrastructureError, match="Too many open files"):
                proxy.set_condition(THERE, CLEAR)
            proxy.set_condition(THERE, CLEAR)
            await dial()

    run(main())


def test_a_reset_also_ends_connections_that_a_cut_holds_back(run):
    async def main():
        async with network() as (proxy, target, dial):
            proxy.set_condition(THERE, CUT)
            reader, _ = await dial()
            await asyncio.sleep(SILENCE_S)
            proxy.set_condition(THERE, LinkCondition(cut=True, reset=True))
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), PATIENCE_S)
            assert target.connections == []

    run(main())


def test_a_connection_to_a_target_that_does_not_listen_is_reset(run):
    async def main():
        async with network() as (_, target, dial):
            await target.stop_listening()

            async def dial_and_read():
                reader, _ = await dial()
                await asyncio.wait_for(reader.read(1), PATIENCE_S)

            with pytest.raises(ConnectionResetError):
                await dial_and_read()

    run(main())


def test_a_peers_reset_reaches_the_other_side_as_a_reset(run):
    async def main():
        async with network() as (_, target, dial):
            reader, writer = await dial()
            writer.write(b"never read")
            _, back = await target.connection()
            # Closing with unread bytes is how a killed process resets its peers.
            back.transport.pause_reading()
            writer.write(b"x" * 10000)
            await asyncio.sleep(0.05)
            back.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0
            back.transport.abort()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), PATIENCE_S)

    run(main())


def test_no_byte_is_early_on_a_slow_link_and_order_survives_jitter(run):
    async def main():
        async with network() as (proxy, target, dial):
            _, writer = await dial()
            there, _ = await target.connection()
            proxy.set_condition(THERE, LinkCondition(delay_ms=60, jitter_ms=40))
            sent_at = []

            async def send():
                for number in range(40):
                    sent_at.append(time.monotonic())
                    writer.write(b"%04d" % number)
                    await asyncio.sleep(0.005)

            sending = asyncio.create_task(send())
            for number in range(40):
                assert await receive(there, 4) == b"%04d" % number
                assert time.monotonic() - sent_at[number] >= 0.060
            await sending

    run(main())


def test_a_delay_is_never_shorter_than_asked_for(run):
    async def main():
        async with network() as (proxy, target, dial):
            _, writer = await dial()
            there, _ = await target.connection()
            proxy.set_condition(THERE, LinkCondition(delay_ms=80))
            for number in range(12):
                begun = time.monotonic()
                writer.write(b"%04d" % number)
                assert await receive(there, 4) == b"%04d" % number
                assert time.monotonic() - begun >= 0.080

    run(main())


def test_only_the_slow_direction_is_slow(run):
    async def main():
        async with network() as (proxy, target, dial):
            reader, writer = await dial()
            there, back = await target.connection()
            proxy.set_condition(BACK, LinkCondition(delay_ms=3_600_000))
            writer.write(b"at once")
            assert await receive(there, 7) == b"at once"
            back.write(b"in an hour")
            await silent(reader)
            proxy.set_condition(BACK, CLEAR)
            assert await receive(reader, 10) == b"in an hour"

    run(main())


def test_a_rate_limit_holds_for_all_connections_of_the_link_together(run):
    async def main():
        async with network() as (proxy, target, dial):
            rate, size = 200_000, 30_000
            pairs = []
            for number in range(3):
                _, writer = await dial()
                pairs.append((writer, (await target.connection(number))[0]))
            proxy.set_condition(THERE, LinkCondition(rate_bytes_s=rate))
            begun = time.monotonic()
            for writer, _ in pairs:
                writer.write(bytes(size))
            await asyncio.gather(*(receive(there, size) for _, there in pairs))
            # The last piece of each connection may leave at once: a twentieth of a second of slack
            # for the pieces.
            assert time.monotonic() - begun >= 3 * size / rate - 0.1

    run(main())


@pytest.mark.parametrize("condition", [CUT, LinkCondition(delay_ms=3_600_000)], ids=["cut", "slow"])
def test_memory_stays_bounded_and_the_sender_feels_back_pressure(run, condition):
    async def main():
        async with network() as (proxy, target, dial):
            _, writer = await dial()
            there, _ = await target.connection()
            proxy.set_condition(THERE, condition)
            size = 64 << 20
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            chunk = bytes(1 << 16)
            digest = hashlib.sha256()

            async def send():
                for _ in range(size // len(chunk)):
                    writer.write(chunk)
                    await writer.drain()

            sending = asyncio.create_task(send())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(sending), 0.5)
            (pipe,) = proxy._lines[THERE].pipes
            assert pipe.held <= HELD_BYTES_MAX + (1 << 18)
            proxy.set_condition(THERE, CLEAR)
            got = 0
            while got < size:
                piece = await asyncio.wait_for(there.read(1 << 18), PATIENCE_S)
                digest.update(piece)
                got += len(piece)
            await sending
            assert digest.digest() == hashlib.sha256(bytes(size)).digest()
            grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown_kib < 32 << 10, "the bytes were held in memory"

    run(main())


def test_a_reader_that_does_not_read_stops_the_writer_without_any_fault(run):
    async def main():
        async with network() as (_, target, dial):
            _, writer = await dial()
            there, back = await target.connection()
            back.transport.pause_reading()

            async def send():
                for _ in range(1024):
                    writer.write(bytes(1 << 16))
                    await writer.drain()
                writer.write_eof()

            sending = asyncio.create_task(send())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(sending), 0.5)
            back.transport.resume_reading()
            got = 0
            while piece := await asyncio.wait_for(there.read(1 << 18), PATIENCE_S):
                got += len(piece)
            await sending
            assert got == 1 << 26

    run(main())


def test_abandoned_attempts_do_not_pile_up_during_a_long_cut(run):
    async def main():
        async with network() as (proxy, target, dial):
            proxy.set_condition(THERE, CUT)
            (route,) = proxy._routes.values()
            for _ in range(50):
                _, writer = await dial()
                writer.transport.abort()
            await until(lambda: len(route.waiting) <= 2, "the abandoned attempts to be forgotten")
            assert target.connections == []

    run(main())


def test_an_unknown_link_is_an_error_not_a_silent_success(run):
    async def main():
        async with network() as (proxy, _, _dial):
            with pytest.raises(KeyError):
                proxy.set_condition(Link("c1", "a2"), CUT)

    run(main())


def test_closing_the_proxy_resets_connections_and_frees_the_ports(run):
    async def main():
        async with network() as (proxy, target, dial):
            reader, _ = await dial()
            await target.connection()
            (address,) = proxy._routes
            await proxy.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), PATIENCE_S)
            server = await asyncio.start_server(lambda *_: None, address.host, address.port)
            server.close()

    run(main())


def test_a_faithful_route_keeps_the_port_and_refuses_while_its_target_does_not_listen(run):
    async def refused(address):
        try:
            _, writer = await connect(address)
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it closed while this was under way
            return None
        writer.transport.abort()
        return False

    async def becomes(address, wanted):
        async with asyncio.timeout(PATIENCE_S):
            while await refused(address) is not wanted:
                await asyncio.sleep(0.01)

    async def main():
        proxy = LinkProxy()
        try:
            async with Target() as target:
                port = target.address.port  # the route's own listener is not its target's
                address = await proxy.add_route(
                    THERE, target.address, host="127.7.0.9", port=port, faithful=True
                )
                assert address == Address("127.7.0.9", port)
                await becomes(address, False)
                proxy.set_condition(THERE, CUT)
            await asyncio.sleep(3 * LOOK_S)
            assert await refused(address) is False, "of a link that is cut nobody knows who listens"
            proxy.set_condition(THERE, CLEAR)
            await becomes(address, True)
        finally:
            await proxy.close()

    run(main())


@pytest.mark.parametrize("fails", ["create_connection", "connect_accepted_socket"])
def test_a_connection_whose_transports_cannot_be_made_leaves_nothing_open(run, fails):
    async def main():
        async with network() as (proxy, target, dial):
            loop = proxy.loop

            class Failing:
                def __getattr__(self, name):
                    return self.fail if name == fails else getattr(loop, name)

                async def fail(self, *_, **__):
                    raise OSError(24, "Too many open files")

            proxy.loop = Failing()
            reader, _ = await dial()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), PATIENCE_S)
            there, _ = await target.connection()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(there.read(1), PATIENCE_S)
            await until(lambda: not any(line.pipes for line in proxy._lines.values()), "no pipe to be left")
            proxy.loop = loop

    run(main())
