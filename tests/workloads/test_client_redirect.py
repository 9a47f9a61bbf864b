"""A client says where it was served before, and goes where the broker sends it."""

from stomp_doubles import Server, in_loop, make_context, running, until

from harness.interface import NodePlan
from workloads.failover import FailoverClient
from workloads.placement import pairs_of


def serving(server, session):
    """Take everybody in, under this store session."""
    server.script["CONNECT"] = lambda peer, frame: peer.say(
        "CONNECTED", {"version": "1.2", "heart-beat": "0,0", "broker": server.name, "store-session": session}
    )


def redirecting(server, address):
    """Take nobody in, and say where to go."""

    def refuse(peer, frame):
        peer.say("ERROR", {"message": "not here", "redirect": address})
        peer.transport.close()

    server.script["CONNECT"] = refuse


def asked(server):
    """The store sessions that were named to a server, None for a client that named none."""
    return [
        frame.headers.get("store-session")
        for peer in server.peers
        for frame in peer.frames
        if frame.command == "CONNECT"
    ]


def client_of(context, nodes, session=None):
    return FailoverClient(context, "c1", nodes, 1, lambda _: None, store_session=session)


@in_loop
async def test_the_session_of_the_last_connection_is_named_at_the_next_one():
    async with Server("a1") as first, Server("b1") as second:
        serving(first, "3")
        serving(second, "9")
        client = client_of(make_context({"a1": first, "b1": second}), ("a1", "b1"))
        async with running(client.run()):
            await until(lambda: client.connection)
            first.refuse = True
            first.peers[-1].transport.abort()
            await until(lambda: client.connection and client.connection.broker == "b1")
            assert client.store_session == "9"
            await client.finish()
        assert asked(first)[0] is None
        assert asked(second) == ["3"]


@in_loop
async def test_a_redirected_client_tries_that_broker_first_next_time():
    async with Server("a1") as old, Server("b1") as other, Server("c1") as taker:
        redirecting(old, "c1:61613")
        redirecting(other, "c1:61613")
        redirecting(taker, "")
        context = make_context({"a1": old, "b1": other, "c1": taker})
        client = client_of(context, ("a1", "b1", "c1"), "3")
        async with running(client.run()):
            await until(lambda: asked(taker))
            serving(taker, "7")
            await until(lambda: client.connection)
            await client.finish()
        brokers = [row["broker"] for row in context.recorder.of("connect") if row["type"] != "invoke"]
        assert brokers[:3] == ["a1", "b1", "c1"]
        assert brokers[3] == "c1"
        assert set(asked(taker)) == {"3"}


@in_loop
async def test_a_redirect_to_a_broker_that_nobody_knows_is_ignored():
    async with Server("a1") as broker:
        redirecting(broker, "stranger:1")
        context = make_context({"a1": broker})
        client = client_of(context, ("a1",))
        async with running(client.run()):
            await until(lambda: len(asked(broker)) > 1)
            serving(broker, "1")
            await until(lambda: client.connection)
            await client.finish()
        assert {row.get("broker") for row in context.recorder.of("connect", type="fail")} == {"a1"}


def plan(name, configured):
    return NodePlan(name=name, pair=name[0], configured=configured, ports={})


def test_clients_of_a_member_may_be_served_by_every_other_member():
    nodes = [plan("a1", "member"), plan("b1", "member"), plan("c1", "member")]
    assert pairs_of(nodes) == {"a": ("a1", "b1", "c1"), "b": ("b1", "a1", "c1"), "c": ("c1", "a1", "b1")}


def test_clients_of_a_pair_stay_with_their_pair():
    nodes = [plan("a2", "slave"), plan("a1", "master"), plan("b1", "standalone")]
    assert pairs_of(nodes) == {"a": ("a1", "a2"), "b": ("b1",)}
