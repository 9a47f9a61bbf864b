"""The change record of a master broker that does not run is restored from a backup."""

import asyncio

import google_crc32c
import msgspec
import pytest

from broker import config, ctl
from broker.change_ctl import FORMAT, BackupFile, _own_journal, _restore
from broker.core.changes import DESTINATION, Backup, Change, Head, RequestId
from broker.core.message import CHANGE_HEAD, RESTORED
from broker.storage.entry import ADD, Operation
from broker.storage.errors import JournalError


def configuration(name="a1"):
    connector = f"{name}:61616"
    return {
        "broker": {"name": name, "data-directory": "data"},
        "cluster": {"connector": connector, "cluster-password": "p", "stomp-connector": f"{name}:61613"},
        "ha-policy": {
            "conventional": {
                "broker-list": sorted({"a1:61616", connector}),
                "master-broker": "a1:61616",
            }
        },
    }


@pytest.mark.parametrize("store", ["the disk", "the database"])
def test_the_record_is_restored_in_the_store_of_the_broker(tmp_path, store):
    table = configuration()
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


@pytest.mark.parametrize(
    ("name", "damage", "text"),
    [
        ("a1", lambda content: content, "up to change 3 is restored"),
        ("b1", lambda content: content, "this is not the master broker"),
        ("a1", lambda content: content.replace(b"orders", b"border"), "the checksum does not match"),
        ("a1", lambda content: content.replace(FORMAT.encode(), b"other"), "the format is 'other'"),
        ("a1", lambda content: content[:-1], "not a backup of a change record"),
    ],
)
def test_only_a_whole_backup_is_restored_and_only_at_the_master(tmp_path, capsys, name, damage, text):
    path, file = tmp_path / "broker.toml", tmp_path / "record.json"
    path.write_text(config.dumps(configuration(name)), encoding="utf-8")
    change = Change("i", 3, RequestId("b", 1, 1), DESTINATION, "orders", "")
    record = msgspec.json.encode(Backup(Head("i", sequence=3, keeps=True), (change,)))
    content = msgspec.json.encode(BackupFile(FORMAT, google_crc32c.value(record), msgspec.Raw(record)))
    file.write_bytes(damage(content))
    status = ctl.main(["--config", str(path), "restore-record", str(file)])
    said = capsys.readouterr()
    assert text in said.out + said.err
    assert (status == 0) is ("is restored" in text)
    assert (tmp_path / "data").exists() is ("is restored" in text)


def test_a_restored_record_replaces_all_that_came_before_it(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(config.dumps(configuration()), encoding="utf-8")

    async def scenario():
        async with _own_journal(config.load(path)) as (journal, _):
            head = msgspec.msgpack.encode(Head("i2", ("i1",), 9, keeps=True))
            journal.append([Operation(ADD, CHANGE_HEAD, journal.next_id(), head)])
            await journal.flush()
        await _restore(config.load(path), Backup(Head("i0", ("older",), 3), ()))
        async with _own_journal(config.load(path)) as (_, records):
            [restored] = [record for record in records if record.kind == RESTORED]
        head = msgspec.msgpack.decode(restored.data, type=Backup).head
        assert head.keeps
        assert set(head.ancestors) == {"older", "i0", "i1", "i2"}
        assert head.incarnation not in head.ancestors

    asyncio.run(scenario())
