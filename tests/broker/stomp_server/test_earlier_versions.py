"""STOMP 1.0 and 1.1 beside 1.2 on a real broker: what each client may say, and what it hears."""

import pytest

pytestmark = pytest.mark.cluster

LOGIN = {"login": "guest", "passcode": "secret"}


@pytest.fixture
def speak(client):
    """A client of a version."""

    def make(version, **headers):
        raw = client(connect=False)
        offer = {} if version == "1.0" else {"accept-version": version}
        raw.send("CONNECT", {**LOGIN, **offer, **headers})
        raw.connected = raw.read("CONNECTED")[0]
        assert raw.connected["version"] == version
        return raw

    return make


def subscribed(raw, queue, version, ack="client"):
    name = {} if version == "1.0" else {"id": "s"}
    raw.send("SUBSCRIBE", {"destination": f"/queue/{queue}", "ack": ack, "receipt": "sub", **name})
    raw.receipt("sub")


def acknowledge(raw, headers, version, command="ACK", **more):
    named = {
        "1.0": lambda: {"message-id": headers["message-id"]},
        "1.1": lambda: {"message-id": headers["message-id"], "subscription": headers["subscription"]},
        "1.2": lambda: {"id": headers["ack"]},
    }[version]()
    raw.send(command, {**named, **more})


VERSIONS = ["1.0", "1.1", "1.2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_connects_without_a_host(speak, version):
    assert ("heart-beat" in speak(version).connected) is (version != "1.0")


@pytest.mark.parametrize("version", ["", "2.0", "1.2\x1b[2J"])
def test_no_common_version_is_told_with_those_that_are_spoken(client, version):
    raw = client(connect=False)
    raw.send("CONNECT", {"accept-version": version, **LOGIN})
    assert "supported protocol versions are 1.0,1.1,1.2" in raw.error()
    assert raw.last_error["version"] == "1.0,1.1,1.2"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_passcode_is_told_in_words_without_escapes(client, version):
    raw = client(connect=False)
    raw.send("CONNECT", {"accept-version": version, "login": "guest", "passcode": "x"})
    assert raw.error() == "login or passcode is wrong"


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_sent_behind_connect_are_read_in_its_version(client, queue, version):
    raw = client(connect=False)
    escape = {"1.0": "a\\b", "1.1": "a\\\\b", "1.2": "a\\\\b"}[version]
    connect = f"CONNECT\naccept-version:{version}\nlogin:guest\npasscode:secret\n\n\n\0"
    send = f"SEND\ndestination:/queue/{queue}\nreceipt:r\nx:{escape}\n\n\0"
    raw.bytes(f"{connect}\n{send}".encode())
    raw.read("CONNECTED")
    raw.receipt("r")
    reader = client()
    reader.subscribe(queue)
    assert reader.message()[1]["x"] == "a\\\\b"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_names_all_up_to_its_message(speak, client, queue, version):
    raw = speak(version)
    for n in range(4):
        raw.publish(str(n), queue)
    subscribed(raw, queue, version)
    got = [raw.message() for _ in range(4)]
    assert [text for text, _ in got] == ["0", "1", "2", "3"]
    acknowledge(raw, got[2][1], version, receipt="a")
    raw.receipt("a")
    raw.close()
    late = client()
    late.subscribe(queue)
    text, headers = late.message()
    assert (text, headers["redelivered"]) == ("3", "true")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_client_individual_and_nack(speak, queue, version):
    raw = speak(version)
    queue = f"poison.{queue}"
    for n in range(3):
        raw.publish(str(n), queue)
    subscribed(raw, queue, version, "client-individual")
    got = [raw.message() for _ in range(3)]
    for n in (2, 0):
        acknowledge(raw, got[n][1], version, receipt="a")
        raw.receipt("a")
    first = got[1][1]
    acknowledge(raw, first, version, "NACK", receipt="n")
    raw.receipt("n")
    text, again = raw.message()
    assert (text, again["JMSXDeliveryCount"], again["message-id"]) == ("1", "2", first["message-id"])
    acknowledge(raw, again, version, receipt="b")
    raw.receipt("b")


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_in_transactions(speak, queue, version):
    raw = speak(version)
    raw.publish("x", queue)
    subscribed(raw, queue, version)
    for end in ("ABORT", "COMMIT"):
        _, headers = raw.message()
        raw.send("BEGIN", transaction="t")
        acknowledge(raw, headers, version, transaction="t")
        raw.send(end, transaction="t", receipt="e")
        raw.receipt("e")
    raw.publish("y", queue)
    assert raw.message()[0] == "y"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("wrong", ["twice", "unknown", "of another"])
def test_a_message_that_is_not_held_cannot_be_acknowledged(speak, queue, version, wrong):
    raw, other = speak(version), speak(version)
    for n in range(2):
        raw.publish(str(n), queue)
    subscribed(raw, queue, version)
    _, headers = raw.message()
    if wrong == "twice":
        acknowledge(raw, headers, version)
    elif wrong == "unknown":
        headers["message-id"] += "9"
    else:
        subscribed(other, f"{queue}.other", version)
        raw = other
    acknowledge(raw, headers, version)
    while (frame := raw.frame())[0] == "MESSAGE":
        pass
    assert frame[0] == "ERROR"
    assert b"is no message that this connection holds" in frame[2]


def test_1_0_names_a_subscription_by_its_destination(speak, queue):
    raw = speak("1.0")
    subscribed(raw, queue, "1.0", "auto")
    raw.publish("x", queue)
    assert "subscription" not in raw.message()[1]
    raw.send("UNSUBSCRIBE", destination=queue, receipt="u")
    raw.receipt("u")
    raw.send("UNSUBSCRIBE", destination=queue)
    assert "does not exist" in raw.error()


def test_1_0_with_ids_gets_them_back(speak, queue):
    raw = speak("1.0")
    raw.send("SUBSCRIBE", destination=queue, id="s 1 ")
    raw.publish("x", queue)
    assert raw.message()[1]["subscription"] == "s 1"
    raw.send("UNSUBSCRIBE", id="s 1", receipt="u")
    raw.receipt("u")


@pytest.mark.parametrize(
    ("version", "command", "headers", "text"),
    [
        ("1.0", "NACK", {"message-id": "x"}, "NACK is not part of STOMP 1.0"),
        (
            "1.0",
            "SUBSCRIBE",
            {"destination": "q", "ack": "client-individual"},
            "expected one of auto, client",
        ),
        ("1.0", "ACK", {"id": "x"}, "header 'message-id' is missing"),
        ("1.1", "ACK", {"id": "x", "subscription": "s"}, "header 'message-id' is missing"),
        ("1.1", "ACK", {"message-id": "x"}, "header 'subscription' is missing"),
        ("1.1", "SUBSCRIBE", {"destination": "q"}, "header 'id' is missing"),
        ("1.2", "ACK", {"message-id": "x", "subscription": "s"}, "header 'id' is missing"),
    ],
)
def test_what_a_version_does_not_have_is_refused(speak, version, command, headers, text):
    raw = speak(version)
    raw.send(command, headers)
    assert text in raw.error()


def test_one_message_in_the_escapes_of_each_version(speak, queue):
    sender = speak("1.2")
    sender.publish("x", queue, **{"a\\cb": "1\\n2\\r3\\c4\\\\5"})
    expected = {
        "1.0": ("a\\cb", "1\\n2\r3:4\\5"),
        "1.1": ("a\\cb", "1\\n2\r3\\c4\\\\5"),
        "1.2": ("a\\cb", "1\\n2\\r3\\c4\\\\5"),
    }
    for version, (name, value) in expected.items():
        raw = speak(version)
        subscribed(raw, queue, version)
        assert raw.message()[1][name] == value
        raw.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_receipt_comes_back_as_it_was_sent(speak, version):
    raw = speak(version)
    name = {"1.0": "a:b\\c", "1.1": "a\\cb\\\\c", "1.2": "a\\cb\\\\c"}[version]
    raw.send("BEGIN", transaction="t", receipt=name)
    raw.receipt(name)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_message_in_each_version(speak, queue, version):
    raw = speak(version)
    body = bytes(range(256)) * 1024
    raw.send("SEND", {"destination": queue, "content-length": str(len(body)), "receipt": "r"}, body)
    raw.receipt("r")
    subscribed(raw, queue, version)
    headers, got = raw.read("MESSAGE")
    assert got == body
    acknowledge(raw, headers, version, receipt="a")
    raw.receipt("a")


def test_heart_beats_only_from_1_1(speak):
    assert speak("1.1", **{"heart-beat": "0,100"}).connected["heart-beat"] == "100,100"
    assert "heart-beat" not in speak("1.0", **{"heart-beat": "nonsense"}).connected


def test_a_browser_in_1_0(speak, queue):
    raw = speak("1.0")
    raw.publish("x", queue, a="b:c")
    raw.send("SUBSCRIBE", destination=queue, browser="true")
    assert raw.message()[1]["a"] == "b:c"
    assert raw.message()[1]["browser"] == "end"
