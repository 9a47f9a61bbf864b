"""Transactions and subscriptions over the time of a test, and a drain faster than its load."""

from xml.etree import ElementTree as ET

import pytest
from scene import NEWS, Scene
from test_story_picture import stored

from harness.history import parquet
from harness.report import figure, timeline

TEXT = "{http://www.w3.org/2000/svg}text"


def read(directory, scene):
    return timeline.read(stored(directory, scene) / parquet.DIRECTORY)


def texts(shown):
    return [text.text for text in ET.fromstring(figure.draw(shown)).iter(TEXT)]


def moving():
    """One transaction a way to end, the last for three seconds."""
    scene = Scene()
    for number, (f, outcome) in enumerate([
        ("commit", "ok"), ("abort", "ok"), ("commit", "info"), ("commit", "fail"),
    ]):  # fmt: skip
        scene.transaction(1.0 + number, "begin", number, 50)
        scene.add(1.5 + number, 50, "invoke", f, transaction=number)
        scene.add(1.5 + number, 50, outcome, f, transaction=number)
    scene.add(6.0, 50, "invoke", "begin", transaction=9, connection=3)
    scene.add(9.0, 60, "info", "disconnect", queue="q", session=1, connection=3)
    scene.end(10.0)
    return scene


def test_how_many_transactions_were_open_and_how_each_ended(tmp_path):
    shown = read(tmp_path, moving())
    assert {series.name: sum(series.values) * shown.bin_s for series in shown.ended} == dict.fromkeys(
        timeline.ENDS, pytest.approx(1)
    )
    (opened,) = shown.opened
    assert sum(opened.values) * shown.bin_s == pytest.approx(4 * 0.5 + 3)
    assert opened.values[int(7 / shown.bin_s)] == pytest.approx(1)
    assert {"open transactions", "transactions a second", "cut off"} <= set(texts(shown))


def test_a_transaction_that_nobody_ended_is_open_to_the_end(tmp_path):
    scene = Scene()
    scene.transaction(1.0, "begin", 1, 50)
    scene.end(9.0)
    (opened,) = read(tmp_path, scene).opened
    assert opened.values[-2] == pytest.approx(1)


def test_subscriptions_are_shown_while_they_were_there(tmp_path):
    scene = Scene()
    scene.subscribe(1.0, 1, queue=NEWS, subscription="alice")
    scene.drop(2.0, "alice")
    scene.subscribe(3.0, 2, queue=NEWS, subscription="alice")
    scene.drop(4.0, "alice", outcome="info")
    scene.end(9.0)
    shown = read(tmp_path, scene)
    spans = [(span.sure, round(span.start_s, 2), round(span.end_s, 2)) for span in
             shown.subscriptions["alice of news"] if span.end_s - span.start_s > 0.1]  # fmt: skip
    assert spans == [(True, 1.0, 2.0), (True, 3.0, 4.0), (False, 4.0, 9.0)]
    assert {"subscriptions", "alice", "alice of news", "perhaps there"} <= set(texts(shown))


def test_of_many_subscriptions_the_first_are_shown_and_the_others_counted(tmp_path):
    scene = Scene()
    for number in range(20):
        scene.subscribe(1.0, number, queue=NEWS, subscription=f"s{number}")
    scene.end(9.0)
    assert "subscriptions (the first 12, there were 8 more)" in texts(read(tmp_path, scene))


def test_nothing_is_shown_of_them_where_there_are_none(tmp_path):
    scene = Scene()
    scene.send(1.0, 1)
    scene.subscribe(1.0, 1)
    scene.end(9.0)
    shown = read(tmp_path, scene)
    assert (shown.opened, shown.ended, shown.subscriptions) == ([], [], {})
    assert not any("transaction" in str(text) or "subscription" in str(text) for text in texts(shown))


def drained(number):
    scene = Scene()
    for at in range(20):
        scene.send(at / 10, at)
    scene.phase(2.5, "drain")
    for message in range(number):
        scene.deliver(2.6, message, 1)
    scene.end(3.0)
    return scene


@pytest.mark.parametrize(("number", "cut"), [(500, True), (1, False)])
def test_a_drain_that_is_much_faster_than_the_load_does_not_flatten_it(tmp_path, number, cut):
    words = texts(read(tmp_path, drained(number)))
    assert any("the drain, beyond this picture: up to 5,000 a second" in str(text) for text in words) is cut
    assert "10" in words[: words.index("operations a second")]
