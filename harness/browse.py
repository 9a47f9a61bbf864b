"""What is left in the brokers' stores at the end, as rows of the history.

Why it decides verdicts: a message that was sent and never delivered is *stuck* if some store still holds it and *lost* if
none does. So a store that could not be read must be said to be unread: silence would turn stuck into lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from checkers.schema import HARNESS
from harness.compose import Composition
from harness.interface import Recorder, StoredMessage
from workloads import payload

BROWSE_S: Final = 60.0
"""How long one broker may take to show its stores."""

PATIENCE_S: Final = 10.0
"""How long is tried again: a failback may be under way, and a pair has nobody live for a moment."""

_RETRY_S: Final = 0.2


async def browse(test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder) -> None:
    """Look into every live broker's stores, all pairs at once; a pair without a live broker has stores that cannot be read."""
    async with asyncio.TaskGroup() as group:
        for nodes in test.pairs.values():
            group.create_task(_browse_pair(test, [node.name for node in nodes], roles, recorder))


async def _browse_pair(
    test: Composition, nodes: Sequence[str], roles: Callable[[], Mapping[str, str]], recorder: Recorder
) -> None:
    """Try until all of a pair's lives have been read, or time is up; then record what was read and what was not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        live = [name for name in nodes if roles().get(name) == "live"]
        found = {name: await _read(test, name) for name in live}
        complete = bool(live) and not any(isinstance(stored, str) for stored in found.values())
        if complete or loop.time() >= deadline:
            break
        await asyncio.sleep(_RETRY_S)
    if not live:
        for name in nodes:
            _unread(recorder, name, f"the pair has no live broker: {name} is {roles().get(name)}")
    for name, stored in found.items():
        if isinstance(stored, str):
            _unread(recorder, name, stored)
            continue
        for message in stored:
            _found(recorder, name, message)
        recorder.event(HARNESS, "ok", "browse", broker=name)


async def _read(test: Composition, node: str) -> list[StoredMessage] | str:
    """What a broker has stored, or why it could not be read."""
    try:
        async with asyncio.timeout(BROWSE_S):
            return await test.system.browse(test.environment.resolve("admin", node, "admin"))
    except TimeoutError:
        return f"no answer within {BROWSE_S:g} s"
    except OSError as error:
        return str(error) or type(error).__name__


def _unread(recorder: Recorder, node: str, error: str) -> None:
    recorder.event(HARNESS, "info", "browse", broker=node, error=error)


def _found(recorder: Recorder, node: str, stored: StoredMessage) -> None:
    """One message, identified by what its body says; a body that is not ours keeps its digest and says what is wrong."""
    told = payload.decode(stored.body)
    if told is None:
        recorder.event(
            HARNESS,
            "ok",
            "browse",
            queue=stored.queue,
            group=stored.group,
            broker=node,
            digest=payload.digest(stored.body) if stored.digest is None else stored.digest,
            error=payload.unreadable(stored.body),
            value=stored.store,
        )
        return
    recorder.event(
        HARNESS,
        "ok",
        "browse",
        queue=told.queue,
        group=told.group,
        message=told.message,
        producer=told.producer,
        sequence=told.sequence,
        broker=node,
        digest=payload.digest(stored.body) if stored.digest is None else stored.digest,
        value=stored.store,
    )
