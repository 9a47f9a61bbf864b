"""Histories of other harnesses: what is found in them, what is refused, and that a refused one
leaves nothing behind.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from imported_examples import EXAMPLES, op, queue, timed

from checkers import judge as judging
from checkers import reference
from checkers.arrow_schema import completed
from checkers.decide import undecidable
from checkers.intake import FIELDS
from checkers.source import Files, HereSource
from checkers.verdict import Verdict
from harness.commands import cli
from harness.history import plain_judge
from harness.history import store as stores
from harness.history.importers import edn, importing
from harness.interface import UsageError


def stored(path: Path, content: str | bytes, **asked) -> importing.Imported:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return importing.import_file(path, None, path.parent / "store", **asked)


def rows_of(store: Path) -> list[dict]:
    tables = [completed(pq.read_table(file)) for file in (store / "history").glob("*.parquet")]
    plain = [pa.Table.from_pylist(table.to_pylist()) for table in tables]
    rows = [row for table in plain for row in table.to_pylist()]
    kept = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return sorted(kept, key=lambda row: row["index"])


def both(store: Path) -> tuple[Verdict, set]:
    """The verdict; and every instance, of which columns and reference say the same."""
    options = plain_judge.options_of(stores.load_spec(store), None)
    options = msgspec.structs.replace(options, examples=1000)
    files = Files.of(store)
    verdict = judging.check(store, options)
    check_run = judging.CheckRun(HereSource.of(files), options)
    case = judging.examine(check_run)
    assert case is not None
    assert not check_run.unknown
    untold = set(verdict.left_out)
    found = {
        one
        for name, some in case.found.get(0, {}).items()
        if not name.startswith("~") and name not in undecidable(case.facts_by_run[0])
        for one in some.first
    }
    expected = {one for one in reference.find(rows_of(store), options) if one.name not in untold}
    assert found == expected
    return verdict, found


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_found_in_a_history_of_jepsen(tmp_path, name):
    one = EXAMPLES[name]
    imported = stored(tmp_path / "history.edn", one.lines, drained=one.drained)
    verdict, found = both(imported.store)
    assert {instance.name for instance in found} == one.found
    assert verdict.valid is one.valid, verdict.reasons
    assert {f.name for f in verdict.findings} == one.found


def test_a_vector_of_operations_tells_the_same_as_a_line_each(tmp_path):
    one = EXAMPLES["queue: one message is lost, one was never sent, one is received twice"]
    plain = stored(tmp_path / "a.edn", one.lines)
    records = "".join(f"#jepsen.history.Op{line}\n" for line in one.lines.splitlines())
    vector = stored(tmp_path / "b.edn", f"; of a run\n[\n{records}] #_ behind ; the end\n")
    assert rows_of(plain.store) == rows_of(vector.store)


def test_more_missing_than_receives_may_have_taken_is_told_by_number(tmp_path):
    one = EXAMPLES["queue: more messages are missing than dequeues without an answer may have taken"]
    verdict, _ = both(stored(tmp_path / "h.edn", one.lines).store)
    (lost,) = verdict.findings
    assert lost.count == 1
    assert (
        "2 are missing, and 1 receives of unknown outcome may have taken one each: 1 are lost"
        in lost.sentence
    )
    one = EXAMPLES["queue: a message that a dequeue without an answer may have taken is not lost"]
    verdict, _ = both(stored(tmp_path / "i.edn", one.lines).store)
    assert "1 messages are missing, which 1 receives of unknown outcome may have taken" in verdict.reasons


IN_TURN = [(1, f"{type_}", "enqueue", f"{n}") for n in (1, 2) for type_ in ("invoke", "ok")]
SECOND = [(2, "invoke", "dequeue", "nil"), (2, "ok", "dequeue", "2")]
FIRST = [(3, "invoke", "dequeue", "nil"), (3, "ok", "dequeue", "1")]


@pytest.mark.parametrize(
    ("taken", "late"),
    [
        ([*SECOND, *FIRST], True),
        ([*FIRST, *SECOND], False),
        ([SECOND[0], FIRST[0], SECOND[1], FIRST[1]], False),
        ([*SECOND, (3, "invoke", "drain", "nil"), (3, "ok", "drain", "[1]")], True),
        ([(3, "invoke", "drain", "nil"), *SECOND, (3, "ok", "drain", "[1]")], False),
        ([(4, "invoke", "dequeue", "nil"), (4, "info", "dequeue", "nil"), *SECOND, *FIRST], False),
        ([(4, "invoke", "dequeue", "nil"), (4, "fail", "dequeue", "nil"), *SECOND, *FIRST], True),
        ([(2, "invoke", "dequeue", "nil"), (2, "info", "dequeue", "2"), *FIRST], False),
    ],
)
def test_a_queue_that_was_promised_to_be_in_order_is_judged_by_its_dequeues(tmp_path, taken, late):
    lines = queue(*IN_TURN, *taken)
    _, found = both(stored(tmp_path / "h.edn", lines, fifo=True).store)
    assert {one.name for one in found} == ({"not-linearizable"} if late else set())
    assert not both(stored(tmp_path / "i.edn", lines).store)[1]


def test_an_unheard_receive_excuses_its_own_queue_alone(tmp_path):
    lines = [
        *(
            {"process": 1, "type": type_, "f": "send", "message": f"{queue}{n}", "queue": queue}
            for queue in "ab"
            for n in range(12)
            for type_ in ("invoke", "ok")
        ),
        *({"process": 2 + n, "type": "invoke", "f": "receive", "queue": "a"} for n in range(12)),
        {"process": 1, "type": "ok", "f": "deliver", "message": "b0"},
    ]
    text = "\n".join(json.dumps({"time": n, **line}) for n, line in enumerate(lines))
    verdict, found = both(stored(tmp_path / "h.jsonl", text, drained=True).store)
    assert {one.queue for one in found} == {"b"}
    assert [(f.name, f.count) for f in verdict.findings] == [("lost", 11)]


def test_rules_that_lack_a_column_are_not_judged_and_said(tmp_path):
    one = EXAMPLES["log: one poll gives messages in the wrong order"]
    verdict, _ = both(stored(tmp_path / "h.edn", one.lines, drained=True).store)
    assert {"resurrected", "read-uncommitted", "double-delivery", "reordered", "unavailable"} <= set(
        verdict.left_out
    )
    assert "lost" not in verdict.left_out
    assert verdict.left_out["group-split"] == "consumers of a log read it whole, each by itself"


SEND = {"time": 1, "process": "p", "type": "invoke", "f": "send", "message": "m"}
LINES = [
    SEND,
    {**SEND, "type": "ok"},
    {**SEND, "process": "c", "type": "ok", "f": "deliver"},
    {**SEND, "process": "c", "f": "ack"},
    {**SEND, "process": "c", "type": "ok", "f": "ack"},
    {"time": 1, "process": "harness", "type": "info", "f": "phase", "value": "drained"},
]


def in_lines(events: list[dict]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def in_table(events: list[dict]) -> str:
    names = list(dict.fromkeys(name for event in events for name in event))
    rows = [",".join(str(event.get(name, "")) for name in names) for event in events]
    return "\r\n".join([",".join(names), *rows, ""])


@pytest.mark.parametrize(("suffix", "written"), [("jsonl", in_lines), ("csv", in_table)])
def test_lines_and_tables_with_an_anomaly_and_without(tmp_path, suffix, written):
    verdict, _ = both(stored(tmp_path / f"good.{suffix}", written(LINES)).store)
    assert verdict.valid, verdict.reasons
    again = {**SEND, "process": "d", "type": "ok", "f": "deliver"}
    verdict, _ = both(stored(tmp_path / f"bad.{suffix}", written([*LINES, again])).store)
    assert verdict.valid is False
    assert verdict.findings[0].name == "duplicate"
    assert 'message "m"' in verdict.findings[0].sentence


def test_order_is_counted_where_sends_have_no_sequence(tmp_path):
    grouped = [
        {**SEND, "group": "g", "message": n, "type": type_} for n in (7, 3) for type_ in ("invoke", "ok")
    ]
    got = [{"time": 1, "process": "c", "type": "ok", "f": "deliver", "message": n} for n in (3, 7)]
    verdict, found = both(stored(tmp_path / "h.jsonl", in_lines([*grouped, *got])).store)
    assert {one.name for one in found} == {
        "not-linearizable",
        "reordered",
        "reordered-realtime",
        "reordered-session",
    }
    assert all(one.group == "g" for one in found)
    assert verdict.valid is False


def test_a_run_that_was_imported_is_a_run_like_others(tmp_path, capsys):
    file = tmp_path / "h.jsonl"
    file.write_text(in_lines([*LINES, {**SEND, "process": "d", "type": "ok", "f": "deliver"}]))
    root = str(tmp_path / "store")
    assert cli.run(["import", str(file), "--store", root, "--name", "mine"]) == 1
    told = capsys.readouterr()
    assert told.err == ""
    assert "Again" not in told.out
    assert "Replay" not in told.out
    store = next(path for path in (tmp_path / "store" / "mine").iterdir() if not path.is_symlink())
    assert {stores.REPORT, "junit.xml", stores.FINDINGS} <= {path.name for path in store.iterdir()}
    assert str(file) in (store / stores.REPORT).read_text()
    assert cli.run(["check", str(store), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["exit-status"] == 1
    for command in (["replay", str(store)], ["shrink", str(store)], ["--spec", str(store / stores.SPEC)]):
        assert cli.run(command) == 254
        assert "this history was imported" in capsys.readouterr().err
    assert cli.run(["import", str(file), "--store", root, "--json", "--guarantee", "at-most-once"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"]


REFUSED = {
    "a topic": ([{**SEND, "queue": "/topic/news"}], 1, "topics cannot be imported"),
    "an unknown field": ([{**SEND, "mesage": 1}], 1, 'unknown field "mesage": did you mean "message"?'),
    "no time": ([{"process": 1, "type": "ok", "f": "send"}], 1, 'it has no "time"'),
    "time goes back": ([SEND, {**SEND, "time": 0, "type": "ok"}], 2, "time goes back to 0 ns from 1 ns"),
    "a time that is no number": ([{**SEND, "time": 1.5}], 1, "time is 1.5: it must be a whole number"),
    "another type": ([{**SEND, "type": "done"}], 1, 'type is "done": it must be invoke, ok, fail or info'),
    "another f": ([{**SEND, "f": "snd"}], 1, 'f is "snd": no client does that; did you mean "send"?'),
    "no message": ([{**SEND, "message": None}], 1, 'send has no "message"'),
    "an answer to nothing": ([{**SEND, "type": "ok"}], 1, "completes what that process has not invoked"),
    "a question that is open": ([{**SEND, "f": "ack"}, {**SEND, "f": "ack"}], 2, "has not completed"),
    "a message twice": (
        [SEND, {**SEND, "type": "ok"}, {**SEND, "process": "q"}],
        3,
        "is invoked a second time",
    ),
    "a text for a number": (
        [SEND, {**SEND, "process": 4}],
        2,
        "process is 4, a number, and was a text before",
    ),
    "a phase of another name": (
        [{"time": 1, "process": "harness", "type": "info", "f": "phase", "value": "dry"}],
        1,
        'the phase is "dry"',
    ),
    "a role without a broker": (
        [{"time": 1, "process": "monitor", "type": "info", "f": "role", "role": "live"}],
        1,
        "broker is null in a role",
    ),
    "what was asked for after it came": (
        [SEND, {"time": 5, "process": "q", "type": "ok", "f": "deliver", "message": "m", "time_low": 6}],
        2,
        "time_low is 6 ns, which is after 5 ns",
    ),
    "sequence in some": (
        [{**SEND, "group": "g", "sequence": 0}, {**SEND, "message": "n", "group": "g"}],
        2,
        "in some sends and not in",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_history_can_have_is_refused_at_its_line(tmp_path, capsys, name):
    events, line, words = REFUSED[name]
    file = tmp_path / "h.jsonl"
    file.write_text(in_lines(events))
    assert cli.run(["import", str(file), "--store", str(tmp_path / "store")]) == 254
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"jepsen-run: {file}: line {line}: ")
    assert words in told[0]
    assert not (tmp_path / "store").exists()


DAMAGED = {
    "h.jsonl": [
        (b"{", "line 1: it is no JSON"),
        (b"[]", "line 1: it is no JSON object"),
        (b'{}\n{"message": "\\ud83d"}', "line 1: it has no"),
        (b'{"message": "\\\\\\ud83d"}', r"line 1: it is no JSON: \ud83d is one half of a surrogate pair"),
        (b"\xff\n", "line 1: it is no JSON"),
        (b"", "is empty"),
        (b"[" * 100_000, "line 1: it is no JSON"),
    ],
    "h.csv": [
        (b"time,procss\n", 'line 1: unknown column "procss"'),
        (b"time,time\n", "line 1: a column is there twice"),
        (b"time,process,type,f\n1,2\n", "line 2: it has 2 fields, and the first line 4"),
        (b"time,process,type,f\nsoon,1,ok,send\n", "line 2: time is 'soon': it must be a whole number"),
        (b'time\n"1', "line 2: it is no line of a table"),
        (b"time\n\xff", "line 2: byte 1 is no UTF-8"),
        (b"", "is empty"),
    ],
    "h.edn": [
        (b"{:type :ok", 'line 1: "{" is not closed'),
        (b"[\n#_ 1\n)", 'line 3: ")" closes nothing'),
        (b"}", 'line 1: "}" closes nothing'),
        (b"{:a}", "line 1: a map with a key that has no value"),
        (b"\n5", "line 2: 5 is no operation"),
        (b'{:a "x', "line 1: a text that begins here is not closed"),
        (b'{"a\n" "b\n\n', "line 2: a text that begins here is not closed"),
        (
            b"{:type :invoke, :f :read, :process 1, :time 1}",
            "line 1: :f is :read, but an operation of a queue or log is one of",
        ),
        (
            b"{:type :invoke, :f :enqueue, :process 1, :value 1, :time 1.5}",
            "line 1: :time is 1.5: it must be",
        ),
        (
            b"{:type :invoke, :f :enqueue, :process -1, :value 1}",
            "line 1: :process is -1: it must be a number",
        ),
        (b"#<x", 'line 1: "#<" is not closed on its line'),
        (b"\xff\xfe{", "is UTF-16: write it in UTF-8"),
        (b"PK\x03\x04", "is zip: unpack it first, or pack it with gzip"),
        (
            gzip.compress(b"{:type :info, :f :start, :process :nemesis}\n" * 99, mtime=0)[:-9],
            "cannot be unpacked",
        ),
        (gzip.compress(b"", mtime=0), "is empty"),
        (
            b"{:type :ok, :f :enqueue, :process 1, :value 1 :time 0}",
            "completes what that process has not invoked",
        ),
        (
            b"{:type :ok, :f :drain, :process 1, :value 1 :time 0}",
            "the :value of a :drain is 1: it must be a vector",
        ),
        (b"{:type :ok, :f :poll, :process 1, :value [[:poll 1]] :time 0}", "is no poll"),
        (b"#_", "line 1: nothing follows a tag or discard"),
        (b"[" * 200, "more than 100 deep"),
        (b"1/0", "line 1: '1/0' is no number"),
        (b"9" * 5000, "is no number"),
        (b"\\zzz", "is no character"),
        (b"#:a [1]", "it must be a map"),
        (b"[] 1", "follows the end of the history"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "words"), [(n, *one) for n, some in DAMAGED.items() for one in some]
)
def test_a_damaged_file_is_refused_in_one_line_and_leaves_nothing(tmp_path, name, content, words):
    with pytest.raises(UsageError) as refused:
        stored(tmp_path / name, content)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()


ENQUEUED = [op(0, type_, "enqueue", value) for value in "12" for type_ in ("invoke", "ok")]
ASKED = op(2, "invoke", "dequeue")
NOTHING_LEFT = [op(3, "invoke", "drain"), op(3, "ok", "drain", "[]")]
DRAIN = op(3, "invoke", "drain")
LEFT = [DRAIN, op(3, "ok", "drain", "[1 2]")]

JUDGED: dict[str, tuple[list[str], set[str], bool | None]] = {
    "an error in the place of a message": (
        [*ENQUEUED, ASKED, op(2, "info", "dequeue", '"Connection reset by peer"'), *LEFT],
        set(),
        True,
    ),
    "a number that an unknown outcome kept": (
        [*ENQUEUED, ASKED, op(2, "info", "dequeue", "7"), *LEFT],
        set(),
        True,
    ),
    "a failure that names what it was": (
        [*ENQUEUED, ASKED, op(2, "fail", "dequeue", ":exhausted"), *LEFT],
        set(),
        True,
    ),
    "a batch is deliveries": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[1 2]"), DRAIN, op(3, "ok", "drain", "[]")],
        set(),
        True,
    ),
    "a batch as a list, and nothing as one": (
        [
            *ENQUEUED,
            ASKED,
            op(2, "ok", "dequeue", "(1 2)"),
            ASKED,
            op(2, "ok", "dequeue", "()"),
            DRAIN,
            op(3, "ok", "drain", "#{}"),
        ],
        set(),
        True,
    ),
    "a batch has a message that came before": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[1 2]"), DRAIN, op(3, "ok", "drain", "[2]")],
        {"duplicate"},
        False,
    ),
    "a batch without a message that was kept": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[1]"), DRAIN, op(3, "ok", "drain", "nil")],
        {"lost"},
        False,
    ),
    "a batch of what nobody sent": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[9]"), *LEFT],
        {"phantom"},
        False,
    ),
    "dequeues that are marked as a drain": (
        [
            *ENQUEUED,
            op(2, "invoke", "dequeue", more=", :drain? true"),
            op(2, "ok", "dequeue", "[1]", ", :drain? true"),
            op(2, "invoke", "dequeue", more=", :drain? true"),
            op(2, "ok", "dequeue", "[]", ", :drain? true"),
        ],
        {"lost"},
        False,
    ),
    "a drain that is asked for once per message": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "ok", "dequeue", "1"),
            DRAIN,
            op(3, "ok", "dequeue", "2"),
            op(3, "ok", "drain", ":exhausted"),
        ],
        set(),
        True,
    ),
    "a drain whose value repeats its dequeues": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "2"),
            op(3, "ok", "drain", "[1 2]"),
        ],
        set(),
        True,
    ),
    "a drain whose value has more than its dequeues got": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "ok", "drain", "[1 2]"),
        ],
        set(),
        True,
    ),
    "a drain whose value has a message more often than its dequeues got it": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "ok", "drain", "[1 2 1]"),
        ],
        {"duplicate"},
        False,
    ),
    "a batch of unknown outcome may have taken several": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[]"), ASKED, op(2, "info", "dequeue"), *NOTHING_LEFT],
        set(),
        None,
    ),
    "a dequeue of unknown outcome that is no batch takes one": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue"), ASKED, op(2, "info", "dequeue"), *NOTHING_LEFT],
        {"lost"},
        False,
    ),
    "a drain whose dequeues missed a message": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "invoke", "dequeue"),
            op(3, "fail", "dequeue", ":exhausted"),
            op(3, "ok", "drain", ":exhausted"),
        ],
        {"lost"},
        False,
    ),
    "a dequeue of a drain that may have taken a message": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "invoke", "dequeue"),
            op(3, "ok", "drain", ":exhausted"),
        ],
        set(),
        True,
    ),
    "a drain that timed out after its dequeues, and a second": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "invoke", "dequeue"),
            op(3, "ok", "dequeue", "1"),
            op(3, "info", "drain", ":timeout"),
            op(4, "invoke", "drain"),
            op(4, "ok", "drain", "[]"),
        ],
        {"lost"},
        False,
    ),
    "a drain that timed out, with what it had": (
        [
            *ENQUEUED,
            DRAIN,
            op(3, "info", "drain", "[1 9]"),
            op(4, "invoke", "drain"),
            op(4, "ok", "drain", "[]"),
        ],
        set(),
        None,
    ),
    "an object that nobody needs": (
        [
            *ENQUEUED,
            ASKED,
            op(
                2,
                "info",
                "dequeue",
                more=", :e #<Exception java.lang.Exception: <a> b>, "
                ':x #object["[B" 0x1f "[B@1f"], :m {{:a 1} #{{:b 2}}}, :p #"a\\d", :v ' + "#'a/b, :h \\o17",
            ),
            *LEFT,
        ],
        set(),
        True,
    ),
    "keys are queues": (
        [op(0, type_, "enqueue", f"[{key} 1]") for key in (":a", ":b") for type_ in ("invoke", "ok")]
        + [
            op(2, "invoke", "dequeue", "[:a nil]"),
            op(2, "ok", "dequeue", "[:a 1]"),
            op(2, "invoke", "dequeue", "[:a nil]"),
            op(2, "info", "dequeue", ":timeout"),
            op(3, "invoke", "drain", "[:b nil]"),
            op(3, "ok", "drain", "[:b [1]]"),
            op(3, "invoke", "drain", "[:a nil]"),
            op(3, "ok", "drain", "[:a :exhausted]"),
        ],
        set(),
        True,
    ),
    "a key whose message another key gives out": (
        [op(0, type_, "enqueue", "[7 1]") for type_ in ("invoke", "ok")]
        + [
            op(2, "invoke", "dequeue", "[8 nil]"),
            op(2, "ok", "dequeue", "[8 1]"),
            op(3, "invoke", "drain", "[7 nil]"),
            op(3, "ok", "drain", "[7 []]"),
        ],
        {"lost", "phantom"},
        False,
    ),
    "a key that was not drained": (
        [op(0, type_, "enqueue", f"[{key} 1]") for key in "78" for type_ in ("invoke", "ok")]
        + [op(3, "invoke", "drain", "[7 nil]"), op(3, "ok", "drain", "[7 [1]]")],
        set(),
        None,
    ),
    "a drain of all keys": (
        [op(0, type_, "enqueue", f"[{key} 1]") for key in "78" for type_ in ("invoke", "ok")]
        + [DRAIN, op(3, "ok", "drain", "[[7 1] [8 1]]")],
        set(),
        True,
    ),
    "a dequeue of any key, without an answer": (
        [op(0, type_, "enqueue", f"[{key} 1]") for key in "78" for type_ in ("invoke", "ok")]
        + [ASKED, DRAIN, op(3, "ok", "drain", "[[7 1]]")],
        set(),
        None,
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_values_of_every_shape_are_judged_for_what_they_are(tmp_path, name):
    ops, names, valid = JUDGED[name]
    verdict, found = both(stored(tmp_path / "h.edn", timed(*ops)).store)
    assert ({one.name for one in found}, verdict.valid) == (names, valid)


STRANGE: dict[str, tuple[list[str], str]] = {
    "a map": ([*ENQUEUED, ASKED, op(2, "ok", "dequeue", "{:v 1}")], "has {:v 1}: a message must be a number"),
    "a vector of vectors": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[[1 2]]")],
        "has [1 2]: a message must",
    ),
    "nil in a batch": ([*ENQUEUED, ASKED, op(2, "ok", "dequeue", "[1 nil]")], "is nil: it must say which"),
    "a truth": ([*ENQUEUED, ASKED, op(2, "ok", "dequeue", "true")], "has true: a message must be a number"),
    "a word about nothing": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", ":empty")],
        "has :empty, a keyword, and no",
    ),
    "a text among numbers": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", '"1"')],
        "has 1, a text, and no :enqueue",
    ),
    "an object": (
        [*ENQUEUED, ASKED, op(2, "ok", "dequeue", '#object["[B" 0x1f "[B@1f"]')],
        "an object that Clojure cannot print: a message must",
    ),
    "a set is enqueued": ([op(0, "invoke", "enqueue", "#{1 2}")], "has #{1 2}: a message must be a number"),
    "three are enqueued": (
        [op(0, "invoke", "enqueue", "[1 2 3]")],
        "has [1 2 3]: a message must be a number",
    ),
    "no message is enqueued": ([op(0, "invoke", "enqueue")], "the :value of an :enqueue is nil"),
    "no key": (
        [op(0, "invoke", "enqueue", "[1 2]"), op(1, "invoke", "enqueue", "3")],
        "the :value of :enqueue is 3: it must be [key value], as in the operations before",
    ),
    "a key where there was none": (
        [*ENQUEUED, op(0, "invoke", "enqueue", "[1 2]")],
        "has [1 2]: a message must",
    ),
    "the answer of another key": (
        [
            op(0, "invoke", "enqueue", "[1 2]"),
            op(1, "invoke", "dequeue", "[1 nil]"),
            op(1, "ok", "dequeue", "[3 2]"),
        ],
        "for key 1, but this completes it for key 3",
    ),
    "a map is a key": (
        [op(0, "invoke", "enqueue", "[{1 2} 2]")],
        "a key must be a number, a text or a keyword",
    ),
    "half of a surrogate pair": ([op(0, "invoke", "enqueue", r'"\ud83d"')], "one half of a surrogate pair"),
    "two dequeues of a drain": (
        [DRAIN, op(3, "invoke", "dequeue"), op(3, "invoke", "dequeue")],
        "invokes :dequeue before its earlier :dequeue has completed",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_value_of_an_unknown_shape_is_refused_at_its_line(tmp_path, capsys, name):
    ops, words = STRANGE[name]
    file = tmp_path / "h.edn"
    file.write_text(timed(*ops))
    assert cli.run(["import", str(file), "--store", str(tmp_path / "store")]) == 254
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"jepsen-run: {file}: line {len(ops)}: ")
    assert words in told
    assert not (tmp_path / "store").exists()


def test_the_order_of_a_history_of_jepsen_is_that_of_its_file(tmp_path):
    ops = [*ENQUEUED, ASKED, op(2, "ok", "dequeue", "2"), ASKED, op(2, "ok", "dequeue", "1")]
    backwards = [f"{one[:-1]}, :time {100 - n}}}" for n, one in enumerate(ops)]
    for written in (ops, backwards):
        _, found = both(stored(tmp_path / "h.edn", "\n".join(written), fifo=True).store)
        assert {one.name for one in found} == {"not-linearizable"}


def test_the_halves_of_a_surrogate_pair_are_one_letter(tmp_path):
    lines = timed(*(op(0, type_, "enqueue", r'"\ud83d\ude00"') for type_ in ("invoke", "ok")), DRAIN)
    whole = lines + timed(op(3, "ok", "drain", '["😀"]')).replace(":time 0", ":time 9000000")
    verdict, found = both(stored(tmp_path / "h.edn", whole).store)
    assert (verdict.valid, found) == (True, set())
    events = [{**one, "message": "😀"} for one in (SEND, {**SEND, "type": "ok"})]
    got = {"time": 2, "process": "c", "type": "ok", "f": "receive", "message": "😀"}
    written = in_lines(events) + json.dumps(got, ensure_ascii=False)
    verdict, found = both(stored(tmp_path / "h.jsonl", written, drained=True).store)
    assert (verdict.valid, found) == (True, set())


def test_files_are_read_however_they_were_written(tmp_path):
    lines = timed(*ENQUEUED, *LEFT).encode()
    for name, content in (
        ("crlf.edn", lines.replace(b"\n", b"\r\n")),
        ("marked.edn", b"\xef\xbb\xbf" + lines),
        ("packed.edn.gz", gzip.compress(lines, mtime=0)),
        ("two\nlines.edn", lines),
        ("record.edn", lines.replace(b"{:process", b"#jepsen.history.Op{:process")),
        ("marked.jsonl", b"\xef\xbb\xbf" + in_lines(LINES).encode()),
    ):
        imported = stored(tmp_path / name, content)
        assert imported.rows > 2
        assert stores.load_spec(imported.store).name.isprintable()
    imported = importing.import_file(tmp_path / "packed.edn.gz", "jepsen-edn", tmp_path / "store")
    assert stores.load_spec(imported.store).name == "packed"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([DRAIN, op(3, "ok", "drain", "[]")], "nothing was sent"),
        ([op(0, "invoke", "enqueue", "1"), op(0, "info", "enqueue", "1")], "nothing was delivered"),
        ([op(0, "invoke", "enqueue", "1"), op(0, "fail", "enqueue", "1")], "nothing was delivered"),
        ([op(0, "invoke", "enqueue", "1")], "nothing was delivered"),
        ([op(":nemesis", "info", "start")], "nothing was sent"),
    ],
)
def test_a_cluster_that_did_nothing_is_unknown_with_a_report(tmp_path, capsys, lines, reason):
    file = tmp_path / "h.edn"
    file.write_text(timed(*lines))
    assert cli.run(["import", str(file), "--fifo", "--store", str(tmp_path / "store")]) == 2
    told = capsys.readouterr()
    assert told.err == ""
    assert reason in told.out
    assert "crashed" not in told.out
    assert (tmp_path / "store" / stores.LATEST / stores.REPORT).is_file()


def test_a_history_that_is_refused_spoils_no_store_that_is_there(tmp_path):
    stored(tmp_path / "h.jsonl", in_lines(LINES))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError):
        stored(tmp_path / "h.jsonl", "{")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_opened_or_has_no_name_is_told(tmp_path):
    for file, kind, words in (
        (tmp_path / "none.edn", None, "cannot be read: No such file"),
        (tmp_path, "csv", "cannot be read: Is a directory"),
        (
            tmp_path / "h.txt",
            None,
            "the file's name does not show its format: give --format jepsen-edn, jsonl, csv",
        ),
        (tmp_path / "h.txt", "json", 'unknown format "json": did you mean "jsonl"?'),
    ):
        with pytest.raises(UsageError, match=words.replace("?", r"\?")):
            importing.import_file(file, kind, tmp_path / "store")


pieces = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "#{",
        "#_",
        "#a",
        "#:a",
        ":f",
        ":type",
        ":ok",
        ":invoke",
        ":value",
        ":process",
        ":time",
        " ",
        "\n",
        "\\",
        '"',
        "\\u00",
        "nil",
        "1",
        "-",
        "0x",
        "1/2",
        "##Inf",
        ":enqueue",
        ":poll",
        "^",
        "'",
        ";",
        ",",
        "{:a 1}",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
words = st.sampled_from(
    [
        "ok",
        "invoke",
        "info",
        "send",
        "deliver",
        "ack",
        "phase",
        "drained",
        "nemesis",
        "harness",
        "browse",
        "view",
        "role",
        "monitor",
        "receive",
        "commit",
        "x",
        1,
        2,
        2**63,
        -1,
        "{}",
    ]
)
events = st.lists(st.dictionaries(st.sampled_from(FIELDS), words | scalars, max_size=9), max_size=6)


def never_a_traceback(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            imported = stored(Path(directory) / name, content)
        except UsageError as error:
            assert "\n" not in str(error)  # noqa: PT017 - one of two ways that are both right
            assert not (Path(directory) / "store").exists()
        else:
            both(imported.store)


@settings(max_examples=50)
@given(
    st.sampled_from(["h.edn", "h.jsonl", "h.csv"]),
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
)
def test_any_bytes_give_a_history_or_one_line(name, content):
    never_a_traceback(name, content)


@settings(max_examples=50)
@given(st.lists(pieces, max_size=25).map("".join))
@example(":value" * 3)
@example("\\\n")  # the character of a line end
def test_any_edn_gives_a_history_or_one_line(content):
    never_a_traceback("h.edn", content.encode())


@settings(max_examples=50)
@given(events)
def test_any_events_give_a_history_or_one_line(some):
    text = "\n".join(json.dumps({"time": n, **event}) for n, event in enumerate(some))
    never_a_traceback("h.jsonl", text.encode())


class CountedPattern:
    """A pattern that knows how many characters it was given."""

    def __init__(self, pattern):
        self.pattern, self.characters = pattern, 0

    def match(self, text, position):
        self.characters += len(text) - position
        return self.pattern.match(text, position)


def test_each_line_of_a_long_text_is_read_once(monkeypatch):
    lines = ['"', *(['\\"line\n'] * 1_000), '"\n']
    patterns = {name: CountedPattern(getattr(edn, name)) for name in ("_PIECE", "_CONTINUED")}
    for name, pattern in patterns.items():
        monkeypatch.setattr(edn, name, pattern)
    assert [form for _, form in edn.forms(lines)] == ['"line\n' * 1_000]
    assert sum(pattern.characters for pattern in patterns.values()) < 2 * sum(map(len, lines))
