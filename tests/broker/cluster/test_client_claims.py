"""A client that names itself has one connection in the whole cluster, whoever hears of it when."""

import itertools
from types import SimpleNamespace

import pytest

from broker.cluster import client_claims
from broker.cluster import messages as m
from broker.cluster.client_claims import ClientClaims
from broker.core.changes import NUMBER_MAX

CLIENT = ("user", "c")


class Broker:
    """One broker; what it says waits for the test."""

    def __init__(self, name):
        self.name = name
        self.said = []
        self.ended = []
        self.membership = SimpleNamespace(
            own=SimpleNamespace(name=name),
            handlers={},
            on_linked=[],
            neighbours=SimpleNamespace(broadcast=self.said.append),
        )
        self.claims = ClientClaims(self.membership, lambda client, why: self.ended.append((client, why)))

    def hear(self, other):
        for message in other.said:
            self.membership.handlers[type(message)](SimpleNamespace(member=other.membership.own), message)

    def meet(self, other):
        link = SimpleNamespace(member=other.membership.own, send=self.said.append)
        self.said.clear()
        for greet in self.membership.on_linked:
            greet(link)
        other.hear(self)


def test_the_later_connection_ends_the_former_at_another_broker():
    first, second = Broker("a"), Broker("b")
    first.claims.claim(CLIENT)
    second.hear(first)
    second.claims.claim(CLIENT)
    first.hear(second)
    assert first.ended == [(CLIENT, "client-id 'c' has connected to broker b")]
    assert not second.ended


def test_of_two_that_connect_at_once_one_stays():
    for names in itertools.permutations("ab"):
        brokers = one, other = [Broker(name) for name in names]
        for broker in brokers:
            broker.claims.claim(CLIENT)
        one.hear(other)
        other.hear(one)
        assert sorted(len(broker.ended) for broker in brokers) == [0, 1]


def test_brokers_that_meet_again_tell_all_their_clients():
    one, other = Broker("a"), Broker("b")
    one.claims.claim(("user", "gone"))
    one.claims.claim(CLIENT)
    one.claims.release(("user", "gone"))
    other.claims.claim(("user", "gone"))
    other.claims.claim(CLIENT)
    other.claims.claim(CLIENT)
    one.meet(other)
    other.meet(one)
    assert [client for client, _ in one.ended] == [CLIENT]
    assert not other.ended


def test_a_broker_that_began_anew_has_later_claims_once_it_has_met_the_others():
    old, new = Broker("b"), Broker("a")
    for _ in range(9):
        old.claims.claim(CLIENT)
    old.meet(new)
    new.claims.claim(CLIENT)
    old.hear(new)
    assert old.ended


def test_a_broken_broker_that_says_the_highest_number_ends_no_later_claims():
    one, other = Broker("a"), Broker("b")
    claimed = m.ClientsClaimed(NUMBER_MAX, ())
    with pytest.raises(m.NotUnderstoodError):
        m.decode(m.encode(m.ClientsClaimed(NUMBER_MAX + 1, ()))[m.LENGTH.size :])
    other.said.append(claimed)
    one.hear(other)
    one.claims.claim(CLIENT)
    assert m.decode(m.encode(one.said[0])[m.LENGTH.size :]) == one.said[0]


def test_a_connection_that_another_one_has_ended_is_claimed_no_more():
    first, second, third = Broker("a"), Broker("b"), Broker("c")
    first.claims.claim(CLIENT)
    second.hear(first)
    second.claims.claim(CLIENT)
    first.hear(second)
    second.claims.claim(CLIENT)
    first.hear(second)
    assert len(first.ended) == 1
    first.meet(third)
    assert [message.claims for message in first.said] == [()]


def test_a_broker_without_clients_tells_the_highest_number_that_it_has_seen():
    old, new = Broker("b"), Broker("a")
    for _ in range(9):
        old.claims.claim(CLIENT)
    old.claims.release(CLIENT)
    old.meet(new)
    new.claims.claim(CLIENT)
    assert new.said[-1].claims == ((*CLIENT, 10),)


def test_many_clients_are_told_in_several_messages(monkeypatch):
    monkeypatch.setattr(client_claims, "CLIENTS_MAX", 2)
    one, other = Broker("a"), Broker("b")
    for number in range(5):
        one.claims.claim(("user", f"c{number}"))
    one.meet(other)
    told = [[client_id for _, client_id, _ in message.claims] for message in one.said]
    assert told == [["c0", "c1"], ["c2", "c3"], ["c4"]]
