"""Every broker knows the shortest ways to all others, whatever was cut and restarted before."""

from collections import deque
from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stateful.machines import CHECKS, factor

from broker.cluster import messages as m
from broker.cluster import routes
from broker.cluster.routes import Routes

NAMES = "abcde"
CHAIN = [{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "e"}]


class Link:
    """One direction between two brokers: what was sent waits until ``deliver``."""

    version = m.VERSION

    def __init__(self, sender, receiver):
        self.sender, self.receiver = sender, receiver
        self.waiting = deque()

    @property
    def member(self):
        """The broker at the other end, as the sender sees it."""
        return self.receiver.membership.own

    def send(self, message):
        self.waiting.append(m.decode(m.encode(message)[m.LENGTH.size :]))

    def deliver(self):
        message = self.waiting.popleft()
        self.receiver.routes._hear(SimpleNamespace(member=self.sender.membership.own), message)


class Broker:
    def __init__(self, name, hops_max):
        self.name = name
        self.links = {}
        self.membership = SimpleNamespace(
            handlers={}, directory=self, section=SimpleNamespace(max_hops=hops_max), own=None
        )

    def lives(self):
        return {f"node-{name}": (link.member, link) for name, link in self.links.items()}

    def start(self, incarnation):
        connector = f"{self.name}:1"
        self.membership.own = m.Member(
            self.name, f"node-{self.name}", "live", connector, connector, None, incarnation, 1, 1, True
        )
        self.changes = 0
        self.counts = {}
        self.routes = Routes(self.membership, f"node-{self.name}", self.changed)
        self.routes.start()

    def changed(self):
        self.changes += 1

    def consume(self, count):
        self.counts = {"q": count} if count else {}
        self.routes.tell(m.Consumers(self.counts, whole=True))


class Net:
    """Brokers, and the links that there are between them."""

    def __init__(self, names=NAMES, hops_max=3):
        self.hops_max = hops_max
        self.brokers = {name: Broker(name, hops_max) for name in names}
        for broker in self.brokers.values():
            broker.start(10)

    def pairs(self):
        return [{name, other} for name, broker in self.brokers.items() for other in broker.links]

    def link(self, one, other):
        self.change(one, other, Link)

    def cut(self, one, other):
        self.change(one, other, None)

    def change(self, one, other, make):
        for name, peer in ((one, other), (other, one)):
            broker = self.brokers[name]
            broker.links.pop(peer, None)
            if make is not None:
                broker.links[peer] = make(broker, self.brokers[peer])
        for name in (one, other):
            self.brokers[name].routes.review()

    def restart(self, name, incarnation):
        peers = list(self.brokers[name].links)
        for peer in peers:
            self.cut(name, peer)
        self.brokers[name].start(incarnation)
        for peer in peers:
            self.link(name, peer)

    def busy(self):
        return [link for broker in self.brokers.values() for link in broker.links.values() if link.waiting]

    def settle(self):
        steps = 0
        while links := self.busy():
            links[0].deliver()
            steps += 1
            assert steps < 5000, "news go round for ever"

    def distances(self, name):
        found, edge = {name: 0}, [name]
        while edge:
            edge = [peer for one in edge for peer in self.brokers[one].links if peer not in found]
            found.update(dict.fromkeys(edge, max(found.values()) + 1))
        return found

    def check(self):
        for name, broker in self.brokers.items():
            expected = {
                f"node-{other}": (distance, self.brokers[other].counts)
                for other, distance in self.distances(name).items()
                if 2 <= distance <= self.hops_max
            }
            beyond = broker.routes.beyond
            assert {
                node_id: (route.distance, route.state.consumers.counts) for node_id, route in beyond.items()
            } == expected, name
            for node_id, route in beyond.items():
                ahead = self.distances(route.neighbour.name)[node_id.removeprefix("node-")]
                assert ahead == route.distance - 1, f"{name} goes round about to {node_id}"


def chain(links=CHAIN, **more):
    net = Net(**more)
    for one, other in links:
        net.link(one, other)
    net.settle()
    return net


def test_in_a_chain_each_broker_knows_those_within_max_hops():
    net = chain()
    net.brokers["d"].consume(2)
    net.settle()
    net.check()
    assert sorted(net.brokers["a"].routes.beyond) == ["node-c", "node-d"]
    assert net.brokers["a"].routes.beyond["node-d"].state.consumers.counts == {"q": 2}


def test_what_a_cut_leaves_without_a_way_is_not_known_any_more():
    net = chain()
    net.cut("b", "c")
    net.settle()
    net.check()
    assert not net.brokers["a"].routes.beyond
    net.link("b", "c")
    net.settle()
    net.check()


def test_a_broker_with_a_lower_number_than_in_its_former_life_is_believed():
    net = chain()
    net.brokers["d"].consume(3)
    net.settle()
    net.restart("d", 5)
    net.brokers["d"].consume(1)
    net.settle()
    net.check()


def test_nobody_takes_the_state_of_a_former_life_for_that_of_the_present_one():
    net = chain(names="abcd", links=CHAIN[:3])
    net.brokers["d"].consume(3)
    net.settle()
    net.cut("c", "d")
    net.settle()
    net.brokers["d"].start(11)
    net.link("c", "d")
    while links := [link for link in net.busy() if link.sender.name != "d"]:
        links[0].deliver()
    assert "node-d" not in net.brokers["a"].routes.beyond
    net.settle()
    assert net.brokers["a"].routes.beyond["node-d"].state.consumers.counts == {}


def test_a_change_reaches_every_broker_once_by_each_link():
    net = chain()
    before = net.brokers["e"].changes
    net.brokers["b"].consume(1)
    assert len(net.busy()) == 2
    net.settle()
    assert net.brokers["e"].changes == before + 1


def heard(broker, sender, origin, version=1, neighbours=()):
    state = m.LinkState(origin, f"node-{origin}", 1, version, neighbours, m.Consumers({}, whole=True))
    link = SimpleNamespace(member=sender.membership.own)
    broker.routes._hear(link, m.decode(m.encode(state)[m.LENGTH.size :]))


def test_two_brokers_of_one_name_do_not_answer_each_other_for_ever(caplog, monkeypatch):
    monkeypatch.setattr(routes, "ANSWERS_MAX", 20)
    net = Net(names="abcd")
    one, other = net.brokers["a"], net.brokers["d"]
    other.name = "a"
    other.start(20)
    for pair in CHAIN[:3]:
        net.link(*sorted(pair))
    net.settle()
    assert caplog.messages
    for warning in caplog.messages:  # one of them, or both, have answered as often as they may
        assert "another broker has the name of this one, a (its node ID is node-a)" in warning
    one.consume(1)
    other.consume(2)
    net.settle()


def test_a_version_that_nobody_can_go_above_stops_no_broker():
    net = chain()
    a, b = net.brokers["a"], net.brokers["b"]
    heard(a, b, "a", m.STATE_VERSION_MAX)
    a.consume(1)
    net.settle()
    net.check()
    state = m.LinkState("a", "a", 1, m.STATE_VERSION_MAX + 1, (), m.Consumers({}, whole=True))
    with pytest.raises(m.NotUnderstoodError):
        m.decode(m.encode(state)[m.LENGTH.size :])


def test_brokers_that_have_left_are_forgotten_and_others_are_not(monkeypatch):
    monkeypatch.setattr(routes, "STATES_MAX", 10)
    net = chain(hops_max=4)
    for number in range(100):
        heard(net.brokers["a"], net.brokers["e"], f"pod-{number}")
        net.settle()
    net.check()
    for broker in net.brokers.values():
        assert len(broker.routes._states) == 10
        assert "pod-99" in broker.routes._states
    net.cut("b", "c")
    net.settle()
    for number in range(100):
        heard(net.brokers["a"], net.brokers["e"], f"new-{number}")
        net.settle()
    net.link("b", "c")
    net.settle()
    net.check()


def test_without_hops_nothing_is_told():
    net = Net(hops_max=1)
    net.link("a", "b")
    assert not net.busy()
    assert not net.brokers["a"].membership.handlers


ANY = st.sampled_from(list(combinations(NAMES, 2)))
STEPS = st.one_of(
    st.tuples(st.just("link"), ANY),
    st.tuples(st.just("cut"), ANY),
    st.tuples(st.just("consume"), st.tuples(st.sampled_from(NAMES), st.integers(0, 3))),
    st.tuples(st.just("restart"), st.tuples(st.sampled_from(NAMES), st.integers(5, 15))),
    st.tuples(st.just("deliver"), st.integers(0, 1000)),
)


@settings(max_examples=20 * factor(), deadline=None, suppress_health_check=CHECKS)
@given(st.integers(2, 4), st.lists(STEPS, max_size=60))
def test_whatever_happened_all_ways_are_right_in_the_end(hops_max, steps):
    net = Net(hops_max=hops_max)
    for one, other in CHAIN:
        net.link(one, other)
    for kind, argument in steps:
        if kind == "deliver":
            for number in range(argument % 7):
                if links := net.busy():
                    links[(argument + number) % len(links)].deliver()
        elif kind == "consume":
            net.brokers[argument[0]].consume(argument[1])
        else:
            getattr(net, kind)(*argument)
    net.settle()
    net.check()
