"""A test on a shared store is planned as it was asked for, and what is wrong is named before
anything starts.
"""

import asyncio
import tomllib

import pytest

from broker import config, ha_policy
from environments import registry as environments
from environments.docker import file_store
from environments.docker.environment import DockerEnvironment
from environments.ganesha import times_s
from environments.local import stores
from harness.history import spec as specs
from harness.interface import Address, Fault, Layout, Schedule, StorePlan, UsageError
from harness.run.compose import compose
from harness.systems.own.system import OwnSystem


def plan(**given):
    return OwnSystem().plan(specs.build({"policy": "shared-store", **given}))


def configured(node_name, **given):
    system = OwnSystem()
    spec = specs.build({"policy": "shared-store", **given})
    nodes = system.plan(spec)
    node = next(node for node in nodes if node.name == node_name)
    listen = {port: Address("127.0.0.1", 1001 + n) for n, port in enumerate(node.ports)}
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
    assert isinstance(master, ha_policy.SharedStoreMaster)
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


def composed(environment, schedule=None, **given):
    asked = {"policy": "shared-store", "environment": environment, "pairs": 1, **given}
    return compose(specs.build(asked), schedule)


@pytest.mark.parametrize("lack", ["ganesha.nfsd is not installed", "/dev/fuse is missing"])
def test_where_nfs_cannot_be_had_its_faults_are_refused_by_the_name_of_what_is_missing(monkeypatch, lack):
    monkeypatch.setattr(stores.ganesha, "missing", lambda: lack if "ganesha" in lack else "")
    monkeypatch.setattr(stores.fuse_device, "missing", lambda: lack if "fuse" in lack else "")
    with pytest.raises(UsageError, match=rf"\(nfs-stall\): .*{lack}.*docker or simulation"):
        composed("local", nemeses=("nfs-stall",))
    with pytest.raises(UsageError, match=f"on NFS, and {lack}"):
        composed("local", properties={"store": {"type": "nfs"}})
    assert environments.create("simulation").supports()["nfs-stall"] == ""


def test_containers_refuse_a_store_where_they_could_not_mount_it_before_anything_is_made(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(file_store, "missing", lambda: "/dev/fuse is missing on this host")
    spec = specs.build({"policy": "shared-store"})
    system = OwnSystem()
    with pytest.raises(UsageError, match="/dev/fuse is missing on this host"):
        asyncio.run(DockerEnvironment().deploy(system, spec, system.plan(spec), tmp_path))


@pytest.mark.parametrize(
    ("given", "nfs"),
    [
        ({}, False),
        ({"properties": {"store": {"backups": 2}}}, False),
        ({"properties": {"store": {"type": "directory"}}}, False),
        ({"properties": {"store": {"type": "nfs"}}}, True),
        ({"properties": {"store": {"mount-options": "soft"}}}, True),
        ({"properties": {"store": {"lease-ms": 5000}}}, True),
        ({"nemeses": ("nfs-restart",)}, True),
        ({"nemeses": ("kill",)}, False),
    ],
)
def test_brokers_of_one_machine_share_a_plain_directory_until_something_asks_for_a_file_server(
    monkeypatch, given, nfs
):
    monkeypatch.setattr(stores, "missing", lambda: "")
    assert {node.store.nfs for node in composed("local", **given).nodes} == {nfs}


def test_a_replayed_fault_of_a_file_server_asks_for_one(monkeypatch):
    monkeypatch.setattr(stores, "missing", lambda: "")
    replayed = Schedule(faults=(Fault(kind="nfs-stall", start_s=1.0, duration_s=1.0, target="a1"),))
    assert {node.store.nfs for node in composed("local", replayed).nodes} == {True}
    assert {node.store.nfs for node in composed("local").nodes} == {False}


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ({"lease-ms": 2500}, "lease-ms=2500.*whole seconds, for example 3000"),
        ({"lease-ms": 600_000}, "120 s at most"),
    ],
)
def test_a_real_server_has_a_lease_of_whole_seconds_and_says_so(monkeypatch, store, message):
    monkeypatch.setattr(stores, "missing", lambda: "")
    with pytest.raises(UsageError, match=message):
        composed("local", properties={"store": store})
    composed("simulation", properties={"store": store})


def test_a_real_servers_grace_is_no_shorter_than_its_lease():
    assert times_s(StorePlan(name="a")) == (4, 4)
    assert times_s(StorePlan(name="a", lease_ms=3000, grace_ms=6100)) == (3, 7)


def test_a_fault_of_a_store_needs_a_store():
    with pytest.raises(UsageError, match="use --policy shared-store"):
        compose(
            specs.build({"policy": "replication", "environment": "simulation", "nemeses": ("nfs-restart",)})
        )


def test_the_instances_of_a_queue_manager_share_a_store_and_the_second_is_started_beside_the_first():
    nodes = plan(policy="multi-instance", pairs=2)
    assert [(node.name, node.configured, node.store.name, node.after) for node in nodes] == [
        ("a1", "instance", "a", None),
        ("a2", "instance", "a", "a1"),
        ("b1", "instance", "b", None),
        ("b2", "instance", "b", "b1"),
    ]
    for node in ("a1", "b2"):
        section = configured(node, policy="multi-instance", pairs=2).ha_policy.multi_instance
        assert section.queue_manager == f"QM{node[0].upper()}"
        assert section.permit_standby
        assert section.lock_expiration <= StorePlan(name="a").lease_ms


def test_the_ids_of_a_machine_are_its_own():
    nodes = plan(policy="multi-instance", pairs=1, properties={"store": {"uid.a2": 502, "gid": 7}})
    assert [(node.store.uid, node.store.gid) for node in nodes] == [(501, 7), (502, 7)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backups": 2}, "store:backups: unknown property"),
        ({"lease-ms.a2": 2}, "store:lease-ms.a2: unknown property"),
        ({"user": 2}, "store:user: unknown property"),
        ({"uid.a9": 2}, 'no node "a9" in this test'),
        ({"uid.": 2}, 'no node "" in this test'),
        ({"uid.a2": -1}, "uid"),
        ({"type": "database"}, "it must be directory or nfs"),
    ],
)
def test_what_a_queue_managers_store_does_not_have_is_named(wrong, message):
    with pytest.raises(UsageError, match=message):
        plan(policy="multi-instance", pairs=1, properties={"store": wrong})
