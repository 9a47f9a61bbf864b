"""A test on a shared store is planned as it was asked for, and what is wrong is named before anything starts."""

import asyncio
import tomllib

import pytest

from broker import config
from environments import registry as environments
from environments.docker.environment import DockerEnvironment
from harness import spec as specs
from harness.compose import compose
from harness.interface import Address, Layout, UsageError
from harness.outside import StorePlan
from harness.systems.own import OwnSystem


def plan(**given):
    return OwnSystem().plan(specs.build({"policy": "shared-store", **given}))


def configured(node_name, **given):
    system = OwnSystem()
    spec = specs.build({"policy": "shared-store", **given})
    nodes = system.plan(spec)
    node = next(node for node in nodes if node.name == node_name)
    listen = {port: Address("127.0.0.1", 1001) for port in node.ports}
    files = system.files(spec, node, nodes, Layout(etc="etc", data="data", logs="logs"), listen, {})
    return config.validate(tomllib.loads(files["broker.toml"].decode()))


def test_each_pair_has_a_store_of_its_own_that_its_nodes_share():
    nodes = plan(pairs=2)
    assert [(node.name, node.configured, node.store.name) for node in nodes] == [
        ("a1", "master", "a"),
        ("a2", "slave", "a"),
        ("b1", "master", "b"),
        ("b2", "slave", "b"),
    ]


def test_several_backups_may_wait_at_one_store():
    nodes = plan(pairs=1, properties={"store": {"backups": 3}})
    assert [(node.name, node.configured) for node in nodes] == [
        ("a1", "master"),
        ("a2", "slave"),
        ("a3", "slave"),
        ("a4", "slave"),
    ]
    assert len({node.store for node in nodes}) == 1


def test_the_store_of_other_policies_is_each_brokers_own():
    assert {node.store for node in OwnSystem().plan(specs.build({"policy": "replication"}))} == {None}
    with pytest.raises(UsageError, match='no node "store"'):
        OwnSystem().plan(specs.build({"policy": "replication", "properties": {"store": {"backups": 2}}}))


def test_a_brokers_patience_in_a_test_is_not_longer_than_the_stores_lease():
    for node in ("a1", "a2"):
        section = configured(node, pairs=1).shared_store
        assert section.lock_expiration <= StorePlan(name="a").lease_ms
        assert section.lock_renew_period * 4 < section.lock_expiration


def test_a_property_of_the_policy_may_be_set_for_both_roles_at_once():
    properties = {
        "*": {
            "ha-policy.shared-store.lock-poll-period": 50,
            "ha-policy.shared-store.slave.allow-failback": False,
        }
    }
    master = configured("a1", pairs=1, properties=properties).shared_store
    slave = configured("a2", pairs=1, properties=properties).shared_store
    assert isinstance(master, config.SharedStoreMaster)
    assert (master.lock_poll_period, slave.lock_poll_period, slave.allow_failback) == (50, 50, False)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"backup": 2}, 'did you mean "backups"'),
        ({"backups": 0}, "from 1 to 8"),
        ({"backups": True}, "from 1 to 8"),
        ({"lease-ms": "long"}, "lease-ms"),
        ({"lease-ms": 0}, "lease-ms"),
        ({"mount-options": "sofd,timeo=5"}, "did you mean 'soft'"),
    ],
)
def test_what_is_wrong_with_a_store_is_named(properties, message):
    with pytest.raises(UsageError, match=message):
        plan(properties={"store": properties})


def test_where_there_is_no_nfs_its_faults_are_refused_by_name():
    with pytest.raises(UsageError, match="nfs-stall: needs a store on NFS"):
        compose(specs.build({"policy": "shared-store", "environment": "local", "nemeses": ("nfs-stall",)}))
    assert environments.create("simulation").supports()["nfs-stall"] == ""


def test_containers_have_no_shared_directory_and_say_so_before_anything_is_made(tmp_path):
    spec = specs.build({"policy": "shared-store"})
    system = OwnSystem()
    with pytest.raises(UsageError, match="share a directory, which containers here do not have"):
        asyncio.run(DockerEnvironment().deploy(system, spec, system.plan(spec), tmp_path))


def test_a_fault_of_a_store_needs_a_store():
    with pytest.raises(UsageError, match="use --policy shared-store"):
        compose(
            specs.build({"policy": "replication", "environment": "simulation", "nemeses": ("nfs-restart",)})
        )
