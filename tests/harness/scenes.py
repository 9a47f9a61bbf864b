"""One small history for each family of anomalies, as a story."""

import json

from scene import NEWS, NODE, Scene, ns

from checkers.verdict import CheckOptions, Promises
from harness.report.narrative import story


def taken_over(scene):
    """a1 is cut off at 2 s and a2 takes its place at 3 s; a1 has noticed nothing."""
    scene.fault(2.0)
    scene.role(2.6, "a2", "voting")
    scene.role(3.0, "a2", "live")
    return scene


def lost():
    scene = Scene()
    scene.send(1.7, 1)
    scene.deliver(1.8, 1, 1)
    scene.unreplicated(1.85, "a1")
    scene.send(1.9, 2)
    taken_over(scene)
    scene.send(4.0, 3, "a2")
    scene.deliver(4.1, 3, 2, "a2")
    scene.heal(5.0)
    scene.role(5.5, "a1", "stopped")
    scene.phase(8.0, "heal")
    scene.end(9.0, "a1", "a2")
    return scene.story("lost", neighbours={1, 3})


def stuck():
    scene = Scene()
    scene.send(1.0, 2)
    scene.phase(8.0, "heal")
    scene.phase(9.0, "browse")
    scene.stored(9.1, 2, value="main")
    scene.phase(9.2, "end")
    return scene.story("stuck")


def lost_with_its_consumer():
    scene = Scene()
    scene.send(1.0, 2)
    scene.deliver(1.1, 2, 1)
    scene.disconnect(2.0, 1)
    scene.phase(8.0, "heal")
    scene.end(9.0, "a1")
    return scene.story("lost")


def resurrected():
    scene = Scene()
    scene.send(1.0, 2)
    scene.deliver(1.1, 2, 1)
    scene.ack(1.2, 2, 1)
    scene.phase(9.0, "browse")
    scene.stored(9.1, 2)
    return scene.story("resurrected")


def of_a_deleted_queue():
    scene = Scene()
    scene.send(1.0, 2)
    scene.fault(1.5, kind="kill", nodes=["a1"])
    scene.role(1.6, "a1", "stopped")
    scene.delete(2.0, "b1")
    scene.delete(2.5, "b1", f="create")
    scene.role(3.0, "a1", "live")
    scene.heal(3.1, kind="kill")
    scene.subscribe(4.0, 1)
    scene.deliver(4.1, 2, 1)
    scene.end(9.0)
    return scene.story("resurrected")


def lost_after_a_deletion():
    scene = Scene()
    scene.delete(1.0)
    scene.send(2.0, 2)
    scene.end(9.0, "a1")
    return scene.story("lost")


def copied():
    scene = Scene()
    scene.send(1.0, 2)
    for at_s in (9.0, 9.5):
        for broker in ("b1", "c1"):
            scene.stored(at_s + 0.1, 2, broker)
            scene.add(at_s + 0.1, -3, "ok", "browse", broker=broker)
    return scene.story("resurrected")


def uncommitted():
    scene = Scene()
    scene.transaction(1.0, "begin", 7, 50)
    scene.send(1.1, 4, transaction=7)
    scene.deliver(1.2, 4, 1)
    scene.transaction(1.3, "commit", 7, 50)
    return scene.story("read-uncommitted")


def not_selected():
    scene = Scene()
    asked = {"queue": "q", "session": 1, "value": '{"selector": {"colour": ["red"]}}'}
    scene.add(0.9, 101, "invoke", "subscribe", **asked)
    scene.send(1.0, 4)
    scene.deliver(1.1, 4, 1)
    return scene.story("not-subscribed")


def lost_of_a_subscription():
    scene = Scene()
    for session, name in ((1, "alice"), (2, "bob")):
        scene.subscribe(0.1, session, queue=NEWS, subscription=name)
    scene.disconnect(0.5, 1, error="client went away")
    scene.send(1.0, 4, queue=NEWS)
    scene.deliver(1.1, 4, 2, queue=NEWS, subscription="bob")
    scene.fault(2.0, kind="kill", nodes=["a1"])
    scene.role(2.1, "a1", "stopped")
    scene.role(2.3, "a2", "live")
    scene.subscribe(2.5, 3, "a2", queue=NEWS, subscription="alice")
    scene.end(9.0, "a1", "a2")
    return scene.story("lost")


def sent_before_it():
    scene = Scene()
    asked = {"queue": NEWS, "subscription": "alice", "value": '{"selector": {"colour": ["red", "blue"]}}'}
    scene.subscribe(0.1, 1, **asked)
    scene.disconnect(0.5, 1, error="client went away")
    scene.send(1.0, 4, queue=NEWS, value='{"properties": {"colour": "red"}}')
    scene.drop(1.2, "alice")
    scene.subscribe(2.0, 2, **asked)
    scene.deliver(2.1, 4, 2, queue=NEWS, subscription="alice")
    return scene.story("not-subscribed")


def never_ended():
    """A transaction that its client left open, of which a message came all the same."""
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.transaction(1.2, "begin", 7, 50)
    columns = {**scene.of(3), "session": 1, "transaction": 7}
    scene.add(1.3, 51, "invoke", "ack", **columns)
    scene.send(1.31, 4, transaction=7, process=52, outcome=None)
    scene.add(1.32, 51, "ok", "ack", **columns, broker="a1")
    scene.disconnect(1.6, 1, error="client went away")
    scene.deliver(2.0, 4, 2)
    return scene.story("read-uncommitted")


def in_part(acked, sent):
    """A transaction that takes message 3 and sends message 4; what is told of it."""
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.transaction(1.2, "begin", 7, 50)
    columns = {**scene.of(3), "session": 1, "transaction": 7}
    at = scene.add(1.3, 50, "invoke", "ack", **columns)
    scene.add(1.31, 50, "ok", "ack", **columns, broker="a1")
    scene.send(1.4, 4, transaction=7, process=50)
    scene.transaction(1.5, "commit", 7, 50)
    place = {"queue": "q", "group": "g"}
    ack = {"f": "ack", **place, "message": 3, "index": at, "how": acked}
    send = {"f": "send", **place, "message": 4, "index": at + 2, "how": sent}
    return scene, ack, send


def torn():
    scene, ack, send = in_part("consumed", "nowhere")
    scene.end(9.0, "a1")
    return scene.story("torn-transaction", transaction=7, happened=[ack], missing=[send])


def half_committed():
    scene, ack, send = in_part("again", "delivered")
    scene.subscribe(1.6, 2)
    scene.deliver(1.7, 3, 2)
    scene.deliver(1.8, 4, 2)
    return scene.story("torn-transaction", transaction=7, happened=[send], missing=[ack])


def expired():
    scene = Scene()
    scene.send(1.0, 4, value=json.dumps({"expires": [ns(1.5), ns(1.6)]}))
    scene.subscribe(2.0, 1)
    scene.deliver(2.1, 4, 1)
    return scene.story("expired-delivery")


def inverted():
    scene = Scene()
    scene.send(1.0, 4, group=None)
    scene.send(1.1, 6, group=None, value='{"priority": 9}')
    scene.subscribe(2.0, 1)
    scene.deliver(2.1, 4, 1, group=None)
    scene.deliver(2.2, 6, 1, group=None)
    return scene.story("priority-inversion")


def early():
    scene = Scene()
    scene.send(1.0, 4, value=json.dumps({"delay": [ns(1.5), ns(1.6)]}))
    scene.deliver(1.1, 4, 1)
    return scene.story("early-delivery")


def died_early():
    scene = Scene()
    scene.send(1.0, 4)
    scene.deliver(1.1, 4, 1)
    scene.disconnect(2.0, 1)
    scene.stored(9.0, 4, value="dead-letter")
    return scene.story("died-early")


def money_gone():
    scene = Scene()
    scene.send(1.0, 3, value='{"account":"a7","amount":70}')
    scene.deliver(1.1, 3, 1)
    scene.transaction(1.2, "begin", 7, 50)
    columns = {**scene.of(3), "session": 1, "transaction": 7}
    scene.add(1.3, 50, "invoke", "ack", **columns)
    scene.add(1.31, 50, "ok", "ack", **columns, broker="a1")
    scene.send(1.4, 4, transaction=7, process=50, value='{"account":"a7","amount":70}')
    scene.add(1.5, 50, "invoke", "commit", transaction=7)
    scene.add(2.0, 50, "info", "commit", transaction=7)
    scene.end(9.0, "a1")
    wrong = {"account": "a7", "amount": 70, "message": 3, "transaction": 7}
    return scene.story(
        "wrong-total", expected=1200, left=1130, wrong=1, first_taken=True, first_left=False,
        accounts=[wrong],
    )  # fmt: skip


def too_late():
    scene = Scene()
    scene.send(1.0, 4)
    scene.disconnect(2.0, 1, error="disconnected")
    scene.deliver(2.1, 4, 1)
    return scene.story("late-delivery", severity="warning")


def given_to_two_sessions(first_count, second_count):
    scene = Scene()
    scene.send(1.0, 4)
    scene.deliver(1.1, 4, 1, count=first_count)
    scene.disconnect(2.0, 1)
    scene.subscribe(2.1, 2)
    scene.deliver(2.2, 4, 2, count=second_count)
    return scene


def count_fell():
    scene = given_to_two_sessions(3, 2)
    return scene.story("count-fell", severity="warning")


def count_stuck():
    scene = given_to_two_sessions(2, 2)
    options = CheckOptions(broker=Promises(counts="given back"))
    return scene.story("count-stuck", severity="warning", options=options)


def phantom():
    scene = Scene()
    scene.deliver(1.0, 9, 1)
    return scene.story("phantom")


def corrupted():
    scene = Scene()
    scene.send(1.0, 4)
    scene.deliver(1.1, 4, 1, digest=10)
    return scene.story("corrupted")


def unreadable():
    scene = Scene()
    scene.send(1.0, 4)
    scene.add(
        1.2, 201, "ok", "deliver", queue="q", group="g", session=1, broker="a1", error="no digest", digest=3
    )
    return scene.story("corrupted")


def aborted():
    scene = Scene()
    scene.transaction(1.0, "begin", 7, 50)
    scene.send(1.1, 4, transaction=7)
    scene.transaction(1.2, "abort", 7, 50)
    scene.deliver(2.0, 4, 1)
    return scene.story("aborted-delivery")


def refused():
    scene = Scene()
    scene.fault(0.9, kind="pause", nodes=["a1"])
    scene.send(1.0, 4, outcome="fail", takes_s=0.5, error="broker silent")
    scene.heal(1.6, kind="pause")
    scene.deliver(2.0, 4, 1)
    return scene.story("aborted-delivery")


def duplicate():
    scene = Scene()
    scene.send(1.8, 3)
    scene.deliver(1.9, 3, 1)
    scene.fault(2.0)
    scene.ack(2.1, 3, 1)
    scene.disconnect(2.5, 1)
    scene.role(2.6, "a2", "voting")
    scene.role(3.0, "a2", "live")
    scene.subscribe(3.1, 2, "a2")
    scene.deliver(3.2, 3, 2, "a2", count=2)
    scene.ack(3.3, 3, 2, "a2")
    return scene.story("duplicate")


def twice_in_one_session():
    scene = Scene()
    scene.send(1.0, 3, outcome="info", error="connection lost")
    scene.send(1.2, 3, process=500)
    scene.deliver(1.3, 3, 1)
    scene.deliver(1.5, 3, 1)
    return scene.story("duplicate")


def unflagged():
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.disconnect(1.5, 1, error="consumer left")
    scene.deliver(1.6, 3, 2)
    return scene.story("unflagged-redelivery")


def redelivery():
    scene = Scene()
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.disconnect(1.5, 1)
    scene.deliver(1.6, 3, 2, count=2)
    return scene.story("redelivery", options=CheckOptions(guarantee="exactly-once"))


def double():
    scene = Scene()
    scene.subscribe(0.5, 1)
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.subscribe(1.2, 2)
    scene.deliver(1.3, 3, 2, count=2)
    scene.ack(1.4, 3, 1)
    scene.ack(1.5, 3, 2)
    return scene.story("double-delivery")


def split_group():
    scene = taken_over(Scene())
    scene.send(4.0, 1, "a2")
    scene.deliver(4.1, 1, 2, "a2")
    scene.send(4.2, 5, "a1", producer=2)
    scene.deliver(4.3, 5, 1, "a1", producer=2)
    scene.ack(4.4, 1, 2, "a2")
    scene.ack(4.5, 5, 1, "a1", producer=2)
    return scene.story("group-split")


def reordered():
    scene = Scene()
    scene.send(1.0, 1)
    scene.send(1.1, 2)
    scene.deliver(1.2, 2, 1)
    scene.deliver(1.3, 1, 1)
    return scene.story("reordered")


def realtime():
    scene = taken_over(Scene())
    scene.send(4.0, 1, "a2")
    scene.send(4.1, 2, "a1", producer=2)
    scene.deliver(4.2, 2, 1, "a1", producer=2)
    scene.heal(4.3)
    scene.deliver(4.4, 1, 2, "a2")
    return scene.story("reordered-realtime")


def overtaken():
    scene = taken_over(Scene())
    scene.send(4.0, 1, "a2")
    scene.send(4.1, 2, "a1", producer=2)
    scene.deliver(4.2, 2, 1, "a1", producer=2)
    scene.heal(4.3)
    return scene.story("not-linearizable")


def in_session():
    scene = Scene()
    scene.send(1.0, 1)
    scene.send(1.1, 2)
    scene.deliver(1.2, 1, 1)
    scene.disconnect(1.3, 1)
    scene.deliver(1.4, 2, 2)
    scene.deliver(1.5, 1, 2, count=2)
    return scene.story("reordered-session")


def split_brain():
    scene = taken_over(Scene())
    scene.send(4.0, 1, "a1")
    scene.send(4.1, 2, "a2")
    scene.role(6.0, "a1", "stopped")
    scene.end(9.0)
    found = scene.finding(
        "split-brain",
        begin_ns=ns(3.0),
        end_ns=ns(5.9),
        acknowledged={"a1": 1, "a2": 1},
        messages={"a1": [1], "a2": [2]},
        both_acknowledged=True,
    )
    read = scene.excerpt(found)
    rows = [*read.rows, *(row for row in scene.rows if row["f"] == "send")]
    return story.compose(
        found, type(read)(rows=sorted(rows, key=lambda row: row["index"]), control=read.control)
    )


def zombie():
    scene = taken_over(Scene())
    scene.send(4.0, 3, "a1")
    return scene.story("zombie")


def delivered_by_a_zombie():
    scene = taken_over(Scene())
    scene.send(4.0, 3, "a2")
    scene.deliver(4.5, 3, 1, "a1")
    return scene.story("zombie", acknowledged=1, count=2)


def fenced():
    """A broker of a database: b1 took a1's messages over, and a1 has not noticed."""
    scene = Scene(a1="live", b1="live")
    scene.role(0.2, "a1", "live", life=3)
    scene.fault(2.0)
    scene.takeover(3.0, "b1", 4)
    scene.send(4.0, 3, "a1")
    scene.send(4.2, 4, "a1")
    by = {
        "by": "b1",
        "how": "takeover",
        "node_id": NODE,
        "life": 4,
        "own_life": 3,
        "low_ns": ns(2.9),
        "high_ns": ns(3.0),
    }
    return scene.story("zombie", fenced=by, acknowledged=1, count=2)


def double_takeover():
    scene = Scene(a1="live", a2="backup", a3="backup")
    scene.fault(2.0, kind="kill", nodes=["a1"])
    scene.role(2.1, "a1", "stopped")
    for at_s, broker, life in ((3.0, "a2", 2), (3.2, "a3", 3)):
        scene.role(at_s, broker, "live", life=life)
        scene.takeover(at_s, broker, life)
    scene.role(5.0, "a3", "stopped")
    taken = [
        {"broker": "a2", "life": 2, "certain_ns": ns(3.0)},
        {"broker": "a3", "life": 3, "certain_ns": ns(3.2)},
    ]
    return scene.story(
        "double-takeover", node_id=NODE, takeovers=taken, same_life=False, begin_ns=ns(3.2), end_ns=ns(4.9)
    )


def taken_twice():
    """Two brokers of a database with one answer to one compare-and-set."""
    scene = Scene(b1="live", c1="live")
    scene.takeover(3.0, "b1", 4)
    scene.takeover(3.2, "c1", 4)
    taken = [
        {"broker": "b1", "life": 4, "certain_ns": ns(3.0)},
        {"broker": "c1", "life": 4, "certain_ns": ns(3.2)},
    ]
    return scene.story("double-takeover", node_id=NODE, takeovers=taken, same_life=True)


def diverged():
    scene = Scene(a1="live", b1="live")
    scene.phase(8.0, "heal")
    scene.phase(9.0, "recovered")
    scene.view(12.0, "a1", "b1 b1:61616", since_s=10.0)
    scene.view(12.1, "b1", None, since_s=10.1)
    held = {"a1": "b1 b1:61616", "b1": None}
    return scene.story("diverged", kind="members", key=NODE, held=held, begin_ns=ns(10.1), end_ns=ns(12.0))


def told_otherwise():
    """A broker has a queue whose deletion clients were answered."""
    scene = Scene(a1="live", b1="live")
    scene.delete(1.0, f="create")
    scene.delete(2.0, "b1")
    scene.phase(8.0, "heal")
    scene.phase(9.0, "recovered")
    scene.view(12.0, "clients", "gone", since_s=9.0, key="q", kind="queue")
    scene.view(12.0, "a1", "there", since_s=10.0, key="q", kind="queue")
    held = {"clients": "gone", "a1": "there"}
    return scene.story("diverged", kind="queue", key="q", held=held, begin_ns=ns(10.0), end_ns=ns(12.0))


def unavailable():
    scene = Scene()
    scene.send(1.0, 1)
    scene.fault(2.0, kind="kill", nodes=["a1"])
    scene.role(2.1, "a1", "stopped")
    scene.send(2.5, 2, None, outcome="fail", takes_s=0, error="not connected", process=101)
    scene.send(12.0, 3, None, outcome="fail", takes_s=0, error="not connected", process=101)
    scene.send(24.0, 5, None, outcome="fail", takes_s=0, error="not connected", process=101)
    scene.heal(30.0, kind="kill")
    scene.role(30.5, "a1", "live")
    scene.send(31.0, 4, process=101)
    found = scene.finding("unavailable", severity="warning", begin_ns=ns(2.5), end_ns=ns(24.0), excused=True)
    read = scene.excerpt(found)
    rows = [row for row in scene.rows if row["f"] == "send" and row["index"] > 6]
    return story.compose(found, type(read)(rows=rows, control=read.control))


def starved():
    scene = Scene()
    scene.add(0.5, 201, "ok", "subscribe", queue="q", session=1, broker="a1")
    scene.send(1.0, 1)
    scene.deliver(31.0, 1, 1)
    return scene.story("starved", begin_ns=ns(1.01), end_ns=ns(31.0))


def not_recovered():
    scene = Scene()
    scene.fault(2.0, kind="power-loss", nodes=["a1"])
    scene.role(2.1, "a1", "stopped")
    scene.phase(8.0, "heal")
    for number in range(100):
        scene.add(9 + number / 10, -3, "info", "restart", broker="a1")
    scene.phase(38.0, "not-recovered")
    return scene.story("not-recovered")


def admitted():
    scene = Scene()
    scene.send(1.0, 3, outcome="info", error="refused: internal error of the broker, please report it")
    return scene.story("internal-error")


SCENES = {
    "admitted": admitted,
    "lost": lost,
    "lost_with_its_consumer": lost_with_its_consumer,
    "resurrected": resurrected,
    "of a deleted queue": of_a_deleted_queue,
    "lost after a deletion": lost_after_a_deletion,
    "copied": copied,
    "uncommitted": uncommitted,
    "not selected": not_selected,
    "lost of a subscription": lost_of_a_subscription,
    "sent before it": sent_before_it,
    "never ended": never_ended,
    "torn": torn,
    "half committed": half_committed,
    "expired": expired,
    "early": early,
    "inverted": inverted,
    "died early": died_early,
    "money gone": money_gone,
    "too_late": too_late,
    "count_fell": count_fell,
    "count_stuck": count_stuck,
    "stuck": stuck,
    "phantom": phantom,
    "corrupted": corrupted,
    "unreadable": unreadable,
    "aborted": aborted,
    "refused": refused,
    "duplicate": duplicate,
    "twice_in_one_session": twice_in_one_session,
    "unflagged": unflagged,
    "redelivery": redelivery,
    "double": double,
    "split_group": split_group,
    "reordered": reordered,
    "realtime": realtime,
    "overtaken": overtaken,
    "in_session": in_session,
    "split_brain": split_brain,
    "zombie": zombie,
    "delivered by a zombie": delivered_by_a_zombie,
    "fenced": fenced,
    "double_takeover": double_takeover,
    "taken_twice": taken_twice,
    "diverged": diverged,
    "told otherwise": told_otherwise,
    "unavailable": unavailable,
    "starved": starved,
    "not_recovered": not_recovered,
}
