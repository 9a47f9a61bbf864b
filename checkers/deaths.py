"""When a broker's process was seen to be gone: what it had not stored by then it never will.

Why: a send of unknown outcome may sit in the buffers of the process that took it, and be stored
long after its client gave it up. A process that is gone has no buffers. So such a send was stored
before that, or never, and what was sent later comes later: unless the message came by way of
another broker, or was sent more than once.

Seen by the monitor (role "stopped"), by a fault that ended the process ("gone"), or by the harness
(``restart``).
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from checkers.facts import Facts
from checkers.rows import DELIVER, NONE, SEND_INFO, SEND_INVOKE, Flags, Numbers, Rows, counted, first
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


def sealed(rows: Rows, unknown: Flags, deaths: Deaths) -> Numbers:
    """By message of unknown outcome since which row it was stored; ``NONE``: nothing says so."""
    result = np.full(rows.messages, NONE, dtype=np.int64)
    if not unknown.any() or not deaths.rows:
        return result
    sends, ends, delivers = rows.of(SEND_INVOKE), rows.of(SEND_INFO), rows.of(DELIVER)
    sent = first(rows.id[sends], rows.index[sends], rows.messages)
    once = counted(rows.id[sends], rows.messages) == 1
    alone = np.ones(rows.messages, dtype=bool)
    alone[rows.id[sends[rows.transaction[sends] != NONE]]] = False
    codes = rows.broker.codes.astype(np.int64)
    taker = first(rows.id[ends], codes[ends], rows.messages)
    giver = first(rows.id[delivers], codes[delivers], rows.messages)
    at = np.flatnonzero(unknown & once & alone & (taker >= 0) & (giver >= 0))
    pairs = np.column_stack([rows.run[rows.first_row[at]], taker[at], giver[at]])
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    for number, (run, one, other) in enumerate(kinds.tolist()):
        broker = rows.broker.values[one]
        seen = np.array(deaths.rows.get((run, broker), ()), dtype=np.int64)
        if len(seen) and deaths.of_one_node(run, broker, rows.broker.values[other]):
            mine = at[which.ravel() == number]
            after = np.searchsorted(seen, sent[mine], "right")
            result[mine] = np.where(after < len(seen), seen[np.minimum(after, len(seen) - 1)], NONE)
    return result
