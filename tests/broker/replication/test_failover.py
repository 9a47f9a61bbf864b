"""One pair: who takes over when, with what data, and who comes back how (RP1 - RP3, RP12 - RP16
of the claims; AMQ 17.3.3).
"""

import asyncio
import base64
import json
from unittest import mock

import pytest
from plain_client import LostError
from replicated import Load, cluster_test, nothing_lost, until

from broker.cluster import incarnation as incarnations
from broker.core.engine import Engine
from broker.core.selector import Selector, compile_selector
from broker.turn_budget import TEST, TURN, TurnBudget
from environments.link_condition import LinkCondition


@cluster_test(on_processes=True)
async def test_rp1_the_backup_has_what_a_killed_live_answered(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(200)
    await cluster.kill("a1")
    await load.reached(200)
    await load.stop()
    assert await cluster["a2"].role() == "live"
    await nothing_lost(cluster["a2"], load)


@cluster_test(on_processes=True)
async def test_a_queue_that_was_deleted_is_on_no_backup(cluster):
    """With what was in it, large bodies and pages too; what is sent to it later makes it anew."""
    settings = {"address-settings.#.max-size-bytes": 40_000, "address-settings.#.page-size-bytes": 4096}
    for node in cluster.nodes.values():
        node.properties |= settings
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.send("kept", "k")
    for number in range(40):
        await client.send("doomed", f"{number}:" + "x" * 3000)
    await client.send("doomed", "large" * 50_000)
    refused = await cluster["a1"].ask(command="delete", queue="doomed")
    assert "41 messages" in refused["error"]
    deleted = await cluster["a1"].ask(command="delete", queue="doomed", **{"remove-messages": True})
    assert deleted["purged"] == 41
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    assert [queue["name"] for queue in (await cluster["a2"].ask(command="status"))["queues"]] == ["kept"]
    assert await cluster["a2"].stored() == ["k"]
    await until(
        lambda: (
            not [
                path
                for name in ("large-messages", "paging")
                for path in cluster["a2"].data.rglob(f"{name}/*.*")
            ]
        ),
        "no file of it is left",
    )
    client = await cluster.client("a2")
    await client.send("doomed", "anew")
    assert sorted(await cluster["a2"].stored()) == ["anew", "k"]


@cluster_test()
async def test_the_backup_has_subscriptions_as_they_were_left(cluster):
    """One with its backlog, one that was dropped, one that was made again, one that was not
    durable.
    """
    await cluster.start_pair()
    await _subscriptions(await cluster.client("a1"))
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await _as_they_were_left(cluster, "a2", ["again 2", "stays 1", "stays 2"])
    client = await cluster.client("a2")
    await client.ask("SEND", {"destination": "/topic/t"}, "3")
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")
    await _as_they_were_left(cluster, "a1", ["again 2", "again 3", "stays 1", "stays 2", "stays 3"])
    client = await cluster.client("a1")
    for name, left in (("stays", ["1", "2", "3"]), ("again", ["2", "3"])):
        await client.ask("SUBSCRIBE", _durable(name))
        for body in left:
            headers, got = await client.receive()
            assert got == body
            await client.ack(headers)
        await client.ask("UNSUBSCRIBE", _durable(name))
    await _as_they_were_left(cluster, "a1", [])


@cluster_test()
async def test_the_backup_knows_whose_a_subscription_is(cluster):
    """One that a user made, and one of before there were users, which a user got."""
    await cluster.start_pair()
    await _leave_durable(await cluster.client("a1", **{"client-id": "c"}), "old", "1")
    for name in ("a1", "a2"):
        await cluster.kill(name)
        cluster[name].properties |= {"acceptor.users.alice": "x", "acceptor.users.eve": "x"}
    await cluster.start_pair()
    for login in ("alice", "eve"):
        client = await cluster.client("a1", **_logged_in(login))
        await _leave_durable(client, "new", f"after {login}")
        await _leave_durable(client, "old", f"after {login}, too")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    sent = ["1", "after alice", "after alice, too", "after eve", "after eve, too"]
    for login, name, expected in (
        ("eve", "new", sent[3:]),
        ("eve", "old", sent[4:]),
        ("alice", "new", sent[1:]),
        ("alice", "old", sent),
    ):
        client = await cluster.client("a2", **_logged_in(login))
        await client.ask("SUBSCRIBE", _owned(name))
        await client.ask("SEND", {"destination": "/topic/nobody"})
        found = []
        while not client.deliveries.empty():
            found.append((await client.receive())[1])
        assert (login, name, found) == (login, name, expected)


def _logged_in(login):
    return {"login": login, "passcode": "x", "client-id": "c"}


def _owned(name):
    headers = {"id": name, "destination": "/topic/owned", "ack": "client-individual"}
    return {**headers, "durable-subscription-name": name}


async def _leave_durable(client, name, body):
    await client.ask("SUBSCRIBE", _owned(name))
    await client.ask("UNSUBSCRIBE", {"id": name})
    await client.ask("SEND", {"destination": "/topic/owned"}, body)


async def _subscriptions(client):
    for name in ("stays", "goes", "again"):
        await client.ask("SUBSCRIBE", _durable(name))
        await client.ask("UNSUBSCRIBE", {"id": name})
    await client.ask("SUBSCRIBE", {"id": "now", "destination": "/topic/t"})
    await client.ask("SEND", {"destination": "/topic/t"}, "1")
    for name in ("goes", "again"):
        await client.ask("UNSUBSCRIBE", _durable(name))
    await client.ask("SUBSCRIBE", _durable("again"))
    await client.ask("UNSUBSCRIBE", {"id": "again"})
    await client.ask("SEND", {"destination": "/topic/t"}, "2")


def _durable(name):
    headers = {"id": name, "destination": "/topic/t", "ack": "client-individual"}
    return {**headers, "durable-subscription-name": name, "shared": "true"}


@cluster_test()
async def test_copies_for_many_subscriptions_share_one_body_on_both_disks_and_nobody_takes_over(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    names = [str(number) for number in range(60)]
    for name in names:
        await client.ask("SUBSCRIBE", _durable(name))
        await client.ask("UNSUBSCRIBE", {"id": name})
    lives = cluster["a1"].lives, cluster["a2"].lives
    body = "x" * 60_000
    for number in range(3):
        await client.ask("SEND", {"destination": "/topic/t"}, body + str(number))
    assert await cluster["a1"].is_role("live")
    assert await cluster["a1"].is_synchronized()
    assert (cluster["a1"].lives, cluster["a2"].lives) == lives
    assert [_large(cluster[name]) for name in ("a1", "a2")] == [[60_001] * 3] * 2
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    client = await cluster.client("a2")
    for name in names:
        await client.ask("SUBSCRIBE", _durable(name))
        for number in range(3):
            headers, got = await client.receive()
            assert got == body + str(number)
            await client.ack(headers)
        await client.ask("UNSUBSCRIBE", _durable(name))
    await until(lambda: not _large(cluster["a2"]), "no body is left")


@cluster_test()
async def test_selectors_of_one_client_keep_the_live_from_neither_its_backup_nor_other_clients(cluster):
    """Turns are counted: no clock runs in a simulation while selectors are asked."""
    await cluster.start_pair()
    client, other = await cluster.client("a1"), await cluster.client("a1")
    large = " OR ".join(f"b{number} = 'x'" for number in range(98))
    for number in range(60):
        selector = f"a{number} = 'x' OR {large}"
        await client.ask("SUBSCRIBE", {"id": str(number), "destination": "/topic/t", "selector": selector})
    turns, taken, answered = [0], [], []
    renew, matches, take = TurnBudget._renew, Selector.matches, Engine.send

    def renewed(budget):
        turns.append(0)
        renew(budget)

    def matched(selector, headers):
        turns[-1] += 1
        return matches(selector, headers)

    def took(engine, target, *more):
        taken.append(target)
        return take(engine, target, *more)

    async def send(number):
        await client.ask("SEND", {"destination": "/topic/t"})
        answered.append(number)

    lives = cluster["a1"].lives, cluster["a2"].lives
    with (
        mock.patch.object(TurnBudget, "_renew", renewed),
        mock.patch.object(Selector, "matches", matched),
        mock.patch.object(Engine, "send", took),
    ):
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(send(number))
            group.create_task(other.ask("SEND", {"destination": "/queue/q"}))
    cost = TEST + compile_selector(selector).terms
    assert sum(turns) == 60 * 40
    assert max(turns) <= TURN // cost + 1
    assert answered == list(range(40))
    assert taken.index("q") < 20
    assert await cluster["a1"].is_role("live")
    assert await cluster["a1"].is_synchronized()
    assert (cluster["a1"].lives, cluster["a2"].lives) == lives


@cluster_test()
async def test_queues_that_nobody_consumes_stop_no_producer_of_a_pair_and_nobody_takes_over(cluster):
    for name in ("a1", "a2"):
        cluster[name].properties = {
            "broker.global-max-size": 200_000,
            "address-settings.#.page-size-bytes": 4096,
        }
    await cluster.start_pair()
    client = await cluster.client("a1")
    lives = cluster["a1"].lives, cluster["a2"].lives
    bodies = [f"{number} {'x' * 30_000}" for number in range(20)]
    for number, body in enumerate(bodies):
        await client.send(f"q{number}", body)
    await client.send("another", "m")
    assert await cluster["a1"].is_synchronized()
    assert (cluster["a1"].lives, cluster["a2"].lives) == lives
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    client = await cluster.client("a2")
    await client.send("another", "m")
    for number, body in enumerate(bodies):
        assert await client.drain(f"q{number}", 1) == [body]


def _large(node):
    """The sizes of the files with large bodies that a broker has."""
    image = node.disk.volume.image()
    return sorted(len(data) for path, data in image.items() if "large-messages/" in path)


async def _as_they_were_left(cluster, node, expected):
    """The messages of subscriptions that a broker has, each with its subscription's name."""
    messages = (await cluster[node].ask(command="browse"))["messages"]
    assert all(message["topic"] == "t" for message in messages)
    assert expected == sorted(
        f"{message['holder'].removeprefix('/topic/t::')} {base64.b64decode(message['body']).decode()}"
        for message in messages
    )


@cluster_test()
async def test_rp2_a_late_backup_gets_what_is_there_under_load(cluster):
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live")
    load = Load(cluster, ("a1", "a2"))
    await load.reached(500)
    await cluster.start("a2")
    await until(cluster["a1"].is_synchronized, "a1 is replicated")
    await load.reached(100)
    await cluster.kill("a1")
    await load.reached(100)
    await load.stop()
    await nothing_lost(cluster["a2"], load)


@cluster_test()
async def test_rp3_a_backup_with_partial_data_never_takes_over(cluster):
    """The link is slow, so that the initial synchronisation cannot end before the live is
    killed.
    """
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live")
    client = await cluster.client("a1")
    for number in range(40):
        await client.send("q", f"{number}:" + "x" * 50_000)
    cluster.cut(("a1", "a2"), condition=LinkCondition(rate_bytes_s=200_000))
    await cluster.start("a2")
    await until(lambda: cluster["a2"].is_role("synchronizing"), "a2 synchronises")
    await cluster.kill("a1")
    cluster.heal()
    await until(
        lambda: "was not up to date: this broker stays passive" in cluster["a2"].log,
        "a2 says that it stays passive",
    )
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is passive")
    with pytest.raises(LostError):
        await cluster.client("a2")
    await cluster.start("a1")
    await until(cluster["a1"].is_synchronized, "a1 is back and replicated")
    assert len(await cluster["a1"].stored()) == 40


@cluster_test()
async def test_rp12_what_a_new_live_takes_alone_goes_with_its_disk(cluster):
    """After a failover nothing is replicated until a backup attaches.

    Losing the new live with its disk then loses data.
    """
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.send("q", "replicated")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    assert await cluster["a2"].is_alone()
    client = await cluster.client("a2")
    await client.send("q", "alone")
    await cluster.kill("a2")
    cluster.destroy_data("a2")
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live")
    assert await cluster["a1"].stored() == ["replicated"]
    assert (
        "messages acknowledged from now on are only on the disk of this broker" in cluster["a2"].log
        or "nothing is replicated" in cluster["a2"].log
    )


async def both_stopped_after_failover(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.send("q", "before")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    client = await cluster.client("a2")
    await client.send("q", "after")
    await cluster.kill("a2")


@cluster_test()
async def test_rp13_started_in_the_right_order_nothing_is_lost(cluster):
    """The most recent one was the backup.

    It must be configured as master to be started first (AMQ 17.3.1.3).
    """
    await both_stopped_after_failover(cluster)
    cluster["a2"].properties["role"] = "master"
    cluster["a1"].properties["role"] = "slave"
    await cluster.start("a2")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await cluster.start("a1")
    await until(cluster["a2"].is_synchronized, "a2 is replicated")
    assert sorted(await cluster["a2"].stored()) == ["after", "before"]


@cluster_test()
async def test_rp13_started_in_the_wrong_order_the_newest_is_lost(cluster):
    await both_stopped_after_failover(cluster)
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live")
    await cluster.start("a2")
    await until(cluster["a1"].is_synchronized, "a1 is replicated")
    assert await cluster["a1"].stored() == ["before"]


@cluster_test()
async def test_a_backup_started_alone_stays_passive(cluster):
    await both_stopped_after_failover(cluster)
    await cluster.start("a2")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is a backup")
    with pytest.raises(LostError):
        await cluster.client("a2")


@cluster_test(check_for_live_server=False)
async def test_rp14_without_the_check_an_old_live_comes_back_with_its_old_data(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.send("q", "once")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    client = await cluster.client("a2")
    assert await client.drain("q", 1) == ["once"]
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live too")
    assert await cluster["a2"].role() == "live"
    again = await cluster.client("a1")
    assert await again.drain("q", 1) == ["once"]
    await until(
        lambda: "duplicate node ID" in cluster["a2"].log + cluster["a1"].log,
        "the duplicate node ID is warned of",
    )


@cluster_test()
async def test_rp14_with_the_check_the_old_live_synchronises_first(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.send("q", "once")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    client = await cluster.client("a2")
    assert await client.drain("q", 1) == ["once"]
    await client.send("q", "new")
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")
    await until(cluster["a1"].is_synchronized, "a1 is replicated")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is its backup again")
    assert await cluster["a1"].stored() == ["new"]


@cluster_test()
async def test_without_allow_failback_the_old_live_stays_backup(cluster):
    cluster["a2"].properties["REPLICATION.allow-failback"] = False
    await cluster.start_pair()
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await cluster.start("a1")
    await until(cluster["a2"].is_synchronized, "a2 is replicated")
    await until(cluster["a1"].is_synchronized, "a1 is up to date")
    assert (await cluster["a1"].role(), await cluster["a2"].role()) == ("backup", "live")
    await cluster.kill("a2")
    await until(lambda: cluster["a1"].is_role("live"), "a1 takes over")


@cluster_test()
async def test_without_restart_backup_the_slave_ends_after_failback(cluster):
    cluster["a2"].properties["REPLICATION.restart-backup"] = False
    await cluster.start_pair()
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await cluster.start("a1")
    assert await cluster.exit_status("a2") == 0
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")


@cluster_test(on_processes=True)
async def test_failback_under_load_loses_nothing(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    await cluster.kill("a1")
    await load.reached(50)
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")
    await until(cluster["a1"].is_synchronized, "a1 is replicated again")
    await load.reached(50)
    await load.stop()
    await nothing_lost(cluster["a1"], load)


@cluster_test()
async def test_a_clean_stop_leaves_the_backup_passive(cluster):
    await cluster.start_pair()
    assert await cluster.stop("a1") == 0
    await until(lambda: "wants no failover" in cluster["a2"].log, "a2 knows")
    assert await cluster["a2"].role() == "backup"
    await cluster.start("a1")
    await until(cluster["a2"].is_synchronized, "a2 follows again")


@cluster_test(failover_on_shutdown=True)
async def test_with_failover_on_shutdown_the_backup_takes_over(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    assert await cluster.stop("a1") == 0
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await load.reached(50)
    await load.stop()
    await nothing_lost(cluster["a2"], load)


@cluster_test()
async def test_a_stop_may_ask_for_failover_once(cluster):
    await cluster.start_pair()
    assert await cluster.stop("a1", failover=True) == 0
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")


@cluster_test()
async def test_a_stopped_backup_costs_no_vote_and_comes_back(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1",))
    for _ in range(3):
        await load.reached(20)
        assert await cluster.stop("a2") == 0
        await until(cluster["a1"].is_alone, "a1 goes on alone")
        await load.reached(20)
        await cluster.start("a2")
        await until(cluster["a1"].is_synchronized, "a1 is replicated again")
    await load.stop()
    assert "voting" not in cluster["a1"].log
    await nothing_lost(cluster["a1"], load)


@cluster_test()
async def test_killed_again_and_again_nothing_is_lost(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    for _ in range(4):
        await load.reached(30)
        await cluster.kill("a1")
        await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
        await load.reached(30)
        await cluster.start("a1")
        await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")
        await until(cluster["a1"].is_synchronized, "a1 is replicated again")
        await cluster.kill("a2")
        await load.reached(30)
        await cluster.start("a2")
        await until(cluster["a1"].is_synchronized, "a1 is replicated again")
    await load.stop()
    await nothing_lost(cluster["a1"], load)


@cluster_test()
async def test_a_paused_backup_is_done_without_and_attaches_again(cluster):
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(20)
    cluster.pause("a2")
    await until(cluster["a1"].is_alone, "a1 goes on alone")
    await load.reached(20)
    cluster.resume("a2")
    await until(cluster["a1"].is_synchronized, "a1 is replicated again")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is its backup again")
    await load.stop()
    await nothing_lost(cluster["a1"], load)


@cluster_test(on_processes=True)
async def test_a_paused_live_that_was_replaced_never_answers_again(cluster):
    """The live is stopped for longer than its backup's patience.

    When it goes on it must find out before it answers anybody.
    """
    await cluster.start_pair()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(20)
    cluster.pause("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 takes over")
    cluster.resume("a1")
    assert await cluster.exit_status("a1") == 3
    await load.reached(20)
    await load.stop()
    await nothing_lost(cluster["a2"], load)


@cluster_test(pairs=2)
async def test_rp15_backups_attach_only_within_their_group(cluster):
    await cluster.start("a2", "b2")
    await cluster.start("b1")
    await until(cluster["b1"].is_synchronized, "b1 is replicated")
    await cluster.start("a1")
    await until(cluster["a1"].is_synchronized, "a1 is replicated")
    for pair in "ab":
        live = await cluster[f"{pair}1"].ask(command="status")
        backup = await cluster[f"{pair}2"].ask(command="status")
        assert live["backup"] == f"{pair}2"
        assert live["node-id"] == backup["node-id"]


@cluster_test()
async def test_rp16_a_slow_replication_link_slows_sends_and_never_hangs_them(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    cluster.cut(("a1", "a2"), condition=LinkCondition(delay_ms=150))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.send("q", "slow")
    assert loop.time() - began >= 0.25, "the receipt waited for the backup"
    assert await cluster["a1"].is_synchronized()
    cluster.cut(("a1", "a2"))
    await client.send("q", "alone")
    assert await cluster["a1"].is_alone()


@cluster_test()
async def test_a_wrong_cluster_password_is_refused_and_logged_by_both(cluster):
    cluster["a2"].properties["cluster.cluster-password"] = "guess-who"
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live")
    await cluster.start("a2")
    await until(lambda: "wrong cluster-user or cluster-password" in cluster["a1"].log, "a1 logs the refusal")
    await until(lambda: "refused: wrong cluster-user" in cluster["a2"].log, "a2 logs the refusal")
    assert "guess-who" not in cluster["a1"].log + cluster["a2"].log
    brokers = (await cluster["a1"].ask(command="brokers"))["brokers"]
    assert [broker["name"] for broker in brokers] == ["a1"]
    brokers = (await cluster["a2"].ask(command="brokers"))["brokers"]
    assert [broker["name"] for broker in brokers] == ["a2"]


@cluster_test()
async def test_clients_are_told_who_is_live_and_who_is_the_backup(cluster):
    await cluster.start_pair()
    client = await cluster.client("a1")
    await client.watch("$SYS.cluster.topology")
    node_id = (await cluster["a1"].ask(command="status"))["node-id"]
    expected = {
        "nodes": [
            {
                "node-id": node_id,
                "live": {"name": "a1", "connector": "a1:61613"},
                "backup": {"name": "a2", "connector": "a2:61613"},
            }
        ]
    }
    told = []

    async def told_all():
        told.append(json.loads((await client.receive())[1]))
        return told[-1] == expected

    # The feed shows each change: the first picture may be older than what the backup says of
    # itself.
    await until(told_all, "the topology names both")


@cluster_test(on_processes=True)
async def test_the_node_id_survives_and_is_shared(cluster):
    await cluster.start_pair()
    first = (await cluster["a1"].ask(command="status"))["node-id"]
    assert (await cluster["a2"].ask(command="status"))["node-id"] == first
    await cluster.stop("a1")
    incarnation = cluster["a1"].data / incarnations.FILE
    incarnation.write_text("9000000000000000\n")  # as if the clock had been set back since
    await cluster.start("a1")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live again")
    assert (await cluster["a1"].ask(command="status"))["node-id"] == first
    assert incarnation.read_text() == "9000000000000001\n"
