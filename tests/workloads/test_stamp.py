"""The header that every message carries, on its way and as it arrives."""

from __future__ import annotations

import pytest

from workloads import stamp


def test_what_arrives_as_it_was_sent_has_the_digest_of_the_send():
    name, value = stamp.line(17).decode().strip().split(":")
    assert stamp.arrived({name: value, "redelivered": "true"}) == stamp.sent(17)
    assert stamp.arrived({name.upper(): value}) == stamp.sent(17)


@pytest.mark.parametrize("headers", [{}, {"jrstamp": "18"}, {"jrstamp": ""}, {"jrstamps": "17"}])
def test_what_was_changed_or_dropped_has_another(headers):
    assert stamp.arrived(headers) != stamp.sent(17)
