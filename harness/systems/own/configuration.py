"""The configuration of our brokers for a test.

Test defaults: the documents' default times are made for machines in production. A connection is
dead after a minute, a vote takes another; a test of 40 seconds would see nothing but waiting. So
the plug-in configures short times (``TEST_DEFAULTS``), with the proportions that the documents ask
for. A live notices that its backup is gone before the backup can have won a vote. A client gives up
before the broker gives its messages to others. All brokers of a test share the disk of this
machine, which may be fuller than a disk of one broker. ``--set NODE:property=value`` overrides each
default, where NODE is a node's name or "*".

A property of a policy may be written without the role, ``ha-policy.replication.vote-retries``: it
then holds for whichever of master and slave the node is. With "*" a property of one role is given
to the nodes of that role only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from broker import config
from broker.sections import AddressSettings
from harness.interface import DATABASE, Address, Layout, NodePlan, TestSpec, UsageError
from harness.systems import store
from harness.systems.own.credentials import Credentials
from harness.systems.own.policies import shared_store
from harness.systems.own.policies.registry import POLICIES
from workloads.registry import parts as workloads_of

LOGIN: Final = "tester"
PASSCODE: Final = "tester-secret"  # known to everybody: it keeps only strays out of a test
_CLUSTER_USER: Final = "cluster"

ADDRESSES: Final = "address-settings."
BROADCASTS: Final = "broadcast-groups."

TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "acceptor.connection-ttl": 2000,
    "broker.max-disk-usage": 98,
    "cluster.check-period": 500,
    "cluster.connection-ttl": 2000,
    "cluster.call-timeout": 1000,
    "cluster.retry-interval": 100,
    "cluster.max-retry-interval": 500,
}
"""Short times for tests (milliseconds), by dotted name, for every node."""

CHAINED: Final = ("standalone", "shared-store")
"""The policies whose brokers can form a chain."""

REFUSALS: Final[Mapping[str, Any]] = {
    f"{ADDRESSES}#.max-delivery-attempts": 3,
    f"{ADDRESSES}#.redelivery-delay": 100,
    "broker.message-expiry-scan-period": 1000,
}
"""Test defaults if clients refuse messages: messages die and expire within a test."""

REFUSALS_DRAWN: Final[Mapping[str, tuple[Any, ...]]] = {
    f"{ADDRESSES}#.max-delivery-attempts": (1, 2, 5),
    f"{ADDRESSES}#.redelivery-delay": (0, 700),
    f"{ADDRESSES}#.expiry-address": ("",),
    "broker.message-expiry-scan-period": (200, 30_000),
}
"""The values that a search draws for these."""

_DIRECT: Final = "cluster.allow-direct-connections-only"
_HOPS: Final = "cluster.max-hops"
_HA: Final = "ha-policy."
_ROLES: Final = ("master", "slave")


def table(
    spec: TestSpec,
    node: NodePlan,
    nodes: Sequence[NodePlan],
    layout: Layout,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    credentials: Credentials,
) -> dict[str, Any]:
    """Return the configuration of one node as a plain table, the spec's properties applied.

    Raises UsageError that names the property.
    """
    made: dict[str, Any] = {
        "broker": {"name": node.name, "data-directory": layout.data},
        "acceptor": {"users": {LOGIN: PASSCODE}, **_listen(listen, "stomp")},
        "admin": {**_listen(listen, "admin"), "secret": credentials.admin},
        "cluster": {
            "name": "test-cluster",
            **_listen(listen, "cluster"),
            "connector": _announced(node, "cluster"),
            "stomp-connector": _announced(node, "stomp"),
            "static-connectors": [_announced(other, "cluster") for other in _neighbours(spec, node, nodes)],
            "cluster-user": _CLUSTER_USER,
            "cluster-password": credentials.cluster,
        },
        "hosts": {name: str(address) for name, address in hosts.items() if name != DATABASE},
    }
    chain = {_DIRECT: True, _HOPS: max(1, spec.pairs - 1)} if spec.chain else {}
    of_policy = POLICIES[spec.policy].defaults(node, nodes, hosts)
    defaults = {**TEST_DEFAULTS, **chain, **of_load(spec), **of_policy}
    made = config.apply(made, defaults)
    everywhere, own_properties = (
        dict(_properties(spec.properties.get(chosen, {}), node, everywhere=chosen == "*"))
        for chosen in ("*", node.name)
    )
    try:
        return config.apply(
            made, {**everywhere, **own_properties}, f"--set {node.name if own_properties else '*'}"
        )
    except config.ConfigurationError as error:
        problem = str(error)
    try:
        config.apply(made, everywhere, "--set *")
    except config.ConfigurationError as error:
        problem = str(error)  # wrong already without the node's own properties
    raise UsageError(problem)


def of_load(spec: TestSpec) -> Mapping[str, Any]:
    """Return the defaults that a test's load needs."""
    return REFUSALS if "refusals" in workloads_of(spec.workload) else {}


def attempts(spec: TestSpec) -> tuple[int, int]:
    """Return after how many refusals a message may be dead, and certainly is.

    -1: never, or not known. If several settings may hold for a queue, these are the lowest and the
    highest.
    """
    bounds = _of_addresses(spec, "max-delivery-attempts", AddressSettings().max_delivery_attempts)
    has_own_value = any(
        name.startswith(ADDRESSES) and not name.startswith(f"{ADDRESSES}#.")
        for node_properties in spec.properties.values()
        for name in node_properties
    )
    if has_own_value:  # each of these has its own value, or the default
        bounds.append(AddressSettings().max_delivery_attempts)
    least = min((bound for bound in bounds if bound >= 0), default=-1)
    return least, -1 if min(bounds) < 0 else max(bounds)


def redelivery_s(spec: TestSpec) -> float:
    """Return the maximum time that a refused message waits until it is delivered again (s)."""
    return max(_of_addresses(spec, "redelivery-delay", AddressSettings().redelivery_delay)) / 1000


def _of_addresses(spec: TestSpec, setting: str, default: int) -> list[int]:
    """Return all values of a setting that may hold for a queue."""
    name, everywhere = f"{ADDRESSES}#.{setting}", spec.properties.get("*", {})
    return [everywhere.get(name, of_load(spec).get(name, default))] + [
        value
        for node_properties in spec.properties.values()
        for property_name, value in node_properties.items()
        if property_name.startswith(ADDRESSES) and property_name.endswith(f".{setting}")
    ]


def _properties(values: Mapping[str, Any], node: NodePlan, *, everywhere: bool) -> Iterator[tuple[str, Any]]:
    """Yield the properties that concern ``node``, with the role written out."""
    for name, value in values.items():
        policy, dot, rest = name.removeprefix(_HA).partition(".")
        if not (name.startswith(_HA) and dot and policy in POLICIES and POLICIES[policy].by_role):
            yield name, value
            continue
        if name == shared_store.STORE:
            raise UsageError(f"--set {name}: choose the store with --set {store.NAME}:{store.TYPE}=database")
        role, dot, _ = rest.partition(".")
        if not dot and node.configured in _ROLES:
            yield f"{_HA}{policy}.{node.configured}.{role}", value
        elif role in _ROLES and role != node.configured:
            if not everywhere:
                raise UsageError(
                    f"--set {node.name}: {name} is for a {role}, and {node.name} is a {node.configured}"
                )
        else:
            yield name, value


def _neighbours(spec: TestSpec, node: NodePlan, nodes: Sequence[NodePlan]) -> Iterator[NodePlan]:
    """Yield the other brokers that a broker is linked with: all, or those of pairs beside it."""
    pairs = list(dict.fromkeys(other.pair for other in nodes))
    for other in nodes:
        distance = abs(pairs.index(other.pair) - pairs.index(node.pair))
        if other.name != node.name and (distance <= 1 or not spec.chain):
            yield other


def _announced(node: NodePlan, port: str) -> str:
    return f"{node.name}:{node.ports[port]}"


def _listen(listen: Mapping[str, Address], port: str) -> dict[str, Any]:
    address = listen.get(port)
    return {} if address is None else {"host": address.host, "port": address.port}
