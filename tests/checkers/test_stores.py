"""What the stores hold in the end that they must not.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import pytest
from checker_rows import BROWSED, BROWSING, Row, agreed, finished, o
from test_fates import read
from test_findings import answer, deliver, gone, kept, role, send, tidy

from checkers.verdict import CheckOptions

DONE = finished(90)
SENT = send(2, 1)
HELD = [*SENT, *deliver(5, 1)]
UNKNOWN = [*HELD, *answer(7, 1, outcome="info"), *gone(10, 1)]
A_BACKUP = [*role(0, "a1", "live", 0, 0), *role(40, "a1", "backup", 40, 40)]


def unreadable(at: int) -> list[Row]:
    """A body in the main store that nobody can read."""
    columns = {"queue": "q", "group": "g", "broker": "a1", "value": "main", "digest": 3}
    return [o(at, -3, "ok", "browse", error="unreadable", **columns)]


def twice(*copies: Row, broker: str | None = "a1") -> list[Row]:
    """Two readings of the stores of a broker that find the same."""
    first = [dict(row, index=70 + n) for n, row in enumerate(copies)]
    again = [dict(row, index=80 + n) for n, row in enumerate(copies)]
    ends = [o(79, -3, "ok", "browse", broker=broker), *read(89, "a1")]
    if broker != "a1":
        ends.append(o(90, -3, "ok", "browse", broker=broker))
    return [*BROWSING, *first, *again, *ends, *BROWSED]


CASES: dict[str, tuple[list[Row], set[str]]] = {
    "what a store of a live broker has, whichever way its ack went, is stuck": (
        [*A_BACKUP[:1], *UNKNOWN, *BROWSING, *kept(70, 1), *read(71, "a1"), *BROWSED], {"stuck"}),
    "what a store of a backup has may have gone from its live": (
        [*A_BACKUP, *UNKNOWN, *BROWSING, *kept(70, 1), *read(71, "a1"), *BROWSED], set()),
    "a store that names no broker is of one of which nobody knows a role": (
        [*A_BACKUP, *UNKNOWN, *BROWSING, *kept(70, 1, broker=None), *read(71, "a1"), *BROWSED], {"stuck"}),
    "what a store had before anybody read the stores decides nothing": ([*UNKNOWN, *kept(20, 1)], set()),
    "what a store had before its ack may be acknowledged afterwards": (
        [*HELD, *kept(6, 1), *answer(7, 1), *DONE], set()),
    "what it has after its ack is resurrected": (
        [*HELD, *answer(6, 1), *kept(20, 1), *DONE], {"resurrected"}),
    "bodies that nobody can read are corrupted, however many there are": (
        [*HELD, *twice(*unreadable(0), *unreadable(0))], {"corrupted"}),
    "copies in the store of a broker without a name are of one owner": (
        [*HELD, *twice(*kept(0, 1, broker=None), *kept(0, 1, broker=None), broker=None)], {"resurrected"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_so(tmp_path, name):
    rows, expected = CASES[name]
    assert {one.name for one in agreed(tmp_path, tidy(rows), CheckOptions())} == expected
