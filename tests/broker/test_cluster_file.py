"""The cluster file of a conventional cluster: what it may have, and how it is read."""

import pytest

from broker import config
from broker.cluster_file import merged
from broker.config import ConfigurationError

CLUSTER = {"cluster-password": "p", "connector": "a1:1", "stomp-connector": "a1:2"}
LIST = ["a1:1", "b1:1"]


def written(tmp_path, own, shared):
    section = {"cluster-file": "cluster.toml", **own}
    table = {"broker": {"name": "a1"}, "cluster": CLUSTER, "ha-policy": {"conventional": section}}
    (tmp_path / "cluster.toml").write_text(config.dumps(shared))
    path = tmp_path / "broker.toml"
    path.write_text(config.dumps(table))
    return path


def conventional(**section):
    return {"ha-policy": {"conventional": {name.replace("_", "-"): value for name, value in section.items()}}}


def test_a_broker_has_the_shared_properties_of_the_cluster_file(tmp_path):
    shared = {**conventional(broker_list=LIST, master_broker="b1:1"), "cluster": {"name": "blue"}}
    loaded = config.load(written(tmp_path, {"broker-list": LIST}, shared))
    section = loaded.ha_policy.conventional
    assert (section.broker_list, section.master_broker) == (tuple(LIST), "b1:1")
    assert (loaded.cluster.name, loaded.cluster.connector) == ("blue", "a1:1")


@pytest.mark.parametrize(
    ("own", "shared", "reason"),
    [
        (
            {},
            {**conventional(broker_list=LIST), "broker": {"name": "a1"}},
            "cluster.toml: broker.name belongs into the broker.toml of each broker",
        ),
        (
            {"broker-list": ["a1:1"]},
            conventional(broker_list=LIST),
            "ha-policy.conventional.broker-list is ['a1:1'], and ['a1:1', 'b1:1'] in cluster file",
        ),
        (
            {},
            conventional(master_broker="a1:1"),
            "cluster.toml: ha-policy.conventional.broker-list is missing",
        ),
        ({}, conventional(broker_list=["b1:1"]), "broker-list lacks this broker"),
    ],
)
def test_a_wrong_cluster_file_is_refused_by_the_name_of_the_property(tmp_path, own, shared, reason):
    with pytest.raises(ConfigurationError) as raised:
        config.load(written(tmp_path, own, shared))
    assert reason in str(raised.value)


def test_a_broker_without_a_cluster_file_needs_a_list():
    table = {"broker": {"name": "a1"}, "cluster": CLUSTER, **conventional(master_broker="")}
    assert merged(table, "broker.toml", {}.__getitem__) is table
    with pytest.raises(ConfigurationError, match=r"'ha-policy.conventional.broker-list' is missing"):
        config.validate(table)
