from hypothesis import given
from hypothesis import strategies as st

from broker.core.duplicates import DuplicateId, decode_duplicate, encode_duplicate
from broker.core.message import Message, decode, encode
from broker.stomp.headers import kept_headers
from stomp_protocol.codec import Parser
from stomp_protocol.versions import header_line

text = st.text(max_size=20)


@given(
    text,
    st.binary(max_size=50),
    st.binary(max_size=50),
    st.none() | text,
    st.booleans(),
    st.integers(0, 2**64 - 1),
)
def test_a_message_survives_its_record(target, headers, body, group, closes, queue_id):
    message = Message(target, headers, body, group, closes=closes and group is not None)
    again_id, again = decode(7, encode(message, queue_id))
    assert again_id == queue_id
    assert (again.id, again.target, again.headers, again.body) == (7, target, headers, body)
    assert (again.group, again.closes, again.size) == (group, message.closes, message.size)


@given(text, st.integers(0, 2**64 - 1))
def test_a_duplicate_id_survives_its_record(origin, record):
    assert decode_duplicate(encode_duplicate(DuplicateId(origin, record))) == DuplicateId(origin, record)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.dictionaries(names, values, max_size=5), st.binary(max_size=20))
def test_kept_headers_are_read_by_the_codec_as_they_were_given(headers, body):
    headers = {name: value for name, value in headers.items() if name != "content-length"}
    frame = (
        b"MESSAGE\n"
        + header_line("subscription", "1")
        + kept_headers(headers, len(body))
        + b"\n"
        + body
        + b"\0"
    )
    (parsed,) = Parser().feed(frame)
    dropped = {
        "receipt",
        "transaction",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "JMSXDeliveryCount",
    }
    expected = {name: value for name, value in headers.items() if name not in dropped}
    assert parsed.headers == {"subscription": "1", **expected, "content-length": str(len(body))}
    assert parsed.body == body
