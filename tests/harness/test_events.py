"""A fault waits for what a broker says, and a run whose fault waits in vain is unknown."""

from checkers.schema import NEMESIS
from harness.interface import Fault, Schedule, TestSpec
from harness.run import events
from harness.run.simulate import simulate
from harness.systems.own.events import EVENTS
from nemesis.target import PARTS

SPEC = TestSpec(name="events", pairs=1, time_limit_s=8.0, rate=40.0, producers=2, consumers=2, groups=4)
CRASH = Fault(kind="kill", start_s=1.0, target="a1")


def rows_of(run, f):
    return [row for row in run.rows if row["process"] == NEMESIS and row["f"] == f]


def second_of(run, sentence):
    lines = [line for line in run.logs["a2"] if sentence in line]
    return float(lines[0][17:23])


def test_a_fault_begins_at_the_very_instant_of_its_event():
    cut = Fault(kind="pause", start_s=0.25, after="failover/taken", duration_s=1.0, target="taker")
    run = simulate(SPEC, Schedule(faults=(CRASH, cut)))
    assert run.valid is True, (run.grave, run.trouble)
    asked, seen = rows_of(run, "pause")
    assert '"nodes":["a2"]' in asked["value"]
    assert '"bit":true' in seen["value"]
    elapsed_s = asked["time"] / 1e9 % 60 - second_of(run, "this broker takes over as live")
    assert 0.249 <= elapsed_s <= 0.251


def test_a_run_whose_event_never_comes_is_unknown_and_says_which():
    after = Fault(kind="kill", start_s=0.0, after="failback/begun", target="a2")
    run = simulate(SPEC, Schedule(faults=(CRASH, after)))
    assert run.valid is None
    assert run.trouble == "kill-2 was not injected: failback/begun never came"
    _, told = [row for row in rows_of(run, "kill") if "kill-2" in row["value"]]
    assert told["error"] == "failback/begun never came"


def test_an_event_waits_under_load_and_does_not_count_what_was_said_before():
    """The backup was synchronised before the load began."""
    again = Fault(kind="kill", start_s=0.0, after="sync/finished", duration_s=1.0, target="a2")
    run = simulate(SPEC, Schedule(faults=(again,)))
    assert run.trouble == "kill-1 was not injected: sync/finished never came"


def test_the_events_of_every_part_exist():
    assert {event.plays for event in EVENTS.values()} == {"", *PARTS}


def test_logs_are_followed_only_where_a_fault_asks_for_it():
    assert not events.needed(Schedule(faults=(CRASH,)))
    assert events.needed(Schedule(faults=(Fault(kind="kill", start_s=1.0, target="source"),)))
    assert events.needed(Schedule(faults=(Fault(kind="pause", start_s=1.0, target="rivals"),)))
