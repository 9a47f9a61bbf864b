"""Where dead letters and what has expired come from, as the admin port tells it."""

from types import SimpleNamespace

from broker.admin import _origin
from broker.core.expiry import expired_letter
from broker.core.message import Message


def told(queue, store="expired"):
    letter = expired_letter(Message("q0", b"destination:q0\n", b"x"), "ExpiryQueue", queue, 0)
    return _origin(SimpleNamespace(store=store, message=letter))


def test_what_has_expired_is_of_the_queue_or_the_subscription_that_had_it():
    assert told("q0") == {"origin": "q0"}
    assert told("/topic/t0::me.audit") == {"origin": "/topic/t0::me.audit"}
    assert not told("q0", store="main")


def test_what_expired_on_its_way_to_another_broker_is_of_the_queue_that_it_was_sent_to():
    assert told("$.artemis.internal.sf.my-cluster.n2") == {"origin": "q0"}
