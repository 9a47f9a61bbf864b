"""The relay before a PostgreSQL server passes everything on as it is, and loses exactly the
commits that it is to lose.
"""

import asyncio
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.postgresql.relay import Commits, Relay, Severance

PATIENCE_S = 60.0
START = struct.pack("!ii", 13, 3 << 16) + b"user\0"
SECURE = struct.pack("!ii", 8, 80877103)


def query(text):
    return b"Q" + struct.pack("!i", len(text) + 5) + text.encode() + b"\0"


def message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


COMMIT = query("COMMIT")
OTHERS = st.one_of(
    st.sampled_from(["BEGIN", "COMMIT PREPARED 'x'", "SELECT 'COMMIT'", "ROLLBACK", ""]).map(query),
    st.builds(message, st.sampled_from([b"P", b"B", b"E", b"S"]), st.binary(max_size=200)),
    # A commit in the clothes of data is none.
    st.just(message(b"B", COMMIT)),
)


@given(st.lists(st.one_of(OTHERS, st.just(COMMIT)), max_size=12), st.booleans(), st.data())
def test_commits_are_found_however_the_bytes_arrive_and_no_byte_is_changed(messages, secure, data):
    stream = (SECURE if secure else b"") + START + b"".join(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    commits = Commits()
    pieces = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        pieces += commits.split(stream[begin:end])
    assert b"".join(piece for piece, _ in pieces) == stream
    assert [piece for piece, commit in pieces if commit] == [one for one in messages if one == COMMIT]


def parse(text, name=""):
    return message(b"P", f"{name}\0{text}\0".encode() + b"\0\0")


def bind(name="", values=b""):
    return message(b"B", b"\0" + name.encode() + b"\0" + values)


EXECUTE, SYNC = message(b"E", b"\0\0\0\0\0"), message(b"S", b"")
DESCRIBE = message(b"D", b"P\0")
INSERT = [parse("INSERT INTO t VALUES ($1)"), bind(values=b"x" * 500), DESCRIBE, EXECUTE]
BEGIN = [parse("BEGIN", "S_1"), bind("S_1"), EXECUTE]
END = [parse("COMMIT", "S_2"), bind("S_2"), EXECUTE, SYNC]


@pytest.mark.parametrize(
    ("messages", "commits"),
    [
        ([*INSERT, SYNC], [EXECUTE + SYNC]),
        ([*BEGIN, *INSERT, SYNC, *END], [EXECUTE + SYNC]),
        ([*BEGIN, *INSERT, SYNC, *END, bind("S_1"), EXECUTE, *INSERT, SYNC, bind("S_2"), EXECUTE, SYNC],
         [EXECUTE + SYNC] * 2),
        ([query("BEGIN"), *INSERT, SYNC, query("COMMIT"), *INSERT, SYNC], [query("COMMIT"), EXECUTE + SYNC]),
        ([parse("select 1"), bind(), EXECUTE, SYNC], []),
        ([*BEGIN, *INSERT, SYNC, parse("ROLLBACK"), bind(), EXECUTE, SYNC], []),
        ([*INSERT, bind(values=b"y" * 300), EXECUTE, SYNC],
         [EXECUTE + bind(values=b"y" * 300) + EXECUTE + SYNC]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_what_is_executed_commits_with_a_commit_or_outside_a_block(messages, commits, step):
    stream = START + b"".join(messages)
    found = Commits()
    pieces = [piece for at in range(0, len(stream), step) for piece in found.split(stream[at : at + step])]
    assert b"".join(piece for piece, _ in pieces) == stream
    assert [piece for piece, commit in pieces if commit] == commits


@pytest.mark.parametrize("bytes_", [struct.pack("!ii", 3, 3 << 16), START + b"Q" + struct.pack("!i", 1)])
def test_what_is_not_the_protocol_is_refused(bytes_):
    with pytest.raises(ValueError, match="a .*message of"):
        list(Commits().split(bytes_))


class Server:
    """Answers each query with its text, and knows what it was asked."""

    def __init__(self):
        self.asked = []

    async def attend(self, reader, writer):
        assert await reader.readexactly(len(START)) == START
        try:
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
                self.asked.append(body.rstrip(b"\0").decode())
                writer.write(b"did " + body)
        except asyncio.IncompleteReadError:
            writer.close()


async def said(port, *texts):
    """What is answered to each of these in turn; "lost" once the connection is."""
    answers = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(START)
    try:
        for text in texts:
            writer.write(query(text))
            answers.append((await reader.readuntil(b"\0"))[4:-1].decode())
    except (OSError, asyncio.IncompleteReadError):
        answers.append("lost")
    finally:
        writer.close()
    return answers


def relayed(test):
    """Run ``test(relay, server, ports)`` on a relay with a listener for each of two clients."""

    async def main():
        server = Server()
        listener = await asyncio.start_server(server.attend, "127.0.0.1", 0)
        relay = Relay("127.0.0.1", listener.sockets[0].getsockname()[1], random.Random(1))
        ports = {}
        for client in ("a1", "b1"):
            await relay.listen("127.0.0.1", 0, client)
            ports[client] = relay.ports[-1]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await test(relay, server, ports)
        finally:
            await relay.close()
            listener.close()

    asyncio.run(main())


def test_without_a_fault_all_of_a_conversation_passes():
    async def test(relay, server, ports):
        assert await said(ports["a1"], "BEGIN", "COMMIT") == ["BEGIN", "COMMIT"]
        assert server.asked == ["BEGIN", "COMMIT"]

    relayed(test)


@pytest.mark.parametrize(("committed", "asked"), [(0.0, ["BEGIN"]), (1.0, ["BEGIN", "COMMIT"])])
def test_a_lost_commit_reaches_the_server_or_not_and_is_never_answered(committed, asked):
    async def test(relay, server, ports):
        relay.sever({"a1": Severance(1.0, committed)})
        assert relay.severed("a1"), "it would lose its first commit"
        assert await said(ports["a1"], "BEGIN", "COMMIT") == ["BEGIN", "lost"]
        assert server.asked == asked
        assert relay.severed("a1")

    relayed(test)


def test_others_than_the_severed_client_lose_nothing_and_it_does_not_either_once_healed():
    async def test(relay, server, ports):
        relay.sever({"a1": Severance(1.0, 0.0)})
        assert await said(ports["b1"], "COMMIT", "COMMIT") == ["COMMIT", "COMMIT"]
        assert await said(ports["a1"], "COMMIT") == ["lost"]
        relay.sever({})
        assert await said(ports["a1"], "COMMIT", "COMMIT") == ["COMMIT", "COMMIT"]
        assert not relay.severed("a1")

    relayed(test)


def test_a_client_whose_commits_all_pass_does_not_count_as_hit():
    async def test(relay, server, ports):
        relay.sever({"a1": Severance(1e-9, 0.0)})
        assert await said(ports["a1"], "COMMIT") == ["COMMIT"]
        assert not relay.severed("a1")
        relay.sever({})
        relay.sever({"a1": Severance(1.0, 0.0)})
        assert await said(ports["a1"], "COMMIT") == ["lost"]
        assert relay.severed("a1")

    relayed(test)


def test_a_chance_is_a_share_of_the_commits():
    async def test(relay, server, ports):
        relay.sever({"a1": Severance(0.5, 0.5)})
        answers = [(await said(ports["a1"], "COMMIT"))[0] for _ in range(200)]
        lost = answers.count("lost")
        done = len(server.asked) - (200 - lost)
        assert 70 < lost < 130
        assert 0.3 < done / lost < 0.7

    relayed(test)


def test_where_nobody_listens_behind_the_relay_a_client_loses_its_connection():
    async def main():
        with_nobody = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = with_nobody.sockets[0].getsockname()[1]
        with_nobody.close()
        await with_nobody.wait_closed()
        relay = Relay("127.0.0.1", port, random.Random(1))
        await relay.listen("127.0.0.1", 0)
        async with asyncio.timeout(PATIENCE_S):
            assert await said(relay.ports[0], "BEGIN") == ["lost"]
        await relay.close()

    asyncio.run(main())


def test_the_last_words_of_a_server_that_hangs_up_arrive():
    async def main():
        async def attend(reader, writer):
            await reader.readexactly(len(START))
            writer.write(b"x" * 300_000 + b"FATAL")
            writer.close()

        listener = await asyncio.start_server(attend, "127.0.0.1", 0)
        relay = Relay("127.0.0.1", listener.sockets[0].getsockname()[1], random.Random(1))
        await relay.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.ports[0])
        writer.write(START)
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.read())[-5:] == b"FATAL"
        writer.close()
        await relay.close()
        listener.close()

    asyncio.run(main())
