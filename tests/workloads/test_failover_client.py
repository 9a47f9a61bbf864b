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
        assert kinds[:3] == [(kind, address_of(first)) for kind in ("reached", "connected", "lost")]
        found = ("reached", "connected", "recovering", "recovered")
        assert kinds[-5:] == [*((kind, address_of(second)) for kind in found), ("closed", "")]
        assert set(kinds[3:-5]) == {("reached", address_of(first)), ("failed", address_of(first))}


@in_loop
async def test_a_client_has_recovered_when_all_its_subscriptions_are_confirmed():
    async with Server("a1") as server:
        states, waiting = [], []
        async with Client([address_of(server)], rules=SOON, on_state=states.append) as client:
            subscriptions = [client.subscribe(f"/queue/{name}", print) for name in "pq"]
            for subscription in subscriptions:
                await subscription.confirmed.wait()
            server.script["SUBSCRIBE"] = lambda peer, frame: waiting.append((peer, frame))
            server.peers[-1].transport.abort()
            await until(lambda: len(waiting) == 2)
            for peer, frame in waiting:
                assert states[-1].kind == "recovering"
                peer.receipt(frame)
                await asyncio.sleep(0.01)
            assert states[-1].kind == "recovered"


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
            await until(lambda: len(states) == 3)
            await asyncio.sleep(0.02)
            assert (len(server.peers), subscription.confirmed.is_set()) == (1, False)
        assert states[2].reason == "subscribe refused: refused: no rights"


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


def cut_first_send(server):
    def cut(peer, _):
        server.refuse = True
        peer.transport.abort()

    server.script["SEND"] = cut


@in_loop
async def test_a_repeated_send_that_may_have_been_taken_is_never_a_failure():
    async with Server("a1") as server:
        cut_first_send(server)
        rules = Rules(iterations=1, interval_s=0.0, reconnect=True)
        async with Client([address_of(server)], rules=rules) as client:
            outcome = await client.send("/queue/q", b"x", repeat=True)
        assert (len(heads(server, "SEND")), outcome.type) == (1, "info")


@in_loop
async def test_who_sends_while_the_client_leaves_is_told_at_once():
    async with Server("a1") as server:
        server.script["DISCONNECT"] = lambda *_: None
        async with Client([address_of(server)], rules=SOON) as client:
            leaving = asyncio.create_task(client.finish())
            await asyncio.sleep(0)
            assert await client.send("/queue/q", repeat=True) == ("fail", "not connected")
            client.subscribe("/queue/q", print)
            server.peers[-1].transport.abort()
            await leaving
        assert not heads(server, "SUBSCRIBE")


@in_loop
async def test_entering_and_leaving_leave_no_task_whatever_interrupts_them():
    def refuse(state):
        if state.kind == "closed":
            raise ZeroDivisionError

    async with Server("a1") as server:
        others = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), Client(["127.0.0.1:1"], rules=SOON):
                pass
        assert asyncio.all_tasks() == others
        with pytest.raises(ZeroDivisionError):
            async with Client([address_of(server)], rules=SOON, on_state=refuse):
                pass
        assert asyncio.all_tasks() == others


@in_loop
async def test_an_address_that_is_none_is_a_broker_that_does_not_answer():
    async with Server("a1") as server:
        addresses = ["a1", "a1:x", "a1:99999999", "a..b:1", "a\0b:1", "\ud800:1"]
        states, wrong = [], list(addresses)
        async with Client(
            [address_of(server)], rules=SOON, on_state=states.append, on_failure=lambda _: wrong.pop()
        ) as client:
            for number in range(len(addresses)):
                server.peers[-1].transport.abort()
                await until(lambda count=number + 2: len(server.peers) == count and client.connection)
        assert {state.broker for state in states if state.kind == "failed"} == {*addresses}


@pytest.mark.parametrize(
    "body", [b'{"nodes":[],"x":' + b"[" * 200_000, b'{"nodes":[{"live":{"name":"\xff"}}]}']
)
def test_a_feed_that_is_not_json_says_nothing(body):
    assert TOPOLOGY.nodes(body) == []


@in_loop
async def test_brokers_of_an_older_feed_are_not_tried_any_more():
    async with Server("a1") as server:
        client = Client([address_of(server)])
        async with client:
            for number in range(3):
                client._brokers.learn([FedNode(f"b{number}-{node}", None) for node in range(1000)])
                client._learnt(client.connection)
        assert client._candidates == [
            address_of(server), *(f"b2-{node}" for node in range(1000))
        ]  # fmt: skip


@in_loop
async def test_heart_beats_that_are_no_numbers_are_none():
    async with Server("a1") as server:
        for beats in ("9" * 5000 + ",0", "²,²", "0," + "9" * 400):
            server.script["CONNECT"] = lambda peer, _, beats=beats: peer.say(
                "CONNECTED", {"version": "1.2", "heart-beat": beats}
            )
            async with Client([address_of(server)]) as client:
                assert (await client.send("/queue/q")).type == "ok"


@in_loop
async def test_a_lost_connection_is_told_even_if_it_is_the_last():
    async with Server("a1") as server:
        states = []
        async with Client([address_of(server)], on_state=states.append) as client:
            server.peers[-1].transport.abort()
            while client.connection is not None:
                await asyncio.sleep(0)  # so that the client is closed in the moment of its loss
        assert [state.kind for state in states] == ["reached", "connected", "lost", "closed"]


@in_loop
async def test_clients_of_one_seed_name_their_messages_differently():
    async with Server("a1") as server:
        for _ in range(2):
            async with Client([address_of(server)], chance=random.Random(1)) as client:
                assert (await client.send("/queue/q", repeat=True)).type == "ok"
        one, other = (head["_AMQ_DUPL_ID"] for head in heads(server, "SEND"))
        assert one != other


def test_brokers_and_behaviors_that_are_none_are_refused_in_one_line():
    with pytest.raises(TypeError, match="'a1:61613' is one text; expected a list of brokers"):
        Client("a1:61613")
    with pytest.raises(ValueError, match="'random' is no behavior: PRIORITY, RANDOM, ROUND_ROBIN"):
        AddressList(["a1:61613"], "random")
    with pytest.raises(ValueError, match="'a1' is no address of a broker: expected host:port"):
        Client(["a1"])
