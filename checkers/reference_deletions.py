"""The second implementation of the rules about deleted queues and restored records.

See ``checkers.deletions`` and ``checkers.restores`` for the rules. A restoration rewrites the
requests about a queue or subscription with a change in doubt: the answer to each end in doubt
becomes one of unknown outcome, and an end without an answer is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.excuses import Excuses
from checkers.reference_attempts import of_one_node, over, stored_from
from checkers.schema import HARNESS, MONITOR, NEMESIS, json_object
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
_ENDS = {"create": "delete", "delete": "delete", "subscribe": "drop", "drop": "drop"}
"""The operation that ends what each operation changes."""


def restorations(control: Iterable[Row]) -> list[tuple[Row, int | None]]:
    """Return the row that requested each restoration, and the row that saw it healed or None."""
    found: list[tuple[Row, int | None]] = []
    for r in control:
        if r["process"] != NEMESIS:
            continue
        value = json_object(r.get("value")) or {}
        if r["type"] == "invoke" and _restores(r["f"], value):
            found.append((r, None))
        elif r["type"] != "invoke" and r["f"].startswith("heal:"):
            label = value.get("label")
            found = [
                (asked, r["index"] if healed is None and _label(asked) == label else healed)
                for asked, healed in found
            ]
    return found


def _restores(f: str, value: Mapping[str, Any]) -> bool:
    options = value.get("options")
    of_command = isinstance(options, dict) and options.get("command") == "restore"
    return f == "restore-record" or (f == "administer" and of_command)


def _label(r: Row) -> Any:
    return (json_object(r.get("value")) or {}).get("label")


def after_restorations(requests: Sequence[Row], restored: Iterable[tuple[Row, int | None]]) -> list[Row]:
    """Return the requests about one queue or subscription, with what restorations make of them."""
    result = list(requests)
    for asked, healed in restored:
        doubted = [
            (r, answer)
            for r, answer in pair_with_answers(requests)
            if (healed is None or r["index"] < healed)
            and (answer is None or (answer["type"] != "fail" and answer["index"] > asked["index"]))
        ]
        if not doubted:
            continue
        undone = [answer["index"] for r, answer in doubted if answer and r["f"] in ("drop", "delete")]
        result = [{**r, "type": "info"} if r["index"] in undone else r for r in result]
        name = doubted[0][0]
        end = {"index": asked["index"], "time": asked["time"], "process": None, "type": "invoke"}
        result.append({**end, "f": _ENDS[name["f"]], "queue": name["queue"]})
    return sorted(result, key=lambda r: int(r["index"]))


def pair_with_answers(requests: Sequence[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Yield each invocation with its answer: the next row of the same process and operation."""
    for n, r in enumerate(requests):
        if r["type"] == "invoke":
            rest = (s for s in requests[n + 1 :] if (s["process"], s["f"]) == (r["process"], r["f"]))
            following = next(rest, None)
            yield r, None if following is None or following["type"] == "invoke" else following


def deletes_of(history: History, queue: str | None) -> list[tuple[Row, Row | None]]:
    """Return the deletes of a queue that did not fail, each with its answer or None."""
    if queue not in history.deletes:
        history.deletes[queue] = [
            (r, answer)
            for r, answer in pair_with_answers(history.administered.get(queue, []))
            if r["f"] == "delete" and (answer is None or answer["type"] != "fail")
        ]
    return history.deletes[queue]


def survives_deletes(history: History, m: PlainMessage, options: CheckOptions | None) -> bool:
    """Return whether a message came after every delete of its queue, at a broker that knew of them.

    Without ``options`` no message of a queue that was deleted does.
    """
    deletes = deletes_of(history, m.queue)
    sent = stored_from(m)
    if not deletes:
        return True
    if options is None or sent is None:
        return False
    answers = [answer for _, answer in deletes if answer is not None and answer["type"] == "ok"]
    if len(answers) < len(deletes) or any(answer["index"] > sent for answer in answers):
        return False
    known_deletes = [r for r, answer in deletes if _knew(history, r, answer, _taker(m), sent, options)]
    return all(
        r in known_deletes
        or any(answer is not None and answer["index"] < later["index"] for later in known_deletes)
        for r, answer in deletes
    )


def is_back(history: History, m: PlainMessage, options: CheckOptions) -> int | None:
    """Return the first row that shows a message although its queue was deleted after it."""
    sent = over(m)
    if sent is None:
        return None
    wrong = []
    for r in m.shown:
        if r["f"] == "browse" and r.get("value") != "main":
            continue
        since = r["index"] if r["f"] == "browse" else _begun(history, r)
        for asked, answer in deletes_of(history, m.queue):
            if (
                since is not None
                and sent < asked["index"]
                and _knew(history, asked, answer, r.get("broker"), since, options)
                and _knew(history, asked, answer, _taker(m), since, options)
            ):
                wrong.append(int(r["index"]))
    return min(wrong, default=None)


def _begun(history: History, delivery: Row) -> int | None:
    session = delivery.get("session")
    return None if session is None else history.session_begin(session)


def _taker(m: PlainMessage) -> str | None:
    return next((r.get("broker") for r in m.rows if (r["f"], r["type"]) == ("send", "ok")), None)


def _knew(
    history: History, asked: Row, answer: Row | None, broker: str | None, index: int, options: CheckOptions
) -> bool:
    """Return whether a broker (None: any) certainly knew of a delete before a row."""
    if answer is None or answer["type"] != "ok" or answer["index"] > index:
        return False
    drains = [
        r["index"]
        for r in history.control
        if (r["process"], r["f"], r.get("value")) == (HARNESS, "phase", "drain")
    ]
    if drains and max(drains) < index:
        return True
    home = answer.get("broker")
    if broker is not None and home is not None and of_one_node(history, broker, home):
        return True
    if broker is not None and _started(history, broker, answer["time"], index):
        return True
    faults = Excuses(history.effects, history.pairs, {}, options)
    return not faults.may_cut(asked["time"], answer["time"], [broker, home] if broker and home else [])


def _started(history: History, broker: str, since_ns: int, before: int) -> bool:
    """Return whether the process of a broker was seen to start after a moment, before a row."""
    looks = [
        r
        for r in history.control
        if (r["process"], r["f"], r.get("broker")) == (MONITOR, "role", broker) and r["index"] < before
    ]
    return any(
        former["role"] == "stopped"
        and r["role"] not in ("stopped", "unreachable")
        and r["time_low"] >= since_ns
        for former, r in itertools.pairwise(looks)
    )
