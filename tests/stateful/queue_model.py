"""What queues with groups promise, said as plainly as can be.

A list of copies of messages, each in exactly one state.

The model does not know heaps, lanes, rotations or credit. It is told what is asked of the engine
and what the engine delivers, and holds every delivery against the rules. For crashes it keeps what
each journal entry means, so that what must be there afterwards is a loop over them.
"""

from dataclasses import dataclass, field, replace

PENDING, WAITING, HELD, TAKEN, REFUSING, DELAYED = [
    "pending",
    "waiting",
    "held",
    "taken",
    "refusing",
    "delayed",
]
"""On the way to the disk.

In its place; with a consumer; with a transaction; refused, and that on the way to the disk; till
its delay is over.
"""

STORED = (WAITING, HELD, TAKEN, REFUSING, DELAYED)
ROUNDING_S = 1e-7


@dataclass(eq=False)
class Copy:
    """One message in one queue.

    ``number`` grows with every copy, as record ids do; ``holder`` is a consumer or whose delivery
    was taken.
    """

    queue: str
    text: str
    group: str | None
    closes: bool
    size: int
    number: int
    state: str = PENDING
    holder: object = None
    until: float = 0.0
    deliveries: int = 0
    refusals: int = 0


@dataclass(frozen=True)
class Rules:
    """The address settings that hold for all queues."""

    max_delivery_attempts: int = -1
    dead_letter_address: str = "DLQ"
    redelivery_delay_ms: int = 0


@dataclass
class Entry:
    """What one journal entry does to stored copies."""

    sequence: int
    added: list = field(default_factory=list)
    removed: list = field(default_factory=list)
    counted: list = field(default_factory=list)


class QueueModel:
    """``now`` is the loop's clock. Every method is told after, or within, what it describes."""

    def __init__(self, rules, now):
        self.rules = rules
        self.now = now
        self.copies = []
        self.owners = {}
        self.entries = []
        self.confirmed = 0
        self.seen = set()
        self._numbers = 0

    # ---- what is asked of the engine

    def create(self, queue, text, group, closes, size):
        self._numbers += 1
        copy = Copy(queue, text, group, closes, size, self._numbers)
        self.copies.append(copy)
        return copy

    def durable(self, sequence, arrived=(), refused=()):
        """The engine says that an entry is on the disk, and what that makes of some copies."""
        assert sequence <= self._journalled(), "more is durable than was written"
        self.confirmed = max(self.confirmed, sequence)
        for copy in arrived:
            assert copy.state == PENDING
            copy.state = WAITING
        delay_s = self.rules.redelivery_delay_ms / 1000
        for copy in refused:
            assert copy.state == REFUSING
            copy.holder = None
            copy.state, copy.until = (DELAYED, self.now() + delay_s) if delay_s else (WAITING, 0.0)

    def settled(self, copies, sequence):
        for copy in copies:
            self.copies.remove(copy)
        self.entries.append(Entry(sequence, removed=[copy.number for copy in copies]))

    def taken(self, copies):
        for copy in copies:
            assert copy.state == HELD
            copy.state = TAKEN

    def refuse(self, copies):
        """Refused for good or for another try.

        (dead letters that arise, what will come back, entry without its sequence).
        """
        rules, entry, dead, again = self.rules, Entry(0), [], []
        for copy in copies:
            copy.refusals += 1
            if 0 <= rules.max_delivery_attempts <= copy.refusals and copy.queue != rules.dead_letter_address:
                self.copies.remove(copy)
                entry.removed.append(copy.number)
                if rules.dead_letter_address:
                    extra = len(f"_AMQ_ORIG_QUEUE:{copy.queue}\n")
                    letter = self.create(
                        rules.dead_letter_address, copy.text, copy.group, copy.closes, copy.size + extra
                    )
                    letter.deliveries = copy.deliveries
                    self.seen.add(letter.number)
                    dead.append(letter)
            else:
                copy.state = REFUSING
                entry.counted.append((copy.number, copy.deliveries, copy.refusals))
                again.append(copy)
        entry.added += [replace(letter) for letter in dead]
        return dead, again, entry

    def give_back(self, copies):
        for copy in copies:
            copy.state, copy.holder = WAITING, None

    def purged(self, queue, sequence):
        gone = [copy for copy in self.copies if copy.queue == queue and self._ready(copy)]
        self.settled(gone, sequence)
        return len(gone)

    def left(self, consumer):
        self.give_back([c for c in self.copies if c.state == HELD and c.holder is consumer])
        self.owners = {lane: owner for lane, owner in self.owners.items() if owner is not consumer}

    # ---- what the engine does

    def delivered(self, consumer, queue, text, deliveries):
        """A consumer gets a message: is that right?"""
        found = [copy for copy in self.copies if copy.queue == queue and copy.text == text]
        assert len(found) == 1, f"{text} is delivered from {queue}, which has it {len(found)} times"
        copy = found[0]
        assert self._ready(copy), f"{text} is delivered while it is {copy.state}"
        group = copy.group
        older = [
            other
            for other in self.copies
            if other.queue == queue and other.group == group and other.number < copy.number
        ]
        in_the_way = [
            other.text
            for other in older
            if self._ready(other) or other.state == PENDING or (group is not None and self._delayed(other))
        ]
        assert not in_the_way, f"{text} is delivered before {in_the_way} of {group}"
        if group is not None:
            holders = self.holders(queue, group) - {consumer}
            assert not holders, f"{text} is delivered to {consumer} while {holders} hold {group}"
            owner = self.owners.get((queue, group), consumer)
            assert owner is consumer, f"{text} is delivered to {consumer}; {owner} owns {group}"
            if copy.closes:
                self.owners.pop((queue, group), None)
            else:
                self.owners[queue, group] = consumer
        known = copy.deliveries + 1
        assert deliveries == known, f"{text} is delivered for the {deliveries}th time; it is the {known}th"
        refusing = any(other.state == REFUSING and other.holder is consumer for other in self.copies)
        older_for_it = [
            other.text
            for other in self.copies
            if not refusing  # its credit is back with the message only
            and other.queue == queue
            and other.number < copy.number
            and self.may_have(consumer, other)
        ]
        assert not older_for_it, f"{text} is delivered though {older_for_it} waited longer"
        copy.deliveries = known
        self.seen.add(copy.number)
        copy.state, copy.holder = HELD, consumer
        return copy

    def holders(self, queue, group):
        return {
            copy.holder
            for copy in self.copies
            if copy.queue == queue and copy.group == group and copy.state in (HELD, TAKEN, REFUSING)
        }

    def may_have(self, consumer, copy):
        """Could that consumer get it now, if it has credit?"""
        if not self._ready(copy):
            return False
        group = copy.group
        if group is None:
            return True
        lane = [other for other in self.copies if other.queue == copy.queue and other.group == group]
        if any(self._delayed(other) for other in lane):
            return False
        owner = self.owners.get((copy.queue, group))
        return owner is consumer if owner is not None else not self.holders(copy.queue, group)

    # ---- what must be seen

    def stored(self, queue):
        return [copy for copy in self.copies if copy.queue == queue and copy.state in STORED]

    def size(self, queue=None):
        return sum(copy.size for copy in self.copies if queue in (None, copy.queue))

    def recovered(self, last_sequence, found, *, clean):
        """The broker was started on what is durable up to ``last_sequence``, and has found
        (queue, message) in this order.
        """
        assert last_sequence >= self.confirmed, (
            f"entry {self.confirmed} was durable; {last_sequence} is the last"
        )
        before = {copy.number: (copy.deliveries, copy.refusals) for copy in self.copies}
        copies = {}
        self.entries = [entry for entry in self.entries if entry.sequence <= last_sequence]
        for entry in self.entries:
            copies.update((copy.number, replace(copy)) for copy in entry.added)
            for number in entry.removed:
                del copies[number]
            for number, deliveries, refusals in entry.counted:
                copies[number].deliveries, copies[number].refusals = deliveries, refusals
        self.copies = list(copies.values())
        self.owners = {}
        expected = sorted(copies.values(), key=lambda copy: (copy.queue, copy.number))
        assert [(queue, message.body.decode()) for queue, message in found] == [
            (copy.queue, copy.text) for copy in expected
        ], "what is on the disk is there, in order, and nothing else"
        for copy, (_, message) in zip(expected, found, strict=True):
            copy.state = WAITING
            if clean:
                assert (message.deliveries, message.refusals) == before[copy.number]
            assert message.refusals == copy.refusals or clean
            assert message.deliveries or copy.number not in self.seen, f"{copy.text} lost its flag"
            copy.deliveries, copy.refusals = message.deliveries, message.refusals
        if clean:
            counted = [(copy.number, copy.deliveries, copy.refusals) for copy in expected]
            self.entries.append(Entry(last_sequence, counted=counted))

    def _ready(self, copy):
        """In its place, or just back in it: its delay is over at this very moment."""
        return copy.state == WAITING or (copy.state == DELAYED and copy.until <= self.now() + ROUNDING_S)

    def _delayed(self, copy):
        """On its way back: its group waits."""
        return copy.state == REFUSING or (copy.state == DELAYED and not self._ready(copy))

    def _journalled(self):
        return max((entry.sequence for entry in self.entries), default=0)
