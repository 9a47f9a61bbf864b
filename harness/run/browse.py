"""The reading of the brokers' stores at the end of a test, as rows of the history.

Why it decides verdicts: a message that is owed and that no consumer holds is *stuck* if some store
still has it and *lost* if none has. So a store that could not be read must be recorded as unread:
silence would turn stuck into lost.

Why some stores are read again: a message that is found twice, or with two brokers, may have been
moving between them. It counts as *resurrected* only if the second reading finds both copies too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from checkers.schema import HARNESS, TEMPORARY, TOPIC
from harness.interface import LIVE, Recorder, StoredMessage
from harness.run.compose import Composition
from harness.run.monitor import UNREACHABLE
from workloads import payload

FORWARDING: Final = "store-and-forward"
"""The store of the messages that are on their way to another broker."""

_RETRY_S: Final = 0.2

AGAIN_S: Final = 0.5
"""Seconds between a reading that found copies and the next, enough for a moving message."""


async def browse(test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder) -> None:
    """Read the stores of every live broker, all pairs at once, and record what they hold.

    The stores of a pair without a live broker cannot be read and are recorded as unread. Brokers
    that have copies of a message are read once more.
    """
    async with asyncio.TaskGroup() as group:
        pairs = [
            group.create_task(_browse_pair(test, [node.name for node in nodes], roles, recorder))
            for nodes in test.pairs.values()
        ]
    with_copies = _with_copies({name: stored for pair in pairs for name, stored in pair.result().items()})
    if not with_copies:
        return
    await asyncio.sleep(AGAIN_S)
    async with asyncio.TaskGroup() as group:
        readings = {name: group.create_task(_read(test, name)) for name in with_copies}
    for name, reading in readings.items():
        stored = reading.result()
        if not isinstance(stored, str):  # else the first reading remains, without proof of copies
            _record(recorder, name, stored)


async def stores_left(test: Composition, roles: Mapping[str, str]) -> frozenset[str]:
    """Return the stores in which a live broker shows, or may have, a message to be delivered.

    It waits in the main store, or is on its way to another broker. A broker that does not answer
    may be busy, and its main store counts as not empty; in virtual time no broker is busy.
    """
    unread = frozenset[str]() if test.environment.virtual else frozenset({"main"})
    if "stores" in test.system.promises(test.spec).untold:
        return frozenset()
    pairs = [[(node.name, roles.get(node.name)) for node in nodes] for nodes in test.pairs.values()]
    if any({LIVE, UNREACHABLE} & {role for _, role in pair} == {UNREACHABLE} for pair in pairs):
        return unread
    live = [name for pair in pairs for name, role in pair if role == LIVE]
    readings = await asyncio.gather(*(_read(test, name) for name in live))
    stores = (
        unread
        if isinstance(stored, str)
        else {
            message.store
            for message in stored
            if message.store in ("main", FORWARDING) and payload.decode(message.body) is not None
        }
        for stored in readings
    )
    return frozenset().union(*stores)


def _with_copies(readings: Mapping[str, Sequence[StoredMessage]]) -> list[str]:
    """Return the brokers that have a message of which they or another broker have a second copy."""
    brokers_by_message: dict[int, list[str]] = {}
    for name, stored in readings.items():
        for message in stored:
            decoded = payload.decode(message.body) if message.store != "store-and-forward" else None
            if decoded is not None:
                brokers_by_message.setdefault(decoded.message, []).append(name)
    several = {name for names in brokers_by_message.values() if len(names) > 1 for name in names}
    return [name for name in readings if name in several]


async def _browse_pair(
    test: Composition, nodes: Sequence[str], roles: Callable[[], Mapping[str, str]], recorder: Recorder
) -> dict[str, list[StoredMessage]]:
    """Read the stores of a pair's live brokers, and record what was read and what was not.

    Readings are repeated until all live brokers have answered or the time is up. Returns the stored
    messages of each broker that was read.
    """
    loop = asyncio.get_running_loop()
    silent = "stores" in test.system.promises(test.spec).untold
    deadline = loop.time() + (0.0 if silent else test.system.patience.vacancy_s)
    while True:
        live = [name for name in nodes if roles().get(name) == LIVE]
        readings = {name: await _read(test, name) for name in live}
        complete = bool(live) and not any(isinstance(stored, str) for stored in readings.values())
        if complete or loop.time() >= deadline:
            break
        await asyncio.sleep(_RETRY_S)
    if not live:
        for name in nodes:
            _unread(recorder, name, f"the pair has no live broker: {name} is {roles().get(name)}")
    read = {name: stored for name, stored in readings.items() if not isinstance(stored, str)}
    for name, stored in readings.items():
        if isinstance(stored, str):
            _unread(recorder, name, stored)
        else:
            _record(recorder, name, stored)
    return read


async def _read(test: Composition, node: str) -> list[StoredMessage] | str:
    """Return the messages that a broker has stored, or the reason why they could not be read."""
    patience_s = test.system.patience.browse_s
    try:
        async with asyncio.timeout(patience_s):
            return await test.system.browse(test.admin(node))
    except TimeoutError:
        return f"no answer within {patience_s:g} s"
    except OSError as error:
        return str(error) or type(error).__name__


def _unread(recorder: Recorder, node: str, error: str) -> None:
    recorder.event(HARNESS, "info", "browse", broker=node, error=error)


def _record(recorder: Recorder, node: str, stored: Sequence[StoredMessage]) -> None:
    """Record one reading of a store: a row for each message, and a row that says it is complete."""
    for message in stored:
        _record_message(recorder, node, message)
    recorder.event(HARNESS, "ok", "browse", broker=node)


def _record_message(recorder: Recorder, node: str, stored: StoredMessage) -> None:
    """Record one stored message, identified by what its body says.

    A body that the test did not write keeps its digest, and the row says what is wrong with it.

    In a main store the queue and group are those that the broker names: they must be what was sent.
    The same holds for a dead letter or an expired message if the broker says where it came from.
    Otherwise the message is on its way, or has gone astray, and the body names queue and group.
    Brokers have other names for temporary queues than the history.
    """
    decoded = payload.decode(stored.body)
    broker_names_place = decoded is None or stored.store == "main" or stored.origin
    if decoded is not None and decoded.queue.startswith(TEMPORARY) and stored.queue.startswith("/"):
        broker_names_place = stored.queue.startswith(TOPIC)
    digest = None if stored.cut else payload.digest(stored.body) if stored.digest is None else stored.digest
    recorder.event(
        HARNESS,
        "ok",
        "browse",
        queue=stored.queue if broker_names_place or decoded is None else decoded.queue,
        group=stored.group if broker_names_place or decoded is None else decoded.group,
        message=None if decoded is None else decoded.message,
        producer=None if decoded is None else decoded.producer,
        sequence=None if decoded is None else decoded.sequence,
        subscription=stored.subscription,
        broker=node,
        digest=digest,
        error=payload.unreadable(stored.body) if decoded is None else None,
        value=stored.store,
    )
