"""Bodies say who they are, or that they cannot be read."""

import pytest
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from workloads.payload import PRODUCER_MAX, Payload, Writer, decode, digest, encode, unreadable
from workloads.producer import Producer

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
payloads = st.builds(
    Payload,
    st.integers(0, 2**63 - 1),
    names,
    st.none() | names.filter(lambda name: name != "-"),
    st.integers(0, PRODUCER_MAX),
    st.integers(0, 2**63 - 1),
)


@given(payloads, st.integers(0, 300))
def test_round_trip_at_any_size(payload, payload_bytes):
    body = encode(payload, payload_bytes)
    assert decode(body) == payload
    assert len(body) >= payload_bytes
    assert len(body) == max(payload_bytes, len(encode(payload)))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused_never_raise(body):
    assert decode(body) is None or isinstance(decode(body), Payload)
    assert "unreadable body of" in unreadable(body)


@given(payloads, st.data())
def test_a_flipped_byte_is_seen_in_the_digest(payload, data):
    body = bytearray(encode(payload, 64))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    assert digest(bytes(body)) != digest(encode(payload, 64))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"jr1 1 2 3 q g",
        b"jr2 1 2 3 q g ",
        b"jr1 -1 2 3 q g ",
        b"jr1 +1 2 3 q g ",
        b"jr1 1_0 2 3 q g ",
        b"jr1 99999999999999999999 2 3 q g ",
        b"jr1 9223372036854775808 2 3 q g ",
        b"jr1 1 8388608 3 q g ",
        b"jr1 1 2 3 \xff g ",
        b"jr1 1 2  q g ",
    ],
)
def test_what_is_not_ours_is_unreadable(body):
    assert decode(body) is None


def test_digest_is_crc32c():
    assert digest(b"123456789") == 0xE3069283 == value(b"123456789")


@pytest.mark.parametrize(
    ("queue", "group"), [("a b", None), ("q", "-"), ("", "g"), ("q", "ü"), ("q", "a\nb")]
)
def test_names_that_a_body_cannot_hold_are_refused(queue, group):
    with pytest.raises(ValueError, match=r"no name|cannot be called"):
        Writer(1, queue, group, 0)


def test_message_ids_are_unique_positive_and_fit_64_bits():
    ids = [Producer(number).next_message() for number in (0, 1, PRODUCER_MAX)]
    assert all(0 < one < 2**63 for one in ids)
    producer = Producer(3)
    assert len({*ids, *(producer.next_message() for _ in range(1000))}) == 1003


def test_a_producer_number_without_room_is_refused():
    with pytest.raises(ValueError, match="not within"):
        Producer(PRODUCER_MAX + 1)


def test_a_share_of_the_bodies_is_large_and_they_are_spread_evenly():
    writer = Writer(1, "q", "g", 100, large_share=0.2, large_bytes=5000)
    sizes = [len(writer.encode(message, message)) for message in range(20)]
    assert sizes == [5000 if message % 5 == 4 else 100 for message in range(20)]
    whole = Writer(1, "q", "g", 100, large_share=1.0, large_bytes=5000)
    assert {len(whole.encode(message, message)) for message in range(20)} == {5000}
