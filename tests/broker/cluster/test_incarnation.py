"""Which of two lives of one broker is the later, whatever its clock says."""

import asyncio
import random

import msgspec
from members import Hub, linked, until

from broker.cluster import messages as m
from broker.cluster.incarnation import FILE, next_incarnation
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
    assert "incarnation in the data directory is no number" in caplog.text


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


def test_last_words_of_a_former_life_change_nothing():
    async def scenario():
        async with Hub() as hub:
            a, b = await _met(hub)
            former = msgspec.structs.replace(
                b.own, incarnation=b.own.incarnation - 1, version=99, role="stopped", live=False
            )
            link = next(iter(a._accepted))
            a._take(link, m.Members((former,)))
            a._take(link, m.Leaving("b", former.incarnation))
            assert a.known["b"] == b.own
            assert a.link_to("b").member == b.own

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
            a._take(a.link_to("c"), m.Members((other,)))
            assert a.known["b"] == b.own
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
            a.known["b"] = msgspec.structs.replace(b.own, incarnation=former + 10**9)
            again = await hub.add("b", "a")
            await until(
                lambda: linked(a) == {"b"} and a.known["b"].incarnation == again.own.incarnation, "b is back"
            )

    asyncio.run(scenario())
