"""Which messages no rule about single messages is asked of, and that none of them is strange."""

from __future__ import annotations

import pytest
from checker_rows import o, table

from checkers import ends, subscriptions
from checkers.ordinary import split_ordinary
from checkers.rows import PlaceTable, from_table

SEND, OK, DELIVER, ACK, DONE = range(10, 15)
BODY = {"producer": 2, "sequence": 0, "digest": 7}
WENT_WELL = {
    SEND: o(SEND, 1, "invoke", "send", 1, **BODY),
    OK: o(OK, 1, "ok", "send", 1, broker="a1"),
    DELIVER: o(DELIVER, 5, "ok", "deliver", 1, session=3, **BODY),
    ACK: o(ACK, 5, "invoke", "ack", 1, session=3),
    DONE: o(DONE, 5, "ok", "ack", 1, session=3, broker="a1"),
}
SUBSCRIBED = [o(0, 5, "invoke", "subscribe", session=3)]
SELECTS = [o(0, 5, "invoke", "subscribe", session=9, queue="q", value='{"selector": {"a": ["b"]}}')]
LEAVES = [*SUBSCRIBED, o(16, 5, "info", "disconnect", session=3)]
GONE = [*SUBSCRIBED, o(13, 5, "info", "disconnect", session=3)]


def but(**changes):
    """The rows of a message that went well, some of them with other columns: by the row's name."""
    rows = {at: dict(row) for at, row in WENT_WELL.items()}
    for name, columns in changes.items():
        rows[{"send": SEND, "ok": OK, "deliver": DELIVER, "ack": ACK, "done": DONE}[name]].update(columns)
    return sorted(rows.values(), key=lambda row: row["index"])


def whole(**columns):
    """As ``but``, all rows changed alike."""
    return but(**dict.fromkeys(("send", "ok", "deliver", "ack", "done"), columns))


def ordinary(rows, control=SUBSCRIBED):
    places = PlaceTable()
    columns = from_table(table(rows), places)
    found, others = split_ordinary(
        columns, places, ends.read(table(control)), subscriptions.read(table(control))
    )
    assert len(others.index) == len(rows) - 5 * len(found.message)
    assert others.messages == columns.messages - len(found.message)
    return found


@pytest.mark.parametrize(
    "rows",
    [
        but(),
        but(ok={"index": 20}),
        but(send={"digest": None}, deliver={"digest": None}),
        whole(group=None),
        [*but(done={"index": 20}), o(15, 1, "info", "send", 9)],
    ],
)
def test_a_message_that_went_as_it_should_is_ordinary_whenever_its_send_was_answered(rows):
    found = ordinary(rows)
    index = {(row["f"], row["type"]): row["index"] for row in rows if row.get("message") == 1}
    assert found.message.tolist() == [1]
    assert (found.sent[0], found.ok[0]) == (index["send", "invoke"], index["send", "ok"])
    assert (found.delivered[0], found.acked[0]) == (index["deliver", "ok"], index["ack", "invoke"])
    assert (found.session[0], found.producer[0], found.sequence[0]) == (3, 2, 0)


@pytest.mark.parametrize(
    "rows",
    [
        but(ok={"type": "info"}),
        but(ok={"type": "fail"}),
        but(done={"type": "fail"}),
        but(done={"f": "nack"}),
        but(ok={"index": 9}),
        but(deliver={"index": 9}),
        but(deliver={"index": 13}, ack={"index": 12}),
        but(ack={"index": 14}, done={"index": 13}),
        but(deliver={"producer": 3}),
        but(deliver={"sequence": 1}),
        but(deliver={"digest": 8}),
        but(deliver={"digest": None}),
        but(deliver={"redelivered": True}),
        but(deliver={"delivery_count": 2}),
        but(ack={"session": 4}),
        but(done={"session": 4}),
        but(deliver={"session": 4}),
        but(deliver={"session": None}, ack={"session": None}, done={"session": None}),
        but(send={"value": '{"priority": 9}'}),
        but(ok={"value": '{"expires": [0, 1]}'}),
        *(but(**{name: {"transaction": 1}}) for name in ("send", "ok", "deliver", "ack", "done")),
        whole(queue="/topic/t"),
        whole(queue="/temp-queue/t"),
        whole(message=None),
        but(done={"group": "h"}),
        but(ok={"group": "h"}),
        [*but(), o(15, 5, "ok", "deliver", 1, session=3, **BODY)],
        [*but(), o(15, -3, "ok", "browse", 1, queue="q", group="g", value="main")],
        but()[:4],
    ],
)
def test_a_message_of_which_any_row_is_another_is_not(rows):
    assert not len(ordinary(rows).message)


@pytest.mark.parametrize("control", [GONE, SELECTS])
def test_neither_is_one_whose_session_was_over_or_of_a_run_with_selectors(control):
    rows = but(ack={"index": 14}, done={"index": 15})
    assert len(ordinary(rows, LEAVES).message)
    assert not len(ordinary(rows, control).message)


def test_of_several_messages_the_others_are_left_with_all_their_rows():
    other = [{**row, "index": row["index"] + 10, "message": 2} for row in but(done={"type": "fail"})]
    assert ordinary([*but(), *other]).message.tolist() == [1]
