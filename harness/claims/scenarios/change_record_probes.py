"""Probes of the change record of a conventional cluster: rows CV4, CV5 and CV8."""

from __future__ import annotations

import functools
import json
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, CommandResult, Workbench, on_bench
from harness.systems.stomp_client import StompClient, send
from stomp_protocol.frames import Frame

_TOPIC: Final = "/topic/prices"
_UNREACHABLE: Final = "cannot be reached"
_NO_MASTER: Final = "has no master broker"
_PATIENCE_S: Final = 5.0
_REMOVES: Final = "--remove-messages", "--remove-consumers"


def _cluster(bench: Workbench, names: Sequence[str], master: str | None) -> list[Broker]:
    """Return the brokers of a conventional cluster, whose master broker has that name."""
    ports = {name: bench.port() for name in names}
    connectors = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    return [_broker(bench, name, connectors, master) for name in names]


def _broker(bench: Workbench, name: str, connectors: Mapping[str, str], master: str | None) -> Broker:
    section: dict[str, Any] = {"broker-list": list(connectors.values()), "allow-loopback": True}
    if master is not None:
        section["master-broker"] = connectors[master]
    own = connectors[name]
    table = {
        "admin": {"secret": bench.secret},
        "ha-policy": {"conventional": section},
        "cluster": {
            "port": int(own.rpartition(":")[2]), "connector": own, "retry-interval": 50,
            "call-timeout": 3000,
        },
    }  # fmt: skip
    return Broker(bench, name, table)


async def _started(*brokers: Broker) -> None:
    for broker in brokers:
        await broker.start()
    for broker in brokers:
        await broker.live()


async def _views(broker: Broker) -> dict[str, list[str]]:
    """Return the destinations of the record at a broker, and the names of the subscriptions."""
    views = (await broker.ask("views"))["views"]
    subscriptions = [json.loads(key)[-1] for key in views.get("subscriptions", {})]
    return {"destinations": sorted(views.get("destinations", {})), "subscriptions": sorted(subscriptions)}


async def _compare_views(
    bench: Workbench, name: str, brokers: Sequence[Broker], destinations: list[str], subscriptions: list[str]
) -> None:
    """Note whether all brokers have exactly these."""
    expected = {"destinations": destinations, "subscriptions": subscriptions}
    bench.compare(name, [expected] * len(brokers), [await _views(broker) for broker in brokers])


async def _subscribe(broker: Broker, name: str) -> Frame:
    """Subscribe durably, and leave; return the answer."""
    async with await StompClient.connect(broker.stomp, client_id="probe") as client:
        return await client.ask("SUBSCRIBE", destination=_TOPIC, id="1", durable_subscription_name=name)


async def _unsubscribe(broker: Broker, name: str) -> Frame:
    async with await StompClient.connect(broker.stomp, client_id="probe") as client:
        return await client.ask("UNSUBSCRIBE", id="1", durable_subscription_name=name)


def _outcome(answer: Frame | CommandResult, pattern: str) -> str:
    """Return "done", or "refused" if that says so in one line, or what else was said."""
    if isinstance(answer, Frame):
        if answer.command == "RECEIPT":
            return "done"
        text = answer.headers.get("message", "")
    else:
        if answer.status == 0:
            return "done"
        text = answer.output
    return "refused" if pattern in text and len(text.splitlines()) == 1 else text


async def _has_joined(broker: Broker) -> bool:
    return bool((await broker.ask("status")).get("change-record", {}).get("joined"))


async def _has_looked(broker: Broker) -> bool:
    record = (await broker.ask("status")).get("change-record", {})
    return bool(record.get("joined") or record.get("problem"))


async def _has_lost_master(broker: Broker) -> bool:
    return not await _has_joined(broker)


async def _error(client: StompClient) -> str:
    """Return why the broker ends the connection of a client; "" if it does not."""
    try:
        await client.message(_PATIENCE_S)
    except OSError as error:
        return str(error)
    return ""


@on_bench
async def _cv3_clients(bench: Workbench) -> None:
    master, member = _cluster(bench, ("a1", "b1"), "a1")
    await _started(master, member)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, member))
    wanted = {"destination": _TOPIC, "id": "1", "durable-subscription-name": "s"}
    async with (
        await StompClient.connect(master.stomp, client_id="probe") as first,
        await StompClient.connect(master.stomp, client_id="another") as another,
    ):
        bench.compare(
            "a client consumes at a1", "done", _outcome(await first.ask("SUBSCRIBE", more=wanted), "")
        )
        async with await StompClient.connect(member.stomp, client_id="probe") as second:
            took = _outcome(await second.ask("SUBSCRIBE", more=wanted), "")
            bench.compare("it connects to b1, and consumes there", "done", took)
            expected = "client-id 'probe' has connected to broker b1"
            bench.compare("its connection to a1 is ended", expected, await _error(first))
        stays = await another.ask("SEND", destination="q")
        bench.compare("another client stays at a1", "RECEIPT", stays.command)


async def _messages(broker: Broker) -> dict[str, int]:
    """Return the number of messages in each queue of a broker."""
    return {queue["name"]: queue["messages"] for queue in (await broker.ask("status"))["queues"]}


@on_bench
async def _cv3_destinations(bench: Workbench) -> None:
    brokers = master, member = _cluster(bench, ("a1", "b1"), "a1")
    await _started(*brokers)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, member))
    for name in ("again", "gone", "kept"):
        await member.ctl("create", name)
        await send(member.stomp, name, "one", "two")
    await _compare_views(bench, "b1 makes destinations for all", brokers, ["again", "gone", "kept"], [])
    await member.kill()
    for words in (("delete", "again"), ("delete", "gone"), ("create", "again"), ("create", "new")):
        result = await master.ctl(*words, *(_REMOVES if words[0] == "delete" else ()))
        bench.compare(f"while b1 is down, {' '.join(words)}", "done", _outcome(result, ""))
    await _started(member)
    await bench.until("b1 joins again", "joined", functools.partial(_has_joined, member))
    await _compare_views(bench, "b1 has the changes", brokers, ["again", "kept", "new"], [])
    left = {name: count for name, count in (await _messages(member)).items() if name in ("again", "kept")}
    bench.compare("b1 has no messages of the former destination", {"again": 0, "kept": 2}, left)
    named = [line for line in member.warnings if "queue 'gone' (2 messages), queue 'again' (2" in line]
    bench.compare("b1 names what it dropped", 1, len(named))


@on_bench
async def _cv4(bench: Workbench) -> None:
    master, member = _cluster(bench, ("a1", "b1"), "a1")
    await _started(master, member)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, member))
    for words in (("create", "orders"), ("create", "other")):
        await member.ctl(*words)
    await _subscribe(member, "kept")
    await _compare_views(bench, "all brokers have them", (master, member), ["orders", "other"], ["kept"])
    await master.kill()
    await bench.until("b1 notices", "not joined", functools.partial(_has_lost_master, member))
    queue = next(
        item["name"] for item in (await member.ask("status"))["queues"] if item["name"].startswith(_TOPIC)
    )
    refused: dict[str, Frame | CommandResult] = {
        "create dst": await member.ctl("create", "new"),
        "destroy dst": await member.ctl("delete", "orders", *_REMOVES),
        "destroy dur": await member.ctl("delete", queue, *_REMOVES),
        "durable subscribe": await _subscribe(member, "new"),
        "durable unsubscribe": await _unsubscribe(member, "kept"),
    }
    for name, answer in refused.items():
        bench.compare(f"without the master, {name}", "refused", _outcome(answer, _UNREACHABLE))
    async with await StompClient.connect(member.stomp, client_id="probe") as client:
        again = await client.ask("SUBSCRIBE", destination=_TOPIC, id="1", durable_subscription_name="kept")
        temporary = await client.ask("SUBSCRIBE", destination="/temp-queue/t", id="2")
    await send(member.stomp, "made-by-a-client", "m")
    works: dict[str, Frame | CommandResult] = {
        "purge": await member.ctl("purge", "made-by-a-client"),
        "update": await member.ctl("update", "made-by-a-client", "--max-messages", "9"),
        "update of a recorded destination": await member.ctl("update", "orders", "--max-messages", "9"),
        **{
            f"{command} of a recorded destination": await member.ctl(command, "orders")
            for command in ("pause", "resume", "purge")
        },
        "an existing durable subscription": again,
        "a temporary queue": temporary,
    }
    for name, answer in works.items():
        bench.compare(f"without the master, {name}", "done", _outcome(answer, ""))
    # Other brokers may have it, too, and an administrator may have created it meanwhile.
    deletion = await member.ctl("delete", "made-by-a-client", *_REMOVES)
    name = "without the master, destroy dst of a queue that a client made"
    bench.compare(name, "refused", _outcome(deletion, _UNREACHABLE))
    await _started(master)
    await bench.until("b1 joins again", "joined", functools.partial(_has_joined, member))
    bench.compare("with the master, create dst", "done", _outcome(await member.ctl("create", "new"), ""))
    bench.compare("with the master, unsubscribe", "done", _outcome(await _unsubscribe(member, "kept"), ""))
    await _compare_views(bench, "all brokers agree", (master, member), ["new", "orders", "other"], [])


@on_bench
async def _cv5(bench: Workbench) -> None:
    with_master = _cluster(bench, ("a1", "b1"), "a1")
    await _started(*with_master)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, with_master[1]))
    answer = await _subscribe(with_master[1], "kept")
    bench.compare("with a master configured, durable subscribe", "done", _outcome(answer, ""))
    for broker in with_master:
        await broker.kill(signal.SIGTERM)
    connectors = {broker.name: f"127.0.0.1:{bench.port()}" for broker in with_master}
    brokers = [_broker(bench, name, connectors, None) for name in connectors]
    await _started(*brokers)
    member = brokers[1]
    for name, refused in (
        ("durable subscribe", await _subscribe(member, "new")),
        ("durable unsubscribe", await _unsubscribe(member, "kept")),
    ):
        bench.compare(f"without a master configured, {name}", "refused", _outcome(refused, _NO_MASTER))
    async with await StompClient.connect(member.stomp, client_id="probe") as client:
        again = await client.ask("SUBSCRIBE", destination=_TOPIC, id="1", durable_subscription_name="kept")
        bench.compare("an existing one is used", "done", _outcome(again, ""))
        await send(member.stomp, _TOPIC, "m")
        bench.compare(
            "and gets what is sent", ["m"], [frame.body.decode() for frame in await client.messages(1)]
        )


@on_bench
async def _cv8(bench: Workbench) -> None:
    brokers = master, member = _cluster(bench, ("a1", "b1"), "a1")
    await _started(*brokers)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, member))
    await member.ctl("create", "before")
    await _subscribe(member, "before")
    for number in range(30):
        for words in (("create", f"passing-{number}"), ("delete", f"passing-{number}", *_REMOVES)):
            await member.ask(words[0], queue=words[1], **{"remove-messages": True} if words[2:] else {})
    compacted = await master.ctl("compact-record")
    bench.compare("compaction forgets what is deleted everywhere", True, "0 are kept" in compacted.output)
    file = bench.directory / "record.backup"
    refused = await member.ctl("backup-record", str(file))
    bench.compare("only the master has a backup", "refused", _outcome(refused, "for the master broker"))
    backed_up = await master.ctl("backup-record", str(file))
    bench.compare("the record is backed up", (0, True), (backed_up.status, file.stat().st_size < 4000))
    await member.ctl("create", "after")
    await _subscribe(member, "after")
    await send(member.stomp, _TOPIC, "one", "two")
    await _compare_views(bench, "before the restoration", brokers, ["after", "before"], ["after", "before"])
    restore = ("brokerctl", "--config", str(master.path), "restore-record")
    running = await bench.command(*restore, str(file))
    bench.compare("a running master is not restored", "refused", _outcome(running, "is in use"))
    for broker in brokers:
        await broker.kill(signal.SIGTERM)
    damaged = bench.directory / "damaged.backup"
    damaged.write_bytes(file.read_bytes().replace(b"before", b"behind"))
    for name, path, reason in (
        ("a damaged file", damaged, "the checksum does not match"),
        ("another file", master.path, "not a backup"),
    ):
        bench.compare(
            f"{name} is refused", "refused", _outcome(await bench.command(*restore, str(path)), reason)
        )
    restored = await bench.command(*restore, str(file))
    bench.compare("the record is restored", "done", _outcome(restored, ""))
    await _started(*brokers)
    await bench.until("b1 has looked at the record", "an answer", functools.partial(_has_looked, member))
    await _compare_views(bench, "changes since the backup are gone", brokers, ["before"], ["before"])
    for broker, count in ((master, 0), (member, 2)):
        lines = [line for line in broker.warnings if "subscription 'after'" in line]
        bench.compare(
            f"{broker.name} names what is gone, with its messages", [True],
            [f"({count} messages)" in line and "queue 'after'" in line for line in lines],
        )  # fmt: skip


@on_bench
async def _cv8_master(bench: Workbench) -> None:
    first, second = _cluster(bench, ("a1", "b1"), "a1")
    await _started(first, second)
    await bench.until("b1 joins", "joined", functools.partial(_has_joined, second))
    await second.ctl("create", "before")
    file = bench.directory / "record.backup"
    await first.ctl("backup-record", str(file))
    await second.ctl("create", "after")
    for broker in (first, second):
        await broker.kill(signal.SIGTERM)
    connectors = {name: f"127.0.0.1:{bench.port()}" for name in ("a1", "b1")}
    member, master = (_broker(bench, name, connectors, "b1") for name in connectors)
    await _started(master)
    refused = await master.ctl("create", "new")
    bench.compare(
        "a member's copy is not taken for the record", "refused", _outcome(refused, "restore-record")
    )
    await master.kill(signal.SIGTERM)
    restored = await bench.command("brokerctl", "--config", str(master.path), "restore-record", str(file))
    bench.compare("the record is restored at another broker", "done", _outcome(restored, ""))
    await _started(master, member)
    await bench.until("a1 has looked at the record", "an answer", functools.partial(_has_looked, member))
    created = await member.ctl("create", "new")
    bench.compare("a change is made by the new master", "done", _outcome(created, ""))
    await _compare_views(bench, "both have its record", (master, member), ["before", "new"], [])
    await master.kill(signal.SIGTERM)
    shutil.rmtree(master.data)
    await _started(master)
    await bench.until("a1 has looked at the new record", "an answer", functools.partial(_has_looked, member))
    bench.compare(
        "a member does not join the record of a master that has lost its disk", 1,
        len([line for line in member.errors if "does not join" in line and "reset-record" in line]),
    )  # fmt: skip
    await member.ctl("reset-record")
    await bench.until("a1 joins", "joined", functools.partial(_has_joined, member))
    await _compare_views(bench, "after reset-record both have the same", (master, member), [], [])


PROBES: Final = (
    Probe(
        id="CV3-destinations",
        claim="destinations are made, dropped and made again while a broker is down: it gets the changes "
        "from the master, and the new destination has no messages of the former",
        source="SUN",
        expected="both brokers have the same; only what waited in a dropped destination is gone, and named",
        take=_cv3_destinations,
    ),
    Probe(
        id="CV3-clients",
        claim="a client id has one connection in the whole cluster, and a durable subscription one consumer: "
        "the later one wins",
        source="SUN (JMS)",
        expected="the client's connection to the first broker ends with an ERROR, another client's does not",
        take=_cv3_clients,
    ),
    Probe(
        id="CV4-commands",
        claim="a master that is configured and cannot be reached: create dst, destroy dst, destroy dur, "
        "durable subscribe and unsubscribe fail with one clear line; update, purge, pause, "
        "resume and all else go on",
        source="SUN",
        expected="six refusals, and everything else is done; with the master back, all brokers agree",
        take=_cv4,
    ),
    Probe(
        id="CV5",
        claim="no master configured: a durable subscription cannot be made or dropped, an existing one works",
        source="SUN",
        expected="both are refused with one line, and a subscription from before gets its messages",
        take=_cv5,
    ),
    Probe(
        id="CV8",
        claim="the change record is backed up, compacted and restored: changes since the backup are gone at "
        "all brokers, and each says so",
        source="SUN",
        expected="bad files and a running broker are refused; after the restoration all have what the "
        "backup has, and name what they dropped",
        take=_cv8,
    ),
    Probe(
        id="CV8-master",
        claim="another broker becomes the master with the restored record; a member does not join the "
        "record of a master that has lost its own",
        source="SUN",
        expected="a member's copy is not taken for the record, a restored one is; reset-record lets a member "
        "join again",
        take=_cv8_master,
    ),
)
