"""Every way in which an operation can end, and that its outcome says no more than is certain."""

import asyncio
import gc

import msgspec
import pytest
from stomp_doubles import BOUND_S, DIALECT, PLAIN, UNREACHABLE, Server, in_loop, until

from stomp_protocol.client import connection as connections
from stomp_protocol.client.connection import ConnectError, connect
from workloads.failover import settings_of


class Outcome:
    def __init__(self):
        self.seen = []

    def complete(self, type, error):  # noqa: A002
        self.seen.append((type, error))


SEND = b"SEND\ndestination:/queue/q\n"


async def connected(server, dialect=DIALECT, *, timeout_s=30.0):
    return await connected_to(server.address, dialect, timeout_s)


def connected_to(address, dialect, timeout_s=30.0):
    return connect(address.host, address.port, settings_of(dialect, timeout_s), node="a1")


@in_loop
async def test_receipt_is_ok():
    async with Server() as server:
        connection = await connected(server)
        outcome = Outcome()
        connection.request(SEND, outcome, b"body")
        await until(lambda: outcome.seen)
        assert outcome.seen == [("ok", None)]
        assert server.peers[0].frames[-1].body == b"body"
        await connection.finish()
        assert connection.clean
        assert outcome.seen == [("ok", None)]


@in_loop
async def test_log_in_says_who_and_learns_who():
    async with Server("the broker") as server:
        connection = await connected(server)
        assert connection.broker == "the broker"
        headers = server.peers[0].frames[0].headers
        assert (headers["login"], headers["passcode"], headers["accept-version"]) == ("user", "secret", "1.2")
        connection.close("enough")


@in_loop
async def test_a_broker_that_does_not_tell_its_name_is_called_as_its_node():
    async with Server() as server:
        server.script["CONNECT"] = lambda peer, _: peer.say("CONNECTED", {"version": "1.2"})
        connection = await connected(server)
        assert connection.broker == "a1"
        connection.close("enough")


@in_loop
async def test_all_frames_of_one_turn_leave_in_one_write():
    async with Server() as server:
        connection = await connected(server)
        writes = []

        class Counting:
            def __init__(self, transport):
                self.transport = transport

            def write(self, data):
                writes.append(data)
                self.transport.write(data)

            def __getattr__(self, name):
                return getattr(self.transport, name)

        connection._transport = Counting(connection._transport)
        outcomes = [Outcome() for _ in range(50)]
        for outcome in outcomes:
            connection.request(SEND, outcome, b"x")
        await until(lambda: all(outcome.seen for outcome in outcomes))
        assert len(writes) == 1
        connection.close("enough")


@in_loop
async def test_receipts_in_any_order_find_their_operations():
    async with Server() as server:
        frames = []
        server.script["SEND"] = lambda _, frame: frames.append(frame)
        connection = await connected(server)
        first, second = Outcome(), Outcome()
        connection.request(SEND, first)
        connection.request(SEND, second)
        await until(lambda: len(frames) == 2)
        server.peers[0].receipt(frames[1])
        await until(lambda: second.seen)
        assert (first.seen, second.seen) == ([], [("ok", None)])
        connection.close("enough")
        assert first.seen == [("info", "enough")]


@in_loop
async def test_lost_before_a_byte_was_written_is_fail():
    async with Server() as server:
        connection = await connected(server)
        sent, unsent = Outcome(), Outcome()
        server.script["SEND"] = lambda *_: None
        connection.request(SEND, sent)
        await until(lambda: server.peers[0].frames[-1].command == "SEND")
        connection.request(SEND, unsent)
        connection.close("lost")
        assert sent.seen == [("info", "lost")]
        assert unsent.seen == [("fail", "not sent: lost")]


@in_loop
async def test_nothing_is_written_to_a_transport_that_is_closing():
    """A closing transport drops what it is given.

    What it was not given is certain not to have been sent.
    """
    async with Server() as server:
        connection = await connected(server)
        real = connection._transport
        written = []

        class Closing:
            def is_closing(self):
                return True

            def write(self, data):
                written.append(data)

            def abort(self):
                real.abort()

        connection._transport = Closing()
        outcome = Outcome()
        connection.request(SEND, outcome)
        await until(lambda: not connection._flushing)
        connection.close("gone")
        assert (written, outcome.seen) == ([], [("fail", "not sent: gone")])


@in_loop
async def test_lost_after_the_first_byte_is_info():
    async with Server() as server:
        server.script["SEND"] = lambda peer, _: peer.transport.abort()
        connection = await connected(server)
        outcome = Outcome()
        connection.request(SEND, outcome)
        await until(lambda: outcome.seen)
        assert outcome.seen[0][0] == "info"
        assert connection.closed


@in_loop
async def test_half_a_frame_on_the_wire_is_info():
    """The transport took the bytes, the network only some of them: nobody can know."""
    async with Server() as server:
        connection = await connected(server)
        server.peers[0].transport.pause_reading()
        outcome = Outcome()
        connection.request(SEND, outcome, b"x" * 50_000_000)
        await until(lambda: connection._transport.get_write_buffer_size() > 0)
        connection.close("gone")
        assert outcome.seen == [("info", "gone")]


@pytest.mark.parametrize(
    ("headers", "type"), [({}, "info"), ({"definite": "no"}, "info"), ({"definite": "yes"}, "fail")]
)
def test_error_for_an_operation_fails_only_what_the_dialect_calls_definite(headers, type):  # noqa: A002
    @in_loop
    async def run():
        async with Server() as server:
            server.script["SEND"] = lambda peer, frame: peer.say(
                "ERROR", {"message": "no room", "receipt-id": frame.headers["receipt"], **headers}
            )
            connection = await connected(server)
            refused, other = Outcome(), Outcome()
            connection.request(SEND, refused)
            connection.request(SEND, other)
            await until(lambda: connection.closed)
            assert refused.seen == [(type, "refused: no room")]
            assert other.seen == [("info", "broker said: no room")]

    run()


@in_loop
async def test_error_for_nobody_is_info_for_all():
    async with Server() as server:
        server.script["SEND"] = lambda peer, _: peer.say("ERROR", {"message": "oops", "definite": "yes"})
        connection = await connected(server)
        outcome = Outcome()
        connection.request(SEND, outcome)
        await until(lambda: connection.closed)
        assert outcome.seen == [("info", "broker said: oops")]


@in_loop
async def test_a_dialect_without_definite_errors_has_none():
    async with Server() as server:
        server.script["SEND"] = lambda peer, frame: peer.say(
            "ERROR", {"receipt-id": frame.headers["receipt"], "definite": "yes"}
        )
        connection = await connected(server, PLAIN)
        outcome = Outcome()
        connection.request(SEND, outcome)
        await until(lambda: connection.closed)
        assert outcome.seen == [("info", "refused: no message")]


@in_loop
async def test_time_out_is_info_and_a_late_receipt_changes_nothing():
    async with Server() as server:
        late = []
        server.script["SEND"] = lambda _, frame: late.append(frame)
        connection = await connected(server, timeout_s=1.0)
        outcome, after = Outcome(), Outcome()
        connection.request(SEND, outcome)
        await until(lambda: outcome.seen)
        assert outcome.seen == [("info", "time-out")]
        assert not connection.closed
        server.peers[0].receipt(late[0])
        del server.script["SEND"]
        connection.request(SEND, after)
        await until(lambda: after.seen)
        assert (outcome.seen, after.seen) == ([("info", "time-out")], [("ok", None)])
        connection.close("enough")


@in_loop
async def test_a_silent_broker_is_left_before_it_could_leave_us():
    """Time-out of the client: 2.5 heart-beats, 1.25 s; a broker in a test waits 2 s."""
    async with Server(heart_beat="500,500") as server:
        loop = asyncio.get_running_loop()
        connection = await connected(server)
        heard = connection._heard  # the silence counts from here, however late this test goes on
        outcome = Outcome()
        server.script["SEND"] = lambda *_: None
        connection.request(SEND, outcome)
        await until(lambda: connection.closed)
        assert outcome.seen == [("info", "broker silent")]
        assert loop.time() - heard >= 1.25
        assert DIALECT.silent_beats * DIALECT.heart_beat_s + connections._TICK_S < 2.0
        assert server.peers[0].heart_beats >= 1


@in_loop
async def test_heart_beats_of_the_broker_keep_a_connection():
    async with Server(heart_beat="500,500") as server:
        connection = await connected(server)
        silence_s = DIALECT.silent_beats * DIALECT.heart_beat_s
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.6 * silence_s
        while loop.time() < end or server.peers[0].heart_beats < 3:
            await asyncio.sleep(0.05)
            server.peers[0].transport.write(b"\n")
        assert not connection.closed
        connection.close("enough")


@in_loop
async def test_bytes_that_waited_while_this_process_stood_still_are_not_read():
    async with Server(heart_beat="500,500") as server:
        connection = await connected(server)
        messages = []
        connection.on_message = messages.append
        connection._heard -= 2.0
        connection.data_received(b"MESSAGE\nsubscription:1\nmessage-id:1\n\n\0")
        assert (messages, connection.closed) == ([], True)
        connection.data_received(b"MESSAGE\nsubscription:1\nmessage-id:1\n\n\0")
        assert messages == []


@in_loop
async def test_frames_behind_a_close_in_the_same_bytes_are_not_read():
    async with Server() as server:
        connection = await connected(server)
        messages = []

        def on_message(frame):
            messages.append(frame)
            connection.close("seen enough")

        connection.on_message = on_message
        connection.data_received(b"MESSAGE\nmessage-id:1\n\n\0" * 3)
        assert len(messages) == 1


@in_loop
async def test_what_is_not_stomp_ends_the_connection_after_the_good_frames():
    async with Server() as server:
        server.script["SEND"] = lambda peer, frame: (
            peer.receipt(frame),
            peer.transport.write(b"HTTP/1.1 200\r\n"),
        )
        connection = await connected(server)
        first, second = Outcome(), Outcome()
        connection.request(SEND, first)
        connection.request(SEND, second)
        await until(lambda: connection.closed)
        assert first.seen == [("ok", None)]
        assert second.seen[0][0] in ("ok", "info")
        assert "not STOMP" in await connection.ended


@in_loop
async def test_a_bug_completes_every_operation_with_info_and_is_raised():
    async with Server() as server:
        connection = await connected(server)

        class Broken(Outcome):
            def complete(self, type, error):  # noqa: A002
                super().complete(type, error)
                raise ZeroDivisionError

        broken, other = Broken(), Outcome()
        frames = []
        server.script["SEND"] = lambda _, frame: frames.append(frame)
        connection.request(SEND, broken)
        connection.request(SEND, other)
        await until(lambda: len(frames) == 2)
        server.peers[0].receipt(frames[0])
        with pytest.raises(ZeroDivisionError):
            await connection.ended
        assert (broken.seen, other.seen) == ([("ok", None)], [("info", "internal error")])


@in_loop
async def test_end_is_told_once_after_all_operations():
    async with Server() as server:
        connection = await connected(server)
        order = []

        class Ordered(Outcome):
            def complete(self, type, error):  # noqa: A002
                order.append(type)

        connection.on_end = order.append
        server.script["SEND"] = lambda peer, _: peer.transport.abort()
        connection.request(SEND, Ordered())
        await until(lambda: connection.closed)
        connection.close("again")
        assert order[0] == "info"
        assert len(order) == 2


@pytest.mark.parametrize("what", ["refused", "silent", "error", "closed", "not stomp"])
def test_connect_fails_in_bounded_time_and_leaves_nothing_open(what):
    @in_loop
    async def run():
        async with Server() as server:
            server.script["CONNECT"] = {
                "silent": lambda *_: None,
                "error": lambda peer, _: peer.say("ERROR", {"message": "login is wrong"}),
                "closed": lambda peer, _: peer.transport.abort(),
                "not stomp": lambda peer, _: peer.transport.write(b"SSH-2.0-OpenSSH\r\n"),
            }.get(what)
            address = UNREACHABLE if what == "refused" else server.address
            with pytest.raises(ConnectError) as caught:
                connect_timeout_s = 0.3 if what == "silent" else 30.0
                dialect = msgspec.structs.replace(DIALECT, connect_s=connect_timeout_s)
                await connected_to(address, dialect)
            expected = {
                "refused": "refused",
                "silent": "no answer in time",
                "error": "broker said: login is wrong",
                "closed": "",
                "not stomp": "not STOMP",
            }
            assert expected[what].lower() in str(caught.value).lower()
            for peer in server.peers:
                await asyncio.wait_for(peer.gone.wait(), BOUND_S)
        gc.collect()

    run()


@in_loop
async def test_farewell_without_an_answer_ends_all_the_same_but_not_cleanly():
    async with Server() as server:
        server.script["DISCONNECT"] = lambda *_: None
        connection = await connected(server)
        await connection.finish()
        assert (connection.closed, connection.clean) == (True, False)


@in_loop
async def test_a_client_that_asked_for_no_heart_beats_neither_sends_nor_misses_any():
    quiet = msgspec.structs.replace(DIALECT, heart_beat_s=0.0)
    async with Server(heart_beat="100,100") as server:
        connection = await connected(server, quiet)
        await asyncio.sleep(0.6)
        assert not connection.closed
        assert not server.peers[0].heart_beats
        connection.close("enough")
