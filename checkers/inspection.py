"""The validation of a whole history: the looks at its parts, put together.

``checkers.breakage`` has the checks, and why they cost little; this module asks the parts for them,
and names file, row and cause of what is broken. Parts are validated in the same job as the rules,
so that nothing is read twice. If a history is broken, the answers of the rules are not used.
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
"""The anomalies that need the control rows of a subject, as evidence or as an excuse."""

UNTOLD: Final[Mapping[str, frozenset[str]]] = {
    "roles": NOT_JUDGED["roles"],
    "stores": frozenset({"died-early", "resurrected", "torn-transaction", "wrong-total"}),
}
"""The anomalies that are left out where brokers cannot be asked for their roles or stores.

Which messages are missing in the end is seen without the stores; whether a store has one is not.
"""


@dataclass(frozen=True, slots=True)
class Confined:
    """A control row that spoils its subject alone; ``line`` names file, row and cause."""

    subject: Subject
    line: str

    def __str__(self) -> str:
        return f"{', '.join(sorted(NOT_JUDGED[self.subject], key=rank))} cannot be judged: {self.line}"


class Inspection:
    """The validation of one history.

    ``confined`` has the first broken control row of each subject. Raises HistoryError if the
    control rows break the form of the history.
    """

    def __init__(self, source: HistorySource) -> None:
        self._source = source
        self.step = breakage.step_of(source.rows)
        self._control, confined = breakage.of_control(source.control, self.step, source.lacking)
        self.confined = [
            Confined(breakage_found.subject, self._line(breakage_found))
            for breakage_found in breakage.by_subject(confined)
        ]
        if self._control.broken is not None and not self._control.broken.follows:
            raise HistoryError(self._line(self._control.broken))

    def _line(self, broken: Breakage) -> str:
        """Return the line that names file, row and cause."""
        return f"{self._source.holding(broken.index)}: {broken}"

    def judged(self, looks: Mapping[int, Sequence[Look]]) -> None:
        """Check that all parts together are a history; ``looks`` are by the number of the part.

        Raises HistoryError for the first row that breaks the form, or if the parts together are not
        whole.
        """
        every = [self._control, *(look for of_part in looks.values() for look in of_part)]
        if sum(look.rows for look in every) < self._source.rows and not any(look.broken for look in every):
            return  # some part was not validated, because its task failed: that is reported elsewhere
        keys = {number: [look.keys for look in of_part] for number, of_part in looks.items()}
        broken = breakage.of_whole(every, self._spans, lambda: self._spread(keys))
        if broken is not None:
            raise HistoryError(self._line(broken))

    def _spans(self, low: int, width: int, count: int) -> list[breakage.Span]:
        replies = self._source.ask(partial(part.spans, low=low, width=width, count=count))
        control = np.sort(numbers_of(self._source.control, "index"))
        return [
            breakage.spans(control, low, width, count),
            *(span for reply in replies.values() for span in reply),
        ]

    def _spread(self, keys: Mapping[int, Sequence[Any]]) -> Breakage | None:
        """Return a breakage for a group whose rows lie in several parts; None if there is none."""
        part_keys = {
            number: np.unique(np.concatenate(keys_of_part))
            for number, keys_of_part in keys.items()
            if keys_of_part
        }
        if len(part_keys) < 2:
            return None
        all_keys, counts = np.unique(np.concatenate(list(part_keys.values())), return_counts=True)
        if not np.any(counts > 1):
            return None
        key = int(all_keys[counts > 1][0])
        several = [number for number, keys_of_part in part_keys.items() if key in keys_of_part]
        named = self._source.ask(partial(part.keyed, key=key), several)
        (index, words), (other, _), *_ = sorted(
            row for keys_of_part in named.values() for row in keys_of_part
        )
        elsewhere = self._source.holding(other)
        return Breakage(
            index,
            f"{words} is in {elsewhere}, too: all rows of a group, or of a producer without groups, "
            "must be in one file",
        )


def looks_of(answers: Iterable[tuple[int, Mapping[str, Sequence[Any]]]]) -> dict[int, list[Look]]:
    """Return the looks at each part, by the number of the part."""
    return {number: list(results.get(part.LOOK, ())) for number, results in answers}
