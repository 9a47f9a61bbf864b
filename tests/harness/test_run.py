"""A run: its phases, and how each kind of trouble ends it.

The cluster is in memory; the recorder and the files are real.
"""

import asyncio
import dataclasses
import errno

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_cluster import FakeEnvironment, FakeWorkload, SilentProgress, composition

import nemesis.schedule
from harness.history import parquet
from harness.history import store as stores
from harness.history.recorder import StreamRecorder, recover
from harness.history.rows import MemoryRecorder
from harness.interface import Fault, InfrastructureError, Patience, Schedule, StoredMessage, TestSpec
from harness.run import run as running
from harness.run.compose import compose
from harness.run.run import Run, gravest
from workloads.payload import Payload, decode, digest, encode


def conduct(tmp_path, test, *, meanwhile=None):
    """Run to the end; returns (Run, rows of the history as dicts)."""
    store = stores.create(tmp_path, test.spec.name)
    life = Run(test, store, SilentProgress(), StreamRecorder(store))

    async def main():
        task = asyncio.create_task(life.conduct())
        if meanwhile is not None:
            waiting = asyncio.create_task(meanwhile(task, life))
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
            waiting.cancel()  # a run that has ended by itself never becomes what is waited for
        await task

    asyncio.run(main())
    return life, rows(store)


def rows(store):
    return pa.concat_tables([pq.read_table(file) for file in recover(store)]).sort_by("index").to_pylist()


def phases(history):
    return [row["value"] for row in history if row["f"] == "phase"]


def test_the_phases_of_a_quiet_test(tmp_path):
    test = composition()
    _, history = conduct(tmp_path, test)
    assert phases(history) == ["deploy", "start", "load", "heal", "recovered", "drain", "browse", "end"]
    assert test.workload.drained
    assert [row["index"] for row in history] == list(range(len(history)))
    assert {row["role"] for row in history if row["f"] == "role"} == {"live", "backup"}


def test_a_store_that_was_read_completely_says_so(tmp_path):
    _, history = conduct(tmp_path, composition())
    assert [(row["type"], row["broker"], row["message"]) for row in history if row["f"] == "browse"] == [
        ("ok", "a1", None)
    ]


def test_a_body_that_is_not_ours_is_told_and_not_lost(tmp_path):
    foreign = StoredMessage(store="main", queue="q0", group=None, body=b"not ours")
    _, history = conduct(tmp_path, composition(stored=[foreign]))
    found = [row for row in history if row["f"] == "browse" and row["error"] is not None]
    assert len(found) == 1
    assert found[0]["value"] == "main"
    assert found[0]["message"] is None


def test_a_broker_that_dies_is_a_role_and_is_started_again_by_the_healing(tmp_path):
    lives = []

    class Unhurried(FakeEnvironment):
        """Starts nothing again before the monitor has seen that it was gone."""

        async def start(self, node):
            while lives and lives[0]._roles()[node] != "stopped":
                await asyncio.sleep(0.01)
            await super().start(node)

    environment = Unhurried()

    async def die(context):
        environment.up.discard("a2")
        workload.misbehave = None

    async def hold_on_to(task, life):
        while life._phase != "load":
            await asyncio.sleep(0.001)
        lives.append(life)

    workload = FakeWorkload(die)
    _, history = conduct(tmp_path, composition(environment, workload), meanwhile=hold_on_to)
    roles = [row["role"] for row in history if row["f"] == "role" and row["broker"] == "a2"]
    assert roles == ["backup", "stopped", "backup"]
    assert "end" in phases(history)


def test_a_failback_that_is_under_way_is_waited_for(tmp_path):
    """The live refuses once, because it hands over; the store of the next live is what counts."""
    environment = FakeEnvironment()
    test = composition(environment)
    real = test.system.browse
    asked = []

    async def hands_over(admin):
        asked.append(admin.host)
        if admin.host == "a1":
            environment.roles.update(a1="backup", a2="live")
            environment.epochs.update(a1=2, a2=2)
            raise OSError("a1 is not live")
        return await real(admin)

    test.system.browse = hands_over
    _, history = conduct(tmp_path, test)
    assert asked[0] == "a1"
    assert asked[-1] == "a2"
    assert [(row["type"], row["broker"]) for row in history if row["f"] == "browse"] == [("ok", "a2")]


def test_a_store_that_stays_closed_is_told(tmp_path):
    test = composition()
    test.system.patience = Patience(vacancy_s=0.3)

    async def refuse(admin):
        raise OSError("the disk is gone")

    test.system.browse = refuse
    _, history = conduct(tmp_path, test)
    assert [(row["type"], row["broker"], row["error"]) for row in history if row["f"] == "browse"] == [
        ("info", "a1", "the disk is gone")
    ]


def test_without_a_live_broker_the_end_says_not_recovered_and_that_stores_are_unread(tmp_path):
    environment = FakeEnvironment()

    async def demote(context):
        environment.roles["a1"] = "backup"
        environment.epochs["a1"] = 2

    test = composition(environment, FakeWorkload(demote), recovery_bound_s=0.3)
    test.system.patience = Patience(vacancy_s=0.3)
    _, history = conduct(tmp_path, test)
    assert "not-recovered" in phases(history)
    unread = [row for row in history if row["f"] == "browse"]
    assert {(row["type"], row["broker"]) for row in unread} == {("info", "a1"), ("info", "a2")}
    assert all("no live broker" in row["error"] for row in unread)


def test_clients_that_never_succeed_again_are_not_recovered(tmp_path):
    workload = FakeWorkload(silent=True, fails=1)
    _, history = conduct(tmp_path, composition(workload=workload, recovery_bound_s=0.3))
    assert "not-recovered" in phases(history)


def test_clients_that_never_tried_accuse_nobody_and_prove_no_recovery(tmp_path):
    life, history = conduct(tmp_path, composition(workload=FakeWorkload(silent=True), recovery_bound_s=0.3))
    assert phases(history) == ["deploy", "start", "load", "heal", "drain", "browse", "end"]
    assert "no operation of a client ended while the cluster was given time to recover" in life.trouble


def test_a_deployment_that_fails_is_the_machines_fault(tmp_path):
    environment = FakeEnvironment(fails="deploy")
    with pytest.raises(InfrastructureError, match="deploy did not work: no disk"):
        conduct(tmp_path, composition(environment))
    assert "heal_all" in environment.calls


def test_a_fault_that_the_machines_cannot_make_once_deployed_is_named_before_any_broker_starts(tmp_path):
    """What a kernel elsewhere can do is known when it has been reached."""

    class Elsewhere(FakeEnvironment):
        def supports(self):
            answers = super().supports()
            return {**answers, "slow": "no sch_netem" if "deploy" in self.calls else ""}

    environment = Elsewhere()
    slow = Fault(kind="slow", start_s=0.1, duration_s=0.1, shape="pair-link")
    test = composition(environment, faults=[slow])
    nemesis.schedule.validate(test.schedule, environment.supports(), test.nodes)
    with pytest.raises(InfrastructureError, match=r"fault 1 \(slow\): this environment.*: no sch_netem"):
        conduct(tmp_path, test)
    assert environment.calls == ["deploy", "heal_all"]


def test_a_broker_that_ends_while_starting_is_named_with_its_last_words(tmp_path):
    class Dies(FakeEnvironment):
        async def start(self, node):
            if node == "a2":
                self.up.add(node)

    with pytest.raises(InfrastructureError) as ended:
        conduct(tmp_path, composition(Dies()))
    assert "broker a1 ended while it started (exit status 1)" in str(ended.value)
    assert "the port is in use" in str(ended.value)


def test_a_pair_that_never_gets_its_backup_is_named(tmp_path):
    test = composition(FakeEnvironment(roles={"a1": "live", "a2": "synchronizing"}))
    test.system.patience = Patience(start_s=2.0)
    with pytest.raises(
        InfrastructureError,
        match="after 2 s pair a has no up-to-date backup; roles: a1 live, a2 synchronizing",
    ):
        conduct(tmp_path, test)


SUSPENDING = Fault(kind="late-start", start_s=0, duration_s=0.1, target="a2", options={"suspends": ["a1"]})


def test_the_load_begins_where_a_broker_is_suspended_until_another_starts(tmp_path):
    class Waits(FakeEnvironment):
        async def start(self, node):
            await super().start(node)
            if node == "a2":
                self.roles["a1"] = "live"

    seen_s = []

    async def look(context):
        seen_s.append(context.suspended_s)

    environment = Waits(roles={"a1": "suspended", "a2": "backup"})
    test = composition(environment, FakeWorkload(look), faults=[SUSPENDING])
    _, history = conduct(tmp_path, test)
    assert "recovered" in phases(history)
    assert set(seen_s) == {0.1 + test.system.patience.start_s}


@pytest.mark.parametrize("suspending", [True, False])
def test_a_broker_that_is_not_suspended_as_expected_ends_the_run(tmp_path, suspending):
    role = "starting" if suspending else "suspended"
    late = SUSPENDING if suspending else Fault(kind="late-start", start_s=0, duration_s=0.1, target="a2")
    test = composition(FakeEnvironment(roles={"a1": role, "a2": "backup"}), faults=[late])
    test.system.patience = Patience(start_s=0.2)
    words = "a1 is not suspended, and pair a" if suspending else "pair a"
    with pytest.raises(
        InfrastructureError, match=f"after 0.2 s {words} has no live broker; roles: a1 {role}"
    ):
        conduct(tmp_path, test)


def test_a_bug_in_the_workload_goes_to_the_top_and_the_history_is_kept(tmp_path):
    async def crash(context):
        if context.counters.get("ok", 0) == 10:
            raise ZeroDivisionError("a bug")

    environment = FakeEnvironment()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        conduct(tmp_path, composition(environment, FakeWorkload(crash), time_limit_s=60.0))
    assert environment.calls[-1] == "heal_all"
    history = rows(stores.find(tmp_path)[0])
    assert sum(row["f"] == "send" and row["type"] == "ok" for row in history) == 5


def test_a_workload_that_does_not_stop_is_a_bug(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "STOP_S", 0.1)

    class Deaf(FakeWorkload):
        async def run(self, context):
            context.counters["ok"] = 1
            while True:
                await asyncio.sleep(0.01)
                context.counters["ok"] += 1

    with pytest.raises(RuntimeError, match="the workload did not stop"):
        conduct(tmp_path, composition(workload=Deaf(), operation_timeout_s=0.1))


def test_a_drain_without_end_is_trouble_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "DRAIN_S", 0.2)

    class Endless(FakeWorkload):
        async def drain(self, context):
            await asyncio.sleep(60)

    life, history = conduct(tmp_path, composition(workload=Endless()))
    assert "could not be drained" in life.trouble
    assert phases(history)[-1] == "end"


@pytest.mark.parametrize("store", ["main", "store-and-forward"])
@pytest.mark.parametrize(("delivers_in", "drains"), [(1, 1), (3, 3), (5, 5), (99, running.IDLE_DRAINS)])
def test_what_is_still_stored_is_drained_again_until_nobody_gets_it(
    tmp_path, monkeypatch, delivers_in, drains, store
):
    """A broker of a busy machine delivers after the quiet period; a drain that brings something on
    counts anew.
    """
    monkeypatch.setattr(running, "LATE_S", 0.0)
    monkeypatch.setattr(running, "FORWARDED_S", 0.0)
    body = encode(Payload(message=1, producer=0, sequence=0, queue="q0", group="g0"))
    stored = StoredMessage(store=store, queue="q0", group="g0", body=body)

    class Late(FakeWorkload):
        times = 0

        async def drain(self, context):
            self.times += 1
            await asyncio.sleep(0.03)  # four of them take longer than the redelivery delay
            if self.times == 3 < delivers_in < 99:
                context.counters["deliver"] = 1
            if self.times == delivers_in:
                test.system.stored.clear()

    test = composition(workload=Late(), stored=[stored])
    _, history = conduct(tmp_path, test)
    assert test.workload.times == drains
    left = [row for row in history if row["f"] == "browse" and row["message"] is not None]
    assert bool(left) is (delivers_in == 99)


@pytest.mark.parametrize(("store", "drains"), [("main", running.IDLE_DRAINS), ("store-and-forward", 7)])
def test_a_message_on_its_way_to_another_broker_has_more_time(tmp_path, monkeypatch, store, drains):
    monkeypatch.setattr(running, "LATE_S", 0.0)
    monkeypatch.setattr(running, "FORWARDED_S", 60.0)
    body = encode(Payload(message=1, producer=0, sequence=0, queue="q0", group="g0"))

    class Late(FakeWorkload):
        times = 0

        async def drain(self, context):
            self.times += 1
            await asyncio.sleep(0.03)
            if self.times == 7:
                test.system.stored.clear()

    stored = StoredMessage(store=store, queue="q0", group="g0", body=body)
    test = composition(workload=Late(), stored=[stored])
    conduct(tmp_path, test)
    assert test.workload.times == drains


@pytest.mark.parametrize("silent", ["its stores", "altogether"])
def test_a_store_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path, silent):
    """The broker that delivers late is as late with what else it is asked."""
    body = encode(Payload(message=1, producer=0, sequence=0, queue="q0", group="g0"))
    stored = [StoredMessage(store="main", queue="q0", group="g0", body=body)]

    class Late(FakeWorkload):
        times = 0

        async def drain(self, context):
            self.times += 1
            busy = self.times < 3
            if not busy:
                stored.clear()
            if silent == "altogether":
                environment.roles["a1"] = "" if busy else "live"
                await seen(lives[0], "a1", "unreachable" if busy else "live")

    async def browse(admin):
        if workload.times < 3:
            raise TimeoutError
        return stored

    async def status(admin):
        if not environment.roles[admin.host]:
            raise TimeoutError
        return await answer(admin)

    async def seen(life, node, role):
        while life._roles()[node] != role:
            await asyncio.sleep(0.01)

    async def hold_on_to(task, life):
        lives.append(life)

    lives = []
    environment, workload = FakeEnvironment(), Late()
    test = composition(environment, workload)
    answer = test.system.status
    test.system.status, test.system.browse = status, browse
    conduct(tmp_path, test, meanwhile=hold_on_to)
    assert workload.times == 3


def test_an_interruption_heals_and_keeps_the_history(tmp_path):
    environment = FakeEnvironment()

    async def interrupt(task, life):
        while not life.loaded:
            await asyncio.sleep(0.01)
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        conduct(tmp_path, composition(environment, time_limit_s=60.0), meanwhile=interrupt)
    assert environment.calls[-1] == "heal_all"
    assert "load" in phases(rows(stores.find(tmp_path)[0]))


def test_a_full_disk_ends_the_run_as_the_machines_fault(tmp_path, monkeypatch):
    real = StreamRecorder._append
    full = False

    def write(self, chunk):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, chunk)

    async def fill(context):
        nonlocal full
        full = context.counters.get("ok", 0) > 10

    monkeypatch.setattr(StreamRecorder, "_append", write)
    with pytest.raises(InfrastructureError, match="No space left on device.*are not on disk"):
        conduct(tmp_path, composition(workload=FakeWorkload(fill), time_limit_s=60.0))


def test_a_full_disk_at_the_end_hides_no_bug(tmp_path, monkeypatch):
    real = StreamRecorder._append
    full = False

    def write(self, chunk):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, chunk)

    async def crash(context):
        nonlocal full
        if context.counters.get("ok", 0) > 10:
            full = True
            raise ZeroDivisionError("a bug")

    monkeypatch.setattr(StreamRecorder, "_append", write)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        conduct(tmp_path, composition(workload=FakeWorkload(crash), time_limit_s=60.0))


def test_the_gravest_of_several_exceptions_decides():
    machine, bug = InfrastructureError("machine"), ValueError("bug")
    assert gravest(BaseExceptionGroup("", [asyncio.CancelledError(), machine])) is machine
    assert gravest(BaseExceptionGroup("", [machine, BaseExceptionGroup("", [bug])])) is bug
    assert gravest(bug) is bug


def test_the_history_is_complete_when_the_run_has_ended(tmp_path):
    life, _ = conduct(tmp_path, composition())
    assert parquet.complete_files(life.store) is not None


def ended_by_itself(tmp_path, in_force, faults=()):
    """A test in whose load a2 ends by itself, once it runs.

    Whether it was started again before the load ended.
    """
    environment = FakeEnvironment()
    test = dataclasses.replace(composition(environment, time_limit_s=3.0), schedule=Schedule(faults=faults))

    async def end_one(task, life):
        while life._phase != "load" or "a2" not in environment.up or life._in_force:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1 if faults else 0)
        if in_force:
            life._in_force["kill-1"] = "kill b1"
        environment.up.discard("a2")

    _, history = conduct(tmp_path, test, meanwhile=end_one)
    names = [
        row["value"] or f"{row['f']} {row['broker']}" for row in history if row["f"] in {"phase", "restart"}
    ]
    return "restart a2" in names[: names.index("heal")]


@pytest.fixture
def soon(monkeypatch):
    """The supervisor needs a small part of the load's time."""
    monkeypatch.setattr(running, "RESTART_AFTER_S", 0.2)


@pytest.mark.usefixtures("soon")
def test_a_broker_that_ended_by_itself_is_started_again_when_no_fault_is_in_force(tmp_path):
    assert ended_by_itself(tmp_path, in_force=False)


@pytest.mark.usefixtures("soon")
def test_a_broker_that_was_started_late_and_ended_by_itself_is_started_again_too(tmp_path):
    late = Fault(kind="late-start", start_s=0, duration_s=0.3, target="a2")
    assert ended_by_itself(tmp_path, in_force=False, faults=(late,))


@pytest.mark.usefixtures("soon")
def test_a_broker_that_ended_by_itself_stays_away_while_a_fault_is_in_force(tmp_path):
    assert not ended_by_itself(tmp_path, in_force=True)


@pytest.mark.usefixtures("soon")
def test_a_broker_that_a_fault_ends_while_it_is_looked_at_is_not_started_again(tmp_path):
    class Slow(FakeEnvironment):
        """A kill begins after it is seen that no fault is in force, and before the answer."""

        async def running(self, node):
            if node == "a2" and lives and lives[0]._phase == "load":
                lives[0]._in_force["kill-1"] = "kill a2"
                self.up.discard("a2")
            return await super().running(node)

    lives = []

    async def hold_on_to(task, life):
        lives.append(life)

    _, history = conduct(tmp_path, composition(Slow(), time_limit_s=1.5), meanwhile=hold_on_to)
    assert "kill-1" in lives[0]._in_force, "the supervisor did not look"
    assert not [row for row in history if row["f"] == "restart"]


def test_who_is_interrupted_while_something_beside_ends_is_interrupted():
    async def slow_to_end():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            ended.append(True)

    async def phases():
        async with running._background(slow_to_end(), "slow"):
            await asyncio.sleep(0)
            leaving.set()
        await asyncio.sleep(60)

    async def main():
        work = asyncio.create_task(phases())
        await leaving.wait()
        await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(work, 30)
        assert work.cancelled()

    ended = []
    leaving = asyncio.Event()
    asyncio.run(main())
    assert ended == [True]


def test_a_full_disk_while_everything_is_healed_is_the_machines_fault(tmp_path, monkeypatch):
    """Nobody watches the recorder any more then."""
    full = False

    class Healing(FakeEnvironment):
        async def heal_all(self):
            nonlocal full
            await super().heal_all()
            if lives[0]._phase == "end":
                full = True
                lives[0].recorder.event(-3, "info", "phase", value="end")
                await asyncio.sleep(0.6)

    real = StreamRecorder._append

    def write(self, chunk):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, chunk)

    async def hold_on_to(task, life):
        lives.append(life)

    lives = []
    monkeypatch.setattr(StreamRecorder, "_append", write)
    with pytest.raises(InfrastructureError, match="No space left on device.*are not on disk"):
        conduct(tmp_path, composition(Healing()), meanwhile=hold_on_to)


def test_a_drain_that_takes_too_long_hides_no_other_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "DRAIN_S", 0.05)

    class Endless(FakeWorkload):
        async def drain(self, context):
            lives[0].trouble = "kill-1 was not injected"
            await asyncio.sleep(60)

    async def hold_on_to(task, life):
        lives.append(life)

    lives = []
    life, _ = conduct(tmp_path, composition(workload=Endless()), meanwhile=hold_on_to)
    assert "kill-1 was not injected; the queues could not be drained" in life.trouble


@pytest.mark.usefixtures("soon")
def test_a_broker_that_ends_by_itself_just_after_the_healing_is_started_again(tmp_path):
    """A live that lost its vote under the last fault says so late.

    Without somebody to start it no recovery could come.
    """

    class EndsLate(FakeEnvironment):
        healed = ended = False

        async def heal_all(self):
            await super().heal_all()
            self.healed = True

        async def running(self, node):
            was_up = await super().running(node)
            if self.healed and node == "a1" and not self.ended:
                self.ended = True
                self.up.discard("a1")
            return was_up

    environment = EndsLate()

    async def fail_without_a_live(context):
        workload.silent = environment.healed and "a1" not in environment.up

    workload = FakeWorkload(fail_without_a_live, fails=1)
    _, history = conduct(tmp_path, composition(environment, workload, recovery_bound_s=60.0))
    assert environment.ended
    assert "recovered" in phases(history)
    assert [row["broker"] for row in history if row["f"] == "restart"] == ["a1"]


def test_stores_that_have_a_message_twice_are_read_again(tmp_path):
    """One reading decides nothing: the message may have been moving."""
    body = encode(Payload(7, "q0", "g1", 2, 5), 40)
    one = StoredMessage(store="main", queue="q0", group="g1", body=body)
    other = StoredMessage(store="main", queue="q0", group="g1", body=encode(Payload(8, "q0", "g1", 2, 6), 40))
    for stored, readings in ([one, one], 2), ([one, other], 1):
        _, history = conduct(tmp_path, composition(stored=stored))
        read = [row["message"] for row in history if row["f"] == "browse"]
        assert (
            read == [*(payload.message for payload in map(decode, [m.body for m in stored])), None] * readings
        )


def test_a_stored_message_is_told_as_its_broker_tells_it(tmp_path):
    """In a main store it must be where it was sent to; a body that was cut makes no claim."""
    body = encode(Payload(7, "q0", "g1", 2, 5), 40)
    astray = StoredMessage(store="main", queue="q1", group="g2", body=body, cut=True)
    underway = StoredMessage(store="store-and-forward", queue="q1", group="g2", body=body)
    _, history = conduct(tmp_path, composition(stored=[astray, underway]))
    rows = [row for row in history if row["f"] == "browse" and row["queue"] is not None]
    assert [(row["queue"], row["group"], row["digest"]) for row in rows] == [
        ("q1", "g2", None),
        ("q0", "g1", digest(body)),
    ]


@pytest.mark.parametrize(
    ("policy", "shares"),
    [("replication", False), ("standalone", False), ("shared-store", True), ("multi-instance", True),
     ("ha-database", True)],
)  # fmt: skip
def test_the_monitor_knows_whose_data_are_shared(tmp_path, policy, shares):
    test = compose(TestSpec(name="test", policy=policy, environment="simulation"))
    life = Run(test, tmp_path, SilentProgress(), MemoryRecorder(lambda: 0))
    assert {life._watched(node).shares for node in test.brokers} == {shares}
