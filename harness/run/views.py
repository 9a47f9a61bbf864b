"""The views that live brokers have of the cluster after recovery, as rows of the history.

Why asked repeatedly: a cluster has the recovery bound to agree. Brokers are asked one after the
other, so that two answers may differ for a moment without either broker being wrong. The questions
end as soon as all agree. If they do not agree, the rows say over which span each broker gave the
same answer. The checkers accuse only if two spans overlap. A broker that could not be asked makes
no claim; it is asked a few times more before its silence is taken for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from checkers.schema import HARNESS
from checkers.subscriptions import place_of
from checkers.views import CLIENTS, QUEUE
from harness.interface import (
    LIVE,
    Address,
    ChangeRecording,
    Keeping,
    Mirrored,
    Mirroring,
    Recorder,
    Status,
    Viewed,
)
from harness.run.compose import Composition

ANSWER_S: Final = 5.0
"""The seconds that one broker may take to answer."""

AGAIN_S: Final = 0.25
"""The pause between two rounds of questions (s)."""

COMPARISONS: Final = 12
"""The number of rounds after which a live and its backup that differ count as different."""

TRIES: Final = 4
"""The number of rounds after which brokers that agree no longer wait for a silent one."""

SUBSCRIPTION: Final = "subscription"
"""The kind of view that describes a subscription, by its place (``checkers.subscriptions``)."""

DESTINATION: Final = "destination"
"""The kind of view that describes a queue of a pair: in its live, and in its backup's copy."""

NOTHING: Final = "nothing"
"""The value of a queue without messages."""

DESTINATIONS: Final = "destinations"
"""The kind of view in which brokers tell the queues of the record that all of them have."""

THERE: Final = "there"
GONE: Final = "gone"

Thing = tuple[str, str]
"""(kind, key)."""


@dataclass(frozen=True, slots=True)
class _HeldValue:
    """A value that a broker gave, and the span in which it held it (ns).

    The value was first in an answer that arrived at ``low`` and last in the answer to a question
    sent at ``high``.
    """

    value: str | None
    low: int
    high: int


def hopeless(statuses: Iterable[Status]) -> bool:
    """Return whether two brokers are live under one node ID.

    They will not agree on which of them owns it, and waiting would only delay the verdict.
    """
    servers = [server for status in statuses for server in status.servers]
    lives = [server.node_id for server in servers if server.role == LIVE and server.node_id is not None]
    return len(lives) > len(set(lives))


async def look(
    test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder, patience_s: float
) -> None:
    """Ask all live brokers until they agree, and record what they said last.

    Asks for at most ``patience_s`` from now on, and at least twice if the brokers do not agree.
    What an administrator was answered about queues counts as one more answer (``QUEUE``), unless a
    fault may undo what brokers have confirmed. Records nothing if no broker has views.
    """
    if not isinstance(test.system, Viewed):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    claims = {} if test.may_undo_changes else test.workload.answered_queues()
    low = recorder.now_ns()
    held_values: dict[str, dict[Thing, _HeldValue]] = {}
    rounds = 0
    while True:
        names = [node.name for node in test.nodes if roles().get(node.name) == LIVE]
        held_values, silent = await _ask(test.system, test.admin, names, recorder, held_values, claims)
        rounds += 1
        over = loop.time() >= deadline
        if (
            _agreed(held_values)
            and _have_queues(held_values, claims)
            and (not silent or over or rounds == TRIES)
        ):
            break
        if over and rounds > 1:
            break
        await asyncio.sleep(AGAIN_S)
    for kind, key in sorted({thing for own_values in held_values.values() for thing in own_values}):
        for name, own_values in held_values.items():
            if (kind, key) in own_values:
                _record(recorder, name, kind, key, own_values[kind, key])
    for queue in sorted(claims):
        _record(recorder, CLIENTS, QUEUE, queue, _HeldValue(_presence(claims[queue]), low, recorder.now_ns()))
        for name, own_values in held_values.items():
            held = own_values.get((DESTINATIONS, queue))
            if held is not None:
                presence = _presence(held.value is not None)
                _record(recorder, name, QUEUE, queue, _HeldValue(presence, held.low, held.high))
    for name, error in silent.items():
        recorder.event(HARNESS, "info", "view", broker=name, error=error)


def _presence(is_there: bool) -> str:
    return THERE if is_there else GONE


def _have_queues(held_values: Mapping[str, Mapping[Thing, _HeldValue]], claims: Mapping[str, bool]) -> bool:
    """Return whether brokers have the queues that clients were told of, and lack the others."""
    return all(
        (held.value is not None) == is_there
        for queue, is_there in claims.items()
        for own_values in held_values.values()
        if (held := own_values.get((DESTINATIONS, queue))) is not None
    )


async def catch_up(test: Composition, roles: Callable[[], Mapping[str, str]], patience_s: float) -> None:
    """Wait until all live brokers have the same changes of the record that they have in common.

    This comes before the drain: what a consumer gets from then on shows what its broker has made of
    every change. Waits for at most ``patience_s``; without a master broker there is no record.
    """
    system = test.system
    if not isinstance(system, ChangeRecording) or not any(node.master for node in test.nodes):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        positions = set()
        for node in test.nodes:
            if roles().get(node.name) == LIVE:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        positions.add(await system.record_position(test.admin(node.name)))
                except (TimeoutError, OSError):
                    positions.add(node.name)  # no position: it is asked again
        if len(positions) < 2 or loop.time() >= deadline:
            return
        await asyncio.sleep(AGAIN_S)


async def recall(
    test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder, patience_s: float
) -> None:
    """Record, as views, what clients were told of their subscriptions and what live brokers have.

    This comes before any client subscribes again. Brokers are asked twice: what a broker says both
    times was so in between. They are asked again, for at most ``patience_s``, while that is not
    what clients were told: a broker may still get changes that others made while it was cut off. A
    subscription that must exist must be with at least one broker, since each broker has topics of
    its own. If none has it, a row for each broker says that it is gone. Records nothing if no
    broker can be asked for subscriptions, if one does not answer, if a pair has no live broker, or
    if a fault may undo what brokers have confirmed.
    """
    claims = {} if test.may_undo_changes else test.workload.answered()
    if not claims or not isinstance(test.system, Keeping):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    low = recorder.now_ns()
    try:
        async with asyncio.timeout(ANSWER_S):
            first = await _subscriptions_of_lives(test, test.system, roles(), recorder)
        while True:
            async with asyncio.timeout(ANSWER_S):
                await asyncio.sleep(AGAIN_S)
                second = await _subscriptions_of_lives(test, test.system, roles(), recorder)
            if loop.time() >= deadline or _is_as_told(claims, first, second):
                break
            first = second
    except (TimeoutError, OSError):
        return
    if first.keys() != second.keys():
        return
    for (topic, name), must_exist in sorted(claims.items()):
        key = place_of(topic, name)
        having, missing = _holders((topic, name), first, second, must_exist=must_exist)
        clients_view = _HeldValue(THERE if must_exist else GONE, low, recorder.now_ns())
        _record(recorder, CLIENTS, SUBSCRIPTION, key, clients_view)
        for broker in having or missing:
            span = first[broker].arrived, second[broker].sent
            _record(recorder, broker, SUBSCRIPTION, key, _HeldValue(THERE if having else GONE, *span))


def _is_as_told(
    claims: Mapping[tuple[str, str], bool],
    first: Mapping[str, _Subscriptions],
    second: Mapping[str, _Subscriptions],
) -> bool:
    """Return whether brokers have what clients were told, and nothing else."""
    if first.keys() != second.keys():
        return False
    for place, must_exist in claims.items():
        having, missing = _holders(place, first, second, must_exist=must_exist)
        if missing or (having and not must_exist):
            return False
    return True


def _holders(
    place: tuple[str, str],
    first: Mapping[str, _Subscriptions],
    second: Mapping[str, _Subscriptions],
    *,
    must_exist: bool,
) -> tuple[list[str], list[str]]:
    """Return who had a subscription in both answers, and all brokers if none had it that must."""
    having_it = {
        broker: place in answer.known
        for broker, answer in first.items()
        if (place in answer.known) == (place in second[broker].known)
    }
    having = [broker for broker, has in having_it.items() if has]
    missing = list(having_it) if must_exist and not having and len(having_it) == len(first) else []
    return having, missing


async def compare(test: Composition, roles: Callable[[], Mapping[str, str]], recorder: Recorder) -> None:
    """Record, as views, what each pair's live holds and what its backup's copy holds.

    The copy is what the backup would have if it took over. The views are taken when no client sends
    or consumes. Both brokers are asked a few times until they say the same. Answers after different
    numbers of changes are not compared: the live's last change may be under way. Records nothing of
    a pair that lacks a live or a backup, or whose live does not wait for its backup.
    """
    if isinstance(test.system, Mirroring):
        for pair, nodes in test.pairs.items():
            names = [node.name for node in nodes]
            await _compare(test.system, test.admin, pair, names, roles, recorder)


async def _compare(
    system: Mirroring,
    admin: Callable[[str], Address],
    pair: str,
    names: Sequence[str],
    roles: Callable[[], Mapping[str, str]],
    recorder: Recorder,
) -> None:
    held_values: dict[str, dict[str, _HeldValue]] = {}
    last = None
    for _ in range(COMPARISONS):
        now = roles()
        if sorted(now.get(name, "") for name in names) != ["backup", LIVE]:
            return
        answers: dict[str, tuple[Mirrored, int, int]] = {}
        for name in names:
            sent = recorder.now_ns()
            try:
                async with asyncio.timeout(ANSWER_S):
                    answers[name] = await system.contents(admin(name)), sent, recorder.now_ns()
            except (TimeoutError, OSError):
                break
        changes = {mirrored.last for mirrored, _, _ in answers.values()}
        if len(answers) < len(names) or len(changes) > 1:
            held_values, last = {}, None
        else:
            held_values = _with_spans(held_values if changes == {last} else {}, answers)
            last = changes.pop()
            if _alike(held_values):
                break
        await asyncio.sleep(AGAIN_S)
    for queue in sorted({queue for own_values in held_values.values() for queue in own_values}):
        for name in names:
            _record(recorder, name, DESTINATION, f"{queue} of pair {pair}", held_values[name][queue])


def _with_spans(
    before: Mapping[str, Mapping[str, _HeldValue]], answers: Mapping[str, tuple[Mirrored, int, int]]
) -> dict[str, dict[str, _HeldValue]]:
    """Return each broker's value of every queue that any of them has, and since when it has it."""
    queues = {queue for mirrored, _, _ in answers.values() for queue in mirrored.contents}
    held_values: dict[str, dict[str, _HeldValue]] = {}
    for name, (mirrored, sent, arrived) in answers.items():
        held_values[name] = {}
        for queue in sorted(queues):
            value = mirrored.contents.get(queue, NOTHING)
            earlier = before.get(name, {}).get(queue)
            low = earlier.low if earlier is not None and earlier.value == value else arrived
            held_values[name][queue] = _HeldValue(value, low, sent)
    return held_values


def _alike(held_values: Mapping[str, Mapping[str, _HeldValue]]) -> bool:
    first, second = (
        {queue: held_value.value for queue, held_value in queues.items()} for queues in held_values.values()
    )
    return first == second


@dataclass(frozen=True, slots=True)
class _Subscriptions:
    """The subscriptions that a broker had at a moment between ``sent`` and ``arrived`` (ns)."""

    known: Collection[tuple[str, str]]
    sent: int
    arrived: int


async def _subscriptions_of_lives(
    test: Composition, system: Keeping, roles: Mapping[str, str], recorder: Recorder
) -> dict[str, _Subscriptions]:
    """Return the subscriptions of each live broker; raise OSError if a pair has no live broker."""
    answers: dict[str, _Subscriptions] = {}
    for pair, nodes in test.pairs.items():
        live = [node.name for node in nodes if roles.get(node.name) == LIVE]
        if not live:
            raise OSError(f"pair {pair} has no live broker")
        for name in live:
            sent = recorder.now_ns()
            names = await system.subscriptions(test.admin(name))
            answers[name] = _Subscriptions(names, sent, recorder.now_ns())
    return answers


async def _ask(
    system: Viewed,
    admin: Callable[[str], Address],
    names: list[str],
    recorder: Recorder,
    before: Mapping[str, Mapping[Thing, _HeldValue]],
    queues: Iterable[str],
) -> tuple[dict[str, dict[Thing, _HeldValue]], dict[str, str]]:
    """Ask each broker once; return its values and, for silent brokers, the reason.

    A value that a broker also had before keeps the beginning of its earlier span. ``queues`` are
    asked for even if no broker has them.
    """
    answers: dict[str, Mapping[str, Mapping[str, str]]] = {}
    sent: dict[str, int] = {}
    arrived: dict[str, int] = {}
    silent: dict[str, str] = {}
    for name in names:
        sent[name] = recorder.now_ns()
        try:
            async with asyncio.timeout(ANSWER_S):
                answers[name] = await system.views(admin(name))
        except TimeoutError:
            silent[name] = f"no answer within {ANSWER_S:g} s"
        except OSError as error:
            silent[name] = str(error) or type(error).__name__
        arrived[name] = recorder.now_ns()
    things = {
        (kind, key)
        for kinds in answers.values()
        for kind, view in kinds.items()
        if kind in system.compared_views
        for key in view
    } | {(DESTINATIONS, queue) for queue in queues}
    held_values: dict[str, dict[Thing, _HeldValue]] = {}
    for name, kinds in answers.items():
        held_values[name] = {}
        for kind, key in sorted(things):
            if kind in kinds:
                value = kinds[kind].get(key)
                earlier = before.get(name, {}).get((kind, key))
                same = earlier is not None and earlier.value == value
                low = earlier.low if same and earlier is not None else arrived[name]
                held_values[name][kind, key] = _HeldValue(value, low, sent[name])
    return held_values, silent


def _agreed(values_by_broker: Mapping[str, Mapping[Thing, _HeldValue]]) -> bool:
    values: dict[Thing, str | None] = {}
    return all(
        values.setdefault(thing, held_value.value) == held_value.value
        for own_values in values_by_broker.values()
        for thing, held_value in own_values.items()
    )


def _record(recorder: Recorder, broker: str, kind: str, key: str, held_value: _HeldValue) -> None:
    value = msgspec.json.encode({"kind": kind, "key": key, "value": held_value.value}).decode()
    recorder.event(
        HARNESS, "ok", "view", broker=broker, time_low=held_value.low, time_high=held_value.high, value=value
    )  # fmt: skip
