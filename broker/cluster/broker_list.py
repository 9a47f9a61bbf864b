"""The conditions, besides equal properties, on which brokers of a conventional cluster link (SUN).

No broker has an address that leads back to the machine that uses it: on another machine it would
lead to another broker, or to none. And all brokers have a version at least as new as the master's,
or all the same one if there is no master.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from broker.cluster import messages as m
from broker.ha_policy import ConventionalSection


async def loopback_problem(address: str, target: tuple[str, int]) -> str:
    """Return what is wrong with an announced address that leads to ``target``; "" if nothing is.

    Raises OSError if the name of the target is not known.
    """
    resolved = await asyncio.get_running_loop().getaddrinfo(*target, type=socket.SOCK_STREAM)
    hosts = {str(socket_address[0]) for *_, socket_address in resolved}
    loopbacks = sorted(host for host in hosts if _is_loopback(host))
    if not loopbacks:
        return ""
    return (
        f"{address} leads to {loopbacks[0]}, a loopback address, which on another machine leads elsewhere: "
        "give the broker an address of its network (ha-policy.conventional.allow-loopback is false)"
    )


def version_problem(section: ConventionalSection, own: m.Member, other: m.Member) -> str:
    """Return why the versions of two brokers do not fit; "" if they do."""
    if other.newest == own.newest:
        return ""
    versions = f"{other.name} has version {other.newest} of the cluster protocol, {own.name} {own.newest}"
    if not section.master_broker:
        return f"{versions}: in a cluster without a master broker all brokers must have the same version"
    for master, member in ((own, other), (other, own)):
        if master.connector == section.master_broker and member.newest < master.newest:
            return f"{versions}: no broker may be older than the master broker, {master.name}"
    return ""


def _is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
