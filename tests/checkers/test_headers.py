"""The application's own headers: a broker may add to them, but neither change nor drop any."""

from __future__ import annotations

import pytest
from checker_rows import agreed
from test_findings import OPTIONS, deliver, kept, send

from checkers import check
from checkers.headers import digest

RETRIED = [*send(0, 1, headers=5), *[{**row, "process": 2} for row in send(2, 1, headers=6)]]

CASES = {
    "unchanged": ([*send(0, 1, headers=5), *deliver(5, 1, headers=5)], set()),
    "changed": ([*send(0, 1, headers=5), *deliver(5, 1, headers=6)], {"corrupted"}),
    "changed in a store": ([*send(0, 1, headers=5), *kept(5, 1, headers=6)], {"corrupted"}),
    "nobody looked": ([*send(0, 1, headers=5), *deliver(5, 1)], set()),
    "none were set": ([*send(0, 1), *deliver(5, 1, headers=6)], set()),
    "those of the first attempt": ([*RETRIED, *deliver(5, 1, headers=5)], set()),
    "those of the second attempt": ([*RETRIED, *deliver(5, 1, headers=6)], set()),
    "those of no attempt": ([*RETRIED, *deliver(5, 1, headers=7)], {"corrupted"}),
}


@pytest.mark.parametrize("name", CASES)
def test_headers_are_compared_with_what_was_sent(tmp_path, name):
    rows, names = CASES[name]
    found = agreed(tmp_path / "history", rows, OPTIONS)
    assert {one.name for one in found} & {"corrupted"} == names


def test_a_digest_forgives_what_a_broker_may_do():
    sent = {"Colour": "red", "size": 7, "fragile": True}
    told = {"colour": "red", "SIZE": "7", "fragile": "true", "redelivered": "true"}
    names = [name.lower() for name in sent]
    assert digest(sent) == digest(told, names)
    for broken in ({**told, "colour": "blue"}, {"colour": "red", "SIZE": "7"}):
        assert digest(sent) != digest(broken, names)


def events(arrived: object, sent: object = {"colour": "red"}) -> list[dict[str, object]]:
    place = {"message": "m", "process": "p"}
    return [
        {"time": 1, "type": "invoke", "f": "send", **place, "headers": sent},
        {"time": 2, "type": "ok", "f": "send", **place},
        {"time": 3, "type": "ok", "f": "receive", "message": "m", "process": "c", "headers": arrived},
    ]


@pytest.mark.parametrize(
    ("arrived", "valid"),
    [
        ({"colour": "red"}, True),
        ({"Colour": "red", "x-death": "1"}, True),
        ({"colour": "blue"}, False),
        ({"x-death": "1"}, False),
        ({}, False),
        (None, True),
    ],
)
def test_events_have_headers_as_they_are(arrived, valid):
    verdict = check(events(arrived), drained=True)
    assert verdict.valid is valid, verdict.reasons
    if not valid:
        assert "with other headers than were sent" in verdict.findings[0].sentence


def test_events_have_headers_as_a_digest():
    assert check(events("abc", "abc"), drained=True).valid is True
    assert check(events(5, "abc"), drained=True).valid is False
