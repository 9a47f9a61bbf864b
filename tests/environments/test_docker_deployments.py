"""A deployment on a real engine is made once and leaves nothing, however it ends."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from docker_deployed import ROOT, SPEC, SYSTEM, begin, deployed, dial, observe, remains
from docker_echo import EchoSystem, say, until

from environments import payload
from environments.docker import clean, image
from environments.docker.engine import connect
from environments.docker.environment import DockerEnvironment
from environments.labels import NOTE
from harness.interface import Link, UsageError

pytestmark = pytest.mark.docker


@pytest.fixture
def client():
    client = connect()
    yield client
    client.close()


def test_the_image_is_built_once_for_the_same_sources_and_anew_for_others(client, monkeypatch, tmp_path):
    image.node_image(client, print)  # and what it is made from, which is told, too
    for path, content in payload.sources(payload.ROOT).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    monkeypatch.setattr(image, "ROOT", tmp_path)
    (tmp_path / "broker" / "marker.py").write_text(f"MARKER = {str(tmp_path)!r}\n")
    told = []
    tag = image.node_image(client, told.append)
    assert told == ["building the node image from these sources (a few seconds)"]
    assert image.node_image(client, told.append) == tag
    assert len(told) == 1
    marker = ["python3", "-c", "from broker.marker import MARKER; print(MARKER)"]
    assert client.containers.run(tag, marker, remove=True).decode().strip() == str(tmp_path)
    (tmp_path / "broker" / "marker.py").write_text("MARKER = 2\n")
    other = image.node_image(client, told.append)
    assert other != tag
    assert len(told) == 2
    for name in (tag, other):
        client.images.remove(name)


def test_containers_whose_addresses_are_out_of_reach_are_reached_through_ports_of_this_host():
    async def test():
        environment = await deployed(publish=True)
        try:
            await begin(environment, "a1")
            await begin(environment, "a2")
            assert environment.resolve("admin", "a1", "admin").host == "127.0.0.1"
            assert await dial(environment, "a1", "a2") == "a2: hello"
            await environment.inject("cut", links=[Link("a1", "a2")])
            assert await observe(environment, "a1->a2", "a2->a1") == ("lost", "open")
            await environment.kill("a1")
            assert await begin(environment, "a1") == "a1:"
            assert await say(environment.resolve("zone1", "a1", "stomp"), "role") == "a1:"
        finally:
            await environment.teardown()

    asyncio.run(test())


def test_a_deployment_that_fails_halfway_leaves_nothing(client):
    class Broken(EchoSystem):
        def files(self, spec, node, nodes, layout, listen, hosts):
            if node.name == "a2":
                raise UsageError("no such property")
            return super().files(spec, node, nodes, layout, listen, hosts)

    async def test():
        environment = DockerEnvironment()
        with pytest.raises(UsageError, match="no such property"):
            await environment.deploy(Broken(), SPEC, SYSTEM.plan(SPEC), ROOT)
        assert remains(client, environment.run) == []
        await environment.teardown()  # safe to repeat

    asyncio.run(test())


def test_an_interrupted_deployment_leaves_nothing(client):
    async def test():
        environment = DockerEnvironment()
        deploying = asyncio.create_task(environment.deploy(SYSTEM, SPEC, SYSTEM.plan(SPEC), ROOT))

        async def begun():
            return bool(await asyncio.to_thread(remains, client, environment.run))

        await until(begun, True)
        deploying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deploying
        assert remains(client, environment.run) == []

    asyncio.run(test())


KILLED_HARNESS = """
import asyncio, sys
from pathlib import Path
from docker_echo import EchoSystem
from environments.docker.environment import DockerEnvironment
from harness.interface import Link, TestSpec

async def main():
    spec, system = TestSpec(name="killed"), EchoSystem()
    environment = DockerEnvironment(lease_s=4.0)
    await environment.deploy(system, spec, system.plan(spec), Path())
    for node in ("a1", "a2"):
        await environment.start(node)
    leases = [await environment.inject("cut", links=[Link("a1", "a2")])]
    keeping = asyncio.create_task(keep(environment, leases))
    leases.append(await environment.inject("pause", nodes=["a2"]))
    seen = (await environment.probe([Link("a1", "a2")], ["a2"])).observed
    print(environment.run, seen["a1->a2"], seen["a2"], flush=True)
    await keeping

async def keep(environment, leases):
    while True:
        for lease in tuple(leases):
            await environment.renew(lease)
        await asyncio.sleep(0.2)

asyncio.run(main())
"""


def test_a_killed_harness_leaves_no_fault_behind_and_clean_removes_the_rest(client):
    harness = subprocess.Popen(
        [sys.executable, "-c", KILLED_HARNESS],
        env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        name, link, node = harness.stdout.readline().split()
        assert (link, node) == ("lost", "paused")
        assert any(line.startswith(f"{NOTE}docker run {name}: left alone") for line in clean.leftovers())
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()
    container = client.containers.get(f"{name}-a2")

    async def test():
        async def broken():
            rules = await asyncio.to_thread(container.exec_run, ["nft", "list", "tables"])
            states = await asyncio.to_thread(container.exec_run, ["ps", "-eo", "stat="])
            return (
                b"jepsen_run" in rules.output,
                any(line.startswith(b"T") for line in states.output.splitlines()),
            )

        await until(broken, (False, False))

    asyncio.run(test())
    left = [line for line in clean.leftovers() if name in line]
    assert len(left) == 1
    assert f"container {name}-a1" in left[0]
    assert f"volume {name}-a2" in left[0]
    assert any(name in line for line in clean.remove())
    assert remains(client, name) == []
    assert not any(name in line for line in clean.leftovers())
