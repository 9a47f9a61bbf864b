"""Which of two lives of one broker is the later, whatever its clock says."""

import asyncio
import dataclasses
import random

import msgspec
import pytest
from members import Hub, linked, until

from broker.cluster import messages as m
from broker.cluster.balancing import Balancing
from broker.cluster.incarnation import FILE, next_incarnation
from broker.cluster.link import connect
from broker.seams import Seams
from broker.storage.memory import MemoryVolume


def start(volume, clock_s):
    seams = Seams(random=random.Random(1), wall_clock=lambda: clock_s)
    return asyncio.run(next_incarnation(volume, seams))


def test_each_start_has_a_larger_number_though_the_clock_was_set_back():
    volume = MemoryVolume()
    assert start(volume, 100.0) == 100_000_000
    assert start(volume, 40.0) == 100_000_001
    assert start(volume, 40.0) == 100_000_002


def test_on_a_new_disk_the_clock_decides():
    assert start(MemoryVolume(), 100.0) < start(MemoryVolume(), 101.0)


def test_a_broker_without_a_disk_of_its_own_counts_by_the_clock():
    assert start(None, 7.0) == 7_000_000


def test_a_damaged_file_is_told_and_begins_again_by_the_clock(caplog):
    volume = MemoryVolume()
    asyncio.run(volume.write_atomic(FILE, b"what?\n"))
    assert start(volume, 7.0) == 7_000_000
    assert "the file incarnation in the data directory contains " in caplog.text


def test_a_broker_with_a_disk_of_its_own_goes_on_from_the_number_there():
    async def scenario():
        volume = MemoryVolume()
        await volume.write_atomic(FILE, b"9000000000000000\n")
        async with Hub() as hub:
            a = await hub.add("a", volume=volume)
            assert a.own.incarnation == 9_000_000_000_000_001

    asyncio.run(scenario())


async def _met(hub):
    a = await hub.add("a")
    b = await hub.add("b", "a")
    await until(lambda: linked(a) == {"b"} and linked(b) == {"a"}, "linked")
    return a, b


def _accepted(member, name):
    return next(link for link in member.neighbours.links if not link.connecting and link.member.name == name)


def _former_link(member, name, *, later):
    """The link that a broker had dialled to ``member`` as if it were of a former life.

    ``later``: by how much the number of that life is the larger one. Returns what that life says.
    """
    link = _accepted(member, name)
    former = msgspec.structs.replace(
        link.member, incarnation=link.member.incarnation + later, version=99, role="stopped", live=False
    )
    link.member = former
    dialled = member.neighbours.link_to(name)
    member.neighbours.links.pop(dialled)  # The present life shook hands later.
    member.neighbours.links[dialled] = None
    return link, former


@pytest.mark.parametrize("later", [-1, 10**9], ids=["a smaller number", "a larger number"])
def test_last_words_of_a_former_life_change_nothing(later):
    """Its number is the larger one where a clock was set back and there is no disk of its own."""

    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            link, former = _former_link(a, "b", later=later)
            a._take(link, m.Members((former,)))
            a._take(link, m.Leaving("b", former.incarnation))
            assert a.directory.known["b"] == b.own
            assert a.neighbours.link_to("b").member == b.own
            b.announce(role="backup")
            await until(
                lambda: a.neighbours.link_to("b").member.role == "backup", "what b says goes on to count"
            )
            assert a.directory.known["b"] == b.own

    asyncio.run(scenario())


def test_consumers_that_a_former_life_had_are_not_those_of_the_present_one():
    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            balancing = Balancing(a, "node-a")
            a.handlers[m.Consumers] = balancing._consumers_told
            a._take(a.neighbours.link_to("b"), m.Consumers({"q": 1}, whole=True))
            link, _ = _former_link(a, "b", later=-1)
            a._take(link, m.Consumers({}, whole=True))
            assert balancing._remote == {"b": {"q": 1}}
            a._take(a.neighbours.link_to("b"), m.Consumers({}, whole=True))
            assert balancing._remote == {"b": {}}
            assert b.own.live

    asyncio.run(scenario())


def test_a_broker_that_begins_another_life_is_dialled_again_though_the_old_link_stands():
    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            dialled = a.neighbours.link_to("b")
            dialled.member = msgspec.structs.replace(
                b.own, incarnation=b.own.incarnation + 10**9, role="live", live=True
            )
            link = await connect(b.neighbours.terms, hub.hosts["a:61616"], "cluster")
            await until(lambda: dialled.closed, "the link with the former life is ended")
            await until(lambda: a.neighbours.link_to("b") is not None, "linked again")
            assert a.neighbours.link_to("b").member == b.own
            link.close("the end")

    asyncio.run(scenario())


@pytest.mark.parametrize("later", [-1, 10**9], ids=["a smaller number", "a larger number"])
def test_a_handshake_of_a_former_life_that_is_read_late_counts_until_its_link_is_closed(later):
    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            met = []
            a.on_linked.append(met.append)
            former = msgspec.structs.replace(b.own, incarnation=b.own.incarnation + later)
            terms = dataclasses.replace(b.neighbours.terms, member=lambda: former)
            link = await connect(terms, hub.hosts["a:61616"], "cluster")
            link.send(m.Leaving("b", former.incarnation))
            link.close("stopping")
            await until(lambda: any(one.member == former and one.closed for one in met), "read and closed")
            assert a.directory.known["b"] == b.own
            await until(lambda: a.neighbours.link_to("b") is not None, "linked again")
            assert a.neighbours.link_to("b").member == b.own

    asyncio.run(scenario())


def test_what_others_say_of_another_life_does_not_count_beside_a_link():
    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            c = await hub.add("c", "a")
            await until(lambda: linked(a) == {"b", "c"}, "linked")
            other = msgspec.structs.replace(
                b.own, incarnation=b.own.incarnation + 1, role="stopped", live=False
            )
            a._take(a.neighbours.link_to("c"), m.Members((other,)))
            assert a.directory.known["b"] == b.own
            assert c.own.name == "c"

    asyncio.run(scenario())


def test_a_handshake_proves_a_life_whose_clock_was_set_back():
    """A broker without a disk of its own comes back with a smaller number."""

    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            former = b.own.incarnation
            await b.stop()
            await until(lambda: not linked(a), "b is gone")
            a.directory.known["b"] = msgspec.structs.replace(b.own, incarnation=former + 10**9)
            again = await hub.add("b", "a")
            await until(
                lambda: linked(a) == {"b"} and a.directory.known["b"].incarnation == again.own.incarnation,
                "b is back",
            )

    asyncio.run(scenario())
