"""The probes of a high-availability cluster: rows HA3 and HA8.

Chapter 8 of Sun 4.1 is shown on real processes that share an SQLite file.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Any, Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import LOGIN, Broker, Workbench, on_bench
from harness.systems.stomp_client import StompClient, send
from stomp_protocol.frames import Frame

CLUSTER: Final = "probe"
SOURCE: Final = "SUN, High-Availability Clusters"
STORE: Final = "store.sqlite"
QUEUE: Final = "/queue/orders"
ANSWERS: Final = "/temp-queue/answers"
TOPIC: Final = "/topic/prices"
CLIENT: Final = "auditor"
DURABLE: Final = {"durable-subscription-name": "prices"}


def member(
    bench: Workbench,
    name: str,
    *,
    broker_id: str | None = None,
    cluster: Mapping[str, Any] | None = None,
    takeover_wait_ms: int = 0,
    expiration_ms: int = 60_000,
    transient_wait_ms: int = 0,
    data: str | None = None,
) -> Broker:
    """Return a broker of the cluster, in a file next to its configuration.

    Its lease is long: no broker is taken over because this machine is slow.
    """
    return Broker(
        bench,
        name,
        {
            "broker": {"data-directory": data or f"{name}-data"},
            "cluster": {"connection-ttl": 6000, **(cluster or {})},
            "ha-policy": {
                "ha-database": {
                    "cluster-id": CLUSTER,
                    "broker-id": broker_id or name,
                    "heartbeat-interval": 250,
                    "monitor-interval": 200,
                    "takeover-wait": takeover_wait_ms,
                    "transient-wait": transient_wait_ms,
                }
            },
            "database-store": {
                "url": f"sqlite:{STORE}",
                "network-timeout": 10_000,
                "lock-renew-period": 500,
                "lock-expiration": expiration_ms,
            },
        },
    )


async def started(*brokers: Broker) -> None:
    """Start all brokers, and return when all serve."""
    for broker in brokers:
        await broker.start()
    for broker in brokers:
        await broker.live()


async def row_of(broker: Broker, broker_id: str) -> dict[str, Any]:
    """Return a broker's row, asked at another one; empty while that does not answer."""
    with contextlib.suppress(OSError):
        answer = await broker.ask("members")
        return next((row for row in answer["members"] if row["broker-id"] == broker_id), {})
    return {}


async def becomes(broker: Broker, broker_id: str, state: str) -> None:
    """Return when the store says that a broker is in a state. Raises StepMissedError."""

    async def is_so() -> bool:
        return (await row_of(broker, broker_id)).get("state") == state

    await broker.bench.until(f"the store says that {broker_id} is {state}", state, is_so)


async def members(broker: Broker) -> dict[str, list[str]]:
    """Return ``brokerctl members`` by broker id: columns are two or more spaces apart."""
    result = await broker.ctl("members")
    return {cells[0]: cells for cells in (re.split(r" {2,}", line) for line in result.lines[2:])}


async def stored(broker: Broker) -> list[str]:
    """Return the bodies that ``brokerctl browse`` shows."""
    return [line.split()[-1] for line in (await broker.ctl("browse")).lines[1:]]


def _texts(frames: list[Frame]) -> list[str]:
    return [frame.body.decode() for frame in frames]


@on_bench
async def _ha3(bench: Workbench) -> None:
    # A killed broker cannot announce its end: the taker waits for the end of its lease.
    failing, taker = (member(bench, name, expiration_ms=12_000) for name in ("a1", "b1"))
    await started(failing, taker)
    async with (
        await StompClient.connect(failing.stomp) as producer,
        await StompClient.connect(failing.stomp, client_id=CLIENT) as consumer,
    ):
        session = producer.connected.headers["store-session"]
        for body in ("acknowledged", "unacknowledged", "acknowledged-in-a-transaction", "pending"):
            await producer.ask("SEND", body, destination=QUEUE)
        await producer.ask("BEGIN", transaction="committed")
        await producer.ask("SEND", "sent-and-committed", destination=QUEUE, transaction="committed")
        await producer.ask("COMMIT", transaction="committed")
        await producer.ask("BEGIN", transaction="open")
        await producer.ask("SEND", "sent-and-not-committed", destination=QUEUE, transaction="open")
        await consumer.ask(
            "SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual", prefetch_count="3"
        )
        first, _, third = await consumer.messages(3)
        await consumer.ask("SUBSCRIBE", id="2", destination=TOPIC, ack="client-individual", more=DURABLE)
        await consumer.ask("SUBSCRIBE", id="3", destination=TOPIC, ack="client-individual")
        for body in ("of-the-topic", "of-the-topic, too"):
            await producer.ask("SEND", body, destination=TOPIC)
        await consumer.ask("ACK", id=first.headers["ack"])
        await consumer.ask("BEGIN", transaction="open")
        await consumer.ask("ACK", id=third.headers["ack"], transaction="open")
        await failing.kill()
    taken = await taker.ctl("takeover", "-f", "-n", "a1")
    bench.require(
        "another broker takes over", (0, ["a1: TAKEOVER_COMPLETE, by b1"]), (taken.status, taken.lines)
    )

    async def let_in() -> bool:
        async with await StompClient.connect(taker.stomp, session) as client:
            return client.connected.command == "CONNECTED"

    await bench.until("the clients of the failed broker are let in", "CONNECTED", let_in)
    async with await StompClient.connect(taker.stomp, session) as consumer:
        await consumer.ask("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual")
        moved = await consumer.messages(4)
        bench.compare(
            "the taker delivers pending messages and those with a pending acknowledgement in order",
            ["unacknowledged", "acknowledged-in-a-transaction", "pending", "sent-and-committed"],
            _texts(moved),
        )
        bench.compare(
            "a message that may have been delivered before is marked as redelivered",
            "true",
            moved[0].headers.get("redelivered", "absent"),
        )
        for frame in moved:
            await consumer.ask("ACK", id=frame.headers["ack"])
        bench.compare(
            "nothing is left of an open transaction: neither its messages nor its name",
            "RECEIPT",
            (await consumer.ask("BEGIN", transaction="open")).command,
        )
    await _ha3_subscriptions(bench, taker, session)


async def _ha3_subscriptions(bench: Workbench, taker: Broker, session: str) -> None:
    status = await taker.status()
    bench.compare(
        "the durable subscription is there, and the plain subscription is not",
        [f"{TOPIC}::{LOGIN}.{CLIENT}.prices"],
        [] if status is None else [queue["name"] for queue in status["queues"] if "topic" in queue],
    )
    async with await StompClient.connect(taker.stomp, session, client_id=CLIENT) as client:
        await client.ask("SUBSCRIBE", id="1", destination=TOPIC, ack="client-individual", more=DURABLE)
        await client.ask("SEND", "sent-to-the-taker", destination=TOPIC)
        frames = await client.messages(3)
        bench.compare(
            "the durable subscription has the messages from both brokers, in order",
            ["of-the-topic", "of-the-topic, too", "sent-to-the-taker"],
            _texts(frames),
        )
        for frame in frames:
            await client.ask("ACK", id=frame.headers["ack"])
        await client.ask("UNSUBSCRIBE", id="1", more=DURABLE)
    bench.compare("nothing else is there", [], await stored(taker))


@on_bench
async def _ha8(bench: Workbench) -> None:
    first = member(bench, "a1")
    second = member(bench, "b1", cluster={"static-connectors": ["127.0.0.1:1"]})
    await first.start()
    await first.live()
    bench.compare("one broker registers by itself", ["a1"], list(await members(first)))
    started = await second.start()
    await second.live()
    bench.compare("a second broker registers, and no list names it", ["a1", "b1"], list(await members(first)))
    bench.compare(
        "the broker ignores its list of brokers and logs a warning",
        1,
        sum(
            " WARNING " in line and "cluster.static-connectors is ignored" in line
            for line in started.output.splitlines()
        ),
    )


@on_bench
async def _ha8_id(bench: Workbench) -> None:
    first, twin = member(bench, "a1"), member(bench, "twin", broker_id="a1")
    await started(first)
    refused = await twin.start()

    async def decided() -> str:
        if not refused.running:
            return "ends"
        return "serves" if await twin.shows("role", "live") else ""

    bench.require(
        "a second broker with an id that is in use", "ends", await bench.until("the second", "ends", decided)
    )
    bench.compare("the second broker ends with exit status 1", 1, await refused.wait())
    bench.compare(
        "one error line names the broker that has the id",
        [
            (
                "ha-policy.ha-database.broker-id 'a1' is in use by the broker at "
                f"127.0.0.1:{first.cluster}: every broker of a cluster needs an id of its own"
            )
        ],
        twin.errors,
    )
    status = await first.status()
    bench.compare("the broker that has the id goes on", "live", status["role"] if status else "gone")


async def _ha12(bench: Workbench, wait_ms: int) -> tuple[Broker, str, str]:
    """Kill a broker with a temporary queue that has a message, and let another one take it over.

    Returns the taker, the store session and the unique name of the queue, when the taker accepts
    the clients of the failed broker.
    """
    failing, taker = (
        member(bench, name, transient_wait_ms=wait_ms, expiration_ms=12_000) for name in ("a1", "b1")
    )
    await started(failing, taker)
    async with await StompClient.connect(failing.stomp, client_id=CLIENT) as asker:
        session = asker.connected.headers["store-session"]
        await asker.ask("SUBSCRIBE", id="1", destination=ANSWERS, ack="client-individual")
        await asker.ask("SEND", "question", destination=QUEUE, reply_to=ANSWERS)
        await asker.ask("SUBSCRIBE", id="2", destination=QUEUE)
        [question] = await asker.messages(1)
        reply_to = question.headers["reply-to"]
        await asker.ask("SEND", "answer", destination=reply_to)
        await failing.kill()
    await taker.ctl("takeover", "-f", "-n", "a1")

    async def let_in() -> bool:
        async with await StompClient.connect(taker.stomp, session) as client:
            return client.connected.command == "CONNECTED"

    await bench.until("the clients of the failed broker are let in", "CONNECTED", let_in)
    return taker, session, reply_to


async def _resumed(taker: Broker, session: str, client_id: str) -> tuple[str, list[str]]:
    """Let a client return to its temporary queue; return the answer, and the replies that it gets.

    The answer is "RECEIPT", or why the client is refused.
    """
    async with await StompClient.connect(taker.stomp, session, client_id=client_id) as client:
        answer = await client.ask("SUBSCRIBE", id="1", destination=ANSWERS, more={"resume": "true"})
        if answer.command == "ERROR":
            return answer.headers["message"], []
        return "RECEIPT", _texts(await client.messages(2))


async def _temporaries(broker: Broker) -> list[str]:
    """Return the names of the temporary queues that a broker has."""
    status = await broker.status() or {"queues": []}
    return [queue["name"] for queue in status["queues"] if queue["name"].startswith("/remote-temp-queue/")]


@on_bench
async def _ha12_late(bench: Workbench) -> None:
    taker, session, reply_to = await _ha12(bench, 1000)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10.0):
            while await _temporaries(taker):  # noqa: ASYNC110 - a process is asked
                await asyncio.sleep(0.1)
    bench.require("the taker cleans the queue after the waiting period", [], await _temporaries(taker))
    answer, _ = await _resumed(taker, session, CLIENT)
    bench.compare(
        "a client that returns later is refused by name",
        (True, True),
        (f"temporary queue 'answers' of client-id '{CLIENT}' is not kept here" in answer, "1 s" in answer),
    )
    async with await StompClient.connect(taker.stomp, session) as responder:
        late = await responder.ask("SEND", "too late", destination=reply_to)
        bench.compare(
            "a later reply is refused by name",
            True,
            f"{reply_to}' is no temporary" in late.headers["message"],
        )
    async with await StompClient.connect(taker.stomp, session, client_id=CLIENT) as client:
        await client.ask("SUBSCRIBE", id="1", destination=ANSWERS)
        await client.ask("SEND", "other question", destination=QUEUE, reply_to=ANSWERS)
        await client.ask("SUBSCRIBE", id="2", destination=QUEUE)
        [question] = await client.messages(1)
        bench.compare("its new queue has another name", True, question.headers["reply-to"] != reply_to)


@on_bench
async def _ha12_in_time(bench: Workbench) -> None:
    taker, session, reply_to = await _ha12(bench, 600_000)
    bench.require("the taker keeps the queue", [reply_to], await _temporaries(taker))
    await send(taker.stomp, reply_to, "another answer")
    stranger, _ = await _resumed(taker, session, "stranger")
    bench.compare("another client does not get the queue", True, "is not kept here" in stranger)
    answer, replies = await _resumed(taker, session, CLIENT)
    bench.compare("a client that returns in time gets its queue", "RECEIPT", answer)
    bench.compare(
        "it gets the replies from before the failure and from after it", ["answer", "another answer"], replies
    )
    bench.compare("the queue ends with its connection", [], await _temporaries(taker))


PROBES: Final = (
    Probe(
        id="HA3",
        claim="pending messages, pending acknowledgements and durable subscriptions move to the "
        "taker; open transactions and other transient resources are gone",
        source=SOURCE,
        expected="the taker delivers messages that were not finally acknowledged, marked as "
        "redelivered, from queues and subscriptions; uncommitted messages are gone",
        take=_ha3,
    ),
    Probe(
        id="HA8",
        claim="brokers register themselves; a broker ignores a list of brokers and logs a warning",
        source=SOURCE,
        expected="all brokers list every broker, although no configuration names it",
        take=_ha8,
    ),
    Probe(
        id="HA8-id",
        claim="every broker of a cluster has its own id: a second broker with the same id is refused",
        source=SOURCE,
        expected="the second broker ends with one line that names the first; the first goes on",
        take=_ha8_id,
    ),
    Probe(
        id="HA12",
        claim="the taker cleans a failed broker's transient resources after a waiting period: then they "
        "are unavailable to a client that returns",
        source=SOURCE,
        expected="the temporary queue is gone, and the client is refused by name",
        take=_ha12_late,
    ),
    Probe(
        id="HA12-in-time",
        claim="within the waiting period a client that returns gets its temporary queue, with the replies "
        "that waited",
        source=SOURCE,
        expected="the client gets its queue and all replies, and no other client does",
        take=_ha12_in_time,
    ),
)
