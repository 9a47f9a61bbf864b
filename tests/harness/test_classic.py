"""Classic as a system under test: its configuration, its answers; with a distribution, its runs."""

import asyncio
import contextlib
import json
import zipfile
from xml.etree import ElementTree as ET

import pytest
from jolokia_stub import jolokia, voting  # noqa: F401 - fixtures

from harness.commands import cli
from harness.interface import DATABASE, Address, Layout, TestSpec, UsageError
from harness.systems import given, registry
from harness.systems.classic import configuration, distribution, properties
from harness.systems.classic.events import EVENTS
from harness.systems.classic.management import Management

LAYOUT = Layout(etc="/n/etc", data="/n/data", logs="/n/logs", homes={"classic": "/opt/homes/classic"})
LISTEN = {port: Address("127.0.0.1", number) for port, number in configuration.PORTS.items()}
HOSTS = {"b1:61616": Address("127.3.2.1", 61616), DATABASE: Address("127.0.0.1", 5555)}
CORE = "{http://activemq.apache.org/schema/core}"
BEANS = "{http://www.springframework.org/schema/beans}"


def spec(policy="shared-store", **more):
    return TestSpec(name="t", system="classic", policy=policy, pairs=2, environment="local", **more)


def unpacked(place, *more, web=True):
    """A distribution of Apache's that has only names."""
    names = [*distribution._NEEDED, *more]
    for part in ("optional", "web"):
        (place / "lib" / part).mkdir(parents=True, exist_ok=True)
    for name in names:
        (place / "lib" / f"{name}-5.17.6.jar").touch()
    for name in distribution._WEB if web else ():
        (place / "lib" / "web" / f"{name}-9.4.53.v20231009.jar").touch()
    return place


@pytest.fixture
def distributed(tmp_path, monkeypatch):
    """A distribution of names is given."""
    monkeypatch.delenv(given.HOME, raising=False)
    place = unpacked(tmp_path / "activemq", "postgresql", "commons-dbcp2", "activemq-jdbc-store")
    monkeypatch.setenv(distribution.HOME, str(place))
    return place


def instance(node, a_spec):
    """The root of ``activemq.xml``, and all files."""
    system = registry.of(a_spec)
    nodes = system.plan(a_spec)
    plan = next(each for each in nodes if each.name == node)
    files = system.files(a_spec, plan, nodes, LAYOUT, LISTEN, HOSTS)
    return ET.fromstring(files["activemq.xml"]), files


def attributes(root, path):
    return root.find(f".//{CORE}{path}").attrib


@pytest.mark.usefixtures("distributed")
def test_properties_are_attributes_of_the_elements_they_name():
    given_ = {
        "*": {
            "kahaDB.lockKeepAlivePeriod": 2000,
            "policyEntry.strictOrderDispatch": True,
            "jvm.heap": "300m",
        },
        "a2": {"shared-file-locker.lockAcquireSleepInterval": 50},
    }
    first, files = instance("a1", spec(properties=given_))
    second, _ = instance("a2", spec(properties=given_))
    kahadb = attributes(first, "kahaDB")
    assert (kahadb["directory"], kahadb["lockKeepAlivePeriod"]) == ("/n/data/kahadb", "2000")
    assert kahadb["journalDiskSyncStrategy"] == "always"
    assert attributes(first, "policyEntry")["strictOrderDispatch"] == "true"
    assert attributes(first, "shared-file-locker")["lockAcquireSleepInterval"] == "500"
    assert attributes(second, "shared-file-locker")["lockAcquireSleepInterval"] == "50"
    assert [each.get("physicalName") for each in first.iter(f"{CORE}queue")] == ["q0"]
    assert '"-Xmx300m"' in files["java.args"].decode()


@pytest.mark.usefixtures("distributed")
def test_pairs_on_a_database_have_schemas_of_their_own_and_no_file_has_its_password():
    root, _ = instance("b2", spec("jdbc"))
    first = [each.text for each in root.iter(f"{BEANS}value")]
    assert first == ["CREATE SCHEMA IF NOT EXISTS b", "SET search_path TO b"]
    assert root.find(f".//{CORE}lease-database-locker") is not None
    assert root.find(f".//{CORE}leaseLockerIOExceptionHandler") is not None
    pool = {each.get("name"): each.get("value") for each in root.iter(f"{BEANS}property")}
    assert pool["url"] == "jdbc:postgresql://127.0.0.1:5555/postgres"
    assert pool["password"] == "#{systemEnvironment['PGPASSWORD']}"
    other, _ = instance(
        "a1", spec("jdbc", properties={"*": {"jdbcPersistenceAdapter.locker": "database-locker"}})
    )
    assert other.find(f".//{CORE}database-locker") is not None
    assert other.find(f".//{CORE}defaultIOExceptionHandler") is not None


@pytest.mark.usefixtures("distributed")
def test_brokers_of_a_network_name_each_other_and_names_resolve_to_their_own_links():
    root, files = instance("a1", spec("network"))
    (bridge,) = root.iter(f"{CORE}networkConnector")
    assert bridge.get("uri").startswith("static:(tcp://b1:61616?")
    assert [each.get("name") for each in root.iter(f"{CORE}transportConnector")] == ["stomp", "openwire"]
    assert files["hosts"].decode().splitlines() == ["127.0.0.1 localhost", "127.0.0.1 a1", "127.3.2.1 b1"]
    alone, _ = instance("a1", spec("standalone"))
    assert alone.find(f".//{CORE}networkConnector") is None


def test_where_a_distribution_has_no_console_an_agent_answers(distributed):
    _, files = instance("a1", spec())
    assert '"org.eclipse.jetty.xml.XmlConfiguration"' in files["java.args"].decode()
    for jar in (distributed / "lib" / "web").iterdir():
        jar.unlink()
    assert "its agent is enough. To get it: mvn" in distribution.missing()
    (distributed / "lib" / "optional" / "jolokia-agent-jvm-2.1.2-javaagent.jar").touch()
    _, files = instance("a1", spec())
    said = files["java.args"].decode()
    assert "jolokia-agent-jvm-2.1.2-javaagent.jar=host=127.0.0.1,port=8161" in said
    assert '"org.apache.activemq.console.Main"' in said


@pytest.mark.parametrize(
    ("policy", "setting", "complaint"),
    [
        (
            "shared-store",
            {"*": {"kahaDB.lockKeepAlivePeriode": 3}},
            'did you mean "kahaDB.lockKeepAlivePeriod"',
        ),
        ("jdbc", {"*": {"kahaDB.lockKeepAlivePeriod": 3}}, "unknown property of classic with policy jdbc"),
        (
            "jdbc",
            {"a1": {"jdbcPersistenceAdapter.locker": "mine"}},
            "lease-database-locker or database-locker",
        ),
        (
            "network",
            {"*": {"networkConnector.networkTTL": "far"}},
            "networkTTL=far: it must be a whole number",
        ),
        ("shared-store", {"z1": {"kahaDB.lockKeepAlivePeriod": 1}}, 'no node "z1"'),
        ("network", {"store": {"type": "nfs"}}, 'no node "store"'),
    ],
)
def test_a_property_that_is_none_is_one_line(policy, setting, complaint):
    with pytest.raises(UsageError, match=complaint):
        registry.of(spec(policy)).plan(spec(policy, properties=setting))


@pytest.mark.usefixtures("equipped")
def test_what_is_missing_is_said_with_the_line_that_brings_it(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.delenv(distribution.HOME, raising=False)
    assert cli.run(["--system", "classic", "--policy", "shared-store"]) == 254
    assert "no distribution: give --system-home PATH" in capsys.readouterr().err
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    assert cli.run(["--system", "classic", "--policy", "shared-store"]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jepsen-run: system classic: {tmp_path}: no lib/activemq-broker*.jar")
    unpacked(tmp_path)
    assert distribution.missing() == ""
    assert cli.run(["--system", "classic", "--policy", "jdbc", "--environment", "local"]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert "no activemq-jdbc-store*.jar in lib/optional" in line
    (tmp_path / "lib" / "hawtbuf-5.17.6.jar").unlink()
    monkeypatch.setattr(distribution, "_MACHINE", tmp_path)
    assert "no hawtbuf*.jar" in distribution.missing()


def test_debians_jars_are_found_behind_their_links(tmp_path, monkeypatch):
    share = tmp_path / "usr" / "share"
    lib, java, machine = share / "activemq" / "lib", share / "java", tmp_path / "machine"
    for directory in (lib / "optional", java, machine):
        directory.mkdir(parents=True)
    monkeypatch.setattr(distribution, "_MACHINE", machine)
    for name in distribution._NEEDED:
        (lib / f"{name}.jar").symlink_to(f"../../java/{name}.jar")
        (java / f"{name}.jar").touch()
    (java / "slf4j-api.jar").unlink()
    (machine / "slf4j-api.jar").touch()
    (java / "activemq-broker.jar").unlink()
    with zipfile.ZipFile(java / "activemq-broker.jar", "w") as archive:
        archive.writestr(
            "META-INF/maven/org.apache.activemq/activemq-broker/pom.properties", "version=5.17.2\n"
        )
    (lib / "optional" / "jolokia-agent-jvm-2.1.2-javaagent.jar").touch()
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    assert distribution.missing() == ""
    assert distribution.version() == "5.17.2"
    assert distribution.jars()["slf4j-api"] == machine / "slf4j-api.jar"
    said = distribution.class_path(distribution.jars(), "/opt/homes/classic")
    assert "jolokia" not in said
    assert "/opt/homes/classic/lib/activemq-stomp.jar" in said
    assert f"{machine}/slf4j-api.jar" in said
    assert "slf4j-api.jar is not in its distribution" in registry.get("classic").unplaced("docker")


BROKER = "org.apache.activemq:brokerName=a1,type=Broker"
CONNECTORS = {"status": 200, "value": [f"{BROKER},connector=clientConnectors,connectorName=stomp"]}
"""What a broker has that lets clients in."""


@pytest.mark.parametrize(
    ("said", "role", "node_id"),
    [
        ({"status": 200, "value": {BROKER: {"Slave": False}}}, "live", "a"),
        ({"status": 200, "value": {BROKER: {"Slave": True}}}, "backup", "a"),
        ({"status": 404}, "starting", None),
    ],
)
def test_a_role_is_what_the_bean_says(jolokia, said, role, node_id):  # noqa: F811
    address, say = jolokia
    say([said, {"status": 200, "value": 12}, {"status": 200, "value": []}, CONNECTORS])
    status = asyncio.run(Management().status(address))
    assert (status.role, status.node_id, status.epoch) == (role, node_id, 12)


@pytest.mark.parametrize("slave", [False, True])
def test_of_a_broker_that_lets_nobody_in_any_more_no_life_is_claimed(jolokia, slave):  # noqa: F811
    """It closes its clients' connections before it says that it is none; its lock may be lost."""
    address, say = jolokia
    none = {"status": 200, "value": []}
    say([{"status": 200, "value": {BROKER: {"Slave": slave}}}, {"status": 200, "value": 12}, none, none])
    with contextlib.nullcontext() if slave else pytest.raises(OSError, match="a1 stops"):
        assert asyncio.run(Management().status(address)).role == "backup"


def test_a_network_is_as_planned_when_every_broker_forwards_to_all_others(jolokia):  # noqa: F811
    address, say = jolokia
    system = registry.get("classic")
    nodes = system.plan(spec("network"))
    lives = {}
    for node, peer in (("a1", "b1"), ("b1", "a1")):
        bean = f"org.apache.activemq:brokerName={node},type=Broker"
        bridge = f"{bean},connector=networkConnectors,networkConnectorName={peer},networkBridge=tcp_//1"
        say([{"status": 200, "value": {bean: {"Slave": False}}}, {"status": 200, "value": 1},
             {"status": 200, "value": [bridge] if node == "a1" else []}, CONNECTORS])  # fmt: skip
        lives[node] = asyncio.run(system.status(address))
    assert system.lacking(nodes, lives) == {"b1": "b1 has no bridge to a1"}
    assert system.lacking(nodes, {}) == {"a1": "pair a has no live broker", "b1": "pair b has no live broker"}
    shared = registry.get("classic")
    assert shared.lacking(shared.plan(spec())[:1], {"a1": lives["a1"]}) == {}


def test_a_store_is_shown_whole_or_not_at_all(jolokia):  # noqa: F811
    address, say = jolokia
    queue = f"{BROKER},destinationType=Queue,destinationName=ActiveMQ.DLQ"
    body = {"BodyPreview": [104, -61, -97], "BodyLength": 300, "JMSXGroupID": "g1"}
    asked = {
        "search": {"status": 200, "value": [queue]},
        "read": {"status": 200, "value": 2},
        "exec": {"status": 200, "value": [body, {"Text": "t", "JMSXGroupID": None}]},
    }
    say(asked)
    cut, text = asyncio.run(Management().browse(address))
    assert (cut.store, cut.group, cut.body, cut.cut) == ("dead-letter", "g1", "hß".encode(), True)
    assert (text.body, text.cut, text.group) == (b"t", False, None)
    say({**asked, "read": {"status": 200, "value": 3}})
    with pytest.raises(OSError, match="showed 2 of its 3 messages"):
        asyncio.run(Management().browse(address))


def test_a_dead_letter_of_a_queue_says_where_it_died(jolokia):  # noqa: F811
    address, say = jolokia
    told = [{"Text": "t", "OriginalDestination": whence} for whence in ("queue://q0", "topic://t0", None)]
    say({
        "search": {"status": 200, "value": [f"{BROKER},destinationType=Queue,destinationName=ActiveMQ.DLQ"]},
        "read": {"status": 200, "value": 3},
        "exec": {"status": 200, "value": told},
    })  # fmt: skip
    stored = asyncio.run(Management().browse(address))
    dead = [(one.store, one.queue, one.origin) for one in stored if one.subscription is None]
    nowhere = ("dead-letter", "ActiveMQ.DLQ", False)
    assert dead == [("dead-letter", "q0", True), nowhere, nowhere]


def durable_beans(told, messages):
    bean = f"{BROKER},destinationType=Topic,destinationName=t0,endpoint=Consumer,clientId=me"
    kept, bridge = f"{bean},consumerId=Durable(me:audit)", f"{bean},consumerId=b1->a1-33173-1795-5_2_1_1"
    told = {"DestinationName": "t0", "SubscriptionName": "audit", "Active": False, **told}
    return {
        "search": {"status": 200, "value": [bridge, kept]},
        "read": {"status": 200, "value": told},
        "exec": {"status": 200, "value": [{"Text": text, "JMSXGroupID": "g1"} for text in messages]},
    }


def test_what_waits_for_a_durable_subscription_is_shown_by_its_name(jolokia):  # noqa: F811
    address, say = jolokia
    say(durable_beans({"PendingQueueSize": 1, "DispatchedQueueSize": 0}, ["t"]))
    (one,) = asyncio.run(Management().durable(address))
    assert (one.store, one.queue, one.subscription, one.group) == ("main", "/topic/t0", "audit", "g1")
    say(durable_beans({"Active": True, "PendingQueueSize": 1, "DispatchedQueueSize": 1}, ["t", "u"]))
    assert len(asyncio.run(Management().durable(address))) == 2


def test_what_a_topic_keeps_for_others_does_not_wait_for_a_durable_subscription(jolokia):  # noqa: F811
    address, say = jolokia
    say(durable_beans({"PendingQueueSize": 0, "DispatchedQueueSize": 0}, ["t"]))
    assert asyncio.run(Management().durable(address)) == []
    say(durable_beans({"PendingQueueSize": 1, "DispatchedQueueSize": 0}, ["t", "u"]))
    with pytest.raises(OSError, match="which 1 of 2 messages of /topic/t0 at .* audit waits for"):
        asyncio.run(Management().durable(address))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ("broker/served", "Apache ActiveMQ 5.17.6 (a1, ID:host-1-2-0:1) started"),
        ("broker/stopped-cleanly", "Apache ActiveMQ 5.17.6 (a1, ID:host-1-2-0:1) is shutdown"),
        ("lock/waited", "This broker is now in slave mode waiting a lock to be acquired"),
        ("lock/waited", "a2 attempting to acquire exclusive lease to become the master"),
        ("lock/taken", "a1, becoming master with lease expiry Mon Nov 23 08:43:59 UTC 2026 on dataSource: x"),
        ("lock/lost", "a1, no longer able to keep the exclusive lock so giving up being a master"),
        ("broker/began-anew", "Restarting broker"),
    ],
)  # fmt: skip
def test_what_happened_is_known_by_the_brokers_own_words(event, line):
    assert [name for name, each in EVENTS.items() if each.line.search(line)] == [event]


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.distribution("classic")
@pytest.mark.parametrize(
    "policy",
    [
        properties.SHARED_STORE,
        pytest.param(properties.JDBC, marks=[pytest.mark.in_turn, pytest.mark.postgresql]),
        pytest.param(properties.NETWORK, marks=pytest.mark.in_turn),
    ],
)
def test_a_killed_broker_is_followed_or_comes_back(tmp_path, policy, capsys):
    if policy == properties.JDBC and (lack := distribution.lack_for_database()):
        pytest.skip(str(lack))
    words = ["--policy", policy, "--pairs", "1", "--nemesis", "kill", "--target", "live", "--rate", "30"]
    words += ["--environment", "local", "--store", str(tmp_path)]
    # The lock of a file is free at once; that of a database has a lease.
    at_once = policy == properties.SHARED_STORE
    words += ["--time-limit", "10", "--duration", "5"] if at_once else ["--time-limit", "20"]
    status = cli.run(["--system", "classic", *words])
    out = capsys.readouterr().out
    assert status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["versions"]["classic"] == distribution.version(), run
    assert "took effect" in out
    assert policy == properties.NETWORK or "a2     live" in out
