"""Messages that stores must not hold at the end: acknowledged messages, and copies.

A copy proves nothing by itself, because a message that moves from one broker to another may be read
in both. So copies count only if two successive readings of the stores found the same of them; the
harness reads the stores again if it sees any. The brokers of one node ID are one owner, because
they are meant to hold the same messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from checkers.ends import Ends
from checkers.facts import Facts
from checkers.rows import ACK_OK, BROWSE, NONE, Flags, Numbers, Rows, Texts, counted, lowest, marked
from checkers.timeouts import Lapses

_READINGS: Final = 2
Broker = tuple[int, str | None]
"""A broker of a run: (run, name)."""
Held = tuple[int, str | None]
"""A store that holds a copy: (owner, broker)."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The readings and owners of stores, by (run, broker).

    ``ended``: the rows at which each reading of a broker's stores ended; ``owner``: the number of
    their owner; ``roles``: the rows that tell a broker's role, each with whether it is live from
    there on. ``browsed`` has the row with which the reading of each run's stores began.
    """

    ended: Mapping[Broker, Sequence[int]] = field(default_factory=dict)
    owner: Mapping[Broker, int] = field(default_factory=dict)
    roles: Mapping[Broker, Sequence[tuple[int, bool]]] = field(default_factory=dict)
    browsed: Mapping[int, int] = field(default_factory=dict)

    def owned(self, run: Numbers, brokers: Texts, at: Numbers, index: Numbers) -> Flags:
        """Return which rows were read from stores at the end, of brokers that served their queues.

        A broker serves its queues while its role is "live", or if no row tells its role.
        """
        result = np.zeros(len(at), dtype=bool)
        for n, (one, code, row) in enumerate(
            zip(run.tolist(), brokers.codes[at].tolist(), index.tolist(), strict=True)
        ):
            roles = self.roles.get((one, brokers.values[code] if code >= 0 else None), ())
            before = bisect_left(roles, (row, False))
            live = roles[before - 1][1] if before else not roles
            result[n] = live and one in self.browsed and row > self.browsed[one]
        return result


def owners(known: Mapping[int, Facts]) -> Owners:
    """Return the owners and readings of stores from the rows of the harness and the monitor."""
    ended: dict[Broker, list[int]] = {}
    owner: dict[Broker, int] = {}
    numbers: dict[str | None, int] = {}
    roles: dict[Broker, list[tuple[int, bool]]] = {}
    browsed: dict[int, int] = {}
    for run, facts in known.items():
        for row in facts.readings:
            ended.setdefault((run, row["broker"]), []).append(row["index"])
        node_ids = {row["broker"]: row["node_id"] for row in facts.roles if row["node_id"] is not None}
        for row in facts.readings:
            name = row["broker"]
            owner[run, name] = numbers.setdefault(node_ids.get(name, name), len(numbers))
        for row in facts.roles:
            roles.setdefault((run, row["broker"]), []).append((row["index"], row["role"] == "live"))
        if facts.browsed_from is not None:
            browsed[run] = facts.browsed_from
    return Owners(ended, owner, roles, browsed)


def resurrected(rows: Rows, ends: Ends, whose: Owners, lapsed: Lapses, *, durable_acks: bool) -> Numbers:
    """Return, for each message, the row of a store that shows it resurrected, or ``NONE``."""
    at = rows.of(BROWSE)
    at = at[rows.message[at] != NONE]
    kept = at[_in(rows, at, "main") | _in(rows, at, "dead-letter") | _in(rows, at, "expired")]
    copies = _copies(rows, kept, whose)
    if not durable_acks:
        return copies
    back = _though_acknowledged(rows, ends, kept, lapsed)
    return np.where(back == NONE, copies, back)


def _in(rows: Rows, at: Numbers, store: str) -> Flags:
    result: Flags = rows.value.codes[at] == rows.value.code(store)
    return result


def _though_acknowledged(rows: Rows, ends: Ends, at: Numbers, lapsed: Lapses) -> Numbers:
    acks = rows.of(ACK_OK)
    acks = acks[~lapsed.are_late(acks)]
    acks = acks[marked(rows.id[at], rows.messages)[rows.id[acks]]]
    acks = acks[rows.session[acks] != NONE]
    since = settlement(rows, ends, acks)
    settled = lowest(rows.id[acks[since != NONE]], since[since != NONE], rows.messages)
    after = at[(settled[rows.id[at]] != NONE) & (settled[rows.id[at]] < rows.index[at])]
    return lowest(rows.id[after], rows.index[after], rows.messages)


def settlement(rows: Rows, ends: Ends, acks: Numbers) -> Numbers:
    """Return the index since which each ``ok`` ack is certain; in a transaction, of its commit."""
    transaction = rows.transaction[acks]
    commit = ends.transactions.find("commit", rows.run[acks], transaction)
    return np.where(transaction == NONE, rows.index[acks], commit)


def _copies(rows: Rows, kept: Numbers, whose: Owners) -> Numbers:
    """Return the last row of messages with the same copies, several, in the last two readings."""
    several = counted(rows.id[kept], rows.messages) > 1
    kept = kept[several[rows.id[kept]]]
    # A loop is enough: few messages are left in a store, and fewer are there twice.
    readings: dict[int, tuple[Counter[Held], Counter[Held]]] = {}
    latest: dict[int, int] = {}
    for number, run, code, index in zip(
        rows.id[kept].tolist(), rows.run[kept].tolist(), rows.broker.codes[kept].tolist(),
        rows.index[kept].tolist(), strict=True
    ):  # fmt: skip
        broker = (run, rows.broker.values[code] if code >= 0 else None)
        ended = whose.ended.get(broker, ())
        back = len(ended) - bisect_left(ended, index)
        if 1 <= back <= _READINGS:
            counts = readings.setdefault(number, (Counter(), Counter()))
            counts[back - 1][whose.owner[broker], broker[1]] += 1
        latest[number] = index
    result = np.full(rows.messages, NONE, dtype=np.int64)
    for number, (last, before) in readings.items():
        if sum(_by_owner(last).values()) > 1 and _by_owner(last) == _by_owner(before):
            result[number] = latest[number]
    return result


def _by_owner(counts: Counter[Held]) -> dict[int, int]:
    """Return how many copies each owner has: the highest number among its brokers."""
    result: dict[int, int] = {}
    for (owner, _), count in counts.items():
        result[owner] = max(count, result.get(owner, 0))
    return result
