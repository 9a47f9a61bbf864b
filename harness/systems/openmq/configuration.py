"""The files of one broker of Open MQ in a test: its properties, and how its JVM is run.

Properties reach the broker by its standard input, which its manual offers to managing programs. So
no file, command line or log has the password of its database. Times of a cluster are short here
(``times``); ``--set`` overrides each of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.postgresql import program
from harness.interface import DATABASE, Address, Layout, NodePlan
from harness.systems import runtime, shortened
from harness.systems.openmq import distribution, properties, times
from harness.systems.openmq.properties import CONVENTIONAL, HA_DATABASE, MASTER_BROKER

PORTS: Final = {"stomp": 7672, "cluster": 7676, "admin": 7680}
USER: Final = "guest"
PASSWORD: Final = "guest"  # noqa: S105 - what every new broker has
_ADMINISTRATOR: Final = "admin"

_ANY: Final = "0.0.0.0"
_CLUSTER_ID: Final = "test"
HEAP: Final = "192m"
_TO_RESTART: Final = 255
"""The exit status by which a broker asks to be started again, as after it was taken over."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "imq.persist.file.sync.enabled": True,
    **shortened.settings(times.GROUPS, ""),
    "imq.cluster.heartbeat.threshold": 3,
    "imq.cluster.monitor.threshold": 2,
    # The limit is above any load here: a full queue stops its producers.
    "imq.autocreate.destination.maxNumMsgs": -1,
    properties.ACTIVE_CONSUMERS: -1,
    # If one consumer alone may be active, all others may take its place.
    properties.BACKUP_CONSUMERS: -1,
}
_FIXED: Final[Mapping[str, Any]] = {
    "imq.bridge.enabled": True,
    "imq.bridge.activelist": "stomp",
    "imq.bridge.admin.user": _ADMINISTRATOR,
    "imq.bridge.admin.password": _ADMINISTRATOR,
    "imq.bridge.stomp.tcp.enabled": True,
    "imq.jmx.connector.activelist": "",
    "imq.jmx.mbeans.msg.enabled": True,
    "imq.log.file.output": "NONE",
    "java.util.logging.ConsoleHandler.formatter": "java.util.logging.SimpleFormatter",
}


def settings(chosen: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Return what is chosen, and for the rest the defaults of a test."""
    types = properties.KNOWN[policy]
    return {**{name: value for name, value in _DEFAULTS.items() if name in types}, **chosen}


def files(
    every: Mapping[str, Any],
    policy: str,
    node: NodePlan,
    nodes: Sequence[NodePlan],
    layout: Layout,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    place: str,
) -> dict[str, bytes]:
    """Return the content of each file by name; ``place`` is where the distribution is unpacked."""
    values = {**every}
    heap = f"{runtime.heap_mb(values.pop(properties.HEAP, HEAP))}m"
    master = values.pop(MASTER_BROKER, None)
    values |= {
        **_FIXED,
        "imq.instancename": node.name,
        "imq.portmapper.port": listen["cluster"].port,
        "imq.bridge.stomp.hostname": listen["stomp"].host,
        "imq.bridge.stomp.tcp.port": listen["stomp"].port,
    }
    if policy in (CONVENTIONAL, HA_DATABASE):
        values["imq.hostname"] = node.name
    elif listen["cluster"].host != _ANY:
        values["imq.hostname"] = listen["cluster"].host
    if policy == CONVENTIONAL:
        values["imq.cluster.brokerlist"] = ",".join(
            f"{broker.name}:{broker.ports['cluster']}" for broker in nodes
        )
        if master is not None:
            values[MASTER_BROKER] = f"{master}:{PORTS['cluster']}"
    if policy == HA_DATABASE:
        values |= {
            "imq.cluster.ha": True,
            "imq.cluster.clusterid": _CLUSTER_ID,
            properties.STORE: properties.JDBC,
        }
    on_database = values.get(properties.STORE) == properties.JDBC
    if on_database:
        values |= {
            # It is a part of the names of the tables that only this broker uses.
            "imq.brokerid": node.name,
            "imq.persist.jdbc.dbVendor": "postgresql",
            "imq.persist.jdbc.postgresql.needpassword": True,
            "imq.persist.jdbc.postgresql.opendburl": (
                f"jdbc:postgresql://{hosts[DATABASE]}/{program.DATABASE}"
            ),
        }
    addresses = {logical.partition(":")[0]: address.host for logical, address in hosts.items()}
    peers = {broker.name: addresses[broker.name] for broker in nodes if broker.name in addresses}
    lines = "".join(f"{address} {name}\n" for name, address in peers.items())
    return {
        "broker.properties": "".join(f"{name}={_word(value)}\n" for name, value in values.items()).encode(),
        "java.args": _arguments(heap, node, layout, listen["admin"], place),
        "peers": lines.encode(),
        "start": _start(node, layout, list(peers.values()), database=on_database),
    }


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arguments(heap: str, node: NodePlan, layout: Layout, admin: Address, place: str) -> bytes:
    every = (
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"-javaagent:{distribution.agent(place)}=host={admin.host},port={admin.port},discoveryEnabled=false",
        f"-Djdk.net.hosts.file={layout.etc}/hosts",
        "-Dnetworkaddress.cache.ttl=0",
        "-Djava.awt.headless=true",
        "-Duser.timezone=UTC",
        f"-Djava.util.logging.SimpleFormatter.format=%1$tFT%1$tT.%1$tLZ %4$-7s {node.name} %5$s%6$s%n",
        f"-Dimq.home={place}",
        f"-Dimq.varhome={layout.data}",
        f"-Dimq.etchome={place}/etc",
        f"-Dimq.libhome={place}/lib",
        "-cp",
        distribution.class_path(place),
        "com.sun.messaging.jmq.jmsserver.Broker",
        "-varhome",
        layout.data,
        "-name",
        node.name,
        "-tty",
        "-read-stdin",
    )
    return "".join(f'"{word}"\n' for word in every).encode()


def _start(node: NodePlan, layout: Layout, peers: Sequence[str], *, database: bool) -> bytes:
    """Return a shell script that stays with the JVM and starts it again if the broker asks.

    The distribution's own script does the same. A SIGTERM is left to the JVM. On a machine that is
    not named as its broker, both names resolve to its address, by which it reaches the ``peers``.
    """
    etc = shlex.quote(layout.etc)
    secrets = [
        "  printf 'imq.persist.jdbc.postgresql.user=%s\\n' \"$PGUSER\"",
        "  printf 'imq.persist.jdbc.postgresql.password=%s\\n' \"$PGPASSWORD\"",
    ]
    names = rf"\1 {node.name} $(uname -n)"
    address_lines = [
        f'ip -o route get {peer} | sed "s/.* src \\([^ ]*\\) .*/{names}/"; ' for peer in peers[:1]
    ]
    host_lines = "".join(f"grep -qw {node.name} /etc/hosts || {line}" for line in address_lines)
    lines = [
        "trap : TERM",
        f"mkdir -p {shlex.quote(layout.data)}/instances",
        f"{{ {host_lines}cat /etc/hosts {etc}/peers; }} > {etc}/hosts",
        "while :; do",
        f"  {{ cat {etc}/broker.properties",
        *(secrets if database else []),
        f"  }} | java @{etc}/java.args",
        "  status=$?",
        f'  if [ "$status" != {_TO_RESTART} ]; then exit "$status"; fi',
        "  sleep 1",
        "done",
    ]
    return "".join(f"{line}\n" for line in lines).encode()
