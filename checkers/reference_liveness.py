"""Unavailable and not-recovered straight from their definitions; see ``checkers.reference``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.instance import Instance
from checkers.verdict import CheckOptions

Row = Mapping[str, Any]
_OPERATIONS = ("send", "ack", "nack")


@dataclass(frozen=True, slots=True)
class Unavailability:
    """A window in which nothing of ``key`` succeeded: the row of the question that began it, and its begin and end (ns)."""

    key: str
    index: int
    begin: int
    end: int


def liveness(rows: Sequence[Row], options: CheckOptions) -> Iterator[Instance]:
    """Both liveness rules."""
    for one in unavailabilities(rows, options):
        yield Instance("unavailable", None, None, None, one.index, one.key)
    yield from _not_recovered(rows, int(options.recovery_bound_s * 1e9))


def _keys(r: Row) -> Iterator[str]:
    yield f"operation {r['f']}"
    if r.get("queue") is not None:
        yield f'queue "{r["queue"]}", {r["f"]}'
        if r.get("group") is not None:
            yield f'group "{r["group"]}" of queue "{r["queue"]}", {r["f"]}'
    if r["f"] == "send" and r.get("producer") is not None:
        yield f"client producer {r['producer']}"
    if r["f"] == "send" and r.get("broker") is not None:
        yield f"broker {r['broker']}"


def unavailabilities(rows: Sequence[Row], options: CheckOptions) -> Iterator[Unavailability]:
    """From the first question after an ``ok`` to the last completion before the next that is not: longer than the bound, and three questions at least.

    For a broker the questions are the completions that name it and are not ``ok``: an invocation does not know its broker.
    """
    bound_ns = int(options.unavailable_bound_s * 1e9)
    by_key: dict[str, list[Row]] = defaultdict(list)
    for r in rows:
        if r["f"] in _OPERATIONS and r["process"] >= 0 and r.get("queue") is not None:
            for key in _keys(r):
                by_key[key].append(r)
    for key, mine in by_key.items():
        windows: list[list[Row]] = [[]]
        for r in mine:
            if r["type"] == "ok":
                windows.append([])
            else:
                windows[-1].append(r)
        for window in windows:
            found = _window(key, window, bound_ns)
            if found is not None:
                yield found


def _window(key: str, rows: Sequence[Row], bound_ns: int) -> Unavailability | None:
    """What lies between two ``ok``, or before the first, or after the last."""
    asks = ("fail", "info") if key.startswith("broker") else ("invoke",)
    questions = [r for r in rows if r["type"] in asks]
    failed = [r for r in rows if r["type"] in ("fail", "info")]
    if not questions or not failed:
        return None
    begin, end = questions[0], failed[-1]
    attempts = [r for r in questions if r["index"] <= end["index"]]
    if len(attempts) < 3 or end["time"] - begin["time"] <= bound_ns:
        return None
    return Unavailability(key, begin["index"], begin["time"], end["time"])


def _not_recovered(rows: Sequence[Row], bound_ns: int) -> Iterator[Instance]:
    """The harness said so; or after heal and bound operations still end, none of them ``ok``."""
    heals = [r for r in rows if r["f"] == "phase" and r.get("value") == "heal"]
    said = [r for r in rows if r["f"] == "phase" and r.get("value") == "not-recovered"]
    if said:
        yield Instance("not-recovered", None, None, None, said[0]["index"])
        return
    if not heals:
        return
    after = [
        r
        for r in rows
        if r["f"] in _OPERATIONS and r["process"] >= 0 and r["time"] > heals[0]["time"] + bound_ns
    ]
    ended = [r for r in after if r["type"] in ("fail", "info")]
    if ended and not any(r["type"] == "ok" for r in after):
        yield Instance("not-recovered", None, None, None, ended[0]["index"])
