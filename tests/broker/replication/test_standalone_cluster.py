"""Brokers without backups in one cluster: forwarding, and what waits for a broker that is away."""

from plain_client import Client
from replicated import Cluster, Load, cluster_test, until


class Alone:
    """Turns nodes into standalone brokers of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for node in cluster.nodes.values():
            node.properties["role"] = "standalone"

    async def start(self, *names: str) -> None:
        await self._cluster.start(*names)
        for name in names:
            await until(lambda name=name: self._cluster[name].is_role("live"), f"{name} is live")


async def consumer_known(node, queue: str, producer: Client, consumer: Client) -> None:
    """Return when what ``node`` takes goes to the other broker's consumer."""

    async def forwarded():
        await producer.send(queue, "probe")
        try:
            headers, _ = await consumer.receive(timeout_s=0.2)
        except TimeoutError:
            return False
        await consumer.ack(headers)
        return True

    await until(forwarded, f"{node.name} forwards")


async def forwarding(node) -> list[str]:
    """Queues of the messages that wait for other brokers."""
    answer = await node.ask(command="browse")
    return [message["queue"] for message in answer["messages"] if message["store"] == "store-and-forward"]


@cluster_test(pairs=1)
async def test_messages_wait_for_a_broker_that_is_away_and_arrive_once(cluster):
    """It is paused: nothing says that it will not come back, so what it was to have waits for
    it, visibly.
    """
    await Alone(cluster).start("a1", "a2")
    consumer = await cluster.client("a2")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await consumer_known(cluster["a1"], "work", producer, consumer)
    cluster.cut(("a1", "a2"))
    for number in range(20):
        await producer.send("work", f"m{number}")
    assert set(await forwarding(cluster["a1"])) == {"work"}
    cluster.heal()
    bodies = set()
    while len(bodies) < 20:
        headers, body = await consumer.receive()
        assert body not in bodies
        if body != "probe":
            bodies.add(body)
        await consumer.ack(headers)

    async def nothing_waits():
        return not await forwarding(cluster["a1"])

    await until(nothing_waits, "nothing waits any more")


@cluster_test(pairs=1)
async def test_consumers_on_both_share_in_turn(cluster):
    await Alone(cluster).start("a1", "a2")
    near, far = await cluster.client("a1"), await cluster.client("a2")
    await far.subscribe("work")
    producer = await cluster.client("a1")
    await consumer_known(cluster["a1"], "work", producer, far)
    await near.subscribe("work")
    while not near.deliveries.empty():
        await near.ack((await near.receive())[0])
    for number in range(40):
        await producer.send("work", f"m{number}")
    got = {"near": 0, "far": 0}

    async def count():
        for name, client in (("near", near), ("far", far)):
            while not client.deliveries.empty():
                headers, body = client.deliveries.get_nowait()
                got[name] += body.startswith("m")
                await client.ack(headers)
        return got["near"] + got["far"] == 40

    await until(count, "all have arrived")
    assert got == {"near": 20, "far": 20}


@cluster_test(pairs=1)
async def test_large_messages_go_to_the_consumer_at_another_broker_in_their_turn(cluster):
    await Alone(cluster).start("a1", "a2")
    consumer = await cluster.client("a2")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await consumer_known(cluster["a1"], "work", producer, consumer)
    sent = [str(number) * (1_500_000 if number % 2 else 1) for number in range(6)]
    for body in sent:
        await producer.send("work", body)
    got = []
    while len(got) < len(sent):
        headers, body = await consumer.receive()
        if body != "probe":
            got.append(body)
            assert headers["redelivered"] == "false"
            assert headers["JMSXDeliveryCount"] == "1"
        await consumer.ack(headers)
    assert got == sent

    async def nothing_waits():
        return not await forwarding(cluster["a1"])

    await until(nothing_waits, "nothing waits any more")


@cluster_test(pairs=1)
async def test_groups_are_never_forwarded(cluster):
    await Alone(cluster).start("a1", "a2")
    consumer = await cluster.client("a2")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await consumer_known(cluster["a1"], "work", producer, consumer)
    await producer.send("work", "grouped", JMSXGroupID="g")
    stored = await cluster["a1"].stored()
    assert "grouped" in stored
    assert not await forwarding(cluster["a1"])


@cluster_test(pairs=1, on_processes=True)
async def test_a_killed_broker_loses_nothing_that_was_forwarded_to_it(cluster):
    alone = Alone(cluster)
    await alone.start("a1", "a2")
    consumer = await cluster.client("a2")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await consumer_known(cluster["a1"], "work", producer, consumer)
    load = Load(cluster, ("a1",), queue="work")
    await load.reached(100)
    await cluster.kill("a2")
    await load.reached(50)
    await alone.start("a2")
    await load.stop()

    async def all_there():
        bodies = await cluster["a1"].stored() + await cluster["a2"].stored()
        return set(load.answered) <= set(bodies) and not await forwarding(cluster["a1"])

    await until(all_there, "every message is in a queue of its own")
    bodies = await cluster["a1"].stored() + await cluster["a2"].stored()
    bodies = [body for body in bodies if body != "probe"]
    assert len(bodies) == len(set(bodies))
