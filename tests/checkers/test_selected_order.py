"""Order beside consumers with a selector: which of two messages one may have taken alone.

Of each clause a history that is guilty, and one as near as can be that is innocent, judged by both
implementations.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from checker_rows import MS, Row, agreed, o
from test_attempts import attempt
from test_excuses import killed
from test_fates import left
from test_findings import OPTIONS, deliver, end, gone, send, tidy

from checkers.verdict import Promises

FIFO = msgspec.structs.replace(OPTIONS, broker=Promises(fifo=True))
WRONG = {"reordered", "reordered-realtime", "not-linearizable"}
RED = {"colour": ["red"]}
BOTH_COLOURS = {"colour": ["red", "blue"]}


def of(colour: str) -> str:
    return json.dumps({"properties": {"colour": colour}})


def consumer(at: int, session: int, selector: object = None, **columns: object) -> list[Row]:
    """A subscription that is answered; without a selector, unless it is said."""
    value = json.dumps({"selector": selector}) if selector else None
    wanted = {"queue": "q", "session": session, "value": value, **columns}
    return [
        o(at, 10 + session, "invoke", "subscribe", **wanted),
        o(at + 1, 10 + session, "ok", "subscribe", **{"broker": "a1", **wanted}),
    ]


BLUE_RED = [*send(20, 1, value=of("blue")), *send(22, 2, value=of("red"))]
"""Message 1 is blue, message 2 is red."""
READ = [*deliver(40, 2, 1), *deliver(50, 1, 2)]
"""The red one is read first, in session 1, and the blue one in session 2."""


def colours(at: int, *numbers: int) -> list[Row]:
    """Consumers of colours that no message has."""
    return [r for n in numbers for r in consumer(at + 2 * n, 100 + n, {"colour": [f"number {n % 62}"]})]


MANY, SAME = colours(100, *range(62)), colours(300, *range(62, 99))
ANOTHER = consumer(300, 99, {"colour": ["another"]})

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "what the only consumer does not want is overtaken": (
        [*consumer(0, 1, RED), *BLUE_RED, *deliver(40, 2), *left(42, 1), *consumer(45, 2),
         *deliver(50, 1, 2)], set()),
    "what the only consumer wants, too, is not overtaken": (
        [*consumer(0, 1, BOTH_COLOURS), *BLUE_RED, *deliver(40, 2), *left(42, 1), *consumer(45, 2),
         *deliver(50, 1, 2)], WRONG),
    "what another consumer does not want may be overtaken": (
        [*consumer(0, 1), *consumer(2, 3, RED), *BLUE_RED, *READ], set()),
    "what another consumer wants, and not what overtakes it, is not overtaken": (
        [*consumer(0, 1), *consumer(2, 3, {"colour": ["blue"]}), *BLUE_RED, *READ], WRONG),
    "what another consumer wants neither of is not overtaken": (
        [*consumer(0, 1), *consumer(2, 3, {"colour": ["green"]}), *BLUE_RED, *READ], WRONG),
    "a consumer of another queue lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED, queue="r"), *BLUE_RED, *READ], WRONG),
    "a consumer of no known queue may be of this one": (
        [*consumer(0, 1), *consumer(2, 3, RED, queue=None), *BLUE_RED, *READ], set()),
    # ---------------------------------------------------------------------------------------- when
    "a consumer with a selector that left before lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *left(5, 3), *BLUE_RED, *READ], WRONG),
    "nor does one that is there, and wants neither, beside it": (
        [*consumer(0, 1), *consumer(2, 3, RED), *left(5, 3), *consumer(8, 4, {"colour": ["green"]}),
         *BLUE_RED, *READ], WRONG),
    "a message that closes the group undoes its order beside a later consumer, too": (
        [*consumer(0, 1), *consumer(2, 2), *send(10, 1), *send(12, 2, value='{"close": true}'),
         *send(14, 3, value=of("red")), *deliver(40, 3, 2), *deliver(42, 1), *deliver(44, 2),
         *consumer(60, 9, RED)], set()),
    "a consumer that left before the late one was sent lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *send(20, 2, value=of("red"), producer=2), *left(24, 3),
         *send(30, 1, value=of("blue"), producer=2), *send(32, 3, value=of("red"), producer=2),
         *deliver(40, 3, 1, producer=2), *deliver(50, 1, 1, producer=2), *deliver(51, 2, 1, producer=2)],
        {*WRONG, "reordered-session"}),
    "a consumer that had asked to leave and was not answered may be there": (
        [*consumer(0, 1), *consumer(2, 3, RED), o(5, 13, "invoke", "unsubscribe", session=3), *BLUE_RED,
         *READ], set()),
    "a consumer that was answered when both waited may have been there": (
        [*consumer(0, 1), *consumer(2, 3, RED), *left(25, 3), *BLUE_RED, *READ], set()),
    "a consumer that its client lost may be there": (
        [*consumer(0, 1), *consumer(2, 3, RED), *gone(5, 3), *BLUE_RED, *READ], set()),
    "a consumer whose process was gone before lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED, broker="a2"), *killed(5, "a2"), *BLUE_RED, *READ], WRONG),
    "a consumer whose process was gone when both waited may have been there": (
        [*consumer(0, 1), *consumer(2, 3, RED, broker="a2"), *BLUE_RED, *killed(30, "a2"), *READ], set()),
    "a consumer that came when the red one had been read lets nothing overtake": (
        [*consumer(0, 1), *BLUE_RED, *deliver(40, 2), *consumer(45, 3, RED), *deliver(50, 1, 2)], WRONG),
    "a consumer that came before the red one was read lets it overtake": (
        [*consumer(0, 1), *BLUE_RED, *consumer(30, 3, RED), *READ], set()),
    "a consumer of unknown outcome may be there": (
        [*consumer(0, 1), o(2, 13, "invoke", "subscribe", session=3, queue="q",
                            value=json.dumps({"selector": RED})), *BLUE_RED, *READ], set()),
    "a consumer that was refused lets nothing overtake": (
        [*consumer(0, 1), o(2, 13, "invoke", "subscribe", session=3, queue="q",
                            value=json.dumps({"selector": RED})),
         o(3, 13, "fail", "subscribe", session=3, queue="q"), *BLUE_RED, *READ], WRONG),
    "a consumer that left before the second commit lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *send(10, 1, value=of("blue")),
         *send(12, 2, value=of("red"), transaction=9), *left(14, 3), *end(30, "commit", 9), *READ], WRONG),
    "a consumer that left before the first commit lets nothing overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *send(10, 1, value=of("blue"), transaction=9),
         *send(12, 2, value=of("red")), *left(20, 3), *end(30, "commit", 9), *READ], {"reordered"}),
    "a consumer that left after the first commit may have let it overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *send(10, 1, value=of("blue"), transaction=9),
         *send(12, 2, value=of("red")), *end(30, "commit", 9), *left(34, 3), *READ], set()),
    # ---------------------------------------------------------------------------------- which rule
    "what never came is overtaken where a selector leaves it": (
        [*consumer(0, 1, RED), *BLUE_RED, *deliver(40, 2)], set()),
    "what never came is not overtaken where no selector leaves it": (
        [*consumer(0, 1, BOTH_COLOURS), *BLUE_RED, *deliver(40, 2)], {"not-linearizable"}),
    "within a session, too, a selector lets one overtake": (
        [*consumer(0, 1), *consumer(2, 3, RED), *BLUE_RED, *deliver(40, 2), *deliver(50, 1)], set()),
    "within a session nothing else does": (
        [*consumer(0, 1), *BLUE_RED, *deliver(40, 2), *deliver(50, 1), *left(60, 1), *consumer(62, 3, RED)],
        {*WRONG, "reordered-session"}),
    "one pair that is off excuses no other": (
        [*consumer(0, 1, RED), *BLUE_RED, *send(24, 3, value=of("red")), *deliver(40, 3), *deliver(41, 2),
         *left(42, 1), *consumer(45, 2), *deliver(50, 1, 2)], {*WRONG, "reordered-session"}),
    "as many selectors as can be told apart leave the order judged": (
        [*consumer(0, 1), *MANY, *BLUE_RED, *deliver(40, 2), *deliver(50, 1)],
        {*WRONG, "reordered-session"}),
    "consumers with the same selectors are no more selectors": (
        [*consumer(0, 1), *MANY, *SAME, *BLUE_RED, *deliver(40, 2), *deliver(50, 1)],
        {*WRONG, "reordered-session"}),
    "one selector more, and nothing is judged": (
        [*consumer(0, 1), *MANY, *ANOTHER, *BLUE_RED, *deliver(40, 2), *deliver(50, 1)], set()),
    "of a repeated message the first attempt that may have been stored counts": (
        [*consumer(0, 1), *consumer(2, 3, RED), *attempt(10, 1, "fail", value=of("blue")), *left(14, 3),
         *attempt(20, 1, "ok", by=2, value=of("blue")), *send(22, 2, value=of("red")), *READ], WRONG),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_order_beside_selectors(tmp_path, case):
    rows, expected = CASES[case]
    assert {i.name for i in agreed(tmp_path, tidy(rows), OPTIONS)} == expected


@pytest.mark.parametrize(("more", "expected"), [([], {"not-linearizable"}), (ANOTHER, set())])
def test_order_of_a_whole_queue_beside_many_selectors(tmp_path, more, expected):
    read = [*deliver(40, 2, time_low=35 * MS), *deliver(50, 1, time_low=45 * MS)]
    rows = [{**r, "group": None} for r in [*consumer(0, 1), *MANY, *more, *BLUE_RED, *read]]
    assert {i.name for i in agreed(tmp_path, tidy(rows), FIFO)} == expected


@pytest.mark.parametrize(("selector", "expected"), [(RED, set()), (BOTH_COLOURS, {"not-linearizable"})])
def test_order_of_a_whole_queue_beside_a_selector(tmp_path, selector, expected):
    rows = [*consumer(0, 1, selector), *BLUE_RED, *deliver(40, 2), *deliver(50, 1)]
    rows = [{**r, "group": None} for r in rows]
    if selector == RED:
        rows = [r for r in rows if r["index"] != 50]
    assert {i.name for i in agreed(tmp_path, tidy(rows), FIFO)} == expected
