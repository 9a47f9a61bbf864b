"""The change record of a master broker that does not run is restored from a backup."""

import asyncio

import msgspec
import pytest

from broker import config
from broker.change_ctl import _own_journal, _restore
from broker.core.changes import DESTINATION, Backup, Change, Head, RequestId
from broker.core.message import RESTORED
from broker.storage.errors import JournalError


@pytest.mark.parametrize("store", ["the disk", "the database"])
def test_the_record_is_restored_in_the_store_of_the_broker(tmp_path, store):
    table = {
        "broker": {"name": "a1", "data-directory": "data"},
        "cluster": {"connector": "a1:61616", "cluster-password": "p", "stomp-connector": "a1:61613"},
        "ha-policy": {"conventional": {"broker-list": ["a1:61616"], "master-broker": "a1:61616"}},
    }
    if store == "the database":
        table["database-store"] = {"url": "sqlite:messages", "store-name": "a1"}
    path = tmp_path / "broker.toml"
    path.write_text(config.dumps(table), encoding="utf-8")
    change = Change("i", 3, RequestId("b", 1, 1), DESTINATION, "orders", "")
    backup = Backup(Head("i", sequence=3, keeps=True), (change,))

    async def restored():
        async with _own_journal(config.load(path)) as (_, records):
            return [
                msgspec.msgpack.decode(record.data, type=Backup)
                for record in records
                if record.kind == RESTORED
            ]

    async def scenario():
        for _ in range(2):  # the second replaces the first
            await _restore(config.load(path), backup)
        [found] = await restored()
        assert found.changes == (change,)
        assert len(found.head.ancestors) == 2
        async with _own_journal(config.load(path)):
            if store == "the disk":
                with pytest.raises((JournalError, OSError)):
                    await restored()

    asyncio.run(scenario())
    assert (tmp_path / "data").exists() is (store == "the disk")
