"""The codec by the letter of STOMP 1.2, by examples and by properties."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stomp_protocol.codec import Parser, encode, head
from stomp_protocol.errors import LocalProtocolError, RemoteProtocolError
from stomp_protocol.frames import COMMANDS, UNESCAPED, WITH_BODY, Frame
from stomp_protocol.limits import Limits

SMALL = Limits(max_headers=4, max_header_line_bytes=24, max_header_bytes=64, max_body_bytes=32)


def parse(*chunks, limits=Limits()):  # noqa: B008 - immutable
    parser = Parser(limits)
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
literal = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n:"), max_size=12)


@st.composite
def frames(draw):
    command = draw(st.sampled_from(sorted(COMMANDS.values())))
    words = literal if command in UNESCAPED else text
    headers = draw(
        st.dictionaries(words.filter(lambda name: name not in ("", "content-length")), words, max_size=5)
    )
    body = draw(st.binary(max_size=40)) if command in WITH_BODY else b""
    return Frame(command, headers, body)


def on_the_wire(frame):
    return encode(frame.command, frame.headers, frame.body)


def without_length(frame):
    return Frame(frame.command, {k: v for k, v in frame.headers.items() if k != "content-length"}, frame.body)


def cut(data, places):
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


class TestProperties:
    @given(st.lists(frames(), max_size=6), st.lists(st.integers(0, 10_000), max_size=20), st.booleans())
    def test_round_trip_however_the_network_cuts_the_stream(self, sent, places, heart_beats):
        wire = (b"\n\r\n" if heart_beats else b"").join(on_the_wire(frame) for frame in sent)
        arrived = parse(*cut(wire, places))
        assert [without_length(frame) for frame in arrived] == sent

    @given(st.lists(frames(), min_size=1, max_size=3))
    def test_byte_by_byte_is_as_in_one(self, sent):
        wire = b"".join(on_the_wire(frame) for frame in sent)
        assert parse(*(wire[i : i + 1] for i in range(len(wire)))) == parse(wire)

    @given(
        st.lists(
            st.one_of(
                st.sampled_from(
                    [
                        b"\n",
                        b"\r",
                        b"\r\n",
                        b"\0",
                        b":",
                        b"\\",
                        b"\\n",
                        b"a:b",
                        b"content-length:",
                        b"3",
                        b"-1",
                        b"\xff",
                    ]
                ),
                st.sampled_from(sorted(COMMANDS)),
                st.binary(max_size=8),
                frames().map(on_the_wire),
            ),
            max_size=30,
        ),
        st.lists(st.integers(0, 10_000), max_size=12),
    )
    def test_nonsense_is_refused_as_the_peers_fault_and_the_same_for_any_cut(self, pieces, places):
        data = b"".join(pieces)

        def outcome(chunks):
            parser, seen = Parser(SMALL), []
            try:
                for chunk in chunks:
                    seen += parser.feed(chunk)
                    assert parser.held_bytes <= SMALL.max_header_bytes + SMALL.max_body_bytes + len(chunk) + 4
            except RemoteProtocolError as error:
                return seen + error.frames, True
            return seen, False

        assert (
            outcome(cut(data, places))
            == outcome([data])
            == outcome([data[i : i + 1] for i in range(len(data))])
        )

    @given(frames())
    def test_crlf_line_ends_mean_the_same(self, frame):
        lines = head(frame.command, {**frame.headers, "content-length": str(len(frame.body))})
        plain = lines + b"\n" + frame.body + b"\0"
        wire = lines.replace(b"\n", b"\r\n") + b"\r\n" + frame.body + b"\0"
        assert parse(wire) == parse(plain)
        assert parse(*(wire[i : i + 1] for i in range(len(wire)))) == parse(plain)

    @given(st.lists(frames(), min_size=1, max_size=4))
    def test_frames_before_the_damage_are_handed_over_with_the_error(self, sent):
        parser = Parser()
        with pytest.raises(RemoteProtocolError) as caught:
            parser.feed(b"".join(map(on_the_wire, sent)) + b"NONSENSE\n\n\0")
        assert [without_length(frame) for frame in caught.value.frames] == sent


class TestParser:
    def test_body_without_length_ends_at_nul(self):
        assert parse(b"SEND\ndestination:/q\n\nhello\0\n\n") == [
            Frame("SEND", {"destination": "/q"}, b"hello")
        ]

    def test_body_with_length_may_hold_nul(self):
        assert parse(b"SEND\ncontent-length:3\n\na\0b\0")[0].body == b"a\0b"

    def test_first_of_repeated_headers_counts(self):
        assert parse(b"MESSAGE\nfoo:World\nfoo:Hello\n\n\0")[0].headers == {"foo": "World"}

    def test_repeated_content_length_first_counts(self):
        assert parse(b"SEND\ncontent-length:1\ncontent-length:2\n\na\0")[0].body == b"a"

    def test_escapes(self):
        assert parse(rb"SEND" + b"\n" + rb"a\cb:x\\n\n\r\c" + b"\n\n\0")[0].headers == {"a:b": "x\\n\n\r:"}

    @pytest.mark.parametrize("command", ["CONNECT", "CONNECTED"])
    def test_no_escapes_in(self, command):
        assert parse(f"{command}\nlogin:a\\cb\\t\n\n\0".encode())[0].headers == {"login": "a\\cb\\t"}

    def test_values_are_not_trimmed_and_may_be_empty(self):
        assert parse(b"ACK\nid: 7 \nx:\n\n\0")[0].headers == {"id": " 7 ", "x": ""}

    def test_colon_in_a_value_is_taken_literally(self):
        assert parse(b"ERROR\nat:127.0.0.1:99\n\n\0")[0].headers == {"at": "127.0.0.1:99"}

    def test_heart_beats_are_no_frames_and_leave_nothing_behind(self):
        parser = Parser()
        assert [parser.feed(b"\n"), parser.feed(b"\r"), parser.feed(b"\n\n"), parser.held_bytes] == [
            [],
            [],
            [],
            0,
        ]

    def test_takes_bytearray_and_memoryview(self):
        assert parse(bytearray(b"ACK\nid:1"), memoryview(b"\n\n\0"))[0].headers == {"id": "1"}

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"GET / HTTP/1.1\r\n", "unknown command b'GET / HTTP/1."),
            (b"\x16\x03\x01" + b"a" * 99, "unknown command"),
            (b"send\n\n\0", "unknown command b'send'"),
            (b"ACK\nid\n\n\0", "'id', which is not \"name:value\""),
            (b"ACK\n:1\n\n\0", "':1', which is not"),
            (b"SEND\na:\\t\n\n\0", r"the escape '\\\\t'"),
            (b"SEND\na:x\\\n\n\0", r"the escape '\\\\'"),
            (b"SEND\na:\xff\n\n\0", "not UTF-8"),
            (b"SEND\na:b\rc\n\n\0", "carriage return"),
            (b"ACK\nid:1\n\nbody\0", "ACK has a body"),
            (b"SEND\ncontent-length:2\n\nabc\0", "not followed by NUL"),
            (b"SEND\ncontent-length:-1\n\n\0", "content-length '-1' is not"),
            (b"SEND\ncontent-length:+1\n\na\0", "is not a number"),
            (b"SEND\ncontent-length:1_0\n\na\0", "is not a number"),
            ("SEND\ncontent-length:٣\n\naaa\0".encode(), "is not a number"),
            (b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n", "is not a number"),
            (b"SEND\ncontent-length:99999999999\n\n", "above the limit of 16777216 bytes"),
        ],
    )
    def test_refuses(self, data, says):
        with pytest.raises(RemoteProtocolError) as caught:
            parse(data)
        assert says.replace("\\\\\\\\", "\\\\") in str(caught.value)

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"ACK\n" + b"a:b\n" * 5 + b"\n\0", "more than 4 headers"),
            (b"ACK\na:" + b"b" * 23 + b"\n\n\0", "longer than 24 bytes"),
            (b"ACK\n" + b"a" * 61, "longer than 64 bytes"),
            (b"ACK\n" + b"a:45678901234567890\n" * 3 + b"a\n\n", "longer than 64 bytes"),
            (b"SEND\n\n" + b"x" * 33, "longer than 32 bytes"),
            (b"SEND\ncontent-length:33\n\n", "above the limit of 32 bytes"),
        ],
    )
    def test_limits(self, data, says):
        parser = Parser(SMALL)
        with pytest.raises(RemoteProtocolError, match=says):
            parser.feed(data + b"x" * 4)
        with pytest.raises(RemoteProtocolError, match=says):
            parser.feed(b"ACK\n\n\0")
        assert parser.held_bytes == 0

    def test_what_is_exactly_at_the_limits_is_good(self):
        line = b"a:" + b"b" * 22
        assert len(parse(b"SEND\n" + line + b"\n\n" + b"x" * 32 + b"\0", limits=SMALL)) == 1
        assert len(parse(b"ACK\n" + b"abcd:67890123456789\n" * 3 + b"\n\0", limits=SMALL)) == 1

    def test_exactly_full_headers_are_good_in_single_bytes_too(self):
        wire = b"ACK\r\n" + b"abcd:6789012345678\r\n" * 2 + b"abcd:678901234567\r\n\r\n\0"
        assert wire.index(b"\r\n\r\n") + 2 == SMALL.max_header_bytes
        assert len(parse(*(wire[i : i + 1] for i in range(len(wire))), limits=SMALL)) == 1

    def test_one_byte_of_headers_too_many(self):
        with pytest.raises(RemoteProtocolError, match="longer than 64 bytes"):
            parse(b"ACK\n" + b"abcd:67890123456789\n" * 2 + b"abcd:678901234567890\n\n\0", limits=SMALL)

    def test_the_number_of_short_headers_is_limited(self):
        lines = b"".join(b"h%d:v\n" % number for number in range(129))
        assert len(parse(b"ACK\n" + lines[: -len(b"h128:v\n")] + b"\n\0")[0].headers) == 128
        with pytest.raises(RemoteProtocolError, match="ACK has more than 128 headers"):
            parse(b"ACK\n" + lines + b"\n\0")

    def test_a_body_without_end_is_refused_before_it_fills_the_memory(self):
        parser = Parser(SMALL)
        parser.feed(b"SEND\n\n")
        with pytest.raises(RemoteProtocolError, match="longer than 32 bytes"):
            for _ in range(50):
                parser.feed(b"x" * 10)

    def test_a_limit_below_one_is_refused(self):
        with pytest.raises(ValueError, match="max_headers is 0"):
            Limits(max_headers=0)


class TestEncode:
    def test_bodies_have_their_length(self):
        assert (
            encode("SEND", {"destination": "/q"}, b"a\0")
            == b"SEND\ndestination:/q\ncontent-length:2\n\na\0\0"
        )

    def test_no_body_no_length(self):
        assert encode("BEGIN", {"transaction": "t"}) == b"BEGIN\ntransaction:t\n\n\0"

    def test_no_headers(self):
        assert encode("DISCONNECT", {}) == b"DISCONNECT\n\n\0"

    def test_connect_is_written_literally(self):
        assert encode("CONNECT", {"host": "a:1\\"}) == b"CONNECT\nhost:a:1\\\n\n\0"

    @pytest.mark.parametrize(
        ("command", "headers", "body", "says"),
        [
            ("HELLO", {}, b"", "unknown command 'HELLO'"),
            ("ACK", {}, b"x", "ACK with a body"),
            ("SEND", {"": "x"}, b"", "without a name"),
            ("SEND", {"content-length": "7"}, b"x", "content-length '7' for a body of 1 bytes"),
            ("SEND", {"content-length": "7"}, b"", "content-length '7' for a body of 0 bytes"),
            ("CONNECT", {"login": "a\nb"}, b"", "needs an escape"),
            ("CONNECT", {"lo:gin": "a"}, b"", "needs an escape"),
            ("SEND", {"a": "\ud800"}, b"", "UTF-8"),
        ],
    )
    def test_refuses_what_cannot_be_said(self, command, headers, body, says):
        with pytest.raises(LocalProtocolError, match=says):
            encode(command, headers, body)
