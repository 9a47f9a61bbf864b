"""Environments of machines, containers and hosts over ssh alike, with real packets lost."""

import asyncio
import contextlib
import signal

import beds
import pytest
from docker_deployed import SILENCE_S, begin, deployed, dial, observe
from docker_echo import BOUND_S, say, until

from environments.docker.engine import connect
from harness.interface import InfrastructureError, Link, UsageError

KINDS = [pytest.param("docker", marks=pytest.mark.docker), pytest.param("ssh", marks=pytest.mark.ssh)]


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", params=KINDS)
def machines(request, tmp_path_factory):
    """What an environment of each kind is made with: three hosts, where it needs any."""
    if request.param == "docker":
        yield {}
        return
    with beds.namespaces(3, tmp_path_factory.mktemp("machines") / "bed") as bed:
        yield {"hosts": (str(bed.hosts),)}


@pytest.fixture(params=KINDS)
def machines_of_its_own(request, tmp_path):
    if request.param == "docker":
        yield {}
        return
    with beds.namespaces(2, tmp_path / "bed") as bed:
        yield {"hosts": (str(bed.hosts),)}


@pytest.fixture(scope="module")
def shared(runner, machines):
    """Three nodes whose brokers run, for all tests that leave them so."""

    async def setup():
        environment = await deployed(("a1", "a2", "b1"), **machines)
        for node in ("a1", "a2", "b1"):
            await begin(environment, node)
        return environment

    environment = runner.run(setup())
    yield environment
    runner.run(environment.teardown())


@pytest.fixture
def run(runner, shared):
    """Runs a test with the shared deployment, and heals whatever it broke."""

    def run(test):
        try:
            runner.run(test(shared))
        finally:
            runner.run(shared.heal_all())

    return run


# ---- links


def test_unbroken_links_are_open_every_way(run):
    async def test(environment):
        links = [
            f"{a}->{b}" for a in ("a1", "a2", "b1", "zone1", "zone2") for b in ("a1", "a2", "b1") if a != b
        ]
        links += ["a1->zone1", "b1->zone2"]
        assert set(await observe(environment, *links)) == {"open"}
        assert await dial(environment, "a1", "a2") == "a2: hello"

    run(test)


def test_a_cut_loses_one_direction_only_and_heals(run):
    async def test(environment):
        lease = await environment.inject("cut", links=[Link("a1", "a2")])
        assert await observe(environment, "a1->a2", "a2->a1", "a1->b1", "b1->a2") == (
            "lost",
            "open",
            "open",
            "open",
        )
        # TCP needs both ways, so brokers cannot connect in either direction.
        assert await dial(environment, "a1", "a2", SILENCE_S) == "TimeoutError"
        assert await dial(environment, "a2", "a1", SILENCE_S) == "TimeoutError"
        await environment.renew(lease)
        await environment.heal(lease)
        assert await observe(environment, "a1->a2", "a2->a1") == ("open", "open")
        assert (await dial(environment, "a1", "a2")).startswith("a2: hello")

    run(test)


def test_the_harness_reaches_a_node_that_is_cut_from_everybody(run):
    async def test(environment):
        others = ("a2", "b1")
        await environment.inject(
            "cut", links=[Link(a, "a1") for a in others] + [Link("a1", a) for a in others]
        )
        assert await say(environment.resolve("admin", "a1", "admin"), "role")
        assert await observe(environment, "a1->a2", "a1->b1", "a2->a1", "b1->a1") == ("lost",) * 4
        assert await observe(environment, "a2->b1", "zone1->a1") == ("open", "open")

    run(test)


def test_a_reset_refuses_at_once(run):
    async def test(environment):
        await environment.inject("reset", links=[Link("a1", "a2")])
        assert await observe(environment, "a1->a2", "a2->a1") == ("refused", "open")
        assert await dial(environment, "a1", "a2") in ("ConnectionRefusedError", "ConnectionResetError")

    run(test)


def test_a_reset_ends_a_connection_that_says_nothing(run):
    async def test(environment):
        where = environment.resolve("admin", "a1", "admin")
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(f"hold a2:61616 {BOUND_S}\n".encode())
        assert (await reader.readline()).startswith(b"holds a2:")
        await environment.inject("reset", links=[Link("a1", "a2")])
        assert await asyncio.wait_for(reader.readline(), BOUND_S / 2) == b"ConnectionResetError\n"
        writer.close()

    run(test)


def test_a_stall_lets_a_connection_be_made_and_nothing_be_said(run):
    async def test(environment):
        await environment.inject("stall", links=[Link("a1", "a2")])
        assert await observe(environment, "a1->a2", "a2->a1") == ("lost", "open")
        # The program's own time-out ends it, not the kernel's: connecting succeeded.
        assert await dial(environment, "a1", "a2", SILENCE_S) == "TimeoutError"

    run(test)


def test_healing_one_of_two_overlapping_cuts_leaves_the_other(run):
    async def test(environment):
        first = await environment.inject("cut", links=[Link("a1", "a2"), Link("a1", "b1")])
        second = await environment.inject("cut", links=[Link("a1", "a2")])
        await environment.heal(first)
        assert await observe(environment, "a1->a2", "a1->b1") == ("lost", "open")
        await environment.heal(second)
        assert await observe(environment, "a1->a2") == ("open",)

    run(test)


def test_a_zone_is_cut_from_one_node_and_the_other_zone_is_not(run):
    async def test(environment):
        lease = await environment.inject("cut", links=[Link("zone1", "a1"), Link("a1", "zone1")])
        assert await observe(environment, "zone1->a1", "a1->zone1", "zone2->a1", "zone1->a2") == (
            "lost",
            "lost",
            "open",
            "open",
        )
        with pytest.raises(TimeoutError):
            await say(environment.resolve("zone1", "a1", "stomp"), "role", 0.5)
        assert await say(environment.resolve("zone2", "a1", "stomp"), "role")
        await environment.heal(lease)
        assert await say(environment.resolve("zone1", "a1", "stomp"), "role")

    run(test)


def test_slow_links_are_slow_or_refused_by_the_name_of_what_is_missing(run):
    async def test(environment):
        reason = environment.supports()["slow"]
        options = {"delay_ms": 60.0}
        if reason:
            assert reason.startswith(("no sch_netem in this kernel", "no sch_prio", "tc netem failed"))
            with pytest.raises(InfrastructureError, match="slow: "):
                await environment.inject("slow", links=[Link("a1", "a2")], options=options)
            assert await observe(environment, "a1->a2") == ("open",)
        else:
            await environment.inject("slow", links=[Link("a1", "a2")], options=options)
            await environment.inject("slow", links=[Link("a1", "b1")], options={"rate_bytes_s": 200_000.0})
            there, narrow, back = await observe(environment, "a1->a2", "a1->b1", "a2->a1")
            assert there.startswith("slow ")
            assert narrow.startswith("slow ")
            assert back == "open"
        await environment.inject("slow", links=[Link("zone1", "a2")], options=options)
        assert (await observe(environment, "zone1->a2"))[0].startswith("slow ")

    run(test)


def test_faults_of_the_wrong_kind_are_refused_and_nothing_is_in_force(run):
    async def test(environment):
        for primitive, links, nodes in (
            ("cut", [], ["a1"]),
            ("pause", [Link("a1", "a2")], []),
            ("dance", [Link("a1", "a2")], []),
            ("cut", [Link("a1", "z9")], []),
            ("cut", [Link("zone1", "zone2")], []),
            ("pause", [], ["z9"]),
        ):
            with pytest.raises(UsageError):
                await environment.inject(primitive, links=links, nodes=nodes)
        with pytest.raises(UsageError, match="no lease"):
            await environment.renew("docker-999")
        assert await observe(environment, "a1->a2") == ("open",)

    run(test)


# ---- leases


def test_a_fault_that_nobody_renews_heals_by_itself_and_says_so(machines_of_its_own):
    async def test():
        environment = await deployed(lease_s=4.0, **machines_of_its_own)
        try:
            lease = await environment.inject("cut", links=[Link("a1", "a2"), Link("zone1", "a1")])

            async def keep():
                while True:
                    await environment.renew(lease)
                    await asyncio.sleep(0.2)

            keeping = asyncio.create_task(keep())
            assert await observe(environment, "a1->a2", "zone1->a1") == ("lost", "lost")
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            await until(lambda: observe(environment, "a1->a2", "zone1->a1"), ("open", "open"))
            with pytest.raises(InfrastructureError, match=r"before its time"):
                await environment.renew(lease)
            await environment.heal(lease)
        finally:
            await environment.teardown()

    asyncio.run(test())


# ---- nodes


def test_a_paused_broker_is_silent_and_goes_on_afterwards(run):
    async def test(environment):
        lease = await environment.inject("pause", nodes=["b1"])
        assert (await environment.probe(nodes=["b1", "a1"])).observed == {"b1": "paused", "a1": "running"}
        assert await environment.running("b1")
        with pytest.raises(TimeoutError):
            await say(environment.resolve("admin", "b1", "admin"), "role", 0.5)
        await environment.heal(lease)
        assert await say(environment.resolve("admin", "b1", "admin"), "role")

    run(test)


def test_a_killed_node_comes_back_with_its_address_its_data_and_its_partition(run):
    async def test(environment):
        where = environment.resolve("admin", "a1", "admin")
        await say(where, "keep before")
        lease = await environment.inject("cut", links=[Link("a2", "a1")])
        exited = asyncio.create_task(environment.wait_exit("a1"))
        reader, writer = await asyncio.open_connection(where.host, where.port)
        await environment.kill("a1")
        assert await asyncio.wait_for(exited, BOUND_S) == -signal.SIGKILL
        with contextlib.suppress(ConnectionResetError):  # its peers learn of it at once
            assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
        writer.close()
        assert not await environment.running("a1")
        assert (await environment.probe([Link("b1", "a1")], ["a1"])).observed == {
            "b1->a1": "lost" if environment.name == "docker" else "open",  # a host outlives its broker
            "a1": "gone",
        }
        await environment.renew(lease)
        await environment.kill("a1")  # nothing to do
        assert "before" in await begin(environment, "a1")
        assert environment.resolve("admin", "a1", "admin") == where
        assert await observe(environment, "a2->a1", "a1->a2", "b1->a1") == ("lost", "open", "open")
        await environment.renew(lease)
        await environment.heal(lease)
        assert await observe(environment, "a2->a1") == ("open",)

    run(test)


def test_data_is_destroyed_only_of_a_stopped_broker(run):
    async def test(environment):
        await say(environment.resolve("admin", "a2", "admin"), "keep precious")
        with pytest.raises(UsageError, match="the broker runs"):
            await environment.destroy_data("a2")
        await environment.kill("a2")
        await environment.destroy_data("a2")
        assert not await environment.running("a2")
        assert await begin(environment, "a2") == "a2:"

    run(test)


def test_the_files_of_a_node_are_edited_only_while_it_is_stopped(run):
    async def kept(files):
        return {path: content for path, content in files.items() if content}

    async def test(environment):
        await say(environment.resolve("admin", "a1", "admin"), "keep edited")
        with pytest.raises(UsageError, match="a1 is running"):
            await environment.edit_data("a1", kept)
        await environment.kill("a1")
        await environment.edit_data("a1", kept)
        assert not await environment.running("a1")
        assert (await begin(environment, "a1")).endswith("edited")

    run(test)


def test_copied_data_replace_those_of_the_other_node_and_neither_may_run(run):
    async def test(environment):
        await say(environment.resolve("admin", "a1", "admin"), "keep copied")
        await say(environment.resolve("admin", "a2", "admin"), "keep own")
        for running in ("a1", "a2"):
            with pytest.raises(UsageError, match=f"{running} is running"):
                await environment.copy_data("a1", "a2")
            await environment.kill(running)
        await environment.copy_data("a1", "a2")
        assert not await environment.running("a2")
        kept = [(await begin(environment, node)).partition(": ")[2].split(",") for node in ("a1", "a2")]
        assert kept[0] == kept[1]
        assert kept[0][-1] == "copied"

    run(test)


def test_the_exit_status_and_the_logs_of_every_run_are_kept(run, tmp_path):
    async def test(environment):
        with pytest.raises(UsageError, match="runs already"):
            await environment.start("b1")
        with pytest.raises(ConnectionError):
            await say(environment.resolve("admin", "b1", "admin"), "exit 7")
        assert await asyncio.wait_for(environment.wait_exit("b1"), BOUND_S) == 7
        assert not await environment.running("b1")
        await environment.collect(tmp_path / "before")
        await begin(environment, "b1")
        await environment.collect(tmp_path / "after")
        before, after = ((tmp_path / when / "b1" / "broker.log").read_text() for when in ("before", "after"))
        assert "echo b1 ready" in before
        assert after == before + "echo b1 ready\n"
        assert "agent ready" in (tmp_path / "after" / "b1" / "agent.log").read_text()

    run(test)


def test_a_log_of_any_length_is_kept(run, tmp_path):
    async def test(environment):
        await say(environment.resolve("admin", "a2", "admin"), "shout 3000000")
        async with asyncio.timeout(BOUND_S):
            await environment.collect(tmp_path)
        assert (tmp_path / "a2" / "broker.log").stat().st_size > 3_000_000
        assert "agent ready" in (tmp_path / "a2" / "agent.log").read_text()

    run(test)


def test_a_log_is_followed_whether_or_not_its_machine_runs(run):
    async def test(environment):
        _, end = await environment.log_lines("b1", None)
        following = asyncio.create_task(environment.log_lines("b1", end))
        await environment.kill("b1")
        lines, position = await environment.log_lines("b1", 0)
        assert lines[0] == "echo b1 ready"
        assert await environment.log_lines("b1", None) == ([], end)
        assert position == end
        await begin(environment, "b1")
        assert await asyncio.wait_for(following, BOUND_S) == (["echo b1 ready"], end + len("echo b1 ready\n"))

    run(test)


def test_orphans_of_a_broker_do_not_stay_as_zombies(run):
    async def test(environment):
        if environment.name != "docker":
            return  # a host has a first process of its own, which sees to them
        await say(environment.resolve("admin", "b1", "admin"), "orphan")
        client = connect()
        container = client.containers.get(f"{environment.run}-b1")

        async def states():
            output = (
                await asyncio.to_thread(container.exec_run, ["ps", "-eo", "stat=,comm="])
            ).output.decode()
            return [line for line in output.splitlines() if line.startswith("Z") or "sleep" in line]

        await until(states, [])
        client.close()

    run(test)
