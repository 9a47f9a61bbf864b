"""Several workloads in one test: each has its share, and names of its own."""

from collections import Counter

import msgspec
import pytest

from checkers.schema import COLUMNS
from harness.history import spec as specs
from harness.interface import UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own.dialect import DIALECT
from harness.systems.own.system import OwnSystem
from workloads import registry

NAMED = "bank:2,groups,queue"


@pytest.fixture(scope="module")
def ran():
    given = {
        "policy": "standalone",
        "pairs": 1,
        "workload": NAMED,
        "time_limit_s": 4.0,
        "rate": 80.0,
        "seed": 3,
    }
    return simulate(specs.build({**given, "producers": 4, "consumers": 8, "groups": 3}))


@pytest.mark.parametrize("name", registry.WORKLOADS)
def test_a_workload_says_whether_its_messages_have_groups(name):
    """Brokers whose queues must be made for groups make them so by this word."""
    given = {"policy": "standalone", "pairs": 1, "workload": name, "time_limit_s": 2.0, "rate": 40.0}
    rows = simulate(specs.build({**given, "seed": 3})).rows
    assert any(row["group"] is not None for row in rows) is registry.grouped(name)


def test_a_sound_broker_is_found_sound(ran):
    assert ran.valid is True, (ran.grave, ran.trouble)


def test_each_has_queues_of_its_own(ran):
    rows = [{name: row[name] for name in COLUMNS} for row in ran.rows]
    sent = [row for row in rows if (row["f"], row["type"]) == ("send", "ok")]
    assert {row["queue"] for row in sent} == {"bank_q0", "groups_q0", "queue_q0"}
    assert set(registry.queues_of(ran.spec)) == {row["queue"] for row in sent}
    shares = Counter(row["queue"] for row in sent)
    assert 60 < shares["queue_q0"] < 100  # a quarter of 80 a second, for 4 s


def test_no_two_have_a_producer_or_a_message_in_common(ran):
    whose = {}
    for row in ran.rows:
        if row["f"] == "send":
            assert whose.setdefault(row["producer"], row["queue"]) == row["queue"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bank,quue", 'unknown workload "quue": did you mean "queue"'),
        ("bank,bank", "names one workload twice"),
        ("mixed,bank", "mixed contains all workloads: give it alone"),
        ("bank:0", 'the weight "0" must be a number'),
    ],
)
def test_a_wrong_name_or_weight_is_refused_in_one_line(text, said):
    with pytest.raises(UsageError, match=said):
        registry.create(text)


def test_who_is_alone_has_the_names_it_always_had():
    assert registry.queues_of(specs.build({"workload": "bank:3"})) == ("q0",)


def test_a_mixture_is_what_the_brokers_can_be_loaded_with(monkeypatch):
    few = msgspec.structs.replace(DIALECT, topics=None, transactional_acks=False, queue_commands=None)
    monkeypatch.setattr(OwnSystem, "dialect", few)
    asked = compose(specs.build({"workload": "mixed", "environment": "simulation"})).spec.workload
    assert asked == "groups,queue,refusals,request-reply,transactions"
