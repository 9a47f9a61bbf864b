"""``brokerctl database``.

What it does to a shared store, what it refuses, and that a kill at any moment leaves the store as
it was or as it was to be.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from database_places import PASSWORD, SqlitePlace

from broker import config, ctl
from broker.core.message import MESSAGE, PAGE, PREPARED, QUEUE, Message, decode, encode, encode_counts
from broker.database_tool import backup as backups
from broker.database_tool.store import ClusterStore, ToolRefusedError
from broker.masking import mask
from broker.storage.database import DatabaseUnavailableError, Statement
from broker.storage.database.journal import DatabaseJournal
from broker.storage.database.registry import Registry, ReplacedError
from broker.storage.database.schema import (
    OPERATING,
    SHUTDOWN_COMPLETE,
    SHUTDOWN_FAILOVER,
    TAKEOVER_COMPLETE,
)
from broker.storage.directory import DirectoryVolume
from broker.storage.entry import ADD, UPDATE, Operation
from broker.storage.journal import Journal

EXPIRATION_MS = 600_000
TIMEOUT_S = 60.0
DELIVERIES = 5


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request, tmp_path):
    if request.param == "sqlite":
        return Site(tmp_path, SqlitePlace(tmp_path), {"url": "sqlite:store.sqlite"})
    place = request.getfixturevalue("postgresql")
    store = {"url": place.url, "user": "tester", "password": mask(PASSWORD, os.environ)}
    return Site(tmp_path, place, store)


@pytest.fixture
def on_sqlite(tmp_path):
    return Site(tmp_path, SqlitePlace(tmp_path), {"url": "sqlite:store.sqlite"})


class Site:
    """One broker's configuration, and hands in the store behind it."""

    def __init__(self, directory, place, store):
        self.directory = directory
        self.place = place
        self.path = directory / "broker.toml"
        self.data = directory / "data"
        self.kind = store["url"].partition(":")[0]
        self.configure(store)

    def configure(self, store, cluster_id="test"):
        table = {
            "broker": {"name": "a1", "data-directory": "data"},
            "cluster": {
                "cluster-password": "cluster-secret",
                "connector": "a1:61616",
                "stomp-connector": "a1:61613",
                "message-load-balancing": "OFF",
            },
            "ha-policy": {"ha-database": {"cluster-id": cluster_id}},
            "database-store": {**store, "lock-expiration": EXPIRATION_MS},
        }
        config.validate(table)
        self.path.write_text(config.dumps(table))

    def tool(self, *words, status=0):
        assert ctl.main(["--config", str(self.path), "database", *map(str, words)]) == status

    def asked(self, *words):
        """The answer as JSON."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert ctl.main(["--config", str(self.path), "--json", "database", *map(str, words)]) == 0
        return json.loads(said.getvalue())

    def run(self, work):
        """``work(registry of a name)``, on connections that are closed at the end."""

        async def main():
            opened = []

            def registry(name, expiration_ms=EXPIRATION_MS):
                opened.append(self.place.open(name))
                return Registry(opened[-1], "test", name, expiration_ms=expiration_ms, timeout_s=TIMEOUT_S)

            try:
                return await work(registry)
            finally:
                for database in opened:
                    await database.close()

        return asyncio.run(main())

    def fill(self, name="a1", bodies=(b"one", b"two"), state=SHUTDOWN_COMPLETE):
        """A broker of that name stores messages, and says so of itself."""

        async def work(registry):
            mine = registry(name)
            await mine.create()
            registered = await mine.register(f"{name}:61616")
            journal = DatabaseJournal(
                mine.database, mine.database, registered, [], sync_period_s=0.0, timeout_s=TIMEOUT_S
            )
            journal.append(queue_of(journal, bodies))
            await journal.flush()
            await journal.close()
            await mine.become(registered, state)
            return registered

        return self.run(work)

    def rows(self):
        """{broker: (state, messages)}."""

        async def work(registry):
            return await registry("reader").rows(count_messages=MESSAGE)

        return {row.broker_id: (row.state, row.messages) for row in self.run(work)}

    def fill_large(self, name, body, state=SHUTDOWN_COMPLETE):
        """A broker of that name stores one large message."""

        async def work(registry):
            mine = registry(name)
            await mine.create()
            registered = await mine.register(f"{name}:61616")
            journal = DatabaseJournal(
                mine.database, mine.database, registered, [], sync_period_s=0.0, timeout_s=TIMEOUT_S
            )
            queue_id = journal.next_id()
            message = Message("q", b"", b"the beginning", large=await put(journal.large, body))
            journal.append(
                [
                    Operation(ADD, QUEUE, queue_id, b"q"),
                    Operation(ADD, MESSAGE, journal.next_id(), encode(message, queue_id)),
                ]
            )
            await journal.flush()
            await journal.close()
            await mine.become(registered, state)

        return self.run(work)

    def whole_bodies(self, name):
        """As ``bodies``, large ones whole. Nothing else is in the table."""

        async def work(registry):
            mine = registry(name)
            registered = await mine.register(f"{name}:61616")
            records = await mine.load(registered, registered.sessions)
            journal = DatabaseJournal(
                mine.database, mine.database, registered, records, sync_period_s=0.0, timeout_s=TIMEOUT_S
            )
            found = []
            for record in records:
                if record.kind == MESSAGE:
                    _, message = decode(record.id, record.data)
                    body = message.body
                    if message.large is not None:
                        journal.large.hold(message.large)
                        body = b"".join([chunk async for chunk in journal.large.chunks(message.large)])
                    found.append(body)
            held = {blob.id for blob in journal.large.stored}
            await journal.sweep()
            await journal.close()
            assert held == set(await journal.large.medium.sizes())
            return found

        return self.run(work)

    def parts(self):
        """How many parts of blobs there are."""

        async def work(registry):
            question = Statement("SELECT COUNT(*) FROM store_blob")
            [found] = await registry("reader").database.transact([question], TIMEOUT_S)
            return found.rows[0][0]

        return self.run(work)

    def bodies(self, name):
        """What a broker of that name would serve if it started now, in order, with the counts of
        deliveries; it has started then.
        """

        async def work(registry):
            mine = registry(name)
            registered = await mine.register(f"{name}:61616")
            records = await mine.load(registered, registered.sessions)
            return registered, records

        registered, records = self.run(work)
        queues = {record.id: record.data.decode() for record in records if record.kind == QUEUE}
        found = []
        for record in records:
            if record.kind == MESSAGE:
                queue_id, message = decode(record.id, record.data)
                assert queues[queue_id] == "q"
                found.append((message.body, [update.data for update in record.updates]))
        return registered, found


async def put(large, body):
    """The body as a blob."""
    writer = await large.begin()
    writer.write(body)
    return await writer.finish()


def queue_of(journal, bodies):
    """Operations that make a queue with messages in it.

    The first message has been delivered once.
    """
    queue_id = journal.next_id()
    operations = [Operation(ADD, QUEUE, queue_id, b"q")]
    for number, body in enumerate(bodies):
        message = Message("q", b"", body, "g")
        id_ = journal.next_id()
        operations.append(Operation(ADD, MESSAGE, id_, encode(message, queue_id)))
        if number == 0:
            message.deliveries = 1
            operations.append(Operation(UPDATE, DELIVERIES, id_, encode_counts(message)))
    return operations


DELIVERED = [b"\x01\0\0\0\0\0\0\0"]


# ------------------------------------------------------------------------------------------- create


def test_a_store_is_made_once_and_then_was_there_already(site):
    assert site.asked("create") == {"created": True}
    assert site.asked("create") == {"created": False}
    assert site.rows() == {}


def test_a_store_that_is_not_there_is_refused_and_not_made_by_looking(on_sqlite, capsys):
    on_sqlite.tool("remove-broker", "a1", status=1)
    assert (
        "there is no store at sqlite:store.sqlite: brokerctl database create makes one"
        in capsys.readouterr().err
    )
    assert not (on_sqlite.directory / "store.sqlite").exists()


def test_a_server_that_does_not_answer_is_told_in_one_line_without_the_password(on_sqlite, capsys):
    on_sqlite.configure(
        {
            "url": "postgresql://127.0.0.1:1/none",
            "user": "tester",
            "password": mask(PASSWORD, os.environ),
            "network-timeout": 2000,
        }
    )
    on_sqlite.tool("create", status=2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "postgresql://127.0.0.1:1/none" in said
    assert PASSWORD not in said


def test_a_broker_without_a_shared_database_is_refused(tmp_path, capsys):
    path = tmp_path / "broker.toml"
    path.write_text('[broker]\nname = "a1"\n')
    assert ctl.main(["--config", str(path), "database", "create"]) == 254
    assert "its brokers share no database" in capsys.readouterr().err
    assert ctl.main(["database", "create"]) == 254
    assert "--config is missing" in capsys.readouterr().err


def test_help_needs_no_configuration(capsys):
    for words in ([], ["backup"], ["restore"], ["upgrade"], ["remove-broker"], ["reset-locks"], ["create"]):
        assert ctl.main(["database", *words, "--help"]) == 0
        assert capsys.readouterr().out.startswith("Usage: brokerctl database")


# ------------------------------------------------------------------------------------ remove-broker


def test_a_broker_that_is_down_and_empty_is_removed(site):
    site.fill("a1")
    site.fill("b1", bodies=())
    site.tool("remove-broker", "b1")
    assert site.rows() == {"a1": (SHUTDOWN_COMPLETE, 2)}


def test_a_broker_that_runs_is_not_removed(site, capsys):
    site.fill("a1", bodies=(), state=OPERATING)
    site.tool("remove-broker", "a1", status=1)
    said = capsys.readouterr().err
    assert said.startswith("brokerctl: running: a1 (a1:61616, last seen 0 s ago): stop it first")
    assert site.rows() == {"a1": (OPERATING, 0)}


def test_large_bodies_go_with_the_broker_that_is_removed(site):
    site.fill_large("a1", b"x" * 150_000)
    site.fill_large("b1", b"y" * 150_000)
    site.tool("remove-broker", "a1", "-f")
    assert site.parts() == 3
    assert site.whole_bodies("b1") == [b"y" * 150_000]


def test_messages_of_a_removed_broker_go_only_if_that_is_asked_for(site, capsys):
    site.fill("a1")
    site.tool("remove-broker", "a1", status=1)
    assert "a1 still has 2 messages" in capsys.readouterr().err
    assert site.rows() == {"a1": (SHUTDOWN_COMPLETE, 2)}
    site.tool("remove-broker", "a1", "-f")
    assert site.rows() == {}
    assert site.bodies("a1")[1] == []


def test_a_broker_that_is_not_there_cannot_be_removed(site, capsys):
    site.fill("a1")
    site.tool("remove-broker", "b1", status=1)
    assert "there is no broker 'b1' in cluster 'test'" in capsys.readouterr().err


def test_a_process_of_a_removed_broker_is_fenced_when_the_broker_is_there_again(site):
    """Its epoch must never come again, though nothing is left of its row."""
    old = site.fill("a1", bodies=())
    site.tool("remove-broker", "a1")
    new, _ = site.bodies("a1")
    assert new.epoch > old.epoch

    async def write(registry):
        with pytest.raises(ReplacedError):
            await registry("a1").renew(old)
        await registry("a1").renew(new)

    site.run(write)


# ---------------------------------------------------------------------------------- backup, restore


def test_a_backup_gives_back_everything_to_brokers_that_then_start(site):
    site.fill("a1", bodies=(b"first", b"second"))
    site.fill("b1", bodies=(b"other",), state=SHUTDOWN_FAILOVER)
    file = site.directory / "saved"
    told = site.asked("backup", file)
    assert (told["brokers"], told["records"]) == (2, 5)
    assert file.stat().st_mode & 0o777 == 0o600
    site.fill("a1", bodies=(b"later",))
    site.fill("c1", bodies=(b"newcomer",))
    site.tool("restore", file, "-f")
    assert site.rows() == {"a1": (SHUTDOWN_COMPLETE, 2), "b1": (SHUTDOWN_COMPLETE, 1)}
    assert site.bodies("a1")[1] == [(b"first", DELIVERED), (b"second", [])]
    assert site.bodies("b1")[1] == [(b"other", DELIVERED)]


def test_a_backup_has_the_large_bodies_and_puts_no_others_back(site):
    body = b"0123456789" * 20_000
    site.fill_large("a1", body)
    file = site.directory / "saved"
    site.tool("backup", file)
    site.fill_large("a1", b"later" * 30_000)
    site.fill_large("b1", b"later" * 30_000)
    site.tool("restore", file, "-f")
    assert site.whole_bodies("a1") == [body]
    assert site.parts() == 4


def test_a_backup_of_a_version_without_large_bodies_is_restored(on_sqlite):
    on_sqlite.fill("a1", bodies=(b"first",))
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    fields = msgspec.msgpack.decode(backups.content_of(file))
    content = msgspec.msgpack.encode(fields[:7])
    file.write_bytes(backups.FORMER + hashlib.sha256(content).digest() + content)
    on_sqlite.fill_large("a1", b"later" * 30_000)
    on_sqlite.tool("restore", file, "-f")
    assert on_sqlite.whole_bodies("a1") == [b"first"]
    assert on_sqlite.parts() == 0


def test_a_store_of_a_version_without_large_bodies_gets_its_table_and_is_not_replaced_unasked(
    on_sqlite, capsys, monkeypatch
):
    on_sqlite.fill("a1", bodies=(b"first",))
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)

    async def as_before(registry):
        await registry("reader").database.transact([Statement("DROP TABLE store_blob")], TIMEOUT_S)

    on_sqlite.run(as_before)
    on_sqlite.tool("backup", file, "-f", status=1)
    assert "brokerctl database create makes one" in capsys.readouterr().err
    monkeypatch.setattr("click.confirm", lambda *words, **options: False)
    on_sqlite.tool("restore", file, status=1)
    assert "has 1 messages, which are deleted" in capsys.readouterr().err
    on_sqlite.tool("create")
    assert on_sqlite.parts() == 0
    assert on_sqlite.whole_bodies("a1") == [b"first"]


def test_a_backup_is_restored_into_a_database_that_has_nothing(site, tmp_path):
    site.fill("a1", bodies=(b"first",))
    file = site.directory / "saved"
    site.tool("backup", file)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Site(elsewhere, SqlitePlace(elsewhere), {"url": "sqlite:store.sqlite"})
    other.tool("restore", file)
    assert other.bodies("a1")[1] == [(b"first", DELIVERED)]


def test_nothing_is_restored_while_a_broker_runs(site, capsys):
    site.fill("a1")
    file = site.directory / "saved"
    site.tool("backup", file)
    site.fill("b1", bodies=(b"acknowledged",), state=OPERATING)
    site.tool("restore", file, "-f", status=1)
    assert "running: b1 (b1:61616" in capsys.readouterr().err
    assert site.rows() == {"a1": (SHUTDOWN_COMPLETE, 2), "b1": (OPERATING, 1)}


def test_a_process_of_before_the_restore_is_fenced_though_the_backup_knew_a_lower_epoch(site):
    site.fill("a1")
    file = site.directory / "saved"
    site.tool("backup", file)
    zombie = site.fill("a1", bodies=())
    site.tool("restore", file, "-f")
    site.bodies("a1")

    async def write(registry):
        with pytest.raises(ReplacedError):
            await registry("a1").renew(zombie)

    site.run(write)


def test_a_broker_that_starts_at_the_same_moment_has_what_was_restored_or_stops_the_restore(site):
    site.fill("a1", bodies=(b"restored",))
    file = site.directory / "saved"
    site.tool("backup", file)
    held = backups.read(file)

    async def start(registry, name):
        while True:
            try:
                return await registry.register(f"{name}:61616")
            except DatabaseUnavailableError:
                continue  # as a broker does

    async def restore(store):
        try:
            await backups.put_back(store, held)
        except ToolRefusedError as refusal:
            return str(refusal)
        return ""

    async def race(registry):
        mine, tools = registry("a1"), registry("tool")
        store = ClusterStore(tools.database, site.kind, "test", EXPIRATION_MS)
        registered, refusal = await asyncio.gather(start(mine, "a1"), restore(store))
        assert not refusal or refusal.startswith("running: a1")
        try:
            records = await mine.load(registered, registered.sessions)
            await mine.become(registered, SHUTDOWN_COMPLETE)
        except ReplacedError:
            assert not refusal, "a broker was fenced by nobody"
        else:
            bodies = [decode(each.id, each.data)[1].body for each in records if each.kind == MESSAGE]
            assert bodies == [b"restored"]

    for _ in range(4):
        site.run(race)


def test_a_store_with_messages_is_replaced_only_after_a_question(on_sqlite, capsys, monkeypatch):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    on_sqlite.fill("a1", bodies=(b"later",))
    monkeypatch.setattr("click.confirm", lambda *words, **options: False)
    on_sqlite.tool("restore", file, status=1)
    said = capsys.readouterr().err
    assert "Cluster test has 3 messages, which are deleted." in said
    assert said.endswith("nothing was changed\n")
    assert on_sqlite.rows() == {"a1": (SHUTDOWN_COMPLETE, 3)}


def test_a_question_that_nobody_can_answer_changes_nothing_and_says_so(on_sqlite):
    on_sqlite.fill("a1")
    asked = subprocess.run(
        [sys.executable, "-m", "broker.ctl", "--config", str(on_sqlite.path), "database", "reset-locks"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 1
    assert asked.stderr.splitlines()[-1] == "nothing was changed"


def test_a_file_that_is_no_whole_backup_is_refused(on_sqlite, capsys):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    whole = file.read_bytes()
    for damaged, words in (
        (whole[:-1], "is damaged"),
        (whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], "is damaged"),
        (b"something else", "is no backup"),
        (b"", "is no backup"),
    ):
        file.write_bytes(damaged)
        on_sqlite.tool("restore", file, "-f", status=254)
        assert words in capsys.readouterr().err
    file.unlink()
    on_sqlite.tool("restore", file, "-f", status=254)
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
    assert on_sqlite.rows() == {"a1": (SHUTDOWN_COMPLETE, 2)}


def test_a_backup_of_another_cluster_is_refused(on_sqlite, capsys):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    on_sqlite.configure({"url": "sqlite:store.sqlite"}, cluster_id="orders")
    on_sqlite.tool("restore", file, "-f", status=254)
    assert "is of cluster 'test'" in capsys.readouterr().err
    on_sqlite.tool("backup", on_sqlite.directory / "other", status=1)
    assert "there is no cluster 'orders' in this database" in capsys.readouterr().err


def test_a_backup_that_exists_is_replaced_only_if_that_is_asked_for(on_sqlite, capsys):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    file.write_text("precious")
    on_sqlite.tool("backup", file, status=254)
    assert "exists: give another name, or -f to replace it" in capsys.readouterr().err
    assert file.read_text() == "precious"
    on_sqlite.tool("backup", file, "-f")
    assert backups.read(file).cluster_id == "test"


# ------------------------------------------------------------------------------------------ upgrade


def journal_with(data, bodies, name="standalone-node"):
    async def main():
        volume = DirectoryVolume(data)
        await volume.write_atomic("server.lock", name.encode() + b"\n")
        journal, _ = await Journal.open(volume, "journal")
        journal.append(queue_of(journal, bodies))
        await journal.flush()
        await journal.close()
        await volume.close()

    data.mkdir(exist_ok=True)
    asyncio.run(main())


def test_a_standalone_journal_is_what_its_broker_serves_from_the_shared_store(site):
    journal_with(site.data, (b"one", b"two", b"three"))
    told = site.asked("upgrade")
    assert (told["messages"], told["before"]) == (3, False)
    assert not (site.data / "journal").exists()
    assert (site.data / "journal.imported").is_dir()
    assert site.bodies("a1")[1] == [(b"one", DELIVERED), (b"two", []), (b"three", [])]


def test_a_journal_beside_what_the_broker_has_in_the_store_already_is_added_to_it(site):
    site.fill("a1", bodies=(b"stored",))
    journal_with(site.data, (b"imported",))
    site.tool("upgrade")
    assert [body for body, _ in site.bodies("a1")[1]] == [b"stored", b"imported"]


def test_nothing_is_imported_for_a_broker_that_runs_or_that_is_not_there(site, capsys):
    site.tool("upgrade", status=1)
    assert (
        "does not exist: broker.data-directory must be that of the standalone broker"
        in capsys.readouterr().err
    )
    journal_with(site.data, (b"one",))
    site.fill("a1", bodies=(), state=OPERATING)
    site.tool("upgrade", status=1)
    assert "a1 is a running broker of cluster 'test', or was not shut down" in capsys.readouterr().err
    assert (site.data / "journal").is_dir()
    assert site.rows() == {"a1": (OPERATING, 0)}


def test_a_journal_that_a_broker_uses_is_not_imported(on_sqlite, capsys):
    journal_with(on_sqlite.data, (b"one",))

    async def main():
        volume = DirectoryVolume(on_sqlite.data)
        journal, _ = await Journal.open(volume, "journal")
        await asyncio.to_thread(on_sqlite.tool, "upgrade", status=1)
        await journal.close()
        await volume.close()

    asyncio.run(main())
    assert "lock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (77, "of kind 77, which cannot be taken along"),
        (PAGE, "have them consumed first"),
        (PREPARED, "start the broker until its cluster has ended it"),
    ],
)
def test_records_that_cannot_be_taken_along_are_not_left_behind_silently(kind, words, on_sqlite, capsys):
    journal_with(on_sqlite.data, (b"one",))

    async def main():
        volume = DirectoryVolume(on_sqlite.data)
        journal, _ = await Journal.open(volume, "journal")
        journal.append([Operation(ADD, kind, journal.next_id(), b"?")])
        await journal.flush()
        await journal.close()
        await volume.close()

    asyncio.run(main())
    on_sqlite.tool("upgrade", status=1)
    assert words in capsys.readouterr().err
    assert on_sqlite.rows() == {}


def large_journal_with(data, bodies):
    """A journal that has a small message before these, each of which is there twice, as a
    message and its dead letter are; their files.
    """
    journal_with(data, (b"small",))

    async def main():
        volume = DirectoryVolume(data)
        journal, recovered = await Journal.open(volume, "journal")
        [queue] = [record.id for record in recovered.records if record.kind == QUEUE]
        for body in bodies:
            blob = await put(journal.large, body)
            for group in ("g", None):
                message = Message("q", b"a:b\n", b"the beginning", group, large=blob)
                journal.append([Operation(ADD, MESSAGE, journal.next_id(), encode(message, queue))])
        await journal.flush()
        await journal.close()
        await volume.close()

    asyncio.run(main())
    return sorted((data / "large-messages").iterdir())


LARGE_BODIES = (b"0123456789" * 100_000, b"x" * 150_000)
IN_ORDER = [b"small", *(body for body in LARGE_BODIES for _ in range(2))]


def test_large_messages_of_a_standalone_journal_are_taken_along_as_rows(site):
    files = large_journal_with(site.data, LARGE_BODIES)
    assert site.asked("upgrade")["messages"] == 5
    assert site.whole_bodies("a1") == IN_ORDER
    assert not (site.data / "large-messages").exists()
    assert sorted((site.data / "large-messages.imported").iterdir()) == [
        site.data / "large-messages.imported" / file.name for file in files
    ]


@pytest.mark.parametrize("damage", ["is missing", "the checksum does not match", "bytes should be here"])
def test_a_journal_whose_large_body_is_not_whole_is_not_imported(damage, on_sqlite, capsys):
    first, _ = large_journal_with(on_sqlite.data, LARGE_BODIES)
    if damage == "is missing":
        first.unlink()
    elif damage == "bytes should be here":
        os.truncate(first, 999_999)
    else:
        first.write_bytes(b"?" + first.read_bytes()[1:])
    on_sqlite.tool("upgrade", status=1)
    said = capsys.readouterr().err
    assert f"large-messages/{first.name}" in said
    assert damage in said
    assert "nothing was imported" in said
    assert on_sqlite.rows() == {}
    assert (on_sqlite.data / "journal").is_dir()


# -------------------------------------------------------------------------------------- reset-locks


def test_locks_of_brokers_that_died_are_reset_and_their_messages_wait_for_them(site):
    zombie = site.fill("a1", state=OPERATING)
    site.fill("b1", bodies=(), state=SHUTDOWN_FAILOVER)

    async def silent(registry):
        await registry("a1").database.transact(
            [Statement("UPDATE store_broker SET heartbeat = 0 WHERE broker_id = 'a1'", count=1)],
            TIMEOUT_S,
        )

    site.run(silent)
    assert site.asked("reset-locks", "-f") == {"brokers": ["a1"]}
    assert site.rows() == {"a1": (SHUTDOWN_COMPLETE, 2), "b1": (SHUTDOWN_FAILOVER, 0)}

    async def write(registry):
        with pytest.raises(ReplacedError):
            await registry("a1").renew(zombie)

    site.run(write)
    assert site.asked("reset-locks", "-f") == {"brokers": []}


def test_a_takeover_whose_taker_died_is_undone_by_a_reset(site):
    site.fill("a1", state=OPERATING)

    async def half_taken(registry):
        mine = registry("b1", expiration_ms=-1)
        registered = await mine.register("b1:61616")
        await mine.begin_takeover(registered, await mine.row("a1"))
        await mine.become(registered, SHUTDOWN_COMPLETE)

    site.run(half_taken)
    assert site.asked("reset-locks", "-f") == {"brokers": ["a1"]}
    assert site.rows()["a1"] == (SHUTDOWN_COMPLETE, 2)
    assert [body for body, _ in site.bodies("a1")[1]] == [b"one", b"two"]


def test_no_lock_is_reset_while_a_broker_runs_or_without_an_answer(site, capsys, monkeypatch):
    site.fill("a1", state=OPERATING)
    site.tool("reset-locks", "-f", status=1)
    assert "running: a1 (a1:61616" in capsys.readouterr().err
    monkeypatch.setattr("click.confirm", lambda *words, **options: False)
    site.tool("reset-locks", status=1)
    assert site.rows() == {"a1": (OPERATING, 2)}


# ------------------------------------------------------------------------------------------- killed

KILLS = {
    "before the commit": "sqlite_core._commit = lambda connection: die()",
    "after the commit": "commit = sqlite_core._commit; sqlite_core._commit = lambda connection: "
    "(commit(connection), writing(connection) and die())",
    "when all large bodies are there": "execute = sqlite_core._execute; sqlite_core._execute = lambda "
    "connection, index, one: die() if 'store_upgrade (' in one.sql "
    "and 'INSERT' in one.sql else execute(connection, index, one)",
    "while a backup is written": "os.fsync = lambda file: die()",
    "before a backup is in its place": "Path.replace = lambda *paths: die()",
}


def killed(site, when, *words):
    """Run the tool in a process that is killed at that moment."""
    program = f"""
        import os, signal, sys
        from pathlib import Path
        from broker import ctl
        from broker.storage.database import sqlite_core
        die = lambda: os.kill(os.getpid(), signal.SIGKILL)
        writing = lambda connection: connection.total_changes > 0
        {KILLS[when]}
        ctl.main(sys.argv[1:])
    """
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(program),
            "--config",
            str(site.path),
            "database",
            *map(str, words),
        ],
        check=False,
        capture_output=True,
        cwd=Path(__file__).parents[3],
    )
    assert ended.returncode == -signal.SIGKILL, ended


@pytest.mark.parametrize(("when", "messages"), [("before the commit", 3), ("after the commit", 2)])
def test_a_restore_that_is_killed_has_happened_or_has_not(when, messages, on_sqlite):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    on_sqlite.fill("a1", bodies=(b"later",))
    killed(on_sqlite, when, "restore", file, "-f")
    assert on_sqlite.rows() == {"a1": (SHUTDOWN_COMPLETE, messages)}
    on_sqlite.tool("restore", file, "-f")
    assert on_sqlite.rows() == {"a1": (SHUTDOWN_COMPLETE, 2)}


@pytest.mark.parametrize("when", ["while a backup is written", "before a backup is in its place"])
def test_a_backup_that_is_killed_leaves_the_older_one_whole(when, on_sqlite):
    on_sqlite.fill("a1")
    file = on_sqlite.directory / "saved"
    on_sqlite.tool("backup", file)
    before = file.read_bytes()
    on_sqlite.fill("a1", bodies=(b"later",))
    killed(on_sqlite, when, "backup", file, "-f")
    assert file.read_bytes() == before
    on_sqlite.tool("backup", file, "-f")
    assert len(backups.read(file).records) == 5


@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_an_upgrade_that_is_killed_and_run_again_imports_each_message_once(when, on_sqlite):
    on_sqlite.tool("create")
    journal_with(on_sqlite.data, (b"one", b"two"))
    killed(on_sqlite, when, "upgrade")
    assert (on_sqlite.data / "journal").is_dir()
    told = on_sqlite.asked("upgrade")
    assert (told["messages"], told["before"]) == (2, when == "after the commit")
    assert [body for body, _ in on_sqlite.bodies("a1")[1]] == [b"one", b"two"]
    assert not (on_sqlite.data / "journal").exists()


def test_an_upgrade_that_is_killed_among_large_bodies_and_run_again_has_each_once(on_sqlite):
    on_sqlite.tool("create")
    large_journal_with(on_sqlite.data, LARGE_BODIES)
    killed(on_sqlite, "when all large bodies are there", "upgrade")
    assert on_sqlite.parts() == 19
    assert on_sqlite.rows() == {}
    on_sqlite.tool("upgrade")
    assert on_sqlite.parts() == 19
    assert on_sqlite.whole_bodies("a1") == IN_ORDER


def test_what_was_taken_over_and_removed_leaves_its_messages_with_the_taker(site):
    site.fill("a1", state=SHUTDOWN_FAILOVER)

    async def take(registry):
        mine = registry("b1")
        registered = await mine.register("b1:61616")
        epoch = await mine.begin_takeover(registered, await mine.row("a1"))
        await mine.complete_takeover(registered, "a1", epoch)
        await mine.become(registered, SHUTDOWN_COMPLETE)

    site.run(take)
    assert site.rows()["a1"] == (TAKEOVER_COMPLETE, 0)
    site.tool("remove-broker", "a1")
    assert site.rows() == {"b1": (SHUTDOWN_COMPLETE, 2)}
