"""Each statement of a system's module is tried, and one that is wrong is a row that says so."""

import asyncio
import json
import os
import signal

import msgspec
import pytest
from fake_cluster import FakeEnvironment, composition

from checkers.verdict import Promises
from harness.commands import cli
from harness.interface import Dialect, TestSpec
from harness.run import conform, conformance
from harness.run import talk as talking
from harness.run.compose import compose
from harness.run.conversation import Conversation
from harness.systems.own.system import OwnSystem
from stomp_protocol.frames import Frame

pytestmark = pytest.mark.cluster

SPEC = TestSpec(name="conformance", policy="standalone", pairs=1, environment="local", queues=60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all: ``ask(coroutine function of a Talk)`` on its loop."""
    test = compose(SPEC)
    queues = iter([f"q{number}" for number in range(SPEC.queues)])
    topics = iter([f"/topic/t{number}" for number in range(SPEC.queues)])
    with asyncio.Runner() as runner:
        environment = test.environment

        async def start():
            await environment.deploy(test.system, SPEC, test.nodes, tmp_path_factory.mktemp("run"))
            conforming = conformance.Conformance(test, lambda row: None)
            assert (await conforming._starts()).right
            talk = conforming._talk("a1", queues, topics)
            AT[:] = [talk.at]
            return talk

        try:
            talk = runner.run(start())
            yield lambda step, **changes: runner.run(_step(talk, step, changes))
        finally:
            runner.run(environment.teardown())


async def _step(talk, step, changes):
    dialect = {name: value for name, value in changes.items() if name in type(talk.dialect).__struct_fields__}
    promises = {name: value for name, value in changes.items() if name in Promises.__struct_fields__}
    for name in ("topics", "wishes"):
        if isinstance(changes.get(name), dict):
            dialect[name] = msgspec.structs.replace(getattr(talk.dialect, name), **changes[name])
    tried = Conversation(
        dialect=msgspec.structs.replace(talk.dialect, **dialect),
        promises=msgspec.structs.replace(talk.promises, **promises),
        at=talk.at,
        node=talk.node,
        queues=talk.queues,
        topics=talk.topics,
        browse=changes.get("browse", lambda of: of)(talk.browse),
    )
    return await talking.tried(step, "", getattr(tried, step))


def forgetting(browse):
    async def browsing():
        return [msgspec.structs.replace(stored, group=None) for stored in await browse()]

    return browsing


def eating(browse):
    """A browse that is a consumer."""
    browsing_dialect = OwnSystem.dialect

    async def browsing():
        found = await browse()
        for queue in {stored.queue for stored in found}:
            await Conversation(
                browsing_dialect, Promises(), AT[0], "a1", iter(()), iter(()), browse
            )._remaining(queue)
        return found

    return browsing


def hiding(browse):
    """Nothing is dead there."""

    async def browsing():
        return [stored for stored in await browse() if stored.store == "main"]

    return browsing


def untold(browse):
    """One that does not say where dead letters come from."""

    async def browsing():
        return [msgspec.structs.replace(one, origin=False) for one in await browse()]

    return browsing


def misplacing(browse):
    """Dead letters that come from elsewhere."""

    async def browsing():
        return [msgspec.structs.replace(one, queue="elsewhere") for one in await browse()]

    return browsing


AT = []
"""Where the broker is."""

WRONG = [
    ("connect", {"passcode": "wrong"}, "ERROR"),
    ("connect", {"name_header": "called"}, "None"),
    ("heart_beats", {"silent_beats": 0.05}, "longest silence"),
    ("sends", {"first_count": 0}, "no mark, 1"),
    ("sends", {"first_count": None}, "no mark, 1"),
    ("sends", {"count_header": "times"}, "no such header"),
    ("window", {"window_header": "credit"}, "SUBSCRIBE was answered ERROR"),
    ("groups", {"group_header": "group"}, "split"),
    ("redelivery", {"redelivered_header": "again", "count_header": None}, "no mark"),
    ("refuses", {"nack": "consume"}, "requeue"),
    ("refuses", {"nack": "dead-letter"}, "requeue"),
    ("browses", {"browse": forgetting}, "it shows"),
    ("browses", {"browse": eating}, "then nothing"),
    ("browses", {"queue": "/queue/x{}"}, "it shows"),
    ("dies", {"most_attempts": 2}, "it came again"),
    ("dies", {"browse": hiding}, "no dead letter"),
    ("dies", {"browse": misplacing}, "from elsewhere"),
    ("expires", {"wishes": {"expires": "ends"}}, "short, long"),
    ("delays", {"wishes": {"delay": "later"}}, "delivered after 0."),
    ("hurries", {"wishes": {"priority": "haste"}}, "low, urgent"),
    ("chooses", {"topics": {"selector": "where"}}, "red, green, blue; left: nothing"),
    ("follows", {"topics": {"destination": "/queue/{}"}}, "before, after"),
    ("outlives", {"topics": {"durable": {"name": "{}"}}}, "got nothing"),
    ("shares", {"topics": {"shared": {"name": "{}"}}}, "one got s1, s2, s3, s4, the other s1, s2"),
    ("selects", {"topics": {"selector": "where"}}, "red, green, blue"),
]


@pytest.mark.parametrize(
    ("step", "changes", "seen"), WRONG, ids=[f"{s}-{next(iter(c))}" for s, c, _ in WRONG]
)
def test_what_is_wrong_departs(broker, step, changes, seen):
    row = broker(step, **changes)
    assert row.state == "DEPARTS", row
    assert seen in row.seen


RIGHT = ["connect", "window", "groups", "redelivery", "acknowledges", "browses"]
RIGHT += ["dies", "commits", "aborts", "expires", "delays", "hurries", "chooses"]
RIGHT += ["follows", "outlives", "shares", "drops", "selects"]


@pytest.mark.parametrize("step", RIGHT)
def test_what_is_right_is_as_said(broker, step):
    row = broker(step)
    assert row.state == "as said", row


NOT_HAD = [
    ("expires", {"wishes": {"expires": None}}, "delivered after it: "),
    ("delays", {"wishes": {"delay": None}}, "they do it: delivered after 2."),
    ("hurries", {"wishes": {"priority": None}}, "they do it: in this order: urgent, low"),
    ("chooses", {"topics": None}, "they do it: got red, blue; left: green"),
    ("dies", {"browse": untold}, "1 dead, from nowhere told"),
    ("follows", {"topics": None}, "they do it: got after"),
    ("outlives", {"topics": {"durable": None}}, "not tried"),
    ("shares", {"topics": {"shared": None}}, "not tried"),
    ("drops", {"topics": {"durable": None, "shared": None}}, "not tried"),
    ("selects", {"topics": {"selector": None}}, "they do it: got red, blue"),
    ("dies", {"nack": "consume"}, "not tried"),
]


@pytest.mark.parametrize(
    ("step", "changes", "seen"), NOT_HAD, ids=[f"{s}-{next(iter(c))}" for s, c, _ in NOT_HAD]
)
def test_what_a_dialect_has_not_is_not_claimed_whatever_a_broker_does(broker, step, changes, seen):
    row = broker(step, **changes)
    assert (row.state, seen in row.seen) == ("not claimed", True), row


LIES = [
    ("commits", "COMMIT", "nothing before it, then nothing"),
    ("aborts", "ABORT", "left where it came from: nothing"),
    ("drops", "UNSUBSCRIBE", "made again it got before, after"),
]


@pytest.mark.parametrize(("step", "command", "seen"), LIES, ids=[step for step, *_ in LIES])
def test_a_broker_that_answers_and_does_nothing_departs(broker, monkeypatch, step, command, seen):
    """It gives a receipt, and carries nothing out; of an ABORT, the commit."""
    answered = talking.StompClient.ask

    async def lying(self, asked, *more, **headers):
        if asked != command:
            return await answered(self, asked, *more, **headers)
        if command == "ABORT":
            return await answered(self, "COMMIT", *more, **headers)
        return Frame("RECEIPT", {})

    monkeypatch.setattr(talking.StompClient, "ask", lying)
    row = broker(step)
    assert (row.state, seen in row.seen) == ("DEPARTS", True), row


def test_a_count_may_begin_with_the_second_delivery(broker):
    """As that of quorum queues does: there is no header before."""
    assert broker("sends", count_header="times", first_count=None).state == "as said"
    dialect = Dialect(count_header="times", first_count=None)
    assert [dialect.delivery(headers)[1] for headers in ({}, {"times": "1"}, {"times": "2"})] == [None, 2, 3]


def test_groups_that_nobody_promises_may_be_split(broker):
    row = broker("groups", group_header="group", groups=False)
    assert (row.state, "nothing is promised" in row.said, "split" in row.seen) == ("as said", True, True)


def test_a_promise_about_second_acknowledgements_can_be_broken(broker, monkeypatch):
    assert broker("acknowledges_twice").state == "as said"
    answered = talking.StompClient.ask

    async def always(self, command, *more, **headers):
        frame = await answered(self, command, *more, **headers)
        return Frame("RECEIPT", frame.headers) if command == "ACK" else frame

    monkeypatch.setattr(talking.StompClient, "ask", always, raising=True)
    assert broker("acknowledges_twice").state == "DEPARTS"
    assert broker("acknowledges_twice", refuses_stale_acks=False).state == "as said"


def test_what_cannot_be_tried_is_unknown_with_its_reason(broker):
    def broken(browse):
        async def browsing():
            raise OSError("no way to look")

        return browsing

    row = broker("browses", browse=broken)
    assert (row.state, row.seen) == ("unknown", "could not be tried: no way to look")


def test_a_broker_that_listens_a_moment_after_it_is_live_is_waited_for(broker, monkeypatch):
    opened, refused = talking.StompClient.open, iter(range(3))

    async def later(*words):
        if next(refused, None) is not None:
            raise ConnectionRefusedError(111, "Connect call failed")
        return await opened(*words)

    monkeypatch.setattr(talking.StompClient, "open", later)
    assert broker("connect").state == "as said"
    assert next(refused, None) is None
    monkeypatch.setattr(talking, "ANSWER_S", 0.3)
    refused = iter(range(1000))
    assert broker("connect").state == "unknown"


def test_who_is_not_let_in_at_once_under_its_name_comes_again(broker, monkeypatch):
    """A broker may take a client for there a moment longer, and refuse another of its name."""
    opened, refusals = talking.StompClient.open, iter(range(2))

    async def later(*words):
        client = await opened(*words)
        if words[-1] is not None and next(refusals, None) is not None:
            client.connected = Frame("ERROR", {"message": "in use"})
        return client

    monkeypatch.setattr(talking.StompClient, "open", later)
    assert broker("drops").state == "as said"
    assert next(refusals, None) is None


def test_what_a_broker_does_not_have_is_tried_too(broker):
    row = broker("window", window_header=None)
    assert (row.state, row.seen) == ("as said", "8 of 8 held")
    row = broker("heart_beats", heart_beat_s=0.0)
    assert (row.state, row.said) == ("DEPARTS", "no heart-beats")
    row = broker("refuses", nack="none")
    assert (row.state, row.seen) == ("DEPARTS", "requeue")


def test_a_command_says_it_as_a_table_and_a_status(tmp_path, capsys, monkeypatch):
    words = ["conformance", "--policy", "standalone", "--store", str(tmp_path), "--json"]
    assert cli.run(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in told} == {"as said"}
    assert [row["what"] for row in told][-3:] == ["stop", "restart", "kept over a restart"]
    [rows] = tmp_path.glob("*/2*/conformance.json")
    assert json.loads(rows.read_text()) == told
    assert cli.run(["summary", str(tmp_path)]) == 254, "no run, so none without a verdict"
    assert "has no history in it" in capsys.readouterr().err

    wrong = msgspec.structs.replace(OwnSystem.dialect, passcode="wrong")
    monkeypatch.setattr(OwnSystem, "dialect", wrong)
    assert cli.run(words) == 1
    told = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in told if row["what"] == "connect"] == ["DEPARTS"]
    assert {row["state"] for row in told if row["what"] in {"groups", "redelivery"}} == {"unknown"}


@pytest.mark.parametrize("lives", [True, False])
def test_what_a_restart_leaves_untried_is_named(lives):
    class Cluster(conformance.Conformance):
        starts = 0

        async def _starts(self):
            self.starts += 1
            return talking.StepResult("", "", right=lives or self.starts == 1)

        async def _stops(self):
            return talking.StepResult("", "", right=True)

        async def _live(self):
            return "a1" if self.starts == 1 else None

        def _talk(self, live, queues, topics):
            return Silent()

    class Silent:
        async def rows(self):
            return []

        async def prepare_restart(self):
            pass

    rows = asyncio.run(Cluster(None, lambda row: None).run([], []))
    assert [(row.what, row.state) for row in rows[-2:]] == [
        ("restart", "as said" if lives else "DEPARTS"),
        ("kept over a restart", "unknown"),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_cluster(tmp_path, number):
    class Interrupted(FakeEnvironment):
        async def deploy(self, *_):
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)

    environment = Interrupted()
    before = signal.signal(number, signal.SIG_DFL)  # whoever runs this under nohup ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            conform.tried(composition(environment), tmp_path, lambda row: None)
        assert environment.calls == ["collect", "teardown"]
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
