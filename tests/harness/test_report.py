"""The report and the JUnit file of one made-up run in which everything that can be drawn
happens.
"""

import asyncio
import json
import re
from html import unescape
from xml.etree import ElementTree as ET

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers import api as checkers
from checkers.anomaly import looked_for
from checkers.schema import HARNESS, MONITOR, NEMESIS
from checkers.verdict import CheckOptions, Finding, Statistics, Verdict, Witness
from environments.labels import Process
from harness.commands import cli
from harness.history import parquet, store
from harness.history.recorder import StreamRecorder
from harness.interface import BroughtHistory, Fault, Schedule, TestSpec
from harness.report import figure, html, junit, summary, timeline

SECOND = 1_000_000_000


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def record(recorder, clock):
    clock.now = 1 * SECOND
    recorder.event(HARNESS, "info", "phase", value="load")
    for name, role in (("a1", "live"), ("a2", "backup")):
        recorder.event(
            MONITOR, "info", "role", broker=name, node_id="n", role=role, time_low=0, time_high=SECOND
        )
    for number in range(200):
        clock.now = SECOND + number * SECOND // 20
        process = number % 4
        recorder.event(process, "invoke", "send", queue="q", group="g", message=number)
        clock.now += 2_000_000 + number * 10_000
        recorder.event(
            process, "info" if 80 <= number < 90 else "ok", "send", queue="q", group="g", message=number
        )
        recorder.event(9, "ok", "deliver", queue="q", group="g", message=number)
        if number == 80:
            value = {
                "label": "f1",
                "shape": "pair-link",
                "target": "a",
                "observed": {"a1>a2": "lost"},
                "bit": True,
            }
            recorder.event(NEMESIS, "invoke", "partition", value=json.dumps({"label": "f1"}))
            recorder.event(NEMESIS, "info", "partition", value=json.dumps(value))
            recorder.event(
                MONITOR,
                "info",
                "role",
                broker="a2",
                node_id="n",
                role="live",
                time_low=clock.now,
                time_high=clock.now + 1,
            )
        if number == 120:
            recorder.event(NEMESIS, "invoke", "heal:partition", value=json.dumps({"label": "f1"}))
            recorder.event(
                NEMESIS,
                "info",
                "heal:partition",
                value=json.dumps({"label": "f1", "observed": {"a1>a2": "open"}}),
            )
            recorder.event(NEMESIS, "invoke", "kill", value=json.dumps({"label": "f2", "target": "b1"}))
    recorder.event(HARNESS, "info", "phase", value="end")


@pytest.fixture
def run_directory(tmp_path):
    async def write():
        clock = Clock()
        recorder = StreamRecorder(tmp_path, clock)
        record(recorder, clock)
        await recorder.finish()

    asyncio.run(write())
    store.save(tmp_path, store.SPEC, TestSpec(name="made-up", nemeses=("partition",), seed=7))
    store.save(tmp_path, store.SCHEDULE, Schedule(faults=(Fault(kind="partition", start_s=3.0),)))
    return tmp_path


def judged(directory, valid, *findings, reasons=()):
    verdict = Verdict(
        valid=valid, findings=findings, reasons=reasons, statistics=Statistics(rows=400, duration_s=10)
    )
    (directory / store.FINDINGS).write_bytes(verdict.to_json())
    return directory


def finding(name, severity="grave", sentence="Message 17 was lost."):
    rows = (
        {"index": 4, "time": SECOND, "process": 1, "type": "ok", "f": "send", "message": 17, "digest": 5},
    )
    return Finding(name=name, severity=severity, count=2, sentence=sentence, witness=Witness((4,), rows))


def test_what_was_promised_is_that_of_the_release_of_the_run(run_directory, monkeypatch):
    record = msgspec.structs.replace(store.load_run(run_directory), versions={"own": "9.9"})
    store.save(run_directory, store.RUN, record)
    for module in (html, summary):
        monkeypatch.setattr(module, "promised", lambda spec, release="": f"promises of <{release}>")
    directory = judged(run_directory, True)
    verdict = Verdict(valid=True, statistics=Statistics(rows=400))
    assert "promises of &lt;9.9&gt;" in html.write(directory).read_text()
    assert "promises of <9.9>" in summary.text(store.load_spec(directory), directory, verdict)


def test_rates_latencies_faults_and_roles_are_read_from_the_history(run_directory):
    read = timeline.read(run_directory / parquet.DIRECTORY)
    sends = next(series for series in read.rates if series.name == "sends acknowledged")
    unknown = next(series for series in read.rates if series.name == "unknown outcome")
    assert sum(sends.values) * read.bin_s == pytest.approx(190)
    assert sum(unknown.values) * read.bin_s == pytest.approx(10)
    median = next(series for series in read.latencies_ms if series.name == "median")
    assert 2.0 <= median.values[len(median.values) // 2] <= 4.0
    assert [(band.label, band.bit, band.observed) for band in read.bands] == [
        ("partition pair-link", True, "a1>a2 lost"),
        ("kill", False, ""),
    ]
    assert read.bands[0].end_s == pytest.approx(7.0, abs=0.1)
    assert read.bands[1].end_s == read.end_s
    assert [span.role for span in read.lanes["a2"]] == ["backup", "live"]


def test_a_part_that_says_otherwise_what_can_be_null_is_drawn_as_well(run_directory):
    history = run_directory / parquet.DIRECTORY
    before = repr(timeline.read(history))
    file = history / parquet.CONTROL
    table = pq.read_table(file)
    pq.write_table(table.cast(pa.schema([field.with_nullable(True) for field in table.schema])), file)
    assert pq.read_schema(file) != pq.read_schema(history / parquet.file_name(0))
    assert repr(timeline.read(history)) == before


@pytest.fixture
def slowly_set_up(tmp_path):
    """Recorded from 9 s on by the history's clock, under load from 230 s to 260 s, with a fault
    5 s into the load that is healed 3 s later.
    """

    async def write():
        clock = Clock()
        recorder = StreamRecorder(tmp_path, clock)
        told = {"broker": "a1", "node_id": "n"}
        clock.now = 9 * SECOND
        recorder.event(HARNESS, "info", "phase", value="deploy")
        recorder.event(MONITOR, "info", "role", **told, role="starting", time_low=0, time_high=0)
        clock.now = 229 * SECOND
        recorder.event(
            MONITOR, "info", "role", **told, role="live", time_low=clock.now - 1, time_high=clock.now
        )
        clock.now += SECOND
        recorder.event(HARNESS, "info", "phase", value="load")
        for number in range(40):
            clock.now = 230 * SECOND + number * SECOND // 4
            recorder.event(1, "invoke", "send", queue="q", group="g", message=number)
            clock.now += 1_000_000
            recorder.event(1, "ok", "send", queue="q", group="g", message=number)
            if number in (20, 32):
                f, seen = ("kill", "gone") if number == 20 else ("heal:kill", "running")
                told = {"label": "f1", "nodes": ["a1"]}
                recorder.event(NEMESIS, "invoke", f, value=json.dumps(told))
                recorder.event(
                    NEMESIS, "info", f, value=json.dumps({**told, "observed": {"a1": seen}, "bit": True})
                )
        clock.now = 260 * SECOND
        recorder.event(HARNESS, "info", "phase", value="end")
        await recorder.finish()

    asyncio.run(write())
    store.save(tmp_path, store.SPEC, TestSpec(name="made-up", nemeses=("kill",), seed=7))
    store.save(tmp_path, store.SCHEDULE, Schedule(faults=(Fault(kind="kill", start_s=5.0),)))
    return tmp_path


def test_the_picture_begins_with_the_load_however_long_the_set_up_took(slowly_set_up):
    read = timeline.read(slowly_set_up / parquet.DIRECTORY)
    assert (read.set_up_s, read.begin_s, read.end_s) == (221.0, 230.0, 260.0)
    assert [span.role for span in read.lanes["a1"]] == ["live"]
    assert read.phases == [("load", 230.0), ("end", 260.0)]
    assert [(round(band.start_s, 1), round(band.end_s, 1)) for band in read.bands] == [(235.0, 238.0)]
    sends = next(series for series in read.rates if series.name == "sends acknowledged")
    assert sum(sends.values[: int(10 / read.bin_s)]) * read.bin_s == pytest.approx(40)
    median = next(series for series in read.latencies_ms if series.name == "median")
    assert median.values[0] == pytest.approx(1.0)
    svg = ET.fromstring(figure.draw(read))
    ticks = [
        text.text for text in svg.iter("{http://www.w3.org/2000/svg}text") if str(text.text).endswith(" s")
    ]
    assert ticks[0] == "230 s"


def test_when_a_recovery_began_is_told_as_in_the_picture_and_the_history(slowly_set_up):
    verdict = checkers.check(slowly_set_up / parquet.DIRECTORY, CheckOptions(expect_faults=True))
    (fault,) = verdict.statistics.faults
    assert fault.start_s == pytest.approx(235.0, abs=0.01)
    (slowly_set_up / store.FINDINGS).write_bytes(verdict.to_json())
    text = html.write(slowly_set_up).read_text()
    assert "recovery from kill at 235.0 s" in text
    assert "longest pause of sends: 0.25 s in the whole cluster" in text
    assert "221.0 s; the load begins at 230.0 s" in text


def test_the_picture_is_well_formed_and_has_every_part(run_directory):
    svg = ET.fromstring(figure.draw(timeline.read(run_directory / parquet.DIRECTORY)))
    titles = [title.text for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert any("partition pair-link a" in title for title in titles)
    assert any("kill b1 (no effect seen)" in title for title in titles)
    assert any(title.startswith("a2 live from between") for title in titles)


def test_an_empty_history_is_drawn(tmp_path):
    ET.fromstring(figure.draw(timeline.read(tmp_path)))


@pytest.mark.parametrize(("valid", "word"), [(True, "valid"), (False, "invalid"), (None, "unknown")])
def test_the_report_says_the_verdict_first(run_directory, valid, word):
    text = html.write(judged(run_directory, valid, reasons=("because",))).read_text()
    assert f"<h1>{word}</h1>" in text
    assert text.index(f"<h1>{word}</h1>") < text.index("Findings")
    assert "because" in text
    assert summary.stored_repeat_command(run_directory) in unescape(text)


def test_the_report_tells_causes_before_what_follows_from_them(run_directory):
    found = (finding("diverged", sentence="They differ."), finding("split-brain", sentence="Both were live."))
    text = html.write(judged(run_directory, False, *found)).read_text()
    assert text.index("Both were live.") < text.index("They differ.")


def shown_facts(directory):
    """The names and values of the report's header."""
    text = html.write(directory).read_text()
    return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", text))


def test_the_header_says_when_where_how_long_and_with_which_versions(run_directory):
    record = store.RunRecord(
        environment="docker",
        started="2026-11-26T10:56:43.437+00:00",
        versions={"jepsen-run": "9.9", "python": "3.14", "platform": "Linux-1", "artemis": "2.44.0",
                  "engine": "Docker 30", "pyarrow": "26", "pyspark": "4"},
        process=Process(pid=1, started="1", boot="b", namespace="n", host="<b>"),
    )  # fmt: skip
    store.save(run_directory, store.RUN, record)
    store.save(run_directory, store.SPEC, TestSpec(name="made-up", system="artemis", seed=7))
    assert shown_facts(judged(run_directory, True)) == {
        "began": "2026-11-26 10:56:43+00:00", "host": "&lt;b&gt;", "duration": "10.0 s",
        "brokers": "artemis 2.44.0",
        "jepsen-run": "9.9", "Python": "3.14", "system": "Linux-1", "engine": "Docker 30",
        "libraries": "pyarrow 26, pyspark 4",
    }  # fmt: skip


def test_the_header_of_an_import_invents_nothing(run_directory):
    imported = BroughtHistory(file="other.csv", format="csv", drained=True)
    spec = TestSpec(name="other", system="imported", policy="imported", imported=imported)
    store.save(run_directory, store.SPEC, spec)
    store.save(run_directory, store.RUN, store.RunRecord(started="yesterday"))
    verdict = Verdict(valid=True, statistics=Statistics(rows=3, duration_s=8e-9))
    (run_directory / store.FINDINGS).write_bytes(verdict.to_json())
    assert shown_facts(run_directory) == {"imported": "yesterday"}


def test_an_import_without_times_shows_no_empty_picture_and_nothing_of_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["time,process,type,f,message", "1,p,invoke,send,order-8", "2,p,ok,send,order-8"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert cli.run(["import", "t.csv", "--drained"]) == 1
    text = (tmp_path / "store" / "latest" / store.REPORT).read_text()
    assert "There is no picture over time" in text
    assert "operations a second" not in text
    assert "the history says that everything left was received in the end" in text
    assert "at 1 ns; a broker acknowledged it at 2 ns" in text
    for unknown in ("latency", "log line", "logs/", "schedule.json", "real clusters", "0.000"):
        assert unknown not in re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("environment", "words"),
    [("simulation", "gives the same history again, row by row"), ("docker", "timing still differs")],
)
def test_the_report_says_how_far_a_run_can_be_repeated(run_directory, environment, words):
    store.save(run_directory, store.RUN, store.RunRecord(environment=environment))
    assert words in html.write(judged(run_directory, True)).read_text()


def test_what_a_broker_said_cannot_become_markup(run_directory):
    nasty = finding("lost", sentence="<script>alert(1)</script>")
    text = html.write(judged(run_directory, False, nasty)).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_the_report_stands_alone(run_directory):
    text = html.write(judged(run_directory, True)).read_text()
    for outside in (" src=", 'href="http', "@import", "url("):
        assert outside not in text


def test_junit_names_every_check_and_fails_the_violated_one(run_directory):
    path = junit.write(
        judged(
            run_directory,
            False,
            finding("lost", sentence="gone\x00"),
            finding("unflagged-redelivery", "warning"),
        )
    )
    suite = ET.parse(path).getroot()
    assert suite.get("failures") == "1"
    assert suite.get("errors") == "0"
    cases = {case.get("name"): case for case in suite}
    assert set(looked_for(CheckOptions())) < set(cases)
    assert cases["lost"].find("failure").get("type") == "lost"
    assert cases["unflagged-redelivery"].find("failure") is None
    assert cases["duplicate"].find("failure") is None


def test_junit_never_shows_unknown_as_passed(run_directory):
    suite = ET.parse(junit.write(judged(run_directory, None, reasons=("no engine",)))).getroot()
    assert suite.get("errors") == "1"
    assert (
        next(case for case in suite if case.get("name") == "verdict").find("error").get("message")
        == "no engine"
    )


def test_junit_skips_what_could_not_be_decided(run_directory):
    reasons = ("lost and stuck cannot be decided, because the stores of a1 could not be read: so far 1 lost",)
    verdict = judged(run_directory, False, finding("split-brain"), reasons=reasons)
    suite = ET.parse(junit.write(verdict)).getroot()
    cases = {case.get("name"): case.find("skipped") for case in suite}
    skipped = {name: case.get("message") for name, case in cases.items() if case is not None}
    assert skipped == dict.fromkeys(
        ("lost", "stuck"), "not judged: the stores of a1 could not be read: so far 1 lost"
    )
    assert suite.get("skipped") == "2"


def nothing_judged(directory):
    """As of a run whose brokers did not start."""
    (directory / store.FINDINGS).write_bytes(Verdict(valid=None, reasons=("no engine",)).to_json())
    return directory


def test_where_nothing_was_judged_no_rule_is_said_to_hold(run_directory):
    text = html.write(nothing_judged(run_directory)).read_text()
    assert "Nothing was judged." in text
    assert "every rule of the guarantee" not in text
    suite = ET.parse(junit.write(run_directory)).getroot()
    cases = {case.get("name"): case for case in suite}
    verdict = cases.pop("verdict")
    assert verdict.find("error") is not None
    assert all(case.find("skipped") is not None for case in cases.values())
    assert suite.get("skipped") == str(len(cases))


def test_the_report_says_where_clients_were_unless_they_were_everywhere(run_directory):
    judged(run_directory, True)
    assert "consumers" not in html.write(run_directory).read_text().partition("<h2>")[0]
    spec = store.load_spec(run_directory)
    store.save(run_directory, store.SPEC, msgspec.structs.replace(spec, drain_at=("a1",)))
    assert (
        "producers everywhere, consumers everywhere, drain at a1, " in html.write(run_directory).read_text()
    )


def test_the_report_names_the_faults_that_were_planned(run_directory):
    text = html.write(judged(run_directory, True)).read_text()
    assert "faults partition, seed 7" in text
    store.save(run_directory, store.SCHEDULE, Schedule(faults=(Fault(kind="kill", start_s=3.0),)))
    assert "faults kill, seed 7" in html.write(run_directory).read_text()
    store.save(run_directory, store.SCHEDULE, Schedule())
    store.save(run_directory, store.SPEC, TestSpec(name="calm", seed=7))
    assert "no faults, seed 7" in html.write(run_directory).read_text()


def test_the_lines_of_the_report_can_be_pasted(run_directory):
    directory = run_directory / "my runs"
    directory.mkdir()
    for file in (store.SPEC, store.SCHEDULE):
        (run_directory / file).rename(directory / file)
    text = unescape(html.write(judged(directory, True)).read_text())
    assert f"<pre>{summary.stored_repeat_command(directory)}</pre>" in text
    assert f"jepsen-run check '{directory}'" in text


def test_junit_is_xml_whatever_brokers_say(run_directory):
    path = junit.write(judged(run_directory, False, finding("lost", sentence="\uffff \x7f é")))
    suite = ET.parse(path).getroot()
    failure = next(case for case in suite if case.get("name") == "lost").find("failure")
    assert failure.get("message") == "\ufffd \x7f é"


def test_a_long_name_of_a_broker_is_shortened_and_told_in_full(run_directory):
    read = timeline.read(run_directory / parquet.DIRECTORY)
    lanes = {"amq-broker-of-the-east-0": read.lanes["a2"], "a2": read.lanes["a2"]}
    svg = ET.fromstring(figure.draw(msgspec.structs.replace(read, lanes=lanes)))
    shown = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a2", "…the-east-0"} < set(shown)
    assert "amq-broker-of-the-east-0" in [each.text for each in svg.iter("{http://www.w3.org/2000/svg}title")]


def test_an_unknown_verdict_does_not_say_that_every_rule_holds(run_directory):
    text = html.write(judged(run_directory, None, reasons=("lost cannot be decided",))).read_text()
    assert "None, as far as it could be judged." in text
    assert "every rule of the guarantee" not in text
