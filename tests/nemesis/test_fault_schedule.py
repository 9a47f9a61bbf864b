import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_cluster import plan

import nemesis
from harness.interface import Fault, Schedule, TestSpec, UsageError
from nemesis import registry
from nemesis.partition import SHAPES
from nemesis.schedule import generate, load, save, validate

EVERYTHING = dict.fromkeys(
    (primitive for kind in registry.KINDS.values() for primitive in kind.primitives), ""
)


def spec(*nemeses, **fields):
    return TestSpec(name="t", nemeses=nemeses, **fields)


def make(spec, nodes=None, seed=0):
    return generate(spec, nodes or plan(3), random.Random(seed))


@settings(max_examples=100, deadline=None)
@given(
    nemeses=st.lists(st.sampled_from(tuple(registry.KINDS)), min_size=1, max_size=4, unique=True),
    pairs=st.integers(1, 5),
    limit=st.floats(2, 200),
    interval=st.floats(0.5, 30),
    duration=st.floats(0.2, 30),
    seed=st.integers(0, 2**32),
)
def test_every_schedule_is_valid_ends_before_the_time_limit_and_repeats_by_its_seed(
    nemeses, pairs, limit, interval, duration, seed
):
    test = spec(*nemeses, time_limit_s=limit, interval_s=interval, duration_s=duration)
    nodes = plan(pairs)
    schedule = make(test, nodes, seed)
    validate(schedule, EVERYTHING, nodes)
    assert {fault.kind for fault in schedule.faults} == set(nemeses)
    assert [fault.start_s for fault in schedule.faults] == sorted(fault.start_s for fault in schedule.faults)
    for fault in schedule.faults:
        assert (fault.duration_s is None) == registry.get(fault.kind).for_good
        assert fault.start_s + (fault.duration_s or 0.0) < limit
    assert make(test, nodes, seed) == schedule
    for place in range(min(5, len(schedule.faults))):
        validate(Schedule(faults=schedule.faults[:place] + schedule.faults[place + 1 :]), EVERYTHING, nodes)


def test_one_nemesis_begins_at_half_an_interval_and_keeps_its_rhythm():
    faults = make(spec("kill", time_limit_s=60.0, interval_s=8.0, duration_s=6.0)).faults
    assert [round(fault.start_s / 14, 1) for fault in faults] == pytest.approx([0.3, 1.3, 2.3, 3.3], abs=0.15)
    assert {fault.duration_s for fault in faults} == {6.0}
    assert {fault.target for fault in faults} == {"live"}


def test_several_nemeses_are_displaced_and_each_has_its_peace():
    faults = make(spec("partition", "kill", time_limit_s=100.0)).faults
    kinds = [fault.kind for fault in faults]
    assert len(kinds) >= 10
    assert all(a != b for a, b in pairwise(kinds))
    for kind in ("partition", "kill"):
        own = [fault for fault in faults if fault.kind == kind]
        assert all(b.start_s - a.start_s - a.duration_s > 4 for a, b in pairwise(own))


def test_a_short_time_limit_moves_a_fault_forward_before_it_shortens_it():
    first, second = make(spec("partition", "kill", time_limit_s=20.0)).faults
    assert (first.kind, second.kind) == ("partition", "kill")
    assert first.start_s == pytest.approx(4, abs=1.1)
    assert (second.start_s, second.duration_s) == (10.0, 6.0)
    (only,) = make(spec("kill", time_limit_s=4.0)).faults
    assert (only.start_s, only.duration_s) == (1.0, 2.0)


def test_each_shape_that_the_cluster_allows_comes_before_any_comes_twice():
    faults = make(spec("partition", time_limit_s=1000.0), plan(3)).faults
    shapes = [fault.shape for fault in faults]
    drawn = registry.get("partition").default_shapes
    assert set(shapes[: len(drawn)]) == set(drawn) == set(SHAPES) - {"link"}
    assert {fault.shape for fault in make(spec("partition", time_limit_s=1000.0), plan(1)).faults} == {
        "isolate-live", "isolate-backup", "pair-link", "halves", "one-way", "random",
    }  # fmt: skip
    assert {fault.shape for fault in make(spec("slow", time_limit_s=300.0)).faults} == {
        "pair-link", "isolate-live", "isolate-backup",
    }  # fmt: skip


def test_shapes_and_targets_asked_for_are_the_only_ones():
    test = spec(
        "partition", "kill", time_limit_s=300.0, shapes=("bridge", "halves"), targets=("backup", "a1")
    )
    faults = make(test).faults
    assert {fault.shape for fault in faults if fault.kind == "partition"} == {"bridge", "halves"}
    assert {fault.target for fault in faults if fault.kind == "kill"} == {"backup", "a1"}


def test_nodes_leave_once_and_for_good():
    (leave,) = make(spec("leave", time_limit_s=100.0)).faults
    assert leave.duration_s is None


def test_a_late_start_names_a_backup_to_be_and_is_held_back():
    schedule = make(spec("late-start", "kill"))
    late = schedule.faults[0]
    assert (late.kind, late.start_s) == ("late-start", 0.0)
    assert late.target in {"a2", "b2", "c2"}
    assert nemesis.held_back(schedule) == {late.target}
    assert nemesis.held_back(Schedule(faults=(Fault(kind="late-start", start_s=0, target="a1, b2"),))) == {
        "a1",
        "b2",
    }
    assert nemesis.held_back(make(spec("kill"))) == frozenset()


def test_where_no_broker_has_a_backup_one_or_two_join():
    members = [node for node in plan(4) if node.configured == "master"]
    targets = {make(spec("late-start"), members, seed).faults[0].target for seed in range(60)}
    assert targets == {"b1", "c1", "d1", "b1,c1", "c1,d1"}


def test_no_late_start_is_drawn_that_suspends_the_others():
    a1, b1, c1 = plan(3, backups=False)
    nodes = a1, msgspec.structs.replace(b1, master=True), c1
    for seed in range(8):
        assert make(spec("late-start"), nodes, seed).faults[0].target == "c1"


def test_a_late_start_says_whom_it_suspends_and_for_how_long():
    late = Fault(kind="late-start", start_s=0, duration_s=3, target="a1", options={"suspends": ["b1", "c1"]})
    validate(Schedule(faults=(late,)), EVERYTHING, plan(3))
    assert nemesis.suspended(Schedule(faults=(late,))) == {"b1": 3, "c1": 3}
    assert nemesis.suspended(make(spec("late-start", "kill"))) == {}


@pytest.mark.parametrize(
    ("test", "nodes", "message"),
    [
        (
            spec("kil"),
            plan(3),
            'unknown nemesis "kil": did you mean "kill"? there are administer,',
        ),
        (spec("partition", shapes=("halfs",)), plan(3), 'unknown shape "halfs": did you mean "halves"?'),
        (spec("partition", shapes=("majorities-ring",)), plan(2), "needs at least 5 nodes, there are 4"),
        (spec("partition"), plan(1, backups=False), "partition: 1 nodes are too few for any shape"),
        (spec("late-start"), plan(1, backups=False), "late-start: 1 node is too few"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(test, nodes, message):
    with pytest.raises(UsageError) as raised:
        make(test, nodes)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(kind="kil", start_s=1), 'unknown nemesis "kil": did you mean "kill"?'),
        (Fault(kind="kill", start_s=-1), "start-s is -1: it must be 0 or more"),
        (Fault(kind="kill", start_s=float("nan")), "start-s is nan"),
        (Fault(kind="kill", start_s=1, duration_s=0), "duration-s is 0: it must be more than 0"),
        (Fault(kind="kill", start_s=1, target="lvie"), 'unknown target "lvie": did you mean "live"?'),
        (Fault(kind="kill", start_s=1, target="a1,a9"), 'unknown target "a9": there are a1, a2, all,'),
        (Fault(kind="kill", start_s=1, target="a1,a1"), 'target "a1,a1" names a node twice'),
        (Fault(kind="kill", start_s=1, target="master-broker"), "no node is the master broker"),
        (Fault(kind="kill", start_s=1, shape="halves"), 'takes no shape, but has "halves"'),
        (Fault(kind="kill", start_s=1, options={"delay_ms": 1}), 'unknown option "delay_ms": there are pair'),
        (Fault(kind="kill", start_s=1, options={"pair": "z"}), 'unknown pair "z": there are a, b, c'),
        (Fault(kind="kill", start_s=1, options={"pair": 3}), 'option "pair" is 3: it must be a name'),
        (Fault(kind="kill", start_s=1, target="a1", options={"pair": "a"}), "a name needs no pair"),
        (Fault(kind="kill", start_s=1, target="minority", options={"pair": "a"}), "2 nodes have no minority"),
        (Fault(kind="partition", start_s=1), "needs a shape; there are isolate-live,"),
        (
            Fault(kind="partition", start_s=1, shape="brigde"),
            'unknown shape "brigde": did you mean "bridge"?',
        ),
        (Fault(kind="partition", start_s=1, shape="halves", target="a1"), 'takes no target, but has "a1"'),
        (
            Fault(kind="partition", start_s=1, shape="halves", options={"direction": "to"}),
            'option "direction" belongs to the shape "one-way"',
        ),
        (
            Fault(kind="partition", start_s=1, shape="one-way", options={"direction": "up"}),
            "it must be one of from, to",
        ),
        (
            Fault(kind="slow", start_s=1, shape="halves", options={"delay": 5}),
            'unknown option "delay": did you mean "delay_ms"?',
        ),
        (
            Fault(kind="slow", start_s=1, shape="halves", options={"delay_ms": "5"}),
            "it must be a number of at least 0",
        ),
        (
            Fault(kind="slow", start_s=1, shape="halves", options={"rate_bytes_s": 0}),
            "it must be a number above 0",
        ),
        (Fault(kind="slow", start_s=1, shape="halves", options={"delay_ms": 0}), "slows nothing"),
        (Fault(kind="clock-skew", start_s=1, options={"skew_ms": True}), "must be a number other than 0"),
        (
            Fault(kind="clock-strobe", start_s=1, options={"period_ms": 5000}),
            "must be a number above 0 and at most 4000",
        ),
        (
            Fault(kind="copy-data", start_s=0, target="b1", options={"of": "b1"}),
            'option "of": "b1" must be the name of another node',
        ),
        (
            Fault(kind="copy-data", start_s=0, target="b1", options={"of": "z1"}),
            'option "of": "z1" must be the name of another node',
        ),
        (Fault(kind="leave", start_s=0, duration_s=1), "takes no duration: nodes that leave stay away"),
        (Fault(kind="late-start", start_s=0), "target is missing: it must name nodes"),
        (Fault(kind="late-start", start_s=0, target="backup"), 'target is "backup": it must name nodes'),
        (Fault(kind="late-start", start_s=2, target="a2"), "start-s is 2: it must be 0"),
        (
            Fault(kind="late-start", start_s=0, target="a1", options={"suspends": ["a1"]}),
            'option "suspends": "a1" must be the name of another node',
        ),
        (
            Fault(kind="late-start", start_s=0, target="a1", options={"suspends": ["b1", "b1"]}),
            "it must be a list of names",
        ),
        (Fault(kind="late-start", start_s=0, target="a2", after="failover/taken"), "after: not possible"),
        (
            Fault(kind="kill", start_s=0, after="failover/take"),
            'after: unknown event "failover/take": did you mean "failover/taken"?',
        ),
    ],
)
def test_a_wrong_fault_is_named_with_what_would_be_right(fault, message):
    good = Fault(kind="kill", start_s=0)
    with pytest.raises(UsageError) as raised:
        validate(Schedule(faults=(good, fault)), EVERYTHING, plan(3), ["failover/taken"])
    assert str(raised.value).startswith(f"fault 2 ({fault.kind}): ")
    assert message in str(raised.value)


@pytest.mark.parametrize("target", [None, "a1", "b2"])
def test_a_schedule_need_not_name_the_node_whose_data_are_copied(target):
    validate(Schedule(faults=(Fault(kind="copy-data", start_s=0, target=target),)), EVERYTHING, plan(3))


def test_a_node_is_held_back_once():
    late = Fault(kind="late-start", start_s=0, target="a2")
    with pytest.raises(UsageError, match="a2 is held back twice"):
        validate(Schedule(faults=(late, late)), EVERYTHING, plan(3))


@pytest.mark.parametrize("kind", registry.KINDS)
def test_what_the_environment_cannot_do_is_refused_with_its_reason(kind):
    shape = "halves" if registry.get(kind).shapes else None
    fault = Fault(kind=kind, start_s=0, shape=shape, target="a2" if kind == "late-start" else None)
    validate(Schedule(faults=(fault,)), EVERYTHING, plan(3))
    for primitive in registry.get(kind).primitives:
        lacking = {**EVERYTHING, primitive: "the kernel has no such thing"}
        with pytest.raises(UsageError) as raised:
            validate(Schedule(faults=(fault,)), lacking, plan(3))
        lacked = "" if primitive == kind else f"{primitive}: "
        assert str(raised.value) == (
            f"fault 1 ({kind}): this environment cannot do it: {lacked}the kernel has no such thing"
        )
        assert (
            registry.unsupported(kind, {}) == f"{lacked}this environment has no such fault"
            or len(registry.get(kind).primitives) > 1
        )


def test_every_nemesis_has_a_line_about_it():
    assert all(kind.description and "\n" not in kind.description for kind in registry.KINDS.values())


def test_a_schedule_comes_back_from_its_file(tmp_path):
    schedule = make(spec("partition", "slow", "destroy", "late-start", time_limit_s=100.0))
    save(schedule, tmp_path / "s.json")
    assert load(tmp_path / "s.json") == schedule


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no schedule"),
        ('{"faults": [{"kind": "kill"}]}', "`$.faults[0]`"),
        ('{"faults": [{"kind": "kill", "start-s": "1"}]}', "`$.faults[0].start-s`"),
        ('{"faults": [{"kind": "kill", "start-s": 1, "end": 2}]}', "unknown field `end`"),
        ("\xff", "is no schedule"),
    ],
)
def test_a_bad_file_is_named_with_the_place_in_it(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError) as raised:
        load(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none.json cannot be read: No such file"):
        load(tmp_path / "none.json")
