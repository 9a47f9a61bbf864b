import pytest

from environments.lease import LeaseExpiredError, LeaseTable, UnknownLeaseError


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return LeaseTable(clock)


def test_a_fault_ends_when_its_lease_is_not_renewed(table, clock):
    lease = table.inject("cut", 5.0)
    clock.now += 4.999
    assert table.expire() == []
    clock.now += 0.001
    assert table.expire() == [(lease, "cut")]
    assert table.in_force() == []


def test_a_renewed_lease_lasts_for_its_full_length_again(table, clock):
    lease = table.inject("cut", 5.0)
    for _ in range(10):
        clock.now += 4.0
        table.renew(lease)
        assert table.expire() == []
    assert table.next_expiry() == clock.now + 5.0


def test_a_late_renewal_is_refused_even_before_anybody_looked(table, clock):
    lease = table.inject("cut", 5.0)
    clock.now += 6.0
    with pytest.raises(LeaseExpiredError, match=r"ran out 1\.0 s ago"):
        table.renew(lease)
    assert table.expire() == [(lease, "cut")]
    with pytest.raises(LeaseExpiredError, match="has ended"):
        table.renew(lease)


def test_healing_gives_the_fault_once_and_only_that_one(table):
    first, second = table.inject("one"), table.inject("two")
    assert first != second
    assert table.heal(first) == "one"
    assert table.heal(first) is None
    assert table.in_force() == ["two"]


def test_a_lease_that_never_was_is_the_callers_mistake(table):
    with pytest.raises(UnknownLeaseError, match="lease-7"):
        table.heal("lease-7")
    with pytest.raises(UnknownLeaseError, match="lease-7"):
        table.renew("lease-7")
    with pytest.raises(ValueError, match="longer than 0 s"):
        table.inject("cut", 0)


def test_heal_all_undoes_the_newest_first(table):
    leases = [table.inject(fault) for fault in "abc"]
    assert table.heal_all() == ["c", "b", "a"]
    assert table.in_force() == []
    assert [table.heal(lease) for lease in leases] == [None, None, None]


def test_the_next_to_expire_is_the_one_with_the_least_left(table, clock):
    assert table.next_expiry() is None
    long, short = table.inject("long", 9.0), table.inject("short", 2.0)
    assert table.next_expiry() == clock.now + 2.0
    clock.now += 3.0
    assert table.expire() == [(short, "short")]
    assert table.heal(long) == "long"


def test_memory_of_ended_leases_is_bounded(table):
    for _ in range(3000):
        table.heal(table.inject("x"))
    with pytest.raises(UnknownLeaseError, match="lease-1"):
        table.heal("lease-1")
    assert table.heal("lease-3000") is None
