"""A client finds the live broker, and every attempt is in the history."""

import json

import msgspec
import pytest
from stomp_doubles import DIALECT, Server, in_loop, make_context, running, until

from harness.interface import Feed
from stomp_protocol.client.failover import TOPOLOGY_SUBSCRIPTION
from stomp_protocol.client.feed import nodes_by_name
from workloads.failover import FailoverClient


def make_client(context, nodes=("a1", "a2"), seed=1):
    downs = []
    return FailoverClient(context, "c1", nodes, seed, lambda _: None, downs.append), downs


@in_loop
async def test_goes_to_the_backup_when_the_live_refuses():
    async with Server("a2") as backup:
        context = make_context({"a1": None, "a2": backup})
        client, _ = make_client(context)
        async with running(client.run()):
            await until(lambda: client.connection)
            await client.finish()
        assert [(row["type"], row.get("broker")) for row in context.recorder.of("connect")] == [
            ("invoke", None),
            ("fail", "a1"),
            ("invoke", None),
            ("ok", "a2"),
        ]


@in_loop
async def test_returns_to_the_broker_it_had_and_fails_over_when_that_is_gone():
    async with Server("a1") as live, Server("a2") as backup:
        backup.refuse = True
        context = make_context({"a1": live, "a2": backup})
        client, downs = make_client(context)
        async with running(client.run()):
            await until(lambda: client.connection)
            assert client.connection.broker == "a1"
            live.peers[-1].transport.abort()
            await until(lambda: downs and client.connection)
            assert (client.connection.broker, len(backup.peers)) == ("a1", 0)
            live.refuse, backup.refuse = True, False
            live.peers[-1].transport.abort()
            await until(lambda: len(downs) == 2 and client.connection)
            assert client.connection.broker == "a2"
            assert client.unclean_at is not None
            await client.finish()


@in_loop
async def test_stays_with_the_backup_it_found_even_when_the_master_is_back():
    async with Server("a1") as master, Server("a2") as backup:
        master.refuse = True
        context = make_context({"a1": master, "a2": backup})
        client, downs = make_client(context)
        async with running(client.run()):
            await until(lambda: client.connection)
            master.refuse = False
            backup.peers[-1].transport.abort()
            await until(lambda: downs and client.connection)
            assert client.connection.broker == "a2"
            await client.finish()


@in_loop
async def test_keeps_trying_with_pauses_while_nobody_answers():
    context = make_context({"a1": None, "a2": None})
    client, _ = make_client(context)
    async with running(client.run()):
        await until(lambda: len(context.recorder.of("connect", type="fail")) >= 6)
    rows = context.recorder.of("connect")
    assert len({row["process"] for row in rows}) == 1
    assert all(row["error"] for row in rows if row["type"] == "fail")


@in_loop
async def test_an_attempt_that_is_given_up_is_completed():
    async with Server("a1") as server:
        server.script["CONNECT"] = lambda *_: None
        context = make_context({"a1": server})
        client, _ = make_client(context, ("a1",))
        async with running(client.run()):
            await until(lambda: server.peers and server.peers[0].frames)
        assert context.recorder.types("connect") == ["invoke", "fail"]


@in_loop
async def test_a_clean_farewell_leaves_nothing_unnoticed():
    async with Server("a1") as server:
        context = make_context({"a1": server})
        client, _ = make_client(context, ("a1",))
        async with running(client.run()) as run:
            await until(lambda: client.connection)
            await client.finish()
            await run
        assert client.unclean_at is None
        assert server.peers[0].frames[-1].command == "DISCONNECT"


@in_loop
async def test_a_bug_in_a_callback_ends_the_run():
    async with Server("a1") as server:
        context = make_context({"a1": server})

        def broken(connection):
            raise ZeroDivisionError

        client = FailoverClient(context, "c1", ["a1"], 1, broken)
        with pytest.raises(ZeroDivisionError):
            await client.run()
        await until(server.peers[0].gone.is_set)


KNOWING = msgspec.structs.replace(
    DIALECT, feed=Feed(destination="$SYS.cluster.topology", nodes=nodes_by_name)
)


TOPOLOGY = json.dumps(
    {
        "nodes": [
            {"node-id": "x", "live": {"name": "a2", "connector": "a2:61613"}, "backup": {"name": "a1"}},
            {"node-id": "y", "live": {"name": "b1"}, "backup": None},
        ]
    }
).encode()


@in_loop
async def test_learns_from_the_topology_whom_to_ask_next():
    async with Server("a3") as server, Server("a2") as promoted:
        promoted.refuse = True
        context = make_context({"a3": server, "a1": None, "a2": promoted}, dialect=KNOWING)
        client, _ = make_client(context, ("a3", "a1", "a2"))
        received = []
        async with running(client.run()):
            await until(lambda: client.connection)
            sort_out = client.connection.on_message
            client.connection.on_message = lambda frame: (sort_out(frame), received.append(frame))
            server.peers[0].say(
                "MESSAGE", {"subscription": TOPOLOGY_SUBSCRIPTION, "message-id": "1"}, TOPOLOGY
            )
            await until(lambda: received)
            server.refuse, promoted.refuse = True, False
            server.peers[0].transport.abort()
            await until(lambda: client.connection and client.connection.broker == "a2")
            await client.finish()
        asked = [row.get("broker") for row in context.recorder.of("connect") if row["type"] != "invoke"]
        assert asked == ["a3", "a3", "a2"], (
            "a1, planned before a2, is not asked: the topology calls it a backup"
        )


@in_loop
async def test_a_broker_without_topology_is_not_asked_twice():
    async with Server("a1") as server:
        server.script["SUBSCRIBE"] = lambda peer, frame: peer.say(
            "ERROR", {"message": "there is no feed", "receipt-id": frame.headers["receipt"]}
        )
        context = make_context({"a1": server}, dialect=KNOWING)
        client, downs = make_client(context, ("a1",))
        async with running(client.run()):
            await until(lambda: downs and client.connection)
            await client.finish()
        subscribed = [frame for peer in server.peers for frame in peer.frames if frame.command == "SUBSCRIBE"]
        assert len(subscribed) == 1


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xff", b'{"nodes": 3}', b'{"nodes": [{"live": "a1"}]}']
)
def test_a_topology_that_says_nothing_changes_nothing(body):
    assert nodes_by_name(body) == []


def test_a_topology_names_the_live_broker_of_each_node_and_its_backup():
    assert nodes_by_name(TOPOLOGY) == [("a2", "a1"), ("b1", None)]
