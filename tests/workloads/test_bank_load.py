"""Workload ``bank`` in a simulated cluster: money moves, and none comes or goes."""

from collections import Counter, defaultdict

import msgspec
import pytest
from stomp_doubles import well_formed

from checkers.schema import COLUMNS
from harness.history import spec as specs
from harness.interface import UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own import system
from harness.systems.own.dialect import DIALECT
from workloads.bank import PUT_IN

GIVEN = {
    "policy": "standalone", "pairs": 1, "workload": "bank", "time_limit_s": 8.0, "rate": 80.0,
    "producers": 2, "consumers": 3, "groups": 7, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def ran():
    return simulate(specs.build(GIVEN))


@pytest.fixture(scope="module")
def rows(ran):
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


def of(rows, f, type):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


def amounts(rows):
    told = {row["message"]: msgspec.json.decode(row["value"]) for row in of(rows, "send", "invoke")}
    return {message: (value["account"], value["amount"]) for message, value in told.items()}


def test_a_sound_broker_is_found_sound(ran, rows):
    assert ran.valid is True, (ran.grave, ran.trouble)
    assert not ran.findings
    well_formed([row for row in rows if row["process"] >= 0])


def test_each_account_is_opened_once(rows):
    opened = [amounts(rows)[row["message"]] for row in of(rows, "send", "ok") if row["transaction"] is None]
    assert sorted(opened) == [(f"a{number}", PUT_IN) for number in range(7)]


def test_a_transaction_sends_as_much_as_it_acknowledges_to_the_same_accounts(rows):
    said, inside = amounts(rows), defaultdict(lambda: defaultdict(list))
    for row in of(rows, "ack", "ok") + of(rows, "send", "ok"):
        inside[row["transaction"]][row["f"]].append(said[row["message"]])
    moved = [one for number, one in inside.items() if number is not None]
    assert len(moved) > 50
    for one in moved:
        assert sorted(account for account, _ in one["ack"]) == sorted(account for account, _ in one["send"])
        assert sum(amount for _, amount in one["ack"]) == sum(amount for _, amount in one["send"])
    assert Counter(len(one["ack"]) for one in moved).most_common(1)[0][0] == 2
    assert any(sorted(one["ack"]) != sorted(one["send"]) for one in moved)


def test_the_drain_reads_all_that_was_put_in(rows):
    drain = next(row["index"] for row in rows if (row["f"], row["value"]) == ("phase", "drain"))
    left = {row["message"] for row in of(rows, "deliver", "ok") if row["index"] > drain}
    balances = dict(amounts(rows)[message] for message in left)
    assert (len(left), len(balances), sum(balances.values())) == (7, 7, 7 * PUT_IN)
    assert min(balances.values()) >= 0


def test_no_more_is_sent_in_a_second_than_is_asked_for(rows):
    assert 0.3 * 80 * 8 < len(of(rows, "send", "ok")) < 1.2 * 80 * 8


def test_it_needs_acknowledgements_in_transactions(monkeypatch):
    changed = msgspec.structs.replace(DIALECT, transactional_acks=False)
    monkeypatch.setattr(system.OwnSystem, "dialect", changed)
    with pytest.raises(UsageError, match=r"--workload bank: .* no acknowledgements in transactions"):
        compose(specs.build(GIVEN))
