"""Where a client belongs, and what a configuration may say."""

import pytest

from broker import config
from broker.ha_policy import DatabaseStoreSection
from broker.policies.ha_database.store_sessions import StoreSessions


def test_a_client_is_taken_in_where_its_session_is_served_and_told_where_else():
    sessions = StoreSessions(3, (1, 3))
    sessions.learn({5: "b1:61613"})
    assert sessions.redirect_for({}) == ("", "")
    assert sessions.redirect_for({"store-session": "1"}) == ("", "")
    assert sessions.redirect_for({"store-session": "5"}) == ("store session 5 is not served here", "b1:61613")
    assert sessions.redirect_for({"store-session": "6"}) == ("store session 6 is not served here", "")
    assert sessions.told == "store-session:3\n"


@pytest.mark.parametrize("named", ["", "x", "-1", "1.5", "٣", "9" * 40])
def test_a_session_that_is_no_number_is_refused(named):
    reason, address = StoreSessions(1, (1,)).redirect_for({"store-session": named})
    assert "is not a number" in reason
    assert not address


def test_after_a_takeover_the_victims_sessions_are_served_here_under_a_new_one():
    sessions = StoreSessions(3, (3,))
    sessions.adopt(9, (5, 6))
    assert sessions.sessions == (3, 5, 6, 9)
    assert sessions.current == 9
    assert sessions.redirect_for({"store-session": "5"}) == ("", "")


def test_a_closed_broker_takes_in_nobody_not_even_its_own():
    sessions = StoreSessions(3, (3,))
    sessions.closed = "quiescing"
    assert sessions.redirect_for({"store-session": "3"}) == ("quiescing", "")
    assert sessions.redirect_for({}) == ("quiescing", "")


# ------------------------------------------------------------------------------------ configuration

STORE = {"url": "postgresql://db:5432/store", "user": "u", "password": "pass-word"}


def table(store=STORE, ha=None, **cluster):
    return {
        "broker": {"name": "a1"},
        "cluster": {
            "cluster-password": "cluster-secret",
            "connector": "a1:61616",
            "stomp-connector": "a1:61613",
            "message-load-balancing": "OFF",
            **cluster,
        },
        "ha-policy": {"ha-database": {"cluster-id": "c"} if ha is None else ha},
        "database-store": store,
    }


def refused(given):
    with pytest.raises(config.ConfigurationError) as caught:
        config.validate(given, "broker.toml")
    said = str(caught.value)
    assert "\n" not in said
    assert "pass-word" not in said
    return said


def test_a_password_is_in_no_representation_of_a_configuration():
    settings = config.validate(table())
    assert settings.database_store == DatabaseStoreSection(**STORE)
    assert "pass-word" not in repr(settings)
    assert "pass-word" not in str(settings.database_store)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (table(ha={}), "ha-policy.ha-database.cluster-id"),
        (table(ha={"cluster-id": "c", "heartbeat-intervall": 1}), "heartbeat-interval"),
        (table(**{"message-load-balancing": "ON_DEMAND"}), "message-load-balancing must be OFF"),
        (table({**STORE, "url": "oracle:x"}), "postgresql://host:port/name or sqlite:path"),
        (table({**STORE, "url": "postgresql://u:pass-word@db/x"}), "must not hold credentials"),
        (table({**STORE, "lock-expiration": 7000}), "at least four times"),
        (table({**STORE, "network-timeout": 0}), "database-store.network-timeout"),
        (table({**STORE, "password": 5}), "database-store.password"),
        ({key: value for key, value in table().items() if key != "cluster"}, "wants a [cluster] section"),
        ({key: value for key, value in table().items() if key != "database-store"}, "belong together"),
        ({key: value for key, value in table().items() if key != "ha-policy"}, "belong together"),
    ],
)
def test_what_a_configuration_lacks_is_said_in_one_line(given, words):
    assert words in refused(given)


def test_a_password_of_the_wrong_type_is_not_repeated():
    assert "90210" not in refused(table({**STORE, "password": 90210}))
