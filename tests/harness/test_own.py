"""The plug-in of our broker.

What it writes is what the broker reads, and wrong properties are named before anything starts.
"""

import msgspec
import pytest

from broker import config, ha_policy
from checkers.verdict import Promises
from harness.history import spec as specs
from harness.interface import Address, Dialect, Layout, TestSpec, UsageError
from harness.systems import registry
from harness.systems.own import admin
from harness.systems.own.system import OwnSystem

LISTEN = {
    "stomp": Address("127.0.0.1", 1001),
    "cluster": Address("127.0.0.1", 1002),
    "admin": Address("127.0.0.1", 1003),
}


def load(tmp_path, node_name, system=None, **given):
    """The configuration of one node as the broker itself loads it."""
    system = system or OwnSystem()
    spec = specs.build(given)
    nodes = system.plan(spec)
    node = next(node for node in nodes if node.name == node_name)
    hosts = {
        f"{other.name}:61616": Address("127.0.0.1", 2000 + i)
        for i, other in enumerate(nodes)
        if other is not node
    }
    layout = Layout(etc=str(tmp_path), data=str(tmp_path / "data"), logs=str(tmp_path / "logs"))
    files = system.files(spec, node, nodes, layout, LISTEN, hosts)
    assert list(files) == ["broker.toml"]
    (tmp_path / "broker.toml").write_bytes(files["broker.toml"])
    assert system.command(layout) == ["python", "-m", "broker.daemon", "--config", f"{tmp_path}/broker.toml"]
    return config.load(tmp_path / "broker.toml")


def test_a_master_and_its_slave_are_configured_for_each_other(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    system = OwnSystem()
    master = load(tmp_path / "1", "b1", system, pairs=2)
    slave = load(tmp_path / "2", "b2", system, pairs=2)
    assert isinstance(master.replication, ha_policy.MasterSection)
    assert isinstance(slave.replication, ha_policy.SlaveSection)
    assert master.replication.group_name == slave.replication.group_name == "b"
    assert master.cluster.cluster_password == slave.cluster.cluster_password
    assert set(slave.cluster.static_connectors) == {"a1:61616", "a2:61616", "b1:61616"}
    assert set(slave.cluster.static_connectors) == set(slave.hosts)
    assert slave.cluster.connector == "b2:61616"


def test_the_brokers_of_a_chain_know_the_pairs_beside_theirs_only(tmp_path):
    cluster = load(tmp_path, "c1", policy="shared-store", pairs=5, chain=True).cluster
    pairs = [other.partition(":")[0] for other in cluster.static_connectors]
    assert pairs == ["b1", "b2", "c2", "d1", "d2"]
    assert cluster.allow_direct_connections_only
    assert cluster.max_hops == 4


def test_each_run_has_secrets_of_its_own_and_a_simulated_one_those_of_its_seed(tmp_path):
    def secrets(**given):
        loaded = load(tmp_path, "a1", **given)
        return loaded.cluster.cluster_password, loaded.admin.secret

    assert secrets() != secrets()
    assert secrets(environment="simulation", seed=1) == secrets(environment="simulation", seed=1)
    assert secrets(environment="simulation", seed=1) != secrets(environment="simulation", seed=2)


def test_the_node_listens_where_the_environment_says(tmp_path):
    loaded = load(tmp_path, "a1")
    assert (loaded.acceptor.port, loaded.cluster.port, loaded.admin.port) == (1001, 1002, 1003)
    assert loaded.data_path == tmp_path / "data"


def test_a_standalone_broker_has_no_policy(tmp_path):
    loaded = load(tmp_path, "a1", policy="standalone")
    assert loaded.replication is None


def test_the_dialect_may_log_in(tmp_path):
    loaded = load(tmp_path, "a1")
    dialect = OwnSystem().dialect
    assert loaded.acceptor.users == {dialect.login: dialect.passcode}


def test_test_defaults_keep_the_proportions(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    master, slave = load(tmp_path / "1", "a1"), load(tmp_path / "2", "a2")
    assert master.replication.vote_on_replication_failure
    assert slave.replication.vote_on_replication_failure
    vote_ms = (
        slave.replication.vote_retries * slave.replication.vote_retry_wait
        + slave.replication.quorum_vote_wait
    )
    assert master.replication.replication_patience < slave.replication.replication_patience + vote_ms
    assert master.acceptor.connection_ttl == 2000


def test_properties_reach_the_nodes_they_name(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    properties = {
        "*": {"acceptor.connection-ttl": 1500, "ha-policy.replication.slave.vote-retries": 9},
        "a2": {"acceptor.connection-ttl": 700},
    }
    master = load(tmp_path / "1", "a1", properties=properties)
    slave = load(tmp_path / "2", "a2", properties=properties)
    assert (master.acceptor.connection_ttl, slave.acceptor.connection_ttl) == (1500, 700)
    assert slave.replication.vote_retries == 9
    assert isinstance(master.replication, ha_policy.MasterSection)


def test_properties_that_need_each_other_may_come_in_any_order(tmp_path):
    first = {"acceptor.trust-store-path": "t.pem", "acceptor.need-client-auth": True}
    last = {"acceptor.key-store-path": "k.pem", "acceptor.ssl-enabled": True}
    for number, properties in enumerate(({"*": {**first, **last}}, {"*": last, "a1": first})):
        (tmp_path / str(number)).mkdir()
        assert load(tmp_path / str(number), "a1", properties=properties).acceptor.need_client_auth


def test_a_replication_property_without_a_role_is_for_both(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    properties = {"*": {"ha-policy.replication.vote-on-replication-failure": False}}
    for node in ("a1", "a2"):
        loaded = load(tmp_path / node[1], node, properties=properties)
        assert loaded.replication.vote_on_replication_failure is False


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"a3": {}}, 'no node "a3" in this test: did you mean "a'),
        ({"*": {"acceptor.conection-ttl": 1}}, "did you mean 'acceptor.connection-ttl'?"),
        ({"*": {"acceptor.connection-ttl": "soon"}}, "property 'acceptor.connection-ttl': expected int"),
        ({"a1": {"ha-policy.replication.slave.vote-retries": 1}}, "is for a slave, and a1 is a master"),
        (
            {"*": {"ha-policy.replication.vote-retrys": 1}},
            "did you mean 'ha-policy.replication.master.vote-retries'?",
        ),
        (
            {"*": {"acceptor.key-store-path": "k.pem"}},
            "--set *: acceptor.key-store-path is given, and acceptor.ssl-enabled is false",
        ),
        (
            {"*": {"acceptor.connection-ttl": 1500}, "a1": {"acceptor.heart-beat-receive": 1600}},
            "--set a1: acceptor.heart-beat-receive is 1600, and acceptor.connection-ttl is 1500",
        ),
        ({"*": {"acceptor.connection-tl": 1}, "a1": {"acceptor.port": 1}}, "--set *: unknown property"),
        (
            {"*": {"ha-policy.shared-store.failover-on-shutdown": True}},
            "ha-policy has replication and shared-store: a broker has one policy",
        ),
    ],
)
def test_wrong_properties_are_refused_before_anything_starts(properties, complaint):
    with pytest.raises(UsageError) as refused:
        OwnSystem().plan(specs.build({"properties": properties}))
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_policy_names_the_near_one():
    with pytest.raises(UsageError, match='unknown policy "replicaton": did you mean "replication"?'):
        registry.of(TestSpec(name="t", policy="replicaton"))


def test_deliveries_are_read_as_the_broker_writes_them():
    dialect = OwnSystem().dialect
    assert dialect.delivery({"redelivered": "true", "JMSXDeliveryCount": "3"}) == (True, 3)
    assert dialect.delivery({"redelivered": "false"}) == (False, None)
    assert dialect.send_headers("g1") == {"JMSXGroupID": "g1"}
    assert dialect.send_headers(None) == {}
    assert dialect.destination("orders") == "/queue/orders"


def test_what_its_refusals_mean_is_told_as_it_is_configured():
    """Of several settings those under which a message dies first, and certainly has."""
    spec = TestSpec(name="t")
    kept = Promises(counts="given back", durable_counts=True, keeps_expired=True)
    told = OwnSystem().promises(spec)
    assert told == msgspec.structs.replace(kept, delivery_attempts=10, most_attempts=10)
    refusing = OwnSystem().promises(msgspec.structs.replace(spec, workload="refusals"))
    assert refusing == msgspec.structs.replace(kept, delivery_attempts=3, most_attempts=3, redelivery_s=0.1)
    settings = {
        "address-settings.#.max-delivery-attempts": 3,
        "address-settings.q1.max-delivery-attempts": -1,
        "address-settings.q1.dead-letter-address": "",
        "address-settings.q1.redelivery-delay": 2500,
    }
    few = msgspec.structs.replace(spec, properties={"*": settings})
    assert OwnSystem().promises(few) == msgspec.structs.replace(
        kept, delivery_attempts=3, keeps_dead_letters=False, redelivery_s=2.5
    )


@pytest.mark.parametrize(("address", "keeps"), [("", False), ("old", True)])
def test_what_expires_is_kept_where_every_expiry_address_names_a_queue(address, keeps):
    properties = {"*": {"address-settings.#.expiry-address": address}}
    spec = TestSpec(name="t", properties=properties)
    assert OwnSystem().promises(spec).keeps_expired is keeps


def test_a_live_may_have_several_backups_of_one_group(tmp_path):
    nodes = OwnSystem().plan(specs.build({"pairs": 2, "properties": {"group": {"backups": 2}}}))
    assert [(node.name, node.configured) for node in nodes[:3]] == [
        ("a1", "master"),
        ("a2", "slave"),
        ("a3", "slave"),
    ]
    assert [node.pair for node in nodes] == ["a"] * 3 + ["b"] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backups": 0}, "--set group:backups=0: it must be a number from 1 to 8"),
        ({"backup": 2}, 'group:backup: unknown property: did you mean "backups"'),
    ],
)
def test_a_wrong_number_of_backups_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        OwnSystem().plan(specs.build({"properties": {"group": given}}))


def test_a_dialect_is_data():
    """As of brokers that count bytes, know no groups, or count what came before a delivery."""
    other = Dialect(
        queue="/amq/queue/{}",
        durable={"persistent": "true"},
        group_header=None,
        window_header="consumer-window-size",
        window_unit=400,
        count_header="x-delivery-count",
        first_count=0,
    )
    assert other.destination("q0") == "/amq/queue/q0"
    assert other.send_headers("g1") == {"persistent": "true"}
    assert other.subscribe_headers(10) == {"consumer-window-size": "4000"}
    assert other.delivery({"redelivered": "true", "x-delivery-count": "1"}) == (True, 2)
    with pytest.raises(ValueError, match="x-delivery-count is 4294967296"):
        other.delivery({"x-delivery-count": str(2**32)})
    assert Dialect(window_header=None).subscribe_headers(10) == {}
    assert not other.refused({"message": "no"})


def test_what_is_kept_for_a_subscription_is_told_by_the_names_of_the_history():
    def stored(queue, **more):
        told = {"store": "main", "queue": queue, "group": None, "body": "", **more}
        found = admin.stored(told)
        return found.queue, found.subscription

    assert stored("q0") == ("q0", None)
    assert stored("/topic/t0::me.audit") == ("/topic/t0", "audit")
    assert stored(r"/topic/t0::m\.e.au\.dit") == ("/topic/t0", r"au\.dit")
    assert stored("/topic/t0::shared") == ("/topic/t0", "shared")
    assert stored("DLQ", store="dead-letter", origin="/topic/t0::me.audit") == ("/topic/t0", "audit")


@pytest.mark.parametrize(
    ("fields", "is_drawn"),
    [
        ({"policy": "replication"}, True),
        ({"policy": "standalone", "pairs": 2}, True),
        ({"policy": "standalone", "pairs": 1}, False),
        ({"policy": "ha-database"}, False),
        ({"properties": {"a1": {"cluster.message-load-balancing": "STRICT"}}}, False),
        ({"properties": {"a1": {"cluster.message-load-balancing": "ON_DEMAND"}}}, True),
    ],
)
def test_a_search_draws_redistribution_only_where_brokers_take_it(fields, is_drawn):
    spec = TestSpec(name="x", **{"pairs": 3, **fields})
    system = OwnSystem()
    drawn = system.drawn(spec, system.plan(spec))
    assert ("address-settings.#.redistribution-delay" in drawn) is is_drawn


@pytest.mark.parametrize(
    ("fields", "promised"),
    [
        ({}, True),
        ({"client_brokers": ("a1",)}, False),
        ({"client_brokers": ("a1",), "client_feed": False}, True),
        ({"client_brokers": ("a1", "a2"), "client_feed": False}, True),
        ({"client_brokers": ("a1", "b1"), "client_feed": False}, False),
        ({"client_brokers": ("a1", "a2"), "pairs": 1}, True),
    ],
)
def test_a_group_is_kept_together_where_its_producers_use_one_pair(fields, promised):
    spec = TestSpec(**{"name": "test", "policy": "replication", "pairs": 2, **fields})
    assert OwnSystem().promises(spec).groups is promised
