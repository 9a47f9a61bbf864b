"""A database file that several brokers make at the same moment."""

import asyncio

from broker.storage.database import Statement
from broker.storage.database.sqlite import SqliteDatabase

TABLE = Statement("CREATE TABLE IF NOT EXISTS t (x BIGINT)")


def test_brokers_that_make_one_file_together_all_get_it(tmp_path):
    """SQLite refuses all but one of them at once, one time in twenty of these."""

    async def main():
        for number in range(100):
            together = [SqliteDatabase(tmp_path / f"{number}.sqlite") for _ in range(4)]
            await asyncio.gather(*(database.transact([TABLE], 30) for database in together))
            for database in together:
                await database.close()

    asyncio.run(main())
