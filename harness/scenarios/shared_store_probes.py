"""What the document on shared stores says of the time a takeover takes, shown on real processes: row SS8.

The curve up to a million messages is measured by ``bench/recovery.py``; here it is shown that a backup serves all of what is stored, however much, and how
long that took is in the steps.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from harness.scenarios.bench import Bench, Broker
from harness.scenarios.probe import Notes, Probe
from harness.scenarios.stomp_client import StompClient

_STORED: Final = (1_000, 10_000, 50_000)
"""Messages stored at each takeover in turn; each pair of brokers has a store of its own."""

_QUEUE: Final = "/queue/stored"
_BODY: Final = "x" * 64


def _pair(bench: Bench, count: int) -> tuple[Broker, Broker]:
    """A live and its backup on one directory."""

    def broker(name: str, role: str) -> Broker:
        table: dict[str, dict[str, Any]] = {
            "broker": {"name": f"{name}-{count}", "data-directory": f"store-{count}"},
            "ha-policy": {"shared-store": {role: {"lock-poll-period": 50, "lock-expiration": 60_000}}},
        }
        return Broker(bench, f"{name}-{count}", table)

    return broker("a1", "master"), broker("a2", "slave")


async def _becomes(broker: Broker, role: str) -> None:
    async def said() -> bool:
        status = await broker.status()
        return status is not None and status["role"] == role

    await broker.bench.until(f"{broker.name} becomes {role}", role, said)


async def _stored(broker: Broker) -> int:
    status = await broker.status()
    queues = [] if status is None else status["queues"]
    return sum(int(queue["messages"]) for queue in queues if queue["name"] == "stored")


async def _taken_over(bench: Bench, notes: Notes, count: int) -> None:
    live, backup = _pair(bench, count)
    await live.start()
    await _becomes(live, "live")
    await backup.start()
    await _becomes(backup, "backup")
    async with await StompClient.connect(live.stomp) as producer:
        for _ in range(count - 1):
            producer.tell("SEND", _BODY, destination=_QUEUE)
        confirmed = await producer.ask("SEND", _BODY, destination=_QUEUE)
    notes.require(f"{count} messages are sent", ["RECEIPT", count], [confirmed.command, await _stored(live)])
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await live.kill()
    await _becomes(backup, "live")
    took_s = loop.time() - began_s
    notes.compare(
        f"the backup serves them all, {took_s:.2f} s after the live was killed", count, await _stored(backup)
    )
    await backup.kill()


async def _ss8(notes: Notes) -> None:
    async with Bench(notes) as bench:
        for count in _STORED:
            await _taken_over(bench, notes, count)


PROBES: Final = (
    Probe(
        id="SS8",
        claim="the start-up of the backup loads the whole journal, and takes the longer the more is stored; nothing of it is missing",
        source="AMQ 17.3.2 (note)",
        expected=f"a backup serves all of {', '.join(f'{count:,}' for count in _STORED)} messages stored; the time of each takeover is told",
        take=_ss8,
    ),
)
