"""Probes of a shared store: the time that a takeover takes (SS8), and equal settings (SS10).

What the document on shared stores says of SS8 is shown on real processes. The curve up to a million
messages is measured by ``bench/recovery.py``. The probe shows that a backup serves all stored
messages, however many, and that the time grows with what the journal holds: four times as many
messages take about four times as long. It measures CPU time, since a machine may have other work.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, Workbench, on_bench
from harness.systems.stomp_client import StompClient

_STORED: Final = (1_000, 40_000, 160_000)
"""The messages stored at each takeover in turn; each pair of brokers has a store of its own.

The last two are compared.
"""

_LEAST: Final = 2.0
_MOST: Final = 8.0
"""The maximum ratio of the times of four times as many messages and of a quarter of them.

It is about four; ``_LEAST`` is the minimum.
"""

_QUEUE: Final = "/queue/stored"
_BODY: Final = "x" * 64
_BLOCK: Final = 10_000


def _pair(bench: Workbench, count: int) -> tuple[Broker, Broker]:
    """Return a live and its backup on one directory."""

    def broker(name: str, role: str) -> Broker:
        table: dict[str, Any] = {
            # All messages are in the journal: none on pages, which a start does not read.
            "broker": {
                "name": f"{name}-{count}",
                "data-directory": f"store-{count}",
                "global-max-size": 2**30,
            },
            "address-settings": [{"match": "#", "max-size-bytes": -1}],
            "ha-policy": {"shared-store": {role: {"lock-poll-period": 50, "lock-expiration": 60_000}}},
        }
        return Broker(bench, f"{name}-{count}", table)

    return broker("a1", "master"), broker("a2", "slave")


async def _stored(broker: Broker) -> int:
    status = await broker.status()
    queues = [] if status is None else status["queues"]
    return sum(int(queue["messages"]) for queue in queues if queue["name"] == "stored")


async def _taken_over(bench: Workbench, count: int) -> float:
    """Return the CPU seconds from the live's end until its backup says it is live."""
    live, backup = _pair(bench, count)
    await live.start()
    await live.becomes("live")
    await backup.start()
    await backup.becomes("backup")
    async with await StompClient.connect(live.stomp) as producer:
        for begin in range(0, count, _BLOCK):
            for _ in range(min(_BLOCK, count - begin) - 1):
                producer.tell("SEND", _BODY, destination=_QUEUE)
            confirmed = await producer.ask("SEND", _BODY, destination=_QUEUE)
    bench.require(f"{count} messages are sent", ["RECEIPT", count], [confirmed.command, await _stored(live)])
    loop = asyncio.get_running_loop()
    began_s, began_cpu_s = loop.time(), backup.process.cpu_s
    await live.kill()
    await backup.becomes("live")
    took_s, cpu_s = loop.time() - began_s, backup.process.cpu_s - began_cpu_s
    bench.compare(
        f"the backup serves them all, {took_s:.2f} s ({cpu_s:.2f} s of CPU) after the live was killed",
        count,
        await _stored(backup),
    )
    await backup.kill()
    return cpu_s


@on_bench
async def _ss8(bench: Workbench) -> None:
    took = [await _taken_over(bench, count) for count in _STORED]
    fewer, many = _STORED[-2:]
    times = took[-1] / took[-2]
    fits = "in proportion" if _LEAST <= times <= _MOST else "otherwise"
    bench.compare(
        f"{many} messages take {times:.1f} times as long as {fewer}: the time grows with the stored messages",
        "in proportion",
        fits,
    )


def _database_broker(bench: Workbench, name: str, role: str, expiration_ms: int) -> Broker:
    """Return a broker on a store in a database, with that ``lock-expiration``."""
    table: dict[str, Any] = {
        "ha-policy": {"shared-store": {"store": "database", role: {"lock-poll-period": 50}}},
        "database-store": {"url": "sqlite:store.db", "lock-expiration": expiration_ms},
    }
    return Broker(bench, name, table)


def _compare_refusal(bench: Workbench, backup: Broker, subject: str) -> None:
    """Compare what a refused backup, called ``subject``, logged about its ``lock-expiration``."""
    lines = [line for line in backup.process.output.splitlines() if "lock-expiration" in line]
    named = ["database-store.lock-expiration is 15000 here and 12000 at a1" in line for line in lines]
    bench.compare(f"the one line about it of {subject} names the property and both values", [True], named)


@on_bench
async def _ss10(bench: Workbench) -> None:
    live, early, late, alike = (
        _database_broker(bench, name, role, expiration)
        for name, role, expiration in (
            ("a1", "master", 12_000),
            ("a2", "slave", 15_000),
            ("a3", "slave", 15_000),
            ("a4", "slave", 12_000),
        )
    )
    await early.start()
    await early.becomes("backup")
    await live.start()
    await live.live()
    await late.start()

    async def has_decided() -> bool:
        return not late.process.running or await late.shows("role", "backup")

    await bench.until("the other backup decides whether it waits", "a decision", has_decided)
    ended = not late.process.running and await late.process.wait() > 0
    bench.require("a backup with another lock-expiration ends with an error", True, ended)
    _compare_refusal(bench, late, "a backup")
    early_end = "so does one that waited before the live began"

    async def has_ended() -> bool:
        return not early.process.running

    await bench.until(early_end, "an end", has_ended)
    bench.compare(early_end, True, await early.process.wait() > 0)
    _compare_refusal(bench, early, "the waiting one")
    await alike.start()
    await alike.becomes("backup")
    async with await StompClient.connect(live.stomp) as client:
        answer = await client.ask("SEND", _BODY, destination=_QUEUE)
    bench.compare("the live goes on", "RECEIPT", answer.command)
    bench.compare("the backup with the same is next", "backup", (await alike.ask("status"))["role"])


PROBES: Final = (
    Probe(
        id="SS8",
        claim="the backup loads the whole journal at its start: the more is stored, the longer it "
        "takes; no message is missing",
        source="AMQ 17.3.2 (note)",
        expected=f"a backup serves all of {', '.join(f'{count:,}' for count in _STORED)} stored "
        f"messages; four times as many messages take {_LEAST:g} to {_MOST:g} times as long",
        take=_ss8,
    ),
    Probe(
        id="SS10",
        claim="live and backup have the same settings of their store in a database: a backup with other lock "
        "times is refused",
        source="AMQ 17.3.2.2",
        expected="the refused backup names the property and both values in one line; the live goes on; a "
        "backup with the same settings waits for its turn",
        take=_ss10,
    ),
)
