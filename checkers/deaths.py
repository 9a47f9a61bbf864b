"""When a broker's process was seen to be gone: what it had not stored by then it never will.

Why: a send of unknown outcome may sit in the buffers of the process that took it, and be stored
long after its client gave it up. A process that is gone has no buffers. So such a send was stored
before that, or never, and what was sent later comes later: unless the message came by way of
another broker. Of a message that was sent more than once each attempt of unknown outcome may sit
in another process, and all of these must be gone.

Seen by the monitor (role "stopped"), by a fault that ended the process ("gone"), or by the harness
(``restart``).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from checkers.attempts import Attempts
from checkers.facts import Facts
from checkers.rows import (
    DELIVER,
    FOREVER,
    NONE,
    SEND_INFO,
    SEND_INVOKE,
    Flags,
    Numbers,
    Rows,
    first,
    highest,
    joined,
)
from checkers.schema import json_object

Broker = tuple[int, str]
"""(run, broker)."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """By (run, broker): the rows that saw it gone, in order; and the node ID that it told last."""

    rows: Mapping[Broker, Sequence[int]] = field(default_factory=dict)
    node_ids: Mapping[Broker, str] = field(default_factory=dict)

    def of_one_node(self, run: int, one: str, other: str) -> bool:
        """Whether two brokers are one, or of one node ID: nothing need be forwarded."""
        node_id = self.node_ids.get((run, one))
        return one == other or (node_id is not None and node_id == self.node_ids.get((run, other)))

    def node(self, run: int, broker: str | None) -> int:
        """Return the number of the node of a broker, the same in every process."""
        if broker is None:
            return NONE
        node_id = self.node_ids.get((run, broker))
        return name_number(f"broker {broker}" if node_id is None else f"node {node_id}")

    def nodes(self, rows: Rows, at: Numbers) -> Numbers:
        """Return the node number of the broker of each of some rows."""
        pairs = np.column_stack([rows.run[at], rows.broker.codes[at]])
        kinds, which = np.unique(pairs, axis=0, return_inverse=True)
        names = rows.broker.values
        known = [self.node(run, names[code] if code >= 0 else None) for run, code in kinds.tolist()]
        return np.array(known, dtype=np.int64)[which.ravel()]


def name_number(name: str | None) -> int:
    """Return a number for a name, the same in every process; ``NONE`` for no name."""
    return NONE if name is None else zlib.crc32(name.encode())


def read(known: Mapping[int, Facts]) -> Deaths:
    """From what the monitor, the nemesis and the harness wrote down."""
    rows: dict[Broker, list[int]] = defaultdict(list)
    node_ids: dict[Broker, str] = {}
    for run, facts in known.items():
        for row in facts.roles:
            if row["role"] == "stopped":
                rows[run, row["broker"]].append(row["index"])
            if row["node_id"] is not None:
                node_ids[run, row["broker"]] = row["node_id"]
        for row in facts.restarts:
            rows[run, row["broker"]].append(row["index"])
        for row in facts.faults:
            for broker in gone(row["type"], row["value"]):
                rows[run, broker].append(row["index"])
    return Deaths({broker: sorted(some) for broker, some in rows.items()}, node_ids)


def gone(type_: str, value: str | None) -> Sequence[str]:
    """The brokers whose processes a row of the nemesis saw gone."""
    observed = (json_object(value) or {}).get("observed")
    if type_ == "invoke" or not isinstance(observed, dict):
        return ()
    return [name for name, phrase in observed.items() if phrase == "gone"]


def sealed(rows: Rows, unknown: Flags, deaths: Deaths, attempts: Attempts | None = None) -> Numbers:
    """By message of unknown outcome since which row it was stored; ``NONE``: nothing says so."""
    result = np.full(rows.messages, NONE, dtype=np.int64)
    if not unknown.any() or not deaths.rows:
        return result
    delivers, codes = rows.of(DELIVER), rows.broker.codes.astype(np.int64)
    giver = first(rows.id[delivers], codes[delivers], rows.messages)
    open_ = _open_sends(rows, codes, unknown, attempts)
    gone = np.full(len(open_.message), FOREVER, dtype=np.int64)
    at = np.flatnonzero(open_.alone & (open_.taker >= 0) & (giver[open_.message] >= 0))
    mine = open_.message[at]
    pairs = np.column_stack([rows.run[rows.first_row[mine]], open_.taker[at], giver[mine]])
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    for number, (run, one, other) in enumerate(kinds.tolist()):
        broker = rows.broker.values[one]
        seen = np.array(deaths.rows.get((run, broker), ()), dtype=np.int64)
        if len(seen) and deaths.of_one_node(run, broker, rows.broker.values[other]):
            some = at[which.ravel() == number]
            after = np.searchsorted(seen, open_.asked[some], "right")
            gone[some] = np.append(seen, FOREVER)[after]
    latest = highest(open_.message, gone, rows.messages)
    return np.where(latest == FOREVER, NONE, latest)


@dataclass(frozen=True, slots=True)
class _OpenSends:
    """Sends of unknown outcome: when each was asked for, and the code of the broker that took it.

    ``taker`` is negative where no row names the broker. ``alone``: in no transaction.
    """

    message: Numbers
    asked: Numbers
    taker: Numbers
    alone: Flags


def _open_sends(rows: Rows, codes: Numbers, unknown: Flags, attempts: Attempts | None) -> _OpenSends:
    """Return the sends of unknown outcome of some messages."""
    sends, ends = rows.of(SEND_INVOKE), rows.of(SEND_INFO)
    once = unknown if attempts is None else unknown & ~attempts.several
    sends = sends[once[rows.id[sends]]]
    taker = first(rows.id[ends], codes[ends], rows.messages)
    message = rows.id[sends].astype(np.int64)
    found = _OpenSends(message, rows.index[sends], taker[message], rows.transaction[sends] == NONE)
    if attempts is None:
        return found
    at = np.flatnonzero(attempts.unknown & unknown[attempts.message])
    answer = attempts.answer[at]
    again = _OpenSends(
        attempts.message[at], attempts.asked[at], np.where(answer < 0, NONE, codes[answer]),
        attempts.transaction[at] == NONE,
    )  # fmt: skip
    return joined([found, again])
