"""A program's client fails over by its rules, and says what became of each operation."""

import asyncio
import json
import random
import re
import ssl
from pathlib import Path

import pytest
from authority import Authority
from stomp_doubles import Server, in_loop, until

from stomp_protocol.client import AddressList, Client, ConnectError, Rules, Settings
from stomp_protocol.client.feed import TOPOLOGY, FedNode

PAGE = Path(__file__).parents[2] / "docs/how-to/fail-over-client.md"
SOON = Rules(iterations=0, interval_s=0.01, reconnect=True)


def address_of(server):
    return str(server.address)


def heads(server, command):
    return [frame.headers for peer in server.peers for frame in peer.frames if frame.command == command]


@pytest.mark.parametrize(
    ("behavior", "first"),
    [
        ("PRIORITY", ["a", "a", "a", "a"]),
        ("ROUND_ROBIN", ["a", "b", "c", "a"]),
        ("RANDOM", ["c", "c", "a", "a"]),
    ],
)
def test_each_new_client_begins_where_the_behavior_says(behavior, first):
    brokers = AddressList(["a", "b", "c"], behavior, chance=random.Random(5))
    assert [brokers.order()[0] for _ in range(4)] == first


def test_a_new_client_begins_with_a_broker_that_a_feed_calls_live():
    brokers = AddressList(["a", "b"], "ROUND_ROBIN")
    brokers.learn([FedNode("b", "a"), FedNode("d", None)])
    assert [brokers.order() for _ in range(2)] == [["b", "d", "a"], ["d", "b", "a"]]
    assert brokers.order_after("b") == ["b", "a", "b", "d", "a"]
    closed = AddressList(["a", "b"], "ROUND_ROBIN", grows=False)
    closed.learn([FedNode("b", "a"), FedNode("d", None)])
    assert closed.order() == ["b", "a"]


@in_loop
async def test_gives_up_after_its_iterations_and_attempts():
    async with Server("a1") as server:
        server.refuse = True
        states = []
        brokers = [address_of(server), "127.0.0.1:1"]
        client = Client(
            brokers, rules=Rules(iterations=2, attempts=1, interval_s=0.0), on_state=states.append
        )
        with pytest.raises(ConnectError, match="none of .* accepts"):
            async with client:
                pass
        tried = [state.broker for state in states if state.kind == "failed"]
        assert tried == [brokers[0], brokers[0], brokers[1], brokers[1]] * 2
        assert [state.kind for state in states[-2:]] == ["failed", "given-up"]
        assert (await client.send("/queue/q")).type == "fail"


@in_loop
async def test_subscriptions_are_made_again_at_the_next_broker():
    async with Server("a1") as first, Server("a2") as second:
        states, bodies = [], []
        async with Client(
            [address_of(first), address_of(second)], rules=SOON, on_state=states.append
        ) as client:
            subscription = client.subscribe("/queue/q", lambda message: bodies.append(message.body))
            await subscription.confirmed.wait()
            first.refuse = True
            first.peers[-1].transport.abort()
            await until(lambda: second.peers and subscription.confirmed.is_set())
            assert (await client.send("/queue/q", b"x")).type == "ok"
            await until(lambda: bodies == [b"x"])
            assert (await client.unsubscribe(subscription)).type == "ok"
        assert [head["destination"] for head in heads(second, "SUBSCRIBE")] == ["/queue/q"]
        kinds = [(state.kind, state.broker) for state in states]
        assert kinds[:2] == [("connected", address_of(first)), ("lost", address_of(first))]
        assert kinds[-2:] == [("connected", address_of(second)), ("closed", "")]
        assert set(kinds[2:-2]) == {("failed", address_of(first))}


@in_loop
async def test_a_client_of_one_broker_learns_of_its_backup_if_the_broker_has_the_feed():
    async with Server("a1") as live, Server("a2") as backup:
        live.script["CONNECT"] = lambda peer, _: peer.say(
            "CONNECTED", {"version": "1.2", "heart-beat": "0,0", "feeds": TOPOLOGY.destination}
        )
        member = {"name": "a", "connector": ""}
        node = {
            "live": member | {"connector": address_of(live)},
            "backup": member | {"connector": address_of(backup)},
        }

        def feed(peer, frame):
            peer.receipt(frame)
            headers = {"subscription": frame.headers["id"], "message-id": "1"}
            peer.say("MESSAGE", headers, json.dumps({"nodes": [node]}).encode())
            peer.transport.close()

        live.script["SUBSCRIBE"] = feed
        async with Client([address_of(live)], rules=SOON) as client:
            live.refuse = True
            await until(lambda: backup.peers and client.connection)
        assert [head["destination"] for head in heads(live, "SUBSCRIBE")] == [TOPOLOGY.destination]
        assert not heads(backup, "SUBSCRIBE"), "a broker that does not name the feed is not asked for it"


@in_loop
async def test_an_unanswered_send_is_unknown_and_repeated_only_if_asked():
    async with Server("a1") as server, Client([address_of(server)], rules=SOON) as client:
        server.script["SEND"] = lambda peer, _: peer.transport.abort()
        assert (await client.send("/queue/q", b"x")).type == "info"
        assert len(heads(server, "SEND")) == 1
        sending = asyncio.create_task(client.send("/queue/q", b"y", repeat=True))
        await until(lambda: len(heads(server, "SEND")) >= 3)
        del server.script["SEND"]
        assert (await sending).type == "ok"
        ids = [head.get("_AMQ_DUPL_ID") for head in heads(server, "SEND")]
        assert ids[0] is None
        assert len(set(ids[1:])) == 1


@in_loop
async def test_a_refused_send_is_not_repeated():
    async with Server("a1") as server:
        server.script["SEND"] = lambda peer, frame: peer.say(
            "ERROR", {"message": "no room", "receipt-id": frame.headers["receipt"]}
        )
        async with Client([address_of(server)], rules=SOON) as client:
            assert await client.send("/queue/q", repeat=True) == ("info", "refused: no room")


@in_loop
async def test_a_refused_subscribe_is_told_and_the_next_one_waits():
    async with Server("a1") as server:
        server.script["SUBSCRIBE"] = lambda peer, frame: peer.say(
            "ERROR", {"message": "no rights", "receipt-id": frame.headers["receipt"]}
        )
        states = []
        rules = Rules(iterations=0, interval_s=600.0, reconnect=True)
        async with Client([address_of(server)], rules=rules, on_state=states.append) as client:
            subscription = client.subscribe("/queue/q", print)
            await until(lambda: len(states) == 2)
            await asyncio.sleep(0.02)
            assert (len(server.peers), subscription.confirmed.is_set()) == (1, False)
        assert states[1].reason == "subscribe refused: refused: no rights"


@in_loop
async def test_a_failure_handler_chooses_the_broker():
    async with Server("a1") as first, Server("a2") as second, Server("a3") as third:
        chosen = address_of(third)
        brokers = [address_of(first), address_of(second)]
        lost = []

        def choose(state):
            lost.append(state)
            return chosen

        async with Client(brokers, rules=SOON, on_failure=choose) as client:
            first.peers[-1].transport.abort()
            await until(lambda: third.peers and client.connection)
        assert [(state.kind, state.broker) for state in lost] == [("lost", brokers[0])]
        assert not second.peers


@in_loop
async def test_without_reconnect_a_lost_connection_is_the_end():
    async with Server("a1") as server:
        async with Client([address_of(server)]) as client:
            server.peers[-1].transport.abort()
            await until(lambda: client.connection is None)
            assert await client.send("/queue/q") == ("fail", "not connected")
        assert len(server.peers) == 1


@in_loop
async def test_a_message_is_answered_on_the_connection_that_delivered_it():
    async with Server("a1") as server:
        messages = []
        async with Client([address_of(server)], rules=SOON) as client:
            subscription = client.subscribe("/queue/q", messages.append)
            await subscription.confirmed.wait()
            await client.send("/queue/q", b"x")
            await until(lambda: messages)
            server.peers[-1].transport.abort()
            await until(lambda: len(messages) == 2)
            assert await messages[0].ack() == ("fail", "not connected")
            assert (await messages[1].ack()).type == "ok"


def test_a_client_with_a_context_encrypts(tmp_path):
    authority = Authority(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(authority.store("a1"))
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(authority.trust)

    @in_loop
    async def run():
        async with Server("a1", tls=serving) as server:
            async with Client([address_of(server)], Settings(tls=trusting)) as client:
                assert (await client.send("/queue/q", b"x")).type == "ok"
            with pytest.raises(ConnectError):
                await Client([address_of(server)], Settings(tls=ssl.create_default_context())).run()

    run()


@in_loop
async def test_what_a_callback_raises_is_raised_at_the_end():
    async with Server("a1") as server:
        with pytest.raises(ZeroDivisionError):
            async with Client([address_of(server)], rules=SOON) as client:
                subscription = client.subscribe("/queue/q", lambda _: 1 / 0)
                await subscription.confirmed.wait()
                assert (await client.send("/queue/q", b"x")).type in ("ok", "info")


@in_loop
async def test_the_example_of_the_manual_gets_its_message():
    (example,) = re.findall(r"```python\n(.*?)asyncio.run", PAGE.read_text(), re.DOTALL)
    async with Server("a1") as server:
        names = {}
        exec(  # noqa: S102 - the manual's own code
            example.replace("broker-1:61613", "127.0.0.1:1").replace("broker-2:61613", address_of(server)),
            names,
        )
        await names["main"]()
        sent, acknowledged, _ = server.peers[0].frames[2:]
        assert (sent.body, acknowledged.command) == (b"from Python", "ACK")
