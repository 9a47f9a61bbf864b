"""A node and its machine, on a machine that is none."""

import asyncio
import contextlib
import io
import tarfile
import time
from typing import ClassVar

import pytest

from environments.agent.control import LINE_BYTES_MAX
from environments.machines.deployment import Deployment
from environments.machines.environment import lacking
from environments.machines.node import Node, NodeDownError
from harness.interface import Address, InfrastructureError, NodePlan

PLAN = NodePlan(name="a1", pair="a", configured="master", ports={})


class Machine:
    """One that runs until it is halted, and takes its time to begin."""

    name = "the machine of a1"
    root = "/nowhere"
    homes: ClassVar = {}
    address = "127.0.0.1"
    begins_s = 0.0

    def __init__(self, *, mortal=True):
        self.mortal = mortal
        self.running = False
        self.port = 0
        self.content = {}
        self.files = {}

    def reach(self, port):
        return Address(self.address, self.port)

    def begin(self):
        time.sleep(self.begins_s)
        self.running = True

    def runs(self):
        return self.running

    def fetch(self, path):
        return self.content.get(path, b"")

    def put(self, directory, files):
        self.files |= {f"{directory}/{path}": content for path, content in files.items()}

    def words(self):
        return b""

    def halt(self):
        self.running = False


@contextlib.asynccontextmanager
async def agent(machine):
    """Answers "hello"; says nothing to anything else."""
    silent = asyncio.Event()

    async def answer(reader, writer):
        await reader.readline()  # the token
        if b"hello" in await reader.readline():
            writer.write(b'{"result": {}}\n')
        else:
            silent.set()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, limit=LINE_BYTES_MAX) as server:
        machine.port = server.sockets[0].getsockname()[1]
        yield silent


def test_a_question_to_a_machine_that_was_killed_does_not_outlive_it():
    async def test():
        machine = Machine()
        node = Node(PLAN, machine, "token")
        async with agent(machine) as silent:
            await node.boot()
            asked = asyncio.create_task(node.ask("state", timeout_s=1.0))
            await silent.wait()
            await node.kill()
            assert await node.boot()
            with pytest.raises(NodeDownError):
                await asked
            assert node.up

    asyncio.run(test())


def test_an_agent_that_is_gone_is_no_crash_where_we_do_not_end_machines():
    async def test():
        machine = Machine(mortal=False)
        node = Node(PLAN, machine, "token")
        async with agent(machine):
            await node.boot()
        machine.running = False
        with pytest.raises(
            InfrastructureError, match="the agent on the machine of a1 does not answer 'inject'"
        ):
            await node.ask("inject", fault={"pause": True}, lease_s=1.0)

    asyncio.run(test())


def test_the_files_of_a_machine_are_copied_and_nothing_of_one_that_has_none(tmp_path):
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "segment").write_bytes(b"of a1")
    (tmp_path / "empty").mkdir()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(tmp_path, ".")
    source, target = Machine(), Machine()
    Node(PLAN, target, "token").copy_data(Node(PLAN, source, "token"))
    assert target.files == {}
    source.content["/nowhere/data"] = made.getvalue()
    Node(PLAN, target, "token").copy_data(Node(PLAN, source, "token"))
    assert target.files == {"/nowhere/data/journal/segment": b"of a1"}


def test_what_is_being_started_is_waited_for_before_it_is_removed(tmp_path):
    async def test():
        machine = Machine()
        machine.begins_s = 0.3
        left = []
        deployment = Deployment("run", lambda: left.append(machine.running))
        deployment.add(PLAN, machine, "token")
        node = deployment.nodes["a1"]
        node.made = True
        booting = asyncio.create_task(node.boot())
        await asyncio.sleep(0.1)
        booting.cancel()
        await deployment.remove()
        assert left == [True], "it is removed while it is being started"
        await node.collect(tmp_path / "a1")  # as who deployed does in the end, whether or not that worked

    asyncio.run(test())


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([{"cut": "", "slow": ""}, {"cut": "", "slow": ""}], {"cut": "", "slow": ""}),
        ([{"slow": "no netem"}, {"slow": "no netem"}], {"slow": "no netem"}),
        ([{"cut": "", "slow": ""}, {"cut": "no rules", "slow": ""}], {"cut": "a2: no rules", "slow": ""}),
    ],
)
def test_what_one_machine_lacks_cannot_be_done_and_it_is_named(answers, found):
    assert lacking(dict(zip(("a1", "a2"), answers, strict=True))) == found
