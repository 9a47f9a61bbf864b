"""What brokers that disagree about a destination are accused of.

A live and its backup of `diverged`; owners of stores of their own of what became of the messages.
"""

import json

import msgspec
import pytest
from checker_rows import BROWSED, BROWSING, MS, Row, agreed, finished, o
from test_fates import ACKED, REFUSED, read
from test_findings import OPTIONS, kept, send, tidy

from checkers.verdict import Promises

DONE = finished(90)
ONE_ATTEMPT = Promises(delivery_attempts=1, most_attempts=1)


def holds(at: int, broker: str, value: str, low: int = 70, high: int = 75, pair: str = "a") -> Row:
    """What one says again and again of the queue "q" of its pair."""
    told = json.dumps({"kind": "destination", "key": f"q of pair {pair}", "value": value})
    return o(at, -3, "ok", "view", broker=broker, value=told, time_low=low * MS, time_high=high * MS)


SAME = [holds(76, "a1", "1 message (01)"), holds(77, "a2", "1 message (01)")]
OTHER = [holds(76, "a1", "1 message (01)"), holds(77, "a2", "nothing")]
ONCE = [holds(76, "a1", "1 message (01)"), holds(77, "a2", "nothing", 76, 75)]
LATER = [holds(76, "a1", "1 message (01)"), holds(77, "a2", "nothing", 75, 80)]
PAIRS = [holds(76, "a1", "1 message (01)"), holds(77, "b1", "nothing", pair="b")]

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "a live and its backup that say the same agree": ([*ACKED, *SAME, *DONE], set()),
    "a live and its backup that differ again and again have diverged, and nothing else tells": (
        [*ACKED, *OTHER, *DONE], {"diverged"}),
    "a backup that was asked once proves nothing": ([*ACKED, *ONCE, *DONE], set()),
    "what one said before the other was asked proves nothing": ([*ACKED, *LATER, *DONE], set()),
    "a queue of another pair is another queue": ([*ACKED, *PAIRS, *DONE], set()),
    "a message that no broker of several has is lost": (
        [*send(0, 1), *BROWSING, *read(80, "a1", "b1"), *BROWSED], {"lost"}),
    "a message that two owners have is resurrected": (
        [*send(0, 1), *BROWSING, *kept(80, 1, broker="a1"), *kept(81, 1, broker="b1"), *read(82, "a1", "b1"),
         *kept(84, 1, broker="a1"), *kept(85, 1, broker="b1"), *read(86, "a1", "b1"), *BROWSED],
        {"resurrected", "stuck"}),
    "a message that one has though it was acknowledged with the other is resurrected": (
        [*ACKED, *kept(80, 1, broker="b1"), *DONE], {"resurrected"}),
    "a message that its broker has in another queue is corrupted": (
        [*send(0, 1), *kept(80, 1, queue="r"), *DONE], {"corrupted"}),
    "a dead letter that no broker has is lost": (
        [*REFUSED, *read(80, "a1", "b1"), *DONE], {"lost"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_disagreement_has_its_name(name, tmp_path):
    rows, expected = CASES[name]
    options = msgspec.structs.replace(OPTIONS, broker=ONE_ATTEMPT) if "dead letter" in name else OPTIONS
    assert {found.name for found in agreed(tmp_path, tidy(rows), options)} == expected
