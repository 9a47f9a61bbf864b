"""A node leaves under load: the run goes on and ends without it, and its store is read at last."""

import msgspec
import pytest

from harness.history import spec as specs
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate

pytestmark = pytest.mark.slow

LEAVES = Fault(kind="leave", start_s=3.0, target="b1")
AT_HOME = {"*": {"cluster.message-load-balancing": "OFF"}}


def run(policy, workload, *faults, **changes):
    given = {"policy": policy, "pairs": 3, "workload": workload, "time_limit_s": 8.0, "seed": 1}
    return simulate(specs.build({**given, "hold_s": 0.3, "prefetch": 2, **changes}), Schedule(faults=faults))


def values(rows, **columns):
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


@pytest.fixture(scope="module")
def left():
    return run("standalone", "queue", LEAVES, properties=AT_HOME)


def test_what_is_left_in_its_store_is_stuck_there(left):
    assert left.trouble is None
    assert left.grave == {"stuck"}
    stored = values(left.rows, f="browse", broker="b1", type="ok")
    assert sum(row["message"] is not None for row in stored) > 5
    assert stored[-1]["message"] is None, "the last row says that all was read"


def test_the_pause_of_its_clients_is_explained_to_the_end(left):
    assert "unavailable" not in left.grave
    assert left.rows[-1]["time"] > 8e9


def test_nobody_starts_it_before_the_drain_is_over(left):
    moments = {row["value"]: row["index"] for row in values(left.rows, f="phase")}
    lives = [row["index"] for row in values(left.rows, f="role", broker="b1", role="live")]
    stopped = next(row["index"] for row in values(left.rows, f="role", broker="b1", role="stopped"))
    back = [index for index in lives if index > stopped]
    assert back
    assert min(back) > moments["drain"]
    assert not values(left.rows, f="restart")
    assert not values(left.rows, f="heal:leave")


def test_where_another_broker_takes_its_messages_over_nothing_is_missing():
    assert run("ha-database", "queue,subscriptions", LEAVES).valid is True


@pytest.mark.parametrize("other", [Fault(kind="kill", start_s=4.0, duration_s=1.0, target="a1")])
def test_other_nodes_are_healed_as_ever(other):
    broken = run("standalone", "queue", LEAVES, other, properties=AT_HOME)
    assert (broken.trouble, broken.grave) == (None, {"stuck"})
    assert all(
        msgspec.json.decode(row["value"])["bit"] for row in values(broken.rows, f="heal:kill", type="info")
    )


def test_where_each_pair_lacks_a_broker_nobody_says_that_the_cluster_did_not_recover():
    leaves = msgspec.structs.replace(LEAVES, target="a1")
    alone = run("replication", "queue", leaves, pairs=1)
    assert alone.trouble.startswith("each pair lacks a broker that has left: whether the cluster recovered")
    assert "not-recovered" not in alone.grave


@pytest.mark.parametrize("more", [{"pairs": 1}, {"drain_at": ("a1",)}])
def test_where_nobody_is_left_to_drain_nothing_is_said_of_what_remains(more):
    leaves = msgspec.structs.replace(LEAVES, target="a1")
    left = run("standalone", "queue", leaves, properties=AT_HOME, **more)
    assert "the queues could not be drained: a1 has left" in left.trouble
    assert left.valid is None
