"""Properties that are right one by one and wrong together.

Refused in one line, by the broker and by the harness, before anything starts.
"""

import pytest
from refused_start import refused_start

from broker import config
from broker.contradictions import contradiction

BASE = {"broker": {"name": "a1"}}
CLUSTER = {"cluster": {"cluster-password": "p", "connector": "a1:61616", "stomp-connector": "a1:61613"}}
USERS = {"acceptor.users.guest": "x"}
GROUP = {"name": "lan", "group-address": "231.7.7.7", "group-port": 9876}
TLS = {"acceptor.ssl-enabled": True, "acceptor.key-store-path": "key.pem"}
CHAIN = {"cluster.allow-direct-connections-only": True, "cluster.static-connectors": ["b:1"]}

CONTRADICTIONS = [
    ({"acceptor.key-store-path": "k.pem"},
     "acceptor.key-store-path is given, and acceptor.ssl-enabled is false"),
    ({"cluster.trust-store-path": "t.pem"},
     "cluster.trust-store-path is given, and cluster.ssl-enabled is false"),
    ({"acceptor.ssl-enabled": True}, "acceptor.ssl-enabled wants acceptor.key-store-path"),
    ({"cluster.ssl-enabled": True, "cluster.key-store-path": "k"},
     "cluster.ssl-enabled wants cluster.trust-store-path"),
    ({"acceptor.need-client-auth": True}, "acceptor.need-client-auth wants acceptor.ssl-enabled"),
    ({**TLS, "acceptor.trust-store-path": "t"},
     "acceptor.need-client-auth is false: no certificate would be asked for"),
    ({"acceptor.host": "0.0.0.0"}, "acceptor.host is 0.0.0.0, and acceptor.users is empty"),
    ({"acceptor.host": "10.0.0.7", **TLS}, "acceptor.host is 10.0.0.7, and acceptor.users is empty"),
    ({"broker.security-enabled": False, **USERS}, "broker.security-enabled is false"),
    ({"cluster.cluster-password": None},
     "cluster.cluster-password is missing: make one with openssl rand -hex 24"),
    ({"cluster.cluster-password": "CHANGE ME!!"},
     "cluster.cluster-password is missing (the default of the documents is none)"),
    ({"cluster": None, "admin.host": "0.0.0.0"},
     "admin.host is 0.0.0.0: who can connect could stop the broker, so it wants a secret"),
    ({"address-settings.#.limit-behavior": "REMOVE_OLDEST", "address-settings.#.max-messages": 9,
      "address-settings.#.address-full-policy": "PAGE"},
     "limit-behavior is REMOVE_OLDEST, and address-full-policy is PAGE: what is on the disk could not"),
    ({"address-settings.#.limit-behavior": "REJECT_NEWEST"},
     "limit-behavior is given, and neither max-messages nor broker.max-messages"),
    ({"address-settings.#.max-messages": 0}, "address-settings of '#': max-messages is 0"),
    ({"address-settings.#.max-producers": 0}, "address-settings of '#': max-producers is 0"),
    ({"broker.max-messages": 0}, "broker.max-messages is 0: nobody could use the broker"),
    ({"broker.max-connections": 0}, "broker.max-connections is 0: nobody could use the broker"),
    ({"acceptor.users": {"": "x"}}, "acceptor.users has a user without a name"),
    ({"acceptor.users.guest": ""}, "acceptor.users.guest has an empty passcode"),
    ({**USERS, "acceptor.roles.guest": ["guest"]}, "acceptor.roles.guest has the name of a user"),
    ({"admin.secret": "s", "admin.secret-file": "f"}, "admin.secret and admin.secret-file are two secrets"),
    ({"acceptor.websocket-allowed-origins": ["shop.example"]}, "'shop.example' is no origin"),
    ({"acceptor.websocket-allowed-origins": ["https://shop.example/"]},
     "'https://shop.example/' is no origin"),
    ({"acceptor.websocket-allowed-origins": ["*", "https://shop.example"]}, '"*", which is all sites'),
    (
        {"address-settings": [{"match": "q", "redistribution-delay": 0}],
         "cluster.message-load-balancing": "STRICT"},
        "address-settings of 'q': redistribution-delay is 0, and cluster.message-load-balancing is STRICT",
    ),
    ({"admin.port": 61613}, "acceptor.port and admin.port are both 61613"),
    ({"cluster.port": 61612}, "admin.port and cluster.port are both 61612"),
    ({"cluster.connector": "a1:61613"}, "cluster.connector and cluster.stomp-connector are both a1:61613"),
    (
        {"broker.transaction-timeout": 500, "broker.transaction-timeout-scan-period": 900},
        "broker.transaction-timeout-scan-period is 900, and broker.transaction-timeout is 500",
    ),
    ({"acceptor.max-transactions": 11, "broker.max-transactions": 10}, "acceptor.max-transactions is 11"),
    (
        {"acceptor.max-transaction-bytes": 600, "broker.global-max-size": 1000},
        "all transactions together may have 500 (50 percent of broker.global-max-size)",
    ),
    ({"acceptor.heart-beat-receive": 100, "acceptor.connection-ttl": 50},
     "acceptor.heart-beat-receive is 100"),
    (
        {"acceptor.min-large-message-size": 2000, "acceptor.max-body-bytes": 1000},
        "acceptor.min-large-message-size is 2000, and acceptor.max-body-bytes is 1000",
    ),
    (
        {"address-settings.#.page-size-bytes": 4096, "address-settings.#.max-size-bytes": 4096},
        "the first may not be above half of the second",
    ),
    ({"address-settings.#.auto-delete-queues-delay": 1},
     "auto-delete-queues is false: no queue would be deleted"),
    ({"address-settings": [{"match": "q"}, {"match": "q"}]},
     "address-settings has 2 tables with match = 'q'"),
    (
        {**USERS, "security-settings": [{"send": ["guest"]}, {"match": "#"}]},
        "security-settings has 2 tables with match = '#'",
    ),
    (
        {"ha-policy.multi-instance.queue-manager": "QM", "ha-policy.multi-instance.lock-expiration": 3000},
        "ha-policy.multi-instance.lock-expiration is 3000: it must be at least four times",
    ),
    (
        {"ha-policy.ha-database.cluster-id": "c", "database-store.url": "sqlite:s",
         "database-store.user": "u",
         "cluster.message-load-balancing": "OFF"},
        "a file of SQLite asks for none",
    ),
    (
        {"ha-policy.ha-database.cluster-id": "c", "database-store.url": "postgresql://h/d",
         "database-store.password": "TOPSECRET",
         "cluster.message-load-balancing": "OFF"},
        "database-store.password is given, and database-store.user is not",
    ),
    (
        {"ha-policy.shared-store.master.backup-vote": "reachability"},
        "unknown property 'ha-policy.shared-store.master.backup-vote'",
    ),
    ({"broadcast-groups": [{**GROUP, "group-address": "10.0.0.1"}]},
     "broadcast-groups of 'lan': group-address is '10.0.0.1': it must be a multicast address"),
    ({"broadcast-groups": [{**GROUP, "group-address": "224.0.0.0"}]}, "group-address is '224.0.0.0'"),
    ({"broadcast-groups": [{**GROUP, "group-address": "everyone"}]}, "group-address is 'everyone'"),
    ({"broadcast-groups": [{**GROUP, "local-bind-address": "eth0"}]},
     "local-bind-address is 'eth0': it must be the IPv4 address of a network interface"),
    ({"broadcast-groups": [GROUP, GROUP]}, "broadcast-groups has 2 tables with name = 'lan'"),
    ({"cluster": None, "broadcast-groups": [GROUP]}, "broadcast-groups is given, and [cluster] is not"),
    ({"cluster.discovery-group-ref": "wan", "discovery-groups": [{**GROUP, "name": "wan"}, GROUP]},
     "discovery-groups of 'lan': cluster.discovery-group-ref is 'wan': nothing would listen"),
    ({"broadcast-groups": [{"name": "lan"}]},
     "broadcast-groups of 'lan': it needs group-address and group-port, or jgroups-file and jgroups-channel"),
    ({"broadcast-groups": [{"name": "lan", "group-address": "231.7.7.7"}]}, "it needs group-address and"),
    ({"broadcast-groups": [{"name": "lan", "jgroups-file": "d"}]}, "it needs group-address and"),
    ({"broadcast-groups": [{**GROUP, "jgroups-channel": "c"}]},
     "a group is one of multicast or one of files; leave out the one or the other"),
    ({"cluster.discovery-group-ref": "lan"}, "discovery-groups has no group of that name"),
    ({"cluster.discovery-group-ref": "lan", "discovery-groups": [GROUP],
      "cluster.static-connectors": ["b:1"]},
     "cluster.discovery-group-ref and cluster.static-connectors are both given"),
    ({"cluster.allow-direct-connections-only": True},
     "cluster.allow-direct-connections-only is true, and cluster.static-connectors is empty"),
    ({**CHAIN, "ha-policy.replication.master.check-for-live-server": True},
     "cluster.allow-direct-connections-only is true, and ha-policy.replication needs votes"),
    ({**CHAIN, "cluster.message-load-balancing": "OFF",
      "ha-policy.ha-database.cluster-id": "c", "database-store.url": "sqlite:s"},
     "brokers of ha-policy.ha-database find and watch each other by their database"),
]  # fmt: skip

TOGETHER = [
    {"acceptor.host": "0.0.0.0", **USERS},
    {"cluster": None, "admin.host": "0.0.0.0", "admin.secret": "s"},
    {"acceptor.host": "0.0.0.0", "broker.security-enabled": False},
    {"acceptor.host": "0.0.0.0", **TLS, "acceptor.need-client-auth": True, "acceptor.trust-store-path": "t"},
    {"acceptor.port": 0, "admin.port": 0, "cluster.port": 0},
    {"acceptor.host": "127.0.0.1", "acceptor.port": 7000, "admin.host": "127.0.0.2", "admin.port": 7000},
    {"acceptor.websocket-allowed-origins": ["https://shop.example:8443", "null"]},
    {"broker.global-max-size": 1000, "cluster.retry-interval": 9000, "broker.transaction-timeout": 10},
    {"acceptor.connection-ttl": -1, "acceptor.heart-beat-receive": 100, "acceptor.min-large-message-size": -1,
     "acceptor.max-body-bytes": 10},
    {"address-settings.#.page-size-bytes": 4096, "address-settings.#.max-size-bytes": -1,
     "address-settings.q.auto-delete-queues": True,
     "address-settings.q.auto-delete-queues-delay": 5},
    {"broadcast-groups": [GROUP, {**GROUP, "name": "also", "group-address": "239.255.255.255",
                                  "local-bind-address": "10.0.0.1"}]},
    {"broadcast-groups": [{"name": "lan", "jgroups-file": "/shared", "jgroups-channel": "lan"}]},
    {"cluster.discovery-group-ref": "lan", "discovery-groups": [GROUP], "cluster.static-connectors": []},
    {**CHAIN, "cluster.max-hops": 3, "ha-policy.shared-store.master.failover-on-shutdown": True},
]  # fmt: skip


def applied(properties, path=""):
    tables = {name: value for name, value in properties.items() if name.endswith(("-settings", "-groups"))}
    single = {name: value for name, value in properties.items() if name not in tables}
    return config.apply({**BASE, **CLUSTER, **tables}, single, path)


@pytest.mark.parametrize(("properties", "message"), CONTRADICTIONS)
def test_what_contradicts_each_other_is_one_line(properties, message):
    with pytest.raises(config.ConfigurationError) as caught:
        applied(properties, "etc/broker.toml")
    text = str(caught.value)
    assert text.startswith("etc/broker.toml: ")
    assert message in text
    assert "\n" not in text
    assert "TOPSECRET" not in text


@pytest.mark.parametrize("properties", TOGETHER)
def test_what_goes_together_is_taken(properties):
    assert applied(properties)


def test_every_default_goes_with_every_other():
    assert not contradiction(config.validate({**BASE, **CLUSTER}), {**BASE, **CLUSTER})


@pytest.mark.cluster
@pytest.mark.parametrize("properties", [CONTRADICTIONS[2][0], CONTRADICTIONS[6][0]])
def test_a_broker_ends_before_it_has_made_anything(properties, tmp_path):
    table = dict(BASE)
    for name, value in properties.items():
        section, _, key = name.partition(".")
        table[section] = {**table.get(section, {}), key: value}
    assert refused_start(tmp_path, table)
