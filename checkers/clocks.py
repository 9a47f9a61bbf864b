"""When a fault of clocks was in force: then nobody knows when a broker takes a message to be due.

From the row that asked for it to the row that says that it was healed, if any does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from checkers.facts import Facts
from checkers.rows import FOREVER, Flags, Numbers
from checkers.schema import json_object

CLOCK: Final = "clock-"
"""How the kinds of these faults begin."""
_HEAL: Final = "heal:"


@dataclass(frozen=True, slots=True)
class Clocks:
    """By run where the spans begin, in order, and until which row any of those so far lasts."""

    spans: Mapping[int, tuple[Numbers, Numbers]] = field(default_factory=dict)

    def wrong(self, run: Numbers, low: Numbers, high: Numbers) -> Flags:
        """Whether a fault of clocks was in force at some row from ``low`` to ``high``."""
        found = np.zeros(len(run), dtype=bool)
        for one, (begin, end) in self.spans.items():
            mine = run == one
            at = np.searchsorted(begin, high[mine], "right") - 1
            found[mine] = (at >= 0) & (end[np.maximum(at, 0)] >= low[mine])
        return found


def read(known: Mapping[int, Facts]) -> Clocks:
    """From what the nemesis wrote down."""
    spans = {}
    for run, facts in known.items():
        open_: dict[str, int] = {}
        found = []
        for row in facts.faults:
            kind = row["f"].removeprefix(_HEAL)
            if not kind.startswith(CLOCK):
                continue
            label = str((json_object(row["value"]) or {}).get("label", ""))
            if row["f"] == kind:
                open_.setdefault(label, row["index"])
            elif row["type"] != "invoke" and label in open_:
                found.append((open_.pop(label), row["index"]))
        found += [(begin, FOREVER) for begin in open_.values()]
        if found:
            begin, end = np.array(sorted(found), dtype=np.int64).T
            spans[run] = (begin, np.maximum.accumulate(end))
    return Clocks(spans)
