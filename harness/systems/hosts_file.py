"""The names that resolve for one broker alone: each peer's to the address of its own link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.interface import Address, InfrastructureError, NodePlan

PORT: Final = "cluster"
"""The port by which brokers reach each other."""

_ANY: Final = "0.0.0.0"
_HERE: Final = "127.0.0.1"


def hosts_file(
    node: NodePlan,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    other_ports: Sequence[int] = (),
) -> bytes:
    """Return the lines of hosts(5); ``other_ports`` are ports of peers that are not brokers.

    Raises InfrastructureError if a peer does not have the announced port.
    """
    own_address = listen[PORT].host
    names = {"localhost": _HERE, node.name: _HERE if own_address == _ANY else own_address}
    for logical, address in hosts.items():
        peer, _, number = logical.partition(":")
        if int(number) not in (node.ports[PORT], *other_ports):
            continue
        if PORT in node.announced and address.port != int(number):
            raise InfrastructureError(
                f"{node.name} reaches {logical} at {address}, another port than is announced"
            )
        names[peer] = address.host
    return "".join(f"{address} {name}\n" for name, address in names.items()).encode()
