"""Who may send to a queue, consume it, or look into it."""

import pytest
from brokers import Raw

from broker import config

pytestmark = pytest.mark.cluster

SETTINGS = {
    "acceptor.users.alice": "a",
    "acceptor.users.bob": "b",
    "acceptor.roles.producers": ["alice", "guest"],
    "security-settings.orders.#.send": ["producers"],
    "security-settings.orders.#.consume": ["bob"],
    "security-settings.orders.audit.browse": ["guest"],
    "security-settings.DLQ.consume": ["bob"],
    "security-settings.ExpiryQueue.consume": ["bob"],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    from brokers import Brokerd

    made = Brokerd(tmp_path_factory.mktemp("rights"), **SETTINGS)
    yield made
    assert made.stop() == 0


def _as(broker, login):
    return Raw(broker.port, login=login, passcode={"alice": "a", "bob": "b", "guest": "secret"}[login])


def test_who_has_the_right_does_it_by_role_and_by_name(broker):
    _as(broker, "alice").publish("m", "orders.eu")
    bob = _as(broker, "bob")
    bob.subscribe("orders.eu", ack="auto")
    assert bob.message()[0] == "m"


@pytest.mark.parametrize(
    ("login", "command", "headers", "text"),
    [
        ("bob", "SEND", {"destination": "/queue/orders"}, "user 'bob' may not send to queue 'orders'"),
        (
            "bob",
            "SEND",
            {"destination": "orders.eu.x", "content-length": "0"},
            "(security-settings of 'orders.#': send)",
        ),
        (
            "alice",
            "SUBSCRIBE",
            {"destination": "orders.eu", "id": "1"},
            "may not consume from queue 'orders.eu'",
        ),
        (
            "bob",
            "SUBSCRIBE",
            {"destination": "orders", "id": "1", "browser": "true"},
            "may not browse queue 'orders'",
        ),
        (
            "bob",
            "SUBSCRIBE",
            {"destination": "orders.audit", "id": "1"},
            "security-settings of 'orders.audit': consume",
        ),
    ],
)
def test_who_has_it_not_is_told_which_right_to_which_queue_and_closed(broker, login, command, headers, text):
    raw = _as(broker, login)
    raw.send(command, {**headers, "receipt": "r"})
    assert text in raw.error()
    assert raw.last_error["receipt-id"] == "r"


def test_a_large_message_is_refused_before_its_body_is_stored(broker):
    raw = _as(broker, "bob")
    raw.bytes(b"SEND\ndestination:orders\ncontent-length:1000000\n\nthe beginning")
    assert "may not send" in raw.error()


def test_a_queue_that_no_setting_matches_is_everybodys(broker):
    for login in ("alice", "bob", "guest"):
        _as(broker, login).publish("m", "elsewhere")


def test_a_user_or_role_that_is_not_there_is_an_error():
    table = {"broker": {"name": "a1"}, "acceptor": {"users": {"guest": "x"}}}
    for properties, text in (
        (
            {"security-settings.#.send": ["guset"]},
            "'guset' is neither in acceptor.roles nor in acceptor.users",
        ),
        ({"acceptor.roles.writers": ["guset"]}, "no user 'guset'"),
        ({"security-settings.#.sent": ["guest"]}, "did you mean 'security-settings.send'"),
    ):
        with pytest.raises(config.ConfigurationError, match=text):
            config.apply(table, properties)
