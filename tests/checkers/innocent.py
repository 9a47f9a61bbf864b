"""Histories of a broker that does nothing wrong, seen by clients who see little of it.

Why beside ``damaged.correct``: there what a client reads is what the broker does at that moment.
Here requests and pushes lie on a connection for a while, in order; a connection is given up by
either side long before the other notices, so that a request of unknown outcome takes effect later,
a push is read after its message was given to somebody else, or never; a session that its broker
has forgotten reads on. All that the definitions excuse happens, and nothing else. So whatever is
found in such a history is a false accusation.

The broker has queues, topics with durable, shared and temporary subscriptions that are dropped and
made anew under the same name, selectors, groups, transactions over all of them, refusals; and
temporary queues that end with their connections, of which some live until the drain is over. What
is sent to one that is gone is refused or goes nowhere; so does what another broker took (a
fail-over of which the owner has heard nothing).
"""

from __future__ import annotations

import bisect
import contextlib
import json
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from checker_rows import MS, Row, o

QUEUES = ("q", "r")
TOPIC = "/topic/t"
TEMPORARY = "/temp-queue/r"
NAMES = ("alice", "bob", "carol")
PULLED = "r"
GROUPS = ("g", "h", None)
ATTEMPTS = 3
COLOURS = ("red", "blue")
BROKER = "a1"

Told = dict[str, Any]
"""Columns of a row."""


@dataclass(eq=False)
class Message:
    """What was sent."""

    id: int
    columns: Told
    asked: Told
    arrived: int = 0
    taken_by: str = "a1"

    @property
    def colour(self) -> str | None:
        """What selectors look at."""
        told: str | None = self.asked.get("properties", {}).get("colour")
        return told

    @property
    def urgency(self) -> int:
        """Of a group all come in their turn."""
        priority: int = self.asked.get("priority", 4)
        return priority if self.columns["group"] is None else 4

    def told(self, begun: int, done: int | None) -> Told:
        """The ``value`` of a row of its send: moments as far as they are known."""
        asked = dict(self.asked)
        for name in {"expires", "delay"} & {*asked}:
            asked[name] = [begun + asked[name], None if done is None else done + asked[name]]
        return {"value": json.dumps(asked)} if asked else {}


@dataclass(eq=False)
class Copy:
    """A message in one place; ``at`` is where in line, ``count`` how often it was pushed.

    ``refused``: how often; ``due`` and ``expires`` are moments.
    """

    message: Message
    at: int
    count: int = 0
    refused: int = 0
    due: int = 0
    expires: int = 2**62

    @property
    def group(self) -> str | None:
        return self.message.columns["group"]


@dataclass(eq=False)
class Place:
    """A queue, or a subscription with its selector."""

    name: tuple[str, str | None]
    wanted: str | None = None
    waiting: list[Copy] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    owners: dict[str, Session] = field(default_factory=dict)
    gone: bool = False

    def put_back(self, copies: list[Copy]) -> None:
        if not self.gone:
            for one in copies:
                bisect.insort(self.waiting, one, key=lambda copy: copy.at)


@dataclass(eq=False)
class Session:
    """A consumer as the broker knows it; ``held`` by message, ``taken`` in its transaction."""

    number: int
    place: Place
    link: Link
    wanted: str | None
    credit: int
    held: dict[int, Copy] = field(default_factory=dict)
    taken: list[Copy] = field(default_factory=list)


@dataclass(eq=False)
class Link:
    """A connection: requests on their way up, answers and pushes on their way down.

    ``left``: its client has given it up; ``closed``: the broker has. ``bound`` is what a
    transaction sends, ``temporary``: the subscription ends with it.
    """

    up: deque[Callable[[], str]] = field(default_factory=deque)
    down: deque[Callable[[], None]] = field(default_factory=deque)
    left: bool = False
    closed: bool = False
    session: Session | None = None
    bound: list[tuple[Message, list[Place] | None]] = field(default_factory=list)
    temporary: bool = False
    handed: Copy | None = None
    pulling: Place | None = None


Script = Generator[Callable[[], str] | None, str, None]
"""A client: it yields requests and is sent what became of each; None: a moment passes."""


class World:
    """Everything at once, one step after the other by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.rows: list[Row] = []
        self.places: dict[tuple[str, str | None], Place] = {
            (name, None): Place((name, None)) for name in QUEUES
        }
        self.links: list[Link] = []
        self.clients: dict[Link, tuple[Script, bool]] = {}
        self.ids = self.positions = self.sessions = self.transactions = self.processes = 0
        self.sequences: dict[tuple[Any, ...], int] = {}
        self.settled: set[int] = set()
        self.kinds = {
            "topics": chance.random() < 0.6, "queues": chance.random() < 0.8,
            "selectors": chance.random() < 0.3, "groups": chance.random() < 0.8,
            "transactions": chance.random() < 0.6, "faults": chance.random() < 0.7,
            "pulls": chance.random() < 0.3, "times": chance.random() < 0.3,
            "priorities": chance.random() < 0.2,
        }  # fmt: skip
        self.asked: list[tuple[Row, Row]] = []
        self.receiving: dict[int, str] = {}
        self.now = 0
        self.dead: list[tuple[Place, Copy, str]] = []
        if not self.kinds["topics"] or self.kinds["pulls"]:
            self.kinds["queues"] = True
        self.routes_at_commit = chance.random() < 0.5
        self.brief = random.Random(f"{seed} temporary queues")
        self.kinds["temporaries"] = seed // 8 % 2 == 1 and self.brief.random() < 0.8
        self.temporaries: list[str] = []
        self.staying: set[Link] = set()
        self.finishing = False
        self.rich = random.Random(f"{seed} amounts")
        self.kinds["bank"] = self.kinds["transactions"] and seed // 16 % 2 == 1
        self.deleting = random.Random(f"{seed} deleted queues")
        self.kinds["deletes"] = (
            self.kinds["queues"] and not self.kinds["bank"] and self.deleting.random() < 0.3
        )
        self.kinds["late"] = self.rich.random() < 0.3

    # ------------------------------------------------------------------------------------ recording

    def add(self, process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> None:
        self.now += self.chance.choice([MS, MS, 50 * MS, 900 * MS])
        self.rows.append(o(len(self.rows), process, type_, f, message, **{"time": self.now, **columns}))

    # --------------------------------------------------------------------------------------- broker

    def route(self, message: Message) -> list[Place]:
        name = message.columns["queue"]
        if name.startswith(TEMPORARY):
            return [self.places[name, None]] if (name, None) in self.places else []
        if name != TOPIC:
            return [self.places[name, None]]
        return [
            place
            for (topic, subscription), place in self.places.items()
            if topic == TOPIC and subscription is not None and place.wanted in (None, message.colour)
        ]

    def enqueue(self, message: Message, places: list[Place]) -> None:
        for place in places:
            if not place.gone:
                self.positions += 1
                copy = Copy(message, self.positions)
                copy.due = message.arrived + message.asked.get("delay", 0)
                copy.expires = message.arrived + message.asked.get("expires", 2**60)
                place.waiting.append(copy)

    def push(self) -> None:
        """To some session with credit, the first of what it may get."""
        sessions = [s for place in self.places.values() for s in place.sessions if len(s.held) < s.credit]
        if not sessions:
            return
        session = self.chance.choice(sessions)
        place = session.place
        self.expire(place)
        wanted = [
            copy
            for copy in place.waiting
            if session.wanted in (None, copy.message.colour) and copy.due <= self.now
            if copy.group is None or place.owners.get(copy.group, session) is session
        ]
        if not wanted:
            return
        copy = min(wanted, key=lambda one: (-one.message.urgency, one.at))
        place.waiting.remove(copy)
        if copy.group is not None:
            place.owners[copy.group] = session
        copy.count += 1
        session.held[copy.message.id] = copy
        told = {
            **columns_of(session), "digest": copy.message.id * 7, "redelivered": copy.count > 1,
            "delivery_count": copy.count, "broker": BROKER, **of_message(copy.message),
        }  # fmt: skip

        def read() -> None:
            self.add(100 + session.number, "ok", "deliver", copy.message.id, **told)
            self.unanswered[session].append(copy.message)

        session.link.down.append(read)

    def expire(self, place: Place) -> None:
        """Some of what has expired is found, and kept or not."""
        for copy in [copy for copy in place.waiting if copy.expires <= self.now]:
            place.waiting.remove(copy)
            if self.chance.random() < 0.5:
                self.dead.append((place, copy, "expired"))

    def close(self, link: Link) -> None:
        """The broker is rid of a connection: what was given out over it goes back."""
        link.closed = True
        link.up.clear()
        link.bound.clear()
        if link.handed is not None and link.pulling is not None and self.chance.random() < 0.5:
            link.pulling.put_back([link.handed])
            link.down.clear()  # or else it had been heard of, and so acknowledged
        if link.session is not None:
            self.part(link.session)
            if link.temporary:
                self.drop(link.session.place.name)

    def part(self, session: Session) -> None:
        place = session.place
        if session not in place.sessions:
            return
        place.sessions.remove(session)
        place.owners = {group: owner for group, owner in place.owners.items() if owner is not session}
        place.put_back([*session.held.values(), *session.taken])
        session.held.clear()
        session.taken.clear()

    def drop(self, name: tuple[str, str | None]) -> str:
        place = self.places.get(name)
        if place is None:
            return "ok"
        if place.sessions:
            return "fail"
        place.gone = True
        del self.places[name]
        return "ok"

    def subscribe(self, session: Session, name: tuple[str, str | None]) -> str:
        place = self.places.get(name)
        if place is not None and name[1] is not None and place.wanted != session.wanted:
            if place.sessions:
                return "fail"
            self.drop(name)
            place = None
        if place is None:
            place = self.places[name] = Place(name, session.wanted)
        session.place = place
        session.link.session = session
        place.sessions.append(session)
        return "ok"

    def settle(self, session: Session, message: Message, kind: str) -> str:
        copy = session.held.pop(message.id, None)
        if copy is None:
            return "fail"
        if kind == "taken":
            session.taken.append(copy)
        elif kind == "refused":
            self.refuse(session.place, [copy])
        return "ok"

    def refuse(self, place: Place, copies: list[Copy]) -> None:
        """Back into line, or among the dead letters."""
        for copy in copies:
            copy.refused += 1
            if copy.refused < ATTEMPTS:
                place.put_back([copy])
            elif not place.gone:
                self.dead.append((place, copy, "dead-letter"))

    def send(self, link: Link, message: Message, inside: bool) -> str:
        if self.kinds["faults"] and self.chance.random() < 0.04:
            return "fail"
        if message.columns["queue"].startswith(TEMPORARY):
            if not self.route(message) and self.brief.random() < 0.5:
                return "fail"
            if not inside and self.kinds["faults"] and self.brief.random() < 0.1:
                message.taken_by = "a2"
                return "ok"
        message.arrived = self.now
        if not inside:
            self.enqueue(message, self.route(message))
        else:
            link.bound.append((message, None if self.routes_at_commit else self.route(message)))
        return "ok"

    def commit(self, link: Link) -> str:
        if self.kinds["faults"] and self.chance.random() < 0.04:
            self.roll_back(link, counts=False)
            return "fail"
        for message, places in link.bound:
            self.enqueue(message, self.route(message) if places is None else places)
        link.bound.clear()
        if link.session is not None:
            link.session.taken.clear()
        return "ok"

    def roll_back(self, link: Link, *, counts: bool = True) -> str:
        link.bound.clear()
        if link.session is not None:
            taken = list(link.session.taken)
            link.session.taken.clear()
            if counts:
                self.refuse(link.session.place, taken)
            else:
                link.session.place.put_back(taken)
        return "ok"

    # -------------------------------------------------------------------------------------- clients

    def message(self, producer: int) -> Message:
        chance = self.chance
        kinds = [*(QUEUES if self.kinds["queues"] else ()), *((TOPIC, TOPIC) if self.kinds["topics"] else ())]
        queue = chance.choice(kinds)
        if self.temporaries and self.brief.random() < 0.5:
            queue = self.brief.choice(self.temporaries[-4:])
        pulled = self.kinds["pulls"] and queue == PULLED
        group = chance.choice(GROUPS) if self.kinds["groups"] and not pulled else None
        number = self.sequences[producer, queue, group] = self.sequences.get((producer, queue, group), -1) + 1
        self.ids += 1
        asked: Told = {}
        if self.kinds["selectors"] and chance.random() < 0.7:
            asked["properties"] = {"colour": chance.choice(COLOURS)}
        if self.kinds["priorities"] and chance.random() < 0.5:
            asked["priority"] = chance.choice([0, 4, 9])
        if self.kinds["bank"] and self.rich.random() < 0.8:
            asked |= {"amount": self.rich.randint(1, 9), "account": f"a{self.rich.randrange(3)}"}
        for name in ("expires", "delay"):
            if self.kinds["times"] and chance.random() < 0.3:
                asked[name] = chance.choice([1, 100, 2_000, 20_000]) * MS
        columns = {"queue": queue, "group": group, "producer": producer, "sequence": number}
        return Message(self.ids, columns, asked)

    def sending(self, process: int, link: Link, producer: int, **inside: Any) -> Script:
        message = self.message(producer)
        told = {**message.columns, **inside}
        self.add(process, "invoke", "send", message.id, digest=message.id * 7, **told)
        begun = self.now
        self.rows[-1] |= message.told(begun, None)
        outcome = yield lambda: self.send(link, message, bool(inside))
        broker = message.taken_by if outcome == "ok" else None
        self.add(process, outcome, "send", message.id, broker=broker, **told)
        if outcome == "ok":
            self.rows[-1] |= message.told(begun, self.now)
        if outcome == "info":
            raise GeneratorExit

    def ending(self, process: int, link: Link, **inside: Any) -> Script:
        f = self.chance.choice(["commit", "commit", "abort"])
        self.add(process, "invoke", f, **inside)
        outcome = yield lambda: self.commit(link) if f == "commit" else self.roll_back(link)
        self.add(process, outcome, f, broker=BROKER, **inside)
        if outcome == "info":
            raise GeneratorExit

    def inside(self) -> dict[str, int]:
        self.transactions += 1
        return {"transaction": self.transactions}

    def producer(self, process: int, link: Link, producer: int) -> Script:
        for _ in range(self.chance.randint(1, 5)):
            yield None
            if self.kinds["transactions"] and self.chance.random() < 0.4:
                inside = self.inside()
                for _ in range(self.chance.randint(1, 3)):
                    yield from self.sending(process, link, producer, **inside)
                yield from self.ending(process, link, **inside)
            else:
                yield from self.sending(process, link, producer)

    def consumer(self, session: Session, name: tuple[str, str | None], *, draining: bool = False) -> Script:
        chance, link, process = self.chance, session.link, 100 + session.number
        mine = {"queue": name[0], "subscription": name[1], "session": session.number}
        wanted = None if session.wanted is None else json.dumps({"selector": {"colour": [session.wanted]}})
        self.add(process, "invoke", "subscribe", **mine, value=wanted)
        outcome = yield lambda: self.subscribe(session, name)
        self.add(process, outcome, "subscribe", **mine, broker=BROKER)
        if outcome != "ok":
            return
        unanswered = self.unanswered[session]
        staying = link in self.staying
        left = -1 if draining or staying else chance.randint(1, 12)
        bank = self.kinds["bank"] and not staying
        while left and (
            unanswered
            or not (draining or (staying and self.finishing))
            or session.held
            or session.place.waiting
        ):
            left -= 1
            yield None
            if not unanswered:
                continue
            if not draining and self.kinds["transactions"] and chance.random() < (1 if bank else 0.4):
                inside = self.inside()
                for _ in range(chance.randint(1, min(2, len(unanswered)))):
                    yield from self.answering(session, mine, unanswered.pop(0), "ack", **inside)
                for _ in range(0 if staying else chance.randint(0, 2)):
                    yield from self.sending(process, link, 50 + session.number, **inside)
                if chance.random() < 0.9:
                    yield from self.ending(process, link, **inside)
                else:
                    return
            else:
                f = "nack" if not draining and chance.random() < 0.15 else "ack"
                at = 0 if chance.random() < 0.8 else chance.randrange(len(unanswered))
                yield from self.answering(session, mine, unanswered.pop(at), f)
        if not draining and not staying and chance.random() < 0.4:
            return
        yield from self.leaving(session, name, mine)

    def leaving(self, session: Session, name: tuple[str, str | None], mine: Told) -> Script:
        link, process = session.link, 100 + session.number
        self.add(process, "invoke", "unsubscribe", **mine)
        temporary = link.temporary
        if temporary:
            self.add(process, "invoke", "drop", queue=name[0], subscription=name[1])

        def leave() -> str:
            self.part(session)
            return self.drop(name) if temporary else "ok"

        outcome = yield leave
        self.add(process, "info" if outcome == "info" else "ok", "unsubscribe", **mine, broker=BROKER)
        if temporary:
            self.add(process, outcome, "drop", queue=name[0], subscription=name[1])
        if outcome != "info":
            self.settled.add(session.number)

    def answering(self, session: Session, mine: Told, message: Message, f: str, **inside: Any) -> Script:
        told = {**of_message(message), **mine, **inside}
        self.add(100 + session.number, "invoke", f, message.id, **told)
        kind = "refused" if f == "nack" else "taken" if inside else "done"
        outcome = yield lambda: self.settle(session, message, kind)
        self.add(100 + session.number, outcome, f, message.id, broker=BROKER, **told)
        if outcome == "info":
            raise GeneratorExit

    def puller(self, process: int, link: Link, queue: str, *, draining: bool = False) -> Script:
        """Asks for one message after the other, each acknowledged by being handed out."""
        left = -1 if draining else self.chance.randint(1, 6)
        while left and (not draining or self.places[queue, None].waiting):
            left -= 1
            yield None
            self.add(process, "invoke", "receive", queue=queue)
            asked = self.rows[-1]
            self.receiving[process] = queue
            outcome = yield lambda: self.hand_out(link, queue)
            del self.receiving[process]
            if outcome == "info":
                self.add(process, "info", "receive", queue=queue)
                return
            copy, link.handed = link.handed, None
            if copy is not None:
                message, told = copy.message, {**of_message(copy.message), "session": 100 + process}
                self.add(process, "ok", "deliver", message.id, digest=message.id * 7, broker=BROKER, **told)
                self.asked.append((self.rows[-1], asked))
                self.add(process, "invoke", "ack", message.id, **told)
                self.add(process, "ok", "ack", message.id, broker=BROKER, **told)

    def hand_out(self, link: Link, queue: str) -> str:
        """The first that waits; where nobody heard of it, it may come back when that is noticed."""
        place = self.places[queue, None]
        self.expire(place)
        ready = [copy for copy in place.waiting if copy.due <= self.now]
        link.handed = min(ready, key=lambda one: (-one.message.urgency, one.at), default=None)
        if link.handed is not None:
            place.waiting.remove(link.handed)
            link.handed.count += 1
            link.pulling = place
        return "ok"

    def dropper(self, process: int, name: tuple[str, str | None]) -> Script:
        told = {"queue": name[0], "subscription": name[1]}
        self.add(process, "invoke", "drop", **told)
        outcome = yield lambda: self.drop(name)
        self.add(process, outcome, "drop", **told)

    def administrator(self, process: int, queue: str) -> Script:
        """Make a queue last, or delete it; a queue in use is not deleted."""
        f = self.deleting.choice(["create", "delete", "delete"])
        self.add(process, "invoke", f, queue=queue)
        outcome = yield lambda: self.delete((queue, None)) if f == "delete" else "ok"
        self.add(process, outcome, f, queue=queue, broker=BROKER)

    def delete(self, name: tuple[str, str | None]) -> str:
        place = self.places[name]
        if place.sessions or any(link.bound for link in self.links):
            return "fail"
        place.gone = True
        self.places[name] = Place(name)
        return "ok"

    # ----------------------------------------------------------------------------------------- life

    def connect(self) -> Link:
        link = Link()
        self.links.append(link)
        return link

    def begin(self, *, name: tuple[str, str | None] | None = None) -> None:
        """Some client comes."""
        chance, link = self.chance, self.connect()
        draining = name is not None
        kind = 1.0 if draining else chance.random()
        if kind < 0.4:
            self.processes += 1
            free = [one for one in (1, 2, 3) if one not in self.producing.values()]
            self.producing[link] = producer = chance.choice(free or [self.processes + 100])
            script = self.producer(self.processes, link, producer)
        elif self.kinds["pulls"] and (kind < 0.6 or (draining and name == (PULLED, None))):
            self.processes += 1
            script = self.puller(self.processes, link, PULLED, draining=draining)
        elif not draining and self.kinds["deletes"] and self.deleting.random() < 0.2:
            self.processes += 1
            queue = self.deleting.choice([one for one in QUEUES if one != PULLED])
            script = self.administrator(self.processes, queue)
        elif kind < 0.5 and self.kinds["topics"]:
            self.processes += 1
            script = self.dropper(self.processes, (TOPIC, chance.choice(NAMES)))
        else:
            self.sessions += 1
            of_topic = self.kinds["topics"] and chance.random() < (0.6 if self.kinds["queues"] else 1)
            queues = [queue for queue in QUEUES if not self.kinds["pulls"] or queue != PULLED]
            if name is None:
                name = (TOPIC, chance.choice(NAMES)) if of_topic else (chance.choice(queues), None)
                link.temporary = name[1] is not None and chance.random() < 0.2
                if link.temporary:
                    name = (TOPIC, f"temporary-{self.sessions if chance.random() < 0.5 else 0}")
                if self.kinds["temporaries"] and self.brief.random() < 0.5:
                    link.temporary, name = True, (f"{TEMPORARY}{self.sessions}", None)
                    self.temporaries.append(name[0])
                    if self.brief.random() < 0.4:
                        self.staying.add(link)
            wanted = chance.choice([*COLOURS, None]) if self.kinds["selectors"] and not draining else None
            if name[0].startswith(TEMPORARY):
                wanted = None
            if draining and name in self.places:
                wanted = self.places[name].wanted
            session = Session(self.sessions, Place(name), link, wanted, chance.randint(1, 4))
            self.unanswered[session] = []
            self.owner[link] = session
            script = self.consumer(session, name, draining=draining)
        self.clients[link] = (script, True)
        self.advance(link, None)

    def advance(self, link: Link, outcome: str | None) -> None:
        """A client's script goes on until it asks for something."""
        script, _ = self.clients[link]
        try:
            request = next(script) if outcome is None else script.send(outcome)
        except (StopIteration, GeneratorExit):
            self.leave(link)
            return
        if request is None:
            self.clients[link] = (script, True)
            return
        self.clients[link] = (script, False)

        def answer() -> str:
            done = request()
            link.down.append(lambda: self.advance(link, done))
            return done

        if not link.closed:
            link.up.append(answer)

    def leave(self, link: Link) -> None:
        """A client is done with its connection, or has lost it."""
        if link.left:
            return
        link.left = True
        self.clients.pop(link, None)
        self.producing.pop(link, None)
        link.down.clear()
        session = self.owner.get(link)
        if session is not None and session.number not in self.settled:
            self.add(100 + session.number, "info", "disconnect", queue=session.place.name[0],
                     subscription=session.place.name[1], session=session.number, broker=BROKER)  # fmt: skip
            if link.temporary and self.told_of(session):
                told = {"queue": session.place.name[0], "subscription": session.place.name[1]}
                self.add(100 + session.number, "invoke", "drop", **told)
                self.add(100 + session.number, "info", "drop", **told)

    def told_of(self, session: Session) -> bool:
        """Whether no row has said that its subscription is dropped."""
        return not any(r["f"] == "drop" and r["process"] == 100 + session.number for r in self.rows)

    def lose(self, link: Link) -> None:
        """A client finds its connection lost."""
        if link not in self.clients:
            return
        script, idle = self.clients.pop(link)
        if not idle:
            with contextlib.suppress(StopIteration, GeneratorExit):
                script.send("info")
        self.leave(link)

    def step(self, *, calm: bool = False) -> None:
        chance = self.chance
        self.now += chance.choice([0, 0, MS, 20 * MS])
        self.links = [link for link in self.links if not (link.closed and link.left)]
        open_ = [link for link in self.links if not link.closed]
        if open_:
            link = chance.choice(open_)
            what = chance.random()
            if link.up and what < 0.6:
                link.up.popleft()()
            elif link.left:
                if what > 0.85 or not link.up:
                    self.close(link)
            elif self.kinds["faults"] and not calm and what > 0.975:
                self.close(link)
        for _ in range(2):
            self.push()
        present = [link for link in self.links if not link.left]
        if present:
            link = chance.choice(present)
            if link.down and chance.random() < 0.8:
                link.down.popleft()()
            elif link.closed and not link.down:
                self.lose(link)
            elif link in self.clients and self.clients[link][1]:
                self.advance(link, None)
            elif self.kinds["faults"] and not calm and chance.random() < 0.05:
                self.lose(link)

    unanswered: dict[Session, list[Message]]
    owner: dict[Link, Session]
    producing: dict[Link, int]

    def run(self) -> list[Row]:
        self.unanswered, self.owner, self.producing = {}, {}, {}
        chance = self.chance
        self.add(-2, "info", "role", broker=BROKER, node_id="n", role="live", time_low=0, time_high=0)
        for _ in range(chance.randint(20, 120)):
            if len(self.clients) < 4 and chance.random() < 0.5:
                self.begin()
            self.step()
        complete = chance.random() < 0.8
        if complete:
            self.drain()
        for process, queue in self.receiving.items():
            self.add(process, "info", "receive", queue=queue)
        self.stamp()
        return self.rows

    def drain(self) -> None:
        for _ in range(10_000):
            left = [link for link in self.links if not link.closed and link not in self.staying]
            if not left and (self.kinds["late"] or self.staying.issuperset(self.clients)):
                break  # clients may still read what their broker had sent them
            self.step(calm=True)
        self.end("heal", "recovered", "drain")
        for name in list(self.places):
            if not name[0].startswith(TEMPORARY) and self.places[name].waiting:
                self.begin(name=name)
                while not self.staying.issuperset(self.clients):
                    self.step(calm=True)
        self.finishing = True
        while self.clients:
            self.step(calm=True)
        waiting = [(place, copy, "main") for place in self.places.values() for copy in place.waiting]
        for place, copy, store in [*waiting, *self.dead]:
            told = {**of_message(copy.message), "queue": place.name[0], "subscription": place.name[1]}
            self.add(-3, "ok", "browse", copy.message.id, digest=copy.message.id * 7, broker=BROKER,
                         value=store, **told)  # fmt: skip
        self.end("browse")
        for broker in (BROKER, "a2"):
            self.add(-3, "ok", "browse", broker=broker)
        self.end("end")

    def end(self, *phases: str) -> None:
        for one in phases:
            self.add(-3, "info", "phase", value=one)

    def stamp(self) -> None:
        connected = self.chance.random() < 0.7
        for row in self.rows:
            if connected and row["process"] >= 0:
                row["connection"] = row["process"]
        for delivery, asked in self.asked:
            delivery["time_low"] = asked["time"]
        self.rows = [r for r in self.rows if (r["f"], r["type"]) != ("receive", "invoke")]
        for n, row in enumerate(self.rows):
            row["index"] = n


def of_message(message: Message) -> Told:
    return {name: message.columns[name] for name in ("queue", "group", "producer", "sequence")}


def columns_of(session: Session) -> Told:
    return {"session": session.number, "subscription": session.place.name[1]}


def innocent(seed: int) -> list[Row]:
    """One history, times irregular, its rows without what is null."""
    rows = World(seed).run()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
