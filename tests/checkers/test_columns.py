"""From Arrow to columns.

Nulls, texts, places, message numbers, and slices that together are the whole.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checker_rows import o, table

from checkers.ends import read
from checkers.rows import NONE, READ, PlaceTable, from_table, ordered
from checkers.source import FilePart


def rows_of(rows, places=None):
    return from_table(table(rows), PlaceTable() if places is None else places)


def test_null_is_none_in_every_kind_of_number_and_false_is_not_null():
    rows = rows_of(
        [
            o(0, 1, "ok", "deliver", 5, session=3, redelivered=False, digest=2**40, sequence=0),
            o(1, 1, "ok", "deliver", 6),
            o(2, 1, "ok", "deliver", 7, session=0, redelivered=True, producer=4),
        ]
    )
    every = np.arange(3)
    assert rows.session[every].tolist() == [3, NONE, 0]
    assert rows.redelivered[every].tolist() == [0, NONE, 1]
    assert rows.digest[every].tolist() == [2**40, NONE, NONE]
    assert rows.sequence[every].tolist() == [0, NONE, NONE]
    assert rows.producer[every].tolist() == [NONE, NONE, 4]
    assert rows.transaction[every].tolist() == [NONE, NONE, NONE]
    assert rows.broker.codes.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("texts", ["dictionary", "plain"])
def test_rows_out_of_order_and_columns_in_pieces_are_read_all_the_same(texts):
    given = [o(n, 1, "invoke", "send", n % 4, group=f"g{n % 3}", producer=n) for n in range(12)]
    whole = table(given)
    if texts == "plain":
        plain = [
            f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in whole.schema
        ]
        whole = whole.cast(pa.schema(plain))
    pieces = pa.concat_tables([whole.slice(7), whole.slice(0, 7)])
    rows = from_table(pieces, PlaceTable())
    assert rows.index.tolist() == list(range(12))
    assert rows.producer[np.arange(12)].tolist() == list(range(12))


def test_one_message_id_in_two_groups_is_two_messages():
    rows = rows_of(
        [o(0, 1, "invoke", "send", 1), o(1, 1, "invoke", "send", 1, group="h"), o(2, 1, "ok", "send", 1)]
    )
    assert rows.id[0] == rows.id[2] != rows.id[1]
    assert rows.messages == 2


@pytest.mark.parametrize("spread", [1, 2**50])
def test_messages_are_numbered_densely_however_far_apart_their_ids_lie(spread):
    chance = random.Random(3)
    given = [
        o(n, 1, "invoke", "send", chance.randrange(30) * spread, group=chance.choice("abc"))
        for n in range(200)
    ]
    places = PlaceTable()
    rows = rows_of(given, places)
    known = {}
    for n, row in enumerate(given):
        known.setdefault((row["group"], row["message"]), set()).add(int(rows.id[n]))
    assert all(len(ids) == 1 for ids in known.values())
    assert {i for ids in known.values() for i in ids} == set(range(rows.messages)) == set(range(len(known)))
    assert {(places.named[rows.place[n]][2], int(rows.message[n])) for n in rows.first_row} == set(known)


def test_a_table_without_rows_is_no_trouble():
    rows = rows_of([])
    assert rows.messages == 0
    assert len(rows.of(1, 2, 3)) == 0


def test_slices_have_whole_messages_and_together_every_row(tmp_path):
    given = [o(n, 1, "invoke", "send", n % 97) for n in range(1000)] + [o(1000, 1, "ok", "deliver")]
    path = tmp_path / "part-00000.parquet"
    pq.write_table(table(given), path, row_group_size=150)
    part = FilePart(0, str(path), 1001, slice_rows=100)
    slices = [from_table(some, PlaceTable()) for some in part.slices(READ)]
    assert len(slices) > 5
    assert sorted(i for some in slices for i in some.index.tolist()) == list(range(1001))
    seen = [set(some.message.tolist()) for some in slices]
    assert sum(map(len, seen)) == len(set().union(*seen))


@pytest.mark.parametrize("width", [3, 2**20, 2**40])
@pytest.mark.parametrize("keys", [1, 2, 3])
def test_rows_are_put_in_order_of_their_keys_whether_or_not_these_fit_into_one_number(width, keys):
    chance = np.random.default_rng(keys)
    some = [chance.integers(-width, width, 500) for _ in range(keys)]
    some[0][chance.random(500) < 0.2] = NONE
    wanted = sorted(range(500), key=lambda n: (*(key[n] for key in some), n))
    assert ordered(*some).tolist() == wanted
    assert ordered(np.full(3, NONE), np.array([2, 1, 1])).tolist() == [1, 2, 0]
    assert ordered(np.zeros(0, dtype=np.int64)).tolist() == []


def test_columns_without_a_value_are_not_read_and_one_with_a_single_value_is(tmp_path):
    given = [o(n, 1, "invoke", "send", n) for n in range(40)]
    given[33] |= {"session": 7, "digest": 3}
    path = tmp_path / "part-00000.parquet"
    pq.write_table(table(given), path, row_group_size=10)
    (some,) = FilePart(0, str(path), 40).slices(READ)
    assert {"session", "digest", "subscription", "group"} <= set(some.column_names)
    assert not {"transaction", "connection", "redelivered", "value"} & set(some.column_names)
    assert from_table(some, PlaceTable()).session[np.array([32, 33])].tolist() == [NONE, 7]


def test_columns_of_which_the_file_does_not_say_whether_they_have_a_value_are_read(tmp_path):
    path = tmp_path / "part-00000.parquet"
    pq.write_table(table([o(0, 1, "invoke", "send", 1)]), path, write_statistics=False)
    (some,) = FilePart(0, str(path), 1).slices(READ)
    assert set(some.column_names) == set(READ)


def test_how_sessions_and_transactions_ended():
    ends = read(
        table(
            [
                o(1, 1, "invoke", "unsubscribe", session=7),
                o(2, 1, "ok", "unsubscribe", session=7),
                o(3, 1, "invoke", "unsubscribe", session=8),
                o(4, 1, "info", "disconnect", session=8),
                o(5, 1, "info", "disconnect", session=9),
                o(6, 1, "invoke", "commit", transaction=2**40),
                o(7, 1, "ok", "commit", transaction=2**40),
                o(8, 1, "invoke", "abort", transaction=5),
            ]
        )
    )
    run = np.zeros(4, dtype=np.int64)
    sessions = np.array([7, 8, 9, 10])
    assert ends.sessions.find("ended", run, sessions).tolist() == [1, 3, 5, NONE]
    assert ends.sessions.find("left", run, sessions).tolist() == [1, NONE, NONE, NONE]
    transactions = np.array([2**40, 5, 6, NONE])
    assert ends.transactions.find("commit", run, transactions).tolist() == [7, NONE, NONE, NONE]
    assert ends.transactions.find("end", run, transactions).tolist() == [6, 8, NONE, NONE]
    assert ends.transactions.find("back", run, transactions).tolist() == [NONE, 8, NONE, NONE]
    assert ends.transactions.find("abort", run, transactions).tolist() == [NONE] * 4
    assert ends.sessions.find("ended", run + 1, sessions).tolist() == [NONE] * 4
