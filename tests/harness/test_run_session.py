"""A test from its composition to its exit status, signals included.

The cluster is in memory and Spark is not started.
"""

import asyncio
import dataclasses
import errno
import io
import json
import os
import signal
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from fake_cluster import FakeEnvironment, FakeWorkload, composition

from checkers import api
from checkers.verdict import Finding, Statistics, Verdict, Witness
from harness.history import judge, parquet
from harness.history import store as stores
from harness.interface import InfrastructureError, UsageError
from harness.report.narrative import paragraphs
from harness.run import session


class NoSpark:
    stopped = False
    wanted = False

    def result(self, timeout_s=None):
        return None


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr(api, "start_in_background", lambda master=None, **_: NoSpark())
    monkeypatch.setattr(api, "start", lambda master=None: None)
    monkeypatch.setattr(api, "stop", lambda **_: setattr(NoSpark, "stopped", True))
    NoSpark.stopped = False


def deciding(monkeypatch, **fields):
    """Every history gets this verdict, but that trouble lets nothing be valid."""
    verdict = Verdict(**fields)

    def check(paths, options, spark):
        if options.trouble is None:
            return verdict
        reasons = (options.trouble, *verdict.reasons)
        return msgspec.structs.replace(verdict, valid=verdict.valid and None, reasons=reasons)

    monkeypatch.setattr(api, "check", check)
    return verdict


def test_what_cannot_be_judged_here_hides_no_trouble_of_the_machine(tmp_path, monkeypatch):
    def judged(*_, **__):
        raise InfrastructureError("no Java here")

    monkeypatch.setattr(judge, "judge", judged)
    test = composition(workload=FakeWorkload(silent=True), recovery_bound_s=0.3)
    outcome = session.execute(test, tmp_path, io.StringIO())
    assert outcome.status == judge.UNKNOWN
    first, second = Verdict.from_json((outcome.store / stores.FINDINGS).read_bytes()).reasons
    assert first.startswith("no operation of a client ended")
    assert second == "no Java here"


LOST = Finding(
    name="lost",
    severity="grave",
    count=3,
    sentence="3 messages were acknowledged and never delivered.",
    witness=Witness(
        indexes=(4,),
        rows=({"index": 4, "time": 1_500_000_000, "process": 0, "f": "send", "type": "ok", "message": 7},),
    ),
)


@pytest.mark.parametrize(
    ("valid", "status", "word"),
    [(True, 0, "VALID  fake"), (False, 1, "INVALID  fake: lost (3)"), (None, 2, "UNKNOWN  fake: too dark")],
)
def test_the_verdict_comes_first_and_decides_the_status(tmp_path, monkeypatch, valid, status, word):
    deciding(
        monkeypatch,
        valid=valid,
        findings=(LOST,) if valid is False else (),
        reasons=("too dark",) if valid is None else (),
    )
    talk = io.StringIO()
    outcome = session.execute(composition(), tmp_path, talk)
    assert outcome.status == status
    verdict_line = next(
        line for line in talk.getvalue().splitlines() if line.startswith(("VALID", "INVALID", "UNKNOWN"))
    )
    assert verdict_line.startswith(word)
    assert "Again    jepsen-run " in talk.getvalue()
    if valid is False:
        assert "#4 at 1.500 s: send ok, message 7" in talk.getvalue()


def test_a_story_is_told_and_one_that_cannot_be_told_changes_no_verdict(tmp_path, monkeypatch, capsys):
    deciding(monkeypatch, valid=False, findings=(LOST,), statistics=Statistics(rows=5))
    monkeypatch.setattr(paragraphs, "of_gravest", lambda *_: "Producer 1 sent it at 1.000 s.")
    talk = io.StringIO()
    session.execute(composition(), tmp_path, talk)
    assert "  Producer 1 sent it at 1.000 s.\n" in talk.getvalue()

    monkeypatch.setattr(paragraphs, "of_gravest", lambda *_: 1 // 0)
    talk = io.StringIO()
    outcome = session.execute(composition(), tmp_path, talk)
    assert outcome.status == 1
    assert "INVALID  fake: lost (3)" in talk.getvalue()
    assert "the story could not be told: ZeroDivisionError" in capsys.readouterr().err


def test_the_run_says_what_the_wall_clock_was_when_its_clock_began(tmp_path, monkeypatch):
    deciding(monkeypatch, valid=True)
    before = datetime.now(UTC)
    outcome = session.execute(composition(), tmp_path, io.StringIO())
    zero = datetime.fromisoformat(stores.load_run(outcome.store).zero)
    assert before <= zero <= datetime.now(UTC)


def test_everything_a_reader_needs_is_in_the_store(tmp_path, monkeypatch):
    deciding(monkeypatch, valid=True)
    outcome = session.execute(composition(), tmp_path, io.StringIO())
    store = outcome.store
    assert stores.find(tmp_path) == [store]
    assert (tmp_path / "latest").resolve() == store.resolve()
    assert stores.load_spec(store).name == "fake"
    assert stores.load_schedule(store).faults == ()
    assert Verdict.from_json((store / stores.FINDINGS).read_bytes()).valid is True
    assert (store / "logs" / "a1" / "broker.log").is_file()
    assert parquet.complete_files(store) is not None
    record = stores.load_run(store)
    assert record.state == "ended"
    assert record.trouble is None
    assert record.again.startswith("jepsen-run ")


def test_the_machines_fault_is_unknown_with_the_cause_first(tmp_path, monkeypatch):
    deciding(monkeypatch, valid=True)
    environment = FakeEnvironment(fails="deploy")
    talk = io.StringIO()
    outcome = session.execute(composition(environment), tmp_path, talk)
    assert outcome.status == 2
    assert "UNKNOWN  fake: deploy did not work: no disk" in talk.getvalue()
    assert environment.calls[-1] == "teardown"
    stored = Verdict.from_json((outcome.store / stores.FINDINGS).read_bytes())
    assert (stored.valid, stored.reasons) == (None, ("deploy did not work: no disk",))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_what_the_machine_ran_out_of_is_no_bug_of_ours(tmp_path, monkeypatch, capsys, number):
    async def crash(context):
        raise RuntimeError("wrapped") from OSError(number, os.strerror(number))

    deciding(monkeypatch, valid=True)
    talk = io.StringIO()
    outcome = session.execute(composition(FakeEnvironment(), FakeWorkload(crash)), tmp_path, talk)
    assert outcome.status == judge.UNKNOWN
    assert f"UNKNOWN  fake: {os.strerror(number)}: " in talk.getvalue()
    assert "Traceback" not in capsys.readouterr().err
    assert outcome.verdict.reasons[0] == stores.load_run(outcome.store).trouble


def test_a_history_for_which_the_disk_has_no_room_is_unknown(tmp_path, monkeypatch):
    def write(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(session.StreamRecorder, "finish", write)
    monkeypatch.setattr(session.stores, "has_history", lambda store: False)
    monkeypatch.setattr(api, "check", None)
    talk = io.StringIO()
    outcome = session.execute(composition(FakeEnvironment()), tmp_path, talk)
    assert outcome.status == judge.UNKNOWN
    (reason,) = outcome.verdict.reasons
    assert "No space left" in reason


def test_a_bug_of_ours_is_255_and_the_history_is_kept(tmp_path, monkeypatch, capsys):
    async def crash(context):
        raise ZeroDivisionError("a bug")

    environment = FakeEnvironment()
    outcome = session.execute(composition(environment, FakeWorkload(crash)), tmp_path, io.StringIO())
    assert outcome.status == 255
    assert outcome.verdict is None
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
    assert "ZeroDivisionError" in (outcome.store / "logs" / "harness.log").read_text()
    assert environment.calls[-1] == "teardown"
    assert parquet.complete_files(outcome.store) is not None
    assert stores.load_run(outcome.store).state == "failed"


def test_a_checker_that_crashes_is_our_bug_and_the_cluster_is_removed(tmp_path, monkeypatch, capsys):
    def crash(paths, options, spark):
        raise ZeroDivisionError("in the judge")

    monkeypatch.setattr(api, "check", crash)
    environment = FakeEnvironment()
    assert session.execute(composition(environment), tmp_path, io.StringIO()).status == 255
    assert environment.calls[-1] == "teardown"
    assert "in the judge" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_heals_removes_and_keeps_the_history(tmp_path, monkeypatch, number):
    deciding(monkeypatch, valid=True)

    async def interrupt(context):
        if context.counters.get("ok") == 10:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.1)

    environment = FakeEnvironment()
    talk = io.StringIO()
    outcome = session.execute(
        composition(environment, FakeWorkload(interrupt), time_limit_s=60.0), tmp_path, talk
    )
    assert outcome.status == 130
    assert environment.calls[-3:] == ["heal_all", "collect", "teardown"]
    assert f"jepsen-run check {outcome.store}" in talk.getvalue()
    assert stores.load_run(outcome.store).state == "interrupted"
    assert NoSpark.stopped
    assert judge.judge(outcome.store, lambda: None).valid is None, "an interrupted run is never valid"


def test_a_run_under_nohup_outlives_its_terminal(tmp_path, monkeypatch):
    deciding(monkeypatch, valid=True)

    async def hang_up(context):
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outcome = session.execute(composition(workload=FakeWorkload(hang_up)), tmp_path, io.StringIO())
        assert outcome.status == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_faults_that_a_run_was_given_are_in_the_line_that_repeats_it_later(tmp_path, monkeypatch, capsys):
    deciding(monkeypatch, valid=True)
    given = dataclasses.replace(composition(), given_schedule="mine.json")
    outcome = session.execute(given, tmp_path, io.StringIO())
    (own := tmp_path / "own").mkdir()
    drawn = session.execute(composition(), own, io.StringIO())
    session.check([outcome.store], changes={})
    assert f"--schedule {outcome.store / stores.SCHEDULE}" in capsys.readouterr().out
    session.check([outcome.store], changes={"guarantee": "exactly-once"}, as_json=True)
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    assert told["again"].endswith(f"--schedule {outcome.store / stores.SCHEDULE}")
    session.check([drawn.store], changes={})
    assert "--schedule" not in capsys.readouterr().out


def test_a_verdict_by_another_guarantee_names_no_report_and_how_it_comes_again(tmp_path, monkeypatch, capsys):
    deciding(monkeypatch, valid=True)
    store = session.execute(composition(), tmp_path, io.StringIO()).store
    session.check([store], changes={"guarantee": None, "ordered": None})
    assert f"Report   {store / stores.REPORT}" in capsys.readouterr().out
    session.check([store], changes={"guarantee": "exactly-once", "ordered": False})
    told = capsys.readouterr().out
    assert "Report" not in told
    assert f"Judge    jepsen-run check {store} --guarantee exactly-once --unordered\n" in told


def test_a_run_that_is_named_twice_is_judged_once(tmp_path, monkeypatch, capsys):
    deciding(monkeypatch, valid=True)
    outcome = session.execute(composition(), tmp_path, io.StringIO())
    parent = outcome.store.parent
    assert session.check([outcome.store, parent / "latest", parent], changes={}) == 0
    assert capsys.readouterr().out.count("VALID  fake") == 1


def test_when_a_run_is_over_signals_do_what_they_did_before(tmp_path, monkeypatch):
    deciding(monkeypatch, valid=True)
    session.execute(composition(FakeEnvironment()), tmp_path, io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_second_signal_ends_at_once(tmp_path, monkeypatch):
    class Ended(BaseException):
        pass

    def leave(status):
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", leave)
    attempt = session._Attempt(composition(), tmp_path, NoSpark(), _Notes(), io.StringIO())

    async def main():
        task = asyncio.create_task(asyncio.sleep(60))
        attempt._interrupt(task)
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        with pytest.raises(Ended, match="130"):
            attempt._interrupt(task)

    asyncio.run(main())
    assert "jepsen-run clean" in attempt.progress.told[-1]


class _Notes:
    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)

    warn = note


def test_a_report_that_fails_changes_nothing(tmp_path, monkeypatch, capsys):
    import harness.report.html

    def crash(store):
        raise ZeroDivisionError("a pen broke:\nin two")

    deciding(monkeypatch, valid=True)
    monkeypatch.setattr(harness.report.html, "write", crash)
    assert session.execute(composition(), tmp_path, io.StringIO()).status == 0
    assert capsys.readouterr().err == "report was not written: ZeroDivisionError: a pen broke\n"


def test_a_cluster_that_cannot_be_removed_is_told(tmp_path, monkeypatch, capsys):
    class Stuck(FakeEnvironment):
        async def teardown(self):
            raise OSError("a mount is busy")

    deciding(monkeypatch, valid=True)
    assert session.execute(composition(Stuck()), tmp_path, io.StringIO()).status == 0
    assert "a mount is busy" in capsys.readouterr().err


def stored_run(tmp_path, monkeypatch, valid=True):
    deciding(monkeypatch, valid=valid)
    return session.execute(composition(), tmp_path, io.StringIO()).store


def test_check_judges_again_and_a_batch_ends_with_the_gravest(tmp_path, monkeypatch, capsys):
    stored_run(tmp_path, monkeypatch)
    bad = stored_run(tmp_path, monkeypatch)
    (bad / "history" / "_complete.json").unlink()
    capsys.readouterr()
    assert session.check([tmp_path], changes={}) == 254
    captured = capsys.readouterr()
    assert "VALID  fake" in captured.out
    assert f"{bad} has no history" in captured.err
    deciding(monkeypatch, valid=False, findings=(LOST,))
    assert session.check([tmp_path], changes={}) == 1
    assert "2 runs: 1 invalid, 1 unusable" in capsys.readouterr().out


def test_check_as_json_is_one_document(tmp_path, monkeypatch, capsys):
    store = stored_run(tmp_path, monkeypatch)
    capsys.readouterr()
    assert session.check([store], changes={}, as_json=True) == 0
    captured = capsys.readouterr()
    document = msgspec.json.decode(captured.out)
    assert document["exit-status"] == 0
    assert document["runs"][0]["verdict"]["valid"] is True
    assert "VALID" in captured.err


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_of_runs_is_judged_and_nothing_in_them_is_changed(tmp_path, monkeypatch, capsys):
    one, two = (
        stored_run(tmp_path / "store" / "a", monkeypatch),
        stored_run(tmp_path / "store" / "b", monkeypatch),
    )
    deciding(monkeypatch, valid=False, findings=(LOST,))
    before = contents(tmp_path)
    capsys.readouterr()
    assert session.check([tmp_path / "store"], changes={}) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"{tmp_path}/store contains 2 runs ({one.relative_to(tmp_path / 'store')}, " in told
    assert "2 runs: 2 invalid" in told
    assert "Report" not in told
    pages = {
        root / name for root in (one.parents[1], two.parents[1]) for name in ("index.html", "index.json")
    }
    assert contents(tmp_path) == before
    assert session.check([tmp_path / "store", one], changes={}) == 1
    changed = {path for path, content in contents(tmp_path).items() if content != before.get(path)} - pages
    assert {path.parent for path in changed} == {one}
    assert changed >= {one / stores.FINDINGS}
    assert two.is_dir()


def test_of_a_killed_run_that_a_directory_holds_nothing_is_put_together(tmp_path, monkeypatch, capsys):
    store = stored_run(tmp_path / "store", monkeypatch)
    (store / stores.STREAM).write_bytes(b"")
    (store / "history" / "_complete.json").unlink()
    before = contents(tmp_path)
    assert session.check([tmp_path / "store"], changes={}) == 254
    assert f"{store}: this run was killed" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_check_by_another_guarantee_leaves_the_stored_verdict(tmp_path, monkeypatch):
    store = stored_run(tmp_path, monkeypatch)
    asked = []

    def check(paths, options, spark):
        asked.append(options)
        return Verdict(valid=False, findings=(LOST,))

    monkeypatch.setattr(api, "check", check)
    assert session.check([store], changes={"guarantee": "exactly-once", "ordered": False}) == 1
    assert (asked[0].guarantee, asked[0].ordered) == ("exactly-once", False)
    assert Verdict.from_json((store / stores.FINDINGS).read_bytes()).valid is True


def test_a_run_that_is_still_going_on_is_left_alone(tmp_path, monkeypatch):
    store = stored_run(tmp_path, monkeypatch)
    record = stores.load_run(store)
    record.state = "running"
    stores.save(store, stores.RUN, record)
    with pytest.raises(UsageError, match="still running; wait for its end or stop it"):
        judge.judge(store, lambda: None)


def test_a_killed_run_is_judged_as_far_as_it_got_and_never_valid(tmp_path, monkeypatch):
    store = stored_run(tmp_path, monkeypatch)
    record = stores.load_run(store)
    record.state = "running"
    record.process = None
    stores.save(store, stores.RUN, record)
    verdict = judge.judge(store, lambda: None)
    assert verdict.valid is None
    assert "killed" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("place", "answer", "engine"),
    [
        ("docker", (True, "Docker 30 (linux/amd64)"), "Docker 30 (linux/amd64)"),
        ("docker", (False, "no engine answers"), None),
        ("local", (True, "Docker 30 (linux/amd64)"), None),
    ],
)
def test_a_run_in_containers_records_the_version_of_the_engine(monkeypatch, place, answer, engine):
    monkeypatch.setattr("environments.docker.engine.engine_answers", lambda: answer)
    test = SimpleNamespace(system=None, environment=SimpleNamespace(name=place))
    assert session._versions(test).get("engine") == engine
