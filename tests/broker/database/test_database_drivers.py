"""What the seam promises, on each database.

Whole or not at all, counts that fence, and an honest word on what happened.
"""

import asyncio
import os
import signal
import sqlite3
import threading

import pytest
from database_places import PASSWORD, SimulatedPlace, SqlitePlace

from broker.storage.database import (
    ConstraintError,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database.postgresql import _execute

TABLE = Statement("CREATE TABLE thing (name TEXT PRIMARY KEY, value BIGINT, data BYTEA)")
PATIENCE_S = 30.0
SOON_S = 0.2


def put(name, value=0, data=None):
    return Statement("INSERT INTO thing VALUES (?, ?, ?)", (name, value, data))


async def things(database):
    [result] = await database.transact(
        [Statement("SELECT name, value, data FROM thing ORDER BY name")], PATIENCE_S
    )
    return result.rows


def run_on(place, test):
    """Run ``test(database)`` on a table of its own."""

    async def main():
        database = place.open()
        try:
            await database.transact([TABLE], PATIENCE_S)
            return await test(database)
        finally:
            await database.close()

    return place.run(main)


def test_values_come_back_as_they_went(place):
    async def test(database):
        await database.transact([put("a", 2**62, b"\x00\xff"), put("b", None, None)], PATIENCE_S)
        assert await things(database) == [("a", 2**62, b"\x00\xff"), ("b", None, None)]

    run_on(place, test)


def test_a_statement_that_concerns_another_number_of_rows_undoes_the_whole_transaction(place):
    async def test(database):
        await database.transact([put("a")], PATIENCE_S)
        with pytest.raises(UnexpectedCountError) as caught:
            await database.transact(
                [put("b"), Statement("UPDATE thing SET value = 1 WHERE name = 'absent'", count=1), put("c")],
                PATIENCE_S,
            )
        assert (caught.value.index, caught.value.count, caught.value.wanted) == (1, 0, 1)
        assert await things(database) == [("a", 0, None)]

    run_on(place, test)


def test_a_row_that_is_there_already_undoes_the_whole_transaction(place):
    async def test(database):
        await database.transact([put("a")], PATIENCE_S)
        with pytest.raises(ConstraintError):
            await database.transact([put("b"), put("a")], PATIENCE_S)
        assert await things(database) == [("a", 0, None)]

    run_on(place, test)


def test_a_statement_that_is_wrong_undoes_the_whole_transaction(place):
    async def test(database):
        with pytest.raises(DatabaseError):
            await database.transact([put("a"), Statement("SELECT nonsense FROM nowhere")], PATIENCE_S)
        assert await things(database) == []

    run_on(place, test)


def test_many_executions_are_counted_together(place):
    async def test(database):
        rows = tuple((f"n{number}", number, b"x") for number in range(20))
        results = await database.transact(
            [
                Statement("INSERT INTO thing VALUES (?, ?, ?)", many=rows, count=20),
                Statement("DELETE FROM thing WHERE name = ?", many=(("n1",), ("n2",), ("absent",))),
                Statement("DELETE FROM thing WHERE name = ?", many=()),
                Statement("UPDATE thing SET value = value + 100 WHERE value > 17 RETURNING value"),
            ],
            PATIENCE_S,
        )
        assert [result.count for result in results] == [20, 2, 0, 2]
        assert sorted(results[3].rows) == [(118,), (119,)]
        assert len(await things(database)) == 18

    run_on(place, test)


def test_the_databases_clock_never_goes_back(place):
    async def test(database):
        clock = [Statement("SELECT clock_ms()")]
        times = [(await database.transact(clock, PATIENCE_S))[0].rows[0][0] for _ in range(5)]
        assert times == sorted(times)
        assert times[0] > 1_500_000_000_000  # milliseconds since the epoch

    run_on(place, test)


def test_of_several_that_compare_and_set_one_wins(place):
    async def test(database):
        await database.transact([put("owner", 0)], PATIENCE_S)
        others = [place.open(f"b{number}") for number in range(4)]

        async def take(other, number):
            claim = Statement(
                "UPDATE thing SET value = ? WHERE name = 'owner' AND value = 0", (number,), count=1
            )
            try:
                await other.transact([claim], PATIENCE_S)
            except UnexpectedCountError:
                return None
            return number

        taken = await asyncio.gather(*(take(other, number) for number, other in enumerate(others, 1)))
        for other in others:
            await other.close()
        winners = [number for number in taken if number]
        assert len(winners) == 1
        assert await things(database) == [("owner", winners[0], None)]

    run_on(place, test)


def test_transactions_of_one_object_run_one_after_the_other(place):
    async def test(database):
        await database.transact([put("n", 0)], PATIENCE_S)
        more = Statement("UPDATE thing SET value = value + 1 WHERE name = 'n'", count=1)
        await asyncio.gather(*(database.transact([more], PATIENCE_S) for _ in range(10)))
        assert await things(database) == [("n", 10, None)]

    run_on(place, test)


def test_a_database_that_cannot_be_reached_says_that_nothing_happened(place):
    async def main():
        database = place.nowhere()
        with pytest.raises(DatabaseUnavailableError) as caught:
            await database.transact([TABLE], PATIENCE_S)
        await database.close()
        assert PASSWORD not in str(caught.value)

    place.run(main)


def test_a_closed_database_takes_nothing(place):
    async def test(database):
        await database.close()
        with pytest.raises(DatabaseUnavailableError):
            await database.transact([put("a")], PATIENCE_S)
        await database.close()

    run_on(place, test)


# ----------------------------------------------------------------------------------- each one's own


def test_sqlite_waits_for_another_writer_no_longer_than_it_may_and_knows_that_nothing_happened(tmp_path):
    place = SqlitePlace(tmp_path)

    async def test(database):
        other = sqlite3.connect(place.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailableError):
            await database.transact([put("a")], 2.0)
        other.execute("ROLLBACK")
        other.close()
        await database.transact([put("b")], PATIENCE_S)
        assert await things(database) == [("b", 0, None)]

    run_on(place, test)


def test_sqlite_does_not_know_what_becomes_of_a_transaction_that_is_under_way_at_its_deadline(tmp_path):
    place = SqlitePlace(tmp_path)

    async def test(database):
        begun, go_on = threading.Event(), threading.Event()

        def stuck():
            begun.set()
            go_on.wait()
            return 1

        def prepared(connection):
            connection.create_function("stuck", 0, stuck)
            return connection

        connected = database._connected
        database._connected = lambda deadline: prepared(connected(deadline))
        slow = Statement("INSERT INTO thing VALUES ('slow', stuck(), NULL)")
        first = asyncio.ensure_future(database.transact([slow], SOON_S))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(database.transact([put("behind it")], SOON_S))
        with pytest.raises(OutcomeUnknownError):
            await first
        with pytest.raises(DatabaseUnavailableError):
            await second
        go_on.set()
        assert await things(database) == [("slow", 1, None)]

    run_on(place, test)


def test_sqlite_keeps_what_was_committed_when_another_process_opens_it(tmp_path):
    place = SqlitePlace(tmp_path)

    async def test(database):
        await database.transact([put("a", 1)], PATIENCE_S)
        again = place.open()
        assert await things(again) == [("a", 1, None)]
        await again.close()

    run_on(place, test)


def test_postgresql_refuses_a_wrong_password_without_showing_it(postgresql):
    async def main():
        from broker.storage.database.postgresql import PostgresqlDatabase

        database = PostgresqlDatabase(postgresql.url, "tester", "wrong-" + PASSWORD)
        with pytest.raises(DatabaseUnavailableError) as caught:
            await database.transact([TABLE], PATIENCE_S)
        assert PASSWORD not in str(caught.value)
        assert PASSWORD not in repr(database)

    postgresql.run(main)


def test_postgresql_knows_that_what_waited_for_a_lock_did_not_happen(postgresql):
    async def test(database):
        await database.transact([put("a", 0)], PATIENCE_S)
        holder = postgresql.open("b1")
        connection = await holder._connected()
        await connection.execute("UPDATE thing SET value = 7 WHERE name = 'a'")
        change = Statement("UPDATE thing SET value = 8 WHERE name = 'a'", count=1)
        with pytest.raises(DatabaseUnavailableError):
            await database.transact([change], SOON_S)
        await connection.commit()
        assert await things(database) == [("a", 7, None)]
        await holder.close()

    run_on(postgresql, test)


@pytest.mark.parametrize("words", [TABLE.sql, "CREATE TYPE thing AS (name TEXT)"], ids=["table", "type"])
def test_postgresql_tells_of_a_table_that_another_broker_has_just_made_as_of_a_row(postgresql, words):
    """Of two brokers that make a table together, one meets its name or the type of its rows."""

    async def test(database):
        with pytest.raises(ConstraintError):
            await database.transact([put("a"), Statement(words)], PATIENCE_S)
        assert await things(database) == []

    run_on(postgresql, test)


def test_postgresql_ends_a_transaction_in_which_nothing_is_said_and_frees_its_rows(postgresql):
    """A broker that stands still before its commit must not keep others from taking it over."""

    async def test(database):
        await database.transact([put("a", 0)], PATIENCE_S)
        paused = postgresql.open("b1", network_timeout_s=1.0)  # longer than the next three lines take
        connection = await paused._connected()
        await connection.execute("UPDATE thing SET value = 7 WHERE name = 'a'")
        many = tuple((f"n{number}", number, b"x") for number in range(1200))
        async with connection.cursor() as cursor:
            await _execute(cursor, 1, Statement("INSERT INTO thing VALUES (?, ?, ?)", many=many, count=1200))
        await database.transact(
            [Statement("UPDATE thing SET value = 8 WHERE name = 'a'", count=1)], PATIENCE_S
        )
        assert await things(database) == [("a", 8, None)]
        await paused.close()

    run_on(postgresql, test)


def test_postgresql_gives_up_a_server_that_stands_still_and_connects_anew(postgresql):
    async def test(database):
        [told] = await database.transact([Statement("SELECT pg_backend_pid()")], PATIENCE_S)
        backend = told.rows[0][0]
        os.kill(backend, signal.SIGSTOP)
        try:
            with pytest.raises(DatabaseUnavailableError):
                await database.transact([put("a")], SOON_S)
            await database.transact([put("b")], PATIENCE_S)
        finally:
            os.kill(backend, signal.SIGCONT)
        assert [name for name, _, _ in await things(database)] == ["b"]

    run_on(postgresql, test)


def test_postgresql_connects_again_after_its_connection_was_ended(postgresql):
    async def test(database):
        await database.transact([put("a")], PATIENCE_S)
        other = postgresql.open("b1")
        connection = await other._connected()
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await other.close()
        with pytest.raises((DatabaseUnavailableError, OutcomeUnknownError)):
            await database.transact([put("b")], PATIENCE_S)
        await database.transact([put("c")], PATIENCE_S)
        assert [name for name, _, _ in await things(database)] in (["a", "c"], ["a", "b", "c"])

    run_on(postgresql, test)


def test_a_stalled_server_does_later_what_nobody_waits_for_any_more():
    place = SimulatedPlace()

    async def test(database):
        place.server.pause()
        with pytest.raises(OutcomeUnknownError):
            await database.transact([put("a")], 1.0)
        place.server.resume()
        await asyncio.sleep(1.0)
        assert await things(database) == [("a", 0, None)]

    run_on(place, test)


def test_a_restarted_server_has_what_was_committed():
    place = SimulatedPlace()

    async def test(database):
        await database.transact([put("a", 1)], PATIENCE_S)
        place.server.stop()
        assert place.server.state() == "down"
        with pytest.raises((DatabaseUnavailableError, OutcomeUnknownError)):
            await database.transact([put("b")], PATIENCE_S)
        place.server.start()
        assert await things(database) == [("a", 1, None)]

    run_on(place, test)


def test_a_severed_client_cannot_know_whether_its_transaction_happened():
    """Both outcomes come about, under one and the same error."""
    place = SimulatedPlace()

    async def test(database):
        place.server.sever({"a1": (1.0, 0.5)})
        for number in range(20):
            with pytest.raises(OutcomeUnknownError):
                await database.transact([put(f"n{number}")], PATIENCE_S)
        other = place.open("b1")
        happened = len(await things(other))
        assert 0 < happened < 20
        assert happened == place.server.committed_unanswered
        place.server.sever({})
        await database.transact([put("after")], PATIENCE_S)
        assert len(await things(other)) == happened + 1
        await other.close()

    run_on(place, test)


def test_one_seed_gives_one_course_of_events():
    def course(seed):
        place = SimulatedPlace(seed)

        async def test(database):
            place.server.sever({"a1": (0.5, 0.5)})
            told = []
            for number in range(30):
                try:
                    await database.transact([put(f"n{number}")], PATIENCE_S)
                except OutcomeUnknownError:
                    told.append(number)
            return told

        return run_on(place, test), place.world.trace.digest

    assert course(3) == course(3)
    assert course(3) != course(4)
