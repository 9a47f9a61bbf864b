"""Topics of a queue manager: who takes over has its subscriptions as they were left.

Killed, switched over, and cut off from its file system; with what waits in memory, on pages, and in
the middle of a drop.
"""

import asyncio

import pytest
from queue_managers import Brokers

DURABLE = ("shared", "own", "by-id")
PAGED = {"address-settings.#.max-size-bytes": 8192, "address-settings.#.page-size-bytes": 2048}
COUNT = 60
SLICES = 2000
"""Messages that no drop deletes at once."""


def durable(name):
    """The headers that make it durable, in each of three ways; one of another topic."""
    if name == "goes":
        return {"id": name, "destination": "/topic/u", "durable-subscription-name": name}
    if name == "by-id":
        return {"id": name, "destination": "/topic/t", "durable": "true", "auto-delete": "false"}
    headers = {"id": name, "destination": "/topic/t", "durable-subscription-name": name}
    return headers | ({"shared": "true"} if name == "shared" else {})


async def ask(client, command, more, body=""):
    answer = await client.ask(command, body, more)
    assert answer.command == "RECEIPT", answer


async def left(brokers, node, name, count):
    """The next so many bodies of a subscription, which are acknowledged."""
    async with await brokers.client(node, client_id="c") as client:
        await ask(client, "SUBSCRIBE", {**durable(name), "ack": "client"})
        found = []
        for _ in range(count):
            (frame,) = await client.messages(1)
            await ask(client, "ACK", {"id": frame.headers["ack"]})
            found.append(int(frame.body.split()[0]))
    return found


async def lost(brokers, how):
    """a1 is no longer active, a2 is; a1 stands by."""
    if how == "kill":
        await brokers.environment.kill("a1")
    elif how == "switch-over":
        await brokers.ask("a1", "end", **{"immediate": True, "switch-over": True})
    else:
        lease = await brokers.environment.inject("nfs-disconnect", nodes=("a1",))
        while await brokers.environment.running("a1"):
            await asyncio.sleep(1)
            await brokers.environment.renew(lease)
        await brokers.environment.heal(lease)
    if how != "kill":
        await brokers.environment.wait_exit("a1")
    while await brokers.role("a2") != "live":
        await asyncio.sleep(0.02)
    await brokers.start("a1", "backup")


@pytest.mark.parametrize("properties", [{}, PAGED], ids=["in memory", "on pages"])
@pytest.mark.parametrize("how", ["kill", "switch-over", "nfs-disconnect"])
def test_whoever_is_active_next_has_the_subscriptions_with_what_waited(how, properties):
    """A second time, too, with what was consumed and sent in between."""

    async def main(brokers):
        await brokers.start("a1", "live")
        await brokers.start("a2", "backup")
        async with await brokers.client("a1", client_id="c") as client:
            for name in (*DURABLE, "goes"):
                await ask(client, "SUBSCRIBE", durable(name))
                await ask(client, "UNSUBSCRIBE", {"id": name})
            await ask(client, "SUBSCRIBE", {"id": "plain", "destination": "/topic/t", "ack": "client"})
            for n in range(COUNT):
                await ask(client, "SEND", {"destination": "/topic/t"}, f"{n} {'x' * 500}")
            for n in range(SLICES):
                client.tell("SEND", str(n), destination="/topic/u")
            await ask(client, "UNSUBSCRIBE", durable("goes"))
            await lost(brokers, how)
        for name in DURABLE:
            assert await left(brokers, "a2", name, COUNT // 2) == list(range(COUNT // 2))
        async with await brokers.client("a2", client_id="c") as client:
            await ask(client, "SUBSCRIBE", durable("goes"))
            await ask(client, "UNSUBSCRIBE", {"id": "goes"})
            for topic in "tu":
                await ask(client, "SEND", {"destination": f"/topic/{topic}"}, str(COUNT))
            queues = [queue["name"] for queue in (await brokers.ask("a2", "status"))["queues"]]
            assert len([name for name in queues if name.startswith("/topic/t::")]) == len(DURABLE)
        await brokers.ask("a2", "end", **{"immediate": True, "switch-over": True})
        while await brokers.role("a1") != "live":
            await asyncio.sleep(0.02)
        rest = list(range(COUNT // 2, COUNT + 1))
        for name in DURABLE:
            assert await left(brokers, "a1", name, len(rest)) == rest
        assert await left(brokers, "a1", "goes", 1) == [COUNT]

    Brokers(**properties).run(main)


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_that_was_not_committed_is_nowhere_and_one_that_was_is_everywhere(seed):
    async def main(brokers):
        await brokers.start("a1", "live")
        await brokers.start("a2", "backup")
        async with await brokers.client("a1", client_id="c") as client:
            for name in DURABLE:
                await ask(client, "SUBSCRIBE", durable(name))
                await ask(client, "UNSUBSCRIBE", {"id": name})
            for n in (1, 2):
                await ask(client, "BEGIN", {"transaction": str(n)})
                await ask(client, "SEND", {"destination": "/topic/t", "transaction": str(n)}, f"{n}")
            await ask(client, "COMMIT", {"transaction": "1"})
            client.tell("COMMIT", transaction="2")
            await asyncio.sleep(0.0004 * seed)
            await lost(brokers, "kill")
        async with await brokers.client("a2", client_id="c") as client:
            await ask(client, "SEND", {"destination": "/topic/t"}, "3")
            found = []
            for name in DURABLE:
                await ask(client, "SUBSCRIBE", {**durable(name), "ack": "client"})
                bodies = [(await client.messages(1))[0].body]
                while bodies[-1] != b"3":
                    bodies.append((await client.messages(1))[0].body)
                found.append(tuple(bodies))
            assert set(found) in ({(b"1", b"3")}, {(b"1", b"2", b"3")})

    Brokers().run(main)
