"""The times that tests of other systems shorten keep the proportions of the product."""

import pytest

from harness.systems import shortened
from harness.systems.registry import SYSTEMS

GROUPS = [group for name in SYSTEMS for group in shortened.groups_of(name) or ()]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.purpose)
def test_a_time_has_the_proportion_of_its_group_or_a_reason_for_another(group):
    assert {time.name for time in group.departing()} == {time.name for time in group.times if time.reason}


def test_a_time_out_of_proportion_is_seen():
    group = shortened.Group(
        "votes", 30, (shortened.Time("ttl", 60_000, 2000), shortened.Time("vote", 5000, 200))
    )
    assert [time.name for time in group.departing()] == ["vote"]
