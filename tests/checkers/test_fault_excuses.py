"""Which faults explain that nothing succeeds: of each rule one that does, and one that does not.

Nothing succeeded at broker a1 from 100 s to 200 s. The bound for unavailability is 20 s, that for
recovery 30 s. Pairs are a1 with a2, b1 with b2, and c1 alone.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from checker_rows import Row, S, finished, lay_out, o

from checkers import judge
from checkers.availability import Outage
from checkers.excuses import KINDS, Excuses, FaultRecord, effects, ends_processes, kind_of, records
from checkers.facts import gather
from checkers.reference_liveness import unavailabilities
from checkers.schema import COLUMNS
from checkers.verdict import CheckOptions, Promises
from nemesis.registry import KINDS as NEMESES

OPTIONS = CheckOptions()
PAIRS = {"a1": "node-a", "a2": "node-a", "b1": "node-b", "b2": "node-b", "c1": "node-c"}


def window(begin: float = 100, end: float = 200, brokers: tuple[str, ...] = ("a1",)) -> Outage:
    return Outage(0, "operation send", 5, int(begin * S), int(end * S), (), frozenset(brokers))


def role(time_s: float, broker: str, name: str, node_id: str | None = None) -> Row:
    return o(
        0, -2, "info", "role", time=int(time_s * S), broker=broker, role=name,
        node_id=node_id or PAIRS.get(broker), time_low=int((time_s - 0.1) * S), time_high=int(time_s * S),
    )  # fmt: skip


ROLES = [role(0.1, name, "live" if name.endswith("1") else "backup") for name in PAIRS]


def fault(
    kind: str, *nodes: str, asked: float = 90, seen: float | None = 91, healed: float | None = None,
    links: tuple[str, ...] = (), heal: dict[str, object] | None = None, error: str | None = None,
    **told: object,
) -> list[Row]:  # fmt: skip
    """A fault's rows; ``told`` is what its completion says beside the nodes."""
    about = {"label": f"{kind} {asked}", "nodes": list(nodes), "links": list(links), "shape": None}
    rows = [o(0, -1, "invoke", kind, time=int(asked * S), value=json.dumps(about))]
    if seen is not None:
        said = json.dumps({**about, "bit": True, **told})
        rows.append(o(0, -1, "info", kind, time=int(seen * S), value=said, error=error))
    if healed is not None:
        said = json.dumps({**about, "bit": True, **(heal or {})})
        rows += [
            o(0, -1, "invoke", f"heal:{kind}", time=int(healed * S) - S, value=json.dumps(about)),
            o(0, -1, "info", f"heal:{kind}", time=int(healed * S), value=said),
        ]
    return rows


def excuses_of(rows: list[Row], roles: list[Row] = ROLES, **promised: object) -> Excuses:
    """The excuses that these faults give."""
    some = sorted([*roles, *rows, *finished(0)], key=lambda row: row["time"])
    numbered = [dict.fromkeys(COLUMNS) | row | {"index": n} for n, row in enumerate(some)]
    return gather(numbered).excuses(msgspec.structs.replace(OPTIONS, broker=Promises(**promised)))


def excused(
    rows: list[Row], pause: Outage | None = None, roles: list[Row] = ROLES, **promised: object
) -> bool:
    """Whether these faults explain it."""
    return excuses_of(rows, roles, **promised).excuses(pause or window())


CHANGING = [*ROLES, role(95, "a1", "voting")]
KILLED = {"b1": "gone"}

EXPLAINED = {
    "its broker is paused": fault("pause", "a1", observed={"a1": "paused"}),
    "the other of its pair is": fault("kill", "a2", observed={"a2": "gone"}),
    "nobody looked whether the fault took effect": fault("pause", "a1", seen=None),
    "a look failed half-way": fault("stop", "a1", bit=False, observed={}, error="a1 still runs after 15 s"),
    "nobody told what was seen": [
        dict(row, value=json.dumps({"label": "x", "nodes": ["a1"]})) for row in fault("pause", "a1")
    ],
    "one of two brokers shows it": fault(
        "kill", "a1", "b1", bit=False, observed={"a1": "gone", "b1": "running"}),
    "it was kept down by a fault that found it down": fault(
        "kill", "a1", bit=False, observed={"a1": "gone already"}),
    "its disk is slow": fault("disk-slow", "a1", observed={"a1/disk": "slow 300 ms"}),
    "the file server of its store stands still": fault(
        "nfs-stall", "a1", "a2", observed={"a1/store": "silent", "a2/store": "silent"}),
    "the database is down": fault("database-restart", "a1", "b1", observed={"a1/database": "down"}),
    "its zone does not reach it": fault("partition", links=("zone1->a1", "a1->zone1")),
    "it does not reach another pair": fault("partition", links=("b1->a1",)),
    "one link of several is lost": fault(
        "partition", links=("a1->b1", "b1->a1"), bit=False,
        observed={"a1->b1": "lost", "b1->a1": "open"}),
    "all its clocks run fast": fault("clock-rate", "a1", observed={"a1/clock": "rate 1.500"}),
    "a hook did something": fault("hook", "b1", observed={"b1/hook": "in force"}),
    "somebody else's harness did something": [
        o(0, -1, type_, "nemesis:start", time=90 * S, value=json.dumps({"label": "nemesis:start 1"}))
        for type_ in ("invoke", "info")
    ],
    "no node is told": fault("kill"),
    "a node of no known pair is killed": fault("kill", "x1", observed={"x1": "gone"}),
    "it was healed less than the recovery bound ago": fault("kill", "a1", healed=151),
    "it was asked for in time and seen late": fault("kill", "a1", asked=119, seen=199),
    "it was not seen to be healed": fault(
        "disk-stall", "a1", healed=95, heal={"bit": False, "observed": {"a1/disk": "stalled"}}),
    "nobody tells where it was, and it was not seen to be healed": fault(
        "pause", healed=95, heal={"bit": False, "observed": {"a1": "paused"}}),
    "nobody could look whether it was healed": fault("pause", "a1", healed=95, heal={"bit": False}),
    "its healing was observed, and not found": fault(
        "kill", "a1", healed=95, heal={"bit": None, "observed": {"a1": "gone"}}),
    "the probe told only of another broker": fault("pause", "a1", "b1", observed={"b1": "paused"}),
    "a link of no known broker is lost": fault("partition", links=("x1->x2",)),
    "a row of the nemesis says nothing": [dict(row, value=None) for row in fault("pause", "b1")],
    "another one comes only afterwards": [*fault("kill", "a1", healed=190), *fault("kill", "a1", asked=260)],
}  # fmt: skip

NOT_EXPLAINED = {
    "there is no fault": [],
    "a fault found no target": fault("pause", bit=False, observed={}, error="no broker is live now"),
    "a partition found none": fault("partition", bit=False, observed={}, error="no broker is live now"),
    "a probe shows no effect": fault("pause", "a1", bit=False, observed={"a1": "running"}),
    "a probe shows nothing, and nothing failed": fault("pause", "a1", bit=False, observed={}),
    "the disk is sound": fault("disk-slow", "a1", bit=False, observed={"a1/disk": "sound"}),
    "of two brokers the other pair's shows it": fault(
        "kill", "a1", "b1", bit=False, observed={"a1": "running", "b1": "gone"}),
    "of two the other pair's is the one that is not quiet": fault(
        "pause", "a1", "b1", observed={"a1": "running", "b1": "paused"}),
    "no link of it is lost": fault("partition", links=("a1->b1",), bit=False, observed={"a1->b1": "open"}),
    "another pair's disk is slow": fault("disk-slow", "b2", observed={"b2/disk": "slow 300 ms"}),
    "another pair's disk is full": fault("disk-full", "b1", observed={"b1/disk": "full"}),
    "another pair is down": fault("kill", "b1", "b2", observed={"b1": "gone", "b2": "gone"}),
    "other pairs do not hear each other": fault("partition", links=("b1->c1", "c1->b1")),
    "clients do not reach another pair": fault("partition", links=("zone1->b1",)),
    "another pair's store stands still": fault("nfs-stall", "b1", "b2", observed={"b1/store": "silent"}),
    "its wall clock is wrong": fault("clock-skew", "a1", observed={"a1/clock": "skewed 60000 ms"}),
    "its wall clock jumps": fault("clock-strobe", "a1", observed={"a1/clock": "true, strobing 500 ms"}),
    "it was healed long before": fault("kill", "a1", healed=140),
    "it begins too late": fault("kill", "a1", asked=125, seen=126),
    "all but one of its brokers were healed": fault(
        "kill", "a1", "b1", healed=95, heal={"bit": False, "observed": {"a1": "running", "b1": "gone"}}),
    "another fault keeps the broker of another pair down": fault(
        "kill", "a1", healed=95, heal={"bit": False, "observed": {"a1": "gone, kept down by kill-2"}}),
    "the broker of another pair was quiet though the fault took effect": fault(
        "pause", "b1", observed={"b1": "running"}),
    "only the probe names the broker of another pair": fault("pause", observed={"b1": "paused"}),
    "a look that failed had found no effect": fault(
        "stop", "a1", bit=False, observed={"a1": "running"}, error="a1 still runs after 15 s"),
    "nobody tells where it was, and it was healed long before": fault("pause", healed=95),
    "nobody looked whether it was healed": fault("kill", "a1", healed=95, heal={"bit": None}),
    "what a hook did is over here, but not at another pair": fault(
        "hook", "a1", healed=95, heal={"bit": False, "observed": {"a1/hook": "running"}}),
    "its broker ended under it, and was found so": fault(
        "pause", "a1", healed=95, heal={"bit": False, "observed": {"a1": "gone"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_silence_is_explained_where(name):
    assert excused(EXPLAINED[name])


@pytest.mark.parametrize("name", NOT_EXPLAINED)
def test_a_silence_is_not_explained_where(name):
    assert not excused(NOT_EXPLAINED[name])


def test_a_fault_that_was_healed_long_before_is_not_named():
    assert excuses_of(fault("kill", "a1", asked=50, seen=51, healed=60)).explain(window()) == []


def ends_of(rows: list[Row]) -> list[tuple[frozenset[str] | None, bool]]:
    """The places of each effect, and whether it ended."""
    return [(one.places, one.end is not None) for one in effects(records(rows))]


def test_an_effect_ends_where_its_healing_was_seen():
    assert ends_of(fault("kill", "a1", healed=95)) == [({"a1"}, True)]
    assert ends_of(fault("kill", healed=95)) == [(None, True)]
    half = {"bit": False, "observed": {"a1": "running", "b1": "gone"}}
    assert ends_of(fault("kill", "a1", "b1", healed=95, heal=half)) == [({"a1"}, True), ({"b1"}, False)]
    nowhere = {"bit": False, "observed": {"a1": "gone"}}
    assert ends_of(fault("kill", "a1", healed=95, heal=nowhere)) == [({"a1"}, False)]
    assert ends_of(fault("kill", healed=95, heal=nowhere)) == [(None, False)]


def test_a_fault_that_found_no_target_has_no_effect():
    nobody = {"bit": False, "observed": {}, "error": "no broker is live now"}
    for heal in (None, {"bit": False, "observed": {"a1": "gone"}}):
        assert ends_of(fault("pause", **nobody, healed=heal and 95, heal=heal)) == []


def labelled(type_: str, f: str = "kill") -> Row:
    return o(0, -1, type_, f, value='{"label": "kill 1"}')


def test_a_label_that_is_used_again_is_another_fault():
    first, second = records([*map(labelled, ("invoke", "info")), *map(labelled, ("invoke", "info"))])
    assert first.asked is not second.asked
    assert len(records(map(labelled, ("invoke", "invoke", "info")))) == 2
    assert len(records(map(labelled, ("info", "info")))) == 2


def test_a_healing_ends_all_faults_of_its_label_that_are_open():
    asked, healed = labelled("invoke", "heal:kill"), labelled("info", "heal:kill")
    again, once_more = dict(asked), dict(healed)
    first, second = records([labelled("info"), asked, again, healed, labelled("info"), once_more])
    assert first.healing is asked
    assert first.healed is healed
    assert (second.healing, second.healed) == (None, once_more)
    assert second.healed is once_more


def test_a_fault_that_nobody_saw_begin_has_the_label_of_its_request():
    assert FaultRecord(asked=labelled("invoke")).label == "kill 1"
    assert FaultRecord(begun=labelled("info")).label == "kill 1"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"bit": False, "nodes": []}, False),
        ({"bit": False, "links": []}, False),
        ({"bit": False}, True),
        ({"bit": True, "nodes": []}, True),
        ({"bit": False, "nodes": ["a1"]}, True),
        ({"bit": False, "nodes": [], "observed": {"a1": "gone already"}}, True),
    ],
)
def test_a_fault_found_a_target_unless_its_row_says_that_there_was_none(told: dict[str, Any], found: bool):
    assert FaultRecord(begun=o(0, -1, "info", "kill", value=json.dumps(told))).found_target == found


def test_windows_name_the_brokers_that_their_operations_went_to(tmp_path):
    def sent(time_s: int, broker: str | None, outcome: str, group: str = "g") -> list[Row]:
        told = {"producer": 1, "sequence": time_s, "digest": 7, "group": group, "time": time_s * S}
        about = {"queue": "q", "message": time_s, **told}
        asked = o(2 * time_s, 1, "invoke", "send", **about)
        return [asked, o(2 * time_s + 1, 1, outcome, "send", broker=broker, **about)]

    sends = [(1, "c1", "ok"), (2, "a1", "ok"), *((time_s, None, "info") for time_s in (3, 20, 40, 60))]
    sends += [(61, "b1", "fail"), (62, "b2", "ok"), (63, "d1", "ok")]
    rows = [row for one in sends for row in sent(*one)]
    rows = [dict(row, index=index) for index, row in enumerate(rows)]
    case = judge.examine(judge.CheckRun(lay_out(tmp_path / "history", rows, slice_rows=3), OPTIONS))
    assert case is not None
    found = {pause.key: pause.brokers for pause in case.pauses}
    every = {"a1", "b1", "b2", "c1", "d1"}
    assert found == {
        "operation send": every,
        'queue "q", send': every,
        'group "g" of queue "q", send': every,
        "client producer 1": {"a1", "b1", "b2"},
    }
    assert found == {one.key: one.brokers for one in unavailabilities(rows, OPTIONS)}


VOTERS = {
    "they are down": fault("kill", "b1", observed=KILLED),
    "they stand still": fault("pause", "b1", observed={"b1": "paused"}),
    "their disks are stalled": fault("disk-stall", "b1", observed={"b1/disk": "stalled"}),
    "they do not hear each other": fault("partition", links=("b1->c1",)),
    "their clocks run fast": fault("clock-rate", "b1", observed={"b1/clock": "rate 1.500"}),
}


@pytest.mark.parametrize("name", VOTERS)
def test_other_brokers_explain_a_silence_while_the_pair_changes_roles_and(name):
    assert excused(VOTERS[name], roles=CHANGING)
    assert not excused(VOTERS[name])


@pytest.mark.parametrize(
    ("roles", "explained"),
    [
        ([*ROLES, role(195, "a2", "live")], True),
        ([*ROLES, role(60, "a1", "voting")], False),
        ([*ROLES, role(230, "a1", "voting")], False),
        ([*ROLES, role(95, "b2", "live")], False),
        ([*ROLES, role(95, "a1", "live")], False),
    ],
    ids=["change late", "change long before", "change afterwards", "of another pair", "no change"],
)
def test_votes_are_needed_while_the_pair_changes_its_roles(roles, explained):
    assert excused(fault("kill", "b1", observed=KILLED), roles=roles) == explained


def test_votes_of_who_was_back_long_before_the_change_were_not_missing():
    roles = [*ROLES, role(150, "a1", "voting")]
    assert excused(fault("kill", "b1", healed=125), roles=roles, pause=window(100, 165))
    assert not excused(fault("kill", "b1", healed=115), roles=roles, pause=window(100, 165))


def test_a_slow_disk_of_another_pair_takes_no_vote_away():
    slow = fault("disk-slow", "b2", observed={"b2/disk": "slow 300 ms"})
    assert not excused(slow, roles=CHANGING)


def test_brokers_that_had_one_node_id_or_took_it_over_are_a_pair():
    killed = fault("kill", "b1", observed=KILLED)
    shared = [*ROLES, role(10, "b1", "live", "node-a"), role(20, "b1", "live", "node-b")]
    assert excused(killed, roles=shared)
    assert excused(fault("disk-slow", "x1"), roles=[*shared[:-1], role(30, "x1", "backup", "node-b")])
    taken = o(0, -2, "info", "takeover", time=S, broker="b1", node_id="node-a", time_low=0, time_high=S)
    assert excused([*killed, taken])
    assert not excused(killed)


@pytest.mark.parametrize(
    ("roles", "brokers"),
    [([], ("a1",)), (ROLES, ()), (ROLES, ("x1",)), ([*ROLES, role(0.2, "x1", "live")], ("x1",))],
    ids=["no roles", "no brokers of the window", "a broker that told no role", "one that told no node ID"],
)
def test_where_the_place_is_not_told_any_fault_explains_it(roles, brokers):
    assert excused(fault("disk-slow", "b1"), window(brokers=brokers), roles)
    assert not excused(fault("pause", bit=False, observed={}), window(brokers=brokers), roles)


def test_pairs_that_need_each_other_are_silenced_by_any_broker():
    assert excused(fault("disk-slow", "b1"), independent_pairs=False)
    assert not excused(fault("clock-skew", "b1"), independent_pairs=False)


def test_a_wall_clock_silences_brokers_that_measure_time_by_it():
    assert excused(fault("clock-step", "a1"), monotonic_clocks=False)
    assert not excused(fault("clock-step", "b1"), monotonic_clocks=False)


def test_every_kind_of_our_nemeses_but_a_hook_is_in_the_table():
    assert {name for name in NEMESES if kind_of(name) not in KINDS} == {"hook"}
    assert kind_of("kill-9").silence == "anywhere"


def test_faults_that_end_processes_are_those_that_a_probe_may_find_gone():
    assert [ends_processes(kind) for kind in ("kill", "heal:kill", "hook", "heal:hook")] == [True] * 4
    assert [ends_processes(kind) for kind in ("pause", "heal:pause", "disk-stall")] == [False] * 3


def test_what_probes_say_of_our_faults_are_the_words_of_the_table():
    for name, kind in NEMESES.items():
        words = (kind.seen_as,) if isinstance(kind.seen_as, str) else kind.seen_as
        assert set(filter(None, words)) <= {*kind_of(name).effects, "in force"}, name
