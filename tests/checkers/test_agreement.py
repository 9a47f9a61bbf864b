"""The campaign of ``bench.agreement``: what it draws, and that it turns red."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections import Counter

import checker_rows
import msgspec
import pytest
import share
from innocent import innocent
from innocent_cluster import innocent as innocent_cluster

from bench.agreement import (
    IMPATIENT,
    PATIENT,
    Campaign,
    accusations,
    by_reference,
    history,
    numbered,
    on_columns,
    shrunk,
)
from checkers import reference
from checkers.verdict import Promises

AGAIN = pytest.mark.in_turn
"""The marker of seeds that repeat a test of every commit with other histories."""


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 400), marks=AGAIN)], ids=["few", "many"]
)
@pytest.mark.slow
def test_nothing_is_found_in_histories_of_an_innocent_broker(seeds):
    for seed in seeds:
        assert reference.find(innocent(seed), PATIENT) == [], seed


ACCUSED_ONCE = (74, 77, 146, 257, 1144, 3227, 4371, 91845)
ENDLESS_ONCE = (131065, 880253)


@pytest.mark.parametrize(
    "seeds", [(*ACCUSED_ONCE, *ENDLESS_ONCE), pytest.param(range(80), marks=AGAIN)], ids=["once", "many"]
)
@pytest.mark.slow
def test_nothing_is_found_in_histories_of_an_innocent_cluster(seeds):
    for seed in seeds:
        then = {"joins": False, "leaves": False} if seed in {*ACCUSED_ONCE, *ENDLESS_ONCE} else {}
        rows, options = innocent_cluster(seed, **then)
        assert accusations(rows, options) == set(), seed


def test_a_history_that_somebody_wrote_is_read_both_ways_in_one_share_of_six(monkeypatch):
    rows = [checker_rows.o(0, 1, "invoke", "send", 1)]
    ways = []
    for tried in (*share.SHARES, share.ALL):
        monkeypatch.setattr(checker_rows, "tried", tried)
        ways.append(checker_rows.ways_of(rows))
    assert sorted(map(len, ways)) == [1, 1, 1, 1, 1, 2, 2]
    assert ways[-1] == ["whole", "sliced"]


@pytest.fixture
def waiting(monkeypatch):
    """The histories that wait for columns, of this test alone."""
    monkeypatch.setattr(checker_rows, "waiting", [])
    return checker_rows.waiting


def delivered_unsent(monkeypatch, tmp_path, count):
    """Have histories with a phantom agreed on whose turn to be read both ways it is not."""
    for message in range(count):
        rows = [checker_rows.o(0, 1, "ok", "deliver", message, session=1)]
        for tried in share.SHARES[:2]:
            monkeypatch.setattr(checker_rows, "tried", tried)
            if len(checker_rows.ways_of(rows)) == 1:
                found = checker_rows.agreed(tmp_path, rows, PATIENT)
                assert {one.name for one in found} == {"phantom"}
                break


def test_a_history_is_read_at_once_or_waits_for_columns(monkeypatch, tmp_path, waiting):
    rows = [checker_rows.o(0, 1, "invoke", "send", 1)]
    for tried in share.SHARES:
        monkeypatch.setattr(checker_rows, "tried", tried)
        checker_rows.agreed(tmp_path, rows, PATIENT)
    assert len(waiting) == len(share.SHARES) - 1
    assert {one.test.rpartition("::")[2] for one in waiting} == {
        "test_a_history_is_read_at_once_or_waits_for_columns"
    }
    assert checker_rows.differences() == waiting == []


def test_columns_that_say_something_else_of_one_history_that_waited_are_told(monkeypatch, tmp_path, waiting):
    delivered_unsent(monkeypatch, tmp_path, 3)
    waiting[1] = dataclasses.replace(waiting[1], test="the second", found=frozenset())
    with pytest.raises(pytest.fail.Exception) as told:
        checker_rows.judge_those_that_wait()
    assert str(told.value).count("\n") == 0
    assert re.match(r"the second \((whole|sliced)\): columns alone find \[.*'phantom'", str(told.value))


def test_a_rule_that_crashes_with_one_history_that_waited_is_told(monkeypatch, tmp_path, waiting):
    delivered_unsent(monkeypatch, tmp_path, 3)
    waiting[:] = [dataclasses.replace(one, test=f"of {n}", way="whole") for n, one in enumerate(waiting)]

    def crashing(histories, *rest, **names):
        if any(row["message"] == 2 for rows in histories for row in rows):
            raise RuntimeError("a rule failed")
        return on_columns(histories, *rest, **names)

    monkeypatch.setattr("bench.agreement.on_columns", crashing)
    (line,) = checker_rows.differences()
    assert line.startswith("of 2 (whole): columns did not judge it")


BLIND = """
def pytest_collection_finish():
    import bench.agreement

    bench.agreement.on_columns = lambda histories, *_, **__: [set() for _ in histories]
"""


@pytest.mark.slow
def test_a_session_of_tests_ends_with_an_error_if_columns_say_something_else_of_what_waited(tmp_path):
    (tmp_path / "blind.py").write_text(BLIND)
    command = [sys.executable, "-m", "pytest", "-q", "-pblind", "-pno:cacheprovider", "--share=2/6"]
    path = os.pathsep.join([str(tmp_path), str(share.ROOT)])
    done = subprocess.run(
        [*command, "tests/checkers/test_order.py"],
        cwd=share.ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 error" in done.stdout
    assert "tests/checkers/test_order.py::test_both_implementations_say_so[" in done.stdout
    assert "columns alone find [], the reference alone [" in done.stdout


def test_who_still_asks_for_a_message_when_the_history_ends_may_have_got_one():
    rows = innocent(54976)
    assert reference.find(rows, PATIENT) == []
    heard = [row for row in rows if row["f"] != "receive"]
    assert {one.name for one in reference.find(heard, PATIENT)} == {"not-linearizable"}


def test_of_two_settlements_each_may_have_its_own_excuse():
    """It was taken back unread before the first, and under way until after the second."""
    told = {"queue": "q", "message": 4, "producer": 12, "sequence": 0}
    first, second = {**told, "session": 52}, {**told, "session": 88}
    steps = [
        (3000, "invoke", "subscribe", {"session": 88}),
        (5280, "invoke", "subscribe", {"queue": "q", "session": 52}),
        (5290, "ok", "deliver", {**first, "redelivered": True, "delivery_count": 2}),
        (5295, "ok", "ack", first), (6840, "invoke", "ack", second), (6850, "ok", "ack", second),
        (6860, "ok", "deliver", {**second, "redelivered": False, "delivery_count": 2}),
        (7460, "info", "disconnect", {"session": 88}),
    ]  # fmt: skip
    rows = numbered(
        {"time": at * 1_000_000, "process": columns["session"], "type": type_, "f": f, **columns}
        for at, type_, f, columns in steps
    )
    broker = Promises(ack_wait_s=0.02, refuses_stale_acks=False, answers_in_order=False)
    options = msgspec.structs.replace(IMPATIENT, broker=broker)
    assert on_columns([rows], options, 1) == [by_reference(rows, options)]
    assert {one.name for one in by_reference(rows, options)} == {"phantom", "unflagged-redelivery"}


def test_of_two_unsubscribes_of_one_session_the_first_proves_whether_or_not_it_names_the_queue():
    told = {"queue": "q", "group": "h", "message": 19, "session": 2, "producer": 52, "sequence": 0}
    rows = numbered(
        {"time": n, "process": 102, "type": type_, "f": f, **columns}
        for n, (type_, f, columns) in enumerate([
            ("invoke", "subscribe", {"queue": "q", "session": 2}), ("invoke", "unsubscribe", {"session": 2}),
            ("ok", "deliver", told), ("ok", "nack", told), ("invoke", "nack", told), ("ok", "nack", told),
            ("invoke", "unsubscribe", {"queue": "q", "session": 2}), ("ok", "deliver", told),
            ("ok", "unsubscribe", {"queue": "q", "session": 2}),
        ])
    )  # fmt: skip
    broker = Promises(delivery_attempts=1, most_attempts=2)
    options = msgspec.structs.replace(IMPATIENT, broker=broker)
    assert on_columns([rows], options, 1) == [by_reference(rows, options)]
    assert {one.name for one in by_reference(rows, options)} == {"phantom"}


@pytest.mark.slow
def test_what_an_innocent_broker_does_has_all_that_may_be_mistaken():
    told = Counter((r["f"], r["type"]) for seed in range(400) for r in innocent(seed))
    for f in ("send", "ack", "nack", "commit", "abort", "subscribe", "unsubscribe", "drop"):
        assert told[f, "info"], f
    assert all(told[f, "fail"] for f in ("send", "commit", "drop", "subscribe"))


@pytest.mark.slow
def test_both_say_the_same_of_a_lot():
    campaign = Campaign()
    campaign.lot(40 * 250, 60)
    assert (campaign.histories, campaign.wrong) == (60, 0)


def test_a_history_is_made_from_its_seed_alone():
    assert [history(seed) for seed in (1, 3, 5, 8)] == [history(seed) for seed in (1, 3, 5, 8)]


@pytest.mark.slow
def test_where_they_differ_few_rows_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(reference, "delivery_anomalies", lambda *_: [])
    campaign = Campaign()
    campaign.lot(0, 20)
    said = capsys.readouterr().out.split("an innocent broker")[0]
    assert campaign.wrong == 1
    alone = said.split("reference alone")[0]
    assert "-delivery" in alone or "count-fell" in alone
    assert len([line for line in said.splitlines() if line.startswith("    {")]) <= 6


@pytest.mark.parametrize("wanted", [{3}, {0, 9}, {2, 3, 7}])
def test_all_that_is_not_needed_is_left_out(wanted):
    assert set(shrunk(range(10), lambda some: wanted <= {*some})) == wanted


def test_an_answer_whose_question_is_missing_spoils_no_figures():
    answer = {"index": 0, "time": 5, "process": 1, "type": "ok", "f": "send", "queue": "q", "message": 4}
    assert on_columns([[answer], []], PATIENT, 4) == [set(), set()]


@pytest.mark.slow
def test_an_innocent_broker_has_temporary_queues_that_live_until_the_drain_is_over():
    drained = ended = elsewhere = 0
    for seed in range(200):
        rows = [row for row in innocent(seed) if row.get("queue", "").startswith("/temp-queue/")]
        drain = max((row["index"] for row in innocent(seed) if row.get("value") == "drain"), default=0)
        drops = [row["index"] for row in rows if (row["f"], row["type"]) == ("drop", "ok")]
        drained += any(index > drain > 0 for index in drops)
        ended += any(index < drain for index in drops)
        elsewhere += any(row.get("broker") == "a2" for row in rows)
    assert min(drained, ended, elsewhere) > 3, (drained, ended, elsewhere)


def test_an_innocent_broker_deletes_queues_with_messages_that_nobody_gets(monkeypatch):
    told = Counter((r["f"], r["type"]) for seed in range(200) for r in innocent(seed))
    assert min(told["delete", "ok"], told["delete", "fail"], told["create", "ok"]) >= 5
    with monkeypatch.context() as patch:
        patch.setattr("checkers.reference_subscriptions.survives_deletes", lambda *_: True)
        accused = {i.name for seed in range(200) for i in reference.find(innocent(seed), PATIENT)}
    assert "lost" in accused
