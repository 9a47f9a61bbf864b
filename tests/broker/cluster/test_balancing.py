"""Which broker of a cluster gets a message."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from members import Hub, linked, until
from sites import Site

from broker.cluster import balancing as balancing_module
from broker.cluster import messages as m
from broker.cluster.balancing import Balancing
from broker.core.message import Message
from broker.core.selector import compile_selector


def test_what_is_sent_while_the_broker_stops_stays_here():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", node_id="node-a")
            balancing = Balancing(a, "node-a")
            balancing.detach()
            assert balancing.route("never-asked-for", Message("never-asked-for", b"", b"x")) is None
            balancing._candidates["q"] = [("node-b", ())]
            assert balancing.route("q", Message("q", b"", b"x")) is None
            assert not balancing._bridges

    asyncio.run(scenario())


@asynccontextmanager
async def three():
    """Brokers a, b and c that balance, each with an engine of its own."""
    async with Hub() as hub:
        members = [await hub.add(name, *"abc"[:number]) for number, name in enumerate("abc")]
        pairs = {}
        for name, member in zip("abc", members, strict=True):
            broker = await Site.start(f"node-{name}")
            pairs[name] = broker, Balancing(member, f"node-{name}")
            pairs[name][1].attach(broker.engine)
        await until(lambda: all(len(member.directory.lives()) >= 2 for member in members), "all are linked")
        yield pairs
        for _, balancing in pairs.values():
            balancing.detach()


def test_brokers_have_their_turns_in_the_order_in_which_they_started():
    async def scenario():
        async with Hub(message_load_balancing="STRICT") as hub:
            members = [await hub.add(name, node_id=id_) for name, id_ in (("a", "Z"), ("b", "X"))]
            members.append(await hub.add("c", "a", "b", node_id="Y"))
            await until(lambda: all(len(one.directory.lives()) == 2 for one in members), "all are linked")
            orders = []
            for member in members:
                node_id = member.own.node_id
                balancing = Balancing(member, node_id)
                balancing.attach((await Site.start(node_id)).engine)
                orders.append(chosen(balancing, "red", "red", "red", "red"))
                balancing.detach()
            assert orders == [[None, "X", "Y", None], ["Z", None, "Y", "Z"], ["Z", "X", None, "Z"]]

    asyncio.run(scenario())


def test_a_broker_that_becomes_live_is_told_of_consumers_that_were_there_before():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", role="backup")
            b = await hub.add("b", "a")
            site = await Site.start("node-b")
            ours = Balancing(b, "node-b")
            ours.attach(site.engine)
            consume(site)
            await until(lambda: not ours._news and linked(a) == {"b"}, "all is told, and a does not listen")
            theirs = Balancing(a, "node-a")
            theirs.attach((await Site.start("node-a")).engine)
            a.announce(role="live")
            await until(lambda: chosen(theirs, "red") == ["node-b"], "a knows of the consumer")
            for balancing in (ours, theirs):
                balancing.detach()

    asyncio.run(scenario())


def consume(site, selector=None):
    compiled = None if selector is None else compile_selector(selector)
    return site.engine.subscribe("q", lambda _: None, selector=compiled)


def chosen(balancing, *colours):
    messages = [Message("q", f"colour:{colour}\n".encode(), b"") for colour in colours]
    return [balancing.route("q", message) for message in messages]


RED, BLUE, ALSO_RED = "colour = 'red'", "colour = 'blue'", "colour IN ('red')"


def test_a_message_goes_in_turn_to_the_brokers_whose_consumers_want_it():
    async def scenario():
        async with three() as brokers:
            (a, balancing), (b, _), (c, _) = brokers.values()
            consumers = [consume(b, text) for text in (RED, BLUE)]
            consumers.append(consume(c, ALSO_RED))
            await until(lambda: len(balancing._filters.get("c", {})) == 1, "c's are known")
            await until(lambda: len(balancing._filters.get("b", {}).get("q", ())) == 2, "b's are known")
            assert chosen(balancing, "red", "red", "blue", "red") == ["node-b", "node-c", "node-b", "node-c"]
            assert chosen(balancing, "green") == [None]
            consumers.append(consume(a, RED))
            assert sorted(map(str, chosen(balancing, "red", "red", "red"))) == ["None", "node-b", "node-c"]
            assert chosen(balancing, "blue", "blue") == ["node-b", "node-b"]
            consumers.append(consume(b))
            await until(lambda: not balancing._filters["b"], "one of b's wants all")
            assert chosen(balancing, "green", "green") == ["node-b", "node-b"]
            b.engine.unsubscribe(consumers.pop())
            await until(lambda: balancing._filters["b"], "none of b's wants all any more")
            b.engine.unsubscribe(consumers[0])
            await until(lambda: len(balancing._filters["b"]["q"]) == 1, "nobody at b wants red")
            assert sorted(map(str, chosen(balancing, "red", "red"))) == ["None", "node-c"]

    asyncio.run(scenario())


def test_the_selectors_of_a_broker_that_is_met_later_are_known_and_forgotten_with_it():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            balancing = Balancing(a, "node-a")
            balancing.attach((await Site.start("node-a")).engine)
            b = await hub.add("b", "a")
            broker = await Site.start("node-b")
            consume(broker, RED)
            there = Balancing(b, "node-b")
            there.attach(broker.engine)
            await until(lambda: balancing._filters.get("b", {}).get("q"), "b's consumer is known")
            there.detach()
            await until(lambda: not balancing._remote["b"], "b has none any more")
            assert not balancing._filters["b"]
            await b.stop()
            await until(lambda: "b" not in balancing._remote, "b is gone")
            assert not balancing._filters
            balancing.detach()

    asyncio.run(scenario())


@pytest.mark.parametrize("bound", ["SELECTORS_MAX", "CHARACTERS_MAX"])
def test_consumers_with_too_many_selectors_count_as_those_that_want_all(bound, monkeypatch):
    monkeypatch.setattr(balancing_module, bound, 1)

    async def scenario():
        async with three() as brokers:
            (_, balancing), (b, _), _ = brokers.values()
            consumers = [consume(b, text) for text in (RED, BLUE)]
            await until(lambda: balancing._remote.get("b", {}).get("q") == len(consumers), "b's are known")
            assert chosen(balancing, "green") == ["node-b"]

    asyncio.run(scenario())


def test_selectors_that_are_not_understood_count_as_none(caplog):
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            await hub.add("b", "a")
            await until(a.directory.lives, "linked")
            balancing = Balancing(a, "node-a")
            balancing.attach((await Site.start("node-a")).engine)
            news = m.Consumers({"q": 1, "r": 1}, whole=True, selectors={"q": ("a = = 1",), "r": (RED,)})
            balancing._consumers_told(a.neighbours.link_to("b"), news)
            assert [*balancing._filters["b"]] == ["r"]
            assert "a selector of consumers of queue 'q' is not understood" in caplog.text
            assert chosen(balancing, "green") == ["node-b"]
            balancing.detach()

    asyncio.run(scenario())


def test_looking_at_selectors_is_paid_for():
    async def scenario():
        async with three() as brokers:
            (a, balancing), (b, _), _ = brokers.values()
            consume(b, RED)
            await until(lambda: balancing._filters.get("b", {}).get("q"), "b's consumer is known")
            before = a.engine.budget.left
            chosen(balancing, "green")
            assert a.engine.budget.left < before

    asyncio.run(scenario())


def test_what_is_redistributed_ends_with_the_broker_that_wants_it_or_with_the_balancing():
    async def scenario():
        async with Hub() as hub:
            a, b = await hub.add("a"), await hub.add("b", "a")
            here = await Site.start("node-a", redistribution_delay=0)
            there = await Site.start("node-b")
            balancing, other = Balancing(a, "node-a"), Balancing(b, "node-b")
            balancing.attach(here.engine)
            other.attach(there.engine)
            here.engine.queue("q")
            consume(there)
            redistribution = balancing._redistribution
            await until(lambda: redistribution.running == ["q"], "b wants what is in q")
            await b.stop()
            await until(lambda: not redistribution.running, "b wants nothing any more")
            c = await hub.add("c", "a")
            third = Balancing(c, "node-c")
            third.attach(there.engine)
            await until(lambda: redistribution.running == ["q"], "c wants what is in q")
            balancing.detach()
            assert not redistribution.running
            assert not here.engine.queue_observers

    asyncio.run(scenario())
