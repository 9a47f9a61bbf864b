"""Deployments with a PostgreSQL server, for tests of its faults.

Brokers that only stand by, and a client of the database under a broker's name.
"""

import asyncio

import psycopg
import pytest

from harness.interface import DATABASE, DatabasePlan, NodePlan, TestSpec

PATIENCE_S = 90.0
"""Bounds every wait of a test; reached only when the test fails."""

SPEC = TestSpec(name="database")
NODES = tuple(
    NodePlan(
        name=name,
        pair=name[0],
        configured="member",
        ports={"stomp": 61613, "cluster": 61616, "admin": 61612},
        database=DatabasePlan(type="postgresql"),
    )
    for name in ("a1", "b1")
)
NAMES = tuple(node.name for node in NODES)
PARTS = tuple(f"{name}/database" for name in NAMES)


class StandBy:
    """A system whose brokers do nothing.

    It keeps where each reaches the database, and what is in its environment.
    """

    name = "stand-by"
    dialect = None
    policies = {"none": "nothing"}

    def __init__(self):
        self.databases = {}

    def files(self, spec, node, nodes, layout, listen, hosts):
        self.databases[node.name] = hosts[DATABASE]
        return {"empty": b""}

    def command(self, layout):
        return ["python", "-c", "import time; time.sleep(3600)"]


async def connect(system, node, variables):
    """A connection as that node's broker makes one."""
    address = system.databases[node]
    return await psycopg.AsyncConnection.connect(
        host=address.host,
        port=address.port,
        dbname="postgres",
        user=variables["PGUSER"],
        password=variables["PGPASSWORD"],
        connect_timeout=int(PATIENCE_S),
    )


async def put(system, node, variables, value):
    """Insert a value in a transaction: "committed", or "lost" with the connection."""
    connection = await connect(system, node, variables)
    try:
        await connection.execute("INSERT INTO kept VALUES (%s)", (value,))
        await connection.commit()
    except psycopg.OperationalError:
        return "lost"
    finally:
        await connection.close()
    return "committed"


async def kept(system, node, variables):
    """The values that are in the database."""
    connection = await connect(system, node, variables)
    try:
        cursor = await connection.execute("SELECT value FROM kept ORDER BY value")
        return [row[0] for row in await cursor.fetchall()]
    finally:
        await connection.close()


async def make_table(system, node, variables):
    connection = await connect(system, node, variables)
    await connection.execute("CREATE TABLE kept (value integer)")
    await connection.commit()
    await connection.close()


async def seen(environment):
    """What a probe finds of the database of each node."""
    return tuple((await environment.probe(nodes=PARTS)).observed.values())


async def until_seen(environment, *wanted):
    found = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (found := await seen(environment)) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"still {found}, not {wanted}") from None


async def the_three_faults(environment, system, variables):
    """What each of the three does to clients, whatever the place.

    The same conversation in docker and local.
    """
    await make_table(system, "a1", variables)
    assert await put(system, "a1", variables, 1) == "committed"
    await until_seen(environment, "serving", "serving")

    lease = await environment.inject("database-stall", nodes=NAMES)
    await until_seen(environment, "stalled", "stalled")
    asked = asyncio.create_task(put(system, "a1", variables, 2))
    await environment.renew(lease)
    assert not asked.done(), "a server that stands still answers nobody"
    await environment.heal(lease)
    assert await asked == "committed", "it goes on with what it was asked"
    await until_seen(environment, "serving", "serving")

    held = await connect(system, "a1", variables)
    await held.execute("INSERT INTO kept VALUES (100)")
    lease = await environment.inject("database-restart", nodes=NAMES)
    await until_seen(environment, "down", "down")
    with pytest.raises(psycopg.OperationalError):
        await held.commit()
    await environment.heal(lease)
    await until_seen(environment, "serving", "serving")
    assert await kept(system, "a1", variables) == [1, 2], "what was committed is there, and nothing else"

    for first, committed in ((3, 1.0), (4, 0.0)):
        options = {"chance": 0.99, "committed": committed}
        lease = await environment.inject("database-disconnect", nodes=["a1"], options=options)
        value = first
        async with asyncio.timeout(PATIENCE_S):
            while await put(system, "a1", variables, value) != "lost":
                value += 100
        await until_seen(environment, "severed", "serving")
        await environment.heal(lease)
        await until_seen(environment, "serving", "serving")
        assert (value in await kept(system, "a1", variables)) == bool(committed)
