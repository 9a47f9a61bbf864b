"""Everything together: the cluster, its clients, the faults, and how a test ends."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from innocent_cluster.administration import Administrator
from innocent_cluster.brokers import Broker, Pair
from innocent_cluster.clients import Producer
from innocent_cluster.connections import Connection
from innocent_cluster.consumers import Consumer, Receiver
from innocent_cluster.faults import Fault
from innocent_cluster.habits import ADMINISTER, Habits, drawn
from innocent_cluster.messages import Columns, Copy, Message
from innocent_cluster.misdeeds import AWAY, Culprit
from innocent_cluster.places import Session
from innocent_cluster.recording import HARNESS, MONITOR, Recording, Row
from innocent_cluster.timeline import MS, Answer, S, Script, Timeline

TOPIC, TEMPORARY, PULLED = "/topic/", "/temp-queue/", "p"
MOVING = ("q", "r")
"""The queues of all pairs whose messages may go from one pair to another."""
TIME_TO_LIVE = 1200 * MS
"""After so long a silence of its live a backup takes over."""


class World:
    """One run; ``habits`` are not drawn from the seed."""

    def __init__(
        self, seed: int, misdeed: str | None = None, habits: Mapping[str, Any] | None = None
    ) -> None:
        self.chance = random.Random(f"innocent cluster {seed}")
        self._moves = random.Random(f"moves of an innocent cluster {seed}")
        self._members = random.Random(f"members of an innocent cluster {seed}")
        self._news = random.Random(f"news of an innocent cluster {seed}")
        self._changes = random.Random(f"changes of an innocent cluster {seed}")
        self.habits: Habits = drawn(
            self.chance,
            redistributes=self._moves.random() < 0.3,
            joins=self._members.random() < 0.3,
            leaves=self._members.random() < 0.2,
            shares_topics=self._news.random() < 0.5,
            deletes=self._changes.random() < 0.25,
            deletes_together=self._changes.random() < 0.5,
            administers=self._changes.random() < 0.1,
        )
        self.culprit = Culprit(self, misdeed)
        if self.culprit.misdeed is not None:
            self.habits = dataclasses.replace(self.habits, **self.culprit.misdeed.habits)
        self.habits = dataclasses.replace(self.habits, **(habits or {}))
        self.timeline = Timeline()
        self.recording = Recording(self.timeline)
        self.pairs = [Pair(self, "abc"[n], self.habits.brokers) for n in range(self.habits.pairs)]
        self.administrators = self._appoint() if self.habits.deletes else []
        self.readers: dict[Session, Consumer] = {}
        self.at_end: list[Answer] = []
        self.struck: set[Broker] = set()
        self._left: list[Broker] = []
        self.unheard: set[Broker] = set()
        """The brokers that are struck so that others may hear from them late."""
        self.is_ending = self.is_healing = self.is_leaving = self.is_finishing = self.is_over = False
        self.quiet_checks = 2 + self.habits.redelivery // (50 * MS) * 2
        self._numbers: Counter[str] = Counter()
        self._sequences: Counter[tuple[Any, ...]] = Counter()
        self._cut: dict[Broker, str] = {}
        self._refused = 0
        self._clients: list[Answer] = []
        self._temporaries: dict[str, Pair] = {}
        self._looks: dict[Broker, int] = {}
        self._cuts: list[Connection] = []
        self._staying: list[Answer] = []

    # ----------------------------------------------------------------------------------- questions

    def number(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]

    def is_topic(self, queue: str) -> bool:
        return queue.startswith(TOPIC)

    def is_temporary(self, queue: str) -> bool:
        return queue.startswith(TEMPORARY)

    def latency(self, connection: Connection) -> int:
        chance = self.chance
        delay = chance.choice([MS, MS, 3 * MS, 8 * MS])
        if self.habits.slow_network and chance.random() < 0.05:
            delay = chance.choice([100, 400, 900]) * MS
        if self._cut.get(connection.broker) == "slow":
            delay += 500 * MS
        return delay

    def journal_delay(self) -> int:
        return self.chance.choice([0, MS, 2 * MS])

    def refuses(self) -> bool:
        """Whether a broker refuses a request for no reason; never two of a few."""
        self._refused += 1
        if self.habits.random_refusals and self._refused > 10 and self.chance.random() < 0.08:
            self._refused = 0
            return True
        return False

    def is_reachable(self, copy: Copy, pair: Pair) -> bool:
        """Whether a copy may still come to a consumer that waits for a little while."""
        live = pair.live
        return not copy.is_hidden and (live is None or copy.due <= live.clock + S)

    def may_repeat(self, message: Message, pair: Pair) -> bool:
        """Without detection of duplicates only a send that can never come about is repeated."""
        if self.habits.detects_duplicates:
            return True
        return message.id not in pair.known and all(one.is_closed for one in message.carriers)

    def _appoint(self) -> list[Administrator]:
        """Return an administrator for each queue that is deleted: of one pair, or of all."""
        pairs, chance = self.pairs, self._changes
        if self.habits.deletes_together:
            return [Administrator(self, f"d{n}", pairs, chance) for n in range(chance.choice([1, 2]))]
        return [Administrator(self, f"d-{pair.name}", [pair], chance) for pair in pairs]

    # ------------------------------------------------------------------------------------ messages

    def compose(
        self, producer: int, pair: Pair, queue: str | None = None, money: Columns | None = None
    ) -> Message | None:
        """A message to some destination of the pair; None if there is no such destination."""
        habits, chance = self.habits, self.chance
        queue = queue or self._destination(pair)
        if queue is None:
            return None
        groups = [n for n in range(habits.groups) if n % habits.pairs == self.pairs.index(pair)]
        is_grouped = (
            bool(groups) and queue != PULLED and not self.is_temporary(queue) and chance.random() < 0.7
        )
        group = f"g{chance.choice(groups)}" if is_grouped else None
        sequence = self._sequences[producer, queue, group]
        self._sequences[producer, queue, group] += 1
        wishes: Columns = {}
        if habits.selectors and chance.random() < 0.8:
            wishes["properties"] = {"colour": chance.choice(["red", "blue"])}
        if habits.priorities and chance.random() < 0.5:
            wishes["priority"] = chance.choice([0, 4, 9])
        if habits.expiry and chance.random() < 0.4:
            wishes["expires"] = chance.choice([1, 100, 2_000, 20_000]) * MS
        if habits.delays and chance.random() < 0.3:
            wishes["delay"] = chance.choice([1, 100, 2_000, 20_000]) * MS
        if "request-reply" in habits.workloads and queue == "requests":
            shared = habits.shares_topics
            mine = [name for name, owner in self._temporaries.items() if shared or owner is pair]
            if not mine:
                return None
            wishes["reply_to"] = chance.choice(mine[-3:])
        if queue == "bank":
            wishes |= money or {"amount": chance.randint(1, 9), "account": f"a{chance.randrange(3)}"}
        number = self.number("message")
        columns = {"queue": queue, "group": group, "producer": producer, "sequence": sequence}
        headers = number * 11 if habits.headers else None
        if group is not None and habits.closes_groups and chance.random() < 0.15:
            wishes["close"] = True
        return Message(number, columns, wishes, headers, habits.large and chance.random() < 0.1)

    def _destination(self, pair: Pair) -> str | None:
        workloads, place = self.habits.workloads, self.pairs.index(pair)
        some = ["q"] if workloads & {"queue", "transactions"} else []
        some += ["r"] if "refusals" in workloads else []
        away = 1 if self.habits.shares_topics else 0
        topic = f"{TOPIC}t{(place + away) % len(self.pairs)}"
        some += [topic] * 2 if "topics" in workloads else []
        some += [PULLED] if "receives" in workloads else []
        some += ["bank"] if "bank" in workloads else []
        some += ["requests"] if "request-reply" in workloads else []
        some += [one.queue for one in self.administrators if pair in one.pairs]
        return self.chance.choice(some) if some else None

    def temporary_name(self, pair: Pair) -> str:
        name = f"{TEMPORARY}{self.number('temporary')}"
        self._temporaries[name] = pair
        return name

    def home_of(self, queue: str) -> Pair | None:
        """The pair of the owner of a temporary queue."""
        return self._temporaries.get(queue)

    def marks_of(self, copy: Copy, broker: Broker) -> Columns:
        """What a delivery says about those before it."""
        marks, life = self.habits.marks, (broker, broker.life)
        seen = copy.seen_by
        is_again = life in seen
        seen.add(life)
        if marks == "never":
            return {}
        if marks == "same-process":
            return {"redelivered": is_again}
        count = copy.count
        if self.culprit.strikes("does not count", copy=copy, is_certain=count > 1):
            count = 1
        is_marked = not self.culprit.strikes(
            "does not mark", copy=copy, is_certain=count > 1 and copy.attempts > 0
        )
        return {"redelivered": copy.count > 1 and is_marked, "delivery_count": count}

    def arrive(self, broker: Broker, session: Session, copy: Copy) -> None:
        """Send a delivery on its way."""
        message, connection = copy.message, session.connection
        columns = {
            **message.columns, "queue": session.name[0], "subscription": session.name[1],
            "message": message.id, "session": session.number, "connection": connection.number,
            "broker": broker.name,
            "digest": message.digest, "headers": message.headers, **self.marks_of(copy, broker),
        }  # fmt: skip
        if self.culprit.strikes("changes a header", copy=copy):
            columns["headers"] += 1
        if self.culprit.strikes("changes a body", copy=copy):
            columns["digest"] += 1
        if self.culprit.strikes("delivers what nobody sent", copy=copy):
            columns["message"] += 1_000_000
        consumer = self.readers[session]
        connection.tell(lambda: consumer.read(copy, session, columns))

    def time_out(self, session: Session, copy: Copy) -> None:
        if self.habits.tells_time_outs:
            message = copy.message
            self.recording.add(
                self.recording.process(), "info", "timeout", queue=session.name[0], group=message.group,
                message=message.id, session=session.number, subscription=session.name[1],
                producer=message.columns["producer"], sequence=message.columns["sequence"],
            )  # fmt: skip

    # -------------------------------------------------------------------------------- what befalls

    def monitor(self, broker: Broker, role: str) -> None:
        """A change of role that happens now is seen by the next look."""
        now, chance = self.timeline.now, self.chance
        low = max(0, now - chance.choice([0, MS, 60 * MS]))
        told: Columns = {"broker": broker.name, "role": role, "time_low": low}
        if role in ("live", "backup"):
            told["node_id"] = broker.pair.node_id
        if role == "live":
            told["value"] = str(broker.pair.activations)
        later = chance.choice([0, MS, 60 * MS])
        self._looks[broker] = at = max(now + later, self._looks.get(broker, 0))

        def look() -> None:
            self.recording.add(MONITOR, "info", "role", **told, time_high=self.timeline.now)

        self.timeline.at(at, look)

    def kill(self, broker: Broker, *, cleanly: bool) -> None:
        broker.die(cleanly=cleanly)
        broker.is_frozen = broker.is_stalled = False
        self.monitor(broker, "stopped")

    def restart(self, broker: Broker) -> None:
        if broker.role != "stopped":
            return
        others = [one for one in broker.pair.brokers if one is not broker]
        if broker.pair.live is None and not any(one.role == "backup" for one in others):
            self.activate(broker)
            return
        broker.role = "backup"
        self.monitor(broker, "backup")
        if self.habits.fails_back:
            self.timeline.after(500 * MS, lambda: self._fail_back(broker))

    def switch_over(self, live: Broker) -> None:
        """The live leaves in order, and a backup takes over at once."""
        backup = live.pair.successors[0]
        live.die(cleanly=True)
        live.role = "backup"
        self.monitor(live, "backup")
        self.activate(backup)

    def _fail_back(self, broker: Broker) -> None:
        live = broker.pair.live
        if (
            live is None
            or broker.role != "backup"
            or broker not in broker.pair.successors
            or {live, broker} & self.struck
            or self.is_leaving
        ):
            return
        self.switch_over(live)

    def activate(self, broker: Broker) -> None:
        broker.pair.activate(broker)
        self.monitor(broker, "live")

    def freeze(self, broker: Broker) -> None:
        broker.is_frozen = True
        self.monitor(broker, "unreachable")
        self._fence_later(broker)

    def thaw(self, broker: Broker) -> None:
        if not broker.is_frozen:
            return
        broker.is_frozen = False
        self.monitor(broker, broker.role)
        broker.work()
        broker.pair.push()

    def hold_store(self, broker: Broker, is_whole: bool) -> None:
        if is_whole:
            broker.is_stalled = True
        else:
            broker.slowness = 300 * MS

    def free_store(self, broker: Broker) -> None:
        broker.is_stalled, broker.slowness = False, 0
        broker.work()
        broker.pair.push()

    def cut(self, broker: Broker, kind: str) -> None:
        self._cut[broker] = kind
        if kind == "slow":
            return
        for connection in broker.connections:
            connection.cut()
            self._notice(connection)
        if kind == "partition":
            self._fence_later(broker)

    def _notice(self, connection: Connection) -> None:
        def client() -> None:
            if connection.is_cut:
                connection.lose()

        def broker() -> None:
            if connection.is_cut:
                connection.broker_closes()

        self.timeline.after(self.chance.choice([1500 * MS, 3 * S]), client)
        self.timeline.after(self.chance.choice([1500 * MS, 3 * S]), broker)
        self._cuts.append(connection)

    def mend(self, broker: Broker) -> None:
        self._cut.pop(broker, None)
        for connection in [one for one in self._cuts if one.broker is broker]:
            self._cuts.remove(connection)
            connection.mend()

    def is_cut(self, broker: Broker) -> bool:
        return self._cut.get(broker) in ("partition", "stall")

    def _fence_later(self, broker: Broker) -> None:
        """A live that is silent for too long is live no more, if there is a backup to be it."""
        life = broker.life

        def fence() -> None:
            silent = broker.is_frozen or self._cut.get(broker) == "partition"
            if broker.is_live and broker.life == life and silent and broker.pair.successors:
                was_seen = not broker.is_frozen
                broker.stop("backup")
                if was_seen:
                    self.monitor(broker, "backup")

        self.timeline.after(TIME_TO_LIVE, fence)

    def _elect(self, pair: Pair) -> Script:
        """A backup becomes live where there is no live; what has expired is found now and then."""
        while not self.is_over:
            yield self.chance.choice([100, 200, 300]) * MS
            pair.push()
            if pair.live is None and pair.successors:
                self.activate(self.chance.choice(pair.successors))

    # ------------------------------------------------------------------------------------ the test

    def run(self) -> list[Row]:
        self.timeline.spawn(self._test())
        self.timeline.run(lambda: self.is_over, limit=600 * S)
        return self.recording.finished()

    def phase(self, value: str) -> None:
        self.recording.add(HARNESS, "info", "phase", value=value)

    def _test(self) -> Script:
        joining = self._joining()
        for pair in self.pairs:
            if pair not in joining:
                self.activate(pair.brokers[0])
                for broker in pair.brokers[1:]:
                    broker.role = "backup"
                    self.monitor(broker, "backup")
            self.timeline.spawn(self._elect(pair))
        yield 100 * MS
        self.phase("load")
        load = self.chance.choice([1, 2, 4]) * S
        faults = self._begin_faults(load)
        faults += self._begin_changes(load, joining)
        self._begin_clients()
        if self.habits.redistributes and self.culprit.misdeed is None:
            self.timeline.spawn(self._redistribute())
        if (self.habits.shares_topics or self.administrators) and len(self.pairs) > 1:
            self.timeline.spawn(self._exchange())
        if self.culprit.strikes("is away for long"):
            self.timeline.spawn(self._be_away())
            load += AWAY
        yield load
        self.is_ending = self.is_healing = True
        yield from faults
        self.phase("heal")
        while any(pair.live is None for pair in self.pairs):
            yield 50 * MS
        self.phase("recovered")
        yield S
        self.is_leaving = True
        for leaving in self.at_end:
            leaving.give("end")
        yield from self._clients
        while not self.habits.late_drain and self._open_connections():
            yield 50 * MS
        for pair in self.pairs:
            pair.catch_up()
        if self.habits.compares:
            yield from self._compare()
        self.phase("drain")
        yield from self._drain()
        self._resurrect()
        for broker in self._left:
            self.restart(broker)
        self.phase("browse")
        for _ in range(2 if self.habits.reads_twice else 1):
            for pair in self.pairs:
                self._browse(pair)
        self.phase("end")
        self.is_over = True

    def _redistribute(self) -> Script:
        """Move waiting messages without a group to another pair, now and then, under the load."""
        while not self.is_ending:
            yield self._moves.choice([50, 200, 500]) * MS
            able = [pair for pair in self.pairs if pair.able is not None]
            if len(able) > 1:
                source, target = self._moves.sample(able, 2)
                source.give_away(target, self._moves.choice(MOVING), self._moves.choice([1, 3, 100]))

    def delays_news(self, *pairs: Pair) -> bool:
        """Whether news of subscriptions between pairs does not get through now."""
        is_near = any(broker in self.unheard for pair in pairs for broker in pair.brokers)
        return is_near and self._news.random() < 0.8

    def _exchange(self) -> Script:
        """Bring news of subscriptions, and messages, to where they could not go at once."""
        while not self.is_over:
            yield self._news.choice([5, 50, 300]) * MS
            for pair in self.pairs:
                pair.tell()
                pair.forward()
                if pair.able is not None and not self.delays_news(pair):
                    pair.catch_up()

    def _be_away(self) -> Script:
        """A broker answers nothing for a while, and no fault is in force."""
        yield 500 * MS
        live = self.pairs[0].live
        assert live is not None
        self.hold_store(live, is_whole=True)
        yield AWAY
        self.free_store(live)

    def _resurrect(self) -> None:
        """Something that was acknowledged is in a store again."""
        for pair in self.pairs:
            for session, message in pair.acknowledged:
                place = session.place
                assert place is not None
                if self.culprit.strikes(
                    "has an acknowledged message in its store", place, is_certain=not place.is_gone
                ):
                    place.copies.append(Copy(message, 0))

    def _open_connections(self) -> bool:
        staying = {session.connection for session, one in self.readers.items() if one.stays}
        return any(one not in staying for pair in self.pairs for b in pair.brokers for one in b.connections)

    def _begin_faults(self, load: int) -> list[Answer]:
        begun = []
        for number, kind in enumerate(self.habits.faults, 1):
            fault = Fault(self, kind, f"{kind}-{number}")
            start = round(load * self.chance.random() * 0.8)
            duration = self.chance.choice([300 * MS, S, 3 * S, 12 * S])

            def begin(fault: Fault = fault, start: int = start, duration: int = duration) -> Script:
                yield start
                yield from fault.run(duration)

            begun.append(self.timeline.spawn(begin()))
        return begun

    def _joining(self) -> list[Pair]:
        """Return the pairs that join under the load: any but the first."""
        others = self.pairs[1:]
        if not (self.habits.joins and others and self.culprit.misdeed is None):
            return []
        return self._members.sample(others, self._members.randint(1, len(others)))

    def _begin_changes(self, load: int, joining: list[Pair]) -> list[Answer]:
        """Begin the joining of these pairs, and the leaving of a broker that has a backup."""
        begun = []
        chance = self._members
        if joining:
            brokers = [broker for pair in joining for broker in pair.brokers]
            join = Fault(self, "late-start", "late-start-0", chance, brokers)
            begun.append(self.timeline.spawn(join.run(round(load * chance.uniform(0.1, 0.7)))))
        staying = [pair for pair in self.pairs if pair not in joining]
        if self.habits.administers and self.culprit.misdeed is None:
            start, duration = (round(load * self._changes.uniform(0.1, 0.5)) for _ in range(2))
            begun.append(self.timeline.spawn(self._command(start, duration)))
        if self.habits.leaves and self.habits.brokers > 1 and self.culprit.misdeed is None:
            start = round(load * chance.uniform(0.1, 0.8))
            begun.append(self.timeline.spawn(self._leave(chance.choice(staying), start)))
        return begun

    def _command(self, start: int, duration: int) -> Script:
        """An administrator gives commands that disturb nobody."""
        yield start
        yield from Fault(self, ADMINISTER, f"{ADMINISTER}-0", self._changes).run(duration)

    def _leave(self, pair: Pair, start: int) -> Script:
        """One broker of a pair leaves for good, if its data can go on without it."""
        yield start
        leaving = [one for one in pair.brokers if one not in self.struck and one.role in ("live", "backup")]
        if len(leaving) == len(pair.brokers) and pair.successors:
            broker = self._members.choice(leaving)
            self._left.append(broker)
            yield from Fault(self, "leave", "leave-0", self._members, [broker]).run(0)

    def _begin_clients(self) -> None:
        workloads, chance = self.habits.workloads, self.chance
        self._clients += [self.timeline.spawn(one.run()) for one in self.administrators]
        for place, pair in enumerate(self.pairs):
            for _ in range(chance.randint(1, 2)):
                transacted = "transactions" in workloads and chance.random() < 0.6
                self._clients.append(self.timeline.spawn(Producer(self, pair, transacted=transacted).run()))
            consumers = [
                Consumer(self, pair, (one.queue, None))
                for one in self.administrators
                if pair in one.pairs and chance.random() < 0.6
            ]
            queues = [
                *(["q"] if workloads & {"queue", "transactions"} else []),
                *(["r"] if "refusals" in workloads else []),
            ]
            for queue in queues:
                for _ in range(chance.randint(1, 3)):
                    wanted = self._wanted() if self.habits.selectors else None
                    consumers.append(Consumer(self, pair, (queue, None), wanted=wanted))
            if "topics" in workloads:
                topic = f"{TOPIC}t{place}"
                for name in chance.sample(["alice", "bob", "carol"], 2):
                    wanted = self._wanted() if self.habits.selectors else None
                    members = range(chance.choice([1, 1, 2]))
                    consumers += [Consumer(self, pair, (topic, name), wanted=wanted) for _ in members]
                wanted = self._wanted() if self.habits.selectors else None
                plain = Consumer(self, pair, (topic, None), wanted=wanted, is_owner=True)
                plain.is_plain = True
                consumers.append(plain)
            for one in consumers:
                one.refuses = "refusals" in workloads and one.name[0] == "r"
                one.transacted = one.transacted or ("transactions" in workloads and chance.random() < 0.4)
            if "bank" in workloads:
                mover = Consumer(self, pair, ("bank", None))
                mover.transacted = mover.moves = True
                consumers.append(mover)
            if "request-reply" in workloads:
                responder = Consumer(self, pair, ("requests", None))
                responder.answers = True
                consumers.append(responder)
                for _ in range(2):
                    requester = Consumer(self, pair, (TEMPORARY, None), is_owner=True)
                    requester.stays = chance.random() < 0.4
                    consumers.append(requester)
            self._clients += [self.timeline.spawn(one.run()) for one in consumers if not one.stays]
            self._staying += [self.timeline.spawn(one.run()) for one in consumers if one.stays]
            if "receives" in workloads:
                self._clients.append(self.timeline.spawn(Receiver(self, pair, PULLED).run()))

    def _wanted(self) -> str | None:
        return self.chance.choice(["red", "blue", None])

    def _drain(self) -> Script:
        drains = []
        for pair in self.pairs:
            for name, place in list(pair.places.items()):
                if self.is_temporary(name[0]):
                    continue
                if name[0] == PULLED:
                    receiver = Receiver(self, pair, name[0])
                    receiver.drains = True
                    drains.append(self.timeline.spawn(receiver.run()))
                    continue
                consumer = Consumer(self, pair, name, wanted=place.wanted)
                consumer.drains = True
                drains.append(self.timeline.spawn(consumer.run()))
        for one in drains:
            yield one
        self.is_finishing = True
        for one in self._staying:
            yield one

    def _compare(self) -> Script:
        """Brokers tell twice what they have; the rows have what they told both times."""
        first, low = self._views(), self.timeline.now
        yield 200 * MS
        second = self._views()
        for (broker, kind, key), value in first.items():
            if second.get((broker, kind, key)) == value:
                told = {"kind": kind, "key": key, "value": value}
                self.recording.add(
                    HARNESS, "ok", "view", broker=broker, time_low=low, time_high=self.timeline.now,
                    value=json.dumps(told),
                )  # fmt: skip

    def _views(self) -> dict[tuple[str, str, str], str]:
        """Return by (broker, kind, key) what each broker has now.

        Live and backup tell how many messages each queue holds. All lives tell which queues an
        administrator made, where they make them together; so do the answers that clients got.
        """
        told = {}
        for pair in self.pairs:
            held = {name[0]: len(place.copies) for name, place in pair.places.items() if name[1] is None}
            for broker in pair.brokers if len(pair.brokers) > 1 else ():
                for queue, count in held.items():
                    told[broker.name, "destination", f"{queue} at {pair.name}"] = f"{count} messages"
        for one in self.administrators if self.habits.deletes_together else ():
            for pair in one.pairs:
                if pair.live is not None:
                    is_there = one.queue in pair.made
                    told[pair.live.name, "queue", one.queue] = "there" if is_there else "gone"
            if one.answered is not None:
                told["clients", "queue", one.queue] = "there" if one.answered else "gone"
        return told

    def _browse(self, pair: Pair) -> None:
        live = pair.live
        assert live is not None
        found = [(name, copy, "main") for name, place in pair.places.items() for copy in place.copies]
        for name, copy, store in [*found, *pair.dead]:
            message = copy.message
            self.recording.add(
                HARNESS, "ok", "browse", **message.columns | {"queue": name[0]}, message=message.id,
                subscription=name[1], broker=live.name, value=store,
                digest=None if message.is_large else message.digest, headers=message.headers,
            )  # fmt: skip
        self.recording.add(HARNESS, "ok", "browse", broker=live.name)
