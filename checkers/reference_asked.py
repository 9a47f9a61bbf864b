"""The second implementation of the options of a send: expiry, delay and priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkers.excuses import Effect
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage
    from checkers.reference_attempts import Attempt

Row = Mapping[str, Any]


def expires(m: PlainMessage) -> int | None:
    """Return the time (ns) from which a message may have expired; None if it cannot expire."""
    return min((low for low, _ in _spans(m.options, "expires")), default=None)


def is_delayed(m: PlainMessage) -> bool:
    """Return whether a send of a message asked for a delay."""
    return bool(_spans(m.options, "delay"))


def priority(m: PlainMessage) -> int:
    """Return the highest priority that a message was sent with; 4 if it was sent without one."""
    return max((int(r["priority"]) for r in m.options if _number(r.get("priority"))), default=4)


def in_turn(m: PlainMessage) -> bool:
    """Return whether a message must be delivered in the order in which it was sent.

    That is so without a delay and with the default priority.
    """
    return priority(m) == 4 and not is_delayed(m)


def may_have_expired(history: History, m: PlainMessage) -> bool:
    """Return whether a message may have expired by the end of the history."""
    low = expires(m)
    if low is None:
        return False
    last = history.rows[-1]
    return low <= last["time"] or clocks_wrong(history, m, last["index"], at_end=True)


def had_expired(history: History, m: PlainMessage) -> bool:
    """Return whether a message had certainly expired before the drain began."""
    high = _high(m.counted, "expires")
    drained = next((r["time"] for r in history.rows if r["f"] == "phase" and r.get("value") == "drain"), -1)
    last = history.rows[-1]["index"]
    return high is not None and high < drained and not clocks_wrong(history, m, last, at_end=True)


def timely(history: History, m: PlainMessage) -> bool:
    """Return whether a message cannot have expired by its first delivery."""
    low = expires(m)
    if low is None or not m.deliveries:
        return True
    read = m.deliveries[0]
    return bool(read["time"] < low) and not clocks_wrong(history, m, read["index"])


def may_be_delayed(history: History, m: PlainMessage) -> bool:
    """Return whether a message need not have been delivered before the drain began.

    An attempt that asked for no delay made it due at once.
    """
    if not is_delayed(m):
        return False
    high = _high([attempt for attempt in m.counted if _spans(attempt.options, "delay")], "delay")
    drained = next((r["time"] for r in history.rows if r["f"] == "phase" and r.get("value") == "drain"), -1)
    return high is None or high >= drained or clocks_wrong(history, m, history.rows[-1]["index"], at_end=True)


def may_wait(history: History, m: PlainMessage, options: CheckOptions) -> bool:
    """Return whether a message may wait for a redelivery when the stores are read.

    A message in a group waits, too, if one before it in the group does.
    """
    began = {r["value"]: r["time"] for r in reversed(history.rows) if r["f"] == "phase"}
    delay_s = options.broker.redelivery_s
    short = began.get("browse", -1) < began.get("drain", -1) + int((delay_s + 0.5) * 1e9)
    return delay_s > 0 and short and (bool(m.deliveries) or m.group is not None)


def expired(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Return whether a delivery was certainly sent after its message had expired."""
    high = _high(m.counted, "expires")
    if high is None or d["time"] <= high:
        return False
    sent = history.possible(d, options)
    return (d.get("time_low") or -1) > high or (sent is not None and history.time(sent) > high)


def early(history: History, m: PlainMessage, d: Row, options: CheckOptions) -> bool:
    """Return whether a delivery was read before the delay of its message was over."""
    del history, options
    lows = [low for low, _ in _spans(m.options, "delay")]
    if not lows or not all(_spans(attempt.options, "delay") for attempt in m.counted):
        return False
    return bool(d["time"] < min(lows))


def clocks_wrong(history: History, m: PlainMessage, until: int, *, at_end: bool = False) -> bool:
    """Return whether a broker of a message may have had a wrong clock since its send until a row.

    A fault explains a wrong clock if it can make clocks wrong, and was observed to take effect or
    not observed at all. It is in force from when it was asked for until its healing was observed,
    and must have hit a broker on the way of the message.
    """
    since = m.sends[0]["index"] if m.sends else -1
    return any(
        effect.begin_row <= until
        and (effect.end_row is None or effect.end_row >= since)
        and is_on_the_way(history, m, effect, at_end=at_end)
        for effect in history.clock_effects
    )


def is_on_the_way(history: History, m: PlainMessage, effect: Effect, *, at_end: bool) -> bool:
    """Return whether a fault may have hit a broker that had a message, or another of its pair.

    A broker had the message if it took, delivered or stores it, or was asked to settle it. By the
    end of the test (``at_end``) the message may also have been forwarded to any broker at which a
    consumer subscribed to its queue. If no row tells these brokers, every fault may have hit one.
    """
    taken = {r["broker"] for r in m.rows if r["f"] == "send" and r.get("broker") is not None}
    if not taken:
        return True
    brokers = {r["broker"] for r in m.rows if r.get("broker") is not None}
    if at_end:
        subscribes = [
            r for r in history.subscribing_to[m.queue] if r["f"] == "subscribe" and r["type"] == "ok"
        ]
        if any(r.get("broker") is None for r in subscribes):
            return True
        brokers |= {r["broker"] for r in subscribes}
    return history.pairs.may_touch(effect, brokers)


def _high(attempts: Sequence[Attempt], name: str) -> int | None:
    """Return the latest end (ns) of a span among attempts; None unless each attempt has an end."""
    highs = [_latest(attempt, name) for attempt in attempts]
    ends_known = [high for high in highs if high is not None]
    return max(ends_known) if ends_known and len(ends_known) == len(highs) else None


def _latest(attempt: Attempt, name: str) -> int | None:
    return max((high for _, high in _spans(attempt.options, name) if high is not None), default=None)


def _spans(options: Sequence[Row], name: str) -> list[tuple[int, int | None]]:
    """Return the spans of expiry or delay (``name``) among the options of attempts."""
    if not options:
        return []
    spans = (span for r in options if isinstance(span := r.get(name), list) and len(span) == 2)
    return [(low, high if _number(high) else None) for low, high in spans if _number(low)]


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
