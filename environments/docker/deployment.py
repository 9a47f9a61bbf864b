"""The containers of one run, with their image, network and volumes."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from environments.agent.control import CONTROL_PORT
from environments.docker.base_image import Tell
from environments.docker.container import Container
from environments.docker.network import create_network, host_address
from environments.link_proxy import reserve_port
from environments.machines.deployment import Deployment
from harness.interface import InfrastructureError, NodePlan

_LOCAL: Final = ("http+unix://", "http+docker://", "http://127.0.0.1", "http://localhost")


@dataclass(frozen=True, kw_only=True)
class Service:
    """A machine of a run that is not a broker: a server that brokers need.

    Its container has an agent like the brokers', so its faults are leases, too. ``image`` makes the
    image if it is missing, and returns its tag. ``options`` are what its container needs in
    addition to a broker's, as the engine's SDK names it.
    """

    name: str
    image: Callable[[Any, Tell], str]
    options: Mapping[str, Any] = field(default_factory=dict)


def make_known(
    client: Any,
    deployment: Deployment,
    plans: Sequence[NodePlan],
    image: str,
    tell: Tell,
    *,
    services: Sequence[Service],
    options: Mapping[str, Mapping[str, Any]],
    publish: bool | None,
    homes: Mapping[str, str],
) -> None:
    """Make images and network, and the machines in memory, whose addresses are then known.

    ``image`` is that of the brokers, whose distribution is in ``homes``. Their containers are made
    by `Container.create`. ``options`` are what the containers of single nodes need in addition to
    the others', as the engine's SDK names it. ``publish`` reaches containers through ports of this
    host; None finds out whether that is needed. Blocks.
    """
    wanted = [(plan, image, options.get(plan.name, {})) for plan in plans]
    for service in services:
        plan = NodePlan(name=service.name, pair="", configured="service", ports={})
        wanted.append((plan, service.image(client, tell), service.options))
    if publish is None:
        publish = _must_publish(client)
    # A firewall of the engine drops multicasts that cross an internal network.
    broadcasts = any(plan.broadcasts for plan in plans)
    network, subnet = create_network(client, deployment.run, internal=not (publish or broadcasts))
    token = secrets.token_hex(16)
    with contextlib.ExitStack() as reserved:  # until all ports are chosen, so that none is given twice
        for number, (plan, chosen, special) in enumerate(wanted):
            published: dict[int, int] = {}
            for port in (CONTROL_PORT, *plan.ports.values()) if publish else ():
                published[port] = reserved.enter_context(reserve_port()).getsockname()[1]
            container = Container(
                client=client,
                run=deployment.run,
                node=plan.name,
                image=chosen,
                network=network.name,
                address=host_address(subnet, number),
                token=token,
                published=published,
                options=special,
                homes=homes,
            )
            deployment.add(plan, container, token, service=number >= len(plans))


def _must_publish(client: Any) -> bool:
    """Return whether this host cannot reach the containers' own addresses.

    It cannot where the engine runs in a virtual machine.
    """
    endpoint = str(client.api.base_url)
    if not endpoint.startswith(_LOCAL):
        raise InfrastructureError(
            f"the Docker engine at {endpoint} is on another machine, whose containers this one cannot reach; "
            "unset DOCKER_HOST, or run jepsen-run over there"
        )
    desktop = "desktop" in str(client.info().get("OperatingSystem", "")).lower()
    return desktop or not sys.platform.startswith("linux")
