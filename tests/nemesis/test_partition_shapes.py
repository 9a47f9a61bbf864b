import random
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_cluster import plan

from harness.interface import Fault, Link, UsageError
from nemesis import registry
from nemesis.kind import CannotBeginError, Situation
from nemesis.partition import SHAPES

ZONES = ("zone1", "zone2")


def situation(nodes, seed=0, roles=None, zones=ZONES):
    default = {node.name: "backup" if node.configured == "slave" else "live" for node in nodes}
    return Situation(nodes, zones, roles or default, random.Random(seed))


def cut(shape, nodes, seed=0, options=None, **more):
    return SHAPES[shape].cut(situation(nodes, seed, **more), options or {}).links


def hears(nodes, links):
    """Node -> those it exchanges messages with, itself included."""
    names = [node.name for node in nodes]
    return {a: {b for b in names if a == b or not {Link(a, b), Link(b, a)} & links} for a in names}


clusters = st.builds(plan, st.integers(1, 6), st.just(True)) | st.builds(
    plan, st.integers(2, 11), st.just(False)
)
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("shape", SHAPES)
@given(nodes=clusters, seed=seeds)
def test_every_shape_cuts_real_links_and_the_same_ones_for_the_same_seed(shape, nodes, seed):
    if SHAPES[shape].lacks(nodes):
        return
    links = cut(shape, nodes, seed)
    ends = {node.name for node in nodes} | set(ZONES)
    assert links
    assert all(link.source != link.target and {link.source, link.target} <= ends for link in links)
    assert not any(link.source in ZONES and link.target in ZONES for link in links)
    assert links == cut(shape, nodes, seed)
    if shape not in ("one-way", "random"):
        assert all(Link(link.target, link.source) in links for link in links)


@given(nodes=clusters.filter(lambda nodes: len(nodes) >= 2), seed=seeds)
def test_halves_are_total_and_the_client_zones_are_split_with_them(nodes, seed):
    links = cut("halves", nodes, seed)
    ends = [node.name for node in nodes] + list(ZONES)
    graph = nx.Graph()
    graph.add_nodes_from(ends)
    graph.add_edges_from(
        (a, b) for a, b in combinations(ends, 2) if Link(a, b) not in links and not {a, b} <= set(ZONES)
    )
    sides = list(nx.connected_components(graph))
    assert len(sides) == 2
    brokers = sorted(len(side - set(ZONES)) for side in sides)
    assert brokers == [len(nodes) // 2, (len(nodes) + 1) // 2]
    assert all(len(side & set(ZONES)) == 1 for side in sides)
    assert all(graph.has_edge(a, b) for side in sides for a, b in combinations(side - set(ZONES), 2))


@given(nodes=clusters.filter(lambda nodes: len(nodes) >= 5), seed=seeds)
def test_in_a_majorities_ring_each_hears_a_majority_and_no_two_the_same(nodes, seed):
    links = cut("majorities-ring", nodes, seed)
    heard = hears(nodes, links)
    assert all(len(others) > len(nodes) / 2 for others in heard.values())
    assert all(len(others) < len(nodes) for others in heard.values())
    assert len({frozenset(others) for others in heard.values()}) == len(nodes)
    if len(nodes) % 4 != 3:
        assert all(len(others) == len(nodes) // 2 + 1 for others in heard.values())
    assert not any(link.source in ZONES or link.target in ZONES for link in links)


@given(nodes=clusters.filter(lambda nodes: len(nodes) >= 3), seed=seeds)
def test_over_a_bridge_one_hears_everybody_and_the_others_only_their_half(nodes, seed):
    heard = hears(nodes, cut("bridge", nodes, seed))
    names = {node.name for node in nodes}
    bridges = [name for name, others in heard.items() if others == names]
    assert len(bridges) >= 1
    halves = {frozenset(others - set(bridges)) for name, others in heard.items() if others != names}
    assert len(halves) == 2 or len(nodes) == 3
    left, right = halves if len(halves) == 2 else [frozenset(), frozenset()]
    assert not left & right


@given(
    nodes=clusters.filter(lambda nodes: len(nodes) >= 2),
    seed=seeds,
    direction=st.sampled_from(["from", "to", None]),
)
def test_one_way_cuts_exactly_one_direction(nodes, seed, direction):
    links = cut("one-way", nodes, seed, {"direction": direction} if direction else {})
    assert not any(Link(link.target, link.source) in links for link in links)
    sources, targets = {link.source for link in links}, {link.target for link in links}
    assert len(links) == len(nodes) - 1
    assert (
        len(
            sources
            if direction == "from"
            else targets
            if direction == "to"
            else min(sources, targets, key=len)
        )
        == 1
    )


def test_isolation_names_every_broker_and_the_first_zone():
    nodes = plan(2)
    for shape, victim in (("isolate-live", "b1"), ("isolate-backup", "b2")):
        links = cut(shape, nodes, options={"pair": "b"})
        others = {"a1", "a2", "b1", "b2", "zone1"} - {victim}
        assert links == {link for other in others for link in (Link(victim, other), Link(other, victim))}


def test_a_single_client_zone_still_reaches_an_isolated_live():
    links = cut("isolate-live", plan(1), zones=("zone1",))
    assert links == {Link("a1", "a2"), Link("a2", "a1")}


def test_pair_link_is_the_replication_link_only_whoever_is_live():
    nodes = plan(3)
    roles = {"a1": "backup", "a2": "live", "b1": "stopped", "b2": "live"}
    assert cut("pair-link", nodes, roles=roles, options={"pair": "a"}) == {Link("a1", "a2"), Link("a2", "a1")}
    assert {link.source[0] for seed in range(50) for link in cut("pair-link", nodes, seed)} == {"a", "b", "c"}


@pytest.mark.parametrize("shape", ["isolate-live", "isolate-backup", "pair-link", "one-way"])
def test_without_the_role_nothing_is_cut_instead_of_something_else(shape):
    with pytest.raises(CannotBeginError, match="of pair a is"):
        cut(
            shape,
            plan(2),
            roles={"a1": "stopped", "a2": "stopped", "b1": "live", "b2": "backup"},
            options={"pair": "a"},
        )


def test_random_leaves_every_client_zone_some_brokers_and_is_rarely_the_same():
    nodes = plan(3)
    seen = {cut("random", nodes, seed) for seed in range(40)}
    assert len(seen) > 35
    names = {node.name for node in nodes}
    for links in seen:
        for zone in ZONES:
            assert names - {link.target for link in links if link.source == zone}
    one_way = [links for links in seen if any(Link(link.target, link.source) not in links for link in links)]
    assert one_way


def test_a_link_is_cut_between_two_named_brokers_or_between_any():
    nodes = plan(4, backups=False)
    for seed in range(9):
        named = cut("link", nodes, seed, {"between": ["b1", "d1"]})
        assert named == {Link("b1", "d1"), Link("d1", "b1")}
    any_two = {cut("link", nodes, seed) for seed in range(60)}
    assert {len(links) for links in any_two} == {2}
    assert len(any_two) == 6, "each pair of four brokers"


@pytest.mark.parametrize(
    ("shape", "options", "complaint"),
    [
        ("link", {"between": ["a1", "e1"]}, 'unknown node "e1"'),
        ("link", {"between": ["a1", "a1"]}, "it must be two different names"),
        ("link", {"between": "a1"}, "it must be two different names"),
        (
            "halves",
            {"between": ["a1", "b1"]},
            'option "between" belongs to the shape "link", not to "halves"',
        ),
    ],
)
def test_a_link_that_cannot_be_cut_is_refused(shape, options, complaint):
    fault = Fault(kind="partition", start_s=1.0, shape=shape, options=options)
    with pytest.raises(UsageError, match=complaint):
        registry.get("partition").validate(fault, plan(2, backups=False))


@pytest.mark.parametrize(
    ("shape", "nodes", "lacks"),
    [
        ("majorities-ring", plan(2), "needs at least 5 nodes, there are 4"),
        ("bridge", plan(1), "needs at least 3 nodes, there are 2"),
        ("halves", plan(1, backups=False), "needs at least 2 nodes, there are 1"),
        ("pair-link", plan(3, backups=False), "needs a live-backup pair, no node has a backup"),
    ],
)
def test_a_cluster_that_is_too_small_is_told_so(shape, nodes, lacks):
    assert SHAPES[shape].lacks(nodes) == lacks
