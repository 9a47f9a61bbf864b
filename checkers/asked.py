"""The options of sends and subscribes: the ``value`` of their rows, a JSON object.

The keys of a send, each only where the send asks for it:

    properties  {name: text}
    priority    a number: the message with the highest one in a queue is to come first
    expires     [low, high], moments of the history's clock (ns): before ``low`` the message has
                certainly not expired, after ``high`` it certainly has, and must not be sent to a
                client any more. A null ``high`` is not known yet: the broker counts from when it
                got the message; then the row that answers the send has it
    delay       likewise: before ``low`` it must not be delivered, after ``high`` it may be
    reply_to    the queue that is to have the answer
    close       true: once the message is given out, its group is closed and may go to another
                consumer (JMSXGroupSeq -1)
    amount      a number: the money that the message stands for, in the account that the text
                ``account`` names (``checkers.totals``)

The key of a subscribe: ``selector``, {property: [texts]}. Any other value asks for nothing.

Why intervals: the broker's clock says when a message expires or is due, and counts from when the
broker got the message. The history knows for certain only when the send was invoked and answered. A
fault of clocks makes even that uncertain (``checkers.clocks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from checkers.attempts import Attempts
from checkers.rows import NONE, SEND_INVOKE, SEND_OK, Flags, Numbers, Rows, highest, marked
from checkers.schema import json_object

Selector = Mapping[str, Any]

ORDINARY: Final = 4
"""The priority of a message whose send asks for none."""


def selector_of(value: str | None) -> Selector | None:
    """Return the selector that a ``subscribe`` asks for; None if it wants every message."""
    selector = (json_object(value) or {}).get("selector")
    return selector if isinstance(selector, dict) and selector else None


def properties_of(value: str | None) -> Mapping[str, Any]:
    """Return the properties that a send gives its message."""
    properties = (json_object(value) or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def closes(value: str | None) -> bool:
    """Return whether a send asks to close the group of its message."""
    return value is not None and '"close"' in value and (json_object(value) or {}).get("close") is True


_AMOUNT_MAX: Final = 2**40
"""The largest amount; more is taken for no amount, since sums must fit into 64 bits."""


def amount_of(value: str | None) -> tuple[str, int] | None:
    """Return the account and the amount of a send; None where it names no amount.

    The account is "" where the send names none.
    """
    if value is None or '"amount"' not in value:
        return None
    options = json_object(value) or {}
    amount, account = options.get("amount"), options.get("account")
    if not _is_number(amount) or abs(amount) > _AMOUNT_MAX:
        return None
    return (account if isinstance(account, str) else ""), amount


def priority_of(value: str | None) -> int | None:
    """Return the priority that a send asks for; None where it asks for none."""
    if value is None or '"priority"' not in value:
        return None
    priority = (json_object(value) or {}).get("priority")
    return priority if _is_number(priority) else None


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that each message was sent with, by message; ``NONE`` where it had none.

    ``expires`` and ``expired`` are the low and the high end of its expiry, ``early`` and ``due``
    those of its delay. ``delayed``: some attempt to send it asked for a delay.
    """

    priority: Numbers
    expires: Numbers
    expired: Numbers
    early: Numbers
    due: Numbers
    delayed: Flags

    @property
    def in_turn(self) -> Flags:
        """The messages without a delay or a priority of their own: they come in the order sent."""
        result: Flags = ~self.delayed & ((self.priority == NONE) | (self.priority == ORDINARY))
        return result


def asked_by(rows: Rows, attempts: Attempts | None) -> Asked:
    """Return the options of all messages.

    If a message was sent more than once, each attempt has its own options, and any attempt may be
    the one that was stored. So ``expires`` is the lowest of all attempts, and ``expired`` the
    highest if every attempt has one. ``early`` is the lowest if every attempt has a delay, and
    ``due`` the highest if every delay has an end. Attempts that certainly stored nothing, as
    ``attempts`` says, do not count. ``attempts`` may be None for callers that do not look at
    messages that were sent more than once.
    """
    size = rows.messages
    sends = rows.of(SEND_INVOKE, SEND_OK)
    sends = sends[rows.value.codes[sends] >= 0]
    nothing = np.broadcast_to(np.int64(NONE), size)
    if not len(sends):
        return Asked(nothing, nothing, nothing, nothing, nothing, np.broadcast_to(np.False_, size))
    codes, code_of = np.unique(rows.value.codes[sends], return_inverse=True)
    read = np.array([_times(rows.value.values[code]) for code in codes.tolist()], dtype=np.int64)
    ids, options = rows.id[sends], read[code_of]
    priority, expired, due = (highest(ids, options[:, at], size) for at in (0, 2, 4))
    expires, early = (_lowest(ids, options[:, at], size) for at in (1, 3))
    result = Asked(priority, expires, expired, early, due, early != NONE)
    if attempts is not None:
        _refine(result, rows, attempts, codes, read)
    return result


def _refine(
    asked: Asked, rows: Rows, attempts: Attempts, codes: npt.NDArray[np.int32], read: Numbers
) -> None:
    """Set the options of messages that were sent more than once, from their possible attempts."""
    size = rows.messages
    possible_at = np.flatnonzero(attempts.possible)
    ids = attempts.message[possible_at]
    nothing = np.full((1, read.shape[1]), NONE, dtype=np.int64)
    read = np.concatenate([read, nothing])

    def options_at(at: Numbers, is_known: Flags) -> Numbers:
        code = np.where(is_known, rows.value.codes[at], -1)
        place = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        return read[np.where(codes[place] == code, place, -1)]

    answer = attempts.answer[possible_at]
    ok = (answer >= 0) & (rows.kind[answer] == SEND_OK)
    invoked, answered = (
        options_at(attempts.row[possible_at], np.ones(len(possible_at), dtype=bool)),
        options_at(answer, ok),
    )
    high = np.maximum(invoked, answered)
    low = np.where(
        invoked == NONE, answered, np.where(answered == NONE, invoked, np.minimum(invoked, answered))
    )
    several = attempts.several

    def all_have(column: Numbers, among: Flags) -> Flags:
        return ~marked(ids[among & (column == NONE)], size)

    every = np.ones(len(possible_at), dtype=bool)
    delays = low[:, 3] != NONE
    for name, values in (
        ("priority", highest(ids, high[:, 0], size)),
        ("expires", _lowest(ids, low[:, 1], size)),
        ("expired", np.where(all_have(high[:, 2], every), highest(ids, high[:, 2], size), NONE)),
        ("early", np.where(all_have(low[:, 3], every), _lowest(ids, low[:, 3], size), NONE)),
        ("due", np.where(all_have(high[:, 4], delays), highest(ids, high[:, 4], size), NONE)),
        ("delayed", marked(ids[delays], size)),
    ):
        getattr(asked, name)[several] = values[several]


def _times(value: str | None) -> tuple[int, int, int, int, int]:
    options = json_object(value) or {}
    priority = options.get("priority", NONE)
    return (
        priority if _is_number(priority) else NONE,
        *_span(options.get("expires")),
        *_span(options.get("delay")),
    )


def _span(bounds: Any) -> tuple[int, int]:
    if not isinstance(bounds, list) or len(bounds) != 2 or not _is_number(bounds[0]):
        return NONE, NONE
    return bounds[0], bounds[1] if _is_number(bounds[1]) else NONE


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _lowest(ids: npt.NDArray[Any], values: Numbers, size: int) -> Numbers:
    most = np.iinfo(np.int64).max
    result = np.full(size, most, dtype=np.int64)
    np.minimum.at(result, ids, np.where(values == NONE, most, values))
    return np.where(result == most, NONE, result)
