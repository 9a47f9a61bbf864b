"""The administration of a high-availability cluster: rows HA6, HA7, HA9 and HA10.

Chapter 8 of Sun 4.1 is shown on real processes that share an SQLite file.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from typing import Final

from broker.storage.database import schema as s
from harness.claims.scenarios.ha_database_probes import (
    CLUSTER,
    QUEUE,
    STORE,
    becomes,
    member,
    members,
    row_of,
    started,
    stored,
)
from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, CommandResult, Workbench, on_bench
from harness.systems.stomp_client import StompClient, send

_NEVER_MS: Final = 600_000


@on_bench
async def _ha6(bench: Workbench) -> None:
    question = re.compile(r"The broker associated with b1 last accessed the database \d+ seconds ago\.")
    taker, victim = member(bench, "a1"), member(bench, "b1")
    await started(taker, victim)
    await send(victim.stomp, QUEUE, "kept")
    confirmation = await taker.ctl("takeover", "-n", "b1", typed="n\n")
    bench.compare(
        "the command shows the last access of a broker that seems to run",
        True,
        bool(question.match(confirmation.output)),
    )
    bench.compare(
        "the command asks for confirmation",
        True,
        "Do you want to take over for this broker?" in confirmation.output,
    )
    bench.compare(
        "after the answer no nothing is done",
        (1, "OPERATING"),
        (confirmation.status, (await row_of(taker, "b1"))["state"]),
    )
    forced = await taker.ctl("takeover", "-f", "-n", "b1")
    bench.compare(
        "-f asks no question", (0, None), (forced.status, question.search(forced.output) and "asked")
    )
    bench.compare("the taker has the broker's messages", ["kept"], await stored(taker))
    await victim.live()
    await send(victim.stomp, QUEUE, "left")
    await victim.stop("--no-failover")
    bench.compare(
        "after a shutdown with -nofailover no broker takes it over",
        "SHUTDOWN_COMPLETE",
        (await row_of(taker, "b1"))["state"],
    )
    by_hand = await taker.ctl("takeover", "-n", "b1")
    bench.compare(
        "then a takeover by command asks no question",
        (0, ["b1: TAKEOVER_COMPLETE, by a1"]),
        (by_hand.status, by_hand.lines),
    )
    bench.compare("the taker has its message, too", ["kept", "left"], await stored(taker))


@on_bench
async def _ha7(bench: Workbench) -> None:
    quiet, other = member(bench, "a1"), member(bench, "b1")
    await started(quiet, other)
    async with await StompClient.connect(quiet.stomp) as old:
        result = await quiet.ctl("quiesce")
        bench.compare("a broker quiesces", 0, result.status)
        bench.compare(
            "the broker serves an existing connection",
            "RECEIPT",
            (await old.ask("SEND", "served", destination=QUEUE)).command,
        )
        async with await StompClient.connect(quiet.stomp) as new:
            bench.compare(
                "the broker refuses a new connection and says why",
                ("ERROR", True),
                (new.connected.command, "quiescing" in new.connected.headers.get("message", "")),
            )
    await becomes(other, "a1", s.QUIESCE_COMPLETE)
    bench.compare("no broker takes it over", [], (await other.status() or {}).get("taken-over"))
    bench.compare("the broker shuts down", 0, await quiet.stop("--no-failover"))
    row = await row_of(other, "a1")
    bench.compare(
        "no broker takes it over after its shutdown",
        ["SHUTDOWN_COMPLETE", 1],
        [row.get("state"), row.get("messages")],
    )


@on_bench
async def _ha9(bench: Workbench) -> None:
    # The first broker begins takeovers and never completes one, as a taker that failed half-way.
    slow = member(bench, "a1", takeover_wait_ms=_NEVER_MS)
    victim, other = member(bench, "b1"), member(bench, "g1")
    await started(slow, victim, other)
    await send(victim.stomp, QUEUE, "one", "two")

    async def member_cells(broker_id: str) -> list[str]:
        return (await members(other))[broker_id]

    listed = await members(other)
    bench.compare(
        "the list shows all brokers with id, address, state, messages in store and taker",
        [
            ["a1", f"127.0.0.1:{slow.cluster}", "OPERATING", "0", "-"],
            ["b1", f"127.0.0.1:{victim.cluster}", "OPERATING", "2", "-"],
            ["g1", f"127.0.0.1:{other.cluster}", "OPERATING", "0", "-"],
        ],
        [cells[:5] for cells in listed.values()],
    )
    bench.compare(
        "the list shows the time since the last timestamp of each broker",
        [True, True, True],
        [bool(re.fullmatch(r"\d+ s ago", cells[5])) for cells in listed.values()],
    )
    await victim.stop("--no-failover")
    bench.compare(
        "the list shows a broker that was shut down",
        ["SHUTDOWN_COMPLETE", "2", "-"],
        (await member_cells("b1"))[2:5],
    )
    await bench.start("takeover", *slow.brokerctl, "takeover", "-n", "b1")
    await becomes(other, "b1", s.TAKEOVER_STARTED)
    bench.compare(
        "the list shows a takeover that has begun",
        ["TAKEOVER_STARTED", "2", "a1"],
        (await member_cells("b1"))[2:5],
    )
    await other.ctl("takeover", "-f", "-n", "b1")
    bench.compare(
        "the list shows a takeover that is complete",
        ["TAKEOVER_COMPLETE", "0", "g1"],
        (await member_cells("b1"))[2:5],
    )
    bench.compare("the taker has the messages", ["OPERATING", "2", "-"], (await member_cells("g1"))[2:5])
    async with await StompClient.connect(other.stomp):
        await other.ctl("quiesce")
        bench.compare("the list shows a broker that quiesces", "QUIESCING", (await member_cells("g1"))[2])
    await becomes(other, "g1", s.QUIESCE_COMPLETE)
    bench.compare(
        "the list shows a quiesced broker without clients", "QUIESCE_COMPLETE", (await member_cells("g1"))[2]
    )
    for state, words in (
        (s.SHUTDOWN_STARTED, "the list shows a broker that was killed while it shut down"),
        ("SOMETHING_NEWER", "the list shows an unknown state of a newer version"),
    ):
        await asyncio.to_thread(_write_state, str(bench.directory / STORE), state)
        expected = state if state in s.STATES else "*unknown"
        bench.compare(words, expected, (await member_cells("c1"))[2])


def _write_state(path: str, state: str) -> None:
    """Write a row as a broker in that state leaves it."""
    with contextlib.closing(sqlite3.connect(path, timeout=30.0)) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO store_broker (cluster_id, broker_id, address, state, epoch, entry, "
            "heartbeat, taker, taker_epoch)"
            " VALUES (?, 'c1', 'c1:61616', ?, 1, 0, CAST(strftime('%s', 'now') AS INTEGER) * 1000, '', 0)",
            (CLUSTER, state),
        )


@on_bench
async def _ha10(bench: Workbench) -> None:
    standalone = Broker(bench, "alone", {})
    broker, other = member(bench, "a1", data="alone-data"), member(bench, "b1")

    async def tool(*words: str) -> CommandResult:
        return await bench.command("brokerctl", "--config", str(broker.path), "database", *words)

    await started(standalone)
    await send(standalone.stomp, QUEUE, "one", "two", "three")
    busy = await tool("upgrade")
    bench.compare("the tool does not convert the store of a running broker", 1, busy.status)
    await standalone.stop()
    bench.compare("the tool creates the schema", 0, (await tool("create")).status)
    bench.compare(
        "the tool converts a standalone store into one of the cluster", 0, (await tool("upgrade")).status
    )
    await started(broker, other)
    bench.compare("the converted store has all messages", ["one", "two", "three"], await stored(broker))
    bench.compare(
        "the tool makes a backup while brokers run",
        0,
        (await tool("backup", str(bench.directory / "saved"))).status,
    )
    await send(broker.stomp, QUEUE, "four")
    refused = [
        await tool("remove-broker", "b1"),
        await tool("restore", str(bench.directory / "saved"), "-f"),
        await tool("reset-locks", "-f"),
    ]
    bench.compare(
        "remove-broker, restore and reset-locks are refused while brokers run",
        [(1, True)] * 3,
        [(result.status, result.output.startswith("brokerctl: running: ")) for result in refused],
    )
    await other.stop("--no-failover")
    bench.compare("the tool removes a broker that is down", 0, (await tool("remove-broker", "b1")).status)
    bench.compare("the list does not show the removed broker", ["a1"], list(await members(broker)))
    await broker.stop("--no-failover")
    bench.compare(
        "the tool restores the backup",
        0,
        (await tool("restore", str(bench.directory / "saved"), "-f")).status,
    )
    await started(broker)
    bench.compare(
        "the broker then has the messages of the backup", ["one", "two", "three"], await stored(broker)
    )


PROBES: Final = (
    Probe(
        id="HA6-takeover",
        claim="takeover -n ID asks for confirmation if the broker seems to run; with -f it asks no question; "
        "after -nofailover the messages wait for a takeover by command",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        expected="nothing happens without a yes; afterwards the taker has all messages",
        take=_ha6,
    ),
    Probe(
        id="HA7-shutdown",
        claim="a quiesced broker refuses new connections and serves existing ones; no broker takes it "
        "over, before or after its shutdown",
        source="SUN, Preventing or Forcing Takeover of a Broker",
        expected="QUIESCE_COMPLETE, then SHUTDOWN_COMPLETE; the store still has the broker's messages",
        take=_ha7,
    ),
    Probe(
        id="HA9",
        claim="list bkr shows id, address, state, messages in store, taker and time since the last timestamp",
        source="SUN, Example 8-2",
        expected="the output is as in the example, in every state of it",
        take=_ha9,
    ),
    Probe(
        id="HA10",
        claim="the tool creates the schema, upgrades a standalone store, removes only a broker that "
        "is down, and backs up and restores the store",
        source="SUN, Managing the HA Data Store",
        expected="each command works as documented; changes are refused while a broker runs",
        take=_ha10,
    ),
)
