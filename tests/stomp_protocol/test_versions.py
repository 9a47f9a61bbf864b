"""Versions of STOMP: which one two peers speak, and how each writes and reads a header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stomp_protocol.codec import Parser
from stomp_protocol.errors import RemoteProtocolError
from stomp_protocol.versions import V1_0, V1_1, V1_2, VERSIONS, VersionRefusedError, header_line, negotiate

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def headers(version, lines):
    (frame,) = Parser(version=version).feed(b"SEND\n" + lines + b"\n\0")
    return frame.headers


@pytest.mark.parametrize(
    ("offer", "agreed"),
    [
        (None, V1_0),
        ("1.0", V1_0),
        ("1.1", V1_1),
        ("1.2", V1_2),
        ("1.0,1.1", V1_1),
        ("1.0,1.1,1.2", V1_2),
        ("1.2,1.1", V1_2),
        ("1.1, 1.2, 2.0", V1_2),
        ("1.0,3.0", V1_0),
    ],
)
def test_the_highest_common_version_is_agreed(offer, agreed):
    assert negotiate({} if offer is None else {"accept-version": offer}) is agreed


@pytest.mark.parametrize("offer", ["", "2.0", "1", "1.20", "1.2\n"[:1] + "x\x1b[2J"])
def test_no_common_version_is_refused_in_one_line_that_can_be_printed(offer):
    with pytest.raises(VersionRefusedError, match=r"1\.0,1\.1,1\.2") as caught:
        negotiate({"accept-version": offer})
    assert str(caught.value).isprintable()


class TestReading:
    @pytest.mark.parametrize("escape", ["\\n", "\\c", "\\\\", "\\r", "\\t", "\\"])
    def test_1_0_has_no_escapes(self, escape):
        assert headers(V1_0, f"a:x{escape}y\n".encode()) == {"a": f"x{escape}y"}

    def test_1_1_has_three(self):
        assert headers(V1_1, b"a:x\\n\\c\\\\y\n") == {"a": "x\n:\\y"}

    @pytest.mark.parametrize("escape", ["\\r", "\\t", "\\"])
    def test_1_1_refuses_others(self, escape):
        with pytest.raises(RemoteProtocolError, match=r"STOMP 1\.1 does not define"):
            headers(V1_1, f"a:x{escape}\n".encode())

    def test_1_0_cuts_spaces_off_and_others_keep_them(self):
        assert headers(V1_0, b"a : x y \n") == {"a": "x y"}
        for version in (V1_1, V1_2):
            assert headers(version, b"a : x y \n") == {"a ": " x y "}

    def test_a_carriage_return_belongs_to_the_line_end_except_in_1_1(self):
        assert headers(V1_0, b"a:x\r\n") == headers(V1_2, b"a:x\r\n") == {"a": "x"}
        assert headers(V1_1, b"a:x\r\n") == {"a": "x\r"}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_the_first_of_repeated_headers_counts(self, version):
        assert headers(version, b"a:1\na:2\n") == {"a": "1"}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_connect_has_no_escapes_in_any(self, version):
        (frame,) = Parser(version=version).feed(b"CONNECT\npasscode:a\\cb\\q\n\n\0")
        assert frame.headers == {"passcode": "a\\cb\\q"}

    @pytest.mark.parametrize("ends", [b"\n", b"\n\n\n", b"\r\n\r\n"])
    @pytest.mark.parametrize("place", ["before its NUL", "behind it"])
    def test_connect_may_end_with_line_ends(self, ends, place):
        wire = b"CONNECT\na:1\n\n" + (ends + b"\0" if place == "before its NUL" else b"\0" + ends)
        for cuts in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
            parser = Parser()
            assert [frame.headers for cut in cuts for frame in parser.feed(cut)] == [{"a": "1"}]


class TestWriting:
    @pytest.mark.parametrize("version", [V1_1, V1_2])
    @given(name=text.filter(bool), value=text)
    def test_what_is_written_is_read_again(self, version, name, value):
        if version is V1_1 and "\r" in (name + value)[-1:]:
            value += "."
        assert headers(version, version.header_line(name, value)) == {name: value}

    @pytest.mark.parametrize("version", VERSIONS)
    @given(told=st.dictionaries(text.filter(bool), text, max_size=4))
    def test_a_kept_message_is_rewritten_as_if_it_had_come_in_that_version(self, version, told):
        kept = b"".join(header_line(name, value) for name, value in told.items())
        assert version.rewritten(kept) == b"".join(version.header_line(*one) for one in told.items())

    @given(name=text, value=text)
    def test_no_line_of_1_0_breaks_a_frame(self, name, value):
        line = V1_0.header_line(name, value)
        assert line.count(b"\n") == 1
        assert line.split(b":", 1)[1] == value.replace("\n", "\\n").encode() + b"\n"
