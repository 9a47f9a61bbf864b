"""The window in which a live was without an up-to-date backup is named, and no other."""

from checkers.facts import Facts
from checkers.instance import Instance
from checkers.words import sentence

S = 1_000_000_000


def row(index, f, broker, low, high, **columns):
    return {"index": index, "f": f, "broker": broker, "time_low": low * S, "time_high": high * S, **columns}


def test_an_unprotected_window_is_certain_between_its_bounds():
    facts = Facts(
        roles=[row(1, "role", "a1", 0, 1, role="live"), row(9, "role", "a1", 8, 9, role="stopped")],
        replication=[
            row(2, "replication", "a1", 0, 1, value="replicated"),
            row(5, "replication", "a1", 3, 4, value="unreplicated"),
            row(7, "replication", "a1", 6, 7, value="replicated"),
            row(8, "replication", "a1", 7, 7, value="unreplicated"),
        ],
    )
    assert facts.unprotected() == {"a1": [(4 * S, 6 * S), (7 * S, 8 * S)]}


def test_a_window_that_is_not_certain_is_not_named():
    facts = Facts(
        replication=[
            row(1, "replication", "a1", 1, 3, value="unreplicated"),
            row(2, "replication", "a1", 2, 4, value="replicated"),
        ]
    )
    assert facts.unprotected() == {}


def test_another_brokers_window_is_not_this_ones():
    facts = Facts(replication=[row(1, "replication", "b1", 1, 2, value="unreplicated")])
    assert facts.unprotected() == {"b1": [(2 * S, None)]}


def test_a_second_delivery_names_when_nobody_else_knew_of_the_acknowledgement():
    ack = {"index": 3, "f": "ack", "type": "ok", "message": 7, "broker": "a2", "session": 1, "time": 5 * S}
    again = {
        "index": 4,
        "f": "deliver",
        "type": "ok",
        "message": 7,
        "broker": "a1",
        "session": 2,
        "time": 9 * S,
    }
    first = {**again, "index": 2, "broker": "a2", "session": 1, "time": 4 * S}
    instance = Instance("duplicate", "q0", None, 7, 4)
    window, later = (4 * S, 6 * S), (7 * S, None)
    for windows, told in (
        ({"a2": [window, later]}, True),
        ({"a2": [later]}, False),
        ({"a1": [window]}, False),
        ({}, False),
    ):
        said = sentence(instance, 1, [first, ack, again], {"unprotected_ns": windows})
        assert ("; a2 had no up-to-date backup from 4.000 s to 6.000 s." in f"{said}.") is told, said
        assert ("no up-to-date backup" in said) is told, said
