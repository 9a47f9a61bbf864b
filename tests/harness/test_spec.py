"""Specs: every refusal is one line with the near name; what is written comes back."""

import math

import pytest

from harness.history import spec as specs
from harness.history import store as stores
from harness.interface import NO_MASTER, UsageError
from harness.report import summary
from harness.report.summary import size
from harness.systems.own.system import OwnSystem


def test_the_name_says_what_is_tested():
    assert specs.build({"nemeses": ("partition", "kill")}).name == "replication-partition-kill"
    assert specs.build({"nemeses": ("kill",), "workload": "queue"}).name == "replication-kill-queue"
    assert specs.build({"name": "mine", "nemeses": ("kill",)}).name == "mine"


def test_options_change_a_spec_from_a_file_and_keep_the_rest():
    base = specs.build({"pairs": 5, "rate": 17.0, "nemeses": ("kill",)})
    changed = specs.build({"nemeses": ("pause",), "rate": None}, base)
    assert (changed.pairs, changed.rate, changed.nemeses) == (5, 17.0, ("pause",))
    assert changed.name == "replication-pause"


def test_a_stored_spec_comes_back(tmp_path):
    spec = specs.build(
        {"seed": 7, "properties": {"*": {"acceptor.connection-ttl": 900}}, "shapes": ("halves",)}
    )
    stores.save(tmp_path, stores.SPEC, spec)
    assert specs.load(tmp_path / stores.SPEC) == spec
    assert specs.load(tmp_path) == spec
    assert stores.load_spec(tmp_path) == spec


def test_a_hand_written_spec_needs_no_name(tmp_path):
    (tmp_path / "t.json").write_text('{"policy": "replication", "nemeses": ["kill"]}')
    assert specs.load(tmp_path / "t.json").name == "replication-kill"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"pairs": 0}, "--pairs is 0: it must be at least 1"),
        ({"pairs": 27}, "--pairs is 27: it must be at most 26"),
        ({"rate": -1.0}, "--rate is -1.0: it must be at least 0"),
        ({"time_limit_s": 0.0}, "--time-limit is 0.0: it must be more than 0"),
        ({"duration_s": 1e-9}, "--duration is 1e-09: it must be at least 0.001"),
        ({"guarantee": "at-lest-once"}, 'unknown guarantee "at-lest-once": did you mean "at-least-once"?'),
        ({"hold_s": -1.0}, "--hold is -1.0: it must be at least 0"),
        ({"time_limit_s": math.inf}, "--time-limit is inf: it must be a number"),
        ({"interval_s": math.nan}, "--interval is nan: it must be a number"),
        ({"hold_s": math.nan}, "--hold is nan: it must be a number"),
        ({"name": "two\nlines"}, r"--name is 'two\nlines': it must be one line of text"),
        ({"prefetch": 0}, "--prefetch is 0: it must be at least 1"),
        ({"nemeses": ("kill", "kill")}, "--nemesis kill,kill names one nemesis twice"),
    ],
)
def test_impossible_values_are_refused_in_one_line(given, complaint):
    with pytest.raises(UsageError) as refused:
        specs.build(given)
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[1]", "expected an object in braces, found list"),
        ('{"polcy": "replication"}', 'unknown field "polcy": did you mean "policy"?'),
        ('{"pairs": "three"}', 'field "pairs": expected int, got str'),
        ('{"pairs": 0}', "--pairs is 0"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, text, complaint):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        specs.load(path)
    assert str(path) in str(refused.value)
    assert complaint in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        specs.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("*:acceptor.connection-ttl=1000", ("*", "acceptor.connection-ttl", 1000)),
        (
            "a2:ha-policy.replication.slave.allow-failback=false",
            ("a2", "ha-policy.replication.slave.allow-failback", False),
        ),
        ("a1:hosts.a2:61616=127.0.0.1:1", ("a1", "hosts.a2:61616", "127.0.0.1:1")),
        ("a1:cluster.cluster-password=a=b", ("a1", "cluster.cluster-password", "a=b")),
    ],
)
def test_properties_are_read(text, parsed):
    assert specs.parse_property(text) == parsed


@pytest.mark.parametrize("text", ["", "a1", "a1:x", "a1:=1", ":x=1", "x=1"])
def test_what_is_no_property_is_shown_a_right_one(text):
    with pytest.raises(UsageError, match="is not NODE:property=value; for example"):
        specs.parse_property(text)


def test_the_line_that_repeats_a_test_gives_the_same_spec(tmp_path):
    """Parse the printed line with the real command line and compare."""
    from harness.commands import cli

    spec = specs.build(
        {
            "seed": 99,
            "nemeses": ("partition", "kill"),
            "pairs": 1,
            "rate": 12.5,
            "ordered": False,
            "guarantee": "exactly-once",
            "queues": 2,
            "churn": 3.0,
            "send_again": True,
            "reuse_transactions": True,
            "close_groups": True,
            "change_selectors": True,
            "share_topics": True,
            "share_replies": True,
            "compare_backups": True,
            "shapes": ("halves", "one-way"),
            "properties": {"*": {"acceptor.connection-ttl": 900}, "a2": {"cluster.cluster-password": "it's"}},
        }
    )
    import shlex

    words = shlex.split(summary.repeat_command(spec, tmp_path))
    assert words[0] == "jepsen-run"
    with cli.cli.commands["test"].make_context("test", words[1:]) as context:
        given = dict(context.params)
    settings = given.pop("settings")
    for other in ("spec_file", "schedule_file", "root", "spark_master", "as_json"):
        given.pop(other)
    assert specs.with_settings(specs.build(given), settings) == spec


def test_a_schedule_that_was_given_is_given_again(tmp_path):
    assert summary.repeat_command(specs.build({"seed": 4}), tmp_path, "my faults.json").endswith(
        "--seed 4 --schedule 'my faults.json'"
    )


def test_nemeses_are_not_repeated_beside_a_schedule_that_may_have_others(tmp_path):
    drawn = specs.build({"seed": 4, "nemeses": ("partition", "kill")})
    line = summary.repeat_command(drawn, tmp_path, "f.json")
    assert line == f"jepsen-run --spec {tmp_path}/spec.json --seed 4 --schedule f.json"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pairs": 1}, "1 pair"),
        ({"policy": "shared-store"}, "3 pairs"),
        (
            {"policy": "shared-store", "pairs": 2, "properties": {"store": {"backups": 2}}},
            "2 groups of 3 brokers",
        ),
        ({"policy": "ha-database"}, "3 brokers"),
        ({"policy": "standalone", "pairs": 1}, "1 broker"),
    ],
)
def test_the_size_of_a_cluster_is_told_in_what_it_is_made_of(fields, words):
    assert size(OwnSystem().plan(specs.build(fields))) == words


@pytest.mark.parametrize(
    ("policy", "master", "expected"),
    [
        ("conventional", "", ["a1"]),
        ("conventional", "b1", ["b1"]),
        ("conventional", NO_MASTER, []),
        ("standalone", "", []),
    ],
)
def test_the_first_broker_of_a_conventional_cluster_is_its_master_unless_the_test_says_otherwise(
    policy, master, expected
):
    nodes = OwnSystem().plan(specs.build({"policy": policy, "pairs": 2, "master": master}))
    assert [node.name for node in nodes if node.master] == expected


def test_a_plan_has_pairs_of_master_and_slave():
    nodes = OwnSystem().plan(specs.build({"pairs": 2}))
    assert [(node.name, node.pair, node.configured) for node in nodes] == [
        ("a1", "a", "master"),
        ("a2", "a", "slave"),
        ("b1", "b", "master"),
        ("b2", "b", "slave"),
    ]
    alone = OwnSystem().plan(specs.build({"pairs": 2, "policy": "standalone"}))
    assert [node.configured for node in alone] == ["standalone", "standalone"]


def test_the_name_of_a_test_says_whose_brokers_are_not_ours():
    assert specs.default_name({"system": "artemis", "nemeses": ("kill",)}) == "artemis-replication-kill"
    assert specs.default_name({"system": "own", "workload": "queue"}) == "replication-queue"
