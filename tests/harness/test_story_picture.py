"""The story in the report.

Drawn, escaped, beside its rows and log lines, and whole without logs.
"""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from scene import NEWS, NODE, Scene, ns
from scenes import SCENES

from checkers.arrow_schema import SCHEMA
from checkers.verdict import Finding, Verdict, Witness
from harness.history import parquet, store
from harness.interface import Fault, Schedule, TestSpec
from harness.report import html, palette, sequence
from harness.report.narrative import logbook, story, subscriptions
from harness.run import reproduction
from harness.run.simulate import simulate

SVG = "{http://www.w3.org/2000/svg}"
PARTS = 4
VOID = {"meta", "br", "hr", "img", "input", "link"}


def stored(directory, scene, *findings, valid=False, record=None):
    """A run's directory with this scene as its history."""
    columns = {name: [row.get(name) for row in scene.rows] for name in SCHEMA.names}
    arrays = []
    for field in SCHEMA:
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(columns[field.name], plain)
        arrays.append(
            array.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else array
        )
    parquet.write(directory, [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)], PARTS)
    store.save(directory, store.SPEC, TestSpec(name="made-up", nemeses=("partition",)))
    store.save(directory, store.SCHEDULE, Schedule())
    store.save(
        directory, store.RUN, record or store.RunRecord(state="ended", zero="2026-02-03T10:00:00+00:00")
    )
    (directory / store.FINDINGS).write_bytes(Verdict(valid=valid, findings=findings).to_json())
    return directory


def log(directory, broker, *lines):
    path = directory / store.LOGS / broker / "broker.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def twice(error="broker silent"):
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.ack(1.2, 3, 1)
    scene.disconnect(1.3, 1, error=error)
    scene.role(1.5, "a2", "live")
    scene.deliver(4.0, 3, 2, "a2")
    return scene


class Page(HTMLParser):
    """What a browser would make of it.

    Every element closed, texts by the class of what they stand in.
    """

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class", "")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(
                ([name for _, name in self.open if name], self.open[-1][0] if self.open else "", data)
            )

    def of(self, name, tag=None):
        return [text for names, inner, text in self.texts if name in names and tag in {None, inner}]


@pytest.mark.parametrize("name", SCENES)
def test_every_slice_is_well_formed_and_has_a_hint(name):
    told = SCENES[name]()
    for each in sequence.slices(told):
        svg = ET.fromstring(each.svg)
        assert svg.find(f"{SVG}title").text
        if each.pause:
            ET.fromstring(each.pause_svg)
    head = ET.fromstring(sequence.head(told))
    assert " ".join(text.text for text in head.iter(f"{SVG}text")) == " ".join(
        lane.name for lane in told.lanes
    )


def test_lanes_go_the_way_of_a_message_and_brokers_show_their_roles():
    told = SCENES["duplicate"]()
    assert [lane.name for lane in told.lanes] == ["producer 1", "a1", "a2", "session 1", "session 2"]
    assert dict(sequence.legend(told)).keys() == {"live", "backup", "voting"}
    live, backup, voting = (stroke for _, stroke in sequence.legend(told))

    def looks(number):
        svg = ET.fromstring(sequence.slices(told)[number].svg)
        strokes = [
            palette.Stroke(
                line.get("stroke"), float(line.get("stroke-width")), line.get("stroke-dasharray", "")
            )
            for line in svg.iter(f"{SVG}line")
        ]
        return [stroke for stroke in strokes if stroke in palette.ROLES.values()]

    labels = [step.label for step in told.steps]
    assert looks(0) == [live, backup]
    assert looks(labels.index("voting")) == [live, backup, voting]
    assert looks(labels.index("live")) == [live, voting, live]


def test_a_witness_stands_out_and_an_answer_has_a_way_back():
    told = SCENES["duplicate"]()
    drawn = {step.label: each.svg for step, each in zip(told.steps, sequence.slices(told), strict=True)}
    assert sequence.WITNESS in drawn["ack p1#3"] or not told.steps[-1].witness
    send = [
        line
        for line in ET.fromstring(drawn["send p1#3"]).iter(f"{SVG}line")
        if line.get("y1") == line.get("y2")
    ]
    assert [(line.get("x1"), line.get("x2")) for line in send] == [("10.0%", "30.0%"), ("30.0%", "10.0%")]
    assert send[0].get("stroke") == sequence.CONTEXT
    deliver = [
        line
        for line in ET.fromstring(drawn["deliver p1#3"]).iter(f"{SVG}line")
        if line.get("y1") == line.get("y2")
    ]
    assert [line.get("stroke") for line in deliver] == [sequence.WITNESS]


@pytest.mark.parametrize(
    ("name", "lane", "marks"),
    [
        ("torn", "transaction 7", ["begin", "effect", "effect", "committed"]),
        ("aborted", "transaction 7", ["begin", "effect", "rolled back"]),
        ("never ended", "transaction 7", ["begin", "effect", "effect", "cut off"]),
        ("lost of a subscription", "subscription alice", ["copy"]),
        ("lost of a subscription", "subscription bob", ["copy", "given"]),
    ],
)
def test_a_transaction_and_a_subscription_have_a_lane_with_what_happens_to_them(name, lane, marks):
    told = SCENES[name]()
    assert [mark.kind for step in told.steps for mark in step.marks if mark.lane == lane] == marks
    assert lane in [one.name for one in told.lanes]


def bars(told, colour):
    """Of the lanes in a colour, by step: from where to where, and whether dashed."""
    drawn = [ET.fromstring(each.svg).iter(f"{SVG}line") for each in sequence.slices(told)]
    return [
        [(line.get("y1"), line.get("y2"), line.get("stroke-dasharray") is not None) for line in lines
         if (line.get("stroke"), line.get("stroke-width")) == (colour, "7")]
        for lines in drawn
    ]  # fmt: skip


WHOLE, FROM, UNTIL = ("0", "100%", False), ("25", "100%", False), ("0", "25", False)


def test_a_transaction_is_a_bar_from_its_begin_to_the_answer_to_its_commit():
    told = SCENES["torn"]()
    assert bars(told, palette.TRANSACTION) == [[], [], [FROM], [WHOLE], [WHOLE], [UNTIL], [], [], []]
    drawn = "".join(each.svg for each in sequence.slices(told))
    assert drawn.count(">committed<") == 1


def test_a_transaction_whose_commit_nobody_answered_is_dashed_from_then_on():
    scene = Scene()
    scene.transaction(1.0, "begin", 7, 50)
    scene.send(1.1, 4, transaction=7)
    scene.deliver(1.2, 4, 1)
    scene.add(1.3, 50, "invoke", "commit", transaction=7)
    scene.deliver(1.4, 4, 2, count=2)
    scene.add(1.5, 50, "info", "commit", transaction=7)
    told = scene.story("read-uncommitted")
    dashed = [("25", "100%", True)], [("0", "100%", True)], [("0", "25", True)]
    assert bars(told, palette.TRANSACTION)[-3:] == [[UNTIL, *dashed[0]], *dashed[1:]]
    assert told.steps[-1].marks == (story.Mark("transaction 7", "unknown"),)


def test_a_subscription_is_a_bar_while_it_is_there():
    assert bars(SCENES["sent before it"](), palette.SUBSCRIPTION) == [
        [FROM], [WHOLE], [UNTIL], [FROM], [WHOLE],
    ]  # fmt: skip


def test_what_may_not_be_for_a_subscription_is_drawn_in_dashes_and_what_is_not_for_it_not_at_all():
    scene = Scene()
    red = {"queue": NEWS, "subscription": "alice", "value": '{"selector": {"colour": ["red"]}}'}
    scene.subscribe(0.1, 1, **red)
    scene.send(0.5, 3, queue=NEWS, value='{"properties": {"colour": "blue"}}')
    scene.deliver(0.6, 3, 1, queue=NEWS, subscription="alice")
    told = scene.story("not-subscribed")
    assert [step.marks for step in told.steps if step.label == "send p1#3"] == [()]
    scene.drop(0.7, "alice", outcome="info")
    (life,) = subscriptions.of_rows(scene.rows)
    asked = {"index": len(scene.rows), "value": '{"properties": {"colour": "red"}}'}
    assert (life.gets({**asked, "index": 6}), life.gets(asked)) == ("there", "perhaps")
    assert life.gets({**asked, "value": None}) == ""


def test_only_subscriptions_that_got_the_message_stand_beside_the_one_that_lost_it():
    scene = Scene()
    for session, name in enumerate(("alice", "bob", "carol"), 1):
        scene.subscribe(0.1, session, queue=NEWS, subscription=name)
    scene.send(1.0, 3, queue=NEWS)
    scene.send(1.2, 4, queue=NEWS)
    for message, session, name in ((3, 1, "alice"), (3, 3, "carol"), (4, 2, "bob"), (3, 2, "bob")):
        scene.deliver(1.3, message, session, queue=NEWS, subscription=name)
    scene.end(9.0)
    told = scene.story("lost", message=4, neighbours={3})
    lanes = [lane.name for lane in told.lanes]
    assert [name for name in lanes if name.startswith("sub")] == ["subscription alice", "subscription bob"]
    assert "session 3" not in lanes
    head = [(text.text, int(text.get("y"))) for text in ET.fromstring(sequence.head(told)).iter(f"{SVG}text")]
    above = [y for name, y in head if name.startswith("subscription")]
    assert above == sorted(set(above))
    assert max(above) < min(y for name, y in head if not name.startswith("subscription"))


def test_a_run_without_transactions_and_subscriptions_has_no_lane_for_them():
    told = SCENES["duplicate"]()
    assert {lane.kind for lane in told.lanes} == {"producer", "broker", "session"}
    assert not any(step.marks for step in told.steps)


def test_a_long_pause_is_a_break_and_a_short_one_is_not():
    told = SCENES["not_recovered"]()
    pauses = {step.label: each.pause for step, each in zip(told.steps, sequence.slices(told), strict=True)}
    assert pauses["heal"] == "5.9 s later"
    assert pauses["stopped"] == ""


def test_the_field_is_shaded_while_a_fault_is_in_force():
    told = SCENES["realtime"]()
    shaded = ['opacity="0.07"' in each.svg for each in sequence.slices(told)]
    labels = [step.label for step in told.steps]
    assert shaded == [True] * labels.index("partition isolate-live of a1 healed") + [False, False]


def test_the_report_has_the_paragraph_and_each_step_with_its_row_and_its_log_lines(tmp_path):
    scene = twice()
    finding = scene.finding("duplicate")
    log(
        tmp_path, "a1",
        "2026-02-03T10:00:01.105Z INFO a1 handed over",
        "Traceback without a time",
        "2026-02-03T10:00:59.000Z INFO a1 far from everything",
    )  # fmt: skip
    log(tmp_path, "a2", "2026-02-03 10:00:01,480 INFO taking over")
    page = Page(html.write(stored(tmp_path, scene, finding)).read_text())
    assert page.of("story")[0].startswith("Producer 1 sent p1#3 (message 3, queue q, group g) at 1.000 s")
    assert page.of("when") == ["s", "1.000", "1.100", "1.200", "1.300", "1.500", "⋮", "4.000"]
    rows = [re.sub(r"\s+", " ", text) for text in page.of("say", "summary") + page.of("say", "b")]
    assert any(text.startswith("row ") for text in rows)
    assert set(page.of("say", "b")) == {f"row {index}" for index in finding.witness.indexes}
    shown = "".join(page.of("say", "pre"))
    assert (
        f"index {finding.witness.indexes[-1]}, time 4.0000 s, process 202, type ok, f deliver, queue q"
        in shown
    )
    assert "1.105 a1 | 2026-02-03T10:00:01.105Z INFO a1 handed over\n" in shown
    assert "1.105 a1 | Traceback without a time\n" in shown
    assert "1.480 a2 | 2026-02-03 10:00:01,480 INFO taking over\n" in shown
    assert "far from everything" not in shown


def test_a_line_stands_beside_the_step_it_is_nearest_to(tmp_path):
    scene = twice()
    log(tmp_path, "a1", "2026-02-03T10:00:01.190Z INFO a1 just before the acknowledgement")
    text = html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text()
    step = text[text.index('data-time="1.200"') : text.index('data-time="1.300"')]
    assert "just before the acknowledgement" in step
    assert "2 log lines" not in text


def test_nothing_that_a_broker_or_client_says_becomes_markup(tmp_path):
    nasty = "<script>alert(1)</script>&\"'"
    scene = twice(error=nasty)
    log(tmp_path, "a1", f"2026-02-03T10:00:01.600Z INFO {nasty}")
    text = html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text()
    page = Page(text)
    assert all(tag != "script" for tag, _ in page.tags)
    assert any(nasty in shown for shown in page.of("say", "pre"))
    assert any(nasty in shown for shown in page.of("story"))


def test_a_name_of_a_broker_cannot_leave_the_picture():
    scene = Scene(**{'a"><script>': "live"})
    scene.deliver(1.0, 9, 1, broker='a"><script>')
    told = scene.story("phantom")
    for text in (sequence.head(told), *(each.svg for each in sequence.slices(told))):
        assert "<script" not in text
        ET.fromstring(text)


def test_a_run_without_logs_still_has_its_story_and_says_what_is_missing(tmp_path):
    scene = twice()
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    assert page.of("story")
    assert "No log of a1 was kept." in page.of("hint")
    assert "No log of a2 was kept." in page.of("hint")


def test_a_log_is_read_once_for_all_findings(tmp_path, monkeypatch):
    scene = twice()
    log(tmp_path, "a1", "2026-02-03T10:00:01.105Z INFO a1 handed over")
    findings = [scene.finding("duplicate")] * 2
    read, asked = logbook.read, []
    monkeypatch.setattr(logbook, "read", lambda *given: asked.append(given[1]) or read(*given))
    text = html.write(stored(tmp_path, scene, *findings)).read_text()
    assert text.count("a1 handed over") == 2
    assert sorted(asked) == ["a1", "a2"]


def test_lines_that_carry_no_time_are_not_guessed_at(tmp_path):
    scene = twice()
    log(tmp_path, "a1", "no time here", "nor here")
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    assert "The lines of a1's log carry no time that could be read: see logs/a1/." in page.of("hint")
    assert not any("no time here" in text for text in page.of("say"))


def skewed(kind, seen):
    """The same story with a fault of a1's clock from 0.5 s to 2 s."""
    scene = twice()
    scene.fault(0.5, kind=kind, nodes=["a1"], seen={"a1/clock": seen})
    scene.heal(2.0, kind=kind)
    scene.rows.sort(key=lambda row: row["time"])
    for index, row in enumerate(scene.rows):
        row["index"] = index
    return scene


@pytest.mark.parametrize(
    ("seen", "stamp"), [("skewed 60000 ms", "10:01:01.105"), ("skewed -60000 ms", "09:59:01.105")]
)
def test_lines_of_a_clock_that_was_set_are_put_back(tmp_path, seen, stamp):
    scene = skewed("clock-skew", seen)
    log(
        tmp_path, "a1",
        "2026-02-03T10:00:00.600Z INFO a1 before",
        f"2026-02-03T{stamp}Z INFO a1 meanwhile",
        "2026-02-03T10:00:04.400Z INFO a1 after",
    )  # fmt: skip
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    shown = "".join(page.of("say", "pre"))
    for text in ("0.600 a1 | ", "1.105 a1 | ", "4.400 a1 | "):
        assert text in shown
    by = seen.split(" ")[1]
    assert (
        f"clock-skew of a1 set the clock of a1 by {by} ms: the lines of its log from that time are put "
        "back by as much." in page.of("hint")
    )


def test_a_clock_that_ran_at_another_rate_is_told(tmp_path):
    scene = skewed("clock-rate", "rate 1.500")
    log(tmp_path, "a1", "2026-02-03T10:00:01.105Z INFO a1 said")
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    assert (
        "clock-rate of a1 changed the clock of a1: the times in its log are not those of the history."
        in page.of("hint")
    )


def test_a_run_that_did_not_record_its_clock_places_lines_roughly_and_says_so(tmp_path):
    scene = twice()
    log(tmp_path, "a1", "2026-02-03T10:00:01.105Z INFO a1 handed over")
    record = store.RunRecord(state="ended", environment="local", started="2026-02-03T10:00:00.000+00:00")
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"), record=record)).read_text())
    assert any("1.105 a1 | " in text for text in page.of("say", "pre"))
    assert any("only roughly" in text for text in page.of("hint"))
    nothing = store.RunRecord(state="ended", environment="local")
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"), record=nothing)).read_text())
    assert any("log lines cannot be placed" in text for text in page.of("hint"))
    assert not any("handed over" in text for text in page.of("say", "pre"))


def test_simulated_brokers_log_virtual_time(tmp_path):
    scene = twice()
    log(tmp_path, "a1", "2026-01-01T00:00:01.105Z INFO a1 handed over")
    record = store.RunRecord(state="ended", environment="simulation", started="2026-02-03T10:00:00.000+00:00")
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"), record=record)).read_text())
    assert any("1.105 a1 | " in text for text in page.of("say", "pre"))


def test_many_lines_are_cut_and_counted(tmp_path):
    scene = twice()
    log(tmp_path, "a2", *(f"2026-02-03T10:00:04.5{n:02d}Z INFO a2 line {n}" for n in range(50)))
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    shown = "".join(page.of("say", "pre"))
    assert "INFO a2 line 5\n" in shown
    assert "INFO a2 line 6\n" not in shown
    assert "and 44 more near this moment, see logs/" in shown


def test_what_is_only_information_has_no_story_and_a_warning_has(tmp_path):
    scene = twice()
    finding = scene.finding("duplicate")
    for severity, told in (("info", False), ("warning", True)):
        named = type(finding)(
            name="duplicate", severity=severity, count=1, sentence="x", witness=finding.witness,
            details=finding.details
        )  # fmt: skip
        page = Page(html.write(stored(tmp_path, scene, named)).read_text())
        assert bool(page.of("story")) is told


def test_a_finding_without_messages_is_drawn(tmp_path):
    scene = Scene()
    scene.role(1.0, "a2", "live")
    scene.send(1.2, 1, "a1")
    scene.send(1.3, 2, "a2")
    scene.role(2.0, "a1", "stopped")
    scene.end(3.0)
    finding = scene.finding(
        "split-brain", begin_ns=ns(1.0), end_ns=ns(1.9), both_acknowledged=True,
        acknowledged={"a1": 1, "a2": 1}, messages={"a1": [1], "a2": [2]},
    )  # fmt: skip
    page = Page(html.write(stored(tmp_path, scene, finding)).read_text())
    assert f"under node ID {NODE[:8]}" in page.of("story")[0]
    assert "a1 acknowledged 1 send (the first, p1#1, at 1.210 s)" in page.of("story")[0]
    assert page.of("when") == ["s", "0.300", "⋮", "1.000", "1.200", "1.300", "⋮", "2.000"]


def test_the_page_needs_nothing_else_and_reads_on_a_phone(tmp_path):
    scene = twice()
    page = Page(html.write(stored(tmp_path, scene, scene.finding("duplicate"))).read_text())
    for tag, attributes in page.tags:
        assert tag not in {"script", "iframe", "object", "link"}
        assert not any(name.startswith("on") for name in attributes)
        assert not any("http" in (attributes.get(name) or "") for name in ("src", "href"))
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags


def test_a_story_of_no_rows_is_none(tmp_path):
    finding = twice().finding("duplicate")
    empty = type(finding)(
        name="duplicate", severity="grave", count=1, sentence="x", witness=type(finding.witness)((), ())
    )
    page = Page(html.write(stored(tmp_path, Scene(), empty)).read_text())
    assert page.of("story") == []
    assert story.compose(empty, Scene().excerpt(empty)).steps == ()


def test_a_simulated_split_brain_is_told_with_the_lines_in_which_the_brokers_decided_it(tmp_path):
    faults = (Fault(kind="partition", start_s=2.0, duration_s=6.0, shape="pair-link"),)
    spec = TestSpec(
        name="pair", pairs=1, environment="simulation", time_limit_s=7.0, rate=20.0, producers=2, consumers=2,
        groups=2
    )  # fmt: skip
    run = simulate(spec, Schedule(faults=faults))
    assert "split-brain" in run.grave
    reproduction.keep(tmp_path, run)
    rows = [{name: value for name, value in row.items() if value is not None} for row in run.rows]
    found = next(one for one in run.findings if one.name == "split-brain")
    brokers = found.key.split(" ")[1:3]
    reigns = [
        row
        for row in rows
        if row.get("role") == "live" and row["broker"] in brokers and row["index"] <= found.index
    ]
    shown = (reigns[-2], reigns[-1], rows[-1])
    finding = Finding(
        name="split-brain", severity="grave", count=1, sentence="Two at once.",
        witness=Witness(tuple(row["index"] for row in shown), shown),
        details={
            "examples": [{"index": found.index, "key": found.key}],
            "begin_ns": reigns[-1]["time_high"], "end_ns": rows[-1]["time"],
        },
    )  # fmt: skip
    (tmp_path / store.FINDINGS).write_bytes(Verdict(valid=False, findings=(finding,)).to_json())
    page = Page(html.write(tmp_path).read_text())
    assert "partition pair-link of a1 and a2 began at" in page.of("story")[0]
    assert "both were live for certain under node ID" in page.of("story")[0]
    steps = page.of("say")
    seen_live = next(n for n, text in enumerate(steps) if text.startswith("a2 is seen live"))
    following = next(
        (
            n
            for n, text in enumerate(steps)
            if n > seen_live and re.match(r"(a\d|Producer|Session|The) ", text)
        ),
        None,
    )
    beside = "".join(steps[seen_live:following])
    assert "WARNING a2 this broker takes over as live" in beside
    assert not any("roughly" in text or "cannot be placed" in text for text in page.of("hint"))
