"""A search draws runs from its seed, within its bounds, stops at the first that breaks the
guarantee, and says what it never saw.
"""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import psutil
import pytest

from checkers.verdict import Verdict
from harness.commands import cli
from harness.explore import plans, runs, swarm, workers
from harness.explore.search import search
from harness.explore.shrink.case import ShrinkCase
from harness.explore.shrink.simpler import form
from harness.history import judge as judging
from harness.interface import Schedule, TestSpec, UsageError
from harness.run import reproduction
from harness.run.simulate import simulate
from harness.systems import registry
from harness.systems.own.events import EVENTS
from nemesis import registry as kinds
from nemesis import schedule as schedules
from nemesis.registry import KINDS
from workloads.registry import parts as shares

DRAWS = 300


def spec(**fields):
    return TestSpec(**{"name": "search", **swarm.DEFAULTS, **fields})


def draws(drawn_from, count=DRAWS):
    return [swarm.draw(drawn_from, f"1/{number}") for number in range(count)]


def request(tmp_path, base, *, jobs=1, store=None, spark_master=None, **fields):
    plan = plans.search_plan(
        {"seed": 3, "runs": 10, "shrink_limit_s": 0.0, **fields}, base, fixed=(), bounded=True
    )
    return plans.ExploreRequest(plan=plan, root=tmp_path, jobs=jobs, store=store, spark_master=spark_master)


def campaign(tmp_path):
    return json.loads((tmp_path / "latest" / search.CAMPAIGN).read_bytes())


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ({}, (4.0, 10.0)),
        ({"time_limit_s": 120.0}, (20.0, 30.0)),
        ({"time_limit_s": 2.0, "unavailable_bound_s": 7.0}, (7.0, 2.5)),
        ({"environment": "local"}, (60.0, 90.0)),
    ],
    ids=["a short run", "a long run", "a given bound", "deployed brokers"],
)
def test_the_bounds_of_a_search_follow_from_the_length_of_its_runs(given, bounds):
    fields = swarm.defaults(given)
    assert (fields["unavailable_bound_s"], fields["recovery_bound_s"]) == bounds


ONE_PAIR = spec(pairs=1, nemeses=("partition",))
"""Cannot survive what it is given (RP4): some run of a few finds split brain."""

PEACEFUL = spec(pairs=1, policy="standalone", nemeses=("clock-skew",), time_limit_s=2.0)


def test_a_run_is_decided_by_its_seed():
    drawn_from = swarm.swarm(spec())
    assert swarm.draw(drawn_from, "1/0") == swarm.draw(drawn_from, "1/0")
    assert len({msgspec.json.encode(one) for one in draws(drawn_from, 50)}) == 50


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(
    "fields", [{}, {"pairs": 1}, {"policy": "standalone"}, {"policy": "standalone", "pairs": 1}]
)
@pytest.mark.slow
def test_whatever_is_drawn_can_be_run(fields, bounded):
    base = spec(**fields)
    nodes = registry.of(base).plan(base)
    everything = {primitive: "" for name in kinds.KINDS for primitive in kinds.get(name).primitives}
    for drawn, schedule in draws(swarm.swarm(base, bounded=bounded)):
        schedules.validate(schedule, everything, nodes)
        assert registry.of(drawn).plan(drawn) == nodes


@pytest.mark.slow
def test_every_kind_and_every_property_is_there_in_some_runs_and_missing_in_others():
    drawn_from = swarm.swarm(spec(), bounded=False)
    left_out = set(kinds.KINDS) - set(drawn_from.kinds)
    # It has neither a shared directory nor a database, and none of the commands of brokers that
    # share one; a person's own commands are for attached clusters alone.
    lacking = {name for name in kinds.KINDS if kinds.get(name).lacks(drawn_from.nodes)}
    assert left_out == {*lacking, "hook"}
    assert {"nfs-stall", "database-stall", "takeover", "quiesce"} <= left_out
    runs = draws(drawn_from)
    for kind in drawn_from.kinds:
        having = sum(any(fault.kind == kind for fault in schedule.faults) for _, schedule in runs)
        assert 0 < having < DRAWS, kind
    names = {name for drawn, _ in runs for name in drawn.properties["*"]}
    assert {"journal.segment-size", "cluster.connection-ttl", "ha-policy.replication.vote-retries"} <= names
    for name in names:
        assert len({drawn.properties["*"].get(name) for drawn, _ in runs}) > 2, name
    assert {"address-settings.#.max-size-bytes", "address-settings.#.page-size-bytes"} <= names
    for field in ("prefetch", "hold_s", "operation_timeout_s", "large_message_share"):
        assert len({getattr(drawn, field) for drawn, _ in runs}) > 2, field


@pytest.mark.slow
def test_habits_of_clients_are_drawn_for_the_workloads_that_have_them():
    topics = [one for one, _ in draws(swarm.swarm(spec(workload="subscriptions")))]
    assert {one.queues for one in topics} == {1, 3, 6}
    assert {one.churn for one in topics} == {1.0, 2.0, 4.0}
    assert {one.send_again for one in topics} == {True, False}
    assert {one.reuse_transactions for one in topics} == {False}
    moves = [one for one, _ in draws(swarm.swarm(spec(workload="transactions")))]
    assert {one.reuse_transactions for one in moves} == {True, False}
    assert {one.change_selectors for one in topics} == {True, False}
    assert {one.share_topics for one in topics} == {True, False}
    chained = [one for one, _ in draws(swarm.swarm(spec(workload="subscriptions", policy="standalone")))]
    assert {(one.share_topics, one.chain) for one in chained} == {
        (True, False),
        (False, True),
        (False, False),
    }
    given = spec(workload="subscriptions,request-reply", policy="standalone", chain=True)
    assert {(one.share_topics, one.share_replies) for one, _ in draws(swarm.swarm(given))} == {(False, False)}
    alone = [one for one, _ in draws(swarm.swarm(spec(workload="subscriptions", policy="ha-database")))]
    assert {one.share_topics for one in alone} == {False}
    replies = draws(swarm.swarm(spec(workload="request-reply")))
    assert {one.share_replies for one, _ in replies} == {True, False}
    assert {one.close_groups for one in topics} == {one.change_selectors for one in moves} == {False}
    groups = [one for one, _ in draws(swarm.swarm(spec(workload="groups")))]
    assert {one.close_groups for one in groups} == {True, False}
    assert {(one.queues, one.churn) for one in moves} == {(1, 1.0)}


@pytest.mark.slow
def test_backups_are_compared_in_some_runs_of_replication_and_in_no_others():
    assert {one.compare_backups for one, _ in draws(swarm.swarm(spec()))} == {True, False}
    alone = swarm.swarm(spec(policy="standalone", pairs=1))
    assert {one.compare_backups for one, _ in draws(alone)} == {False}


@pytest.mark.slow
def test_of_a_mixture_each_run_has_some_workloads_with_weights_and_shrinking_may_drop_one():
    drawn = {one.workload for one, _ in draws(swarm.swarm(spec(workload="mixed")))}
    assert {"bank", "groups", "refusals"} <= {name for one in drawn for name in shares(one)}
    several = [one for one in drawn if len(shares(one)) > 1]
    assert len(several) > 10
    assert len({weight for one in several for weight in shares(one).values()}) > 2
    (place,) = (
        place
        for place in form(ShrinkCase(spec(workload="bank:2,groups:1"), Schedule(faults=()))).fields
        if place.name == "workload"
    )
    assert place.candidates == ("bank", "groups", "bank:2,groups:1")


def test_a_bounded_run_does_not_mix_what_ends_brokers_with_what_silences_them_and_lets_a_pair_recover():
    for _, schedule in draws(swarm.swarm(spec())):
        hard = [fault for fault in schedule.faults if not KINDS[fault.kind].mild]
        ending = [fault for fault in hard if KINDS[fault.kind].ends]
        assert not ending or ending == hard
        for before, after in itertools.pairwise(ending):
            assert after.start_s >= before.start_s + before.duration_s + swarm.SETTLE_S


@pytest.mark.slow
def test_what_slows_lasts_to_the_end_in_some_runs_but_not_beside_what_ends_one_of_a_pair():
    def lasting(drawn_from):
        for _, schedule in draws(drawn_from):
            for fault in schedule.faults:
                if fault.duration_s is None:
                    assert fault.kind in ("slow", "disk-slow")
                    yield {one.kind for one in schedule.faults}

    pairs = list(lasting(swarm.swarm(spec())))
    assert pairs
    assert not any(KINDS[name].ends for together in pairs for name in together)
    alone = spec(policy="standalone", pairs=1, nemeses=("power-loss", "disk-slow"))
    assert any("power-loss" in together for together in lasting(swarm.swarm(alone)))


def test_no_link_is_slowed_to_a_trickle_beside_what_ends_one_of_a_pair():
    """A link without room for what it carries is a cut one.

    A live loses its vote behind it and ends, and the next blow ends the other (RP13).
    """
    drawn = [
        schedule.faults
        for _, schedule in draws(swarm.swarm(spec(nemeses=("slow", "partition", "kill"))), 200)
    ]
    trickling = [faults for faults in drawn if any(swarm.RATE in fault.options for fault in faults)]
    assert trickling
    assert not any(fault.kind == "kill" for faults in trickling for fault in faults)
    assert any({"slow", "kill"} <= {fault.kind for fault in faults} for faults in drawn)


def test_brokers_that_share_a_store_are_promised_to_survive_cuts_however_few_they_are():
    assert "partition" in swarm.swarm(spec(policy="shared-store", pairs=1)).kinds
    assert "partition" not in swarm.swarm(spec(pairs=1)).kinds


@pytest.mark.parametrize("policy", ["standalone", "shared-store"])
def test_who_has_no_copy_that_must_catch_up_needs_no_rest_between_two_blows_and_no_run_is_mild_only(policy):
    """A takeover from a shared store may itself be interrupted.

    One that is half done must do no harm.
    """
    base = spec(policy=policy, pairs=1, nemeses=("power-loss", "disk-slow"))
    rests = []
    for _, schedule in draws(swarm.swarm(base)):
        ending = [fault for fault in schedule.faults if KINDS[fault.kind].ends]
        assert ending
        rests += [
            after.start_s - before.start_s - before.duration_s for before, after in itertools.pairwise(ending)
        ]
    assert min(rests) < swarm.SETTLE_S < max(rests)


def test_targets_that_are_given_bound_those_that_are_drawn():
    targets = {
        fault.target
        for _, schedule in draws(swarm.swarm(spec(nemeses=("pause",), targets=("live", "backup"))), 50)
        for fault in schedule.faults
    }
    assert targets == {"live", "backup"}


def test_bounds_leave_out_what_nobody_promises_to_survive_unless_it_is_named():
    assert not any(KINDS[name].unpromised for name in swarm.swarm(spec()).kinds)
    assert "leave" not in swarm.swarm(spec(policy="standalone")).kinds
    assert "leave" in swarm.swarm(spec(policy="ha-database")).kinds
    assert "partition" in swarm.swarm(spec()).kinds
    assert "partition" not in swarm.swarm(spec(pairs=1)).kinds
    named = swarm.swarm(spec(pairs=1, nemeses=("partition", "destroy")))
    assert named.kinds == ("partition", "destroy")


def test_what_was_given_is_not_drawn():
    base = spec(
        prefetch=7, properties={"*": {"journal.segment-size": 4096}, "a1": {"cluster.call-timeout": 900}}
    )
    for drawn, _ in draws(swarm.swarm(base, fixed=frozenset({"prefetch"})), 100):
        assert drawn.prefetch == 7
        assert drawn.properties["*"]["journal.segment-size"] == 4096
        assert drawn.properties["a1"] == {"cluster.call-timeout": 900}


def test_a_nemesis_that_the_cluster_is_too_small_for_is_refused():
    with pytest.raises(UsageError, match="too few"):
        swarm.swarm(spec(policy="standalone", pairs=1, nemeses=("partition",)))


@pytest.mark.slow
def test_the_first_finding_ends_a_search_and_is_the_same_in_two_processes_as_in_one(tmp_path, capsys):
    assert search.run(request(tmp_path / "one", ONE_PAIR)) == judging.INVALID
    told = capsys.readouterr().out
    assert search.run(request(tmp_path / "two", ONE_PAIR, jobs=2)) == judging.INVALID
    one, two = campaign(tmp_path / "one"), campaign(tmp_path / "two")
    assert one["stopped"] == two["stopped"] == "a finding"
    assert one["kept"][0] == two["kept"][0]
    assert "split-brain" in one["kept"][0]["findings"]
    assert one["runs"] == one["kept"][-1]["number"] + 1
    kept = reproduction.load(tmp_path / "one" / "latest" / reproduction.FILE)
    assert told.splitlines()[-1].split() == ["Again", "jepsen-run", "replay", one["reproduction"]]
    again = simulate(kept.spec, kept.schedule)
    assert (again.digest, reproduction.ordered(again.grave)) == (kept.digest, kept.findings)
    assert any(row["f"] == "role" for row in kept.witness[0].rows)


@pytest.mark.slow
def test_a_finding_has_the_reports_of_a_test(tmp_path, capsys):
    assert search.run(request(tmp_path, ONE_PAIR)) == judging.INVALID
    store = (tmp_path / "latest").resolve()
    assert f"Report   {store / 'report.html'}" in capsys.readouterr().out.replace(
        str(tmp_path / "latest"), str(store)
    )
    assert "split-brain" in (store / "report.html").read_text()
    cases = ET.parse(store / "junit.xml").getroot()
    assert cases.find("testcase[@name='split-brain']/failure") is not None
    assert (
        judging.exit_status(Verdict.from_json((store / "findings.json").read_bytes()).valid)
        == judging.INVALID
    )


@pytest.mark.slow
def test_a_finding_is_made_smaller_and_what_reproduces_it_is_the_smaller_one(tmp_path, capsys):
    assert search.run(request(tmp_path, ONE_PAIR, shrink_limit_s=600)) == judging.INVALID
    kept = reproduction.load(tmp_path / "latest")
    found = campaign(tmp_path)["kept"][0]
    assert kept.findings[0] == found["findings"][0] == "split-brain"
    assert kept.spec.properties == {}
    assert kept.spec.groups == 1 < found["spec"]["groups"]
    again = simulate(kept.spec, kept.schedule)
    assert again.digest == kept.digest
    assert "nothing more can be taken away" in capsys.readouterr().out


def test_a_search_without_a_finding_says_what_it_never_saw(tmp_path, capsys):
    assert search.run(request(tmp_path, PEACEFUL, runs=2)) == judging.VALID
    done = campaign(tmp_path)
    assert (done["runs"], done["ended"], done["stopped"]) == (2, {"valid": 2}, "all runs")
    assert done["coverage"]["client/connected"] > done["runs-with"]["client/connected"] == 2
    assert done["never"]["journal/compacted"] == EVENTS["journal/compacted"].meaning
    assert "vote/live-lost" not in done["never"], "nobody votes in a standalone broker"
    assert not set(done["never"]) & set(done["coverage"])
    told = capsys.readouterr().out
    assert "NOTHING FOUND" in told
    assert "a journal was compacted (journal/compacted)" in told
    assert "vote" not in told


@pytest.mark.slow
def test_going_on_after_a_finding_keeps_every_run_that_failed(tmp_path):
    assert search.run(request(tmp_path, ONE_PAIR, runs=5, keep_going=True)) == judging.INVALID
    done = campaign(tmp_path)
    assert done["runs"] == 5 > done["kept"][0]["number"] + 1
    assert len(done["kept"]) == done["ended"]["invalid"]
    for kept in done["kept"]:
        drawn, schedule = swarm.draw(swarm.swarm(ONE_PAIR), kept["seed"])
        assert msgspec.convert(kept["schedule"], Schedule) == schedule
        assert drawn.seed == kept["spec"]["seed"]


def test_a_time_limit_that_is_over_begins_no_run_and_leaves_the_verdict_open(tmp_path):
    assert search.run(request(tmp_path, PEACEFUL, runs=None, time_limit_s=1e-9)) == judging.UNKNOWN
    assert campaign(tmp_path)["stopped"] == "the time limit"


def test_a_bug_of_ours_names_its_run_and_is_no_finding(tmp_path, capsys, monkeypatch):
    def broken(spec, schedule, *, judge):
        raise RuntimeError("a bug for the test")

    monkeypatch.setattr(runs, "simulate", broken)
    assert search.run(request(tmp_path, PEACEFUL)) == judging.INTERNAL
    done = campaign(tmp_path)
    assert (done["ended"], done["stopped"]) == ({"failed": 1}, "a bug of jepsen-run")
    assert "a bug for the test" in done["kept"][0]["trouble"]
    assert "run 0: failed" in capsys.readouterr().out


def test_the_command_line_searches_and_refuses_what_it_does_not_know(tmp_path, capsys):
    words = ["search", "--policy", "standalone", "--pairs", "1", "--nemesis", "clock-skew", "--length", "2"]
    common = ["--runs", "1", "--jobs", "1", "--seed", "5", "--store", str(tmp_path)]
    assert cli.run([*words, *common, "--json"]) == judging.VALID
    assert json.loads(capsys.readouterr().out)["base"]["time-limit-s"] == 2.0
    assert cli.run(["search", "--nemesis", "klil", *common]) == judging.USAGE
    assert 'did you mean "kill"' in capsys.readouterr().err


def endless(tmp_path, **fields):
    """A search whose runs take longer than anybody would wait."""
    return request(tmp_path, spec(pairs=1, nemeses=("kill",), time_limit_s=36_000.0), runs=None, **fields)


def test_an_interrupt_waits_for_no_run_that_is_under_way(tmp_path, monkeypatch):
    processes = []

    def interrupted(*_, **__):
        processes.extend(multiprocessing.active_children())
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(search.tried(endless(tmp_path, jobs=2), (), 0.0))
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.slow
def test_an_interrupt_of_the_drawing_keeps_what_was_found_until_then(tmp_path, monkeypatch, capsys):
    drawing = search.judged

    def judged(plan, number):
        one = drawing(plan, number)
        if one.grave:
            asked.append(one)
        elif asked:
            raise KeyboardInterrupt
        return one

    asked = []
    monkeypatch.setattr(search, "judged", judged)
    assert search.run(request(tmp_path, ONE_PAIR, keep_going=True, runs=1000)) == judging.INTERRUPTED
    said = capsys.readouterr().out
    kept = campaign(tmp_path)
    assert kept["stopped"] == "interrupted"
    assert kept["ended"]["invalid"] == len(asked)
    assert "Judge" not in said  # there is no history to judge
    again = reproduction.load(Path(kept["reproduction"]))
    assert simulate(again.spec, again.schedule).grave == frozenset(again.findings) == set(asked[0].grave)


@pytest.mark.slow
def test_the_time_limit_bounds_the_shrinking(tmp_path, monkeypatch):
    budgets = []

    def shrink(run, anomaly, *, budget, tell, tried):
        budgets.append(budget.seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(search.shrinking, "shrink", shrink)
    search.run(request(tmp_path, ONE_PAIR, shrink_limit_s=600.0, time_limit_s=300.0))
    assert 0 < budgets[0] < 300


def test_a_finding_at_the_time_limit_is_kept_as_it_was_found(tmp_path):
    told = []
    found = SimpleNamespace(grave=frozenset({"lost"}))
    plan = request(tmp_path, ONE_PAIR, shrink_limit_s=600.0).plan
    assert search._shrunk(plan, found, told.append, left_s=0.5) is found
    assert told == [
        "lost is kept as it was found, because the time limit is reached: jepsen-run shrink makes it smaller"
    ]


@pytest.mark.slow
def test_an_interrupt_of_the_shrinking_keeps_the_finding_as_it_was_found(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.shrinking, "shrink", interrupted)
    assert search.run(request(tmp_path, ONE_PAIR, shrink_limit_s=60.0)) == judging.INTERRUPTED
    assert "interrupted: what was found is kept as it is" in capsys.readouterr().out
    kept = campaign(tmp_path)
    assert kept["stopped"] == "interrupted"
    again = reproduction.load(Path(kept["reproduction"]))
    assert simulate(again.spec, again.schedule).digest == again.digest


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_leaves_no_process_and_no_traceback(tmp_path):
    command = [sys.executable, "-m", "harness.commands.cli", "search", "--keep-going", "--runs", "1000000"]
    options = ["--pairs", "1", "--nemesis", "partition", "--seed", "3", "--jobs", "2", "--store", tmp_path]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # a group of its own: a terminal's Ctrl-C goes to all of it
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "INVALID" in line:
            children = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            break
    said = "".join(lines) + process.stdout.read()
    assert process.wait() == judging.INTERRUPTED, said
    assert "interrupted: what was tried is kept" in said
    assert "Traceback" not in said
    assert campaign(tmp_path)["ended"]["invalid"] >= 1
    assert children
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
