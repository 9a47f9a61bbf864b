"""broker.toml: strict, typed, and every property has a dotted name."""

import pytest

from broker import config, ha_policy, sections

BASE = {"broker": {"name": "a1"}}
CLUSTER = {"cluster": {"cluster-password": "p", "connector": "a1:61616", "stomp-connector": "a1:61613"}}


def test_defaults_are_those_of_the_documents():
    made = config.apply({**BASE, **CLUSTER}, {"ha-policy.replication.slave.group-name": "g"})
    parsed = config.validate(made)
    slave = parsed.replication
    assert isinstance(slave, ha_policy.SlaveSection)
    assert (slave.vote_retries, slave.vote_retry_wait, slave.initial_replication_sync_timeout) == (
        12,
        5000,
        30_000,
    )
    assert (slave.allow_failback, slave.restart_backup, slave.vote_on_replication_failure) == (
        True,
        True,
        False,
    )
    assert parsed.cluster.message_load_balancing == "ON_DEMAND"
    assert parsed.acceptor.connection_ttl is None


def test_what_is_written_is_read_back(tmp_path):
    made = config.apply(
        {**BASE, **CLUSTER},
        {
            "cluster.cluster-password": 'quote " back \\ line \n tab \t ☃ \x7f',
            "acceptor.users.guest.with.dots": "x",
            "hosts.a2:61616": "127.0.0.1:4711",
            "hosts.10.0.0.1:61616": "127.0.0.1:4712",
            "cluster.static-connectors": ["a2:61616", "10.0.0.1:61616"],
            "cluster.retry-interval-multiplier": 1.5,
            "ha-policy.replication.master.check-for-live-server": True,
            "address-settings.orders.#.max-delivery-attempts": 3,
            "address-settings.orders.#.redelivery-delay": 5,
            "address-settings.#.max-size-bytes": -1,
            "broadcast-groups.the.lan.group-address": "231.7.7.7",
            "broadcast-groups.the.lan.group-port": 9876,
        },
    )
    path = tmp_path / "broker.toml"
    path.write_text(config.dumps(made), encoding="utf-8")
    parsed = config.load(path)
    assert parsed == config.validate(made, str(path))
    assert parsed.acceptor.users == {"guest.with.dots": "x"}
    assert parsed.resolved_hosts() == {"a2:61616": ("127.0.0.1", 4711), "10.0.0.1:61616": ("127.0.0.1", 4712)}
    assert [(one.match, one.max_delivery_attempts) for one in parsed.address_settings] == [
        ("orders.#", 3),
        ("#", 10),
    ]
    assert [(group.name, group.group_port) for group in parsed.broadcast_groups] == [("the.lan", 9876)]
    assert parsed.data_path == tmp_path / "data"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xff", "is not UTF-8: byte 0 is wrong"),
        (b"[broker", "is not TOML: "),
        (b"[broker]\nname = " + b"[" * 90_000, "values within values, too deep to be read"),
        (b"[broker]\n" + b"a." * 200_000 + b"a = 1", "line 2: a key has more than 50 parts"),
        (b"[" + b"a." * 50 + b"a]", "line 1: a key has more than 50 parts"),
    ],
)
def test_what_is_no_toml_is_said_in_one_line(tmp_path, text, why):
    path = tmp_path / "broker.toml"
    path.write_bytes(text)
    with pytest.raises(sections.ConfigurationError) as told:
        config.load(path)
    assert str(told.value).startswith(f"{path}: {why}")
    assert "\n" not in str(told.value)


def test_apply_changes_a_copy_and_none_removes():
    table = {"broker": {"name": "a1", "log-level": "DEBUG"}}
    assert config.apply(table, {"broker.log-level": None}) == BASE
    assert table["broker"]["log-level"] == "DEBUG"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("broker.log_level", "INFO", "unknown property 'broker.log_level'; did you mean 'broker.log-level'?"),
        ("acceptor.heartbeat-send", 1, "did you mean 'acceptor.heart-beat-send'?"),
        (
            "ha-policy.replication.slave.vote-retrys",
            1,
            "did you mean 'ha-policy.replication.slave.vote-retries'?",
        ),
        (
            "ha-policy.shared-stor.master.failover-on-shutdown",
            True,
            "unknown property 'ha-policy.shared-stor'; did you mean 'ha-policy.shared-store'?",
        ),
        ("address-settings.#.max-size", 1, "did you mean 'address-settings.max-size-bytes'?"),
        ("address-settings.max-size-bytes", 1, "lacks the match"),
        ("broadcast-groups.group-port", 1, "lacks the name: broadcast-groups.<name>.<property>"),
        ("broadcast-groups.lan.group-port", -1, "'broadcast-groups[0].group-port': expected int >= 0"),
        ("discovery-groups.lan.jgroups-channel", "../up", "'discovery-groups[0].jgroups-channel'"),
        ("nonsense", 1, "unknown property 'nonsense'; known here: acceptor,"),
        ("path", "x", "unknown property 'path'"),
        ("acceptor.port", "61613", "property 'acceptor.port': expected int, got str, got '61613'"),
        ("acceptor.port", 65536, "property 'acceptor.port': expected int <= 65535, got 65536"),
        ("acceptor.port", True, "property 'acceptor.port'"),
        ("cluster.message-load-balancing", "SOMETIMES", "'cluster.message-load-balancing'"),
        ("cluster.connector", "a1", "'cluster.connector'"),
        ("cluster.static-connectors", ["a2"], "'cluster.static-connectors': expected host:port, got 'a2'"),
        ("cluster.max-hops", 0, "property 'cluster.max-hops': expected int >= 1, got 0"),
        ("cluster.max-hops", 65, "property 'cluster.max-hops': expected int <= 64, got 65"),
        ("hosts.a2:61616", "nowhere", "property 'hosts.a2:61616': expected host:port, got 'nowhere'"),
        ("broker.name", "", "property 'broker.name'"),
        ("broker.name", "a\nb", "property 'broker.name'"),
        ("broker.name", None, "property 'broker.name' is missing"),
        ("broker.name.x", 1, "'name' is a value, not a section"),
        ("journal.segment-size", 10, "property 'journal.segment-size'"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_property_and_the_remedy(name, value, message):
    with pytest.raises(config.ConfigurationError) as caught:
        config.apply({**BASE, **CLUSTER}, {name: value}, "etc/broker.toml")
    text = str(caught.value)
    assert text.startswith("etc/broker.toml: ")
    assert message in text
    assert "\n" not in text


def test_replication_wants_one_role_and_a_cluster():
    with pytest.raises(config.ConfigurationError, match=r"wants a \[cluster\] section"):
        config.apply(BASE, {"ha-policy.replication.master.group-name": "g"})
    with pytest.raises(config.ConfigurationError, match="exactly one of master and slave"):
        config.apply(
            {**BASE, **CLUSTER},
            {"ha-policy.replication.master.group-name": "g", "ha-policy.replication.slave.group-name": "g"},
        )


def test_every_property_has_a_dotted_name():
    def walk(kind, prefix):
        for name, inner in config._fields(kind).items():
            struct = config._struct_of(inner)
            if struct is None:
                yield f"{prefix}{name}", inner
            elif struct is sections.AddressSettings:
                yield from walk(struct, f"{prefix}{name}.#.")
            else:
                yield from walk(struct, f"{prefix}{name}.")

    names = dict(walk(config.BrokerConfig, ""))
    assert "ha-policy.replication.slave.vote-retries" in names
    assert "acceptor.connection-ttl" in names
    assert len(names) > 60
    for name in names:
        with pytest.raises(config.ConfigurationError) as caught:
            config.apply({**BASE, **CLUSTER}, {name: object()})
        assert "unknown property" not in str(caught.value), name


SQLITE = {"url": "sqlite:store.sqlite"}


@pytest.mark.parametrize(
    ("shared", "database", "message"),
    [
        ({"store": "database", "master": {}}, None, "a [database-store] section belong together"),
        ({"master": {}}, SQLITE, "a [database-store] section belong together"),
        (
            {"store": "database", "slave": {"lock-expiration": 9000}},
            SQLITE,
            (
                "ha-policy.shared-store.slave.lock-expiration is for a directory: on a database it is "
                "database-store.lock-expiration"
            ),
        ),
        (
            {"store": "database", "master": {}},
            SQLITE | {"lock-renew-period": 4000},
            (
                "database-store.lock-expiration is 15000: it must be at least four times lock-renew-period "
                "(4000)"
            ),
        ),
        (
            {"store": "database", "master": {}},
            SQLITE | {"network-timeout": 15_000},
            "database-store.network-timeout is 15000: it must be shorter than lock-expiration",
        ),
        (
            {"store": "database", "master": {"lock-poll-period": 8000}},
            SQLITE,
            "ha-policy.shared-store.master.lock-poll-period is 8000: it must be at most half",
        ),
        (
            {"master": {"lock-renew-period": 4000}},
            None,
            "ha-policy.shared-store.master.lock-expiration is 15000: it must be at least four times",
        ),
        (
            {"store": "database", "master": {}},
            {"url": "postgresql://me:secret@db/x"},
            "database-store.url must not hold credentials",
        ),
    ],
)
def test_a_shared_store_and_its_times_belong_together(shared, database, message):
    table = {**BASE, **CLUSTER, "ha-policy": {"shared-store": shared}}
    with pytest.raises(config.ConfigurationError) as caught:
        config.validate(table if database is None else {**table, "database-store": database})
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_on_a_database_the_times_of_the_lock_are_the_databases():
    times = {"lock-renew-period": 300, "lock-expiration": 6000, "network-timeout": 1000}
    shared = {"store": "database", "slave": {"restart-backup": False}}
    table = {
        **BASE,
        **CLUSTER,
        "ha-policy": {"shared-store": shared},
        "database-store": SQLITE | times,
    }
    role = config.validate(table).shared_store
    assert (role.lock_renew_period, role.lock_expiration, role.restart_backup) == (300, 6000, False)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ha-policy.shared-store": {}}, "ha-policy.shared-store wants exactly one of master and slave"),
        (
            {"ha-policy.shared-store": {"master": {}}, "ha-policy.replication": {"slave": {}}},
            "ha-policy has replication and shared-store: a broker has one policy",
        ),
        ({"ha-policy.shared-store": {"slave": {}}, "cluster": None}, "wants a [cluster] section"),
        (
            {"ha-policy.multi-instance": {"queue-manager": "QM1"}, "cluster": None},
            "ha-policy.multi-instance wants a [cluster] section",
        ),
        (
            {"ha-policy.multi-instance": {"queue-manager": "QM1", "log-directory": "qmgrs"}},
            "ha-policy.multi-instance.data-directory and log-directory are both 'qmgrs'",
        ),
        (
            {"ha-policy.multi-instance": {"queue-manager": "../QM1"}},
            "'ha-policy.multi-instance.queue-manager'",
        ),
    ],
)
def test_a_broker_has_one_policy_one_role_and_a_cluster(properties, message):
    with pytest.raises(config.ConfigurationError) as caught:
        config.validate({**BASE, **CLUSTER} | _nested(properties))
    assert message in str(caught.value)


def _nested(properties):
    policies = {name.partition(".")[2]: value for name, value in properties.items() if "." in name}
    return {"ha-policy": policies} | {name: value for name, value in properties.items() if "." not in name}
