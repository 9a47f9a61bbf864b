"""Brokers and the pairs that they make: what a request does, and what is left of it after a death.

A broker works its requests off one after the other; each takes effect at one moment and is answered
then. What has taken effect is in the store of the pair, so whoever is live next has it. When a
broker dies, some of the requests that it had not answered have taken effect, always the first ones.
Sessions, holds and open transactions end with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from innocent_cluster.connections import Connection
from innocent_cluster.messages import Copy, Message
from innocent_cluster.places import Name, Place, Session
from innocent_cluster.timeline import MS, Answer, S

if TYPE_CHECKING:
    from innocent_cluster.administration import Request
    from innocent_cluster.world import World

Work = Callable[[], str]


class Broker:
    """A broker process, which may have several lives; ``skew`` is how far its clock is ahead."""

    def __init__(self, world: World, pair: Pair, name: str) -> None:
        self.world, self.pair, self.name = world, pair, name
        self.role = "stopped"
        self.life = 0
        self.is_frozen = False
        self.is_stalled = False
        self.slowness = 0
        self.skew = 0
        self.connections: list[Connection] = []
        self._line: deque[tuple[Connection, Work | None, Answer | None]] = deque()
        self._is_working = False

    @property
    def clock(self) -> int:
        return self.world.timeline.now + self.skew

    @property
    def is_reachable(self) -> bool:
        """Whether a new connection comes about."""
        return self.is_live and not self.is_frozen and not self.world.is_cut(self)

    @property
    def is_live(self) -> bool:
        return self.role == "live"

    def take(self, connection: Connection, work: Work | None, answer: Answer | None) -> None:
        """Put a request into the line; without work: the end of the connection."""
        self._line.append((connection, work, answer))
        self.work()

    def work(self) -> None:
        """Begin with the next request, if nothing hinders."""
        if self._is_working or not self._line:
            return
        self._is_working = True
        life = self.life
        self.world.timeline.after(self.world.journal_delay() + self.slowness, lambda: self._step(life))

    def _step(self, life: int) -> None:
        if life != self.life:
            return
        self._is_working = False
        if self.is_frozen or self.is_stalled or not self._line:
            return
        connection, work, answer = self._line.popleft()
        outcome = self._do(connection, work)
        if outcome is not None and answer is not None:
            connection.tell(lambda: answer.give(outcome))
        if self.is_live:
            self.pair.push()
        self.work()

    def _do(self, connection: Connection, work: Work | None) -> str | None:
        if connection.is_closed:
            return None
        if work is None:
            self.end(connection)
            return None
        return work()

    def end(self, connection: Connection) -> None:
        """Forget a connection: its sessions end, and its transactions are rolled back."""
        for session in connection.sessions:
            self.pair.part(session, is_lost=True)
        for place in list(self.pair.places.values()):
            if place.owner is connection:
                self.pair.drop(place)
        connection.bound.clear()
        connection.close()

    def die(self, *, cleanly: bool = False) -> None:
        """End the process; of its line the first requests have taken effect, unanswered."""
        done = len(self._line) if cleanly else self.world.chance.randint(0, len(self._line))
        for _ in range(done):
            self._do(*self._line.popleft()[:2])
        self.stop("stopped")

    def stop(self, role: str) -> None:
        """Be live no more; nothing of the line is done."""
        self._line.clear()
        self._is_working = False
        was_live = self.is_live
        self.role = role
        if was_live:
            self.pair.forget(self)
        for connection in list(self.connections):
            connection.close()
        self.life += 1


class Pair:
    """One node's data, and the brokers of which one serves it at a time."""

    def __init__(self, world: World, name: str, brokers: int) -> None:
        self.world, self.name, self.node_id = world, name, f"node-{name}"
        self.brokers = [Broker(world, self, f"{name}{number}") for number in range(1, brokers + 1)]
        self.places: dict[Name, Place] = {}
        self.known: set[int] = set()
        self.dead: list[tuple[Name, Copy, str]] = []
        self.acknowledged: list[tuple[Session, Message]] = []
        self.activations = 0
        self.heard: dict[Pair, list[Place]] = {}
        """The subscriptions of other pairs, as those told of them last."""
        self.leaving: list[tuple[Pair, list[Place], Message, int]] = []
        """Messages for known subscriptions of other pairs, and when they came here."""
        self.made: set[str] = set()
        """The queues that an administrator made and that were not deleted since."""
        self.unheard_changes: list[Request] = []
        """The changes of queues at other pairs of which this one has not heard, in their order."""
        self._positions = 0

    @property
    def live(self) -> Broker | None:
        return next((broker for broker in self.brokers if broker.is_live), None)

    # --------------------------------------------------------------------------------------- lives

    @property
    def successors(self) -> list[Broker]:
        """The backups that can take over now."""
        world = self.world
        ready = [one for one in self.brokers if one.role == "backup" and not one.is_frozen]
        return [one for one in ready if not world.is_cut(one)]

    def activate(self, broker: Broker) -> None:
        assert self.live is None
        broker.role = "live"
        self.activations += 1
        self.catch_up()
        self.push()

    def forget(self, broker: Broker) -> None:
        """What ends with a broker: sessions, holds, transactions, what belongs to connections."""
        culprit = self.world.culprit
        for place in list(self.places.values()):
            for copy in list(place.copies):
                is_lost = place.is_owed(copy) and copy.holder is None
                if culprit.strikes("loses a message at a fail-over", place, copy, is_certain=is_lost):
                    place.remove(copy)
        for place in list(self.places.values()):
            for session in list(place.sessions):
                self.part(session, is_lost=True)
            if place.owner is not None:
                self.drop(place)
            if self.world.habits.marks_found:
                for copy in place.copies:
                    copy.count += 1
        for connection in broker.connections:
            connection.bound.clear()
        if not self.world.habits.counts_attempts_durably:
            for place in self.places.values():
                for copy in place.copies:
                    copy.attempts = 0

    # ------------------------------------------------------------------------------------ messages

    @property
    def able(self) -> Broker | None:
        """The live broker, if it can do something now."""
        live = self.live
        return None if live is None or live.is_frozen or live.is_stalled or self.world.is_cut(live) else live

    def give_away(self, other: Pair, queue: str, most: int) -> None:
        """Move waiting messages of a queue to another pair, which has them behind its own."""
        broker, place = self.able, self.places.get((queue, None))
        if broker is None or place is None:
            return
        moving = [
            copy
            for copy in place.copies
            if copy.holder is None and copy.message.group is None and copy.due <= broker.clock
        ]
        there = other.places.setdefault((queue, None), Place((queue, None)))
        for copy in moving[:most]:
            place.remove(copy)
            other._positions += 1
            copy.at = other._positions
            there.copies.append(copy)
        other.push()

    def tell(self) -> None:
        """Tell other pairs of the subscriptions here, as far as they can hear it now."""
        if self.able is not None and self.world.habits.shares_topics:
            for other in self.world.pairs:
                if other is not self and other.able is not None and not self.world.delays_news(self, other):
                    other.heard[self] = [place for name, place in self.places.items() if name[1] is not None]

    def forward(self) -> None:
        """Bring messages to the subscriptions of other pairs that can take them now."""
        staying = []
        for other, places, message, arrived in self.leaving:
            broker = other.able
            if broker is None or self.able is None:
                staying.append((other, places, message, arrived))
            else:
                other.enqueue(message, broker, arrived, places)
                other.push()
        self.leaving = staying

    def routes(self, message: Message) -> list[Place]:
        """The places that are to have a copy."""
        queue = message.columns["queue"]
        if not self.world.is_topic(queue):
            place = self.places.get((queue, None))
            if place is None and not self.world.is_temporary(queue):
                place = self.places[queue, None] = Place((queue, None))
            return [] if place is None else [place]
        return [
            place
            for (topic, subscription), place in self.places.items()
            if topic == queue and subscription is not None and place.wanted in (None, message.colour)
        ]

    def first_route(self, message: Message) -> Place | None:
        return next(iter(self.routes(message)), None)

    def enqueue(self, message: Message, broker: Broker, arrived: int, places: list[Place]) -> None:
        for place in places:
            if place.is_gone:
                continue
            self._positions += 1
            copy = Copy(message, self._positions, due=0)
            is_plain = place.owner is not None and message.group is not None
            if self.world.culprit.strikes(
                "skips every other message of a plain subscription", place, copy,
                is_certain=is_plain and self._positions % 2 == 0,
            ) or self.world.culprit.strikes(
                "forgets a message of a subscription that is made anew", place, copy,
                is_certain=place.owner is None and message.group is not None,
            ):  # fmt: skip
                continue
            copy.is_hidden = self.world.culprit.strikes("keeps a message for ever", place, copy)
            if "delay" in message.wishes:
                copy.due = arrived + message.wishes["delay"]
                is_long = message.wishes["delay"] > S
                if self.world.culprit.strikes("delivers before it is due", place, copy, is_certain=is_long):
                    copy.due = 0
                self.world.timeline.at(copy.due - broker.skew, self.push)
            if "expires" in message.wishes:
                copy.expires = arrived + message.wishes["expires"]
            place.copies.append(copy)

    def send(self, connection: Connection, message: Message, transaction: int | None) -> str:
        world, broker = self.world, connection.broker
        if world.refuses():
            return "fail"
        home = world.home_of(message.columns["queue"]) or self
        if world.is_temporary(message.columns["queue"]) and home is self and not self.routes(message):
            return "fail" if world.chance.random() < 0.5 else "ok"
        if message.id in self.known and world.habits.detects_duplicates:
            return "ok"
        arrived = broker.clock
        routed = None if world.habits.routes_at_commit else self.routes(message)

        def store() -> None:
            if message.id in self.known and world.habits.detects_duplicates:
                return
            self.known.add(message.id)
            places = self.routes(message) if routed is None else routed
            if transaction is not None and len(places) > 1:
                *some, last = places
                if world.culprit.strikes(
                    "copies a commit to one subscription", last, is_certain=last.owner is None
                ):
                    places = some
            self.enqueue(message, broker, arrived, places)
            self.leaving += [(home, home.routes(message), message, arrived)] if home is not self else []
            for other, heard in self.heard.items():
                wanting = [
                    place
                    for place in heard
                    if place.name[0] == message.columns["queue"] and place.wanted in (None, message.colour)
                ]
                self.leaving += [(other, wanting, message, arrived)] if wanting else []

        if transaction is not None:
            connection.bound.setdefault(transaction, []).append((message, store))
        elif not world.culprit.strikes("loses what it answered to have taken", self.first_route(message)):
            store()
        return "ok"

    def commit(self, connection: Connection, transaction: int) -> str:
        if self.world.refuses():
            self._end_transaction(connection, transaction, counts=False)
            return "fail"
        bound = connection.bound.pop(transaction, [])
        culprit = self.world.culprit
        if len(bound) > 1 and culprit.strikes("commits a part of the sends", self.first_route(bound[-1][0])):
            bound.pop()
        for _, store in bound:
            store()
        for session in connection.sessions:
            for copy in session.held:
                if copy.transaction == transaction and session.place is not None:
                    is_alone = len(session.place.sessions) == 1
                    if bound and culprit.strikes(
                        "commits without an ack", session.place, copy, is_certain=is_alone
                    ):
                        copy.holder, copy.transaction = None, None
                        continue
                    session.place.remove(copy)
        return "ok"

    def abort(self, connection: Connection, transaction: int) -> str:
        bound = connection.bound.get(transaction, [])
        if bound and self.world.culprit.strikes("delivers an aborted send"):
            for _, store in bound:
                store()
        self._end_transaction(connection, transaction, counts=True)
        return "ok"

    def _end_transaction(self, connection: Connection, transaction: int, *, counts: bool) -> None:
        connection.bound.pop(transaction, None)
        for session in connection.sessions:
            for copy in session.held:
                if copy.transaction == transaction:
                    copy.holder, copy.transaction = None, None
                    if session.place is not None:
                        self._put_back(session.place, copy, counts=counts or self._counts_all)

    # ------------------------------------------------------------------------- queues as a whole

    def change(self, request: Request, pairs: Sequence[Pair]) -> str:
        """Make or delete a queue here and at those of the other pairs that can hear of it now."""
        world = self.world
        others = [pair for pair in pairs if pair is not self]
        hears = not any(world.delays_news(self, pair) for pair in others)
        if world.refuses() or (self.unheard_changes and not hears):
            return "fail"
        self.catch_up()
        self._apply(request)
        for pair in others:
            pair.unheard_changes.append(request)
            if pair.able is not None and not world.delays_news(self, pair):
                pair.catch_up()
        return "ok"

    def catch_up(self) -> None:
        """Do all changes of queues that were made elsewhere and not here yet."""
        while self.unheard_changes:
            self._apply(self.unheard_changes.pop(0))

    def _apply(self, request: Request) -> None:
        name: Name = (request.queue, None)
        if request.f == "create":
            self.made.add(request.queue)
            self.places.setdefault(name, Place(name))
            return
        self.made.discard(request.queue)
        place = self.places.pop(name, None)
        if place is None:
            return
        kept = []
        for copy in place.copies:
            certain = copy.message.certain_since
            is_certain = copy.holder is None and certain is not None and certain < request.asked
            there = Place(name)
            if self.world.culprit.strikes(
                "keeps a message of a deleted queue", there, copy, is_certain=is_certain
            ):
                self.places[name] = there
                kept.append(copy)
        for copy in kept:
            place.remove(copy)
            self.places[name].copies.append(copy)
        place.is_gone = True
        for connection in [session.connection for session in place.sessions]:
            connection.broker.end(connection)

    # ------------------------------------------------------------------------------- subscriptions

    def subscribe(self, session: Session, *, owner: Connection | None) -> str:
        place = self.places.get(session.name)
        is_subscription = session.name[1] is not None
        if place is not None and is_subscription and place.wanted != session.wanted:
            if place.sessions:
                return "fail"
            self.drop(place)
            place = None
        if place is None:
            wanted = session.wanted if is_subscription else None
            place = self.places[session.name] = Place(session.name, wanted, owner)
            self.tell()
        session.place = place
        place.sessions.append(session)
        place.members += 1
        session.connection.sessions.append(session)
        return "ok"

    def part(self, session: Session, *, is_lost: bool = False) -> None:
        place = session.place
        if place is None:
            return
        for copy in place.part(session):
            is_certain = is_lost and place.is_owed(copy)
            if self.world.culprit.strikes(
                "loses what a lost consumer held", place, copy, is_certain=is_certain
            ):
                place.remove(copy)
                continue
            self._put_back(place, copy, counts=self._counts_all)

    @property
    def _counts_all(self) -> bool:
        return self.world.habits.attempts == "given back"

    def leave(self, session: Session, *, drops: bool) -> str:
        self.part(session)
        if drops and session.place is not None:
            self.drop(session.place)
        return "ok"

    def drop(self, place: Place) -> str:
        if place.sessions:
            return "fail"
        place.is_gone = True
        if self.places.get(place.name) is place:
            del self.places[place.name]
        return "ok"

    def drop_name(self, name: Name) -> str:
        place = self.places.get(name)
        return "ok" if place is None else self.drop(place)

    # ---------------------------------------------------------------------------------- deliveries

    def acknowledge(self, session: Session, message: Message, transaction: int | None) -> str:
        copy = self._held(session, message)
        if copy is None or session.place is None:
            return "fail"
        if transaction is not None:
            copy.transaction = transaction
            return "ok"
        place, culprit = session.place, self.world.culprit
        place.remove(copy)
        if culprit.strikes(
            "refuses an ack and forgets the message", place, copy, is_certain=message.is_certain
        ):
            return "fail"
        if culprit.strikes("delivers again after an ack", place, copy):
            self.world.timeline.after(S, lambda: place.put_back(copy))
        return "ok"

    def refuse(self, session: Session, message: Message) -> str:
        copy = self._held(session, message)
        if copy is None:
            return "fail"
        self.give_back(session, copy, is_refused=True)
        return "ok"

    def hand_out(self, broker: Broker, queue: str, handed: list[Copy]) -> str:
        """Hand out the first message, which is acknowledged by that."""
        place = self.places.get((queue, None))
        if place is not None:
            self.expire(broker, place)
            ready = [copy for copy in place.copies if copy.due <= broker.clock]
            copy = min(ready, key=lambda one: (-one.urgency, one.at), default=None)
            if copy is not None:
                copy.count += 1
                place.remove(copy)
                handed.append(copy)
        return "ok"

    def _held(self, session: Session, message: Message) -> Copy | None:
        return next((one for one in session.held if one.message is message and one.transaction is None), None)

    def give_back(self, session: Session, copy: Copy, *, is_refused: bool) -> None:
        """A copy that its session does not want; with so many attempts it dies."""
        assert session.place is not None
        copy.holder, copy.transaction = None, None
        habits = self.world.habits
        if is_refused and habits.nack == "consume":
            session.place.remove(copy)
            return
        if is_refused and habits.nack == "dead-letter":
            self._bury(session.place, copy, "dead-letter")
            return
        self._put_back(session.place, copy, counts=is_refused or self._counts_all)

    def _put_back(self, place: Place, copy: Copy, *, counts: bool) -> None:
        world, most = self.world, self.world.habits.most_attempts
        copy.attempts += counts
        is_over = world.habits.nack == "requeue" and 0 < most <= copy.attempts
        if is_over and world.culprit.strikes("never kills", place, copy):
            return
        is_early = counts and copy.attempts == 1
        if is_over or world.culprit.strikes("kills early", place, copy, is_certain=is_early):
            self._bury(place, copy, "dead-letter")
        elif world.habits.redelivery:
            copy.again = world.timeline.now + world.habits.redelivery
            world.timeline.at(copy.again, self.push)

    def _bury(self, place: Place, copy: Copy, store: str) -> None:
        place.remove(copy)
        is_certain = store == "dead-letter" and copy.message.is_certain and place.owner is None
        if self.world.culprit.strikes("loses a dead letter", place, copy, is_certain=is_certain):
            return
        if not place.is_gone:
            self.dead.append((place.name, copy, store))

    def expire(self, broker: Broker, place: Place) -> None:
        for copy in [copy for copy in place.copies if copy.holder is None]:
            if copy.expires is not None and copy.expires <= broker.clock:
                if self.world.culprit.strikes("delivers what has expired", place, copy):
                    continue
                is_certain = place.owner is None and self.world.habits.keeps_expired
                if self.world.culprit.strikes("drops what has expired", place, copy, is_certain=is_certain):
                    place.remove(copy)
                elif self.world.habits.keeps_expired:
                    self._bury(place, copy, "expired")
                else:
                    place.remove(copy)

    def push(self) -> None:
        """Deliver what waits to sessions with credit."""
        broker = self.live
        if broker is None or broker.is_frozen or broker.is_stalled:
            return
        for place in list(self.places.values()):
            if place.sessions:
                self.expire(broker, place)
            sessions = [one for one in place.sessions if len(one.held) < one.credit]
            while sessions:
                session = self.world.chance.choice(sessions)
                copy = place.choose(
                    session, self.world.timeline.now, broker.clock, seen=self.world.habits.page
                )
                if copy is None:
                    sessions.remove(session)
                    continue
                copy = self._choose_wrongly(broker, place, session, copy)
                self.deliver(broker, place, session, copy)
                if len(session.held) >= session.credit:
                    sessions.remove(session)

    def _choose_wrongly(self, broker: Broker, place: Place, session: Session, copy: Copy) -> Copy:
        """The copy that is delivered instead."""
        culprit = self.world.culprit
        if copy.message.group is not None and copy.count == 0 and copy.message.is_certain:
            other = place.next_of_group(copy, broker.clock)
            if other is not None and culprit.strikes("swaps two messages of a group", place, copy):
                return other
        for other in place.copies:
            is_excluded = not session.matches(other) and other.holder is None and other.message.group is None
            if culprit.strikes("delivers what a selector excludes", place, other, is_certain=is_excluded):
                return other
        return copy

    def deliver(self, broker: Broker, place: Place, session: Session, copy: Copy) -> None:
        world = self.world
        copy.holder, copy.count, copy.given = session, copy.count + 1, world.timeline.now
        if copy.message.group is not None:
            place.owners[copy.message.group] = session
            is_closed = copy.message.wishes.get("close") and copy.count == 1
            if is_closed or world.culprit.strikes(
                "gives a group to two sessions", place, copy, is_certain=len(place.sessions) > 1
            ):
                place.close(copy, copy.message.group)
        if world.habits.ack_wait:
            count = copy.count
            world.timeline.after(world.habits.ack_wait, lambda: self._take_back(session, copy, count))
        world.arrive(broker, session, copy)
        free = [one for one in place.sessions if one is not session and len(one.held) < one.credit]
        if free and world.culprit.strikes("gives one message to two sessions", place, copy):
            twin = Copy(copy.message, copy.at, count=copy.count, attempts=copy.attempts)
            place.put_back(twin)
            self.deliver(broker, place, free[0], twin)

    def _take_back(self, session: Session, copy: Copy, count: int) -> None:
        """The acknowledgement is late: the broker takes the message back."""
        if copy.holder is not session or copy.count != count or copy.transaction is not None:
            return
        broker = self.live
        if broker is None or broker.is_frozen or broker.is_stalled:
            self.world.timeline.after(100 * MS, lambda: self._take_back(session, copy, count))
            return
        self.world.time_out(session, copy)
        self.give_back(session, copy, is_refused=False)
        self.world.timeline.after(MS, self.push)
