"""The simulation as an environment.

Every fault it says it can do is seen to bite, and to be over when it is healed.
"""

import asyncio
import itertools
import threading

import pytest

from environments.simulation.clock import EPOCH_S
from environments.simulation.environment import PRIMITIVES, SimulationEnvironment
from harness.interface import InfrastructureError, Link, TestSpec, UsageError
from harness.systems.own.system import OwnSystem
from nemesis import registry

LINK = Link("a1", "b1")


def within(main, *, seed=1, pairs=2, start=True):
    """Run ``main(environment)`` beside standalone brokers a1, b1 ...; what it returns."""
    environment = SimulationEnvironment()

    async def body():
        system = OwnSystem()
        spec = TestSpec(name="t", policy="standalone", pairs=pairs)
        nodes = system.plan(spec)
        await environment.deploy(system, spec, nodes, None)
        if start:
            for node in nodes:
                await environment.start(node.name)
            await live(environment, *(node.name for node in nodes))
        return await main(environment)

    return environment.conduct(body, seed=seed)


async def live(environment, *nodes):
    for node in nodes:
        while await role(environment, node) != "live":
            await asyncio.sleep(0.01)


async def role(environment, node):
    try:
        return environment.look(node).role
    except OSError:
        return "silent"


async def seen(environment, what):
    links = (what,) if isinstance(what, Link) else ()
    nodes = () if links else (what,)
    (phrase,) = (await environment.probe(links, nodes)).observed.values()
    return phrase


LEASED = [
    ("cut", {}, LINK, "lost"),
    ("stall", {}, LINK, "lost"),
    ("reset", {}, LINK, "refused"),
    ("slow", {"delay_ms": 120}, LINK, "slow 1"),
    ("slow", {"rate_bytes_s": 100_000}, LINK, "slow 1"),
    ("datagram-loss", {"chance": 1}, LINK, "lost"),
    ("datagram-duplicate", {"chance": 1}, LINK, "doubled 5 of 5"),
    ("datagram-reorder", {"chance": 1}, LINK, "held back"),
    ("pause", {}, "a1", "paused"),
    ("disk-slow", {"delay_ms": 50}, "a1/disk", "slow 5"),
    ("disk-stall", {}, "a1/disk", "stalled"),
    ("disk-full", {}, "a1/disk", "full"),
    ("disk-error", {"operation": "sync"}, "a1/disk", "failing sync"),
    ("disk-error", {"operation": "write"}, "a1/disk", "failing write"),
    ("clock-skew", {"skew_ms": -5000}, "a1/clock", "skewed -5000 ms"),
    ("clock-step", {"step_ms": -5000}, "a1/clock", "skewed -5000 ms"),
    ("clock-strobe", {"step_ms": -5000, "period_ms": 50}, "a1/clock", "true, strobing 5000 ms"),
    ("clock-rate", {"rate": 2}, "a1/clock", "rate 2.000"),
]


def sound(what):
    if isinstance(what, Link):
        return "open"
    return {"disk": "sound", "clock": "true"}.get(what.partition("/")[2], "running")


def targets(what):
    if isinstance(what, Link):
        return {"links": (what,)}
    return {"nodes": (what.partition("/")[0],)}


@pytest.mark.parametrize(("primitive", "options", "what", "phrase"), LEASED)
def test_a_fault_is_seen_and_gone_when_it_is_healed(primitive, options, what, phrase):
    async def main(environment):
        before = await seen(environment, what)
        lease = await environment.inject(primitive, options=options, **targets(what))
        during = await seen(environment, what)
        await environment.heal(lease)
        await environment.heal(lease)
        return before, during, await seen(environment, what)

    before, during, after = within(main)
    assert before == sound(what)
    assert during.startswith(phrase)
    assert after == sound(what)


@pytest.mark.parametrize("primitive", ["cut", "pause", "disk-full", "clock-skew"])
def test_a_fault_heals_by_itself_when_nobody_renews_it_and_stays_while_somebody_does(primitive):
    what, options = {name: (where, given) for name, given, where, _ in LEASED}[primitive], {}
    what, options = what

    async def main(environment):
        lease = await environment.inject(primitive, options=options, **targets(what))
        for _ in range(4):
            await asyncio.sleep(3)
            await environment.renew(lease)
        kept = await seen(environment, what)
        await asyncio.sleep(6)
        gone = await seen(environment, what)
        with pytest.raises(InfrastructureError, match="has ended"):
            await environment.renew(lease)
        return kept, gone

    kept, gone = within(main)
    assert kept != sound(what)
    assert gone == sound(what)


@pytest.mark.parametrize("began_s", [0.1, 0.2, 0.3, 0.7, 3.809, 4.1])
def test_a_lease_that_ends_where_rounding_hides_it_ends_all_the_same(began_s):
    async def main(environment):
        await asyncio.sleep(began_s - environment.world.now_ns / 1e9)
        await environment.inject("power-loss", nodes=["a1"])
        await environment.inject("cut", links=[LINK])
        await asyncio.sleep(6)
        return await seen(environment, LINK)

    assert within(main, start=False) == "open"


def test_of_overlapping_faults_each_heals_alone():
    async def main(environment):
        first = await environment.inject("cut", links=[LINK])
        second = await environment.inject("slow", links=[LINK], options={"delay_ms": 100})
        full = await environment.inject("disk-full", nodes=["a1"])
        slow = await environment.inject("disk-slow", nodes=["a1"], options={"delay_ms": 70})
        paused = [await environment.inject("pause", nodes=["b1"]) for _ in range(2)]
        await environment.heal(first)
        await environment.heal(full)
        await environment.heal(paused[0])
        phrases = [await seen(environment, what) for what in (LINK, "a1/disk", "b1")]
        await environment.heal_all()
        del second, slow
        return phrases, [await seen(environment, what) for what in (LINK, "a1/disk", "b1")]

    during, after = within(main)
    assert [phrase.split()[0] for phrase in during] == ["slow", "slow", "paused"]
    assert after == ["open", "sound", "running"]


def test_of_two_equal_skews_one_stays_when_the_other_is_healed():
    async def main(environment):
        skews = [
            await environment.inject("clock-skew", nodes=["a1"], options={"skew_ms": 1000}) for _ in range(2)
        ]
        phrases = [await seen(environment, "a1/clock")]
        for lease in skews:
            await environment.heal(lease)
            phrases.append(await seen(environment, "a1/clock"))
        return phrases

    assert within(main) == ["skewed 2000 ms", "skewed 1000 ms", "true"]


def test_the_other_direction_and_other_zones_are_left_alone():
    async def main(environment):
        await environment.inject("cut", links=[Link("zone1", "a1")])
        for zone in ("zone1", "zone2"):
            address = environment.resolve(zone, "a1", "stomp")
            try:
                async with asyncio.timeout(1):
                    _, writer = await asyncio.open_connection(address.host, address.port)
                    writer.close()
                    yield_ = "open"
            except TimeoutError:
                yield_ = "lost"
            results.append(yield_)
        return (await environment.probe([Link("a1", "zone1"), Link("zone1", "b1")])).observed

    results = []
    assert within(main) == {"a1->zone1": "open", "zone1->b1": "open"}
    assert results == ["lost", "open"]


def test_a_killed_broker_is_gone_and_its_successor_has_its_data():
    async def main(environment):
        before = environment.look("a1").node_id
        await environment.kill("a1")
        status = await environment.wait_exit("a1")
        gone = await seen(environment, "a1")
        with pytest.raises(ConnectionRefusedError):
            environment.look("a1")
        await environment.start("a1")
        with pytest.raises(InfrastructureError, match="a1 runs already"):
            await environment.start("a1")
        await live(environment, "a1")
        return status, gone, before == environment.look("a1").node_id

    assert within(main) == (-9, "gone", True)


def test_destroyed_data_is_gone_and_only_a_stopped_broker_can_lose_it():
    async def main(environment):
        before = environment.look("a1").node_id
        with pytest.raises(UsageError, match="a1 is running"):
            await environment.destroy_data("a1")
        await environment.kill("a1")
        await environment.destroy_data("a1")
        await environment.start("a1")
        await live(environment, "a1")
        return before, environment.look("a1").node_id

    before, after = within(main)
    assert before != after


def test_the_files_of_a_node_are_edited_only_while_it_is_stopped():
    async def emptied(files):
        assert any(path.startswith("journal/") for path in files)
        return {}

    async def main(environment):
        before = environment.look("a1").node_id
        with pytest.raises(UsageError, match="a1 is running"):
            await environment.edit_data("a1", emptied)
        await environment.kill("a1")
        await environment.edit_data("a1", emptied)
        await environment.start("a1")
        await live(environment, "a1")
        return before, environment.look("a1").node_id

    before, after = within(main)
    assert before != after


def test_copied_data_replace_those_of_the_other_node_and_neither_may_run():
    async def main(environment):
        original, other = environment.look("a1").node_id, environment.look("b1").node_id
        for running in ("a1", "b1"):
            with pytest.raises(UsageError, match=f"{running} is running"):
                await environment.copy_data("a1", "b1")
            await environment.kill(running)
        await environment.copy_data("a1", "b1")
        for node in ("a1", "b1"):
            await environment.start(node)
        await live(environment, "a1", "b1")
        assert original != other
        return original, environment.look("a1").node_id, environment.look("b1").node_id

    assert len(set(within(main))) == 1


def test_a_paused_broker_keeps_silent_and_goes_on_where_it_was():
    async def main(environment):
        epoch = environment.look("a1").epoch
        lease = await environment.inject("pause", nodes=["a1"])
        with pytest.raises(TimeoutError):
            environment.look("a1")
        await asyncio.sleep(1)
        await environment.heal(lease)
        return environment.look("a1").epoch == epoch

    assert within(main)


def test_power_loss_takes_what_was_not_synced_and_a_kill_may_leave_it():
    async def write(environment, node):
        volume = environment._disks[node].volume
        file = await volume.open("unsynced")
        file.write(b"x" * 4096)

    async def main(environment):
        await write(environment, "a1")
        await write(environment, "b1")
        await environment.inject("power-loss", nodes=["a1"])
        await environment.kill("b1")
        sizes = [len(environment._disks[node].volume.image()["unsynced"]) for node in ("a1", "b1")]
        return sizes, await seen(environment, "a1")

    outcomes = [within(main, seed=seed) for seed in range(12)]
    assert {state for _, state in outcomes} == {"gone"}
    lost = [sizes[0] for sizes, _ in outcomes]
    kept = [sizes[1] for sizes, _ in outcomes]
    assert 0 in lost
    assert any(0 < size < 4096 for size in kept), "a kill keeps any prefix"


def test_a_flipped_bit_is_found_on_the_disk_and_the_broker_refuses_or_replaces_it():
    async def main(environment):
        await environment.kill("a1")
        await environment.inject("disk-corrupt", nodes=["a1"])
        return await seen(environment, "a1/disk")

    assert within(main).startswith("damaged ")


def test_an_empty_disk_cannot_be_damaged():
    async def main(environment):
        with pytest.raises(InfrastructureError, match="the disk of a1 has nothing"):
            await environment.inject("disk-corrupt", nodes=["a1"])
        return True

    assert within(main, start=False)


def test_a_clock_that_ran_fast_is_set_right_when_no_fault_keeps_it_wrong_and_a_skew_stays():
    async def main(environment):
        fast = [await environment.inject("clock-rate", nodes=["a1"], options={"rate": 2}) for _ in range(2)]
        await environment.inject("clock-skew", nodes=["a1"], options={"skew_ms": 1000})
        clock = environment.world.clock("a1")
        phrases = []
        for lease in fast:
            await asyncio.sleep(1.0)
            monotonic = clock.monotonic_s()
            await environment.heal(lease)
            assert clock.monotonic_s() == monotonic
            phrases.append(await seen(environment, "a1/clock"))
        return phrases

    assert within(main) == ["rate 2.000", "skewed 1000 ms"]


def test_stalled_disks_are_looked_at_all_at_once_and_named_as_they_were_asked_for():
    async def main(environment):
        parts = ["b1/disk", "a1/disk", "a1/clock"]
        await environment.inject("disk-stall", nodes=["a1", "b1"])
        began = asyncio.get_running_loop().time()
        alone = await environment.probe(nodes=parts[:1])
        one = asyncio.get_running_loop().time() - began
        both = await environment.probe(nodes=parts)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2 * one)
        return list(alone.observed.items()), list(both.observed.items())

    alone, both = within(main)
    assert alone == [("b1/disk", "stalled")]
    assert both == [("b1/disk", "stalled"), ("a1/disk", "stalled"), ("a1/clock", "true")]


def test_a_clock_step_moves_the_wall_clock_and_not_the_monotonic_one():
    async def main(environment):
        clock = environment.world.clock("a1")
        wall, monotonic = clock.wall_s(), clock.monotonic_s()
        await environment.inject("clock-step", nodes=["a1"], options={"step_ms": -30_000})
        return clock.wall_s() - wall, clock.monotonic_s() - monotonic, await seen(environment, "a1/clock")

    wall, monotonic, phrase = within(main)
    assert round(wall, 3) == -30.0
    assert monotonic == 0
    assert phrase == "skewed -30000 ms"


def test_a_strobe_moves_the_wall_clock_to_and_fro_whatever_else_is_wrong_with_it():
    async def main(environment):
        clock = environment.world.clock("a1")
        await environment.inject("clock-skew", nodes=["a1"], options={"skew_ms": 1000})
        await environment.inject("clock-strobe", nodes=["a1"], options={"step_ms": 5000, "period_ms": 20})
        errors = []
        for _ in range(40):
            await asyncio.sleep(0.005)
            errors.append(round(clock.wall_s() - EPOCH_S - environment.world.now_ns / 1e9, 3))
        return errors, await seen(environment, "a1/clock")

    errors, phrase = within(main)
    assert set(errors) == {1.0, 6.0}
    assert sum(one != other for one, other in itertools.pairwise(errors)) > 10
    assert phrase == "skewed 1000 ms, strobing 5000 ms"


@pytest.mark.parametrize(
    ("primitive", "options", "message"),
    [
        ("melt", {}, "no fault 'melt'"),
        ("disk-slow", {"delay_ms": -1}, "must be 0 or more"),
        ("disk-slow", {"delay_ms": "long"}, "delay_ms must be a number"),
        ("disk-error", {"operation": "read"}, "must be write or sync"),
        ("clock-rate", {"rate": 0}, "rate must be a number above 0"),
        ("clock-skew", {"skew": 1}, "skew_ms must be a number"),
        ("clock-strobe", {"step_ms": 5, "period_ms": 0}, "period_ms must be a number above 0"),
        ("disk-full", {"bytes": 1}, "unknown option 'bytes'"),
        ("datagram-loss", {"chance": 2}, "chance must be a number above 0 and of at most 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(primitive, options, message):
    async def main(environment):
        with pytest.raises(UsageError) as raised:
            await environment.inject(primitive, nodes=["a1"], options=options)
        return str(raised.value)

    said = within(main, start=False)
    assert message in said
    assert "\n" not in said


def test_unknown_nodes_ports_and_sources_are_named():
    async def main(environment):
        with pytest.raises(UsageError, match="'a9'"):
            await environment.inject("pause", nodes=["a9"])
        with pytest.raises(UsageError, match="'mqtt'"):
            environment.resolve("zone1", "a1", "mqtt")
        with pytest.raises(UsageError, match="'zone9'"):
            environment.resolve("zone9", "a1", "stomp")
        with pytest.raises(UsageError, match="'z1'"):
            await environment.start("z1")
        return await environment.wait_exit("a1")

    assert within(main, start=False) is None


def test_it_supports_every_primitive_that_a_nemesis_needs():
    supports = SimulationEnvironment().supports()
    assert set(supports) == set(PRIMITIVES)
    assert set(supports.values()) == {""}
    needed = {primitive for kind in registry.KINDS.values() for primitive in kind.primitives}
    assert needed - set(supports) == {"hook"}, "a person's own commands are for attached clusters alone"


def test_each_brokers_log_is_collected_with_virtual_times(tmp_path):
    environment = SimulationEnvironment()

    async def body():
        system = OwnSystem()
        spec = TestSpec(name="t", policy="standalone", pairs=2)
        nodes = system.plan(spec)
        await environment.deploy(system, spec, nodes, None)
        await environment.start("a1")
        await live(environment, "a1")
        await asyncio.sleep(2)
        await environment.start("b1")
        await live(environment, "b1")
        await environment.collect(tmp_path)

    environment.conduct(body, seed=1)
    log = {node: (tmp_path / node / "broker.log").read_text() for node in ("a1", "b1")}
    assert "INFO a1 serving STOMP on a1:61613" in log["a1"]
    assert log["a1"].startswith("2026-01-01T00:00:00.0")
    assert log["b1"].startswith("2026-01-01T00:00:02.0")
    assert "b1 serving" not in log["a1"]


def test_who_waits_for_a_simulation_can_still_be_interrupted():
    environment = SimulationEnvironment()
    begun = threading.Event()

    async def for_ever():
        while True:
            begun.set()
            await asyncio.sleep(1)

    async def main():
        running = asyncio.ensure_future(environment.execute(for_ever, seed=1))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_a_run_that_can_never_end_is_the_machines_fault_and_says_who_waits():
    async def main(environment):
        await asyncio.get_running_loop().create_future()

    with pytest.raises(InfrastructureError, match=r"cannot go on: .*nothing can happen") as raised:
        within(main, start=False)
    assert "harness" in str(raised.value)


def test_a_page_in_a_browser_reaches_a_simulated_broker():
    """WebSocket runs through the seams: no thread, no chance, no time of its own."""

    def masked(data):
        return bytes([0x82, 0x80 | len(data)]) + bytes(4) + data

    async def main(environment):
        address = environment.resolve("zone1", "a1", "stomp")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        key = "A" * 22 + "=="
        writer.write(
            "GET /stomp HTTP/1.1\r\nHost: a1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        login = f"login:{OwnSystem.dialect.login}\npasscode:{OwnSystem.dialect.passcode}"
        writer.write(masked(f"CONNECT\naccept-version:1.1\n{login}\n\n\0".encode()))
        writer.write(masked(b"SEND\ndestination:q\nreceipt:1\n\n") + masked(b"x\0"))
        return await reader.readuntil(b"RECEIPT\nreceipt-id:1\n\n\0")

    first, again = within(main), within(main)
    assert b"CONNECTED\nversion:1.1\n" in first
    assert first == again
