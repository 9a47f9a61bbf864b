"""Membership: who is known, who is live, and what is remembered (AMQ 17.1.3, 17.2.1)."""

import asyncio
import logging
import random

import msgspec
import pytest
from members import Hub, linked, until

from broker import config
from broker.cluster import broker_list
from broker.cluster import messages as m
from broker.cluster.membership import Membership
from broker.seams import Seams


def run(scenario):
    asyncio.run(scenario())


def test_a_broker_that_joins_one_member_learns_all():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            b = await hub.add("b", "a")
            c = await hub.add("c", "b")
            await until(lambda: linked(a) == {"b", "c"}, "a is linked with all")
            await until(lambda: linked(b) == {"a", "c"}, "b is linked with all")
            await until(lambda: linked(c) == {"a", "b"}, "c is linked with all")

    run(scenario)


def test_a_static_connector_that_leads_to_oneself_does_no_harm():
    async def scenario():
        async with Hub() as hub:
            await hub.add("a")
            hub.hosts["alias:61616"] = ("127.0.0.1", hub.members["a"].neighbours.port)
            b = await hub.add("b", "a", "alias")
            await until(lambda: linked(b) == {"a"}, "b is linked with a")
            hub.hosts["me:61616"] = ("127.0.0.1", b.neighbours.port)
            b.neighbours.dial("me:61616")
            await until(b.neighbours._peers["me:61616"].tried.is_set, "it was tried")
            assert linked(b) == {"a"}

    run(scenario)


def test_the_brokers_of_a_chain_are_linked_with_their_neighbours_only(caplog):
    async def scenario():
        async with Hub(allow_direct_connections_only=True) as hub:
            a = await hub.add("a", "b")
            b = await hub.add("b", "a", "c")
            c = await hub.add("c", "b")
            await hub.add("d", "a", "c")
            await until(lambda: linked(b) == {"a", "c"}, "b is linked with both")
            await until(lambda: len(caplog.messages) == 4, "a and c refuse d, which says so")
            assert linked(a) == linked(c) == {"b"} == {*a.directory.known} == {*c.directory.known}

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert sorted({message.rpartition(": ")[2] for message in caplog.messages}) == [
        f"d:61616 of d is not in cluster.static-connectors of {name}, which allows direct connections only"
        for name in "ac"
    ]


def test_a_change_of_role_is_told_to_all():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", role="backup", node_id="N")
            b = await hub.add("b", "a")
            await until(lambda: linked(b) == {"a"}, "linked")
            assert "N" not in b.directory.lives()
            a.announce(role="live", activation=2)
            await until(lambda: "N" in b.directory.lives(), "a is live for b")
            assert b.directory.lives()["N"][0].activation == 2

    run(scenario)


def test_what_a_broker_said_before_does_not_undo_its_news_when_it_comes_later_over_the_other_link():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", role="starting", node_id="N")
            b = await hub.add("b", "a")
            await until(lambda: linked(b) == {"a"}, "linked")
            before = a.own
            a.announce(role="live", activation=2)
            await until(lambda: "N" in b.directory.lives(), "a is live for b")
            b._take(b.neighbours.link_to("a"), m.Members((before,)))
            assert b.directory.lives()["N"][0].activation == 2

    run(scenario)


def test_a_broker_is_live_for_who_hears_it_from_itself_though_others_had_told_before():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", role="starting", node_id="N")
            b = await hub.add("b", "a")
            await until(lambda: linked(b) == {"a"}, "linked")
            news = msgspec.structs.replace(a.own, role="live", live=True, version=a.own.version + 1)
            b.directory.learn(news, direct=False)
            assert "N" not in b.directory.lives()
            b.directory.learn(news, direct=True)
            assert "N" in b.directory.lives()

    run(scenario)


def test_an_heir_is_known_to_who_is_linked_with_it_until_it_says_another_role():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", role="backup", node_id="N")
            b = await hub.add("b", "a")
            await until(lambda: linked(b) == {"a"}, "linked")
            assert b.directory.heir_of("N") is None, (
                "a backup that has not said that its copy is up to date is none"
            )
            a.announce(heir=True)
            await until(lambda: b.directory.heir_of("N") is not None, "a is an heir for b")
            assert b.directory.heir_of("N").name == "a"
            assert b.directory.heir_of("M") is None
            assert b.directory.live_with("N") is None
            a.announce(role="voting")
            await until(lambda: b.directory.live_with("N") is not None, "a votes")
            assert b.directory.heir_of("N") is None

    run(scenario)


def test_the_largest_number_of_live_nodes_is_remembered():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            await hub.add("b", "a")
            await hub.add("c", "a")
            await until(lambda: a.directory.live_nodes_seen == 3, "a has seen three live nodes")
            await hub.members["c"].stop()
            await until(lambda: linked(a) == {"b"}, "c is gone")
            assert a.directory.live_nodes_seen == 3
            d = await hub.add("d", "a")
            await until(lambda: linked(d) == {"a", "b"}, "d is linked with who is left")
            assert d.directory.live_nodes_seen == 3, "d itself, a and b"

    run(scenario)


def test_a_pair_counts_as_one_live_node():
    async def scenario():
        async with Hub() as hub:
            a1 = await hub.add("a1", node_id="A")
            await hub.add("a2", "a1", node_id="A", role="backup")
            await hub.add("b1", "a1", node_id="B")
            await until(lambda: linked(a1) == {"a2", "b1"}, "all linked")
            assert a1.directory.live_nodes_seen == 2

    run(scenario)


def test_of_two_that_claim_a_node_id_the_later_takeover_counts():
    async def scenario():
        async with Hub() as hub:
            a1 = await hub.add("a1", node_id="A")
            a2 = await hub.add("a2", node_id="A")
            a1.announce(activation=1)
            a2.announce(activation=2)
            b = await hub.add("b", "a1", "a2")
            await until(lambda: linked(b) == {"a1", "a2"}, "all linked")
            assert b.directory.lives()["A"][0].name == "a2"
            assert b.directory.live_with("A").name == "a2"

    run(scenario)


def test_a_duplicate_node_id_is_warned_of(caplog):
    async def scenario():
        async with Hub() as hub:
            await hub.add("a", node_id="N")
            await hub.add("b", "a", node_id="N")
            await until(
                lambda: "duplicate node ID: a is live under the node ID of this broker, N" in caplog.text,
                "b warns",
            )

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_a_live_and_its_backup_share_a_node_id_without_a_warning(caplog):
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", node_id="N")
            b = await hub.add("b", "a", node_id="N", role="backup")
            await until(lambda: linked(a) == {"b"} and linked(b) == {"a"}, "linked")

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "duplicate" not in caplog.text


def test_a_broker_that_comes_back_is_linked_again():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            await hub.add("b", "a")
            await until(lambda: linked(a) == {"b"}, "linked")
            await hub.members["b"].stop()
            await until(lambda: not linked(a), "b is gone")
            await hub.add("b", "a")
            await until(
                lambda: (
                    linked(a) == {"b"}
                    and a.directory.known["b"].incarnation == hub.members["b"].own.incarnation
                ),
                "b is back",
            )

    run(scenario)


def test_what_one_says_last_is_what_counts_whatever_way_it_came():
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            b = await hub.add("b", "a", node_id="B")
            await until(lambda: linked(a) == {"b"} and linked(b) == {"a"}, "linked")
            old = b.own
            b.announce(role="backup")
            await until(lambda: a.directory.known["b"].role == "backup", "a knows")
            a._take(a.neighbours.link_to("b"), m.Members((old,)))
            assert a.directory.known["b"].role == "backup"

    run(scenario)


@pytest.mark.parametrize("wrong", ["cluster_password", "cluster_user"])
def test_a_wrong_user_or_password_is_refused_and_logged_once_on_both_sides(wrong, caplog):
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a")
            b = await hub.add("b", "a", **{wrong: "guess-who"})
            peer = b.neighbours._peers["a:61616"]
            await until(peer.tried.is_set, "b has tried")
            for _ in range(3):  # it goes on trying
                peer.hurry()
                await asyncio.sleep(0.05)
            assert not linked(a)
            assert not linked(b)
            assert not a.directory.known
            assert not b.directory.known

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert sorted(record.message for record in caplog.records) == [
        "cluster: cannot connect to broker a:61616: refused: wrong cluster-user or cluster-password",
        "cluster: connection from 127.0.0.1 refused: wrong cluster-user or cluster-password",
    ]


def test_two_clusters_with_one_password_stay_apart_and_each_side_says_so_once(caplog):
    async def scenario():
        async with Hub() as hub:
            a = await hub.add("a", name="blue")
            c = await hub.add("c", "a", name="blue")
            b = await hub.add("b", "a", name="green")
            peer = b.neighbours._peers["a:61616"]
            await until(peer.tried.is_set, "b has tried")
            for _ in range(3):  # it goes on trying
                peer.hurry()
                await asyncio.sleep(0.05)
            await until(lambda: linked(a) == {"c"} and linked(c) == {"a"}, "a and c are linked")
            assert not linked(b)
            assert not b.directory.known
            assert "b" not in {*a.directory.known, *c.directory.known}

    with caplog.at_level(logging.WARNING):
        run(scenario)
    difference = "cluster.name is 'blue' at a and 'green' at b"
    assert [record.message for record in caplog.records] == [
        f"cluster: cannot connect to broker a:61616: {difference}",
        f"cluster: a broker refused the connection: {difference}",
    ]


def neighbours(name, **sections):
    """The neighbours of a broker of cluster blue."""
    cluster = {"cluster-password": "p", "connector": "a:1", "stomp-connector": "a:2", "name": "blue"}
    sections["cluster"] = {**cluster, **sections.get("cluster", {})}
    settings = config.validate({"broker": {"name": name}, **sections})
    seams = Seams(random=random.Random(1), wall_clock=lambda: 0.0)
    return Membership(settings, settings.cluster, seams).neighbours


ON_A_DATABASE = {
    "cluster": {"message-load-balancing": "OFF"},
    "ha-policy": {"ha-database": {"cluster-id": "c1"}},
    "database-store": {"url": "sqlite:s"},
}
CLUSTER_ID = "ha-policy.ha-database.cluster-id"
FAMILY = "multi-instance, replication, shared-store or standalone"
BLUE = {"cluster.name": "blue", "ha-policy": FAMILY}
LISTED = {"broker-list": ["a:1", "b:1", "c:1"]}
CONVENTIONAL = {"ha-policy": {"conventional": LISTED}}


def test_a_broker_on_a_shared_database_links_only_with_those_of_its_cluster_id():
    shared = {"cluster.name": "blue", "ha-policy": "ha-database", CLUSTER_ID: "c1"}
    assert neighbours("a", **ON_A_DATABASE).terms.shared == shared
    assert neighbours("b").terms.shared == BLUE


@pytest.mark.parametrize(
    ("sections", "theirs", "reason"),
    [
        ({}, BLUE, ""),
        ({}, {**BLUE, "cluster.name": "green"}, "cluster.name is 'green' at b and 'blue' at a"),
        (
            ON_A_DATABASE,
            {**BLUE, "ha-policy": "ha-database"},
            f"{CLUSTER_ID} is not set at b and 'c1' at a",
        ),
        (
            CONVENTIONAL,
            {"cluster.name": "blue", "ha-policy": "ha-database", CLUSTER_ID: "c1"},
            "ha-policy is 'ha-database' at b and 'conventional' at a",
        ),
        ({}, {**BLUE, "ha-policy": "conventional"}, f"ha-policy is 'conventional' at b and '{FAMILY}' at a"),
        (
            {"cluster": {"max-hops": 3}},
            BLUE,
            "cluster.max-hops is not set at b and '3' at a",
        ),
        (
            {"cluster": {"allow-direct-connections-only": True, "static-connectors": ["c:1"]}},
            BLUE,
            "b:1 of b is not in cluster.static-connectors of a, which allows direct connections only",
        ),
        ({}, {**BLUE, CLUSTER_ID: "c1"}, f"{CLUSTER_ID} is 'c1' at b and not set at a"),
    ],
)
def test_a_broker_that_differs_is_refused_by_the_name_of_the_property(sections, theirs, reason):
    member = m.Member("b", None, "live", "b:1", "b:2", None, 1, 1, 0)
    assert neighbours("a", **sections).refusal(member, theirs) == reason


@pytest.mark.parametrize(
    ("master", "newest", "reason"),
    [
        ("b:1", 0, ""),
        ("a:1", 1, ""),
        ("c:1", 1, ""),
        ("c:1", -1, ""),
        ("", -1, "in a cluster without a master broker all brokers must have the same version"),
        ("a:1", -1, "no broker may be older than the master broker, a"),
        ("b:1", 1, "no broker may be older than the master broker, b"),
    ],
)
def test_a_broker_that_is_older_than_its_master_is_refused(master, newest, reason):
    ours = neighbours("a", **{"ha-policy": {"conventional": {**LISTED, "master-broker": master}}})
    version = m.VERSION + newest
    member = m.Member("b", None, "live", "b:1", "b:2", None, 1, 1, 0, newest=version)
    versions = f"b has version {version} of the cluster protocol, a {m.VERSION}: "
    assert ours.refusal(member, ours.terms.shared) == (reason and versions + reason)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"])
def test_an_address_that_leads_to_a_loopback_address_is_judged_by_where_it_leads(host):
    problem = asyncio.run(broker_list.loopback_problem("b:1", (host, 1)))
    assert problem.startswith("b:1 leads to ")
    assert "a loopback address" in problem


def test_an_address_of_a_network_is_none_that_leads_back():
    assert asyncio.run(broker_list.loopback_problem("b:1", ("192.0.2.1", 1))) == ""


def test_a_broker_dials_every_address_but_its_own():
    ours = neighbours("a")
    assert ours.may_dial("b:1")
    assert not ours.may_dial("a:1")


def test_a_broker_that_is_refused_after_the_handshake_says_so_once_and_does_not_try_at_once(caplog):
    async def scenario():
        async with Hub() as hub:
            await hub.add("a", "c", allow_direct_connections_only=True)
            b = await hub.add("b", "a", retry_interval=50)
            ended = []
            b.on_unlinked.append(lambda _: ended.append(asyncio.get_running_loop().time()))
            await until(lambda: len(ended) == 6, "b was refused six times")
            assert ended[-1] - ended[0] >= 5 * 0.025  # a wait is at least half of the interval

    with caplog.at_level(logging.INFO):
        run(scenario)
    refused = [
        line for line in caplog.messages if line.startswith("cluster: cannot connect to broker a:61616")
    ]
    assert len(refused) == 1
    assert len([line for line in caplog.messages if line.startswith("cluster: linked with a")]) == 1
