"""What each live broker believes about the cluster while there is load, as rows of its changes.

Why not by the views after the recovery (``views``): those are compared, and brokers that disagree
are accused. During the load a broker may be cut off and rightly believe something else. Only a
scenario that says when a broker must learn or forget something can judge that.

A change is dated as the role monitor dates one (``monitor``): it lies between the last request that
was answered with the old value, and the first answer with the new one. A broker that is not live or
does not answer claims nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from checkers.schema import MONITOR
from harness.interface import LIVE, Recorder, Viewed
from harness.run.compose import Composition
from harness.run.views import ANSWER_S

INTERVAL_S: Final = 1.0
"""The pause between two questions to a broker (s)."""


async def watch(test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder) -> None:
    """Ask each live broker for its views, again and again, until cancelled."""
    assert isinstance(test.system, Viewed), "a system that reports no views"
    async with asyncio.TaskGroup() as group:
        for node in test.brokers:
            group.create_task(
                _watch(node.name, test, test.system, roles, recorder), name=f"views-{node.name}"
            )


async def _watch(
    name: str,
    test: Composition,
    system: Viewed,
    roles: Callable[[], Mapping[str, str]],
    recorder: Recorder,
) -> None:
    began = recorder.now_ns()
    confirmed: dict[str, int] = {}
    """When the last request was sent that was answered with a view of that kind (ns)."""
    recorded: dict[tuple[str, str], str] = {}
    while True:
        if roles().get(name) == LIVE:
            sent = recorder.now_ns()
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await system.views(test.admin(name))
            except OSError:  # a TimeoutError is one
                answer = {}
            arrived = recorder.now_ns()
            for kind, view in sorted(answer.items()):
                keys = {key for known, key in recorded if known == kind}
                for key in sorted(keys | view.keys()):
                    value = view.get(key)
                    if recorded.get((kind, key)) == value:
                        continue
                    _record(recorder, name, kind, key, value, (confirmed.get(kind, began), arrived))
                    if value is None:
                        del recorded[kind, key]
                    else:
                        recorded[kind, key] = value
                confirmed[kind] = sent
        await asyncio.sleep(INTERVAL_S)


def _record(
    recorder: Recorder, broker: str, kind: str, key: str, value: str | None, span: tuple[int, int]
) -> None:
    recorder.event(
        MONITOR,
        "info",
        "view-change",
        broker=broker,
        time_low=span[0],
        time_high=span[1],
        value=msgspec.json.encode({"kind": kind, "key": key, "value": value}).decode(),
    )
