"""Several pairs and their votes (RP5 - RP10 of the claims; AMQ 17.3.3.1)."""

import asyncio
import re

import pytest
from replicated import Load, cluster_test, nothing_lost, until


async def roles(cluster, *names):
    return [await cluster[name].role() for name in names]


async def decided(cluster, pair="a"):
    """Return when neither broker of the pair is in doubt any more."""

    async def settled():
        return not {"voting"} & set(await roles(cluster, f"{pair}1", f"{pair}2"))

    await until(settled, f"pair {pair} has decided")


@cluster_test(pairs=3)
async def test_a_killed_live_is_replaced_with_the_votes_of_the_others(cluster):
    await cluster.start_pairs()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    await cluster.kill("a1")
    await load.reached(50)
    await load.stop()
    assert await cluster["a2"].role() == "live"
    assert "2 of 2 needed votes granted" in cluster["a2"].log
    await nothing_lost(cluster["a2"], load)


@cluster_test(
    pairs=3, on_processes=True, vote_retries=20
)  # voters may notice some seconds later than the backup
async def test_rp5_an_isolated_live_stops_and_its_backup_starts(cluster):
    """Its clients stay connected: they get no answer from it once its backup may be live."""
    await cluster.start_pairs()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    cluster.isolate("a1")
    assert await cluster.exit_status("a1") == 3
    assert "the live vote was lost" in cluster["a1"].log
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await load.reached(50)
    await load.stop()
    await nothing_lost(cluster["a2"], load)


@pytest.mark.slow
@cluster_test(pairs=3)
async def test_an_isolated_backup_never_starts(cluster):
    await cluster.start_pairs()
    load = Load(cluster, ("a1",))
    await load.reached(50)
    cluster.isolate("a2")
    await until(lambda: "replication: no backup" in cluster["a1"].log, "a1 goes on alone")
    await load.reached(50)
    await until(lambda: "the backup vote failed" in cluster["a2"].log, "a2 gives up")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is passive")
    assert await cluster["a1"].role() == "live"
    cluster.heal()
    await until(cluster["a1"].is_synchronized, "a2 is its backup again")
    await load.stop()
    await nothing_lost(cluster["a1"], load)


@cluster_test(pairs=3, vote_on_replication_failure=False, vote_retries=20)  # as in RP5
async def test_rp6_without_the_live_vote_an_isolated_live_and_its_backup_both_are_active(cluster):
    await cluster.start_pairs()
    cluster.isolate("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await until(lambda: cluster["a1"].is_role("live"), "a1 goes on as well")
    assert await roles(cluster, "a1", "a2") == ["live", "live"]


@cluster_test(pairs=3, vote_on_replication_failure=False)
async def test_rp6_a_backup_whose_live_others_still_reach_gets_no_vote(cluster):
    await cluster.start_pairs()
    cluster.cut(("a1", "a2"))
    await until(lambda: "the backup vote failed" in cluster["a2"].log, "a2 gives up")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 has dropped its copy")
    assert await roles(cluster, "a1", "a2") == ["live", "backup"]


@cluster_test(pairs=3, vote_on_replication_failure=False, backup_vote="reachability")
async def test_rp6_with_votes_for_who_reaches_the_voter_a_cut_pair_link_makes_both_active(cluster):
    await cluster.start_pairs()
    cluster.cut(("a1", "a2"))
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await until(lambda: cluster["a1"].is_role("live"), "a1 goes on as well")
    assert await roles(cluster, "a1", "a2") == ["live", "live"]


@pytest.mark.slow
@cluster_test(pairs=3)
async def test_with_both_votes_a_cut_pair_link_leaves_exactly_one(cluster):
    await cluster.start_pairs()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    cluster.cut(("a1", "a2"))
    await until(lambda: "replication interrupted" in cluster["a1"].log, "a1 notices")
    await decided(cluster)
    await until(lambda: "backup vote, round 1" in cluster["a2"].log, "a2 notices")
    await decided(cluster)
    await load.reached(50)
    await load.stop()
    after = await roles(cluster, "a1", "a2")
    assert sorted(after).count("live") == 1, after
    await nothing_lost(cluster["a1" if after[0] == "live" else "a2"], load)


@cluster_test(pairs=1)
async def test_rp4_one_pair_cannot_avoid_isolation(cluster):
    await cluster.start_pairs()
    cluster.cut(("a1", "a2"))
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live, too")


@cluster_test(pairs=3)
async def test_rp7_with_a_pair_lost_of_three_no_vote_succeeds(cluster):
    await cluster.start_pairs()
    await cluster.kill("c2", "c1")
    cluster.cut(("a1", "a2"))
    assert await cluster.exit_status("a1") == 3
    await until(lambda: "the backup vote failed" in cluster["a2"].log, "a2 gives up")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is passive")
    # The one that is left may vote for either party; what counts is that two are asked for and one
    # is there.
    assert re.search(
        r"backup vote, .* [01] of 2 needed votes granted, 1 other live brokers in reach", cluster["a2"].log
    )


@cluster_test(pairs=5)
async def test_rp8_five_pairs_survive_a_lost_pair_and_one_more_failure(cluster):
    await cluster.start_pairs()
    await cluster.kill("e2", "e1")
    load = Load(cluster, ("a1", "a2"))
    await load.reached(30)
    await cluster.kill("a1")
    await load.reached(30)
    await load.stop()
    assert "3 of 3 needed votes granted" in cluster["a2"].log
    await nothing_lost(cluster["a2"], load)


@cluster_test(pairs=3)
async def test_rp9_the_threshold_shrinks_only_when_the_rest_has_restarted(cluster):
    await cluster.start_pairs()
    await cluster.stop("c2")
    await cluster.stop("c1")
    await cluster.kill("a1")
    await until(lambda: "the backup vote failed" in cluster["a2"].log, "a2 gives up")
    for name in ("a2", "b2", "b1"):
        await cluster.stop(name)
    for pair in "ab":
        await cluster.start_pair(pair)
    await until(lambda: cluster.knows_all(cluster["a2"]), "a2 is linked with all")
    assert (await cluster["a2"].ask(command="status"))["live-nodes-seen"] == 2
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")
    assert "1 of 1 needed votes granted" in cluster["a2"].log


@cluster_test(pairs=3, vote_retries=20, vote_retry_wait=200)
async def test_rp10_a_backup_that_reaches_the_others_within_its_retries_starts(cluster):
    await cluster.start_pairs()
    cluster.isolate("a2")
    await cluster.kill("a1")
    await until(lambda: "backup vote, round 2 of 21" in cluster["a2"].log, "a2 has tried twice")
    cluster.heal()
    await until(lambda: cluster["a2"].is_role("live"), "a2 is live")


@cluster_test(pairs=3, vote_retries=1, vote_retry_wait=100)
async def test_rp10_a_backup_that_reaches_the_others_too_late_does_not(cluster):
    await cluster.start_pairs()
    cluster.isolate("a2")
    await cluster.kill("a1")
    await until(lambda: "the backup vote failed 2 times" in cluster["a2"].log, "a2 gives up")
    cluster.heal()
    await until(lambda: cluster.knows_lives(cluster["a2"], 2), "a2 reaches the others")
    await until(lambda: cluster["a2"].is_role("backup"), "a2 is passive")


@cluster_test(pairs=3)
async def test_a_one_way_cut_leaves_exactly_one(cluster):
    """The live hears its backup but is not heard.

    Being heard is what its right to answer hangs on.
    """
    await cluster.start_pairs()
    load = Load(cluster, ("a1", "a2"))
    await load.reached(50)
    cluster.cut_one_way("a1", "a2")
    await until(lambda: "replication interrupted" in cluster["a1"].log, "a1 notices")
    await decided(cluster)
    await load.reached(50)
    await load.stop()
    after = await roles(cluster, "a1", "a2")
    assert after.count("live") == 1, after
    await nothing_lost(cluster["a1" if after[0] == "live" else "a2"], load)


@cluster_test(pairs=2)
async def test_a_message_goes_to_the_broker_with_consumers_once(cluster):
    await cluster.start_pairs()
    consumer = await cluster.client("b1")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await until(lambda: _routed(producer, consumer), "messages are forwarded")
    for number in range(100):
        await producer.send("work", f"m{number}")
    bodies = []
    while len(bodies) < 100:
        headers, body = await consumer.receive()
        await consumer.ack(headers)
        if body != "probe":  # one that came later than it was waited for
            bodies.append(body)
    assert sorted(bodies) == sorted(f"m{number}" for number in range(100))
    await until(lambda: _all_forwarded(cluster["a1"]), "the store-and-forward queue is empty")


async def _routed(producer, consumer):
    """Does b1's consumer get what a1 takes? Counts of consumers travel a moment behind."""
    await producer.send("work", "probe")
    try:
        headers, body = await consumer.receive(timeout_s=0.2)
    except TimeoutError:
        return False
    await consumer.ack(headers)
    return body == "probe"


async def _all_forwarded(node):
    return not await _forwarding(node)


@cluster_test(pairs=2, on_processes=True)
async def test_forwarding_survives_the_failover_of_either_side(cluster):
    """What waits for a broker that fails goes to its backup, and each message arrives once."""
    await cluster.start_pairs()
    consumer = await cluster.client("b1")
    await consumer.subscribe("work")
    producer = await cluster.client("a1")
    await until(lambda: _routed(producer, consumer), "messages are forwarded")
    load = Load(cluster, ("a1", "a2"), queue="work")
    await load.reached(50)
    await cluster.kill("b1")
    await load.reached(20)
    await until(lambda: cluster["b2"].is_role("live"), "b2 is live")
    await cluster.kill("a1")
    await load.reached(50)
    await load.stop()

    async def all_stored():
        stored = await cluster["a2"].stored() + await cluster["b2"].stored()
        return set(load.answered) <= set(stored) and not await _forwarding(cluster["a2"])

    await until(all_stored, "everything is in a queue of its own")
    stored = [body for body in await cluster["a2"].stored() + await cluster["b2"].stored() if body != "probe"]
    assert len(stored) == len(set(stored))


async def _forwarding(node):
    answer = await node.ask(command="browse")
    return any(message["store"] == "store-and-forward" for message in answer["messages"])


@cluster_test(pairs=2)
async def test_a_broker_joining_one_member_learns_all(cluster):
    """b2 is told of b1 only, and of nobody's backup."""
    cluster["b2"].properties["cluster.static-connectors"] = ["b1:61616"]
    cluster["b1"].properties["cluster.static-connectors"] = ["a1:61616"]
    await cluster.start_pairs()
    brokers = (await cluster["b2"].ask(command="brokers"))["brokers"]
    assert {broker["name"] for broker in brokers if broker["linked"]} == {"a1", "a2", "b1", "b2"}


@cluster_test(pairs=3)
async def test_halves_all_lives_on_one_side_stay(cluster):
    """Every pair is interrupted at once.

    Lives that wait for their own vote still vote for each other.
    """
    await cluster.start_pairs()
    cluster.isolate("a1", "b1", "c1")
    for pair in "abc":
        await until(
            lambda pair=pair: "replication: no backup" in cluster[f"{pair}1"].log, f"{pair}1 goes on alone"
        )
    assert await roles(cluster, "a1", "b1", "c1") == ["live"] * 3
    await asyncio.gather(
        *(
            until(lambda p=p: "the backup vote failed" in cluster[f"{p}2"].log, f"{p}2 gives up")
            for p in "abc"
        )
    )
    for pair in "abc":
        await until(lambda pair=pair: cluster[f"{pair}2"].is_role("backup"), f"{pair}2 is passive")


@cluster_test(pairs=2, vote_retries=80, vote_retry_wait=100)
async def test_a_master_that_returns_during_the_vote_waits_for_its_end(cluster):
    """The only other live is away, so the backup goes on voting.

    Whoever becomes live in the end, it is one.
    """
    await cluster.start_pairs()
    client = await cluster.client("a1")
    await client.send("q", "kept")
    await cluster.stop("b2")
    await cluster.stop("b1")
    await cluster.kill("a1")
    await until(lambda: cluster["a2"].is_role("voting"), "a2 votes")
    await cluster.start("a1")
    await until(lambda: "waiting for the end of its vote" in cluster["a1"].log, "a1 waits")
    await until(lambda: cluster["a1"].is_role("live"), "a1 is live, as a2 may not be", 120.0)
    await until(cluster["a1"].is_synchronized, "a2 is its backup again")
    assert await cluster["a1"].stored() == ["kept"]
