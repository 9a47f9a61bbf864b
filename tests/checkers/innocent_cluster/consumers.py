"""Consumers: sessions that come, read, answer, and go."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from innocent_cluster.brokers import Pair
from innocent_cluster.clients import Client
from innocent_cluster.connections import Connection
from innocent_cluster.messages import Copy, Message
from innocent_cluster.places import Name, Session
from innocent_cluster.timeline import MS, Answer, S, Script

if TYPE_CHECKING:
    from innocent_cluster.world import World


class Consumer(Client):
    """A consumer of one place; each time it connects it has a new session.

    ``is_owner``: the place ends with the session. ``drains``: it acknowledges everything and leaves
    when nothing is left.
    """

    def __init__(
        self, world: World, pair: Pair, name: Name, *, wanted: str | None = None, is_owner: bool = False
    ) -> None:
        super().__init__(world, pair)
        self.name, self.wanted, self.is_owner = name, wanted, is_owner
        self.producer = world.number("producer")
        self.refuses = self.transacted = self.answers = self.stays = self.drains = False
        self.is_plain = self.moves = False
        self.session: Session | None = None
        self.leaving = Answer()
        self._inbox: deque[Message] = deque()
        self._is_over = False

    # ---------------------------------------------------------------------------------------- life

    def run(self) -> Script:
        world = self.world
        while not self._is_over and (self.drains or not world.is_leaving):
            if not (yield from self.connect()):
                continue
            connection = self.connection
            assert connection is not None
            if not (yield from self._subscribe(connection)):
                yield self.chance.choice([50, 300]) * MS
                continue
            yield from self._attend(connection)
            yield self.chance.choice([10, 200, 600]) * MS
            if world.habits.churn and self.name[1] is not None and not self.is_owner:
                yield from self._change()

    def _subscribe(self, connection: Connection) -> Script:
        world = self.world
        if self.world.is_temporary(self.name[0]):
            self.name = (world.temporary_name(self.pair), None)
        if self.is_plain:
            self.name = (self.name[0], f"plain-{world.number('plain')}")
        credit = 10 if self.drains else world.habits.prefetch
        session = Session(world.number("session"), self.name, self.wanted, credit, connection)
        self.session, self.leaving, self._inbox = session, Answer(), deque()
        world.readers[session] = self
        selector = None if self.wanted is None else json.dumps({"selector": {"colour": [self.wanted]}})
        owner = connection if self.is_owner else None
        outcome = yield from self.ask(
            "subscribe",
            {**self._told(), "value": selector},
            lambda: self.pair.subscribe(session, owner=owner),
        )
        if outcome == "fail":
            connection.leave()
        elif outcome == "info":
            self._vanish(connection)
        return outcome == "ok"

    def _attend(self, connection: Connection) -> Script:
        """Read until it is time to leave, or the connection is lost."""
        world, session, leaving = self.world, self.session, self.leaving
        assert session is not None
        connection.lost.wake(lambda _: leaving.give("lost"))
        if self.drains or self.stays:
            world.timeline.spawn(self._watch(session, leaving))
        else:
            stay = self.chance.choice([500 * MS, 2 * S, 6 * S, 60 * S])
            world.timeline.after(stay, lambda: leaving.give("done"))
            world.at_end.append(leaving)
        working = world.timeline.spawn(self._transact_all(connection, session))
        why = yield leaving
        if why == "lost":
            self._vanish(connection)
        elif why == "done" and not self.stays and self.chance.random() < 0.3:
            connection.leave()
            self._vanish(connection)
        else:
            yield working
            yield from self._leave(connection)

    def _watch(self, session: Session, leaving: Answer) -> Script:
        """Leave when nothing is left, and all is drained."""
        world, quiet = self.world, 0
        while not leaving.is_given:
            yield 50 * MS
            place = session.place
            is_empty = place is None or not any(world.is_reachable(copy, self.pair) for copy in place.copies)
            is_due = self.drains or world.is_finishing
            quiet = quiet + 1 if is_empty and is_due and not self._inbox else 0
            if quiet > world.quiet_checks:
                self._is_over = True
                leaving.give("drained")

    def _leave(self, connection: Connection) -> Script:
        session = self.session
        assert session is not None
        told, drops = self._told(), self.is_owner
        process = None
        if drops:
            process = self.world.recording.process()
            self._drop_row(process, "invoke")
        outcome = yield from self.ask("unsubscribe", told, lambda: self.pair.leave(session, drops=drops))
        if process is not None:
            self._drop_row(process, outcome)
        if outcome == "info":
            self._disconnect_row(connection)
        connection.leave()

    def _vanish(self, connection: Connection) -> None:
        """The connection has ended without an unsubscribe."""
        self._disconnect_row(connection)
        if self.is_owner:
            process = self.world.recording.process()
            self._drop_row(process, "invoke")
            self._drop_row(process, "info")

    def _change(self) -> Script:
        """Drop the subscription, or want another selector from now on."""
        if self.world.habits.selectors and self.chance.random() < 0.5:
            self.wanted = self.chance.choice(["red", "blue", None])
        if self.chance.random() < 0.5 and (yield from self.connect()):
            connection, name = self.connection, self.name
            assert connection is not None
            told = {"queue": name[0], "subscription": name[1]}
            yield from self.ask("drop", told, lambda: self.pair.drop_name(name))
            connection.leave()

    # ------------------------------------------------------------------------------------- reading

    def read(self, copy: Copy, session: Session, columns: dict[str, Any]) -> None:
        """A delivery arrives."""
        world = self.world
        world.recording.add(1_000_000 + session.number, "ok", "deliver", **columns)
        if session.place is not None:
            session.place.read.append((session, copy))
        if session is not self.session or self.leaving.is_given:
            return
        if self.transacted:
            self._inbox.append(copy.message)
        else:
            world.timeline.spawn(self._handle(copy.message, session))

    def _handle(self, message: Message, session: Session) -> Script:
        world, connection = self.world, self.connection
        assert connection is not None
        if not self.drains:
            yield round(world.habits.hold * self.chance.random())
            if world.habits.ack_wait and self.chance.random() < 0.2:
                yield world.habits.ack_wait
        if connection.is_left or self.leaving.value == "lost":
            return
        reply_to = message.wishes.get("reply_to")
        if reply_to is not None and self.answers:
            reply = world.compose(self.producer, self.pair, queue=reply_to)
            if reply is not None and (yield from self.send(reply)) == "info":
                return
        if connection.is_left:
            return
        f = "nack" if self.refuses and not self.drains and self.chance.random() < 0.4 else "ack"
        if not self.drains and not self.stays and self.chance.random() < 0.05:
            return  # holds it until it leaves
        yield from self._answer(f, message, session, None)

    def _answer(self, f: str, message: Message, session: Session, transaction: int | None) -> Script:
        columns = {
            **message.columns, **self._told(session), "message": message.id, "transaction": transaction,
        }  # fmt: skip
        pair = self.pair
        message.answered.add(session.name)
        if f == "nack":
            outcome = yield from self.ask(f, columns, lambda: pair.refuse(session, message))
            message.refusals += outcome == "ok"
            return outcome
        outcome = yield from self.ask(f, columns, lambda: pair.acknowledge(session, message, transaction))
        if outcome == "ok" and transaction is None:
            pair.acknowledged.append((session, message))
        return outcome

    def _transact_all(self, connection: Connection, session: Session) -> Script:
        while self.transacted and not connection.is_left and not self.leaving.is_given:
            if not self._inbox:
                yield 20 * MS
                continue
            transaction = yield from self.begin()
            if transaction is None:
                return
            taken = self._inbox[0]
            for _ in range(1 if self.moves else self.chance.randint(1, 2)):
                if (
                    self._inbox
                    and (yield from self._answer("ack", self._inbox.popleft(), session, transaction))
                    == "info"
                ):
                    return
            for message in self._compose(taken):
                if message is not None and (yield from self.send(message, transaction)) == "info":
                    return
            if self.chance.random() < 0.9:
                yield from self.end(transaction)
            else:
                connection.leave()

    def _compose(self, taken: Message) -> list[Message | None]:
        """What goes out in the transaction that takes a message; money is only moved."""
        world, pair = self.world, self.pair
        if not self.moves:
            return [world.compose(self.producer, pair) for _ in range(self.chance.randint(0, 2))]
        amount, account = taken.wishes["amount"], taken.wishes["account"]
        shares = [amount] if amount == 1 or self.chance.random() < 0.5 else [1, amount - 1]
        return [
            world.compose(self.producer, pair, "bank", {"amount": share, "account": account})
            for share in shares
        ]

    # ---------------------------------------------------------------------------------------- rows

    def _told(self, session: Session | None = None) -> dict[str, Any]:
        session = session or self.session
        assert session is not None
        return {"queue": self.name[0], "subscription": self.name[1], "session": session.number}

    def _disconnect_row(self, connection: Connection) -> None:
        self.world.recording.add(
            self.world.recording.process(), "info", "disconnect", **self._told(),
            broker=connection.broker.name, connection=connection.number, error="connection lost",
        )  # fmt: skip

    def _drop_row(self, process: int, type_: str) -> None:
        connection = self.connection
        assert connection is not None
        self.world.recording.add(
            process,
            type_,
            "drop",
            queue=self.name[0],
            subscription=self.name[1],
            connection=connection.number,
        )


class Receiver(Client):
    """Asks for one message after the other; each is acknowledged by being handed out."""

    def __init__(self, world: World, pair: Pair, queue: str) -> None:
        super().__init__(world, pair)
        self.queue = queue
        self.drains = False

    def run(self) -> Script:
        world = self.world
        while self._waits() if self.drains else not world.is_leaving:
            yield self.chance.choice([20, 200]) * MS
            if not self.is_connected and not (yield from self.connect()):
                continue
            yield from self._receive()
        if self.connection is not None:
            self.connection.leave()

    def _waits(self) -> bool:
        """Whether a message may still come; what is due too late never does."""
        place = self.pair.places.get((self.queue, None))
        return place is not None and any(self.world.is_reachable(copy, self.pair) for copy in place.copies)

    def _receive(self) -> Script:
        world, connection, process = self.world, self.connection, self.world.recording.process()
        assert connection is not None
        asked, handed = world.timeline.now, []
        answer = connection.ask(lambda: self.pair.hand_out(connection.broker, self.queue, handed))
        world.timeline.after(self.patience, lambda: answer.give(None))
        if (yield answer) is None:
            world.recording.add(process, "info", "receive", queue=self.queue, connection=connection.number)
            connection.leave()
            return
        for copy in handed:
            session = 1_000_000 + process
            told = {
                **copy.message.columns, "message": copy.message.id, "session": session,
                "connection": connection.number,
            }  # fmt: skip
            marks = world.marks_of(copy, connection.broker)
            seen = {
                "broker": connection.broker.name,
                "digest": copy.message.digest,
                "headers": copy.message.headers,
            }
            world.recording.add(process, "ok", "deliver", **told, **seen, **marks, time_low=asked)
            world.recording.add(process, "invoke", "ack", **told)
            world.recording.add(process, "ok", "ack", **told, broker=connection.broker.name)
        world.recording.release(process)
