"""Work in turns with users, rights and TLS: nothing is lost, and all is in order.

How much is done in a turn is counted in ``core/test_turns_of_clients``.
"""

import ssl

import pytest
from authority import Authority
from brokers import Raw

from broker.turn_budget import CONSUMER_END, FRAME, TURN

LARGE = " OR ".join(f"b{number} = 'x'" for number in range(98))


def connect(port, user, **headers):
    raw = Raw(port, connect=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    raw.socket = context.wrap_socket(raw.socket)
    raw.send("CONNECT", {"accept-version": "1.2", "host": "h", "login": user, "passcode": user, **headers})
    raw.read("CONNECTED")
    return raw


@pytest.fixture
def secured(brokerd, tmp_path):
    return brokerd(
        **{
            "acceptor.ssl-enabled": True,
            "acceptor.key-store-path": str(Authority(tmp_path).store("a1")),
            "acceptor.users.busy": "busy",
            "acceptor.users.honest": "honest",
            "acceptor.max-subscriptions": 10_000,
            "security-settings.DLQ.send": [],
            "security-settings.ExpiryQueue.send": [],
            "security-settings.busy.#.send": ["busy"],
            "security-settings.busy.#.consume": ["busy"],
            "security-settings.honest.send": ["honest"],
            "security-settings.honest.consume": ["honest"],
        }
    )


def test_pipelined_frames_and_selectors_over_tls_are_answered_in_order(secured):
    busy, honest = connect(secured.port, "busy"), connect(secured.port, "honest")
    for number in range(40):
        selector = f"a{number} = 'x' OR {LARGE}"
        busy.send("SUBSCRIBE", {"id": str(number), "destination": "/topic/busy.t", "selector": selector})
    many = 3 * TURN // FRAME
    for number in range(40):
        busy.send("SEND", {"destination": "/topic/busy.t", "receipt": f"t{number}", "a7": "x"}, b"m")
    data = b"".join(
        b"SEND\ndestination:/queue/busy.q\nreceipt:q%d\n\n%d\0" % (number, number) for number in range(many)
    )
    busy.bytes(data)
    honest.publish("mine", "honest")
    messages, receipts = 0, []
    while len(receipts) < 40 + many:
        command, headers, _ = busy.frame()
        if command == "MESSAGE":
            assert headers["subscription"] == "7"
            messages += 1
        else:
            assert command == "RECEIPT", headers
            receipts.append(headers["receipt-id"])
    assert receipts == [f"t{number}" for number in range(40)] + [f"q{number}" for number in range(many)]
    while messages < 40:
        busy.read("MESSAGE")
        messages += 1
    busy.subscribe("busy.q", ack="auto", name="reader")
    assert [busy.message()[0] for _ in range(many)] == [str(number) for number in range(many)]


def test_what_clients_sent_before_they_closed_arrives_over_tls(secured):
    many = 3 * TURN // FRAME
    reader = connect(secured.port, "busy")
    reader.subscribe("busy.q", ack="auto", name="reader")
    for end in ("close", "unwrap"):  # without the last word of TLS, and with it
        sender = connect(secured.port, "busy")
        sender.bytes(many * b"SEND\ndestination:/queue/busy.q\n\nm\0" + b"DISCONNECT\n\n\0")
        getattr(sender.socket, end)()
        for _ in range(many):
            reader.message()
        sender.socket.close()


def test_a_user_with_many_durable_subscriptions_comes_back_at_once_over_tls(secured):
    count = 2 * TURN // CONSUMER_END
    first = connect(secured.port, "busy", **{"client-id": "c"})
    for number in range(count):
        first.send(
            "SUBSCRIBE",
            {
                "id": str(number),
                "destination": f"/topic/busy.{number % 3}",
                "durable-subscription-name": f"s{number}",
                "receipt": str(number),
            },
        )
    for number in range(count):
        first.receipt(str(number))
    again = connect(secured.port, "busy", **{"client-id": "c"})
    assert "has connected again" in first.error()
    for number in reversed(range(count)):
        again.send(
            "SUBSCRIBE",
            {
                "id": str(number),
                "destination": f"/topic/busy.{number % 3}",
                "durable-subscription-name": f"s{number}",
            },
        )
    again.send("SEND", {"destination": "/topic/busy.1", "receipt": "sent"}, b"m")
    command = None
    names = []
    while command != "RECEIPT" or len(names) < sum(number % 3 == 1 for number in range(count)):
        got, headers, body = again.frame()
        assert got in ("RECEIPT", "MESSAGE"), (headers, body)
        if got == "RECEIPT":
            command = got
        else:
            names.append(headers["subscription"])
    assert len(set(names)) == len(names)


def test_who_has_no_right_is_still_refused_behind_frames_that_wait(secured):
    busy = connect(secured.port, "busy")
    many = 2 * TURN // FRAME
    data = b"".join(
        b"SEND\ndestination:/queue/busy.q\nreceipt:q%d\n\n%d\0" % (number, number) for number in range(many)
    )
    busy.bytes(data + b"SEND\ndestination:/queue/honest\n\nforged\0" + data)
    receipts = []
    while (got := busy.frame())[0] == "RECEIPT":
        receipts.append(got[1]["receipt-id"])
    assert "'honest'" in got[2].decode()
    assert receipts == [f"q{number}" for number in range(len(receipts))]
    again = connect(secured.port, "busy")
    again.subscribe("busy.q", ack="auto")
    assert [again.message()[0] for _ in range(many)] == [str(number) for number in range(many)]
    again.send("SEND", {"destination": "/queue/busy.q"}, b"the next")
    assert again.message()[0] == "the next"  # nothing behind what was refused
    honest = connect(secured.port, "honest")
    honest.publish("mine", "honest")
    honest.subscribe("honest")
    assert honest.message()[0] == "mine"
