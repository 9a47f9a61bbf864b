"""Links between live brokers and places of consumption over the time of a test of a cluster."""

import json

from scene import Scene, ns
from test_story_picture import stored
from test_timeline import texts

from checkers.schema import MONITOR
from harness.history import parquet, store
from harness.interface import TestSpec
from harness.report import figure, html, timeline

PAIRS = {"a1": "a", "b1": "b", "c1": "c"}


def cluster(*more):
    """Three live brokers, each with a node ID of its own, from 0.6 s on."""
    scene = Scene(a1="live")
    for broker in ("b1", "c1", *more):
        scene.role(0.6, broker, "live", node_id=broker)
    return scene


def learn(scene, at_s, broker, *others, low=0.5, kind="members"):
    for other in others:
        change(scene, at_s, broker, other, f"{other} {other}:61616", low, kind)


def forget(scene, at_s, broker, *others):
    for other in others:
        change(scene, at_s, broker, other, None, 1.0, "members")


def change(scene, at_s, broker, key, value, low, kind):
    scene.add(
        at_s, MONITOR, "info", "view-change", broker=broker, time_low=ns(at_s - low), time_high=ns(at_s),
        value=json.dumps({"kind": kind, "key": key, "value": value}),
    )  # fmt: skip


def read(directory, scene, pairs=PAIRS, **placed):
    scene.phase(8.0, "recovered")
    scene.end(9.0)
    return timeline.read(stored(directory, scene) / parquet.DIRECTORY, pairs, **placed)


def links(shown, broker):
    return [
        (round(span.start_s, 2), round(span.end_s, 2), " ".join(span.linked), " ".join(span.missing),
         " ".join(span.dead)) for span in shown.links[broker]
    ]  # fmt: skip


def cut_off():
    """a1 and c1 do not know each other from 3 s to 5 s."""
    scene = cluster()
    for broker, others in (("a1", "b1 c1"), ("b1", "a1 c1"), ("c1", "a1 b1")):
        learn(scene, 1.0, broker, broker, *others.split())
    forget(scene, 3.0, "a1", "c1")
    forget(scene, 3.0, "c1", "a1", "b1")
    learn(scene, 5.0, "a1", "c1", low=1.0)
    learn(scene, 5.0, "c1", "a1", "b1", low=1.0)
    return scene


def test_a_lane_of_each_broker_says_which_live_ones_it_was_not_linked_with(tmp_path):
    shown = read(tmp_path, cut_off())
    assert links(shown, "a1") == [
        (1.0, 3.0, "b1 c1", "", ""), (3.0, 5.0, "b1", "c1", ""), (5.0, 8.0, "b1 c1", "", ""),
    ]  # fmt: skip
    assert links(shown, "b1") == [(1.0, 8.0, "a1 c1", "", "")]
    assert [span.state for span in shown.links["c1"]] == ["all", "none", "all"]
    assert {"2 of 2", "1 of 2; without c1", "0 of 2; without a1, b1", "not all", "none"} <= set(texts(shown))


def test_who_is_not_linked_is_also_in_a_table(tmp_path):
    read(tmp_path, cut_off())
    page = html.write(tmp_path).read_text()
    cells = '<td>c1</td><td class="num">3.00 s</td><td class="num">5.00 s</td><td>a1, b1</td><td></td>'
    assert cells in page


def test_a_broker_that_is_down_is_missed_by_nobody_and_says_nothing(tmp_path):
    scene = cluster()
    for broker, others in (("a1", "b1 c1"), ("b1", "a1 c1")):
        learn(scene, 1.0, broker, broker, *others.split())
    scene.role(3.0, "b1", "stopped", node_id=None)
    forget(scene, 3.5, "a1", "b1")
    scene.role(5.0, "b1", "live", node_id="b1")
    learn(scene, 5.0, "a1", "b1")
    forget(scene, 5.5, "b1", "c1")
    shown = read(tmp_path, scene)
    assert links(shown, "a1") == [
        (1.0, 2.9, "b1 c1", "", ""), (2.9, 3.5, "c1", "", "b1"), (3.5, 5.0, "c1", "", ""),
        (5.0, 8.0, "b1 c1", "", ""),
    ]  # fmt: skip
    assert links(shown, "b1") == [(1.0, 2.9, "a1 c1", "", ""), (5.5, 8.0, "a1", "c1", "")]


def test_in_a_chain_only_neighbours_are_missed(tmp_path):
    scene = cluster()
    learn(scene, 1.0, "a1", "a1", "b1", kind="neighbours")
    learn(scene, 1.0, "b1", "a1", "b1", kind="neighbours")
    learn(scene, 4.0, "b1", "c1", kind="neighbours")
    shown = read(tmp_path, scene)
    assert links(shown, "a1") == [(1.0, 8.0, "b1", "", "")]
    assert links(shown, "b1") == [(1.0, 4.0, "a1", "c1", ""), (4.0, 8.0, "a1 c1", "", "")]


def moved(*queues):
    """Sent to a1; the first half is delivered there, the second by b1."""
    scene = cluster()
    for number in range(80):
        queue = queues[number % len(queues)]
        scene.send(1.0 + number / 20, number, queue=queue)
        scene.deliver(1.02 + number / 20, number, 1, "a1" if number < 40 else "b1", queue=queue)
    return scene


def test_it_is_shown_which_broker_delivered_each_queue(tmp_path):
    shown = read(tmp_path, moved("q"))
    lanes = [(lane.queue, lane.broker, lane.deliveries) for lane in shown.consumption.lanes]
    assert lanes == [("q", "a1", 40), ("q", "b1", 40)]
    (at_a1,), (at_b1,) = (lane.spans for lane in shown.consumption.lanes)
    times = (at_a1.start_s, at_a1.end_s, at_b1.start_s, at_b1.end_s)
    assert [round(at_s, 1) for at_s in times] == [0.9, 3.1, 2.9, 5.1]
    words = texts(shown)
    heading = words.index("deliveries of queues by brokers")
    assert words[heading + 1 : heading + 4] == ["q", "a1", "b1"]
    assert '<td>q</td><td>b1</td><td class="num">40</td>' in html.write(tmp_path).read_text()


def test_of_many_queues_those_with_the_most_deliveries_are_shown(tmp_path):
    scene = moved("much")
    for number in range(100, 160):
        scene.deliver(6.0, number, 1, "a1", queue=f"q{number}")
    shown = read(tmp_path, scene)
    assert len(shown.consumption.lanes) == 36
    assert shown.consumption.lanes[0].queue == "much"
    assert shown.consumption.left_out == 61 - 35
    assert any("there were 26 more" in str(text) for text in texts(shown))


def test_consumption_is_shown_only_if_messages_crossed_or_clients_were_placed(tmp_path):
    scene = cluster()
    scene.send(1.0, 1)
    scene.deliver(1.1, 1, 1, "a1")
    assert not read(tmp_path, scene).consumption.lanes
    assert read(tmp_path, scene, placed=True).consumption.lanes


def test_the_report_of_one_pair_has_no_such_lanes(tmp_path):
    scene = cut_off()
    scene.send(2.0, 1)
    scene.deliver(2.1, 1, 1, "b1")
    as_pair = read(tmp_path, scene, dict.fromkeys(PAIRS, "a"), placed=True)
    assert as_pair.links == {}
    assert figure.draw(as_pair) == figure.draw(timeline.read(tmp_path / parquet.DIRECTORY))
    store.save(tmp_path, store.SPEC, TestSpec(name="made-up", pairs=1, watch_views=True))
    page = html.write(tmp_path).read_text()
    assert not any(word in page for word in ("links", "Links", "consumption", "Consumption"))
