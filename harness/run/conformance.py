"""What a system's module says of its brokers, held against what one of them does.

Why: verdicts trust the module. A dialect that names the wrong header finds redeliveries without a
mark, a promise that is too large accuses a broker of what it never said, and either looks like a
finding. So each statement is tried on a small cluster without faults, one row each. What could not
be tried is unknown with its reason, never taken for right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple

from checkers.verdict import Promises
from harness.interface import (
    Address,
    Dialect,
    InfrastructureError,
    Prepared,
    Status,
    StoredMessage,
    UsageError,
)
from harness.run.compose import Composition
from harness.systems.stomp_client import StompClient
from stomp_protocol.errors import ProtocolError
from stomp_protocol.frames import Frame

ANSWER_S: Final = 15.0
"""How long a broker may take to answer, or to give a message to its next consumer."""

QUIET_S: Final = 1.5
"""How long nothing must come, to be called nothing."""

POLL_S: Final = 0.2
_BEATS: Final = 4
_WINDOW: Final = 2

KEPT: Final = "kept over a restart"

State = Literal["as said", "DEPARTS", "unknown"]


class Row(NamedTuple):
    """One statement of a module, and what was seen of it."""

    what: str
    said: str
    seen: str
    state: State


class Seen(NamedTuple):
    """What a step saw, and whether that is what the module says; None: it cannot be told."""

    said: str
    seen: str
    right: bool | None


_FAILURES: Final = (OSError, EOFError, TimeoutError, InfrastructureError, ProtocolError, UsageError)


class _RefusedError(Exception):
    """A broker will not do what its module says that it does."""


async def tried(what: str, said: str, step: Callable[[], Awaitable[Seen]]) -> Row:
    """A step as a row; one that could not be taken is unknown."""
    try:
        found = await step()
    except _RefusedError as error:
        return Row(what, said, str(error), "DEPARTS")
    except _FAILURES as error:
        return Row(what, said, f"could not be tried: {str(error) or type(error).__name__}", "unknown")
    state: State = "unknown" if found.right is None else "as said" if found.right else "DEPARTS"
    return Row(what, found.said, found.seen, state)


@dataclass(slots=True)
class Talk:
    """The steps that clients take with one live broker, each with a queue of its own."""

    dialect: Dialect
    promises: Promises
    at: Address
    node: str
    queues: Iterator[str]
    browse: Callable[[], Awaitable[Sequence[StoredMessage]]]
    kept: tuple[str, list[str]] = field(default=("", []))
    """The queue that a restart is judged by, and what must still be in it."""

    async def rows(self) -> list[Row]:
        """All steps; where nobody can log in, the others are unknown for that reason."""
        first = await tried("connect", f"login {self.dialect.login or 'without a name'}", self.connect)
        steps = (
            ("heart-beats", self.heart_beats),
            ("send and receipt", self.sends),
            ("window", self.window),
            ("groups", self.groups),
            ("redelivery", self.redelivery),
            ("acknowledgement", self.acknowledges),
            ("second acknowledgement", self.acknowledges_twice),
            ("refusal (NACK)", self.refuses),
            ("browse", self.browses),
        )
        if first.state != "as said":
            return [first, *(Row(what, "", "nobody can log in", "unknown") for what, _ in steps)]
        return [first, *[await tried(what, "", step) for what, step in steps]]

    async def connect(self) -> Seen:
        """Log in, and what the broker calls itself."""
        async with await self._client() as client:
            answer = client.connected
        header = self.dialect.name_header
        said = f"login {self.dialect.login!r}" + (f", {header} names the broker" if header else "")
        if answer.command != "CONNECTED":
            return Seen(said, f"{answer.command}: {answer.headers.get('message', '')}", right=False)
        named = header is None or bool(answer.headers.get(header))
        version = answer.headers.get("version", "1.0")
        seen = f"CONNECTED, version {version}" + (f", {answer.headers.get(header)}" if header else "")
        return Seen(said, seen, right=named and version == "1.2")

    async def heart_beats(self) -> Seen:
        """The broker is never silent for so long that clients give it up."""
        beat_s = self.dialect.heart_beat_s
        async with await self._client() as client:
            told = client.connected.headers.get("heart-beat", "0,0")
            if not beat_s:
                return Seen("no heart-beats", told, right=told == "0,0")
            loop = asyncio.get_running_loop()
            until, longest, last = loop.time() + _BEATS * beat_s + 1.0, 0.0, loop.time()
            while loop.time() < until:
                before = client.heard
                await client.message(beat_s / 5)
                if client.heard != before:
                    longest, last = max(longest, loop.time() - last), loop.time()
            longest = max(longest, loop.time() - last)
        bound_s = self.dialect.silent_beats * beat_s
        seen = f"{told}; {client.heard} beats, longest silence {longest:.1f} s"
        return Seen(f"a beat each {beat_s:g} s, silence below {bound_s:g} s", seen, right=longest < bound_s)

    async def sends(self) -> Seen:
        """A receipt, and the message is in the queue that it was sent to, with its body."""
        queue = next(self.queues)
        await self._send(queue, ["hello"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await client.message(ANSWER_S)
        if message is None:
            return Seen(self.dialect.destination(queue), "RECEIPT, and no delivery", right=False)
        body = message.body.decode(errors="replace")
        marked, count = self.dialect.delivery(message.headers)
        said = f"{self.dialect.destination(queue)}; a first delivery has no mark"
        seen = f"delivered {body!r}, {'marked' if marked else 'no mark'}"
        right = body == "hello" and not marked
        if self.dialect.count_header is not None:
            first = self.dialect.first_count
            said += (
                f", and {self.dialect.count_header} {'is not there' if first is None else f'says {first}'}"
            )
            seen += f", {message.headers.get(self.dialect.count_header, 'no such header')}"
            right &= count == (None if first is None else 1)
        return Seen(said, seen, right=right)

    async def window(self) -> Seen:
        """A consumer holds no more than its window."""
        queue = next(self.queues)
        await self._send(queue, [f"w{n}" for n in range(_WINDOW * 4)])
        async with await self._client() as client:
            await self._subscribe(client, queue, _WINDOW)
            held = 0
            while await client.message(ANSWER_S if not held else QUIET_S) is not None:
                held += 1
        if self.dialect.window_header is None:
            return Seen("no window", f"{held} of {_WINDOW * 4} held", right=held == _WINDOW * 4)
        said = f"{self.dialect.window_header} of {_WINDOW}"
        if self.dialect.window_unit != 1:
            less = held < _WINDOW * 4
            seen = f"{held} of {_WINDOW * 4} held; a window in bytes is no number of messages"
            return Seen(said, seen, right=True if less else None)
        return Seen(said, f"{held} held", right=held == _WINDOW)

    async def groups(self) -> Seen:
        """Each group goes to one of two consumers, in the order in which it was sent."""
        if self.dialect.group_header is None:
            return Seen("no groups", "not tried", right=None)
        queue, names, each = next(self.queues), ("g1", "g2", "g3", "g4"), 6
        promised = self.promises.groups
        said = f"{self.dialect.group_header}: " + (
            "one consumer for each group, in order" if promised else "nothing is promised of groups"
        )
        async with await self._client() as one, await self._client() as other:
            for client in (one, other):
                await self._subscribe(client, queue, 1)
            for number in range(each):
                for group in names:
                    await self._send(queue, [f"{group} {number}"], group)
            got: dict[str, list[tuple[int, int]]] = {}
            silent = 0
            while sum(map(len, got.values())) < each * len(names) and silent < ANSWER_S / QUIET_S:
                silent += 1
                for whose, client in enumerate((one, other)):
                    while (message := await client.message(0.2)) is not None:
                        group, _, number_text = message.body.decode().partition(" ")
                        got.setdefault(group, []).append((whose, int(number_text)))
                        await client.ask("ACK", id=message.headers.get("ack", ""))
                        silent = 0
        split = [group for group, some in got.items() if len({whose for whose, _ in some}) > 1]
        wrong = [g for g, some in got.items() if [number for _, number in some] != list(range(each))]
        if sum(map(len, got.values())) < each * len(names):
            return Seen(said, f"only {sum(map(len, got.values()))} of {each * len(names)} came", right=False)
        faults = [
            f"{what}: {', '.join(some)}" for what, some in (("split", split), ("out of order", wrong)) if some
        ]
        seen = "; ".join(faults)
        return Seen(
            said, seen or "one consumer for each of 4 groups, in order", right=not seen or not promised
        )

    async def redelivery(self) -> Seen:
        """What a lost consumer held comes again, marked where that is promised."""
        queue = next(self.queues)
        await self._send(queue, ["again"])
        client = await self._client()
        try:
            await self._subscribe(client, queue, 1)
            first = await client.message(ANSWER_S)
        finally:
            client.abort()
        promised = self.promises.marks_redeliveries
        said = f"comes again; marked: {promised}"
        if first is None:
            return Seen(said, "never delivered", right=False)
        async with await self._client() as other:
            await self._subscribe(other, queue, 1)
            second = await other.message(ANSWER_S + self.dialect.unnoticed_s)
            if second is None:
                return Seen(said, "never came again", right=False)
            marked, count = self.dialect.delivery(second.headers)
            await other.ask("ACK", id=second.headers.get("ack", ""))
        known = marked or (count is not None and count > 1)
        seen = f"came again, {'marked' if known else 'no mark'}" + (f", count {count}" if count else "")
        return Seen(said, seen, right=known or promised == "never")

    async def acknowledges(self) -> Seen:
        """An acknowledgement with a receipt takes a message away for good."""
        queue = next(self.queues)
        await self._send(queue, ["done", "left"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            answer = await client.ask("ACK", id=message.headers.get("ack", ""))
        left = await self._left(queue)
        return Seen(
            "RECEIPT, and it is gone", f"{_told(answer)}; left: {_words(left)}",
            right=answer.command == "RECEIPT" and left == ["left"],
        )  # fmt: skip

    async def acknowledges_twice(self) -> Seen:
        """The same acknowledgement again: whether that is ever answered with a receipt."""
        queue = next(self.queues)
        await self._send(queue, ["once"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            await client.ask("ACK", id=message.headers.get("ack", ""))
            client.patience_s = QUIET_S
            try:
                again = _told(await client.ask("ACK", id=message.headers.get("ack", "")))
            except (TimeoutError, EOFError, OSError):
                again = "no answer"
        if not self.promises.refuses_stale_acks:
            return Seen("nothing is promised", again, right=True)
        return Seen("never answered with a RECEIPT", again, right=again != "RECEIPT")

    async def refuses(self) -> Seen:
        """What becomes of a message that a consumer refused."""
        queue = next(self.queues)
        await self._send(queue, ["no"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            answer = await client.ask("NACK", id=message.headers.get("ack", ""))
            if answer.command != "RECEIPT":
                return Seen(self.promises.nack, _told(answer), right=self.promises.nack == "none")
            again = await client.message(QUIET_S * 2)
            if again is not None:
                await client.ask("ACK", id=again.headers.get("ack", ""))
                return Seen(self.promises.nack, "requeue", right=self.promises.nack == "requeue")
        try:
            stores = [one.store for one in await self.browse() if one.body == b"no"]
        except _FAILURES as error:
            seen = f"it did not come again; no store can be read: {error}"
            return Seen(self.promises.nack, seen, right=False if self.promises.nack == "requeue" else None)
        became = "dead-letter" if "dead-letter" in stores else "requeue" if stores else "consume"
        dropped = not self.promises.keeps_dead_letters and self.promises.nack == "dead-letter"
        right = became == self.promises.nack or (became == "consume" and dropped)
        return Seen(self.promises.nack, became, right=right)

    async def browses(self) -> Seen:
        """The stores show each message with queue, group and body, and looking disturbs nothing."""
        queue, bodies = next(self.queues), ["b1", "b2", "b3"]
        group = "g" if self.dialect.group_header is not None else None
        await self._send(queue, bodies, group)
        said = "shows queue, group and body of each, and disturbs nothing"
        looks = []
        for _ in range(2):
            found = [one for one in await self.browse() if one.body.decode(errors="replace") in bodies]
            looks.append(sorted((one.queue, one.group or "", one.body.decode()) for one in found))
        wanted = sorted((queue, group or "", body) for body in bodies)
        left = await self._left(queue)
        if looks != [wanted, wanted]:
            shown = "; then ".join(_words([" ".join(one) for one in look]) for look in looks)
            return Seen(said, f"it shows {shown}", right=False)
        return Seen(said, f"3 shown twice, {len(left)} delivered after it", right=left == bodies)

    async def prepare_restart(self) -> None:
        """What must outlive a clean stop: one acknowledged, two not."""
        queue = next(self.queues)
        await self._send(queue, ["settled", "kept 1", "kept 2"])
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            message = await self._expected(client)
            await client.ask("ACK", id=message.headers.get("ack", ""))
        self.kept = queue, ["kept 1", "kept 2"]

    async def restarted(self) -> Seen:
        """What was acknowledged is still gone, what was not is still there."""
        queue, wanted = self.kept
        left = await self._left(queue)
        return Seen(f"left: {_words(wanted)}", f"left: {_words(left)}", right=left == wanted)

    # ---------------------------------------------------------------------------------------- parts

    async def _client(self) -> StompClient:
        """Logged in; a broker may be live a moment before it listens, as Open MQ's bridge is."""
        beat_ms = round(self.dialect.heart_beat_s * 1000)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_S
        while True:
            try:
                return await StompClient.open(self.at, self.dialect, ANSWER_S, beat_ms, self.node)
            except ConnectionRefusedError:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def _subscribe(self, client: StompClient, queue: str, window: int) -> None:
        answer = await client.ask(
            "SUBSCRIBE",
            "",
            self.dialect.subscribe_headers(window),
            id="1",
            destination=self.dialect.destination(queue),
            ack=self.dialect.ack_mode,
        )
        _confirmed(answer, "SUBSCRIBE")

    async def _send(self, queue: str, bodies: Sequence[str], group: str | None = None) -> None:
        async with await self._client() as client:
            for body in bodies:
                headers = {
                    **self.dialect.send_headers(group),
                    "destination": self.dialect.destination(queue),
                    "content-length": str(len(body)),
                }
                _confirmed(await client.ask("SEND", body, headers), "SEND")

    async def _expected(self, client: StompClient) -> Frame:
        message = await client.message(ANSWER_S)
        if message is None:
            raise TimeoutError("what was sent was not delivered")
        return message

    async def _left(self, queue: str) -> list[str]:
        """What a consumer still gets, and acknowledges."""
        found: list[str] = []
        async with await self._client() as client:
            await self._subscribe(client, queue, 1)
            while (message := await client.message(QUIET_S * 2 if not found else QUIET_S)) is not None:
                found.append(message.body.decode(errors="replace"))
                await client.ask("ACK", id=message.headers.get("ack", ""))
        return found


class Conformance:
    """A cluster from its start to its restart, a row for each statement."""

    def __init__(self, test: Composition, tell: Callable[[Row], None]) -> None:
        self._test = test
        self._tell = tell
        self._rows: list[Row] = []

    async def run(self, queues: Sequence[str]) -> list[Row]:
        """The cluster must be deployed; it is left as it is."""
        started = await self._row("starts", self._starts)
        live = await self._live()
        if started.state == "DEPARTS" or live is None:
            why = "no broker is live"
            for what in ("what clients do", "stop", "restart", KEPT):
                self._add(Row(what, "", why, "unknown"))
            return self._rows
        talk = self._talk(live, iter(queues))
        for row in await talk.rows():
            self._add(row)
        ready = await tried(KEPT, "", lambda: _done(talk.prepare_restart()))
        stopped = await self._row("stop", self._stops)
        if stopped.state == "DEPARTS" or ready.state != "as said":
            why = ready.seen if ready.state != "as said" else "a broker did not stop"
            for what in ("restart", KEPT):
                self._add(Row(what, "", why, "unknown"))
            return self._rows
        again = await self._row("restart", self._starts)
        live = await self._live() if again.state == "as said" else None
        if live is None:
            self._add(Row(KEPT, "", "no broker is live", "unknown"))
            return self._rows
        talk.at, talk.node = self._test.environment.resolve("admin", live, "stomp"), live
        await self._row(KEPT, talk.restarted)
        return self._rows

    async def _row(self, what: str, step: Callable[[], Awaitable[Seen]]) -> Row:
        return self._add(await tried(what, "", step))

    def _add(self, row: Row) -> Row:
        self._rows.append(row)
        self._tell(row)
        return row

    def _talk(self, live: str, queues: Iterator[str]) -> Talk:
        test = self._test
        return Talk(
            dialect=test.system.dialect,
            promises=test.system.promises(test.spec),
            at=test.environment.resolve("admin", live, "stomp"),
            node=live,
            queues=queues,
            browse=lambda: self._browse(live),
        )

    async def _browse(self, live: str) -> Sequence[StoredMessage]:
        async with asyncio.timeout(self._test.system.patience.browse_s):
            return await self._test.system.browse(self._test.admin(live))

    async def _starts(self) -> Seen:
        """All nodes, each behind the one that is to be live before it; then what clients need."""
        test = self._test
        said = ", ".join(f"{node.name} as {node.configured}" for node in test.nodes)
        for node in sorted(test.nodes, key=lambda one: (one.after is not None, one.configured == "slave")):
            if node.after is not None:
                await self._until(partial(_serves, node.after))
            await test.environment.start(node.name)
        lacking = await self._until(lambda statuses: not test.system.lacking(test.nodes, statuses))
        if isinstance(test.system, Prepared) and not lacking:
            await test.system.prepare(test.spec, {node.name: test.admin(node.name) for node in test.nodes})
        roles = ", ".join(f"{name} {status.role}" for name, status in (await self._statuses()).items())
        return Seen(said, roles or "nobody answers", right=not lacking)

    async def _stops(self) -> Seen:
        """Backups first, so that nobody takes over; each process ends."""
        test = self._test
        statuses = await self._statuses()
        order = sorted(test.nodes, key=lambda node: node.name in statuses and statuses[node.name].serves)
        said, seen = "each broker ends when it is asked to", []
        for node in order:
            if not node.broker or await test.system.stop(test.admin(node.name), failover=None) is False:
                await test.environment.terminate(node.name)
            try:
                async with asyncio.timeout(test.system.patience.start_s):
                    seen.append(f"{node.name} ended ({await test.environment.wait_exit(node.name)})")
            except TimeoutError:
                return Seen(said, f"{node.name} still runs", right=False)
        return Seen(said, ", ".join(seen), right=True)

    async def _live(self) -> str | None:
        return next((name for name, status in (await self._statuses()).items() if status.serves), None)

    async def _statuses(self) -> Mapping[str, Status]:
        found = {}
        for node in self._test.brokers:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(2.0, self._test.system.patience.silence_s)):
                    found[node.name] = await self._test.system.status(self._test.admin(node.name))
        return found

    async def _until(self, holds: Callable[[Mapping[str, Status]], bool]) -> bool:
        """Wait for it; True where it did not come."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._test.system.patience.start_s
        while not holds(await self._statuses()):
            if loop.time() >= deadline:
                return True
            await asyncio.sleep(POLL_S)
        return False


STEPS: Final = 10
"""Queues that the steps take."""


def _confirmed(answer: Frame, what: str) -> None:
    if answer.command != "RECEIPT":
        raise _RefusedError(f"{what} was answered {_told(answer)}")


def _told(answer: Frame) -> str:
    words = answer.headers.get("message", "") if answer.command == "ERROR" else ""
    return f"{answer.command}: {words}" if words else answer.command


def _words(some: Sequence[str]) -> str:
    return ", ".join(some) or "nothing"


def _serves(node: str, statuses: Mapping[str, Status]) -> bool:
    return node in statuses and statuses[node].serves


async def _done(work: Awaitable[None]) -> Seen:
    await work
    return Seen("", "", right=True)
