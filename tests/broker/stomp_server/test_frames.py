"""What each frame does, and what is refused: STOMP 1.2 against a real broker, byte by byte."""

import time

import pytest

pytestmark = pytest.mark.cluster


# ---- logging in


def test_connected_names_version_server_session_broker_and_node(client):
    headers, _ = client(heart_beat="0,0").connected
    assert headers["version"] == "1.2"
    assert headers["server"] == "brokerd"
    assert headers["broker"] == "a1"
    assert len(headers["node-id"]) == 36
    assert headers["session"] != client().connected[0]["session"]


def test_stomp_is_connect(client):
    raw = client(connect=False)
    raw.send("STOMP", {"accept-version": "1.1,1.2", "host": "h", "login": "guest", "passcode": "secret"})
    raw.read("CONNECTED")


@pytest.mark.parametrize(
    ("login", "passcode"), [("guest", "wrong"), ("nobody", "secret"), ("nobody", ""), ("", "")]
)
def test_wrong_credentials_are_refused_without_saying_which(client, login, passcode):
    raw = client(connect=False)
    raw.send("CONNECT", {"accept-version": "1.2", "host": "h", "login": login, "passcode": passcode})
    assert raw.error() == "login or passcode is wrong"


def test_a_second_connect_is_refused(client):
    raw = client()
    raw.send("CONNECT", {"accept-version": "1.2", "host": "h"})
    assert "logs in once" in raw.error()


def test_nothing_is_done_before_connect(client):
    raw = client(connect=False)
    raw.send("SEND", {"destination": "q", "receipt": "1"}, b"x")
    assert raw.error() == "SEND before CONNECT: log in first"
    assert raw.last_error["receipt-id"] == "1"


# ---- refusals, each with the frame's receipt and the end of the connection


@pytest.mark.parametrize(
    ("command", "headers", "text"),
    [
        ("SEND", {}, "header 'destination' is missing"),
        ("SEND", {"destination": "/exchange/a"}, "use /queue/NAME, /topic/NAME"),
        ("SEND", {"destination": "/queue/"}, "1 to 255 bytes"),
        ("SEND", {"destination": "a" * 256}, "1 to 255 bytes"),
        ("SEND", {"destination": "$.artemis.internal.sf.x.y"}, "the broker's own"),
        ("SEND", {"destination": "$SYS.cluster.topology"}, "the broker's own"),
        ("SEND", {"destination": "q", "transaction": "t"}, "transaction 't' is not open"),
        ("SUBSCRIBE", {"destination": "q"}, "header 'id' is missing"),
        ("SUBSCRIBE", {"id": "1"}, "header 'destination' is missing"),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "ack": "maybe"}, "expected one of auto"),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "prefetch-count": "0"}, "at least 1"),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "prefetch-count": "-1"}, "at least 1"),
        ("SUBSCRIBE", {"id": "1", "destination": "$SYS.nothing"}, "there is no feed"),
        ("UNSUBSCRIBE", {"id": "1"}, "subscription '1' does not exist"),
        ("ACK", {}, "header 'id' is missing"),
        ("ACK", {"id": "1"}, "no message that this connection holds"),
        ("NACK", {"id": "123456789abc-1-1.1"}, "no message that this connection holds"),
        ("BEGIN", {}, "header 'transaction' is missing"),
        ("COMMIT", {"transaction": "t"}, "transaction 't' is not open"),
        ("ABORT", {"transaction": "t"}, "transaction 't' is not open"),
        (
            "SEND",
            {"destination": "q", "expires": "soon"},
            "header 'expires' is 'soon': expected a whole number of milliseconds",
        ),
        ("SEND", {"destination": "q", "priority": "10"}, "header 'priority' is '10': expected 0 to 9"),
        ("SEND", {"destination": "q", "persistent": "maybe"}, "expected true or false"),
        ("SEND", {"destination": "q", "AMQ_SCHEDULED_DELAY": "-1"}, "a whole number of milliseconds"),
        (
            "SEND",
            {"destination": "q", "AMQ_SCHEDULED_CRON": "* * * * *"},
            "repeated deliveries are not supported",
        ),
        ("SEND", {"destination": "q", "_AMQ_DUPL_ID": "7" * 256}, "at most 255 are allowed"),
        ("SEND", {"destination": "q", "JMSXGroupID": "g" * 256}, "at most 255 are allowed"),
        (
            "SEND",
            {"destination": "q", "reply-to": "/temp-topic/answers"},
            "temporary topics are not supported",
        ),
        ("SEND", {"destination": "q", "destination-type": "MULTICAST"}, "topics are /topic/NAME"),
        (
            "SUBSCRIBE",
            {"id": "1", "destination": "q", "selector": "x ="},
            "header 'selector' is 'x =': the selector ends where more is expected",
        ),
        ("SUBSCRIBE", {"id": "1", "destination": "$SYS.topology", "selector": "x"}, "leave 'selector' out"),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "durable-subscription-name": "n"}, "only a topic has"),
        (
            "SUBSCRIBE",
            {"id": "1", "destination": "q", "activemq.exclusive": "true"},
            "exclusive consumers are not supported",
        ),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "activemq.prefetchSize": "0"}, "at least 1"),
        ("SUBSCRIBE", {"id": "1", "destination": "q", "consumer-window-size": "1000"}, "use prefetch-count"),
        ("UNSUBSCRIBE", {"id": "1", "durable-subscription-name": "n"}, "needs a client-id"),
        ("MESSAGE", {}, "a frame that servers send"),
        ("CONNECTED", {}, "a frame that servers send"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_end(client, command, headers, text):
    raw = client()
    raw.send(command, {"receipt": "77", **headers})
    assert text in raw.error()
    assert raw.last_error["receipt-id"] == "77"


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\n\n\0",
        b"SEND\ndestination\n\nx\0",
        b"SEND\ndestination:q\ncontent-length:x\n\nx\0",
        b"SEND\ndestination:q\ncontent-length:1\n\nxyz\0",
        b"SEND\ndestination:a\\tb\n\nx\0",
        b"SEND\n" + b"".join(b"h%d:1\n" % n for n in range(200)) + b"\nx\0",
        b"SEND\nlong:" + b"x" * 70_000,
        b"SEND\ndestination:q\ncontent-length:99999999\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_bytes_that_are_no_stomp_are_an_error_and_the_end(client, data):
    raw = client()
    raw.bytes(data)
    assert raw.error()


def test_frames_before_the_damage_are_done(client, queue):
    raw = client()
    raw.bytes(f"SEND\ndestination:{queue}\nreceipt:1\n\nkept\0NONSENSE\n\n\0".encode())
    raw.error()
    late = client()
    late.subscribe(queue)
    assert late.message()[0] == "kept"


def test_a_subscription_id_is_used_once(client, queue):
    raw = client()
    raw.subscribe(queue)
    raw.subscribe(queue)
    assert "exists already" in raw.error()


# ---- messages


def test_body_and_headers_come_back_byte_for_byte(client, queue):
    body = bytes(range(256)) * 3
    raw = client()
    raw.bytes(
        b"SEND\ndestination:/queue/%b\nreceipt:1\nx\\cy:a\\cb\\\\c\\nd\nempty:\nrepeated:first\nrepeated:second\n"
        b"content-type:application/x\nredelivered:lie\nmessage-id:lie\ncontent-length:%d\n\n%b\0"
        % (queue.encode(), len(body), body)
    )
    raw.receipt("1")
    raw.subscribe(queue)
    headers, got = raw.read("MESSAGE")
    assert got == body
    assert headers["x\\cy"] == "a\\cb\\\\c\\nd"
    assert headers["empty"] == ""
    assert headers["repeated"] == "first"
    assert headers["content-type"] == "application/x"
    assert headers["redelivered"] == "false"
    assert headers["message-id"] != "lie"
    assert headers["JMSXDeliveryCount"] == "1"
    assert headers["subscription"] == "s"
    assert headers["destination"] == f"/queue/{queue}"
    assert "receipt" not in headers


def test_a_bare_name_and_the_queue_prefix_are_one_queue(client, queue):
    raw = client()
    raw.send("SEND", {"destination": queue}, b"bare")
    raw.subscribe(queue)
    text, headers = raw.message()
    assert (text, headers["destination"]) == ("bare", queue)


def test_auto_mode_has_no_ack_header_and_takes_the_message(client, queue):
    raw = client()
    raw.publish("m", queue)
    raw.subscribe(queue, ack="auto")
    assert "ack" not in raw.message()[1]
    raw.close()
    late = client()
    late.publish("n", queue)
    late.subscribe(queue)
    assert late.message()[0] == "n"


def test_client_mode_acknowledges_all_up_to_the_message(client, queue):
    raw = client()
    for n in range(4):
        raw.publish(str(n), queue)
    raw.subscribe(queue, ack="client")
    acks = [raw.message()[1]["ack"] for _ in range(4)]
    raw.send("ACK", {"id": acks[2], "receipt": "a"})
    raw.receipt("a")
    raw.close()
    late = client()
    late.subscribe(queue)
    text, headers = late.message()
    assert (text, headers["redelivered"], headers["JMSXDeliveryCount"]) == ("3", "true", "2")


def test_individual_mode_acknowledges_one(client, queue):
    raw = client()
    for n in range(3):
        raw.publish(str(n), queue)
    raw.subscribe(queue)
    acks = [raw.message()[1]["ack"] for _ in range(3)]
    raw.send("ACK", {"id": acks[1], "receipt": "a"})
    raw.receipt("a")
    raw.close()
    late = client()
    late.subscribe(queue)
    assert [late.message()[0] for _ in range(2)] == ["0", "2"]


def test_an_acknowledgement_given_twice_or_for_another_connection_is_refused(client, queue):
    raw, other = client(), client()
    raw.publish("m", queue)
    raw.subscribe(queue)
    ack = raw.message()[1]["ack"]
    other.send("ACK", {"id": ack})
    assert "no message that this connection holds" in other.error()
    raw.send("ACK", {"id": ack, "receipt": "a"})
    raw.receipt("a")
    raw.send("ACK", {"id": ack})
    assert "no message that this connection holds" in raw.error()


def test_headers_that_ask_for_nothing_are_no_reason_to_refuse(client, queue):
    raw = client()
    nothing = {
        "expires": "0",
        "priority": "4",
        "persistent": "true",
        "AMQ_SCHEDULED_DELAY": "0",
        "selector": "x",
    }
    raw.publish("m", queue, **nothing)
    raw.publish("n", queue, persistent="false", **{"reply-to": "/queue/answers"})
    raw.subscribe(queue, **{"selector": "", "no-local": "false", "priority": "9", "activemq.priority": "0"})
    text, headers = raw.message()
    assert (text, headers["expires"], headers["selector"]) == (
        "m",
        "0",
        "x",
    )  # a selector in a SEND is the client's own
    assert raw.message()[0] == "n"


def test_the_prefetch_of_activemq_is_ours(client, queue):
    raw = client()
    for n in range(3):
        raw.publish(str(n), queue)
    raw.subscribe(queue, **{"activemq.prefetchSize": "1"}, receipt="s")
    raw.receipt("s")
    raw.message()
    raw.publish("x", "elsewhere")  # its receipt comes, and no second message before it


def test_prefetch_limits_what_is_on_the_way(client, queue):
    raw = client()
    for n in range(5):
        raw.publish(str(n), queue)
    raw.subscribe(queue, **{"prefetch-count": "2"})
    first, second = raw.message(), raw.message()
    raw.send("BEGIN", transaction="t", receipt="b")
    raw.receipt("b")
    raw.send("ACK", {"id": first[1]["ack"]})
    assert raw.message()[0] == "2"
    assert second[0] == "1"


def test_nack_with_requeue_false_brings_it_to_the_dead_letters_at_once(client, queue):
    raw = client()
    raw.publish("bad", queue)
    raw.subscribe(queue)
    raw.send("NACK", id=raw.message()[1]["ack"], requeue="False", receipt="n")
    raw.receipt("n")
    raw.subscribe("DLQ", name="dead")
    text, headers = raw.message()
    assert (text, headers["subscription"], headers["_AMQ_ORIG_QUEUE"]) == ("bad", "dead", queue)
    raw.send("ACK", id=headers["ack"])
    raw.send("NACK", id="x", requeue="no")
    assert "header 'requeue' is 'no': expected true or false" in raw.error()


def test_nack_brings_it_again_and_then_to_the_dead_letters(client, queue):
    raw = client()
    raw.publish("bad", f"poison.{queue}", JMSXGroupID="g")
    raw.subscribe(f"poison.{queue}")
    for count in ("1", "2"):
        text, headers = raw.message()
        assert (text, headers["JMSXDeliveryCount"], headers["redelivered"]) == (
            "bad",
            count,
            str(count == "2").lower(),
        )
        raw.send("NACK", {"id": headers["ack"], "receipt": "n"})
        raw.receipt("n")
    raw.subscribe("DLQ", name="dead")
    text, headers = raw.message()
    assert (text, headers["_AMQ_ORIG_QUEUE"], headers["JMSXGroupID"]) == ("bad", f"poison.{queue}", "g")
    assert headers["subscription"] == "dead"
    raw.send("ACK", {"id": headers["ack"], "receipt": "a"})
    raw.receipt("a")


def test_unsubscribe_gives_messages_back_in_order(client, queue):
    raw, other = client(), client()
    for n in range(4):
        raw.publish(str(n), queue)
    raw.subscribe(queue)
    ids = [raw.message()[1]["message-id"] for _ in range(4)]
    raw.send("UNSUBSCRIBE", {"id": "s", "receipt": "u"})
    raw.receipt("u")
    other.subscribe(queue)
    got = [other.message() for _ in range(4)]
    assert [text for text, _ in got] == ["0", "1", "2", "3"]
    assert [headers["message-id"] for _, headers in got] == ids
    assert {headers["redelivered"] for _, headers in got} == {"true"}


def test_a_browser_sees_all_and_takes_nothing(client, queue):
    raw = client()
    for n in range(3):
        raw.publish(str(n), queue)
    raw.subscribe(queue, name="b", browser="true")
    assert [raw.message()[0] for _ in range(3)] == ["0", "1", "2"]
    text, headers = raw.message()
    assert (text, headers["browser"]) == ("", "end")
    raw.subscribe(queue)
    assert raw.message()[0] == "0"


# ---- groups


def test_a_group_has_one_consumer(client, queue):
    one, two, producer = client(), client(), client()
    one.subscribe(queue, receipt="x")
    one.receipt("x")
    two.subscribe(queue, receipt="x")
    two.receipt("x")
    for n in range(3):
        producer.publish(f"a{n}", queue, JMSXGroupID="a")
        producer.publish(f"b{n}", queue, JMSXGroupID="b")
    assert [one.message()[0] for _ in range(3)] == ["a0", "a1", "a2"]
    assert [two.message()[0] for _ in range(3)] == ["b0", "b1", "b2"]
    one.close()
    got = [two.message() for _ in range(3)]
    assert [(text, headers["redelivered"]) for text, headers in got] == [
        ("a0", "true"),
        ("a1", "true"),
        ("a2", "true"),
    ]


# ---- transactions


def test_a_commit_does_all_and_an_abort_nothing(client, queue):
    raw = client()
    raw.publish("in", queue)
    raw.subscribe(queue)
    ack = raw.message()[1]["ack"]
    raw.send("BEGIN", transaction="t", receipt="b")
    raw.receipt("b")
    raw.send("SEND", {"destination": f"{queue}.out", "transaction": "t"}, b"never")
    raw.send("ACK", {"id": ack, "transaction": "t", "receipt": "held"})
    raw.receipt("held")
    raw.send("ABORT", transaction="t", receipt="aborted")
    got = [raw.frame(), raw.frame()]
    assert sorted(frame[0] for frame in got) == ["MESSAGE", "RECEIPT"]
    again = next(headers for command, headers, _ in got if command == "MESSAGE")
    assert (again["redelivered"], again["JMSXDeliveryCount"]) == ("true", "2")
    raw.send("BEGIN", transaction="t")
    raw.send("ACK", {"id": again["ack"], "transaction": "t"})
    raw.send("SEND", {"destination": f"{queue}.out", "transaction": "t"}, b"once")
    raw.send("COMMIT", transaction="t", receipt="committed")
    raw.receipt("committed")
    raw.subscribe(f"{queue}.out", name="out")
    assert raw.message()[0] == "once"


def test_a_lost_connection_undoes_its_transactions(client, queue):
    raw, other = client(), client()
    raw.publish("in", queue)
    raw.subscribe(queue)
    ack = raw.message()[1]["ack"]
    raw.send("BEGIN", transaction="t")
    raw.send("ACK", {"id": ack, "transaction": "t"})
    raw.send("SEND", {"destination": queue, "transaction": "t", "receipt": "taken"}, b"never")
    raw.receipt("taken")
    raw.close()
    other.subscribe(queue)
    assert other.message()[0] == "in"
    other.publish("last", queue)
    assert other.message()[0] == "last"


# ---- receipts and leaving


def test_receipts_come_in_the_order_of_the_frames(client, queue):
    raw = client()
    frames = [
        f"SEND\ndestination:{queue}\nreceipt:r0\n\nx\0",
        "BEGIN\ntransaction:t\nreceipt:r1\n\n\0",
        f"SUBSCRIBE\nid:1\ndestination:other.{queue}\nreceipt:r2\n\n\0",
        f"SEND\ndestination:{queue}\ntransaction:t\nreceipt:r3\n\nx\0",
        "ABORT\ntransaction:t\nreceipt:r4\n\n\0",
        "BEGIN\ntransaction:u\nreceipt:r5\n\n\0",
        "COMMIT\ntransaction:u\nreceipt:r6\n\n\0",
        "UNSUBSCRIBE\nid:1\nreceipt:r7\n\n\0",
        f"SEND\ndestination:{queue}\nreceipt:r8\n\nx\0",
        "DISCONNECT\nreceipt:r9\n\n\0",
    ]
    raw.bytes("".join(frames).encode())
    for n in range(10):
        raw.receipt(f"r{n}")
    assert raw.frame()[0] == "EOF"


def test_a_receipt_id_is_escaped(client, queue):
    raw = client()
    raw.send("SEND", {"destination": queue, "receipt": "a\\cb\\\\"}, b"x")
    raw.receipt("a\\cb\\\\")


def test_after_disconnect_nothing_more_is_done(client, queue):
    raw = client()
    raw.bytes(f"DISCONNECT\nreceipt:1\n\n\0SEND\ndestination:{queue}\n\nlate\0".encode())
    raw.receipt("1")
    assert raw.frame()[0] == "EOF"
    late = client()
    late.publish("first", queue)
    late.subscribe(queue)
    assert late.message()[0] == "first"


def test_a_selector_says_which_messages_a_consumer_and_a_browser_get(client, queue):
    raw = client()
    for number in range(4):
        raw.publish(str(number), queue, kind="even" if number % 2 == 0 else "odd")
    raw.subscribe(queue, name="b", browser="true", selector="kind = 'even'")
    assert [raw.message()[0] for _ in range(3)] == ["0", "2", ""]
    raw.subscribe(queue, name="odd", selector="kind = 'odd'")
    assert [raw.message()[0] for _ in range(2)] == ["1", "3"]
    raw.subscribe(queue, name="all")
    assert [raw.message()[0] for _ in range(2)] == ["0", "2"]


def test_messages_expire_at_an_instant_or_after_a_time(client, queue):
    raw = client()
    raw.publish("instant", queue, expires="1000")
    raw.publish("time", queue, expiration="1")
    raw.publish("later", queue, expiration="3600000")
    raw.publish("never", queue, expires="0")
    time.sleep(0.002)
    raw.subscribe(queue)
    assert [raw.message()[0] for _ in range(2)] == ["later", "never"]
    raw.subscribe("ExpiryQueue", name="expired")
    for text in ("instant", "time"):
        got, headers = raw.message()
        assert (got, headers["_AMQ_ORIG_QUEUE"], headers["destination"]) == (text, queue, f"/queue/{queue}")
        assert int(headers["_AMQ_ACTUAL_EXPIRY"]) > 1_600_000_000_000
        assert not {"expires", "expiration"} & headers.keys()


def test_a_delivery_waits_for_its_time_and_the_urgent_come_first(client, queue):
    raw = client()
    begun = time.time()
    raw.publish("delay", queue, AMQ_SCHEDULED_DELAY="300")
    raw.publish("x-delay", queue, **{"x-delay": "310"})
    raw.publish("time", queue, AMQ_SCHEDULED_TIME=str(int(begun * 1000) + 1000))
    for priority in ("0", "4", "9"):
        raw.publish(priority, queue, priority=priority)
    raw.subscribe(queue)
    assert [raw.message()[0] for _ in range(3)] == ["9", "4", "0"]
    assert [raw.message()[0] for _ in range(2)] == ["delay", "x-delay"]
    assert time.time() - begun >= 0.3
    assert raw.message()[0] == "time"
    assert time.time() - begun >= 0.99


def test_a_send_with_an_id_is_taken_once(client, queue):
    raw = client()
    for text in ("first", "again"):
        raw.publish(text, queue, _AMQ_DUPL_ID="7")
    raw.publish("other", queue, _AMQ_DUPL_ID="8")
    raw.send("BEGIN", transaction="t")
    raw.send("SEND", {"destination": queue, "transaction": "t", "_AMQ_DUPL_ID": "8"}, b"again")
    raw.send("COMMIT", transaction="t", receipt="c")
    raw.receipt("c")
    raw.publish("last", queue)
    raw.subscribe(queue)
    assert [raw.message()[0] for _ in range(3)] == ["first", "other", "last"]
