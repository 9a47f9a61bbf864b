from hypothesis import given
from hypothesis import strategies as st

from broker.core.duplicates import decode_forwarded, encode_forwarded
from broker.core.identity import MessageId
from broker.core.message import FORWARDED, OVERHEAD, Message, decode, encode, stored_size
from broker.core.properties import Properties
from broker.stomp.headers import kept_headers
from broker.storage.blobs import Blob
from broker.storage.records import Record
from stomp_protocol.codec import Parser
from stomp_protocol.versions import header_line

text = st.text(max_size=20)


numbers = st.integers(0, 2**64 - 1)
identities = st.builds(MessageId, text, numbers, st.integers(0, 2**32 - 1))
properties = st.builds(Properties, st.integers(0, 9), numbers, numbers, st.just(""))
blobs = st.builds(Blob, numbers, numbers, st.integers(0, 2**32 - 1))


@given(
    text,
    st.binary(max_size=50),
    st.binary(max_size=50),
    st.none() | text,
    st.booleans(),
    numbers,
    st.none() | blobs,
    st.none() | properties,
    st.none() | identities,
)
def test_a_message_survives_its_record(
    target, headers, body, group, closes, queue_id, large, properties, identity
):
    closes = closes and group is not None
    message = Message(target, headers, body, group, closes=closes, large=large, properties=properties)
    message.identity = identity
    data = encode(message, queue_id)
    again_id, again = decode(7, data)
    assert again_id == queue_id
    assert (again.id, again.target, again.headers, again.body) == (7, target, headers, body)
    assert (again.group, again.closes, again.size) == (group, message.closes, message.size)
    assert (again.large, again.properties, again.identity) == (large, properties, identity)
    assert stored_size(data) == message.size == len(headers) + len(body) + OVERHEAD


@given(text, identities)
def test_an_identity_survives_its_record(sender, identity):
    record = Record(1, FORWARDED, encode_forwarded(sender, identity), [])
    assert decode_forwarded(record) == (sender, identity)


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
