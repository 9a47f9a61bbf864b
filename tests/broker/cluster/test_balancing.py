"""Which broker of a cluster gets a message."""

import asyncio

from members import Hub

from broker.cluster.balancing import Balancing
from broker.core.message import Message


def test_what_is_sent_while_the_broker_stops_stays_here():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", node_id="node-a")
            balancing = Balancing(a, "node-a")
            balancing.detach()
            assert balancing.route("never-asked-for", Message("never-asked-for", b"", b"x")) is None
            balancing._candidates["q"] = ["node-b"]
            assert balancing.route("q", Message("q", b"", b"x")) is None
            assert not balancing._bridges

    asyncio.run(scenario())
