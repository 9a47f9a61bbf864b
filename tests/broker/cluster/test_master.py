"""The master broker of a conventional cluster, as its brokers see it."""

import asyncio

from members import Hub, until

from broker.cluster.master import MasterBroker


def run(scenario):
    asyncio.run(scenario())


def test_a_broker_knows_its_master_while_it_is_linked_with_it():
    async def scenario():
        async with Hub() as hub:
            b = await hub.add("b", "a")
            master = MasterBroker(b, "a:61616")
            changes = []
            master.on_linked.append(lambda link: changes.append(("linked", link.member.life)))
            master.on_unlinked.append(lambda link: changes.append(("unlinked", link.member.life)))
            assert master.is_configured
            assert not master.is_own
            assert (master.link(), master.life) == (None, None)
            a = await hub.add("a")
            own = MasterBroker(a, "a:61616")
            assert own.is_own
            assert (own.link(), own.life) == (None, a.own.life)
            await until(lambda: master.link() is not None, "b has reached its master")
            assert master.link() is b.neighbours.link_to("a")
            assert master.life == a.own.life
            await a.stop()
            await until(lambda: master.link() is None, "b has lost its master")
            assert changes == [("linked", a.own.life), ("unlinked", a.own.life)]
            assert master.life is None

    run(scenario)


def test_a_master_that_refuses_a_broker_was_not_reached():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", "c", allow_direct_connections_only=True)
            b = await hub.add("b", "a")
            master = MasterBroker(b, "a:61616")
            reached = []
            master.on_linked.append(reached.append)
            attempts = []
            b.on_unlinked.append(attempts.append)
            await until(lambda: len(attempts) > 3, "the master has refused b several times")
            assert reached == []
            assert a.neighbours.links == {}

    run(scenario)
