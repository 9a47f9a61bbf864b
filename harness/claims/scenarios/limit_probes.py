"""Probes of limits: what is removed, who is refused, and the memory of a flooded broker (CV13)."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, Workbench, on_bench
from harness.systems.stomp_client import StompClient

_BODY: Final = "x" * 10_000
_FLOOD: Final = 8_000
"""So many messages with that body have 80 MB."""
_ROUND: Final = 100
"""The sends of the flood after which its client waits for an answer."""
_MB: Final = 1_000_000


async def _served(bench: Workbench, name: str, broker: dict[str, Any], *settings: dict[str, Any]) -> Broker:
    """Return a broker that serves, with these properties and address settings."""
    table = {
        "admin": {"secret": bench.secret},
        "broker": {"max-disk-usage": 99, **broker},
        "address-settings": list(settings),
    }
    made = Broker(bench, name, table)
    await made.start()
    await made.live()
    return made


async def _send(client: StompClient, queue: str, body: str, **headers: str) -> str:
    """Send a message; return "taken", or the ERROR, and whether the send certainly failed."""
    answer = await client.ask("SEND", body, {"destination": f"/queue/{queue}", **headers})
    if answer.command == "RECEIPT":
        return "taken"
    certainly = "certainly " if answer.headers.get("not-done") == "true" else ""
    return f"{certainly}refused: {answer.headers['message']}"


async def _bodies(broker: Broker, queue: str) -> list[str]:
    """Return the bodies of the messages in a queue, the oldest first."""
    answer = await broker.ctl("browse", queue)
    return [line.split()[-1] for line in answer.lines[1:]]


@on_bench
async def _priority(bench: Workbench) -> None:
    broker = await _served(
        bench,
        "a1",
        {},
        {"match": "urgent", "max-messages": 3, "limit-behavior": "REMOVE_LOW_PRIORITY"},
        {"match": "newest", "max-messages": 3, "limit-behavior": "REMOVE_OLDEST"},
    )
    queues = "urgent", "newest", "unlimited"
    async with await StompClient.connect(broker.stomp) as client:
        for queue in queues:
            answers = [
                await _send(client, queue, f"{name}-{priority}", priority=priority)
                for name, priority in (("a", "9"), ("b", "4"), ("c", "1"), ("d", "4"), ("e", "9"), ("f", "0"))
            ]
            bench.compare(f"{queue}: the answers to six sends", ["taken"] * 6, answers)
    everything = ["a-9", "b-4", "c-1", "d-4", "e-9", "f-0"]
    expected = {"urgent": ["a-9", "d-4", "e-9"], "newest": ["d-4", "e-9", "f-0"], "unlimited": everything}
    bench.compare("what is left", expected, {queue: await _bodies(broker, queue) for queue in queues})
    await broker.kill()
    await broker.start()
    await broker.live()
    left = {queue: await _bodies(broker, queue) for queue in queues}
    bench.compare("what is left after a kill and a restart", expected, left)


@on_bench
async def _clients(bench: Workbench) -> None:
    limited = await _served(bench, "a1", {"max-connections": 2}, {"match": "few", "max-producers": 1})
    unlimited = await _served(bench, "b1", {})
    for broker, third, second_sends in (
        (limited, "ERROR", "certainly refused: 'few' has 1 producers, and may have 1 (address-settings: "),
        (unlimited, "CONNECTED", "taken"),
    ):
        async with await StompClient.connect(broker.stomp) as first:
            async with await StompClient.connect(broker.stomp) as second:
                async with await StompClient.connect(broker.stomp) as one_more:
                    bench.compare(f"{broker.name}: the third client", third, one_more.connected.command)
                bench.compare(f"{broker.name}: the first producer", "taken", await _send(first, "few", "1"))
                answer = await _send(second, "few", "2")
                bench.compare(
                    f"{broker.name}: the second producer", second_sends, answer[: len(second_sends)]
                )
            await first.ask("DISCONNECT")

        async def is_served(broker: Broker = broker) -> bool:
            async with await StompClient.connect(broker.stomp) as later:
                return later.connected.command == "CONNECTED" and await _send(later, "few", "3") == "taken"

        await bench.until(f"{broker.name}: a client that comes when others have left", "served", is_served)


async def _grown_mb(broker: Broker) -> float:
    """Flood a broker; return by how much its memory has grown."""
    before = broker.process.memory_bytes
    async with await StompClient.connect(broker.stomp) as client:
        for number in range(_FLOOD):
            if number % _ROUND:
                client.tell("SEND", _BODY, destination="/queue/flooded")
            else:
                await _send(client, "flooded", _BODY)
    return (broker.process.memory_bytes - before) / _MB


@on_bench
async def _memory(bench: Workbench) -> None:
    room = {"match": "#", "max-size-bytes": -1}
    limit = {"max-messages": 100, "limit-behavior": "REMOVE_OLDEST"}
    limited = await _served(bench, "a1", {"global-max-size": 1 << 30}, {**room, **limit})
    unlimited = await _served(bench, "b1", {"global-max-size": 1 << 30}, room)
    grown = await _grown_mb(limited)
    bench.compare("with a limit, the memory grows by at most 40 MB", True, grown <= 40 or grown)
    grown = await _grown_mb(unlimited)
    bench.compare("without a limit, it grows by at least 70 MB", True, grown >= 70 or grown)


PROBES: Final = (
    Probe(
        id="CV13-priority",
        claim="REMOVE_LOW_PRIORITY: a broker removes the oldest of the messages with the lowest priority, "
        "which may be the new one; with REMOVE_OLDEST the priority does not matter",
        source="SUN",
        expected="of six messages the right three are left, also after a kill; without a limit all are",
        take=_priority,
    ),
    Probe(
        id="CV13-clients",
        claim="a broker refuses more clients, and a queue more producers, than its limit, until others leave",
        source="SUN, CAPS",
        expected="the third client and the second producer are refused; without limits nobody is",
        take=_clients,
    ),
    Probe(
        id="CV13-memory",
        claim="a limit on the messages of a queue bounds the memory of a broker that is flooded",
        source="SUN",
        expected="80 MB of messages cost at most 40 MB with a limit, and at least 70 MB without one",
        take=_memory,
    ),
)
