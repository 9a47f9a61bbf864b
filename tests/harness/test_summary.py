"""The last words of a run.

Verdict first, each finding once with its first witness, and what to type next.
"""

from pathlib import Path

import msgspec
import pytest

from checkers.verdict import (
    FaultRecovery,
    Finding,
    Latency,
    LongestPause,
    Statistics,
    Total,
    Verdict,
    Witness,
)
from harness.history import spec as specs
from harness.report import summary

SPEC = specs.build({"nemeses": ("kill",), "seed": 3})
STORE = Path("store/replication-kill/now")


def row(index, time_s, type, f, **columns):  # noqa: A002
    return {"index": index, "time": round(time_s * 1e9), "type": type, "f": f, "process": 1, **columns}


def finding(name, severity="grave", rows=1):
    return Finding(
        name=name,
        severity=severity,
        count=rows,
        sentence=f"{name} happened.",
        witness=Witness(
            indexes=tuple(range(rows)), rows=tuple(row(i, 1.5, "ok", "send", message=7) for i in range(rows))
        ),
    )


STATISTICS = Statistics(
    rows=100,
    duration_s=12.5,
    operations={"send": {"invoke": 10, "ok": 9, "info": 1}, "deliver": {"ok": 9}, "connect": {"ok": 2}},
    latency={"send": Latency(count=9, p50_ms=1.5, p95_ms=2.0, p99_ms=20.25, max_ms=30.0)},
    faults=(
        FaultRecovery(
            fault="kill",
            label="kill-1",
            bit=True,
            start_s=2.0,
            end_s=4.0,
            recovery_s=0.5,
            pair=LongestPause(of="a1+a2", seconds=1.25),
            client=LongestPause(of="producer 3", seconds=None),
        ),
        FaultRecovery(fault="kill", label="kill-2", bit=False, start_s=6.0, end_s=None, recovery_s=None),
        FaultRecovery(
            fault="pause",
            label="pause-3",
            bit=False,
            start_s=7.0,
            end_s=7.0,
            recovery_s=None,
            found_target=False,
        ),
    ),
    redeliveries=2,
    sends_recovered=1,
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A directory without a store: who follows the README has one in the clone."""
    monkeypatch.chdir(tmp_path)


def lines(verdict):
    return summary.text(SPEC, STORE, verdict, judged_s=1.25).splitlines()


def test_the_verdict_is_the_first_line_and_the_grave_ones_are_named():
    verdict = Verdict(
        valid=False,
        findings=(finding("unavailable", "warning"), finding("lost", rows=3)),
        reasons=("lost: lost happened.", "the checker of order ran past its deadline"),
        statistics=STATISTICS,
    )
    text = lines(verdict)
    assert text[0] == "INVALID  replication-kill: lost (3)"
    assert text[1] == "  the checker of order ran past its deadline"
    assert sum("lost happened." in line for line in text) == 1
    graves = [line for line in text if "(grave)" in line or "(warning)" in line]
    assert [line.split()[0] for line in graves] == ["lost", "unavailable"]


def test_causes_come_before_what_follows_from_them():
    found = (finding("diverged"), finding("duplicate", "warning"), finding("zombie"), finding("split-brain"))
    text = lines(Verdict(valid=False, findings=found, reasons=(), statistics=STATISTICS))
    assert text[0] == "INVALID  replication-kill: split-brain (1), zombie (1), diverged (1)"
    told = [line.split()[0] for line in text if "(grave)" in line or "(warning)" in line]
    assert told == ["split-brain", "zombie", "diverged", "duplicate"]


def test_a_witness_is_shown_in_words_and_not_without_end():
    text = lines(Verdict(valid=False, findings=(finding("lost", rows=9),), statistics=STATISTICS))
    assert "      #0 at 1.500 s: send ok, message 7" in text
    assert "      ... and 5 more rows" in text


def test_the_first_finding_is_told_where_it_fits_and_left_to_the_report_where_it_does_not():
    verdict = Verdict(valid=False, findings=(finding("lost"),), statistics=STATISTICS)
    text = summary.text(SPEC, STORE, verdict, story="Producer 1 sent it. " * 20).splitlines()
    begin = next(number for number, line in enumerate(text) if line.startswith("Story "))
    assert text[begin].startswith("Story    Producer 1 sent it. Producer 1")
    assert text[begin + 1] == ""
    assert begin < next(number for number, line in enumerate(text) if line.startswith("Faults "))
    long = summary.text(SPEC, STORE, verdict, story="Producer 1 sent it. " * 50)
    assert "\nStory    too long to print here: see the report\n" in long
    assert "\nStory " not in summary.text(SPEC, STORE, verdict)


def test_where_clients_were_is_told_unless_they_were_everywhere():
    assert not any(line.startswith("Clients") for line in lines(Verdict(valid=True, statistics=STATISTICS)))
    placed = msgspec.structs.replace(SPEC, produce_at=("a1",), drain_at=("b1", "c1"))
    text = summary.text(placed, STORE, Verdict(valid=True, statistics=STATISTICS)).splitlines()
    assert "Clients  producers at a1, consumers everywhere, drain at b1 and c1" in text


def test_faults_say_whether_they_bit():
    text = lines(Verdict(valid=True, statistics=STATISTICS))
    assert "Faults   3, of which 1 took effect" in text
    assert text.count("Times    in seconds since the start of the test") == 1
    assert any("kill-1  2.0 s to 4.0 s: took effect" in line and "0.50 s" in line for line in text)
    assert "  kill-2  6.0 s to the end: no effect was observed; no send succeeded after it" in text
    assert "  pause-3  7.0 s: found no target" in text


def test_figures_are_of_the_operations_that_matter():
    text = lines(Verdict(valid=True, statistics=STATISTICS))
    assert "Figures  100 rows over 12.5 s, judged within 1.2 s" in text
    assert "  send     9 ok, 1 info; p50 1.5 ms, p99 20.2 ms, max 30 ms" in text
    assert not any(line.startswith("  connect") for line in text)


def test_a_run_that_never_was_shows_its_cause_and_no_empty_figures():
    text = lines(Verdict(valid=None, reasons=("no engine answers", "nothing was sent")))
    assert text[0] == "UNKNOWN  replication-kill: no engine answers"
    assert text[1] == "  nothing was sent"
    assert not any(line.startswith(("Findings", "Faults", "Figures")) for line in text)


def test_the_last_lines_are_to_be_copied():
    assert lines(Verdict(valid=True, statistics=STATISTICS))[-3:] == [
        f"Report   {STORE}/report.html",
        "Again    jepsen-run --policy replication --nemesis kill --seed 3",
        f"Judge    jepsen-run check {STORE}",
    ]


def test_an_unknown_interval_of_a_role_is_told():
    role = row(
        4, 2.0, "info", "role", broker="a2", role="live", time_low=1_900_000_000, time_high=2_000_000_000
    )
    assert (
        summary.row_text(role) == "#4 at 2.000 s: role info, broker a2 role live (between 1.900 and 2.000 s)"
    )


def test_a_fault_is_told_with_the_pair_and_the_client_that_it_kept_longest():
    told = [line.strip() for line in lines(Verdict(valid=True, statistics=STATISTICS)) if "kill-" in line]
    assert told == [
        (
            "kill-1  2.0 s to 4.0 s: took effect; longest pause of sends: 0.50 s in the whole cluster, 1.25 "
            "s of a1+a2, producer 3 none after it"
        ),
        "kill-2  6.0 s to the end: no effect was observed; no send succeeded after it",
    ]


def test_the_line_that_runs_a_test_again_rounds_nothing():
    spec = specs.build({"seed": 3, "rate": 1234567.0, "time_limit_s": 0.1234567, "interval_s": 9.0})
    again = summary.repeat_command(spec, STORE)
    assert "--rate 1234567 " in again
    assert "--time-limit 0.1234567 " in again
    assert "--interval 9 " in again


def test_the_line_that_runs_a_test_again_names_the_distribution_that_was_named(monkeypatch):
    theirs = specs.build({"seed": 3, "system": "artemis"})
    assert "--system-home" not in summary.repeat_command(theirs, STORE)
    monkeypatch.setenv("JEPSEN_RUN_SYSTEM_HOME", "/opt/apache artemis")
    assert summary.repeat_command(theirs, STORE).endswith(" --seed 3 --system-home '/opt/apache artemis'")
    assert "--system-home" not in summary.repeat_command(specs.build({"seed": 3}), STORE)


def test_the_line_that_runs_a_test_again_says_what_clients_do():
    said = {"queues": 3, "churn": 2.0, "send_again": True, "compare_backups": True}
    again = summary.repeat_command(specs.build({"seed": 3, **said}), STORE)
    assert " --queues 3 --churn 2 --send-again --compare-backups --seed 3" in again


@pytest.mark.parametrize(
    ("left", "unjudged", "told"),
    [
        (1200, "", "12 accounts hold 1,200, as expected"),
        (919, "", "12 accounts hold 919, but must hold 1,200"),
        (
            919,
            "stores are closed",
            "12 accounts hold 919, expected are 1,200; not judged: stores are closed",
        ),
    ],
)
def test_a_bank_is_told_whether_its_total_holds(left, unjudged, told):
    total = Total(accounts=12, expected=1200, left=left, unjudged=unjudged)
    assert f"  total    {told}" in lines(Verdict(valid=True, statistics=Statistics(rows=1, total=total)))


def test_no_text_of_a_broker_begins_a_line_of_its_own():
    text = lines(Verdict(valid=None, reasons=("no engine answers", "refused: \x1b[2J\nVALID  all is well")))
    assert "  refused: \\x1b[2J\\nVALID  all is well" in text
    assert not any(line.startswith("VALID") for line in text)
