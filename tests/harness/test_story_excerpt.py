"""What is read of a stored history for a story.

All of the finding's messages, few files, nothing of the others.
"""

import msgspec
import pyarrow.parquet as pq
import pytest
from scene import NEWS, Scene, ns
from test_story_picture import stored

from checkers.verdict import CheckOptions, Verdict, Witness
from harness.history import parquet
from harness.report.narrative import excerpt, paragraphs, story
from harness.report.narrative.cluster_state import Standing


def busy():
    """One message that comes twice, among many of other groups."""
    scene = Scene()
    for number in range(40):
        scene.send(1.0 + number / 100, 100 + number, group=f"g{number % 7}", sequence=number)
    scene.send(2.0, 3, sequence=5)
    scene.subscribe(2.05, 1)
    scene.deliver(2.1, 3, 1, sequence=5)
    scene.ack(2.2, 3, 1, sequence=5)
    scene.disconnect(2.3, 1)
    scene.deliver(2.4, 3, 2, sequence=5)
    return scene


@pytest.mark.parametrize("group", ["g", None, "é", "another group"])
@pytest.mark.parametrize("parts", [1, 2, 8])
def test_the_file_of_a_message_is_known_without_looking(tmp_path, group, parts, monkeypatch):
    scene = Scene()
    for producer in range(5):
        scene.send(1.0 + producer, 10 + producer, group=group, producer=producer)
    monkeypatch.setattr("test_story_picture.PARTS", parts)
    stored(tmp_path, scene)
    for producer in range(5):
        name = parquet.file_name(parquet.file_number("q", group, producer, parts))
        table = pq.read_table(tmp_path / parquet.DIRECTORY / name)
        assert 10 + producer in table["message"].to_pylist()


def test_everything_of_the_message_its_sessions_and_the_cluster_is_read_and_nothing_else(tmp_path):
    scene = busy()
    finding = scene.finding("duplicate")
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    assert {row["message"] for row in read.rows if "message" in row} == {3}
    assert [row["f"] for row in read.rows] == [
        "send", "send", "subscribe", "subscribe", "deliver", "ack", "ack", "disconnect", "deliver",
    ]  # fmt: skip
    assert [row["f"] for row in read.control] == ["role", "role", "phase"]
    assert [row["index"] for row in read.rows] == sorted(row["index"] for row in read.rows)


def test_only_the_file_of_the_message_is_opened(tmp_path, monkeypatch):
    scene = busy()
    finding = scene.finding("duplicate")
    directory = stored(tmp_path, scene, finding) / parquet.DIRECTORY
    opened = []
    read = excerpt._read

    def noting(file, *rest, **named):
        opened.append(file.name)
        return read(file, *rest, **named)

    monkeypatch.setattr(excerpt, "_read", noting)
    excerpt.ExcerptReader(directory).excerpt_of(finding)
    home = parquet.file_name(parquet.file_number("q", "g", 1, 4))
    assert set(opened) == {home, parquet.CONTROL}


def test_a_message_in_another_file_than_its_place_says_is_found(tmp_path):
    scene = busy()
    finding = scene.finding("duplicate")
    directory = stored(tmp_path, scene, finding) / parquet.DIRECTORY
    home = directory / parquet.file_name(parquet.file_number("q", "g", 1, 4))
    home.rename(directory / "part-00031.parquet")
    read = excerpt.ExcerptReader(directory).excerpt_of(finding)
    assert len([row for row in read.rows if row.get("message") == 3]) == 6


def test_the_messages_beside_a_lost_one_are_read(tmp_path):
    scene = Scene()
    for message in (1, 2, 3, 4):
        scene.send(message, message)
        if message != 2:
            scene.deliver(message + 0.1, message, 1)
    scene.send(4.5, 9, producer=2, sequence=1)
    scene.end(5.0)
    finding = scene.finding("lost")
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    assert {row["message"] for row in read.neighbours} == {1, 3}


def test_what_an_administrator_did_with_the_queue_meanwhile_is_read(tmp_path):
    scene = Scene()
    scene.delete(1.0)
    scene.delete(10.0, f="create")
    scene.delete(11.0)
    scene.add(11.5, 501, "ok", "delete", queue="another", broker="a1")
    scene.send(12.0, 2)
    scene.delete(12.5, f="create")
    scene.deliver(13.0, 2, 1)
    scene.add(13.05, 502, "invoke", "delete", queue="q")
    scene.disconnect(13.1, 1)
    scene.add(13.15, 502, "fail", "delete", queue="q")
    scene.delete(13.2, f="create")
    scene.end(20.0)
    finding = scene.finding("lost")
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    changes = [
        (row["f"], row["queue"], row["time"]) for row in read.rows if row["f"] in excerpt.QUEUE_CHANGES
    ]
    assert changes == [
        (f, "q", ns(at_s))
        for f, at_s in [
            ("delete", 11.0),
            ("delete", 11.01),
            ("create", 12.5),
            ("create", 12.51),
            ("delete", 13.05),
            ("delete", 13.15),
        ]
    ]


def test_the_first_sends_of_both_sides_are_found_by_time(tmp_path):
    scene = busy()
    scene.role(3.0, "a2", "live")
    scene.send(3.1, 50, "a1")
    scene.send(7.0, 51, "a2")
    scene.end(9.0)
    finding = scene.finding("split-brain", begin_ns=ns(3.0), messages={"a1": [50, 60], "a2": [51]})
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    assert {row["message"] for row in read.rows if row["f"] == "send"} == {50, 51}


def test_a_witness_far_behind_is_not_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(excerpt, "ROWS_MAX", 20)
    scene = Scene()
    scene.send(1.0, 3)
    for number in range(60):
        scene.deliver(2.0 + number / 10, 3, number, count=1 + number, redelivered=number < 59)
        scene.disconnect(2.05 + number / 10, number)
    finding = scene.finding("unflagged-redelivery")
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    assert set(finding.witness.indexes) <= {row["index"] for row in read.rows}
    assert len(read.rows) <= 20 + len(finding.witness.indexes)


def test_of_a_time_without_success_only_what_lies_near_its_ends_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(excerpt, "FEW", 6)
    scene = Scene()
    scene.send(1.0, 1)
    for number in range(200):
        scene.send(2.0 + number / 20, 10 + number, None, outcome="fail", takes_s=0, error="not connected")
    scene.deliver(12.0, 1, 1)
    scene.send(12.1, 600)
    options = CheckOptions(unavailable_bound_s=5)
    finding = scene.finding("unavailable", options=options, begin_ns=ns(2.0), end_ns=ns(12.11))
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    failed = {
        row["message"]
        for row in read.rows
        if row["type"] == "fail" and row["index"] not in finding.witness.indexes
    }
    assert failed >= {10, 11, 12}
    assert max(row["message"] for row in finding.witness.rows) == 209
    assert len(failed) <= 6
    assert [row["message"] for row in read.rows if row["type"] == "ok"] == [600]
    assert {row["f"] for row in read.rows} == {"send"}


def test_the_terminal_gets_the_words_of_the_gravest_finding(tmp_path):
    scene = busy()
    finding = scene.finding("duplicate")
    directory = stored(tmp_path, scene, finding)
    verdict = Verdict(valid=False, findings=(finding,))
    assert paragraphs.of_gravest(directory, verdict, 900).startswith(
        "Producer 1 sent p1#5 (message 3, queue q, group g)"
    )
    assert paragraphs.of_gravest(directory, Verdict(valid=True), 900) == ""


def test_a_terminal_that_is_too_small_for_all_changes_gets_the_first_and_the_last(tmp_path):
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.ack(1.2, 3, 1)
    scene.disconnect(1.3, 1)
    for number, role in enumerate(("voting", "live", "voting", "backup")):
        scene.role(2.0 + number, "a2", role)
    scene.deliver(9.0, 3, 2)
    finding = scene.finding("duplicate")
    verdict = Verdict(valid=False, findings=(finding,))
    directory = stored(tmp_path, scene, finding)
    whole, brief = (paragraphs.of_gravest(directory, verdict, length) for length in (1_000, 500))
    assert "a2 was seen live at 3.000 s" in whole
    standing = Standing(scene.rows, ns(0))
    assert "2.000 s, 1 change more and a2 was seen voting" in standing.meanwhile(
        ["a2"], ns(1), ns(4.5), "So:", 2
    )
    assert (
        "In between: a2 was seen voting at 2.000 s, 2 changes more and a2 was seen backup at 5.000 s."
        in brief
    )


def test_a_history_that_is_not_there_has_no_rows(tmp_path):
    read = excerpt.ExcerptReader(tmp_path).excerpt_of(busy().finding("duplicate"))
    assert [row["f"] for row in read.rows] == ["deliver", "ack", "deliver"]
    assert list(read.control) == []


@pytest.mark.slow
def test_the_last_that_became_of_a_message_is_not_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(excerpt, "ROWS_MAX", 20)
    scene = Scene()
    scene.send(1.0, 3)
    for number in range(60):
        scene.deliver(2.0 + number / 10, 3, number, count=1 + number)
        scene.disconnect(2.05 + number / 10, number)
    scene.end(9.0)
    finding = scene.finding("lost")
    small = msgspec.structs.replace(finding, witness=Witness((), ()))
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(small)
    assert len(read.rows) == 20
    delivered = [row["session"] for row in read.rows if row["f"] == "deliver"]
    assert (delivered[0], delivered[-1]) == (0, 59)


def moved():
    """A transaction that takes a message of one place and sends to another, among many."""
    scene = busy()
    scene.deliver(3.0, 103, 5, group="g3", sequence=3)
    scene.transaction(3.1, "begin", 7, 50)
    taken = {**scene.of(103, group="g3", sequence=3), "session": 5, "transaction": 7}
    scene.add(3.2, 51, "invoke", "ack", **taken)
    scene.add(3.2, 51, "ok", "ack", **taken, broker="a1")
    scene.send(3.3, 200, queue="q1", group="h", process=52, transaction=7)
    scene.send(3.35, 201, queue="q1", group="i", process=52, transaction=8)
    scene.deliver(3.4, 200, 6, queue="q1", group="h")
    scene.transaction(3.5, "commit", 7, 50)
    return scene


def test_all_that_was_asked_for_in_a_messages_transaction_is_read_whatever_file_has_it(tmp_path):
    scene = moved()
    finding = scene.finding("read-uncommitted")
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    inside = [(row["f"], row.get("message")) for row in read.rows if row.get("transaction") == 7]
    twice = [("begin", None), ("ack", 103), ("send", 200), ("commit", None)]
    assert inside == [one for one in twice for _ in range(2)]
    assert {row.get("transaction") for row in read.rows} == {None, 7}


def test_when_a_subscription_was_made_and_dropped_is_read(tmp_path):
    scene = busy()
    for at_s, session, name in ((2.5, 11, "alice"), (2.6, 12, "bob")):
        scene.subscribe(at_s, session, queue=NEWS, subscription=name)
    scene.send(2.7, 300, queue=NEWS)
    scene.disconnect(2.8, 11)
    scene.drop(2.9, "bob")
    scene.end(9.0)
    finding = scene.finding("lost", message=300)
    read = excerpt.ExcerptReader(stored(tmp_path, scene, finding) / parquet.DIRECTORY).excerpt_of(finding)
    assert [row["f"] for row in read.rows if row.get("subscription") == "alice"] == ["subscribe"] * 2
    assert not [row for row in read.rows if row.get("subscription") == "bob"]
    text = paragraphs.paragraph(story.compose(finding, read))
    assert text.startswith("Subscription alice of topic news was made at 2.500 s. Producer 1 sent")
