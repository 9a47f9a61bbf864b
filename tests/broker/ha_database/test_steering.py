"""What an administrator asks of a broker that shares a database.

List, quiesce, takeover by hand, shutdown without failover.
"""

import asyncio
import contextlib

import pytest

from broker import admin_client, config, ctl
from broker.admin_secret import secret_of
from broker.daemon import serve
from broker.seams import real_seams
from broker.storage.database.sqlite import SqliteDatabase
from broker.storage.memory import MemoryVolume
from environments.link_proxy import reserve_port
from harness.systems.own.dialect import DIALECT
from stomp_protocol.client.connection import ConnectError, connect
from workloads.failover import settings_of

BOUND_S = 60.0


class Broker:
    """A broker in this very process: all of ``brokerd`` but the process."""

    def __init__(self, name, path):
        reserved = {port: reserve_port() for port in ("stomp", "cluster", "admin")}
        self.name = name
        self.ports = {port: one.getsockname()[1] for port, one in reserved.items()}
        for one in reserved.values():
            one.close()
        self.path = path
        secret = path.with_name(f"{name}.secret")
        secret.touch(mode=0o600)
        secret.write_text("cluster-secret\n")
        self.secret = str(secret)
        self.config = config.validate(
            {
                "broker": {"name": name},
                "acceptor": {"host": "127.0.0.1", "port": self.ports["stomp"]},
                "admin": {"host": "127.0.0.1", "port": self.ports["admin"]},
                "cluster": {
                    "cluster-password": "cluster-secret",
                    "host": "127.0.0.1",
                    "port": self.ports["cluster"],
                    "connector": f"127.0.0.1:{self.ports['cluster']}",
                    "stomp-connector": f"127.0.0.1:{self.ports['stomp']}",
                    "message-load-balancing": "OFF",
                },
                "ha-policy": {"ha-database": {"cluster-id": "test", "monitor-interval": 50}},
                "database-store": {"url": f"sqlite:{path}", "lock-expiration": 60_000},
            }
        )
        self.stopping = asyncio.Event()

    async def run(self):
        def connection():
            return SqliteDatabase(self.path)

        return await serve(self.config, real_seams(), MemoryVolume(), self.stopping, database=connection)

    async def ask(self, command, **arguments):
        at = admin_client.Target("127.0.0.1", self.ports["admin"], secret_of(self.config))
        return await admin_client.ask(at, command, **arguments)

    async def connect(self, store_session=None):
        return await connect(
            "127.0.0.1",
            self.ports["stomp"],
            settings_of(DIALECT, BOUND_S),
            node=self.name,
            store_session=store_session,
        )

    async def brokerctl(self, *words):
        """Exit status; what is printed is pytest's to keep."""
        return await asyncio.to_thread(
            ctl.main, ["--admin", str(self.ports["admin"]), "--secret-file", self.secret, *words]
        )

    async def states(self):
        answer = await self.ask("members")
        return {member["broker-id"]: member["state"] for member in answer["members"]}

    async def until(self, holds):
        async with asyncio.timeout(BOUND_S):
            while not await holds():
                await asyncio.sleep(0.02)

    async def serves(self):
        with contextlib.suppress(admin_client.NobodyAnswersError):
            return (await self.ask("status"))["role"] == "live"
        return False


class Answer:
    def __init__(self):
        self.future = asyncio.get_running_loop().create_future()

    def complete(self, outcome, error):
        self.future.set_result(outcome)


async def send(connection, body):
    answer = Answer()
    connection.request(b"SEND\ndestination:/queue/q\n", answer, body)
    return await answer.future


def run_with(path, test, names=("a1", "b1")):
    async def main():
        brokers = [Broker(name, path) for name in names]
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(broker.run()) for broker in brokers]
            try:
                for broker in brokers:
                    await broker.until(broker.serves)
                await test(*brokers)
            finally:
                for broker in brokers:
                    broker.stopping.set()
                await asyncio.wait(lives)

    asyncio.run(main())


def test_members_are_listed_with_state_and_messages(tmp_path, capsys):
    async def test(a, b):
        connection = await a.connect()
        assert await send(connection, b"x") == "ok"
        connection.close("enough")
        assert await b.brokerctl("members") == 0
        said = capsys.readouterr().out
        assert "cluster test, asked at broker b1" in said
        rows = {line.split()[0]: line.split() for line in said.splitlines()[2:]}
        assert rows["a1"][1:4] == [f"127.0.0.1:{a.ports['cluster']}", "OPERATING", "1"]
        assert rows["b1"][3] == "0"

    run_with(tmp_path / "store.sqlite", test)


def test_a_quiescing_broker_serves_its_clients_and_takes_in_no_others(tmp_path):
    async def test(a, b):
        old = await a.connect()
        assert await a.brokerctl("quiesce") == 0
        assert (await b.states())["a1"] == "QUIESCING"
        assert await send(old, b"still served") == "ok"
        with pytest.raises(ConnectError, match="quiescing"):
            await a.connect()
        old.close("enough")

        async def complete():
            return (await b.states())["a1"] == "QUIESCE_COMPLETE"

        await b.until(complete)
        assert (await b.ask("status"))["taken-over"] == []
        assert await a.brokerctl("quiesce", "--undo") == 0
        assert (await b.states())["a1"] == "OPERATING"
        (await a.connect()).close("enough")

    run_with(tmp_path / "store.sqlite", test)


def test_a_takeover_of_a_broker_that_seems_to_live_must_be_confirmed(tmp_path, capsys):
    async def test(a, b):
        answer = await a.ask("takeover", broker_id="b1", force=False)
        assert answer["confirm"].startswith("The broker associated with b1 last accessed the database ")
        assert answer["confirm"].endswith(" seconds ago.")
        assert (await a.states())["b1"] == "OPERATING"

    run_with(tmp_path / "store.sqlite", test)


def test_a_forced_takeover_moves_the_messages_and_the_victim_begins_again_without_them(tmp_path):
    async def test(a, b):
        connection = await b.connect()
        for number in range(5):
            assert await send(connection, b"%d" % number) == "ok"
        connection.close("enough")
        assert await a.brokerctl("takeover", "-f", "-n", "b1") == 0

        async def moved():
            return len((await a.ask("browse"))["messages"]) == 5

        await a.until(moved)

        async def again():
            status = await b.ask("status")
            return status["role"] == "live" and status["queues"] == []

        await b.until(again)
        assert (await a.states())["b1"] == "OPERATING"

    run_with(tmp_path / "store.sqlite", test)


def test_a_broker_that_was_shut_down_without_failover_is_taken_over_by_hand_and_asks_nothing(tmp_path):
    async def test(a, b):
        connection = await b.connect()
        assert await send(connection, b"kept") == "ok"
        connection.close("enough")
        assert await b.brokerctl("stop", "--no-failover") == 0

        async def down():
            return (await a.states())["b1"] == "SHUTDOWN_COMPLETE"

        await a.until(down)
        assert (await a.ask("browse"))["messages"] == []
        assert await a.brokerctl("takeover", "-n", "b1") == 0
        assert (await a.states())["b1"] == "TAKEOVER_COMPLETE"

        async def moved():
            return len((await a.ask("browse"))["messages"]) == 1

        await a.until(moved)

    run_with(tmp_path / "store.sqlite", test)


@pytest.mark.parametrize(("named", "why"), [("nobody", "no broker 'nobody'"), ("a1", "this very broker")])
def test_a_takeover_that_makes_no_sense_is_refused(named, why, tmp_path, capsys):
    async def test(a):
        assert await a.brokerctl("takeover", "-n", named) == 1
        assert why in capsys.readouterr().err

    run_with(tmp_path / "store.sqlite", test, names=("a1",))


def test_a_broker_without_a_shared_database_has_no_members(tmp_path):
    async def main():
        broker = Broker("a1", tmp_path / "none.sqlite")
        table = {"broker": {"name": "a1"}, "acceptor": {"host": "127.0.0.1", "port": 0}}
        table["admin"] = {"host": "127.0.0.1", "port": broker.ports["admin"]}
        broker.config = config.validate(table)
        alone = asyncio.ensure_future(serve(broker.config, real_seams(), MemoryVolume(), broker.stopping))
        await broker.until(broker.serves)
        with pytest.raises(admin_client.BrokerRefusedError, match="unknown command 'members'"):
            await broker.ask("members")
        broker.stopping.set()
        assert await alone == 0

    asyncio.run(main())
