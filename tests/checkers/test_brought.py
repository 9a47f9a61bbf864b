"""``from checkers import check``: events, tables and files, here and by Spark."""

from __future__ import annotations

import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checker_rows import spark_instances
from imported_examples import EXAMPLES

import checkers
from checkers import Checked, CheckOptions, HistoryError, Promises, check, reference
from checkers.intake import Intake, IntakeError
from checkers.schema import DECLARED
from checkers.verdict import CAUTIOUS
from harness.history.importers.edn import forms
from harness.history.importers.jepsen import Jepsen


def event(time: int, type_: str, f: str, message: object = "m", **more: object) -> dict[str, object]:
    return {
        "time": time,
        "process": more.pop("process", "p"),
        "type": type_,
        "f": f,
        "message": message,
        **more,
    }


SENT = [event(0, "invoke", "send"), event(1, "ok", "send")]
GOT = [event(2, "ok", "receive", process="c")]
TWICE = [*SENT, *GOT, event(3, "ok", "receive", process="d")]


def test_events_without_an_anomaly_are_valid():
    verdict = check([*SENT, *GOT], drained=True)
    assert isinstance(verdict, Checked)
    assert verdict.valid, verdict.reasons
    assert verdict.engine == "here"
    assert verdict.findings == ()
    assert verdict.left_out["reordered"].startswith("the history has no")


def test_a_finding_has_its_sentence_and_its_rows():
    verdict = check(iter(TWICE), drained=True)
    assert verdict.valid is False
    (found,) = verdict.findings
    assert (found.name, found.count) == ("duplicate", 1)
    assert 'message "m"' in found.sentence
    assert [row["f"] for row in found.witness.rows] == ["deliver", "ack", "deliver"]


def test_what_is_missing_is_lost_only_where_everything_was_received():
    missing = [*SENT, *GOT, event(4, "invoke", "send", 2), event(5, "ok", "send", 2)]
    assert check(missing).valid is None
    assert [found.name for found in check(missing, drained=True).findings] == ["lost"]


def test_promises_and_rules_left_out_are_the_callers():
    kind = CheckOptions(broker=Promises(durable_acks=False))
    assert check(TWICE, drained=True, options=kind).valid
    left_out = CheckOptions(not_judged={"duplicate": "copies are wanted"})
    verdict = check(TWICE, drained=True, options=left_out)
    assert verdict.valid
    assert verdict.left_out["duplicate"] == "copies are wanted"


@pytest.mark.spark
def test_spark_says_the_same(spark):
    del spark  # a session that is there is taken
    here, there = check(TWICE, drained=True), check(TWICE, drained=True, engine="spark")
    assert there.engine == "spark"
    assert there.findings == here.findings
    assert there.reasons == here.reasons


def imported(lines: str) -> list[dict[str, object]]:
    jepsen, intake = Jepsen(), Intake()
    rows = [
        row
        for _, form in forms(lines.splitlines(keepends=True))
        for one in jepsen.events(form)
        for row in intake.take(one)
    ]
    return [*rows, *intake.end(drained=True)]


@pytest.mark.spark
def test_spark_and_the_reference_find_the_same_in_histories_of_jepsen(spark):
    runs = [imported(one.lines) for one in EXAMPLES.values()]
    by_spark = spark_instances(spark, runs, CheckOptions(broker=CAUTIOUS))
    for rows, found in zip(runs, by_spark, strict=True):
        assert found == set(reference.find(rows, CheckOptions(broker=CAUTIOUS)))
    kinds = {one.name for found in by_spark for one in found}
    assert {"lost", "phantom", "duplicate", "aborted-delivery", "reordered-session"} <= kinds


def test_what_a_receive_may_have_taken_shows_no_transaction_torn():
    begun = [event(0, "invoke", "send", n, transaction=1) for n in (1, 2)]
    sent = [event(1, "ok", "send", n, transaction=1) for n in (1, 2)]
    ends = [
        {"time": 2, "process": "p", "type": type_, "f": "commit", "transaction": 1}
        for type_ in ("invoke", "ok")
    ]
    got = {**event(3, "ok", "receive", 1, process="c")}
    whole = [*begun, *sent, *ends, got]
    assert "torn-transaction" in {found.name for found in check(whole, drained=True).findings}
    unheard = {**event(3, "info", "receive", None, process="d")}
    verdict = check([*whole, unheard], drained=True)
    assert verdict.valid
    assert "may have taken" in verdict.left_out["torn-transaction"]


OPERATIONS = (
    *("send", "send", "send", "deliver", "deliver", "ack", "nack", "receive"),
    *("subscribe", "unsubscribe", "disconnect", "commit", "abort"),
)
SOME = {
    "queue": ("x", "y"),
    "group": ("g", "h"),
    "session": (1, 2),
    "transaction": (1, 2),
    "broker": ("a1", "a2"),
    "sequence": (0, 1),
    "redelivered": (True, False),
    "delivery_count": (1, 2),
    "digest": (5, "d"),
    "error": ("e",),
}


def plausible(seed: int) -> list[dict[str, object]]:
    """Events as a careless harness may write them; those that are refused are left out."""
    chance, intake = random.Random(seed), Intake()
    events: list[dict[str, object]] = []
    asked: list[dict[str, object]] = []
    for time in range(chance.randrange(4, 40)):
        if chance.random() < 0.1:
            one = {"process": "nemesis", "type": "info", "f": "kill"}
        elif asked and chance.random() < 0.5:
            outcome = chance.choice(("ok", "ok", "fail", "info"))
            one = {**asked.pop(chance.randrange(len(asked))), "type": outcome}
        else:
            f = chance.choice(OPERATIONS)
            type_ = {"deliver": "ok", "disconnect": "info"}.get(f, "invoke")
            one = {"process": chance.randrange(3), "type": type_, "f": f}
            one |= {"message": chance.choice((1, 2, 3, 4, "a"))}
            one |= {name: chance.choice(values) for name, values in SOME.items() if chance.random() < 0.2}
            asked += [dict(one)] if type_ == "invoke" else []
        one["time"] = time
        try:
            list(intake.take(one))
        except IntakeError:
            continue
        events.append(one)
    return events


@pytest.mark.slow
@pytest.mark.in_turn
def test_what_is_taken_is_a_history_of_which_both_implementations_say_the_same():
    names = set()
    for seed in range(100):
        events = plausible(seed)
        verdict = check(events, drained=seed % 3 > 0, options=CheckOptions(broker=CAUTIOUS, examples=100))
        assert not [reason for reason in verdict.reasons if "crashed" in reason]
        intake = Intake()
        rows = [row for one in events for row in intake.take(one)] + [*intake.end(drained=seed % 3 > 0)]
        options = CheckOptions(broker=CAUTIOUS, not_judged=verdict.left_out)
        expected = {one.name for one in reference.find(rows, options)} - set(verdict.undecided)
        assert {found.name for found in verdict.findings} == expected, seed
        names |= expected
    assert {"lost", "phantom", "duplicate", "corrupted", "aborted-delivery"} <= names


def test_a_table_and_files_lack_what_they_do_not_have(tmp_path):
    rows = {
        "index": [0, 1, 2],
        "time": [0, 1, 2],
        "process": [1, 1, 2],
        "type": ["invoke", "ok", "ok"],
        "f": ["send", "send", "deliver"],
        "queue": ["q"] * 3,
        "message": [5, 5, 6],
        "session": [None, None, 2],
    }
    types = {
        "index": pa.int64(),
        "time": pa.int64(),
        "process": pa.int32(),
        "message": pa.int64(),
        "session": pa.int32(),
    }
    table = pa.table({name: pa.array(values, types.get(name, pa.string())) for name, values in rows.items()})
    verdict = check(table)
    assert [found.name for found in verdict.findings] == ["phantom"]
    path = tmp_path / "history.parquet"
    pq.write_table(table.replace_schema_metadata({DECLARED: ",".join(table.column_names)}), path)
    for given in (str(path), path, [path], tmp_path):
        assert check(given).findings == verdict.findings
    with pytest.raises(HistoryError, match='it has no column "queue"'):
        check(table.drop_columns("queue"))
    with pytest.raises(HistoryError, match='unknown column "other"'):
        check(table.append_column("other", table["time"]))
    with pytest.raises(HistoryError, match="index is negative"):
        check(table.set_column(0, "index", pa.array([-1, 0, 1])))


def test_what_is_wrong_is_told_with_its_event():
    with pytest.raises(HistoryError, match="event 2: ok of send of message m by process 1 completes"):
        check([SENT[0], event(1, "ok", "send", process="q")])
    with pytest.raises(HistoryError, match="event 1: it is int"):
        check([4])  # type: ignore[list-item]
    with pytest.raises(ValueError, match='guarantee is "some"'):
        check([], guarantee="some")
    with pytest.raises(ValueError, match='engine is "fast"'):
        check([], engine="fast")  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match="does not exist"):
        check("nowhere")
    with pytest.raises(HistoryError, match='"jepsen-run import" reads'):
        check(__file__)


def test_the_package_names_what_it_offers_and_imports_it_when_it_is_used():
    assert all(getattr(checkers, name) is not None for name in checkers.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = checkers.chek
    heavy = "import checkers.schema, sys; print('pyarrow' in sys.modules, 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
