"""Which messages of a group count for ``not-linearizable``, in groups in which something is open.

Of each clause a history that is guilty, and one as near as can be that is innocent.
"""

from __future__ import annotations

import pytest
from checker_rows import Row, agreed, o
from test_findings import deliver, send
from test_owed import joined

from checkers.verdict import CheckOptions

BOTH_READ = [*deliver(30, 2), *deliver(32, 1)]
"""Message 2 is read before message 1."""
NEVER_READ = send(6, 3)
"""Message 3 is sent for certain, and nobody gets it."""
UNREADABLE = {"queue": "q", "group": "g", "broker": "a1"}

CASES: dict[str, tuple[list[Row], bool]] = {
    "a message that was read before it may have expired was overtaken": (
        [*joined(0), *send(2, 1, value='{"expires": [90000000, 99000000]}'), *send(4, 2), *NEVER_READ,
         *BOTH_READ], True),
    "a message that may have expired before it was read was not": (
        [*joined(0), *send(2, 1, value='{"expires": [20000000, 99000000]}'), *send(4, 2), *NEVER_READ,
         *BOTH_READ], False),
    "a message of which nobody asked that it be sent was not": (
        [*joined(0), send(2, 1)[1], *send(4, 2), *NEVER_READ, *BOTH_READ], False),
    "a message that nobody got was overtaken, whatever lies in a store": (
        [*joined(0), *send(2, 1), *send(4, 2), *deliver(10, 2),
         o(30, -3, "ok", "browse", value="main", **UNREADABLE)], True),
    "a message that may be the body that could not be read was not": (
        [*joined(0), *send(2, 1), *send(4, 2), *deliver(10, 2),
         o(12, 11, "ok", "deliver", session=1, error="unreadable", **UNREADABLE)], False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_was_overtaken(tmp_path, case):
    rows, is_overtaken = CASES[case]
    ordered = sorted(rows, key=lambda row: row["index"])
    found = {one.name for one in agreed(tmp_path, ordered, CheckOptions())}
    assert ("not-linearizable" in found) == is_overtaken
