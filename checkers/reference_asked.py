"""The second implementation of what a send asks for: expiry, delays, priority."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkers.excuses import Effect
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]


def expires(m: PlainMessage) -> int | None:
    """From when on it may have expired."""
    return min((low for low, _ in _spans(m, "expires")), default=None)


def is_delayed(m: PlainMessage) -> bool:
    """Whether it asked for a delay."""
    return bool(_spans(m, "delay"))


def priority(m: PlainMessage) -> int:
    """What it asked for; the ordinary one where nothing."""
    return max((int(r["priority"]) for r in _told(m) if _number(r.get("priority"))), default=4)


def in_turn(m: PlainMessage) -> bool:
    """Whether it is to come in the order in which it was sent."""
    return priority(m) == 4 and not is_delayed(m)


def may_have_expired(history: History, m: PlainMessage) -> bool:
    """By the end."""
    low = expires(m)
    if low is None:
        return False
    last = history.rows[-1]
    return low <= last["time"] or clocks_wrong(history, m, last["index"], at_end=True)


def timely(history: History, m: PlainMessage) -> bool:
    """Whether it cannot have expired by its first delivery."""
    low = expires(m)
    if low is None or not m.deliveries:
        return True
    read = m.deliveries[0]
    return bool(read["time"] < low) and not clocks_wrong(history, m, read["index"])


def may_be_delayed(history: History, m: PlainMessage) -> bool:
    """Whether it need not have been delivered before the drain began."""
    if not is_delayed(m):
        return False
    high = _high(m, "delay")
    drained = next((r["time"] for r in history.rows if r["f"] == "phase" and r.get("value") == "drain"), -1)
    return high is None or high >= drained or clocks_wrong(history, m, history.rows[-1]["index"], at_end=True)


def may_wait(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Whether it, or what its group has before it, may wait for a redelivery when all is read."""
    began = {r["value"]: r["time"] for r in reversed(history.rows) if r["f"] == "phase"}
    delay_s = options.broker.redelivery_s
    short = began.get("browse", -1) < began.get("drain", -1) + int((delay_s + 0.5) * 1e9)
    return delay_s > 0 and short and (bool(m.deliveries) or m.group is not None)


def expired(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Whether a delivery was certainly sent after its message had expired."""
    high, sent = _high(m, "expires"), history.possible(d, options)
    return high is not None and sent is not None and d["time"] > high and history.time(sent) > high


def early(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Whether a delivery was read before its message was to be delivered."""
    del history, options
    low = min((low for low, _ in _spans(m, "delay")), default=None)
    return low is not None and bool(d["time"] < low)


def clocks_wrong(history: History, m: PlainMessage, until: int, *, at_end: bool = False) -> bool:
    """Whether its broker may have had a wrong clock between its send and that row.

    A fault that can make clocks wrong, and was observed to or not observed at all, in force from
    when it was asked for until its healing was observed, on the way of the message.
    """
    since = m.sends[0]["index"] if m.sends else -1
    return any(
        effect.begin_row <= until
        and (effect.end_row is None or effect.end_row >= since)
        and is_on_the_way(history, m, effect, at_end=at_end)
        for effect in history.clock_effects
    )


def is_on_the_way(history: History, m: PlainMessage, effect: Effect, *, at_end: bool) -> bool:
    """Whether the clock of a broker was wrong that had the message, or may have had it.

    That took it, gave it out or keeps it, or was asked to settle it; or another of its pair. At the
    end it may also have been forwarded to where somebody subscribed to its queue.
    """
    taken = {r["broker"] for r in m.rows if r["f"] == "send" and r.get("broker") is not None}
    if not taken:
        return True
    brokers = {r["broker"] for r in m.rows if r.get("broker") is not None}
    if at_end:
        wanted = [r for r in history.subscribing_to[m.queue] if r["f"] == "subscribe" and r["type"] == "ok"]
        if any(r.get("broker") is None for r in wanted):
            return True
        brokers |= {r["broker"] for r in wanted}
    return history.pairs.may_touch(effect, brokers)


def _high(m: PlainMessage, name: str) -> int | None:
    """The end of a span; of what was sent several times nobody knows it."""
    highs = [high for _, high in _spans(m, name) if high is not None]
    return max(highs, default=None) if len(m.sends) == 1 else None


def _spans(m: PlainMessage, name: str) -> list[tuple[int, int | None]]:
    spans = (told for r in _told(m) if isinstance(told := r.get(name), list) and len(told) == 2)
    return [(low, high if _number(high) else None) for low, high in spans if _number(low)]


def _told(m: PlainMessage) -> list[Row]:
    found: list[Row] = []
    for r in m.rows:
        if r["f"] == "send" and r["type"] in ("invoke", "ok"):
            try:
                told = json.loads(r.get("value") or "{}")
            except ValueError:
                continue
            found += [told] if isinstance(told, dict) else []
    return found


def _number(told: Any) -> bool:
    return isinstance(told, int) and not isinstance(told, bool) and abs(told) < 2**62
