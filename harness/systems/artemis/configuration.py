"""The files of one broker of Artemis in a test: ``broker.xml`` and the arguments of its JVM.

An instance needs no ``artemis create``: these files and an empty directory are one. Times are short
(``times``); ``--set`` overrides each default.
"""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import TOPIC, Address, Layout, NodePlan
from harness.systems import runtime, shortened
from harness.systems.artemis import properties, times, zookeeper
from harness.systems.artemis.management import DEAD_LETTERS
from harness.systems.artemis.properties import (
    HA,
    LOCK_MANAGER,
    MANAGER,
    MASTER,
    REPLICATION,
    SECTIONS,
    SHARED_STORE,
    SLAVE,
    Chosen,
)
from harness.systems.hosts_file import hosts_file

PORTS: Final = {"stomp": 61613, "cluster": 61616, "admin": 8161}

_CORE: Final[Mapping[str, Any]] = {
    "persistence-enabled": True,
    "security-enabled": False,
    "jmx-management-enabled": True,
    "journal-datasync": True,
    "journal-sync-transactional": True,
    "journal-sync-non-transactional": True,
    **shortened.settings(times.GROUPS, "broker."),
}
_BROKER: Final[Mapping[str, Any]] = {
    "journal-type": "NIO",
    "journal-file-size": 4 << 20,
    "journal-min-files": 2,
    "journal-buffer-timeout": 200_000,
    "max-disk-usage": 100,  # all brokers of a test share the disk of this machine
    "disk-scan-period": 60_000,
    "global-max-size": 100 << 20,
    "critical-analyzer": False,
}
_CLUSTER: Final[Mapping[str, Any]] = {
    **shortened.settings(times.GROUPS, "cluster."),
    "retry-interval-multiplier": 1.5,
    "initial-connect-attempts": -1,
    "reconnect-attempts": -1,
    "message-load-balancing": "OFF",
    "max-hops": 1,
}
_REGISTRATION_MS: Final = 10_000
"""The time to register with a live under a lock manager.

A backup ends for good if its live is slower to answer its first call.
"""

_ADDRESS: Final[Mapping[str, Any]] = {
    "dead-letter-address": DEAD_LETTERS,
    "max-delivery-attempts": -1,
    "redelivery-delay": 0,
    "auto-create-queues": False,
    "auto-delete-queues": False,
    "auto-create-addresses": False,
    "auto-delete-addresses": False,
    "management-message-attribute-size-limit": -1,  # else the shown part of a body is cut
}
_TIMES: Final = shortened.settings(times.GROUPS, "ha-policy.replication.")
_COPIED: Final[Mapping[str, Any]] = {
    "retry-replication-wait": _TIMES["retry-replication-wait"],
    "initial-replication-sync-timeout": 30_000,
}
_REPLICATED: Final[Mapping[str, Any]] = {
    "vote-on-replication-failure": True,
    "vote-retries": 12,
    "vote-retry-wait": _TIMES["vote-retry-wait"],
    "quorum-vote-wait": _TIMES["quorum-vote-wait"],
    **_COPIED,
}
_LOCKED: Final[Mapping[str, Any]] = {
    **_COPIED,
    f"{MANAGER}connect-string": f"{zookeeper.NAME}:{zookeeper.PORT}",
    f"{MANAGER}session-ms": _TIMES[f"{MANAGER}session-ms"],
}
_FAILBACK: Final[Mapping[str, Any]] = {"allow-failback": True, "restart-backup": True}
_ROLES: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    (REPLICATION, MASTER): {**_REPLICATED, "check-for-live-server": True},
    (REPLICATION, SLAVE): {**_REPLICATED, **_FAILBACK},
    (LOCK_MANAGER, MASTER): _LOCKED,
    (LOCK_MANAGER, SLAVE): {**_LOCKED, properties.FAILBACK: True},
    (SHARED_STORE, MASTER): {"failover-on-shutdown": True, "wait-for-activation": False},
    (SHARED_STORE, SLAVE): {"failover-on-shutdown": True, **_FAILBACK},
}
_HEAP: Final = "256m"
_TEMPORARY: Final = "tmp"

_BEATS: Final = 5.0
"""The heart-beats after which a broker gives a silent client up; the client gives it up sooner."""

_LOGIN: Final = b"""activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule required
  org.apache.activemq.jaas.guest.user="guest" org.apache.activemq.jaas.guest.role="amq";
};
"""
_LOG: Final = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
logger.jetty.name = org.eclipse.jetty
logger.jetty.level = WARN
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %-5level {name} %msg%n%throwable
"""
_WEB: Final = """<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0" metadata-complete="true">
<servlet>
<servlet-name>jolokia</servlet-name>
<servlet-class>org.jolokia.server.core.http.AgentServlet</servlet-class>
<load-on-startup>1</load-on-startup>
</servlet>
<servlet-mapping><servlet-name>jolokia</servlet-name><url-pattern>/*</url-pattern></servlet-mapping>
</web-app>
"""


def files(
    chosen: Chosen,
    policy: str,
    node: NodePlan,
    nodes: Sequence[NodePlan],
    queues: Sequence[str],
    layout: Layout,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    place: str,
    class_path: str,
) -> dict[str, bytes]:
    """Return the content of each file by name; ``place`` is where the distribution is unpacked."""
    names = hosts_file(node, listen, hosts, [zookeeper.PORT] if policy == LOCK_MANAGER else [])
    log = _LOG.format(name=node.name).encode()
    if not node.broker:
        return zookeeper.files(layout, listen, log, names)
    admin = listen["admin"]
    bootstrap = ET.Element("broker", xmlns="http://activemq.apache.org/schema")
    _child(bootstrap, "jaas-security", domain="activemq")
    _child(bootstrap, "server", configuration=f"file:{layout.etc}/broker.xml")
    web = _child(bootstrap, "web", path=layout.etc)
    binding = _child(web, "binding", name="admin", uri=f"http://{admin}")
    _child(binding, "app", name="jolokia", url="jolokia", war="jolokia.war")
    return {
        "broker.xml": _document(_broker(chosen, policy, node, nodes, queues, layout, listen)),
        "bootstrap.xml": _document(bootstrap),
        "management.xml": b'<management-context xmlns="http://activemq.apache.org/schema"/>\n',
        "login.config": _LOGIN,
        "log4j2.properties": log,
        "jolokia.war": _war(),
        "hosts": names,
        "lock/about": b"Artemis looks here for a request to stop.\n",
        f"{_TEMPORARY}/about": b"Of the JVM.\n",
        "java.args": _arguments(chosen, layout, place, class_path),
    }


def heap_mb(chosen: Chosen) -> int:
    """Return the heap of a broker's JVM (MB). Raises UsageError for a text that is not a size."""
    heap = chosen.get("jvm", {}).get("heap", _HEAP)
    return runtime.heap_mb(heap)


def _arguments(chosen: Chosen, layout: Layout, place: str, class_path: str) -> bytes:
    heap = chosen.get("jvm", {}).get("heap", _HEAP)
    words = (
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"-Djdk.net.hosts.file={layout.etc}/hosts",
        "-Dnetworkaddress.cache.ttl=0",
        "-Dlog4j2.disableJmx=true",
        "-Dzookeeper.sasl.client=false",
        f"-Dlog4j2.configurationFile={layout.etc}/log4j2.properties",
        f"-Djava.security.auth.login.config={layout.etc}/login.config",
        f"-Djava.io.tmpdir={layout.etc}/{_TEMPORARY}",
        "--add-opens",
        "java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Djava.library.path={place}/bin/lib/linux-x86_64",  # for journal-type ASYNCIO
        f"-Dartemis.home={place}",
        f"-Dartemis.instance={layout.etc}",
        f"-Dartemis.instance.etc={layout.etc}",
        f"-Ddata.dir={layout.data}",
        "-cp",
        class_path,
        "org.apache.activemq.artemis.cli.Artemis",
        "run",
    )
    return "".join(f'"{word}"\n' for word in words).encode()


def _broker(
    chosen: Chosen,
    policy: str,
    node: NodePlan,
    nodes: Sequence[NodePlan],
    queues: Sequence[str],
    layout: Layout,
    listen: Mapping[str, Address],
) -> ET.Element:
    root = ET.Element("configuration", xmlns="urn:activemq")
    core = _child(root, "core", xmlns="urn:activemq:core")
    _settings(core, {"name": node.name, **_CORE, **_BROKER, **chosen.get("broker", {})})
    for directory in ("bindings", "journal", "large-messages", "paging"):
        _child(core, f"{directory}-directory").text = f"{layout.data}/{directory}"
    if policy == SHARED_STORE:
        _child(core, "node-manager-lock-directory").text = f"{layout.data}/journal"
    brokers = [plan for plan in nodes if plan.broker]
    connectors = _child(core, "connectors")
    for plan in brokers:
        _child(connectors, "connector", name=plan.name).text = f"tcp://{plan.name}:{plan.ports['cluster']}"
    acceptors = _child(core, "acceptors")
    _child(acceptors, "acceptor", name="cluster").text = f"tcp://{listen['cluster']}?protocols=CORE"
    _child(acceptors, "acceptor", name="stomp").text = f"tcp://{listen['stomp']}?{_stomp(chosen)}"
    if (policy, node.configured) in _ROLES:
        section = _child(_child(core, "ha-policy"), SECTIONS.get(policy, policy))
        settings = {**_ROLES[policy, node.configured], **chosen.get(HA, {})}
        if policy != SHARED_STORE:
            settings = {"group-name": node.pair, **settings}
        _side(_child(section, properties.SIDES[node.configured]), settings)
    _child(core, "cluster-user").text = "cluster"
    _child(core, "cluster-password").text = "cluster"
    if len(brokers) > 1:
        timing = {"call-timeout": _REGISTRATION_MS} if policy == LOCK_MANAGER else {}
        _cluster(core, {**_CLUSTER, **timing, **chosen.get("cluster", {})}, node, brokers)
    everywhere = _child(_child(core, "address-settings"), "address-setting", match="#")
    _settings(everywhere, {**_ADDRESS, **chosen.get("address-settings", {})})
    addresses = _child(core, "addresses")
    for queue in (*queues, DEAD_LETTERS):
        address = _child(addresses, "address", name=queue)
        if queue.startswith(TOPIC):
            _child(address, "multicast")
        else:
            _child(_child(address, "anycast"), "queue", name=queue)
    return root


def _cluster(
    core: ET.Element, settings: Mapping[str, Any], node: NodePlan, nodes: Sequence[NodePlan]
) -> None:
    connection = _child(_child(core, "cluster-connections"), "cluster-connection", name="test-cluster")
    _child(connection, "connector-ref").text = node.name
    _settings(connection, settings)
    static = _child(connection, "static-connectors")
    for peer in nodes:
        if peer.name != node.name:
            _child(static, "connector-ref").text = peer.name


def _stomp(chosen: Chosen) -> str:
    options: dict[str, Any] = {
        "protocols": "STOMP",
        "anycastPrefix": "/queue/",
        "connectionTtlMin": 1000,
        "heartBeatToConnectionTtlModifier": _BEATS,
    }
    names = {"connection-ttl": "connectionTtl", "min-large-message-size": "stompMinLargeMessageSize"}
    options |= {names[key]: value for key, value in chosen.get("acceptor", {}).items()}
    return ";".join(f"{name}={value}" for name, value in options.items())


def _side(role: ET.Element, settings: Mapping[str, Any]) -> None:
    """Write a role's own section; the lock manager's settings become its properties."""
    plain = {key: value for key, value in settings.items() if not key.startswith(MANAGER)}
    if len(plain) < len(settings):
        elements = _child(_child(role, "manager"), "properties")
        for key, value in settings.items():
            if key.startswith(MANAGER):
                _child(elements, "property", key=key.removeprefix(MANAGER), value=str(value))
    _settings(role, plain)


def _settings(parent: ET.Element, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        name, text = properties.in_artemis(key, value)
        _child(parent, name).text = text


def _child(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, attributes)


def _document(root: ET.Element) -> bytes:
    ET.indent(root)
    text: str = ET.tostring(root, "unicode", xml_declaration=True)
    return f"{text}\n".encode()


def _war() -> bytes:
    """Return a web application with Jolokia's servlet alone; its classes are on the class path."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("WEB-INF/web.xml"), _WEB)
    return made.getvalue()
