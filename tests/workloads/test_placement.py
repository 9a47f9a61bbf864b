"""Clients are where a test places them, and everywhere if it does not say."""

import asyncio
from collections import Counter

import pytest
from stomp_doubles import Server, in_loop, make_context
from test_load import conduct

import workloads.registry
from harness.commands import options
from harness.interface import NodePlan, TestSpec, UsageError
from harness.systems import registry as systems
from workloads import placement
from workloads.placement import pairs_of


def plan(*names, configured="standalone"):
    return tuple(NodePlan(name=name, pair=name[0], configured=configured, ports={}) for name in names)


@pytest.mark.parametrize(
    ("configured", "at", "pairs"),
    [
        ("standalone", (), {"a": ("a1",), "b": ("b1",), "c": ("c1",)}),
        ("standalone", ("c1", "a1"), {"a": ("a1",), "c": ("c1",)}),
        ("member", (), {"a": ("a1", "b1", "c1"), "b": ("b1", "a1", "c1"), "c": ("c1", "a1", "b1")}),
        ("member", ("a1",), {"a": ("a1",)}),
        ("member", ("c1", "a1"), {"a": ("a1", "c1"), "c": ("c1", "a1")}),
    ],
)
def test_clients_of_a_pair_use_the_named_nodes_only(configured, at, pairs):
    assert pairs_of(plan("a1", "b1", "c1", configured=configured), at) == pairs


def test_a_backup_that_is_named_serves_the_clients_of_its_pair():
    nodes = (*plan("a1", "b1"), *plan("a2", "b2", configured="slave"))
    assert pairs_of(nodes, ("b2",)) == {"b": ("b2",)}
    assert pairs_of(nodes, ("b2", "b1")) == {"b": ("b1", "b2")}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"produce_at": ("a1", "d1")}, "--produce-at d1: there is no node d1; the brokers are a1, b1"),
        ({"consume_at": ("zk1",)}, "--consume-at zk1: zk1 is no broker; the brokers are a1, b1"),
        ({"drain_at": ("b2",)}, "--drain-at b2: there is no node b2; the brokers are a1, b1"),
        ({"client_brokers": ("d1",)}, "--client-brokers d1: there is no node d1; the brokers are a1, b1"),
        (
            {"client_brokers": ("a1",), "client_handler": "zk1"},
            "--client-handler zk1: zk1 is no broker; the brokers are a1, b1",
        ),
        (
            {"client_attempts": 1},
            "--client-attempts is about clients with a list of brokers: give --client-brokers, too",
        ),
        (
            {"client_brokers": ("a1",), "produce_at": ("a1",)},
            "--client-brokers: clients use any broker; leave --produce-at and --consume-at out",
        ),
    ],
)
def test_a_node_that_serves_no_clients_is_refused(fields, complaint):
    nodes = (*plan("a1", "b1"), *plan("zk1", configured="arbiter"))
    with pytest.raises(UsageError) as refused:
        placement.check(TestSpec(name="test", **fields), nodes, ())
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("name", "policy"), [("subscriptions", "ha-database"), ("request-reply", "ha-database")]
)
def test_what_exists_at_one_pair_only_is_used_there(name, policy):
    def needs(workload):
        return workloads.registry.workloads_at_home(
            TestSpec(name="test", policy=policy, workload=workload), systems.get("own").dialect
        )

    assert needs(f"queue,{name}") == [name]
    nodes = plan("a1", "b1")
    same = {"produce_at": ("a1",), "consume_at": ("a1",)}
    for fields in ({}, same, {"drain_at": ("a1",)}):
        placement.check(TestSpec(name="test", **fields), nodes, needs(name))
    for fields in ({"produce_at": ("a1",)}, {**same, "consume_at": ("b1",)}):
        with pytest.raises(UsageError, match=f"--workload {name}: brokers of pairs do not share its topics"):
            placement.check(TestSpec(name="test", **fields), nodes, needs(name))
        placement.check(TestSpec(name="test", **fields), nodes, needs("queue,bank"))


@pytest.mark.parametrize("name", ["subscriptions", "request-reply"])
def test_consumers_may_be_elsewhere_where_brokers_share_topics_and_forward_replies(name):
    spec = TestSpec(name="test", policy="standalone", workload=name)
    dialect = systems.get("own").dialect
    assert workloads.registry.workloads_at_home(spec, dialect) == []
    chain = TestSpec(name="test", policy="standalone", workload=name, pairs=3, chain=True)
    assert workloads.registry.workloads_at_home(chain, dialect) == [name]


def test_clients_with_a_list_of_brokers_share_it():
    spec = {"client_brokers": ("b1", "a1"), "client_order": "ROUND_ROBIN", "producers": 3}
    context = make_context({"a1": None, "b1": None, "c1": None}, **spec)
    seats = placement.producers(context)
    assert [seat.pair for seat in seats] == ["a", "b", "c"]
    assert [seat.nodes.order() for seat in seats] == [["b1", "a1"], ["a1", "b1"], ["b1", "a1"]]
    with pytest.raises(UsageError, match="without --client-brokers the clients of a pair stay there"):
        placement.check(context.spec, context.nodes, ["subscriptions"])


@pytest.mark.parametrize("name", ["queue", "groups", "refusals", "bank", "transactions"])
def test_producers_consumers_and_the_drain_are_where_the_spec_says(name):
    @in_loop
    async def run():
        async with Server("a1") as a, Server("b1") as b, Server("c1") as c:
            context = make_context(
                {"a1": a, "b1": b, "c1": c},
                producers=4, consumers=4, groups=5,
                produce_at=("a1",), consume_at=("b1",), drain_at=("c1",),
            )  # fmt: skip
            workload = workloads.registry.create(name)
            few = 20 if name == "groups" else 3
            await conduct(context, workload, lambda rows: len(rows.of("send", type="ok")) > few)
            rows = context.recorder
            if name == "groups":
                assert {row["group"] for row in rows.of("send")} == {f"g{number}" for number in range(5)}
            assert {row["broker"] for row in rows.of("send", type="ok")} == {"a1"}
            drained = next(n for n, row in enumerate(rows.rows) if row.get("broker") == "c1")
            used = [Counter(), Counter()]
            for n, row in enumerate(rows.rows):
                if row["f"] == "subscribe" and row["type"] == "ok":
                    used[n > drained][row["broker"]] += 1
            assert set(used[0]) == {"b1"}
            assert set(used[1]) == {"c1"}
            assert a.stored, "the drain has left what is nowhere drained"

    run()


@pytest.mark.parametrize(
    ("drain_at", "drained"), [((), [["a1"], ["b1"]]), (("b1",), [[], ["b1"]]), (("a1",), [["a1"], []])]
)
def test_a_subscription_is_drained_at_its_own_pair_or_not_at_all(drain_at, drained):
    async def stations():
        context = make_context({"a1": None, "b1": None}, drain_at=drain_at)
        return [[station.node for station in placement.stations(context, pair)] for pair in ("a", "b")]

    assert asyncio.run(stations()) == drained


def test_an_option_that_takes_a_list_may_be_repeated():
    import click

    command = click.command()(options.spec_option("drain_at")(lambda drain_at: drain_at))
    for words, nodes in (
        ([], None),
        (["--drain-at", "a1,b1"], ("a1", "b1")),
        (["--drain-at", "a1", "--drain-at", "b1, c1"], ("a1", "b1", "c1")),
    ):
        assert command.main(words, standalone_mode=False) == nodes
