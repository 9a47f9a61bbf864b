"""The bridge network of one deployment, with addresses that we choose.

Why we choose: firewall rules and the brokers' tables of hosts name addresses, and a container that
is killed and started again must come back under its own. The engine allows that only in a network
whose subnet was asked for. So we let it pick a free one (it knows its administrator's pools, and
which routes the host has), and ask for exactly that subnet.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from environments.docker.engine import labels
from harness.interface import InfrastructureError

_ATTEMPTS: Final = 5
_FIRST_HOST: Final = 10
"""The number of the first host; lower ones are for the gateway and other things of the engine."""


def create_network(client: Any, run: str, *, internal: bool) -> tuple[Any, ipaddress.IPv4Network]:
    """Make the run's network; an ``internal`` one has no way out, which brokers do not need.

    Raises InfrastructureError if the engine has no addresses left.
    """
    from docker.errors import APIError  # noqa: PLC0415
    from docker.types import IPAMConfig, IPAMPool  # noqa: PLC0415

    problem: Any = None
    for _ in range(_ATTEMPTS):
        try:
            found = client.networks.create(f"{run}-subnet", driver="bridge", labels=labels(run))
            found.reload()
            subnet = found.attrs["IPAM"]["Config"][0]["Subnet"]
            found.remove()
            ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
            network = client.networks.create(
                run, driver="bridge", internal=internal, ipam=ipam, labels=labels(run)
            )
        except APIError as error:
            problem = error.explanation or error
            if "overlap" not in str(problem):
                break
        else:
            return network, ipaddress.IPv4Network(subnet)
    raise InfrastructureError(
        f"the engine could not make a network: {problem}; `jepsen-run clean` removes those of earlier "
        "runs, `docker network prune` others"
    )


def host_address(subnet: ipaddress.IPv4Network, number: int) -> str:
    """Return the address of the node with this number, counted from 0."""
    assert _FIRST_HOST + number < subnet.num_addresses - 1, "more nodes than addresses"
    return str(subnet.network_address + _FIRST_HOST + number)
