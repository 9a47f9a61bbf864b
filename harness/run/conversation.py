"""The steps for features that not all brokers have.

These are topics, per-message options, dead letters and transactions. A dialect that names a header
for a feature claims that feature, and the broker must have it. If the dialect names no header, the
row is "not claimed". As far as it is cheap, such a row says whether the brokers do it all the same.
They are asked with the header that other brokers use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from checkers.schema import TOPIC
from harness.interface import Topics
from harness.run.talk import ANSWER_S, FAILURES, QUIET_S, StepResult, Talk, confirmed, words
from harness.systems.stomp_client import StompClient

_EXPIRES, _DELAY, _PRIORITY, _SELECTOR = "expires", "AMQ_SCHEDULED_DELAY", "priority", "selector"
"""The headers that most other brokers use for these features."""
_SHORT_MS, _LONG_MS = 500, 600_000
_DELAYED_MS: Final = 2000
_EARLY_S: Final = 0.1
"""The seconds by which a delivery may come before ``_DELAYED_MS``."""
_REFUSALS_MAX: Final = 12


class Conversation(Talk):
    """The steps of ``Talk``, and those for features that not all brokers have."""

    __slots__ = ()

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[StepResult]]]]:
        """Return the steps of ``Talk``, then those for features that not all brokers have."""
        return [
            *super().steps(),
            ("dead letter", self.dies),
            ("transaction: commit", self.commits),
            ("transaction: abort", self.aborts),
            ("expiry", self.expires),
            ("delay", self.delays),
            ("priority", self.hurries),
            ("selector of a queue", self.chooses),
            ("topic: plain", self.follows),
            ("topic: durable", self.outlives),
            ("topic: shared", self.shares),
            ("topic: drop", self.drops),
            ("topic: selector", self.selects),
        ]

    async def dies(self) -> StepResult:
        """Check that a message refused as often as allowed becomes one dead letter.

        The dead letter must name its origin if the broker promises that.
        """
        after = self.promises.dies_after
        if after < 1 or not self.promises.keeps_dead_letters or after > _REFUSALS_MAX:
            return StepResult("no refusals after which it certainly is one", "not tried", None, claimed=False)
        queue = next(self.queues)
        body = f"refused {queue}"
        await self._send(queue, [body])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            for _ in range(after):
                message = await self._expected(client)
                confirmed(await client.ask("NACK", id=message.headers.get("ack", "")), "NACK")
            redelivered = await client.message(QUIET_S)
        claim = f"after {after} refusals once, and where it was"
        if redelivered is not None:
            return StepResult(claim, "it came again", right=False)
        copies = [copy for copy in await self.browse() if copy.body == body.encode()]
        dead = [copy for copy in copies if copy.store == "dead-letter"]
        if not dead:
            return StepResult(claim, "no dead letter", right=False)
        origins = [copy.queue if copy.origin else "nowhere told" for copy in dead]
        observed = f"{len(dead)} dead, from {words(origins)}"
        if len(copies) == 1 and not dead[0].origin:  # no check needs the origin then
            return StepResult(f"after {after} refusals once; not where it was", observed, None, claimed=False)
        return StepResult(claim, observed, right=len(copies) == 1 and dead[0].queue == queue)

    async def commits(self) -> StepResult:
        """Check that a transaction's sends appear at its commit.

        What the transaction acknowledged must be gone.
        """
        source, target = next(self.queues), next(self.queues)
        acks = self.dialect.transactional_acks
        claim = "sends" + (" and the acknowledgement" if acks else "") + " happen by the commit"
        await self._send(source, ["taken"])
        async with await self._client() as client, await self._client() as other:
            await self._subscribe(other, target, 4)
            await self._in_transaction(client, source, target)
            early = await other.message(QUIET_S)
            confirmed(await client.ask("COMMIT", transaction="t"), "COMMIT")
            sent = ([] if early is None else [early.body.decode()]) + await self._taken(other)
        remaining = await self._remaining(source)
        observed = f"{'nothing' if early is None else early.body.decode()} before it, then {words(sent)}"
        observed += f"; left where it came from: {words(remaining)}"
        is_settled = not remaining or not acks
        return StepResult(
            claim, observed, right=early is None and sorted(sent) == ["t1", "t2"] and is_settled
        )

    async def aborts(self) -> StepResult:
        """Check that an aborted transaction sends nothing and returns what it acknowledged."""
        source, target = next(self.queues), next(self.queues)
        acks = self.dialect.transactional_acks
        claim = "no send happened" + (", what it acknowledged comes again" if acks else "")
        await self._send(source, ["taken"])
        async with await self._client() as client:
            await self._in_transaction(client, source, target)
            confirmed(await client.ask("ABORT", transaction="t"), "ABORT")
            redelivered = await client.message(QUIET_S) if acks and self.dialect.redelivers_aborted else None
        sent, remaining = await self._remaining(target), await self._remaining(source)
        observed = f"sent: {words(sent)}; left where it came from: {words(remaining)}"
        if acks and self.dialect.redelivers_aborted:
            claim += " in its session"
            observed += f"; {'not ' if redelivered is None else ''}in its session"
            if redelivered is None:
                return StepResult(claim, observed, right=False)
        return StepResult(claim, observed, right=not sent and (remaining == ["taken"] or not acks))

    async def _in_transaction(self, client: StompClient, source: str, target: str) -> None:
        """Begin a transaction with two sends and, if the dialect allows, an acknowledgement.

        Otherwise the message is acknowledged outside the transaction.
        """
        await self._subscribe(client, source, 1)
        message = await self._expected(client)
        confirmed(await client.ask("BEGIN", transaction="t"), "BEGIN")
        for body in ("t1", "t2"):
            headers = {
                **self.dialect.send_headers(None, target),
                "destination": self.dialect.destination(target),
            }
            client.tell("SEND", body, headers, transaction="t")
        ack = message.headers.get("ack", "")
        if self.dialect.transactional_acks:
            client.tell("ACK", id=ack, transaction="t")
        else:
            await client.ask("ACK", id=ack)

    async def expires(self) -> StepResult:
        """Check that an expired message is not delivered, and that one not yet expired is."""
        wishes, queue = self.dialect.wishes, next(self.queues)
        header = wishes.expires or _EXPIRES
        for body, lasts_ms in (("short", _SHORT_MS), ("long", _LONG_MS)):
            from_ms = 0 if wishes.expires and wishes.lasts else time.time_ns() // 1_000_000
            await self._send(queue, [body], None, {header: str(from_ms + lasts_ms)})
        await asyncio.sleep(3 * _SHORT_MS / 1000)
        got = await self._remaining(queue)
        return _claimed(wishes.expires, f"delivered after it: {words(got)}", does=got == ["long"])

    async def delays(self) -> StepResult:
        """Check that a delayed message is delivered after its delay, and not before."""
        header, queue = self.dialect.wishes.delay, next(self.queues)
        loop = asyncio.get_running_loop()
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            start_s = loop.time()
            await self._send(queue, ["later"], None, {header or _DELAY: str(_DELAYED_MS)})
            message = await client.message(ANSWER_S)
            after_s = loop.time() - start_s
            if message is not None:
                await client.ask("ACK", id=message.headers.get("ack", ""))
        observed = "never delivered" if message is None else f"delivered after {after_s:.1f} of 2 s"
        does = message is not None and after_s >= _DELAYED_MS / 1000 - _EARLY_S
        return _claimed(header, observed, does=does)

    async def hurries(self) -> StepResult:
        """Check that the waiting message with the highest priority is delivered first."""
        header, queue = self.dialect.wishes.priority, next(self.queues)
        for body, priority in (("low", 1), ("urgent", 9)):
            await self._send(queue, [body], None, {header or _PRIORITY: str(priority)})
        got = await self._remaining(queue)
        return _claimed(header, f"in this order: {words(got)}", does=got == ["urgent", "low"])

    async def chooses(self) -> StepResult:
        """Check that a consumer with a selector gets only a queue's matching messages.

        The other messages must remain for other consumers.
        """
        return await self._selected(next(self.queues), ["red", "blue"])

    # --------------------------------------------------------------------------------------- topics

    async def follows(self) -> StepResult:
        """Check that a plain subscription gets what is sent after it, and nothing sent before."""
        speech = self.dialect.topics
        talk = self if speech is not None else self._with_topics(Topics(send=self.dialect.durable))
        try:
            got = await talk.followed()
        except FAILURES as error:
            if speech is not None:
                raise
            return StepResult("no topics", str(error), None, claimed=False)
        return _claimed(
            None if speech is None else speech.destination.format("NAME"),
            f"got {words(got)}", does=got == ["after"],
        )  # fmt: skip

    async def followed(self) -> list[str]:
        """Return what a plain subscription gets of two messages: one sent before it, one after."""
        topic = self._topic()
        await self._send(topic, ["before"])
        async with await self._client() as client:
            await self._subscribe(client, topic, 4)
            await self._send(topic, ["after"])
            return await self._taken(client)

    async def outlives(self) -> StepResult:
        """Check that a durable subscription gets what was sent while its consumer was away."""
        speech = self.dialect.topics
        if speech is None or speech.durable is None:
            return StepResult("no durable subscriptions", "not tried", None, claimed=False)
        topic = self._topic()
        named = _named(speech.durable, topic)
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")
        await self._send(topic, ["while away"])
        got = await self._waiting(topic, named)
        await self._drop(topic, named)
        return _claimed(words(sorted(speech.durable)), f"got {words(got)}", does=got == ["while away"])

    async def shares(self) -> StepResult:
        """Check that each message of a shared subscription goes to exactly one of its consumers."""
        speech = self.dialect.topics
        if speech is None or speech.shared is None:
            return StepResult("no shared subscriptions", "not tried", None, claimed=False)
        topic, bodies = self._topic(), ["s1", "s2", "s3", "s4"]
        named = _named(speech.shared, topic)
        async with await self._client() as first, await self._client() as second:
            for client in (first, second):
                await self._subscribe(client, topic, 1, named)
            await self._send(topic, bodies)
            parts = [await self._taken(first), await self._taken(second)]
            parts[0] += await self._taken(first)
        observed = f"one got {words(parts[0])}, the other {words(parts[1])}"
        does = sorted(parts[0] + parts[1]) == bodies
        return _claimed(words(sorted(speech.shared)), observed, does=does)

    async def drops(self) -> StepResult:
        """Check that a dropped subscription keeps no message that is sent after it was dropped."""
        speech = self.dialect.topics
        headers = speech and (speech.durable or speech.shared)
        if speech is None or not headers:
            return StepResult("no subscriptions to drop", "not tried", None, claimed=False)
        topic = self._topic()
        named = _named(headers, topic)
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")
        await self._send(topic, ["before"])
        await self._drop(topic, named)
        await self._send(topic, ["after"])
        got = await self._waiting(topic, named)
        await self._drop(topic, named)
        return _claimed(f"UNSUBSCRIBE, {speech.drops}", f"made again it got {words(got)}", does=not got)

    async def selects(self) -> StepResult:
        """Check that a subscription with a selector gets the matching messages, and no others."""
        if self.dialect.topics is None:
            return StepResult("no topics", "not tried", None, claimed=False)
        return await self._selected(self._topic(), ["red", "blue"])

    async def _selected(self, where: str, colours: Sequence[str]) -> StepResult:
        """Check which messages a consumer with a selector gets, and which remain in a queue.

        ``where`` is a queue or a topic; only in a queue are remaining messages looked for.
        ``colours`` are the values that the selector accepts.
        """
        speech = self.dialect.topics or Topics(selector=None)
        selecting = msgspec.structs.replace(speech, selector=speech.selector or _SELECTOR)
        try:
            async with await self._client() as client:
                await self._subscribe(client, where, 4, selecting.wanting({"colour": colours}))
                for colour in ("red", "green", "blue"):
                    await self._send(where, [colour], None, {"colour": colour})
                got = await self._taken(client)
        except FAILURES as error:
            if speech.selector is not None:
                raise
            return StepResult("no selectors", str(error), None, claimed=False)
        observed, does = f"got {words(got)}", got == colours
        if not where.startswith(TOPIC):
            remaining = await self._remaining(where)
            observed, does = f"{observed}; left: {words(remaining)}", does and remaining == ["green"]
        return _claimed(speech.selector, observed, does=does)

    def _topic(self) -> str:
        """Return a topic that no other step uses."""
        return next(self.topics, f"{TOPIC}not-told-before")

    def _with_topics(self, topics: Topics) -> Conversation:
        return Conversation(
            msgspec.structs.replace(self.dialect, topics=topics),
            self.promises, self.at, self.node, self.queues, self.topics, self.browse,
        )  # fmt: skip

    async def _waiting(self, topic: str, named: Mapping[str, str]) -> list[str]:
        """Return the messages that wait for a subscription.

        Its consumer connects for that, acknowledges them, and disconnects.
        """
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            got = await self._taken(client)
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")
            return got

    async def _drop(self, topic: str, named: Mapping[str, str]) -> None:
        """End a subscription as the dialect says.

        Its consumer connects for that, and disconnects.
        """
        speech = self.dialect.topics
        assert speech is not None, "a dialect without topics"
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            headers = {"id": "1", **named}
            if speech.drops == "alone":
                confirmed(await client.ask("UNSUBSCRIBE", id="1"), "UNSUBSCRIBE")
            answer = await client.ask("UNSUBSCRIBE", "", headers)
            confirmed(answer, "the UNSUBSCRIBE that drops")
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")


def _named(headers: Mapping[str, str], topic: str) -> dict[str, str]:
    """Return the headers of a subscription, with the topic filled in."""
    short = topic.removeprefix(TOPIC)
    return {header: value.format(f"of-{short}", topic=short) for header, value in headers.items()}


def _claimed(header: str | None, observed: str, *, does: bool) -> StepResult:
    """Return what was seen of a feature, claimed if the dialect names a header for it."""
    if header is not None:
        return StepResult(header, observed, right=does)
    return StepResult(
        "brokers have none", f"they do it: {observed}" if does else observed, right=None, claimed=False
    )
