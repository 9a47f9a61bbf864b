"""The steps of what not all brokers have: topics, wishes of messages, dead letters, transactions.

A dialect that names a header for it claims it, and then it must be so. Where it names none the row
is "not claimed", and, as far as that is cheap, says whether the brokers do it all the same when
they are asked for it with the header that others use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from checkers.schema import TOPIC
from harness.interface import Topics
from harness.run.talk import ANSWER_S, FAILURES, QUIET_S, Seen, Talk, confirmed, words
from harness.systems.stomp_client import StompClient

_EXPIRES, _DELAY, _PRIORITY, _SELECTOR = "expires", "AMQ_SCHEDULED_DELAY", "priority", "selector"
"""What most others call it."""
_SHORT_MS, _LONG_MS = 500, 600_000
_DELAYED_MS: Final = 2000
_EARLY_S: Final = 0.1
"""How much sooner than that is still no departure."""
_REFUSALS_MAX: Final = 12


class Conversation(Talk):
    """All steps."""

    __slots__ = ()

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[Seen]]]]:
        """As ``Talk``'s, and what not all have."""
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

    async def dies(self) -> Seen:
        """What was refused as often as it may be is a dead letter once, with its origin."""
        after = self.promises.dies_after
        if after < 1 or not self.promises.keeps_dead_letters or after > _REFUSALS_MAX:
            return Seen("no refusals after which it certainly is one", "not tried", None, claimed=False)
        queue = next(self.queues)
        body = f"refused {queue}"
        await self._send(queue, [body])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            for _ in range(after):
                message = await self._expected(client)
                confirmed(await client.ask("NACK", id=message.headers.get("ack", "")), "NACK")
            again = await client.message(QUIET_S)
        said = f"after {after} refusals once, and where it was"
        if again is not None:
            return Seen(said, "it came again", right=False)
        found = [one for one in await self.browse() if one.body == body.encode()]
        dead = [one for one in found if one.store == "dead-letter"]
        if not dead:
            return Seen(said, "no dead letter", right=False)
        origins = [one.queue if one.origin else "nowhere told" for one in dead]
        seen = f"{len(dead)} dead, from {words(origins)}"
        if len(found) == 1 and not dead[0].origin:  # no check asks for it then
            return Seen(f"after {after} refusals once; not where it was", seen, None, claimed=False)
        return Seen(said, seen, right=len(found) == 1 and dead[0].queue == queue)

    async def commits(self) -> Seen:
        """What a transaction sends is there from its commit on, and what it took is gone."""
        source, target = next(self.queues), next(self.queues)
        acks = self.dialect.transactional_acks
        said = "sends" + (" and the acknowledgement" if acks else "") + " happen by the commit"
        await self._send(source, ["taken"])
        async with await self._client() as client, await self._client() as other:
            await self._subscribe(other, target, 4)
            await self._in_transaction(client, source, target)
            early = await other.message(QUIET_S)
            confirmed(await client.ask("COMMIT", transaction="t"), "COMMIT")
            sent = ([] if early is None else [early.body.decode()]) + await self._taken(other)
        left = await self._left(source)
        seen = f"{'nothing' if early is None else early.body.decode()} before it, then {words(sent)}"
        seen += f"; left where it came from: {words(left)}"
        gone = not left or not acks
        return Seen(said, seen, right=early is None and sorted(sent) == ["t1", "t2"] and gone)

    async def aborts(self) -> Seen:
        """What a transaction sent that is rolled back is nowhere, and what it took comes again."""
        source, target = next(self.queues), next(self.queues)
        acks = self.dialect.transactional_acks
        said = "no send happened" + (", what it acknowledged comes again" if acks else "")
        await self._send(source, ["taken"])
        async with await self._client() as client:
            await self._in_transaction(client, source, target)
            confirmed(await client.ask("ABORT", transaction="t"), "ABORT")
            again = await client.message(QUIET_S) if acks and self.dialect.redelivers_aborted else None
        sent, left = await self._left(target), await self._left(source)
        seen = f"sent: {words(sent)}; left where it came from: {words(left)}"
        if acks and self.dialect.redelivers_aborted:
            said += " in its session"
            seen += f"; {'not ' if again is None else ''}in its session"
            if again is None:
                return Seen(said, seen, right=False)
        return Seen(said, seen, right=not sent and (left == ["taken"] or not acks))

    async def _in_transaction(self, client: StompClient, source: str, target: str) -> None:
        """Two sends, and an acknowledgement if that can be."""
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

    async def expires(self) -> Seen:
        """What has expired is not delivered, what has not is."""
        wishes, queue = self.dialect.wishes, next(self.queues)
        header = wishes.expires or _EXPIRES
        for body, lasts_ms in (("short", _SHORT_MS), ("long", _LONG_MS)):
            from_ms = 0 if wishes.expires and wishes.lasts else time.time_ns() // 1_000_000
            await self._send(queue, [body], None, {header: str(from_ms + lasts_ms)})
        await asyncio.sleep(3 * _SHORT_MS / 1000)
        got = await self._left(queue)
        return _claimed(wishes.expires, f"delivered after it: {words(got)}", does=got == ["long"])

    async def delays(self) -> Seen:
        """What is to come later comes then, and not before."""
        header, queue = self.dialect.wishes.delay, next(self.queues)
        loop = asyncio.get_running_loop()
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            asked = loop.time()
            await self._send(queue, ["later"], None, {header or _DELAY: str(_DELAYED_MS)})
            message = await client.message(ANSWER_S)
            after_s = loop.time() - asked
            if message is not None:
                await client.ask("ACK", id=message.headers.get("ack", ""))
        seen = "never delivered" if message is None else f"delivered after {after_s:.1f} of 2 s"
        does = message is not None and after_s >= _DELAYED_MS / 1000 - _EARLY_S
        return _claimed(header, seen, does=does)

    async def hurries(self) -> Seen:
        """Of what waits, the most urgent comes first."""
        header, queue = self.dialect.wishes.priority, next(self.queues)
        for body, priority in (("low", 1), ("urgent", 9)):
            await self._send(queue, [body], None, {header or _PRIORITY: str(priority)})
        got = await self._left(queue)
        return _claimed(header, f"in this order: {words(got)}", does=got == ["urgent", "low"])

    async def chooses(self) -> Seen:
        """A consumer of a queue with a selector gets what matches; the rest waits for others."""
        return await self._selected(next(self.queues), ["red", "blue"])

    # --------------------------------------------------------------------------------------- topics

    async def follows(self) -> Seen:
        """A plain subscription gets what is sent after it, and nothing from before."""
        speech = self.dialect.topics
        talk = self if speech is not None else self._with(Topics(send=self.dialect.durable))
        try:
            got = await talk.followed()
        except FAILURES as error:
            if speech is not None:
                raise
            return Seen("no topics", str(error), None, claimed=False)
        return _claimed(
            None if speech is None else speech.destination.format("NAME"),
            f"got {words(got)}", does=got == ["after"],
        )  # fmt: skip

    async def followed(self) -> list[str]:
        """What a plain subscription gets of two messages, of which one came before it."""
        topic = self._topic()
        await self._send(topic, ["before"])
        async with await self._client() as client:
            await self._subscribe(client, topic, 4)
            await self._send(topic, ["after"])
            return await self._taken(client)

    async def outlives(self) -> Seen:
        """A durable subscription gets what was sent while its consumer was away."""
        speech = self.dialect.topics
        if speech is None or speech.durable is None:
            return Seen("no durable subscriptions", "not tried", None, claimed=False)
        topic = self._topic()
        named = _named(speech.durable, topic)
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")
        await self._send(topic, ["while away"])
        got = await self._waiting(topic, named)
        await self._drop(topic, named)
        return _claimed(words(sorted(speech.durable)), f"got {words(got)}", does=got == ["while away"])

    async def shares(self) -> Seen:
        """Of a shared subscription each message goes to one of its consumers."""
        speech = self.dialect.topics
        if speech is None or speech.shared is None:
            return Seen("no shared subscriptions", "not tried", None, claimed=False)
        topic, bodies = self._topic(), ["s1", "s2", "s3", "s4"]
        named = _named(speech.shared, topic)
        async with await self._client() as one, await self._client() as other:
            for client in (one, other):
                await self._subscribe(client, topic, 1, named)
            await self._send(topic, bodies)
            parts = [await self._taken(one), await self._taken(other)]
            parts[0] += await self._taken(one)
        seen = f"one got {words(parts[0])}, the other {words(parts[1])}"
        does = sorted(parts[0] + parts[1]) == bodies
        return _claimed(words(sorted(speech.shared)), seen, does=does)

    async def drops(self) -> Seen:
        """What is sent after a subscription was dropped does not wait for it."""
        speech = self.dialect.topics
        headers = speech and (speech.durable or speech.shared)
        if speech is None or not headers:
            return Seen("no subscriptions to drop", "not tried", None, claimed=False)
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

    async def selects(self) -> Seen:
        """A subscription with a selector gets what matches, and nothing else."""
        if self.dialect.topics is None:
            return Seen("no topics", "not tried", None, claimed=False)
        return await self._selected(self._topic(), ["red", "blue"])

    async def _selected(self, where: str, colours: Sequence[str]) -> Seen:
        """What comes from a queue or a topic for who wants these colours, and what is left."""
        speech = self.dialect.topics or Topics(selector=None)
        wanted = msgspec.structs.replace(speech, selector=speech.selector or _SELECTOR)
        try:
            async with await self._client() as client:
                await self._subscribe(client, where, 4, wanted.wanting({"colour": colours}))
                for colour in ("red", "green", "blue"):
                    await self._send(where, [colour], None, {"colour": colour})
                got = await self._taken(client)
        except FAILURES as error:
            if speech.selector is not None:
                raise
            return Seen("no selectors", str(error), None, claimed=False)
        seen, does = f"got {words(got)}", got == colours
        if not where.startswith(TOPIC):
            left = await self._left(where)
            seen, does = f"{seen}; left: {words(left)}", does and left == ["green"]
        return _claimed(speech.selector, seen, does=does)

    def _topic(self) -> str:
        """A topic of its own for a step."""
        return next(self.topics, f"{TOPIC}not-told-before")

    def _with(self, topics: Topics) -> Conversation:
        return Conversation(
            msgspec.structs.replace(self.dialect, topics=topics),
            self.promises, self.at, self.node, self.queues, self.topics, self.browse,
        )  # fmt: skip

    async def _waiting(self, topic: str, named: Mapping[str, str]) -> list[str]:
        """What waits for a subscription; its consumer comes for that, and goes."""
        async with await self._client("conformance") as client:
            await self._subscribe(client, topic, 4, named)
            got = await self._taken(client)
            confirmed(await client.ask("DISCONNECT"), "DISCONNECT")
            return got

    async def _drop(self, topic: str, named: Mapping[str, str]) -> None:
        """End a subscription as the dialect says; its consumer comes for that, and goes."""
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
    """Headers of a subscription of a topic."""
    short = topic.removeprefix(TOPIC)
    return {header: value.format(f"of-{short}", topic=short) for header, value in headers.items()}


def _claimed(header: str | None, seen: str, *, does: bool) -> Seen:
    """What was seen of what the dialect says with this header, or says that there is not."""
    if header is not None:
        return Seen(header, seen, right=does)
    return Seen("brokers have none", f"they do it: {seen}" if does else seen, right=None, claimed=False)
