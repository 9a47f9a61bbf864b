"""Releases of brokers, as their distributions write them."""

import pytest

from harness.systems import release


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("4.0.5-1", (4, 0, 5)), ("2.56.0", (2, 56, 0)), ("6.7", (6, 7)), ("", ()), ("of tomorrow", ())],
)
def test_the_numbers_of_a_version_are_those_at_its_beginning(version, numbers):
    assert release.numbers(version) == numbers


@pytest.mark.parametrize(
    ("version", "warned"), [("6.5.1", 0), ("6.7.9", 0), ("6.6.0", 1), ("6.10.0", 1), ("7.0", 1), ("", 1)]
)
def test_a_release_of_no_series_that_was_tried_is_warned_of(version, warned):
    assert len(release.warnings("Open MQ", version, ("6.5.1", "6.7.0"))) == warned
