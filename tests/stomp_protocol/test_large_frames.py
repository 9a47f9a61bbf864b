"""Large bodies come in parts, as they arrive, and nothing of them stays in the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stomp_protocol.codec import Parser, encode
from stomp_protocol.errors import RemoteProtocolError
from stomp_protocol.frames import Frame, LargeHead, LargePart
from stomp_protocol.limits import Limits

CUT = 300
LIMITS = Limits(large_from=100, max_body_bytes=1000, max_header_bytes=64)
HELD = 100 + 64 + CUT


def whole(events):
    """The frames as they were sent: (command, headers, body)."""
    frames = []
    body = None
    for event in events:
        if isinstance(event, LargePart):
            body += event.body
            if event.last:
                frames[-1] = (*frames[-1][:2], body)
                body = None
        elif isinstance(event, LargeHead):
            assert body is None
            body = b""
            frames.append((event.command, event.headers, None))
        else:
            assert body is None
            frames.append((event.command, event.headers, event.body))
    assert body is None
    return frames


@given(
    sizes=st.lists(st.sampled_from([0, 1, 99, 100, 101, 400, 1000]), max_size=6),
    counted=st.lists(st.booleans(), min_size=6, max_size=6),
    cuts=st.lists(st.integers(1, CUT), min_size=1, max_size=20),
)
def test_any_cut_of_the_stream_gives_the_same_frames(sizes, counted, cuts):
    sent = []
    stream = b""
    for number, size in enumerate(sizes):
        body = bytes(1 + (number + place) % 255 for place in range(size))
        headers = {"destination": "/queue/q", "n": str(number)}
        if counted[number] and body:
            headers["content-length"] = str(size)
            stream += encode("SEND", headers, body)
        else:
            stream += encode("SEND", headers)[:-1] + body + b"\0"
        sent.append(("SEND", headers, body))
        stream += b"\n"
    parser = Parser(LIMITS)
    events = []
    place = 0
    turn = 0
    while place < len(stream):
        step = cuts[turn % len(cuts)]
        events += parser.feed(stream[place : place + step])
        assert parser.held_bytes <= HELD
        place += step
        turn += 1
    assert whole(events) == sent
    assert all(len(event.body) <= HELD for event in events)


def test_a_body_with_zeros_needs_its_length_and_keeps_them():
    body = bytes(300)
    events = Parser(LIMITS).feed(encode("SEND", {"destination": "/queue/q"}, body))
    [(_, _, found)] = whole(events)
    assert found == body


def test_only_a_send_comes_in_parts():
    [frame] = Parser(LIMITS).feed(encode("MESSAGE", {"destination": "/queue/q"}, b"x" * 500))
    assert type(frame) is Frame
    assert frame.body == b"x" * 500


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"SEND\ndestination:q\ncontent-length:1001\n\n", "above the limit of 1000 bytes"),
        (b"SEND\ndestination:q\ncontent-length:200\n\n" + b"x" * 201, "is not followed by NUL"),
        (b"SEND\ndestination:q\n\n" + b"x" * 1001, "longer than 1000 bytes"),
    ],
)
def test_a_large_body_that_is_not_what_it_says_is_refused(stream, words):
    parser = Parser(LIMITS)
    with pytest.raises(RemoteProtocolError, match=words):
        for place in range(0, len(stream), 50):
            parser.feed(stream[place : place + 50])
