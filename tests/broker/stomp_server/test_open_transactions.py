"""What clients that begin transactions and never end them may hold, and for how long."""

import pytest
from brokers import Raw, until

pytestmark = pytest.mark.cluster

MB = 1_000_000
SMALL = {"broker.global-max-size": 4 * MB, "acceptor.min-large-message-size": -1}


def _fill(raw, size, times=1):
    """Send so much in an open transaction; the last frame's text if it is an ERROR."""
    raw.send("BEGIN", transaction="t", receipt="b")
    raw.receipt("b")
    for n in range(times):
        raw.send("SEND", {"destination": "held", "transaction": "t", "receipt": str(n)}, b"x" * size)
        command, _, body = raw.frame()
        if command == "ERROR":
            return body.decode()
    return None


def test_idle_transactions_leave_room_for_those_who_send_without_one(brokerd):
    broker = brokerd(**SMALL)
    idle = [Raw(broker.port) for _ in range(5)]
    refusals = [refusal for raw in idle if (refusal := _fill(raw, MB))]
    assert len(refusals) == 4  # half of 4 MB is not two of them and what they cost themselves
    assert all("broker.max-transactions-percent" in refusal for refusal in refusals)
    Raw(broker.port).publish("there is room")
    words = "the largest: transaction 't' of session"
    until(lambda: any(words in line for line in broker.lines), "the line in the log")
    told = next(line for line in broker.lines if words in line)
    assert "user 'guest', 127.0.0.1:" in told


def test_a_transaction_that_times_out_gives_back_what_it_held_and_its_next_frame_is_told(brokerd):
    broker = brokerd(
        **SMALL, **{"broker.transaction-timeout": 500, "broker.transaction-timeout-scan-period": 50}
    )
    raw = Raw(broker.port)
    raw.publish("m")
    raw.subscribe()
    ack = raw.message()[1]["ack"]
    raw.send("BEGIN", transaction="t", receipt="b")
    raw.receipt("b")
    raw.send("SEND", {"destination": "out", "transaction": "t"}, b"never")
    raw.send("ACK", {"id": ack, "transaction": "t", "receipt": "held"})
    raw.receipt("held")
    assert raw.message()[0] == "m"  # it came back
    until(lambda: any("rolled back after 0.5 s" in line for line in broker.lines), "the line in the log")
    raw.send("COMMIT", transaction="t", receipt="c")
    assert "transaction 't' was undone: it was open for more than 0.5 s" in raw.error()
    late = Raw(broker.port)
    late.publish("the only one", "out")
    late.subscribe("out")
    assert late.message()[0] == "the only one"


def test_what_timed_out_makes_room_for_others(brokerd):
    broker = brokerd(
        **SMALL, **{"broker.transaction-timeout": 300, "broker.transaction-timeout-scan-period": 50}
    )
    _fill(Raw(broker.port), MB)
    until(lambda: _fill(Raw(broker.port), MB) is None, "room for another transaction")


@pytest.mark.parametrize("bound", ["acceptor.max-transactions", "broker.max-transactions"])
def test_the_number_of_open_transactions_is_bounded(brokerd, bound):
    broker = brokerd(**{bound: 3})
    raw = Raw(broker.port)
    for n in range(4):
        raw.send("BEGIN", transaction=str(n), receipt=str(n))
    for n in range(3):
        raw.receipt(str(n))
    assert bound in raw.error()
    Raw(broker.port).send("BEGIN", transaction="t", receipt="r")


def test_neither_refusals_nor_time_outs_fill_the_log(brokerd):
    broker = brokerd(
        **{
            "broker.max-transactions": 200,
            "broker.transaction-timeout": 5000,
            "broker.transaction-timeout-scan-period": 5000,
        }
    )
    holder = Raw(broker.port)
    for n in range(200):
        holder.send("BEGIN", transaction=str(n), receipt=str(n))
    for n in range(200):
        holder.receipt(str(n))
    for _ in range(50):
        refused = Raw(broker.port)
        refused.send("BEGIN", transaction="t")
        assert "try again later" in refused.error()
    until(lambda: any("rolled back at the same time: " in line for line in broker.lines), "all are undone")
    assert sum("the largest: transaction" in line for line in broker.lines) < 10
    assert sum("rolled back after 5 s" in line for line in broker.lines) <= 40  # in one scan, or two


def test_a_transaction_is_no_place_for_a_long_name(brokerd):
    raw = Raw(brokerd().port)
    raw.send("BEGIN", transaction="x" * 256)
    assert "at most 255" in raw.error()


def test_a_committed_transaction_does_not_time_out_while_it_waits_for_room(brokerd):
    broker = brokerd(
        **{
            "address-settings.full.max-size-bytes": 5_000,
            "address-settings.full.address-full-policy": "BLOCK",
            "broker.transaction-timeout": 300,
            "broker.transaction-timeout-scan-period": 50,
        }
    )
    raw, other = Raw(broker.port), Raw(broker.port)
    raw.subscribe("elsewhere")  # so that it is read on
    for _ in range(8):
        raw.send("SEND", {"destination": "full"}, b"x" * 1000)
    raw.send("BEGIN", transaction="t")
    raw.send("SEND", {"destination": "elsewhere", "transaction": "t"}, b"committed")
    raw.send("COMMIT", transaction="t")
    idle = Raw(broker.port)
    idle.send("BEGIN", transaction="idle")
    until(lambda: any("transaction 'idle'" in line for line in broker.lines), "the time-out of a later one")
    assert not any("transaction 't'" in line for line in broker.lines)
    other.subscribe("full", ack="auto")
    assert raw.message()[0] == "committed"
