"""One link: handshake, frames, heart-beats, requests."""

import asyncio
import contextlib
import random

import msgspec
import pytest

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError, LinkRefusedError, Terms, Versions, connect
from broker.handshake import proof
from environments.simulation.world import World


def member(name):
    return m.Member(name, None, "live", f"{name}:1", f"{name}:2", None, 1, 1, 0)


def terms(name, password="secret", user="cluster", ttl_s=30.0, **options):  # noqa: S107 - a test's
    return Terms(
        user=user,
        password=password,
        ttl_s=ttl_s,
        call_timeout_s=30.0,
        nonce=lambda: random.Random(name).randbytes(32),
        member=lambda: member(name),
        **options,
    )


class Listener:
    """An accepting side; ``links`` are those that came through the handshake."""

    def __init__(self, **options):
        self.links = asyncio.Queue()
        self._terms = terms("server", **options)

    async def __aenter__(self):
        self._server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def _accept(self):
        return ClusterLink(self._terms, None, on_open=self._opened)

    def _opened(self, link):
        link.inbox = asyncio.Queue()
        link.on_message = link.inbox.put_nowait
        self.links.put_nowait(link)


async def ended(link):
    future = asyncio.get_running_loop().create_future()
    link.on_closed = future.set_result
    async with asyncio.timeout(60):
        return await future


def run(scenario):
    asyncio.run(scenario())


def test_both_sides_learn_who_the_other_is():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client"), listener.address, "replication")
            other = await listener.links.get()
            assert link.member.name == "server"
            assert other.member.name == "client"
            assert other.purpose == "replication"
            link.close("done")
            await ended(other)

    run(scenario)


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"user": "guest"}], ids=["password", "user"])
def test_a_wrong_user_or_password_is_refused_and_tells_nobody_who_is_there(wrong):
    async def scenario():
        async with Listener() as listener:
            with pytest.raises(LinkRefusedError, match="wrong cluster-user or cluster-password"):
                await connect(terms("client", **wrong), listener.address, "cluster")
            assert listener.links.empty()

    run(scenario)


def test_an_impostor_that_accepts_any_proof_is_refused_by_the_connecting_side():
    """It cannot prove that it knows the password, so it is not told who connects."""

    async def scenario():
        seen = []

        async def impostor(reader, writer):
            async def frame():
                (size,) = m.LENGTH.unpack(await reader.readexactly(4))
                message = m.decode(await reader.readexactly(size))
                seen.append(message)

            await frame()
            writer.write(m.encode(m.Challenge(b"n" * 32, m.VERSION)))
            await frame()
            writer.write(m.encode(m.Welcome(b"no proof at all", member("impostor"), {})))
            seen.append(await reader.read())
            writer.close()

        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        async with server:
            with pytest.raises(LinkRefusedError, match="does not know this broker's cluster-password"):
                await connect(terms("client"), server.sockets[0].getsockname(), "cluster")
        assert [type(message) for message in seen[:2]] == [m.Hello, m.Proof]
        told = m.encode(seen[0]) + m.encode(seen[1])
        assert [name for name in (b"client", b"cluster") if name in told] == []

    run(scenario)


def test_another_protocol_version_is_refused_by_name():
    async def scenario():
        async with Listener() as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.write(m.encode(m.Hello(m.VERSION + 1, "", b"n" * 32)))
            (size,) = m.LENGTH.unpack(await reader.readexactly(4))
            refusal = m.decode(await reader.readexactly(size))
            assert refusal == m.Refusal(
                f"the connecting broker speaks version {m.VERSION + 1} of the cluster protocol, "
                f"the accepting broker {Versions(m.OLDEST_VERSION, m.VERSION)}"
            )
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("theirs", "ours", "version"),
    [((6, 6), (6, 7), 6), ((6, 7), (6, 6), 6), ((6, 7), (6, 8), 7), ((5, 8), (7, 7), 7)],
)
def test_two_brokers_speak_the_newest_version_that_both_know(theirs, ours, version):
    async def scenario():
        async with Listener(versions=Versions(*ours)) as listener:
            link = await connect(terms("client", versions=Versions(*theirs)), listener.address, "cluster")
            other = await listener.links.get()
            assert (link.version, other.version) == (version, version)
            link.close("done")
            await ended(other)

    run(scenario)


def test_brokers_without_a_common_version_refuse_each_other_by_name():
    async def scenario():
        async with Listener(versions=Versions(6, 7)) as listener:
            reason = "speaks version 5 of the cluster protocol, the accepting broker versions 6 to 7"
            with pytest.raises(LinkRefusedError, match=reason):
                await connect(terms("client", versions=Versions(5, 5)), listener.address, "cluster")
            assert listener.links.empty()

    run(scenario)


def test_a_broker_of_the_former_version_which_names_no_oldest_is_refused_by_name():
    async def scenario():
        async with Listener() as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            hello = msgspec.msgpack.encode(["Hello", 5, "cluster", b"n" * 32])
            writer.write(m.LENGTH.pack(len(hello)) + hello)
            (size,) = m.LENGTH.unpack(await reader.readexactly(4))
            refusal = m.decode(await reader.readexactly(size))
            assert refusal.reason.startswith("the connecting broker speaks version 5 of the cluster ")
            writer.close()

    run(scenario)


def test_a_version_that_was_not_offered_is_not_taken():
    async def scenario():
        async def impostor(reader, writer):
            await reader.readexactly(4)
            writer.write(m.encode(m.Challenge(b"n" * 32, m.VERSION + 1)))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        async with server:
            with pytest.raises(LinkError, match=f"version {m.VERSION + 1} was chosen"):
                await connect(terms("client"), server.sockets[0].getsockname(), "cluster")

    run(scenario)


def in_green(member, shared):
    """Why a broker of cluster green refuses one with those properties."""
    return "" if shared == {"cluster.name": "green"} else f"{member.name} says {shared}"


@pytest.mark.parametrize("purpose", ["cluster", "replication", "probe"])
def test_a_broker_of_another_cluster_is_refused_and_each_side_logs_it_once(purpose, caplog):
    reason = "server says {'cluster.name': 'blue'}"

    async def scenario():
        client = terms("client", shared={"cluster.name": "green"}, refusal=in_green)
        async with Listener(shared={"cluster.name": "blue"}) as listener:
            for _ in range(3):
                with pytest.raises(LinkRefusedError, match=reason):
                    await connect(client, listener.address, purpose)
            await asyncio.sleep(0.05)  # the listener reads the last refusal
            assert listener.links.empty()

    run(scenario)
    assert [record.message for record in caplog.records] == [
        f"cluster: a broker refused the connection: {reason}"
    ]


def test_the_accepting_side_refuses_a_broker_of_another_cluster_that_does_not_look(caplog):
    async def scenario():
        async with Listener(shared={"cluster.name": "green"}, refusal=in_green) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)

            async def frame():
                (size,) = m.LENGTH.unpack(await reader.readexactly(4))
                return m.decode(await reader.readexactly(size))

            nonce = b"n" * 32
            writer.write(m.encode(m.Hello(m.VERSION, "", nonce)))
            challenge = await frame()
            digest = proof("secret", "cluster", "connecting", nonce, challenge.nonce, user="cluster")
            writer.write(m.encode(m.Proof(digest)))
            welcome = await frame()
            assert welcome.shared == {"cluster.name": "green"}
            writer.write(
                m.encode(m.Introduction(member("client\nfaked"), "cluster", {"cluster.name": "blue"}))
            )
            reason = "client\nfaked says {'cluster.name': 'blue'}"
            assert await frame() == m.Refusal(reason)
            assert listener.links.empty()
            writer.close()

    run(scenario)
    [record] = caplog.records
    told = r"client\nfaked says {'cluster.name': 'blue'}"
    assert record.message == f"cluster: a broker was refused: {told}"


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        m.LENGTH.pack(5000) + b"x" * 100,
        m.encode(m.Pong(1.0)),
        b"\0\0\0\0",
    ],
    ids=["http", "noise", "too long for a stranger", "out of turn", "empty"],
)
def test_a_stranger_that_does_not_shake_hands_is_cut_off(garbage):
    async def scenario():
        async with Listener() as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.write(garbage)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
            assert listener.links.empty()

    run(scenario)


def test_a_stranger_that_says_nothing_is_cut_off():
    async def scenario():
        async with Listener(ttl_s=0.2) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_messages_arrive_in_order_whatever_their_size():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client"), listener.address, "cluster")
            other = await listener.links.get()
            sizes = [0, 1, 70_000, 3, 2_000_000, 5, 300_000]
            for number, size in enumerate(sizes):
                link.send(m.JournalEntries(number, b"x" * size))
            for number, size in enumerate(sizes):
                message = await other.inbox.get()
                assert (message.first, len(message.data)) == (number, size)
            link.close("done")
            await ended(other)

    run(scenario)


def test_frames_may_arrive_byte_by_byte():
    async def scenario():
        link = ClusterLink(terms("a"), None, on_open=lambda _: None)
        link.is_open = True
        link._frame_max = m.FRAME_MAX
        got = []
        link.on_message = got.append
        messages = [m.JournalEntries(1, b"abc"), m.Ready(), m.Acknowledgement(2**40)]
        for byte in b"".join(m.encode(message) for message in messages):
            link.data_received(bytes([byte]))
        assert got == messages

    run(scenario)


def test_a_request_gets_its_own_answer():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client"), listener.address, "cluster")
            other = await listener.links.get()
            asked = [asyncio.create_task(link.call(m.LiveStopping(link.number(), True))) for _ in range(3)]
            requests = [await other.inbox.get() for _ in range(3)]
            for request in reversed(requests):
                other.send(m.LiveStopped(request.number))
            assert [(await task).number for task in asked] == [request.number for request in requests]
            link.close("done")

    run(scenario)


def test_a_request_without_an_answer_ends():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client"), listener.address, "cluster")
            with pytest.raises(TimeoutError):
                await link.call(m.LiveStopping(link.number(), True), timeout_s=0.05)
            other = await listener.links.get()
            waiting = asyncio.create_task(link.call(m.LiveStopping(link.number(), True)))
            await other.inbox.get()
            await other.inbox.get()
            other.abort("gone")
            with pytest.raises(LinkError):
                await waiting

    run(scenario)


def test_a_silent_peer_is_given_up_after_the_ttl():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client", ttl_s=60.0), listener.address, "cluster")
            other = await listener.links.get()
            link._transport.pause_reading()  # hears nothing, so answers nothing
            other.set_ttl(0.3)  # only now: the handshake may take its time
            assert "nothing heard for" in await ended(other)

    run(scenario)


def test_heart_beats_keep_an_idle_link_and_prove_that_we_are_heard():
    async def scenario():
        async with Listener() as listener:
            link = await connect(terms("client"), listener.address, "cluster")
            other = await listener.links.get()
            ttl_s = 1.0
            for one in (link, other):
                one.set_ttl(ttl_s)
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with asyncio.timeout(60):
                while other.confirmed < began + 2 * ttl_s or link.confirmed < began + 2 * ttl_s:
                    await asyncio.sleep(0.01)
            assert link.is_open
            assert other.is_open
            link.close("done")

    World(1).run(scenario)  # where no machine is so busy that it forgets to send one
