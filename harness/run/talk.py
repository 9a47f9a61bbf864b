"""The steps of a client's conversation with one broker, told as rows of a table.

These are the steps with queues; ``harness.run.conversation`` has the steps for features that not
all brokers have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from checkers.verdict import Promises
from harness.interface import (
    Address,
    Dialect,
    InfrastructureError,
    StoredMessage,
    UsageError,
)
from harness.systems.stomp_client import StompClient
from stomp_protocol.errors import ProtocolError
from stomp_protocol.frames import Frame

ANSWER_S: Final = 15.0
"""The seconds that a broker may take to answer, or to give a message to its next consumer."""

QUIET_S: Final = 1.5
"""Seconds without a message after which a step concludes that none comes."""

POLL_S: Final = 0.2
_BEATS: Final = 4
_WINDOW: Final = 2

State = Literal["as said", "DEPARTS", "unknown", "not claimed"]


class Row(NamedTuple):
    """A statement of a system's module, and what was seen of it."""

    what: str
    said: str
    seen: str
    state: State


class StepResult(NamedTuple):
    """The result of a step: what it saw, and whether the module says so; None: undecided.

    A feature that the module says its brokers lack is not ``claimed``, whatever they do.
    """

    said: str
    seen: str
    right: bool | None
    claimed: bool = True


FAILURES: Final = (OSError, EOFError, TimeoutError, InfrastructureError, ProtocolError, UsageError)


class RefusedError(Exception):
    """A broker's refusal of something that its module says it does."""


async def tried(name: str, claim: str, step: Callable[[], Awaitable[StepResult]]) -> Row:
    """Try a step and return its row; a step that could not be tried is unknown."""
    try:
        observation = await step()
    except RefusedError as error:
        return Row(name, claim, str(error), "DEPARTS")
    except FAILURES as error:
        return Row(name, claim, f"could not be tried: {str(error) or type(error).__name__}", "unknown")
    if not observation.claimed:
        return Row(name, observation.said, observation.seen, "not claimed")
    state: State = "unknown" if observation.right is None else "as said" if observation.right else "DEPARTS"
    return Row(name, observation.said, observation.seen, state)


@dataclass(slots=True)
class Talk:
    """The steps that clients take with one live broker, each with a queue or topic of its own."""

    dialect: Dialect
    promises: Promises
    at: Address
    node: str
    queues: Iterator[str]
    topics: Iterator[str]
    browse: Callable[[], Awaitable[Sequence[StoredMessage]]]
    surviving: tuple[str, list[str]] = field(default=("", []))
    """The queue by which a restart is judged, and the messages that must still be in it."""

    async def rows(self) -> list[Row]:
        """Try all steps and return their rows.

        If no client can log in, the other steps are unknown for that reason.
        """
        first = await tried("connect", f"login {self.dialect.login or 'without a name'}", self.connect)
        steps = self.steps()
        if first.state != "as said":
            return [first, *(Row(name, "", "nobody can log in", "unknown") for name, _ in steps)]
        return [first, *[await tried(name, "", step) for name, step in steps]]

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[StepResult]]]]:
        """Return the steps that are tried once a client can log in, each with its name."""
        return [
            ("heart-beats", self.heart_beats),
            ("send and receipt", self.sends),
            ("window", self.window),
            ("groups", self.groups),
            ("redelivery", self.redelivery),
            ("acknowledgement", self.acknowledges),
            ("second acknowledgement", self.acknowledges_twice),
            ("refusal (NACK)", self.refuses),
            ("browse", self.browses),
        ]

    async def connect(self) -> StepResult:
        """Check that a client can log in, and that the broker names itself as the dialect says."""
        async with await self._client() as client:
            answer = client.connected
        header = self.dialect.name_header
        claim = f"login {self.dialect.login!r}" + (f", {header} names the broker" if header else "")
        if answer.command != "CONNECTED":
            return StepResult(claim, f"{answer.command}: {answer.headers.get('message', '')}", right=False)
        named = header is None or bool(answer.headers.get(header))
        version = answer.headers.get("version", "1.0")
        observed = f"CONNECTED, version {version}" + (f", {answer.headers.get(header)}" if header else "")
        return StepResult(claim, observed, right=named and version == "1.2")

    async def heart_beats(self) -> StepResult:
        """Check that the broker is never silent for as long as makes a client give it up."""
        beat_s = self.dialect.heart_beat_s
        async with await self._client() as client:
            heart_beats = client.connected.headers.get("heart-beat", "0,0")
            if not beat_s:
                return StepResult("no heart-beats", heart_beats, right=heart_beats == "0,0")
            loop = asyncio.get_running_loop()
            until, longest, last = loop.time() + _BEATS * beat_s + 1.0, 0.0, loop.time()
            while loop.time() < until:
                before = client.heard
                await client.message(beat_s / 5)
                if client.heard != before:
                    longest, last = max(longest, loop.time() - last), loop.time()
            longest = max(longest, loop.time() - last)
        bound_s = self.dialect.silent_beats * beat_s
        observed = f"{heart_beats}; {client.heard} beats, longest silence {longest:.1f} s"
        return StepResult(
            f"a beat each {beat_s:g} s, silence below {bound_s:g} s", observed, right=longest < bound_s
        )

    async def sends(self) -> StepResult:
        """Check that a sent message gets a receipt and is delivered from its queue unchanged.

        A first delivery must have no mark of a redelivery, and the count that the dialect names.
        """
        queue = next(self.queues)
        await self._send(queue, ["hello"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await client.message(ANSWER_S)
        if message is None:
            return StepResult(self.dialect.destination(queue), "RECEIPT, and no delivery", right=False)
        body = message.body.decode(errors="replace")
        marked, count = self.dialect.delivery(message.headers)
        claim = f"{self.dialect.destination(queue)}; a first delivery has no mark"
        observed = f"delivered {body!r}, {'marked' if marked else 'no mark'}"
        right = body == "hello" and not marked
        if self.dialect.count_header is not None:
            first = self.dialect.first_count
            claim += (
                f", and {self.dialect.count_header} {'is not there' if first is None else f'says {first}'}"
            )
            observed += f", {message.headers.get(self.dialect.count_header, 'no such header')}"
            right &= count == (None if first is None else 1)
        return StepResult(claim, observed, right=right)

    async def window(self) -> StepResult:
        """Check that a consumer holds no more messages than its window."""
        queue = next(self.queues)
        await self._send(queue, [f"w{n}" for n in range(_WINDOW * 4)])
        async with await self._client() as client:
            await self._subscribe(client, queue, _WINDOW)
            count = 0
            while await client.message(ANSWER_S if not count else QUIET_S) is not None:
                count += 1
        if self.dialect.window_header is None:
            return StepResult("no window", f"{count} of {_WINDOW * 4} held", right=count == _WINDOW * 4)
        claim = f"{self.dialect.window_header} of {_WINDOW}"
        if self.dialect.window_unit != 1:
            less = count < _WINDOW * 4
            observed = f"{count} of {_WINDOW * 4} held; a window in bytes is no number of messages"
            return StepResult(claim, observed, right=True if less else None)
        return StepResult(claim, f"{count} held", right=count == _WINDOW)

    async def groups(self) -> StepResult:
        """Check that each group goes to one of two consumers, in the order in which it was sent."""
        if self.dialect.group_header is None:
            return StepResult("no groups", "not tried", right=None)
        queue, names, messages_per_group = next(self.queues), ("g1", "g2", "g3", "g4"), 6
        promised = self.promises.groups
        claim = f"{self.dialect.group_header}: " + (
            "one consumer for each group, in order" if promised else "nothing is promised of groups"
        )
        async with await self._client() as first, await self._client() as second:
            for client in (first, second):
                await self._subscribe(client, queue, 1)
            for number in range(messages_per_group):
                for group in names:
                    await self._send(queue, [f"{group} {number}"], group)
            got: dict[str, list[tuple[int, int]]] = {}
            silent = 0
            while (
                sum(map(len, got.values())) < messages_per_group * len(names) and silent < ANSWER_S / QUIET_S
            ):
                silent += 1
                for consumer, client in enumerate((first, second)):
                    while (message := await client.message(0.2)) is not None:
                        group, _, number_text = message.body.decode().partition(" ")
                        got.setdefault(group, []).append((consumer, int(number_text)))
                        await client.ask("ACK", id=message.headers.get("ack", ""))
                        silent = 0
        split = [
            group for group, deliveries in got.items() if len({consumer for consumer, _ in deliveries}) > 1
        ]
        wrong = [
            g
            for g, deliveries in got.items()
            if [number for _, number in deliveries] != list(range(messages_per_group))
        ]
        if sum(map(len, got.values())) < messages_per_group * len(names):
            return StepResult(
                claim,
                f"only {sum(map(len, got.values()))} of {messages_per_group * len(names)} came",
                right=False,
            )
        faults = [
            f"{fault}: {', '.join(deliveries)}"
            for fault, deliveries in (("split", split), ("out of order", wrong))
            if deliveries
        ]
        observed = "; ".join(faults)
        return StepResult(
            claim,
            observed or "one consumer for each of 4 groups, in order",
            right=not observed or not promised,
        )

    async def redelivery(self) -> StepResult:
        """Check that the message of a lost consumer comes again, marked if that is promised."""
        queue = next(self.queues)
        await self._send(queue, ["again"])
        client = await self._client()
        try:
            await self._subscribe(client, queue, 1)
            first = await client.message(ANSWER_S)
        finally:
            client.abort()
        promised = self.promises.marks_redeliveries
        claim = f"comes again; marked: {promised}"
        if first is None:
            return StepResult(claim, "never delivered", right=False)
        async with await self._client() as other:
            await self._subscribe(other, queue, 1)
            second = await other.message(ANSWER_S + self.dialect.unnoticed_s)
            if second is None:
                return StepResult(claim, "never came again", right=False)
            marked, count = self.dialect.delivery(second.headers)
            await other.ask("ACK", id=second.headers.get("ack", ""))
        is_known_again = marked or (count is not None and count > 1)
        observed = f"came again, {'marked' if is_known_again else 'no mark'}" + (
            f", count {count}" if count else ""
        )
        return StepResult(claim, observed, right=is_known_again or promised == "never")

    async def acknowledges(self) -> StepResult:
        """Check that an acknowledgement with a receipt removes a message for good."""
        queue = next(self.queues)
        await self._send(queue, ["done", "left"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            answer = await client.ask("ACK", id=message.headers.get("ack", ""))
        remaining = await self._remaining(queue)
        return StepResult(
            "RECEIPT, and it is gone", f"{answer_line(answer)}; left: {words(remaining)}",
            right=answer.command == "RECEIPT" and remaining == ["left"],
        )  # fmt: skip

    async def acknowledges_twice(self) -> StepResult:
        """Check whether a second acknowledgement of a message is ever answered with a receipt."""
        queue = next(self.queues)
        await self._send(queue, ["once"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            await client.ask("ACK", id=message.headers.get("ack", ""))
            client.patience_s = QUIET_S
            try:
                second_answer = answer_line(await client.ask("ACK", id=message.headers.get("ack", "")))
            except (TimeoutError, EOFError, OSError):
                second_answer = "no answer"
        if not self.promises.refuses_stale_acks:
            return StepResult("nothing is promised", second_answer, right=True)
        return StepResult("never answered with a RECEIPT", second_answer, right=second_answer != "RECEIPT")

    async def refuses(self) -> StepResult:
        """Check what becomes of a message that a consumer refused."""
        queue = next(self.queues)
        await self._send(queue, ["no"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            answer = await client.ask("NACK", id=message.headers.get("ack", ""))
            if answer.command != "RECEIPT":
                return StepResult(self.promises.nack, answer_line(answer), right=self.promises.nack == "none")
            second_delivery = await client.message(QUIET_S * 2)
            if second_delivery is not None:
                await client.ask("ACK", id=second_delivery.headers.get("ack", ""))
                return StepResult(self.promises.nack, "requeue", right=self.promises.nack == "requeue")
        try:
            stores = [copy.store for copy in await self.browse() if copy.body == b"no"]
        except FAILURES as error:
            observed = f"it did not come again; no store can be read: {error}"
            return StepResult(
                self.promises.nack, observed, right=False if self.promises.nack == "requeue" else None
            )
        became = "dead-letter" if "dead-letter" in stores else "requeue" if stores else "consume"
        dropped = not self.promises.keeps_dead_letters and self.promises.nack == "dead-letter"
        right = became == self.promises.nack or (became == "consume" and dropped)
        return StepResult(self.promises.nack, became, right=right)

    async def browses(self) -> StepResult:
        """Check that the stores show each message with queue, group and body.

        Reading the stores must not disturb the messages.
        """
        queue, bodies = next(self.queues), ["b1", "b2", "b3"]
        group = "g" if self.dialect.group_header is not None else None
        await self._send(queue, bodies, group)
        claim = "shows queue, group and body of each, and disturbs nothing"
        all_readings = []
        for _ in range(2):
            stored = [
                message for message in await self.browse() if message.body.decode(errors="replace") in bodies
            ]
            all_readings.append(
                sorted((message.queue, message.group or "", message.body.decode()) for message in stored)
            )
        expected = sorted((queue, group or "", body) for body in bodies)
        remaining = await self._remaining(queue)
        if all_readings != [expected, expected]:
            readings = "; then ".join(
                words([" ".join(message) for message in reading]) for reading in all_readings
            )
            return StepResult(claim, f"it shows {readings}", right=False)
        return StepResult(
            claim, f"3 shown twice, {len(remaining)} delivered after it", right=remaining == bodies
        )

    async def prepare_restart(self) -> None:
        """Send what must outlive a clean stop: one acknowledged message, two that are not."""
        queue = next(self.queues)
        await self._send(queue, ["settled", "kept 1", "kept 2"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            await client.ask("ACK", id=message.headers.get("ack", ""))
        self.surviving = queue, ["kept 1", "kept 2"]

    async def restarted(self) -> StepResult:
        """Check that after a restart the acknowledged message is gone and the others are there."""
        queue, expected = self.surviving
        remaining = await self._remaining(queue)
        return StepResult(
            f"left: {words(expected)}", f"left: {words(remaining)}", right=remaining == expected
        )

    # ---------------------------------------------------------------------------------------- parts

    async def _client(self, client_id: str | None = None) -> StompClient:
        """Return a client that is logged in; try again while the broker does not accept it.

        A broker may be live a moment before it listens, as Open MQ's bridge is. It may also believe
        that a client that has left is still connected, and refuse another of the same name.
        """
        beat_ms = round(self.dialect.heart_beat_s * 1000)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_S
        while True:
            try:
                client = await StompClient.open(
                    self.at, self.dialect, ANSWER_S, beat_ms, self.node, client_id
                )
                if client_id is None or client.connected.command == "CONNECTED":
                    return client
                client.abort()
                if loop.time() >= deadline:
                    raise OSError(f"client {client_id}: {answer_line(client.connected)}")
            except ConnectionRefusedError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(POLL_S)

    async def _subscribe(
        self, client: StompClient, queue: str, window: int, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        answer = await client.ask(
            "SUBSCRIBE",
            "",
            {"id": "1", **self.dialect.subscribe_headers(window, queue), **more},
            destination=self.dialect.destination(queue),
            ack=self.dialect.ack_mode,
        )
        confirmed(answer, "SUBSCRIBE")

    async def _send(
        self,
        queue: str,
        bodies: Sequence[str],
        group: str | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        async with await self._client() as client:
            for body in bodies:
                headers = {
                    **self.dialect.send_headers(group, queue),
                    **more,
                    "destination": self.dialect.destination(queue),
                    "content-length": str(len(body)),
                }
                confirmed(await client.ask("SEND", body, headers), "SEND")

    async def _expected(self, client: StompClient) -> Frame:
        message = await client.message(ANSWER_S)
        if message is None:
            raise TimeoutError("what was sent was not delivered")
        return message

    async def _remaining(self, queue: str) -> list[str]:
        """Return the messages that a new consumer of a queue still gets; acknowledge them."""
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            return await self._taken(client)

    async def _taken(self, client: StompClient) -> list[str]:
        """Return the messages that a subscriber still gets; acknowledge them."""
        bodies: list[str] = []
        while (message := await client.message(QUIET_S * 2 if not bodies else QUIET_S)) is not None:
            bodies.append(message.body.decode(errors="replace"))
            await client.ask("ACK", id=message.headers.get("ack", ""))
        return bodies


def confirmed(answer: Frame, request: str) -> None:
    """Raise RefusedError if the answer is not a RECEIPT."""
    if answer.command != "RECEIPT":
        raise RefusedError(f"{request} was answered {answer_line(answer)}")


def answer_line(answer: Frame) -> str:
    """Return a broker's answer as one line."""
    message = answer.headers.get("message", "") if answer.command == "ERROR" else ""
    return f"{answer.command}: {message}" if message else answer.command


def words(texts: Sequence[str]) -> str:
    """Return texts as one line, "nothing" if there are none."""
    return ", ".join(texts) or "nothing"
