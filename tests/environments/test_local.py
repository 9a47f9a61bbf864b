import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop
from echo_system import NODES, PATIENCE_S, SPEC, EchoSystem, connect, echo, node, receive, until

from environments.disk_condition import DISK_LEASES, DISK_MOMENTS
from environments.labels import STATE_DIR
from environments.local import stores
from environments.local.environment import LocalEnvironment
from environments.postgresql import program
from environments.postgresql.fault import PRIMITIVES as DATABASE_PRIMITIVES
from filesystems.fuse import device as fuse_device
from harness.interface import InfrastructureError, Link, Provision, Runtime, UsageError

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("state_home")]

ONE, TWO = Link("a1", "b1"), Link("b1", "a1")


@contextlib.asynccontextmanager
async def deployed(tmp_path, *, nodes=NODES, start=True, system=None, lease_s=PATIENCE_S):
    """A deployment whose faults outlast the test unless it is about their leases."""
    environment = LocalEnvironment(lease_s=lease_s)
    await environment.deploy(system or EchoSystem(), SPEC, nodes, tmp_path / "run")
    try:
        if start:
            for one in nodes:
                await environment.start(one.name)
            for one in nodes:
                await echo(environment.resolve("admin", one.name, "stomp"))
        yield environment
    finally:
        await environment.teardown()


def processes_of(state):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.environ().get(STATE_DIR, "").startswith(str(state))
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


async def observed(environment, *links, nodes=()):
    return (await environment.probe(links, nodes)).observed


def test_a_broker_runs_the_program_that_was_found_for_it_and_not_the_one_on_path(tmp_path, monkeypatch):
    for name in ("on-path", "found"):
        program = tmp_path / name / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {name} > {tmp_path}/run.txt\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/on-path:{os.environ['PATH']}")
    system = EchoSystem(["java"])
    found = Runtime(program="java", package="x", local_path=f"{tmp_path}/found/java")
    system.provision = lambda spec: Provision(runtimes=(found,))

    async def main():
        async with deployed(tmp_path, start=False, system=system) as environment:
            await environment.start("a1")
            await environment.wait_exit("a1")

    uvloop.run(main())
    assert (tmp_path / "run.txt").read_text() == "found\n"


def test_every_source_reaches_every_node_through_a_way_of_its_own(tmp_path):
    async def main():
        system = EchoSystem()
        async with deployed(tmp_path, system=system) as environment:
            addresses = [
                environment.resolve(source, "b1", "stomp") for source in ("admin", "a1", "zone1", "zone2")
            ]
            assert len(set(addresses)) == 4
            for address in addresses:
                await echo(address)
            assert environment.resolve("b1", "b1", "stomp") == environment.resolve("admin", "b1", "stomp")
            assert environment.resolve("zone1", "b1", "admin") == environment.resolve("admin", "b1", "admin")
            assert system.hosts["a1"] == {
                "b1:61613": environment.resolve("a1", "b1", "stomp"),
                "b1:61616": environment.resolve("a1", "b1", "cluster"),
            }
            etc = tmp_path / "run" / "nodes" / "a1" / "etc"
            assert (etc / "deep" / "er.txt").read_bytes() == b"nested"
            with pytest.raises(UsageError, match="no port 'mqtt' of node 'b1'"):
                environment.resolve("zone1", "b1", "mqtt")
            with pytest.raises(UsageError, match="no source 'c9'"):
                environment.resolve("c9", "b1", "stomp")

    uvloop.run(main())


def test_a_port_that_is_announced_has_its_number_where_it_is_and_where_peers_reach_it(tmp_path):
    async def main():
        nodes = [msgspec.structs.replace(one, announced=("cluster",)) for one in NODES]
        async with deployed(tmp_path, nodes=nodes) as environment:
            number = nodes[1].ports["cluster"]
            there, way = (environment.resolve(source, "b1", "cluster") for source in ("b1", "a1"))
            assert (there.port, way.port) == (number, number)
            assert len({there.host, way.host, "127.0.0.1"}) == 3
            async with asyncio.timeout(PATIENCE_S):
                await until_refused(way, refused=False)
                await environment.kill("b1")
                await until_refused(way, refused=True)

    uvloop.run(main())


async def until_refused(address, *, refused):
    while True:
        try:
            writer = (await connect(address))[1]
        except ConnectionRefusedError:
            if refused:
                return
        except ConnectionResetError:  # it closed while this was under way
            pass
        else:
            writer.close()
            if not refused:
                return
        await asyncio.sleep(0.02)


def test_a_cut_between_nodes_leaves_clients_and_the_other_direction(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            reader, writer = await connect(environment.resolve("a1", "b1", "stomp"))
            writer.write(b"1")
            assert await receive(reader, 1) == b"1"
            received = tmp_path / "run" / "nodes" / "b1" / "data" / "stomp"
            lease = await environment.inject("cut", links=[TWO])
            writer.write(b"arrives, and its echo does not")
            await until(
                lambda: received.read_bytes().endswith(b"arrives, and its echo does not"),
                "the open direction",
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.2)
            assert await observed(environment, ONE, TWO) == {"a1->b1": "open", "b1->a1": "lost"}
            await echo(environment.resolve("zone1", "b1", "stomp"))
            await echo(environment.resolve("admin", "b1", "stomp"))
            await environment.heal(lease)
            assert await receive(reader, 30) == b"arrives, and its echo does not"
            assert await observed(environment, ONE, TWO) == {"a1->b1": "open", "b1->a1": "open"}
            writer.close()

    uvloop.run(main())


@contextlib.asynccontextmanager
async def kept(environment, *leases):
    """Renews leases within the body; what broke them is raised at its end."""

    async def keep():
        while True:
            for lease in leases:
                await environment.renew(lease)
            await asyncio.sleep(0.1)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def test_overlapping_faults_heal_one_by_one(tmp_path):
    async def main():
        async with deployed(tmp_path, start=False) as environment:
            cut = await environment.inject("cut", links=[ONE])
            stall = await environment.inject("stall", links=[ONE, TWO])
            slow = await environment.inject("slow", links=[ONE], options={"delay_ms": 80})
            assert set((await observed(environment, ONE, TWO)).values()) == {"lost"}
            await environment.heal(stall)
            assert await observed(environment, ONE, TWO) == {"a1->b1": "lost", "b1->a1": "open"}
            await environment.heal(cut)
            assert (await observed(environment, ONE))["a1->b1"].startswith("slow ")
            await environment.heal(slow)
            assert (await observed(environment, ONE))["a1->b1"] == "open"
            await environment.inject("reset", links=[ONE])
            await environment.inject("cut", links=[TWO])
            assert await observed(environment, ONE) == {"a1->b1": "refused"}
            await environment.heal_all()
            await until(lambda: all_open(environment), "all links open again")

    uvloop.run(main())


async def all_open(environment):
    return set((await observed(environment, ONE, TWO)).values()) == {"open"}


def test_a_fault_that_nobody_renews_heals_itself_links_and_processes(tmp_path):
    async def main():
        async with deployed(tmp_path, lease_s=3.0) as environment:
            cut = await environment.inject("cut", links=[ONE])
            pause = await environment.inject("pause", nodes=["b1"])
            async with kept(environment, cut, pause):
                assert await observed(environment, ONE, nodes=["a1", "b1"]) == {
                    "a1->b1": "lost",
                    "a1": "running",
                    "b1": "paused",
                }

            async def healed():
                return await observed(environment, ONE, nodes=["b1"]) == {"a1->b1": "open", "b1": "running"}

            await until(healed, "the leases to end")
            await echo(environment.resolve("a1", "b1", "stomp"))
            for lease in (cut, pause):
                with pytest.raises(InfrastructureError, match="was healed"):
                    await environment.renew(lease)
                await environment.heal(lease)

    uvloop.run(main())


def test_a_renewed_fault_outlives_its_lease(tmp_path):
    async def main():
        lease_s = 2.5
        async with deployed(tmp_path, lease_s=lease_s) as environment:
            lease = await environment.inject("pause", nodes=["a1"])
            async with kept(environment, lease):
                await asyncio.sleep(1.5 * lease_s)
            assert await observed(environment, nodes=["a1"]) == {"a1": "paused"}

    uvloop.run(main())


def test_a_pause_that_overlaps_another_ends_with_the_last(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            first = await environment.inject("pause", nodes=["a1"])
            second = await environment.inject("pause", nodes=["a1", "b1"])
            await environment.heal(first)
            assert await observed(environment, nodes=["a1", "b1"]) == {"a1": "paused", "b1": "paused"}
            await environment.heal(second)
            assert await observed(environment, nodes=["a1", "b1"]) == {"a1": "running", "b1": "running"}

    uvloop.run(main())


def test_a_killed_broker_is_gone_is_noticed_and_starts_again_on_its_port(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            address = environment.resolve("zone1", "a1", "stomp")
            data = tmp_path / "run" / "nodes" / "a1" / "data"
            waiting = asyncio.create_task(environment.wait_exit("a1"))
            await environment.inject("pause", nodes=["a1"])
            await environment.kill("a1")
            assert await asyncio.wait_for(waiting, PATIENCE_S) == -signal.SIGKILL
            assert not await environment.running("a1")
            assert await observed(environment, nodes=["a1"]) == {"a1": "gone"}
            with pytest.raises(ConnectionError):
                await connect(environment.resolve("admin", "a1", "stomp"))
            await environment.kill("a1")
            assert (data / "stomp").exists()
            await environment.destroy_data("a1")
            assert list(data.iterdir()) == []
            await environment.start("a1")
            await echo(address)
            assert await environment.running("a1")
            with pytest.raises(UsageError, match="a1 runs already"):
                await environment.start("a1")
            with pytest.raises(UsageError, match="only when it is stopped"):
                await environment.destroy_data("a1")

    uvloop.run(main())


def test_copied_data_replace_those_of_the_other_node_and_neither_may_run(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            source, target = (tmp_path / "run" / "nodes" / node / "data" for node in ("a1", "b1"))
            (source / "journal").mkdir()
            (source / "journal" / "segment").write_bytes(b"of a1")
            (target / "own").write_bytes(b"of b1")
            for running in ("a1", "b1"):
                with pytest.raises(UsageError, match=f"{running} is running"):
                    await environment.copy_data("a1", "b1")
                await environment.kill(running)
            await environment.copy_data("a1", "b1")
            assert (target / "journal" / "segment").read_bytes() == b"of a1"
            assert (source / "journal" / "segment").read_bytes() == b"of a1"
            assert not (target / "own").exists()
            await environment.start("b1")

    uvloop.run(main())


def test_the_files_of_a_node_are_edited_only_while_it_is_stopped(tmp_path):
    async def edited(files):
        assert files == {"journal/segment": b"of a1", "old": b"1"}
        return {"journal/segment": b"edited", "new/file": b"2"}

    async def main():
        async with deployed(tmp_path, start=False) as environment:
            data = tmp_path / "run" / "nodes" / "a1" / "data"
            (data / "journal").mkdir()
            (data / "journal" / "segment").write_bytes(b"of a1")
            (data / "old").write_bytes(b"1")
            await environment.start("a1")
            with pytest.raises(UsageError, match="a1 is running"):
                await environment.edit_data("a1", edited)
            await environment.kill("a1")
            await environment.edit_data("a1", edited)
            assert (data / "journal" / "segment").read_bytes() == b"edited"
            assert (data / "new" / "file").read_bytes() == b"2"
            assert not (data / "old").exists()

    uvloop.run(main())


def test_a_broker_that_ends_by_itself_leaves_its_status_and_its_words(tmp_path):
    async def main():
        system = EchoSystem(["sh", "-c", "echo last words; sleep 1000 & exit 7"])
        async with deployed(tmp_path, system=system, start=False) as environment:
            assert await environment.wait_exit("a1") is None
            await environment.start("a1")
            assert await asyncio.wait_for(environment.wait_exit("a1"), PATIENCE_S) == 7
            assert await environment.wait_exit("a1") == 7
            await environment.collect(tmp_path / "logs")
            assert (tmp_path / "logs" / "a1" / "broker.log").read_text() == "last words\n"
            # What it left behind in its process group has ended with it.
            await until(lambda: len(processes_of(tmp_path)) == 1, "the child of the broker to end")

    uvloop.run(main())


def test_a_node_is_given_the_files_of_another_role_and_the_others_keep_theirs(tmp_path):
    def roles(environment):
        return {
            name: json.loads((environment._home(name) / "etc" / "echo.json").read_bytes())["configured"]
            for name in ("a1", "b1")
        }

    async def main():
        async with deployed(tmp_path, start=False) as environment:
            assert roles(environment) == {"a1": "master", "b1": "master"}
            await environment.reconfigure("b1", "slave")
            assert roles(environment) == {"a1": "master", "b1": "slave"}
            await environment.reconfigure("a1", "slave")
            assert roles(environment) == {"a1": "slave", "b1": "slave"}

    uvloop.run(main())


def test_what_a_broker_logs_is_followed_line_by_line_as_it_says_it(tmp_path):
    async def main():
        system = EchoSystem(["sh", "-c", "echo first; echo second; printf half; exit 7"])
        async with deployed(tmp_path, system=system, start=False) as environment:
            _, begin = await environment.log_lines("a1", None)
            awaited = asyncio.ensure_future(environment.log_lines("a1", begin))
            await environment.start("a1")
            lines, position = await asyncio.wait_for(awaited, PATIENCE_S)
            while len(lines) < 2:
                more, position = await asyncio.wait_for(environment.log_lines("a1", position), PATIENCE_S)
                lines += more
            assert lines == ["first", "second"]
            _, end = await environment.log_lines("a1", None)
            assert end >= position

    uvloop.run(main())


def test_a_broker_that_cannot_be_run_is_named(tmp_path):
    async def main():
        async with deployed(tmp_path, system=EchoSystem(["/no/such/brokerd"]), start=False) as environment:
            with pytest.raises(
                InfrastructureError, match="cannot start a1: No such file or directory: /no/such/brokerd"
            ):
                await environment.start("a1")

    uvloop.run(main())


def test_a_port_in_use_names_the_port_and_who_holds_it(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            await environment.kill("a1")
            address = environment.resolve("admin", "a1", "stomp")
            with socket.socket() as thief:
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind((address.host, address.port))
                thief.listen()
                with pytest.raises(
                    InfrastructureError, match=rf"port {address.port} is in use by process \d+ \(.*python"
                ):
                    await environment.start("a1")
            await environment.start("a1")
            await echo(address)

    uvloop.run(main())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"primitive": "cutt", "links": [ONE]}, "no fault 'cutt'"),
        ({"primitive": "cut", "links": [Link("a1", "z9")]}, "cut: no link a1->z9"),
        ({"primitive": "cut", "nodes": ["a1"]}, "cut: takes links, no nodes"),
        ({"primitive": "cut"}, "cut: takes links, no nodes"),
        ({"primitive": "pause", "nodes": ["z9"]}, "no node 'z9'; there are a1, b1"),
        ({"primitive": "pause"}, "pause: takes nodes"),
        ({"primitive": "slow", "links": [ONE], "options": {"delay": 1}}, "unknown option 'delay'"),
    ],
)
def test_a_wrong_fault_is_named_and_breaks_nothing(tmp_path, arguments, message):
    async def main():
        async with deployed(tmp_path, start=False) as environment:
            primitive = arguments.pop("primitive")
            with pytest.raises(UsageError) as raised:
                await environment.inject(primitive, **arguments)
            assert message in str(raised.value)
            assert await all_open(environment)
            with pytest.raises(UsageError, match="no lease 'lease-99'"):
                await environment.heal("lease-99")

    uvloop.run(main())


def test_teardown_leaves_nothing_and_can_be_repeated(tmp_path, state_home):
    async def main():
        async with deployed(tmp_path) as environment:
            await environment.inject("pause", nodes=["a1"])
            assert len(processes_of(state_home)) == 3
            await environment.teardown()
            assert processes_of(state_home) == []
            assert list((state_home / "jepsen-run" / "local").iterdir()) == []
            assert not (tmp_path / "run" / "nodes").exists()
            await environment.teardown()
            with pytest.raises(InfrastructureError, match="nothing is deployed"):
                await environment.start("a1")

    uvloop.run(main())


def test_a_failed_deployment_leaves_nothing(tmp_path, state_home):
    class Broken(EchoSystem):
        def files(self, *_):
            raise UsageError("no such property: vote-retry; did you mean vote-retries?")

    async def main():
        with pytest.raises(UsageError, match="vote-retry"):
            await LocalEnvironment().deploy(Broken(), SPEC, NODES, tmp_path / "run")
        assert processes_of(state_home) == []
        assert not (tmp_path / "run" / "nodes").exists()

    uvloop.run(main())


def test_the_directory_of_another_deployment_is_not_touched(tmp_path):
    async def main():
        async with deployed(tmp_path, start=False):
            with pytest.raises(InfrastructureError, match="belongs to another deployment"):
                await LocalEnvironment().deploy(EchoSystem(), SPEC, NODES, tmp_path / "run")
            assert (tmp_path / "run" / "nodes" / "a1" / "etc" / "echo.json").exists()

    uvloop.run(main())


def test_a_node_named_like_a_zone_is_refused_before_anything_is_made(tmp_path, state_home):
    async def main():
        with pytest.raises(UsageError, match="node zone1 has the name of a client zone"):
            await LocalEnvironment().deploy(EchoSystem(), SPEC, [*NODES, node("zone1")], tmp_path / "run")
        assert not (tmp_path / "run").exists()

    uvloop.run(main())


def test_nodes_of_a_pair_c_are_not_mixed_up_with_clients(tmp_path):
    async def main():
        async with deployed(tmp_path, nodes=(node("a1"), node("c1")), start=False) as environment:
            await environment.inject("cut", links=[Link("c1", "a1")])
            expected = {"c1->a1": "lost", "a1->c1": "open", "zone1->a1": "open", "zone2->a1": "open"}
            links = [Link(*name.split("->")) for name in expected]
            assert await observed(environment, *links) == expected

    uvloop.run(main())


def test_a_killed_agent_is_noticed_and_teardown_still_ends_everything(tmp_path, state_home):
    async def main():
        async with deployed(tmp_path) as environment:
            waiting = asyncio.create_task(environment.wait_exit("a1"))
            await environment.inject("pause", nodes=["b1"])
            environment._agent.process.kill()
            with pytest.raises(InfrastructureError, match="agent is gone"):
                await asyncio.wait_for(waiting, PATIENCE_S)
            with pytest.raises(InfrastructureError, match="agent is gone"):
                await environment.running("a1")
            assert len(processes_of(state_home)) == 2
            await environment.teardown()
            assert processes_of(state_home) == []

    uvloop.run(main())


def test_a_state_directory_of_any_length_works(tmp_path, monkeypatch):
    async def main():
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 30)))
        async with deployed(tmp_path, nodes=(node("a1"),)) as environment:
            await echo(environment.resolve("zone1", "a1", "stomp"))

    uvloop.run(main())


def test_it_runs_on_the_stock_loop_too(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            await echo(environment.resolve("zone1", "a1", "stomp"))

    asyncio.run(main())


def test_supports_what_processes_can_be_made_to_suffer_and_says_where_the_rest_can_be_had():
    supports = LocalEnvironment().supports()
    assert all("simulation" in reason for reason in supports.values() if reason)
    assert {primitive for primitive, reason in supports.items() if not reason} == {
        "cut",
        "reset",
        "slow",
        "stall",
        "pause",
        "kill",
        "stop",
        "destroy-data",
        "copy-data",
        "edit-data",
        # each of these if the machine has what it needs
        *(() if fuse_device.missing() else (*DISK_LEASES, *DISK_MOMENTS)),
        *(() if program.missing() else DATABASE_PRIMITIVES),
        *(() if stores.missing() else stores.PRIMITIVES),
    }


def test_brokers_find_the_packages_of_this_project_from_their_own_directory(tmp_path):
    async def main():
        system = EchoSystem(["python", "-c", "import broker, sys; print(broker.__file__, sys.executable)"])
        async with deployed(tmp_path, system=system, start=False) as environment:
            await environment.start("a1")
            assert await asyncio.wait_for(environment.wait_exit("a1"), PATIENCE_S) == 0
            await environment.collect(tmp_path / "logs")
            said = (tmp_path / "logs" / "a1" / "broker.log").read_text().split()
            assert said == [str(Path(__file__).parents[2] / "broker" / "__init__.py"), sys.executable]

    uvloop.run(main())
