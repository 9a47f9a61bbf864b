"""STOMP over WebSocket on the port where others speak plain STOMP.

Messages cut anywhere, strangers, origins, the end.
"""

import socket

import pytest
from brokers import BOUND_S, Raw
from web import Web
from wsproto.events import BytesMessage, CloseConnection, Ping

pytestmark = pytest.mark.cluster


@pytest.fixture
def web(shared):
    made = []

    def make(**options):
        made.append(Web(shared.port, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (("v12.stomp",), "v12.stomp"),
        (("v10.stomp", "v11.stomp"), "v11.stomp"),
        (("v10.stomp", "v11.stomp", "v12.stomp"), "v12.stomp"),
        (("chat", "v10.stomp"), "v10.stomp"),
        ((), ""),
    ],
)
def test_the_highest_subprotocol_is_agreed(web, offered, agreed):
    assert web(subprotocols=offered).subprotocol == agreed


def test_messages_go_between_web_and_plain_clients(web, client, queue):
    page, raw = web(), client()
    page.publish("from the web", queue)
    raw.subscribe(queue)
    assert raw.message()[0] == "from the web"
    page.subscribe(f"{queue}.back")
    raw.publish("from afar", f"{queue}.back")
    text, headers = page.message()
    assert text == "from afar"
    page.send("ACK", id=headers["ack"], receipt="a")
    page.receipt("a")


def test_frames_and_messages_are_cut_in_any_way(web, queue):
    page = web()
    wire = f"SEND\ndestination:{queue}\nreceipt:r\n\nbody é\0\n\nBEGIN\ntransaction:t\nreceipt:b\n\n\0"
    for start in range(0, len(wire), 3):
        page.text(wire[start : start + 3])
    page.receipt("r")
    page.receipt("b")
    page.text(wire.replace("BEGIN", "COMMIT"))
    page.receipt("r")
    page.receipt("b")
    data = wire.encode()
    for place in range(len(data)):  # one message in fragments of a byte
        page.event(BytesMessage(data=data[place : place + 1], message_finished=place == len(data) - 1))
    page.receipt("r")
    page.receipt("b")


def test_thousands_of_tiny_messages_in_one_segment_are_all_taken_in_order(web, queue):
    page = web()
    wire = b"".join(f"SEND\ndestination:{queue}\n\n{n}\0".encode() for n in range(300))
    wire += b"BEGIN\ntransaction:t\nreceipt:b\n\n\0"
    page.network.sendall(b"".join(page.protocol.send(BytesMessage(data=bytes([one]))) for one in wire))
    page.receipt("b")
    page.subscribe(queue, ack="auto")
    assert [page.message()[0] for _ in range(300)] == [str(n) for n in range(300)]


def test_a_body_of_many_megabytes_passes_both_ways(web, queue):
    page = web()
    body = bytes(range(256)) * (4096 * 5)
    page.send("SEND", {"destination": queue, "content-length": str(len(body)), "receipt": "r"}, body)
    page.receipt("r")
    page.subscribe(queue)
    headers, got = page.read("MESSAGE")
    assert got == body
    page.send("ACK", id=headers["ack"], receipt="a")
    page.receipt("a")


def test_a_ping_is_answered(web):
    page = web()
    page.event(Ping(payload=b"are you there"))
    page.send("BEGIN", transaction="t", receipt="b")
    page.receipt("b")
    assert page.pongs == [b"are you there"]


def test_the_last_words_are_answered_before_the_close(web, queue):
    page = web()
    page.send("SEND", {"destination": queue}, b"x")
    page.send("DISCONNECT", receipt="bye")
    page.receipt("bye")
    assert page.frame()[0] == "EOF"
    assert page.closed == 1000


def test_a_close_ends_the_session_and_what_it_held_goes_to_others(web, queue):
    page = web()
    page.publish("x", queue)
    page.subscribe(queue)
    page.message()
    page.event(CloseConnection(code=1001))
    assert page.frame()[0] == "EOF"
    assert page.closed == 1001
    other = web()
    other.subscribe(queue)
    assert other.message()[1]["redelivered"] == "true"


def test_an_error_comes_as_a_frame_and_then_the_close(web):
    page = web()
    page.send("SEND", {"destination": "/exchange/x"}, b"x")
    assert "use /queue/NAME, /topic/NAME" in page.error()
    assert page.closed == 1000


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"path": "/"}, 404),
        ({"path": "/stomp/websocket"}, 404),
        ({"subprotocols": ("mqtt",)}, 400),
    ],
)
def test_others_are_refused_in_http(web, options, status):
    page = web(connect=False, **options)
    assert page.refused == status
    assert page.recv(0)


def test_a_page_of_any_site_may_ask_where_clients_must_log_in(web):
    web(origin="https://shop.example")


@pytest.mark.parametrize("users", [{}, {"guest": "secret"}])
def test_only_pages_of_allowed_sites_may(brokerd, users):
    listed = {"acceptor.users": users, "acceptor.websocket-allowed-origins": ["https://shop.example"]}
    broker = brokerd(**listed)
    Web(broker.port, origin="https://shop.example").close()
    assert Web(broker.port, origin="https://shop.example.evil", connect=False).refused == 403


def test_no_page_may_where_everybody_may_connect(brokerd):
    broker = brokerd(**{"acceptor.users": {}})
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{broker.port}"):
        assert Web(broker.port, origin=origin, connect=False).refused == 403
    Web(broker.port).close()


def test_a_browser_that_asks_for_a_page_is_told(shared):
    with socket.create_connection(("127.0.0.1", shared.port), timeout=BOUND_S) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while data := asking.recv(65536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Upgrade" in answer


def handshake(host):
    headers = [b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13", b"Host: " + host]
    return b"\r\n".join(
        [b"GET /stomp HTTP/1.1", b"Sec-WebSocket-Key: " + b"A" * 22 + b"==", *headers, b"", b""]
    )


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /stomp HTTP/1.1\r\n" + b"x: " + b"y" * 100_000,
        b"GET /stomp HTTP/9\r\n\r\n",
        b"G" * 40_000,
        handshake(b"\xff\xfe"),
        handshake(b"xn--999999999"),
    ],
)
def test_what_is_no_handshake_is_refused_in_bounded_memory(shared, wire):
    with socket.create_connection(("127.0.0.1", shared.port), timeout=BOUND_S) as asking:
        try:
            asking.sendall(wire)
            answer = asking.recv(65536)
        except ConnectionError:
            return
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "frame", [b"\x82\x01a", b"\x83\x80\0\0\0\0", b"\x81\x81\0\0\0\0\xff", b"\x88\x81\0\0\0\0x"]
)
def test_what_is_no_websocket_frame_ends_the_connection(web, shared, frame):
    page = web()
    page.network.sendall(frame)
    assert "what came is not WebSocket" in page.error()
    assert page.closed in (1002, 1007)
    Raw(shared.port).close()
