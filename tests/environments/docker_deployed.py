"""Deployments on a real engine, for the tests of environments of machines.

Made, started, looked at, and what remains of them.
"""

import asyncio
from pathlib import Path

from docker_echo import BOUND_S, EchoSystem, say

from environments.docker.engine import RUN_LABEL
from environments.docker.environment import DockerEnvironment
from environments.ssh.environment import SshEnvironment
from harness.interface import Link, TestSpec

ROOT = Path(__file__).parents[2]
SYSTEM = EchoSystem()
SPEC = TestSpec(name="docker")


async def begin(environment, node):
    """Start a node's broker and wait until it answers; what it has kept."""
    await environment.start(node)
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                return await say(environment.resolve("admin", node, "admin"), "role")
            except OSError:
                await asyncio.sleep(0.02)


async def observe(environment, *links):
    found = (await environment.probe([Link(*link.split("->")) for link in links])).observed
    return tuple(found[link] for link in links)


async def dial(environment, source, target, timeout_s=BOUND_S / 2):
    """What happens when one node's broker connects to another's cluster port."""
    return await say(environment.resolve("admin", source, "admin"), f"dial {target}:61616 {timeout_s}")


SILENCE_S = 1.0
"""How long a test waits to be sure that no answer comes; a slow machine can only make it pass."""


async def deployed(names=("a1", "a2"), lease_s=600.0, hosts=(), **options):
    """A deployment whose faults outlast the test unless it is about their leases.

    With ``hosts`` it is on those.
    """
    if hosts:
        environment = SshEnvironment(hosts, lease_s=lease_s, **options)
    else:
        environment = DockerEnvironment(lease_s=lease_s, **options)
    await environment.deploy(SYSTEM, SPEC, SYSTEM.plan(SPEC, names), ROOT)
    return environment


def remains(client, run_name):
    chosen = {"label": f"{RUN_LABEL}={run_name}"}
    return [
        thing.name
        for things in (
            client.containers.list(all=True, filters=chosen),
            client.networks.list(filters=chosen),
            client.volumes.list(filters=chosen),
        )
        for thing in things
    ]
