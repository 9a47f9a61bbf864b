"""The look at a history before it is judged.

What each part was seen to be, put together, and the line that says where it is broken.

What is looked for and why it costs little is in ``checkers.breakage``; here is who is asked. Parts
are looked at in the same job as the rules, so that nothing is read twice; of a history that is
broken no answer of a rule is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from checkers import breakage, part
from checkers.anomaly import rank
from checkers.breakage import Breakage, Look, Subject
from checkers.rows import numbers_of
from checkers.source import HistoryError, HistorySource

NOT_JUDGED: Final[Mapping[Subject, frozenset[str]]] = {
    "roles": frozenset({"split-brain", "double-takeover", "zombie", "resurrected", "starved"}),
    "faults": frozenset({"unavailable", "starved", "expired-delivery", "early-delivery"}),
    "phases": frozenset({"unavailable", "not-recovered"}),
    "stores": frozenset({"lost", "stuck", "died-early", "resurrected", "torn-transaction", "wrong-total"}),
    "views": frozenset({"diverged"}),
}
"""What takes the control rows of a subject to be told: as a finding, or as its excuse."""

UNTOLD: Final[Mapping[str, frozenset[str]]] = {
    "roles": NOT_JUDGED["roles"],
    "stores": frozenset({"died-early", "resurrected", "torn-transaction", "wrong-total"}),
}
"""What is left out where brokers cannot be asked.

What is missing in the end is seen without their stores; whether one has it, is not.
"""


@dataclass(frozen=True, slots=True)
class Confined:
    """A control row that spoils its subject alone; ``line`` names file, row and cause."""

    of: Subject
    line: str

    def __str__(self) -> str:
        return f"{', '.join(sorted(NOT_JUDGED[self.of], key=rank))} cannot be judged: {self.line}"


class Inspection:
    """Of one history. ``confined`` has the first such row of each subject."""

    def __init__(self, source: HistorySource) -> None:
        self._source = source
        self.step = breakage.step_of(source.rows)
        self._control, confined = breakage.of_control(source.control, self.step, source.lacking)
        self.confined = [Confined(one.of, self._line(one)) for one in breakage.by_subject(confined)]
        if self._control.broken is not None and not self._control.broken.follows:
            raise HistoryError(self._line(self._control.broken))

    def _line(self, broken: Breakage) -> str:
        """File, row and cause."""
        return f"{self._source.holding(broken.index)}: {broken}"

    def judged(self, looks: Mapping[int, Sequence[Look]]) -> None:
        """Checks that all parts together are a history.

        Raises HistoryError for the first row of the parts, by number, that breaks the form, or if
        the parts together are no whole.
        """
        every = [self._control, *(look for some in looks.values() for look in some)]
        if sum(look.rows for look in every) < self._source.rows and not any(look.broken for look in every):
            return  # some part was not looked at, because whoever was asked failed; that has been told
        keys = {number: [look.keys for look in some] for number, some in looks.items()}
        broken = breakage.of_whole(every, self._spans, lambda: self._spread(keys))
        if broken is not None:
            raise HistoryError(self._line(broken))

    def _spans(self, low: int, width: int, count: int) -> list[breakage.Span]:
        asked = self._source.ask(partial(part.spans, low=low, width=width, count=count))
        control = np.sort(numbers_of(self._source.control, "index"))
        return [
            breakage.spans(control, low, width, count),
            *(span for some in asked.values() for span in some),
        ]

    def _spread(self, keys: Mapping[int, Sequence[Any]]) -> Breakage | None:
        """The first row of a group that lies in several parts."""
        mine = {number: np.unique(np.concatenate(some)) for number, some in keys.items() if some}
        if len(mine) < 2:
            return None
        found, counts = np.unique(np.concatenate(list(mine.values())), return_counts=True)
        if not np.any(counts > 1):
            return None
        key = int(found[counts > 1][0])
        several = [number for number, some in mine.items() if key in some]
        named = self._source.ask(partial(part.keyed, key=key), several)
        (index, words), (other, _), *_ = sorted(one for some in named.values() for one in some)
        elsewhere = self._source.holding(other)
        return Breakage(
            index,
            f"{words} is in {elsewhere}, too: all rows of a group, or of a producer without groups, "
            "must be in one file",
        )


def looks_of(given: Iterable[tuple[int, Mapping[str, Sequence[Any]]]]) -> dict[int, list[Look]]:
    """What each part was seen to be, by its number."""
    return {number: list(some.get(part.LOOK, ())) for number, some in given}
