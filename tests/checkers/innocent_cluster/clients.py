"""What every client does: it connects, asks, waits for a while, and gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from innocent_cluster.brokers import Pair
from innocent_cluster.connections import Connection
from innocent_cluster.messages import Message
from innocent_cluster.timeline import MS, Answer, S, Script

if TYPE_CHECKING:
    from innocent_cluster.world import World


class Client:
    """A client of one pair, whichever of its brokers is live."""

    def __init__(self, world: World, pair: Pair) -> None:
        self.world, self.pair = world, pair
        self.chance = world.chance
        self.patience = self.chance.choice([S, 2500 * MS])
        self.connection: Connection | None = None
        self._is_connecting = False

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and not self.connection.is_left

    def connect(self) -> Script:
        """Connect to the broker that is live; returns whether that succeeded."""
        if self._is_connecting:
            yield 100 * MS
            return self.is_connected
        self._is_connecting = True
        is_made = yield from self._connect()
        self._is_connecting = False
        if not is_made:
            yield self.chance.choice([100, 200, 400]) * MS
        return is_made

    def _connect(self) -> Script:
        world = self.world
        process = world.recording.process()
        world.recording.add(process, "invoke", "connect")
        yield world.chance.choice([MS, 3 * MS])
        live = self.pair.live
        if live is None or not live.is_reachable:
            world.recording.add(process, "fail", "connect", error="nobody answers")
            world.recording.release(process)
            return False
        self.connection = connection = Connection(world, world.number("connection"), live)
        world.recording.add(process, "ok", "connect", broker=live.name, connection=connection.number)
        world.recording.release(process)
        return True

    def ask(self, f: str, columns: dict[str, Any], work: Callable[[], str]) -> Script:
        """Ask for an operation and record it; returns its outcome.

        An unknown one ends the connection.
        """
        world, connection = self.world, self.connection
        assert connection is not None
        process = world.recording.process()
        told = {**columns, "connection": connection.number}
        message: Message | None = told.pop("wished", None)
        begun = world.timeline.now
        if message is not None:
            told["value"] = message.value(begun, None)
        world.recording.add(process, "invoke", f, **told)
        answer = connection.ask(work)
        world.timeline.after(self.patience, lambda: answer.give(None))
        outcome: str | None = yield answer
        if message is not None and outcome == "ok":
            told["value"] = message.value(begun, world.timeline.now)
        if outcome is None:
            error = "connection lost" if connection.is_left else "time-out"
            world.recording.add(process, "info", f, **told, error=error)
            connection.leave()
            return "info"
        broker = connection.broker.name
        world.recording.add(
            process, outcome, f, **told, broker=broker, error=None if outcome == "ok" else "refused"
        )
        world.recording.release(process)
        return outcome

    def send(self, message: Message, transaction: int | None = None) -> Script:
        connection = self.connection
        assert connection is not None
        message.carriers.append(connection)
        columns = {
            **message.columns, "message": message.id, "digest": message.digest, "headers": message.headers,
            "transaction": transaction, "wished": message,
        }  # fmt: skip
        outcome = yield from self.ask(
            "send", columns, lambda: self.pair.send(connection, message, transaction)
        )
        if outcome == "ok" and transaction is None and not message.is_certain:
            message.certain_since = self.world.timeline.now
        return outcome

    def begin(self) -> Script:
        """Begin a transaction; returns its number, None if that failed."""
        transaction = self.world.number("transaction")
        outcome = yield from self.ask("begin", {"transaction": transaction}, lambda: "ok")
        return transaction if outcome == "ok" else None

    def end(self, transaction: int) -> Script:
        """Commit or roll back."""
        connection = self.connection
        assert connection is not None
        f = self.chance.choice(["commit", "commit", "abort"])
        work = self.pair.commit if f == "commit" else self.pair.abort
        return (yield from self.ask(f, {"transaction": transaction}, lambda: work(connection, transaction)))


class Producer(Client):
    """Sends messages, in transactions or not, and repeats what nobody answered."""

    def __init__(self, world: World, pair: Pair, *, transacted: bool) -> None:
        super().__init__(world, pair)
        self.number = world.number("producer")
        self.transacted = transacted
        self.interval = self.chance.choice([50, 150, 400]) * MS

    def run(self) -> Script:
        world = self.world
        sending: list[Answer] = []
        while not world.is_ending:
            yield round(self.interval * (0.5 + self.chance.random()))
            if not self.is_connected and not (yield from self.connect()):
                continue
            if self.transacted and self.chance.random() < 0.7:
                yield from self._transact()
            elif self.chance.random() < 0.3:
                sending.append(world.timeline.spawn(self._send_one()))  # without waiting for the one before
            else:
                yield from self._send_one()
        yield from sending
        if self.connection is not None:
            self.connection.leave()

    def _send_one(self) -> Script:
        world = self.world
        message = world.compose(self.number, self.pair)
        if message is None:
            return
        outcome = yield from self.send(message)
        attempts = 1
        while world.habits.send_again and outcome != "ok" and attempts < 4 and self.chance.random() < 0.8:
            if world.is_leaving:
                break
            yield self.chance.choice([10, 300]) * MS
            if not self.is_connected and not (yield from self.connect()):
                attempts += 1
                continue
            if not world.may_repeat(message, self.pair):
                continue
            outcome = yield from self.send(message)
            attempts += 1

    def _transact(self) -> Script:
        transaction = yield from self.begin()
        for _ in range(self.chance.randint(1, 3)):
            message = None if transaction is None else self.world.compose(self.number, self.pair)
            if message is None or (yield from self.send(message, transaction)) == "info":
                return
        if self.chance.random() < 0.9:
            yield from self.end(transaction)
        elif self.connection is not None:
            self.connection.leave()
