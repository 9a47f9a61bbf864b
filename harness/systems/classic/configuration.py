"""The files of one broker of Classic in a test: ``activemq.xml`` and the arguments of its JVM.

Times are short (``times``); ``--set`` overrides each default.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from environments.postgresql import program
from harness.interface import DATABASE, Address, Layout, NodePlan
from harness.systems import runtime, shortened
from harness.systems.classic import distribution, properties, times
from harness.systems.classic.properties import JDBC, LEASE, NETWORK, SHARED_STORE, Chosen
from harness.systems.hosts_file import hosts_file

PORTS: Final = {"stomp": 61613, "cluster": 61616, "admin": 8161}

_CORE: Final = "http://activemq.apache.org/schema/core"
_BEANS: Final = "http://www.springframework.org/schema/beans"
_SCHEMAS: Final = (
    f"{_BEANS} {_BEANS}/spring-beans.xsd http://activemq.apache.org/schema/core {_CORE}/activemq-core.xsd"
)

_KAHADB: Final[Mapping[str, Any]] = {"journalMaxFileLength": "8mb", "journalDiskSyncStrategy": "always"}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "policyEntry": {"queue": ">", "maxBrowsePageSize": 10_000_000},
    "kahaDB": _KAHADB,
    "jdbcPersistenceAdapter": {
        "locker": LEASE,
        **shortened.settings(times.GROUPS, "jdbcPersistenceAdapter."),
    },
    **{
        element: shortened.settings(times.GROUPS, f"{element}.")
        for element in (
            "shared-file-locker",
            properties.LEASE,
            properties.LOCK,
            "networkConnector",
            "leaseLockerIOExceptionHandler",
        )
    },
    # The heart-beats after which a broker gives a silent client up; the client does so sooner.
    "transportConnector": {"transport.hbGracePeriodMultiplier": 5},
}
_HEAP: Final = "256m"
_TEMPORARY: Final = "tmp"

_LOG4J2: Final = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.jetty.name = org.eclipse.jetty
logger.jetty.level = WARN
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %-5level {name} %msg%n%throwable
"""
_LOG4J: Final = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.EnhancedPatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %-5p {name} %m%n
"""
_JETTY: Final = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://www.eclipse.org/jetty/configure_9_3.dtd">
<Configure id="admin" class="org.eclipse.jetty.server.Server">
 <Arg><New class="java.net.InetSocketAddress">
  <Arg>{host}</Arg><Arg type="int">{port}</Arg>
 </New></Arg>
 <Set name="handler"><New class="org.eclipse.jetty.servlet.ServletContextHandler">
  <Set name="contextPath">/jolokia</Set>
  <Call name="addServlet"><Arg type="String">org.jolokia.http.AgentServlet</Arg><Arg>/*</Arg></Call>
 </New></Set>
 <Call name="start"/>
 <Call class="org.apache.activemq.console.Main" name="main"><Arg><Array type="java.lang.String">
  <Item>start</Item><Item>{uri}</Item>
 </Array></Arg></Call>
</Configure>
"""
"""Jetty starts before the broker and runs apart from it.

So it answers for a broker that waits, stops or begins anew.
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
) -> dict[str, bytes]:
    """Return the content of each file by name; ``place`` is where the distribution is unpacked."""
    jars = distribution.jars()
    uri = f"xbean:file:{layout.etc}/activemq.xml"
    admin = listen["admin"]
    if distribution.web(jars):
        words = ["org.eclipse.jetty.xml.XmlConfiguration", f"{layout.etc}/jetty.xml"]
        agent = []
    else:
        words = ["org.apache.activemq.console.Main", "start", uri]
        options = f"host={admin.host},port={admin.port},discoveryEnabled=false"
        agent = [f"-javaagent:{distribution.path_at(jars['jolokia-agent-jvm'], place)}={options}"]
    document = _document(policy, node, nodes, queues, layout, listen, hosts, settings(chosen, policy))
    heap = f"{heap_mb(chosen)}m"
    return {
        "activemq.xml": document,
        "jetty.xml": _JETTY.format(host=admin.host, port=admin.port, uri=uri).encode(),
        "log4j2.properties": _LOG4J2.format(name=node.name).encode(),
        "log4j.properties": _LOG4J.format(name=node.name).encode(),
        "hosts": hosts_file(node, listen, hosts),
        f"{_TEMPORARY}/about": b"Of the JVM and of what Classic does not keep.\n",
        "java.args": _arguments(heap, layout, distribution.class_path(jars, place), [*agent], words),
    }


def heap_mb(chosen: Chosen) -> int:
    """Return the heap of a broker's JVM (MB). Raises UsageError for a text that is not a size."""
    return runtime.heap_mb(chosen.get("jvm", {}).get("heap", _HEAP))


def settings(chosen: Chosen, policy: str) -> Chosen:
    """Return what is chosen, and for the rest the defaults of a test."""
    every = {
        element: {**_DEFAULTS.get(element, {}), **chosen.get(element, {})}
        for element in properties.ELEMENTS[policy]
    }
    if policy == SHARED_STORE:
        every["kahaDB"] = {**shortened.settings(times.GROUPS, "kahaDB."), **every["kahaDB"]}
    if policy == JDBC and every["jdbcPersistenceAdapter"]["locker"] == LEASE:
        every["broker"] = {"ioExceptionHandler": "leaseLockerIOExceptionHandler", **every["broker"]}
    return every


def _arguments(
    heap: str, layout: Layout, class_path: str, agent: Sequence[str], words: Sequence[str]
) -> bytes:
    every = (
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        *agent,
        f"-Djdk.net.hosts.file={layout.etc}/hosts",
        "-Dnetworkaddress.cache.ttl=0",
        "-Djava.awt.headless=true",
        "-Dlog4j2.disableJmx=true",
        f"-Dlog4j2.configurationFile={layout.etc}/log4j2.properties",
        f"-Dlog4j.configuration=file:{layout.etc}/log4j.properties",
        f"-Djava.io.tmpdir={layout.etc}/{_TEMPORARY}",
        *(f"-Dactivemq.{name}={layout.etc}" for name in ("home", "base", "conf")),
        f"-Dactivemq.data={layout.etc}/{_TEMPORARY}",
        "-cp",
        class_path,
        *words,
    )
    return "".join(f'"{word}"\n' for word in every).encode()


def _document(
    policy: str,
    node: NodePlan,
    nodes: Sequence[NodePlan],
    queues: Sequence[str],
    layout: Layout,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    every: Chosen,
) -> bytes:
    beans = ET.Element("beans", {"xmlns": _BEANS, "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance"})
    beans.set("xsi:schemaLocation", _SCHEMAS)
    attributes = dict(every["broker"])
    handler = attributes.pop("ioExceptionHandler", properties.HANDLERS[0])
    broker = _child(beans, "broker", xmlns=_CORE, brokerName=node.name, schedulerSupport=False)
    broker.set("dataDirectory", f"{layout.etc}/{_TEMPORARY}")
    _set(broker, attributes)
    _child(_child(_child(_child(broker, "destinationPolicy"), "policyMap"), "policyEntries"), "policyEntry",
           **every["policyEntry"])  # fmt: skip
    destinations = _child(broker, "destinations")
    for queue in queues:
        _child(destinations, "queue", physicalName=queue)
    _child(_child(broker, "ioExceptionHandler"), handler, **every[handler])
    _child(_child(broker, "managementContext"), "managementContext", createConnector=False)
    if policy == NETWORK:
        _bridges(broker, node, nodes, every["networkConnector"])
    _store(_child(broker, "persistenceAdapter"), policy, layout, every)
    connector = dict(every["transportConnector"])
    options = {name: connector.pop(name) for name in list(connector) if "." in name}
    connectors = _child(broker, "transportConnectors")
    uri = f"stomp://{listen['stomp']}?{urlencode(options)}"
    _child(connectors, "transportConnector", name="stomp", uri=uri, **connector)
    if policy == NETWORK:
        inactive = _inactive(every["networkConnector"])
        _child(connectors, "transportConnector", name="openwire", uri=f"tcp://{listen['cluster']}?{inactive}",
               **connector)  # fmt: skip
    if policy == JDBC:
        _pool(beans, hosts[DATABASE], node.pair)
    ET.indent(beans)
    text: str = ET.tostring(beans, "unicode", xml_declaration=True)
    return f"{text}\n".encode()


def _store(parent: ET.Element, policy: str, layout: Layout, every: Chosen) -> None:
    if policy != JDBC:
        kahadb = _child(parent, "kahaDB", directory=f"{layout.data}/kahadb", **every["kahaDB"])
        if policy == SHARED_STORE:
            _child(_child(kahadb, "locker"), "shared-file-locker", **every["shared-file-locker"])
        return
    values = dict(every["jdbcPersistenceAdapter"])
    locker = values.pop("locker")
    adapter = _child(parent, "jdbcPersistenceAdapter", dataSource="#database", **values)
    adapter.set("dataDirectory", f"{layout.etc}/{_TEMPORARY}")
    _child(_child(adapter, "locker"), locker, **every[locker])


def _bridges(
    broker: ET.Element, node: NodePlan, nodes: Sequence[NodePlan], values: Mapping[str, Any]
) -> None:
    connectors = _child(broker, "networkConnectors")
    plain = {name: value for name, value in values.items() if "." not in name}
    reconnecting = urlencode(shortened.settings(times.GROUPS, "static."))
    for peer in nodes:
        if peer.name != node.name:
            at = f"tcp://{peer.name}:{peer.ports['cluster']}?{_inactive(values)}"
            _child(
                connectors, "networkConnector", name=peer.name, uri=f"static:({at})?{reconnecting}", **plain
            )


def _inactive(values: Mapping[str, Any]) -> str:
    name = "wireFormat.maxInactivityDuration"
    return urlencode({name: values[name], f"{name}InitalDelay": values[name]})


def _pool(beans: ET.Element, server: Address, pair: str) -> None:
    """Add the pool of connections to the database; credentials are in the broker's environment.

    Each pair has a schema of its own: a prefix is not applied to constraints, so that the tables of
    two pairs could not be made.
    """
    pool = _child(beans, "bean", id="database", **{"class": "org.apache.commons.dbcp2.BasicDataSource"})
    pool.set("destroy-method", "close")
    values = {
        "driverClassName": "org.postgresql.Driver",
        "url": f"jdbc:postgresql://{server}/{program.DATABASE}",
        "username": "#{systemEnvironment['PGUSER']}",
        "password": "#{systemEnvironment['PGPASSWORD']}",
        "maxTotal": 16,
        "poolPreparedStatements": True,
    }
    for name, value in values.items():
        _child(pool, "property", name=name, value=value)
    first = _child(_child(pool, "property", name="connectionInitSqls"), "list")
    for sql in (f"CREATE SCHEMA IF NOT EXISTS {pair}", f"SET search_path TO {pair}"):
        _child(first, "value").text = sql


def _set(element: ET.Element, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        element.set(name, str(value).lower() if isinstance(value, bool) else str(value))


def _child(parent: ET.Element, tag: str, **attributes: Any) -> ET.Element:
    child = ET.SubElement(parent, tag)
    _set(child, attributes)
    return child
