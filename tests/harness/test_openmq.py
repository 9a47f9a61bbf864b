"""Open MQ as a system under test: its files, its answers; with a distribution, its runs."""

import asyncio
import json
import zipfile

import msgspec
import pytest
from jolokia_stub import jolokia, voting  # noqa: F401 - fixtures

from checkers import java
from environments import homes
from harness.commands import cli
from harness.interface import DATABASE, Address, Layout, TestSpec, UsageError
from harness.report import summary
from harness.systems import given, registry
from harness.systems import jolokia as client
from harness.systems.openmq import configuration, distribution, management, properties
from harness.systems.openmq.events import EVENTS
from harness.systems.openmq.management import LIVE_S, MEMBERS

LAYOUT = Layout(etc="/n x/etc", data="/n x/data", logs="/n x/logs", homes={"openmq": "/opt/homes/openmq"})
LISTEN = {port: Address("0.0.0.0", number) for port, number in configuration.PORTS.items()}
HOSTS = {"b1:7676": Address("10.0.0.2", 7676), DATABASE: Address("10.0.0.9", 5432)}
HERE = {port: Address("127.0.0.1", 20_000 + number) for port, number in configuration.PORTS.items()}
"""Where brokers of one machine listen."""


def spec(policy="conventional", **more):
    more = {"pairs": 2, "environment": "docker", **more}
    return TestSpec(name="t", system="openmq", policy=policy, **more)


def unpacked(place, release="6.5.1", extra=("jolokia-agent-jvm-2.1.2-javaagent", "postgresql-42.7.4")):
    """A distribution that has only names, and a release."""
    (place / "lib" / "ext").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place / "lib" / "imqbroker.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", f"Specification-Version: {release}\n")
    for name in extra:
        (place / "lib" / "ext" / f"{name}.jar").touch()
    return place


@pytest.fixture
def distributed(tmp_path, monkeypatch):
    """A distribution of names is given."""
    monkeypatch.delenv(given.HOME, raising=False)
    place = unpacked(tmp_path / "openmq")
    monkeypatch.setenv(distribution.HOME, str(place))
    return place


def files(node, a_spec, listen=LISTEN, hosts=HOSTS):
    """The properties of a node by their names, and all its files as text."""
    system = registry.of(a_spec)
    nodes = system.plan(a_spec)
    plan = next(each for each in nodes if each.name == node)
    every = {k: v.decode() for k, v in system.files(a_spec, plan, nodes, LAYOUT, listen, hosts).items()}
    lines = (line.partition("=") for line in every["broker.properties"].splitlines())
    return {name: value for name, _, value in lines}, every


@pytest.mark.usefixtures("distributed")
def test_a_conventional_cluster_has_a_list_of_brokers_and_a_master_if_one_is_named():
    values, every = files("a1", spec())
    assert values["imq.cluster.brokerlist"] == "a1:7676,b1:7676"
    assert "imq.cluster.masterbroker" not in values
    assert (values["imq.hostname"], values["imq.persist.file.sync.enabled"]) == ("a1", "true")
    assert every["peers"] == "10.0.0.2 b1\n"
    values, _ = files("a1", spec(properties={"*": {"imq.cluster.masterbroker": "b1"}}))
    assert values["imq.cluster.masterbroker"] == "b1:7676"


@pytest.mark.usefixtures("distributed")
def test_a_cluster_on_a_database_has_ids_and_no_file_has_its_password():
    values, every = files("b1", spec("ha-database"))
    assert (values["imq.cluster.ha"], values["imq.brokerid"], values["imq.persist.store"]) == (
        "true", "b1", "jdbc",
    )  # fmt: skip
    assert values["imq.persist.jdbc.postgresql.opendburl"] == "jdbc:postgresql://10.0.0.9:5432/postgres"
    assert "imq.cluster.brokerlist" not in values
    assert not [name for name in values if name.startswith("imq.persist.jdbc") and "password=" in name]
    assert 'postgresql.password=%s\\n\' "$PGPASSWORD"' in every["start"]
    assert "PGPASSWORD" not in files("a1", spec())[1]["start"]
    nodes = registry.of(spec("ha-database")).plan(spec("ha-database"))
    assert [(node.after, node.configured) for node in nodes] == [(None, "member"), ("a1", "member")]


@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize("policy", [properties.STANDALONE, properties.CONVENTIONAL])
def test_a_broker_may_have_its_own_store_in_a_database(policy):
    values, every = files("b1", spec(policy, properties={"b1": {"imq.persist.store": "jdbc"}}))
    assert values["imq.brokerid"] == "b1"
    assert values["imq.persist.store"] == "jdbc"
    assert values["imq.persist.jdbc.postgresql.opendburl"] == "jdbc:postgresql://10.0.0.9:5432/postgres"
    assert "imq.cluster.ha" not in values
    assert "PGPASSWORD" in every["start"]
    system = registry.of(spec(policy))
    a1, b1 = system.plan(spec(policy, properties={"b1": {"imq.persist.store": "jdbc"}}))
    assert (a1.database, b1.database.type, b1.after, system.one_store) == (None, "postgresql", None, False)
    values, every = files("a1", spec(policy, properties={"b1": {"imq.persist.store": "jdbc"}}))
    assert "imq.brokerid" not in values
    assert "PGPASSWORD" not in every["start"]


@pytest.mark.usefixtures("distributed")
def test_brokers_of_one_machine_listen_where_they_are_told():
    values, every = files("a1", spec("standalone", environment="local"), HERE, {})
    assert (values["imq.hostname"], values["imq.portmapper.port"]) == ("127.0.0.1", "27676")
    assert values["imq.bridge.stomp.tcp.port"] == "27672"
    assert "javaagent.jar=host=127.0.0.1,port=27680" in every["java.args"]
    assert "/ext/jolokia" not in every["java.args"].partition('"-cp"')[2]
    assert "imq.hostname" not in files("a1", spec("standalone"))[0]


@pytest.mark.usefixtures("distributed")
def test_groups_are_promised_where_one_consumer_of_a_queue_is_active():
    active = properties.ACTIVE_CONSUMERS
    values, _ = files("a1", spec())
    assert (values[active], values[properties.BACKUP_CONSUMERS]) == ("-1", "-1")
    one = {"properties": {"*": {active: 1}}}
    values, _ = files("a1", spec(**one))
    assert values[active] == "1"

    def groups(a_spec):
        return registry.of(a_spec).promises(a_spec).groups

    assert [groups(spec()), groups(spec(**one)), groups(spec("ha-database", **one))] == [False, True, False]
    assert not groups(spec(properties={"*": {active: 1}, "b1": {active: 2}}))
    assert "openmq keeps no groups" in summary.promised(spec())


@pytest.mark.parametrize(
    ("policy", "setting", "complaint"),
    [
        ("conventional", {"*": {"imq.cluster.masterbrok": "a1"}}, 'did you mean "imq.cluster.masterbroker"'),
        ("conventional", {"*": {"imq.cluster.masterbroker": "z1"}}, 'no node "z1"'),
        ("standalone", {"*": {"imq.cluster.masterbroker": "a1"}}, "unknown property of openmq with policy"),
        ("ha-database", {"a1": {"imq.cluster.monitor.interval": "soon"}}, "soon: it must be a whole number"),
        ("ha-database", {"z1": {"jvm.heap": "1g"}}, 'no node "z1"'),
        ("ha-database", {"*": {"jvm.heap": "much"}}, "it must be a number with m or g"),
    ],
)
def test_a_property_that_is_none_is_one_line(policy, setting, complaint):
    with pytest.raises(UsageError, match=complaint):
        registry.of(spec(policy)).plan(spec(policy, properties=setting))


def refused(capsys, *words):
    """The one line with which a command is refused as wrong usage."""
    assert cli.run(["--system", "openmq", *words]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.usefixtures("equipped")
def test_what_is_missing_is_said_with_the_line_that_brings_it(tmp_path, monkeypatch, capsys):
    words = ("--policy", "standalone", "--environment", "local")
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.delenv(distribution.HOME, raising=False)
    assert "no distribution: give --system-home PATH" in refused(capsys, *words)
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    assert f"{tmp_path}: no lib/imqbroker.jar, so this is not a distribution" in refused(capsys, *words)
    unpacked(tmp_path / "mq", "5.1", ())
    assert "is Open MQ 5.1: 6.0 or later can be tested" in refused(capsys, *words)
    unpacked(tmp_path / "mq", "7.1")
    (warning,) = registry.of(spec()).warnings(spec())
    assert warning.startswith("Open MQ 7.1 is untried (tried: 6.5.1, 6.7.0): ")
    for jar in (tmp_path / "mq" / "lib" / "ext").iterdir():
        jar.unlink()
    unpacked(tmp_path / "mq", extra=())
    assert "no jolokia-agent-jvm-*.jar in lib/ext" in refused(capsys, *words)
    (tmp_path / "mq" / "lib" / "ext" / "jolokia-agent-jvm-2.1.2-javaagent.jar").touch()
    assert (distribution.missing(), distribution.version()) == ("", "6.5.1")
    system = registry.of(spec("ha-database"))
    system.plan(spec("ha-database"))
    assert "no postgresql-*.jar in lib/ext" in system.missing()
    (tmp_path / "mq" / "lib" / "imqbroker.jar").write_bytes(b"no archive")
    assert "of an unknown release" in distribution.missing()


@pytest.mark.usefixtures("equipped")
def test_the_java_that_it_was_compiled_for_is_found_or_asked_for_before_the_run(
    tmp_path, monkeypatch, capsys
):
    place = unpacked(tmp_path / "mq")
    monkeypatch.setenv(distribution.HOME, str(place))
    monkeypatch.delenv(given.HOME, raising=False)
    assert distribution.java() == 17
    with zipfile.ZipFile(place / "lib" / "imqbroker.jar", "a") as jar:
        jar.writestr("com/sun/Broker.class", b"\xca\xfe\xba\xbe\0\0\0\x43 and so on")
    assert distribution.java() == 23
    monkeypatch.setattr(java, "_candidates", lambda: [("PATH", tmp_path / "old" / "bin" / "java")])
    (tmp_path / "old" / "bin").mkdir(parents=True)
    (tmp_path / "old" / "bin" / "java").touch()
    (tmp_path / "old" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    line = refused(capsys, "--policy", "standalone", "--environment", "local")
    assert "no Java 23 or newer: PATH (" in line
    assert "is Java 17" in line
    (tmp_path / "old" / "release").write_text('JAVA_VERSION="25.0.2"\n')
    a_spec = spec("standalone", environment="local")
    system = registry.of(a_spec)
    assert homes.path_here(system, a_spec).startswith(f"{tmp_path}/old/bin:")
    (runtime,) = system.provision(a_spec).runtimes
    assert runtime.elsewhere == ("/usr/lib/jvm/*/bin/java",)
    assert runtime.lack('openjdk version "21.0.2"') == "java is release 21, and must be 23 or later"


@pytest.mark.usefixtures("distributed")
def test_a_cluster_is_refused_where_addresses_are_loopback(capsys):
    line = refused(capsys, "--policy", "conventional", "--environment", "local")
    assert "policy conventional of openmq needs --environment docker" in line


BROKER = {"status": 200, "value": {"InstanceName": "a1"}}
MEMBER = {"ID": "a1", "StateLabel": "OPERATING", "TakeoverBrokerID": None, "StatusTimestamp": 5}


def answered(address, say, said, policy="conventional"):
    system = registry.of(spec(policy))
    system.plan(spec(policy))
    say(said)
    return asyncio.run(system.status(address))


@pytest.mark.parametrize(
    ("state", "role"), [(0, "live"), (2, "live"), (1, "suspended"), (-1, "starting"), (None, "starting")]
)
def test_a_role_is_what_the_service_of_clients_says(jolokia, state, role):  # noqa: F811
    address, say = jolokia
    service = {"status": 404} if state is None else {"status": 200, "value": {"State": state}}
    status = answered(address, say, [BROKER, service, {"status": 200, "value": 7}], "standalone")
    assert (status.role, status.epoch) == (role, 7)
    assert status.node_id == (None if state is None else "a1")


def test_a_takeover_is_what_the_database_says(voting):  # noqa: F811
    address, handler = voting
    taken = {**MEMBER, "ID": "b1", "StateLabel": "TAKEOVER_COMPLETE", "TakeoverBrokerID": "a1"}
    begun = {**MEMBER, "ID": "c1", "StateLabel": "TAKEOVER_STARTED", "TakeoverBrokerID": "a1"}

    def respond(asked):
        values = {
            "com.sun.messaging.jms.server:type=Broker,subtype=Monitor": {"InstanceName": "a1"},
            "com.sun.messaging.jms.server:type=Service,subtype=Monitor,name=jms": {"State": 0},
            "com.sun.messaging.jms.server:type=Cluster,subtype=Monitor": [MEMBER, taken, begun],
        }
        return [{"status": 200, "value": values.get(one["mbean"], 7)} for one in asked]

    handler.respond = staticmethod(respond)
    system = registry.of(spec("ha-database"))
    nodes = system.plan(spec("ha-database"))
    status = asyncio.run(system.status(address))

    def takeovers():
        system._members.clear()  # it is asked at once
        return [(one.node_id, one.life) for one in asyncio.run(system.status(address)).takeovers]

    assert takeovers() == [("b1", 5)]
    assert system.lacking(nodes, {"a1": status}) == {
        "a1": "a1 has served for less than 6 s", "b1": "b1 does not serve",
    }  # fmt: skip
    taken["StatusTimestamp"] = 6
    assert takeovers() == [("b1", 5)], "it starts again"
    taken["StateLabel"] = "OPERATING"
    assert takeovers() == []
    taken["StateLabel"] = "TAKEOVER_COMPLETE"
    assert takeovers() == [("b1", 6)], "and was taken over again"
    older = msgspec.structs.replace(status, details={**status.details, LIVE_S: 7.0})
    assert system.lacking(nodes[:1], {"a1": older}) == {}
    few = {name: f"{name} knows of 1 of 2 running brokers" for name in ("a1", "b1")}
    assert system.lacking(nodes, {"a1": older, "b1": older}) == few
    rows = asyncio.run(system.administer(address, "members", {}))[MEMBERS]
    assert rows[1] == {"broker-id": "b1", "state": "TAKEOVER_COMPLETE"}
    assert asyncio.run(system.administer(address, "status", {})) == {"taken-over": ["b1"]}


def test_a_cluster_that_does_not_answer_hides_no_role(voting):  # noqa: F811
    address, handler = voting

    def respond(asked):
        if "Cluster" in asked[0]["mbean"]:
            handler.votes.wait(20)
        return [{"status": 200, "value": {"InstanceName": "a1", "State": 0}} for _ in asked]

    handler.votes.clear()
    handler.respond = staticmethod(respond)
    system = registry.of(spec("ha-database"))
    system.plan(spec("ha-database"))
    status = asyncio.run(system.status(address))
    handler.votes.set()
    assert (status.role, status.details[MEMBERS]) == ("live", ())


def test_a_stop_says_whether_another_is_to_take_over(voting):  # noqa: F811
    address, handler = voting
    handler.said = [{"status": 200, "value": None}]
    system = registry.of(spec("ha-database"))
    for failover in (None, True, False):
        asyncio.run(system.stop(address, failover=failover))
    assert [one["arguments"] for one in handler.asked] == [[False, 0], [False, 0], [True, 0]]


def browsing(handler, queues=(), topics=(), counted=0, messages=(), consumers=()):
    """A broker that has these destinations, each with these messages."""
    bean = 'com.sun.messaging.jms.server:desttype={},name="{}",subtype=Monitor,type=Destination'
    found = {"q": [bean.format("q", one) for one in queues], "t": [bean.format("t", one) for one in topics]}

    def answer(one):
        if one["type"] == "search":
            return found["t" if "desttype=t" in one["mbean"] else "q"]
        if one["type"] == "read":
            return {"NumMsgs": counted}
        return consumers if "ConsumerManager" in one["mbean"] else messages

    handler.respond_at = staticmethod(
        lambda asked, host: [{"status": 200, "value": answer(one)} for one in asked]
    )


def test_a_store_is_shown_whole_or_not_at_all(voting):  # noqa: F811
    address, handler = voting
    message = {
        "DestinationName": "q0",
        "MessageBody": [104, -61, -97],
        "MessageProperties": {"JMSXGroupID": "g1"},
    }
    messages = [message, {**message, "MessageBody": "t", "MessageProperties": None}]
    browsing(handler, queues=["mq.sys.dmq"], counted=2, messages=messages)
    system = registry.get("openmq")
    octets, text = asyncio.run(system.browse(address))
    assert (octets.store, octets.queue, octets.group, octets.body) == (
        "dead-letter",
        "q0",
        "g1",
        "hß".encode(),
    )
    assert (text.body, text.group) == (b"t", None)
    browsing(handler, queues=["mq.sys.dmq"], counted=3, messages=messages)
    with pytest.raises(OSError, match="showed 2 of its 3 messages"):
        asyncio.run(system.browse(address))


def waiting(**numbers):
    """Durable subscriptions to t0, and how many messages wait for each."""
    named = {"Durable": True, "DestinationName": "t0"}
    return [{**named, "DurableName": name, "NumMsgsPending": number} for name, number in numbers.items()]


def topic_of(handler, **numbers):
    """A topic with two messages."""
    message = {"DestinationName": "t0", "MessageProperties": None}
    messages = [{**message, "MessageBody": body} for body in ("m1", "m2")]
    others = [{"Durable": False, "DestinationName": "t0", "DurableName": None, "NumMsgsPending": 1}]
    browsing(handler, topics=["t0"], counted=2, messages=messages, consumers=others + waiting(**numbers))


def test_what_waits_for_a_durable_subscription_is_all_of_its_topic_or_nothing(voting):  # noqa: F811
    address, handler = voting
    topic_of(handler, slow=2, quick=0)
    found = asyncio.run(registry.get("openmq").browse(address))
    told = [(one.queue, one.subscription, one.body) for one in found]
    assert told == [("/topic/t0", "slow", b"m1"), ("/topic/t0", "slow", b"m2")]


def test_which_messages_wait_for_a_durable_subscription_is_not_guessed(voting):  # noqa: F811
    address, handler = voting
    topic_of(handler, slow=1)
    with pytest.raises(OSError, match="which 1 messages of topic t0 .* slow waits for"):
        asyncio.run(registry.get("openmq").browse(address))


def test_brokers_of_a_cluster_tell_their_durable_subscriptions(voting):  # noqa: F811
    address, handler = voting
    durable = {"Durable": True, "ClientID": "c", "DestinationName": "t0"}
    consumers = [
        {**durable, "DurableName": "s0", "Selector": None},
        {**durable, "DurableName": "s1", "Selector": "colour = 'red'"},
        {"Durable": False, "ClientID": "", "DestinationName": "q0", "DurableName": None, "Selector": None},
    ]
    browsing(handler, consumers=consumers)
    system = registry.of(spec())
    system.plan(spec())
    told = asyncio.run(system.views(address))
    assert told == {"subscriptions": {"c:s0": "topic t0", "c:s1": "topic t0 where colour = 'red'"}}
    browsing(handler, consumers=None)
    with pytest.raises(OSError, match="tells no consumers yet"):
        asyncio.run(system.views(address))
    assert asyncio.run(registry.get("openmq").views(address)) == {}


def test_in_a_cluster_nobody_tells_for_whom_a_topic_has_messages(voting):  # noqa: F811
    address, handler = voting
    system = registry.of(spec())
    system.plan(spec())
    topic_of(handler, slow=2)
    with pytest.raises(OSError, match="topic t0 .* has 2 messages, for whom is not told"):
        asyncio.run(system.browse(address))


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("conventional", {"own": "main"}),
        ("ha-database", {"own": "main", "taken": "store-and-forward"}),
    ],
)
def test_what_a_broker_shows_of_others_is_not_in_its_store(policy, kept, voting):  # noqa: F811
    address, handler = voting
    port = address.port

    def message(body, sent_to):
        text = f"ID:{sum(map(ord, body))}-10.0.0.{sent_to}(ab:cd)-1-2"
        return {"DestinationName": "q0", "MessageBody": body, "MessageProperties": None, "MessageID": text}

    shown = {
        # a1 and b1, by the host that they are asked at: "taken" was sent to c1, which is gone.
        "127.0.0.1": [message("own", 1), message("others", 2), message("taken", 3)],
        "localhost": [message("others", 2), message("taken", 3)],
    }

    def respond(asked, host):
        queue = 'com.sun.messaging.jms.server:desttype=q,name="q0",subtype=Monitor'
        searched = [] if "desttype=t" in asked[0]["mbean"] else [queue]
        answers = {"search": searched, "exec": shown[host]}
        local = {"LocalBrokerInfo": {"Address": f"10.0.0.{1 if host == '127.0.0.1' else 2}:7676"}}
        counted = {"NumMsgs": len(shown[host])}
        return [
            {
                "status": 200,
                "value": local if "Cluster" in one["mbean"] else answers.get(one["type"], counted),
            }
            for one in asked
        ]

    handler.respond_at = staticmethod(respond)
    system = registry.of(spec(policy))
    system.plan(spec(policy))
    here, there = (Address(host, port) for host in shown)
    for each in (here, there):
        system._members[each] = management._Members()
    found = asyncio.run(system.browse(here))
    assert {one.body.decode(): one.store for one in found} == kept


def test_a_broker_that_waits_to_start_has_no_store_and_ends_no_browse(voting):  # noqa: F811
    """Its agent answers, and there is no bean of the cluster yet."""
    address, handler = voting

    def respond(asked, host):
        local = {"LocalBrokerInfo": {"Address": "10.0.0.1:7676"}}
        there = [{"status": 200, "value": [] if one["type"] == "search" else local} for one in asked]
        return there if host == "127.0.0.1" or asked[0]["type"] == "search" else [{"status": 404}]

    handler.respond_at = staticmethod(respond)
    system = registry.of(spec("ha-database"))
    system.plan(spec("ha-database"))
    waiting = Address("localhost", address.port)
    for each in (address, waiting):
        system._members[each] = management._Members()
    assert asyncio.run(system.browse(address)) == []
    with pytest.raises(OSError, match="not in its cluster yet"):
        asyncio.run(system.browse(waiting))


def test_a_connection_that_was_idle_is_not_used_again(voting, monkeypatch):  # noqa: F811
    address, handler = voting
    handler.said = [{"status": 200, "value": 1}]
    asker = client.Jolokia("/jolokia/")

    async def ask_twice():
        await asker.ask(address, {"type": "read"})
        first = asker._kept[address][0]
        await asker.ask(address, {"type": "read"})
        return first is asker._kept[address][0]

    assert asyncio.run(ask_twice())
    monkeypatch.setattr(client, "IDLE_S", -1.0)
    assert not asyncio.run(ask_twice())


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ("broker/served", 'FORCE   a1 [B1039]: Broker "a1@a1:7676" ready.'),
        ("broker/stopped-cleanly", "FORCE   a1 [B1048]: Shutdown of broker complete."),
    ],
)
def test_what_happened_is_known_by_the_brokers_own_words(event, line):
    assert [name for name, each in EVENTS.items() if each.line.search(line)] == [event]


def ran(tmp_path, capsys, *words):
    """What a run with brokers of the distribution printed."""
    status = cli.run(["--system", "openmq", *words, "--rate", "30", "--store", str(tmp_path)])
    out = capsys.readouterr().out
    assert status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["versions"]["openmq"] == distribution.version(), run
    assert "took effect" in out
    return out


_COMPOSED = {
    "imq.bridge.stomp.consumerFlowLimit",
    "imq.persist.jdbc.max_connections",
    "imq.persist.jdbc.min_connections",
}
"""Properties whose names the broker puts together while it runs: none of its files has them."""


@pytest.mark.distribution("openmq")
def test_every_property_that_a_test_may_set_is_one_that_the_broker_reads():
    """Open MQ ignores a property that it does not know, without a word."""
    read = (distribution.home() / "lib" / "props" / "broker" / "default.properties").read_bytes()
    for jar in (distribution.home() / "lib").glob("*.jar"):
        with zipfile.ZipFile(jar) as file:
            read += b"".join(file.read(name) for name in file.namelist() if name.endswith(".class"))
    names = {name for known in properties.KNOWN.values() for name in known} - {properties.HEAP}
    assert {name for name in names if name.encode() not in read} == _COMPOSED


@pytest.mark.cluster
@pytest.mark.docker
@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.distribution("openmq")
@pytest.mark.parametrize("policy", [properties.CONVENTIONAL, properties.HA_DATABASE])
def test_a_killed_broker_comes_back_or_is_taken_over(tmp_path, policy, capsys):
    words = ["--policy", policy, "--pairs", "2", "--environment", "docker", "--time-limit", "15"]
    out = ran(tmp_path, capsys, *words, "--nemesis", "kill", "--target", "a1")
    assert "a1     live" in out
