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
from harness.run.compose import compose
from harness.systems.own.system import OwnSystem
from stomp_protocol.frames import Frame

pytestmark = pytest.mark.cluster

SPEC = TestSpec(name="conformance", policy="standalone", pairs=1, environment="local", queues=60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all: ``ask(coroutine function of a Talk)`` on its loop."""
    test = compose(SPEC)
    queues = iter([f"q{number}" for number in range(SPEC.queues)])
    with asyncio.Runner() as runner:
        environment = test.environment

        async def start():
            await environment.deploy(test.system, SPEC, test.nodes, tmp_path_factory.mktemp("run"))
            conforming = conformance.Conformance(test, lambda row: None)
            assert (await conforming._starts()).right
            talk = conforming._talk("a1", queues)
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
    tried = conformance.Talk(
        dialect=msgspec.structs.replace(talk.dialect, **dialect),
        promises=msgspec.structs.replace(talk.promises, **promises),
        at=talk.at,
        node=talk.node,
        queues=talk.queues,
        browse=changes.get("browse", lambda of: of)(talk.browse),
    )
    return await conformance.tried(step, "", getattr(tried, step))


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
            await conformance.Talk(browsing_dialect, Promises(), AT[0], "a1", iter(()), browse)._left(queue)
        return found

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
]


@pytest.mark.parametrize(
    ("step", "changes", "seen"), WRONG, ids=[f"{s}-{next(iter(c))}" for s, c, _ in WRONG]
)
def test_what_is_wrong_departs(broker, step, changes, seen):
    row = broker(step, **changes)
    assert row.state == "DEPARTS", row
    assert seen in row.seen


@pytest.mark.parametrize("step", ["connect", "window", "groups", "redelivery", "acknowledges", "browses"])
def test_what_is_right_is_as_said(broker, step):
    row = broker(step)
    assert row.state == "as said", row


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
    answered = conformance.StompClient.ask

    async def always(self, command, *more, **headers):
        frame = await answered(self, command, *more, **headers)
        return Frame("RECEIPT", frame.headers) if command == "ACK" else frame

    monkeypatch.setattr(conformance.StompClient, "ask", always, raising=True)
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
    opened, refused = conformance.StompClient.open, iter(range(3))

    async def later(*words):
        if next(refused, None) is not None:
            raise ConnectionRefusedError(111, "Connect call failed")
        return await opened(*words)

    monkeypatch.setattr(conformance.StompClient, "open", later)
    assert broker("connect").state == "as said"
    assert next(refused, None) is None
    monkeypatch.setattr(conformance, "ANSWER_S", 0.3)
    refused = iter(range(1000))
    assert broker("connect").state == "unknown"


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
            return conformance.Seen("", "", right=lives or self.starts == 1)

        async def _stops(self):
            return conformance.Seen("", "", right=True)

        async def _live(self):
            return "a1" if self.starts == 1 else None

        def _talk(self, live, queues):
            return Silent()

    class Silent:
        async def rows(self):
            return []

        async def prepare_restart(self):
            pass

    rows = asyncio.run(Cluster(None, lambda row: None).run([]))
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
    with pytest.raises(KeyboardInterrupt):
        conform.tried(composition(environment), tmp_path, lambda row: None)
    assert environment.calls == ["collect", "teardown"]
    assert signal.getsignal(number) == signal.SIG_DFL
