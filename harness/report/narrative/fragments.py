"""The parts of sentences that all stories share.

They say how a message was sent, delivered and acknowledged, and by a broker in which role.

Why apart from the kinds of findings: all of them speak of the same few facts, and each fact must be
worded in the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from checkers.schema import TEMPORARY, TOPIC
from checkers.subscriptions import split
from harness.report.narrative.cluster_state import listed
from harness.report.narrative.excerpt import Row, example_of
from harness.report.narrative.sentences import because, capital, place_named, worth
from harness.report.narrative.story import Story
from harness.report.narrative.subscriptions import Subscription
from harness.report.narrative.transactions import Transaction

_FEW: Final = 4
"""The maximum number of a transaction's messages that are named; the others are counted."""


class Clauses:
    """Parts of sentences about one story.

    The role of a broker or the span of a fault is not said twice. ``changes`` is how many changes
    of roles and faults one sentence names; the others are counted.
    """

    def __init__(self, story: Story, changes: int) -> None:
        self._changes = changes
        self.story = story
        self.names = story.names
        self.standing = story.standing
        self.witness = {row["index"] for row in story.finding.witness.rows}
        self.example = example_of(story.finding)
        self._place = split(self.example.get("queue"))
        self._said: set[str] = set()

    # -------------------------------------------------------------------------------------- finding

    def rows(self, f: str, type_: str | None = None, message: int | None = None) -> list[Row]:
        """Return the story's rows with this operation, type and message, None meaning any.

        The outcome of a topic's message is only that of the finding's subscription, since each
        subscription has its own copy of the message.
        """
        return [
            row
            for row in self.story.rows
            if row["f"] == f
            and (type_ is None or row["type"] == type_)
            and (message is None or row.get("message") == message)
            and self.here(row)
        ]

    def here(self, row: Row) -> bool:
        """Return whether a row is of the finding's subscription; true if the finding has none."""
        return self._place is None or row.get("subscription", self._place[1]) == self._place[1]

    def elsewhere(self, message: int | None) -> list[Row]:
        """Return the first deliveries of a topic's message to other subscriptions."""
        first: dict[str, Row] = {}
        for row in self.story.rows:
            if row["f"] == "deliver" and row.get("message") == message and not self.here(row):
                first.setdefault(row["subscription"], row)
        return list(first.values())

    @property
    def subscription(self) -> Subscription | None:
        """The subscription that the finding is about, or None."""
        return None if self._place is None else self.story.subscriptions.get(f"subscription {self._place[1]}")

    def one(self, f: str, type_: str, message: int | None) -> Row | None:
        """Return the first of these rows, or None."""
        return next(iter(self.rows(f, type_, message)), None)

    @property
    def message(self) -> int | None:
        """The example's message, None if it has none.

        It has none if the anomaly belongs to a group, a broker or the whole history.
        """
        found: int | None = self.example.get("message")
        return found

    def completing(self) -> Row | None:
        """Return the row that completes the anomaly."""
        index = self.example.get("index", -1)
        rows = (*self.story.finding.witness.rows, *self.story.rows)
        return next((row for row in rows if row["index"] == index), None)

    def latest(self, rows: Iterable[Row], before: int) -> Row | None:
        """Return the last row with a smaller index, preferably one of the witness."""
        earlier = [row for row in rows if row["index"] < before]
        proven = [row for row in earlier if row["index"] in self.witness] or earlier
        return proven[-1] if proven else None

    def shown(self, f: str, **columns: str) -> list[Row]:
        """Return rows of the witness and of the steps, of any process."""
        rows = [*self.story.finding.witness.rows, *(row for step in self.story.steps for row in step.rows)]
        found = {row["index"]: row for row in rows if row["f"] == f}
        return [
            row
            for _, row in sorted(found.items())
            if all(row.get(name) == value for name, value in columns.items())
        ]

    # ---------------------------------------------------------------------------------------- times

    def at(self, row: Row) -> str:
        """Return the time of a row in words."""
        return self.standing.seconds(row["time"])

    def span(self, begin: int, end: int) -> str:
        """Return a span in words: ``1.250 s, from 2.000 s to 3.250 s``."""
        first, last = self.standing.seconds(begin), self.standing.seconds(end)
        return f"{(end - begin) / 1e9:.3f} s, from {first} to {last}"

    def excuse(self) -> list[str]:
        """Return a sentence that the faults explain the finding, if they do."""
        excused = self.story.finding.details.get("excused")
        return ["The faults, with the recovery bound after each, explain it."] if excused else []

    def between(self, low: int, high: int, opening: str) -> str:
        """Return a sentence about the roles and faults that changed between two moments.

        It is empty if none changed.
        """
        return self.standing.meanwhile(self.story.brokers, low, high, f"{opening}:", self._changes)

    def meanwhile(self, low: Row | None, high: Row | None, opening: str = "In between") -> str:
        """Return a sentence about the roles and faults that changed between two rows."""
        if low is None or high is None:
            return ""
        return self.between(low["time"], high["time"], opening)

    def led_to(self, until: int, opening: str) -> str:
        """Return a sentence about the changes from the begin of the story until a moment."""
        begin = self.story.steps[0].at - 1 if self.story.steps else until
        return self.between(max(begin, self.standing.began), until, opening)

    def force(self, at: int) -> str:
        """Return the faults in force, as the end of a sentence.

        Their whole span is given at the first mention only.
        """
        words = self.standing.force(at)
        if not words or self._new(words):
            return words
        some = self.standing.in_force(at)
        return f", with {' and '.join(one.words for one in some[:3])} still in force"

    def _new(self, words: str) -> bool:
        new = words not in self._said
        self._said.add(words)
        return new

    # ---------------------------------------------------------------------------------------- words

    def seen(self, row: Row) -> str:
        """Return the broker of a row with the role that it had.

        A role that was said already is not repeated.
        """
        words = self.standing.as_seen(row.get("broker"), row["time"])
        return words if self._new(words) else str(row.get("broker", words))

    def named(self, row: Row) -> str:
        """Return a message as it is named at its first mention."""
        short = self.names.message(row.get("message"))
        place = place_named(row["queue"]) if "queue" in row else ""
        if "group" in row:
            place += f", group {row['group']}"
        told = f"message {row['message']}, {place}" if "message" in row else place
        return f"{short} ({told})" if told else short

    def sent(self, message: int | None, *, full: bool = True) -> str:
        """Return a sentence that says how a message was sent and what its producer was answered."""
        asked = self.one("send", "invoke", message) or self.one("send", "ok", message)
        if message is None or asked is None:
            return ""
        who = capital(self.names.client(asked))
        what = self.named(asked) if full else self.names.message(message)
        part = f" in transaction {asked['transaction']}" if "transaction" in asked else ""
        said = f"{who} sent {what} at {self.at(asked)}{part}"
        return f"{said}; {self._sent_end(message)}{self.ended(asked.get('transaction'))}."

    def _sent_end(self, message: int) -> str:
        """Return the outcome of each attempt to send a message.

        Only a client that sends a message twice has recorded several attempts.
        """
        ends = [row for row in self.rows("send", None, message) if row["type"] != "invoke"]
        again = len(self.rows("send", "invoke", message)) > 1
        told = [self._one_end(row) for row in ends] or ["no answer to it was recorded"]
        return "; sent again, ".join(told) if again else told[0]

    def _one_end(self, end: Row) -> str:
        if end["type"] == "ok":
            return f"{self.seen(end)} acknowledged it at {self.at(end)}{self.force(end['time'])}"
        said = (
            "the send failed for certain" if end["type"] == "fail" else "what became of the send was unknown"
        )
        return f"{said} at {self.at(end)}{because(end)}{self.force(end['time'])}"

    def ended(self, transaction: int | None) -> str:
        """Return how a transaction ended, as the end of a sentence; nothing for no transaction."""
        if transaction is None:
            return ""
        known = self.story.transactions.get(transaction)
        return "" if known is None else f", and {self._end_of(known, f'of transaction {transaction}')}"

    def transaction(self, number: int | None) -> list[str]:
        """Return sentences that say what a transaction did and how it ended; none for none."""
        known = None if number is None else self.story.transactions.get(number)
        if known is None:
            return []
        taken, sent = self._by_queue(known.taken, "from"), self._by_queue(known.sent, "to")
        moved = " and ".join([*([f"took {taken}"] if taken else []), *([f"sent {sent}"] if sent else [])])
        begun = known.begun
        answered = self.names.asked(begun)
        place = f" with {self.seen({**begun, 'broker': answered})}" if answered else ""
        who = capital(self.names.client(begun))
        told = f"{who} began {known.name} at {self.at(begun)}{place}{self.force(begun['time'])}."
        return [told, f"It {moved}." if moved else "", f"{capital(self._end_of(known))}."]

    def _by_queue(self, rows: Sequence[Row], way: str) -> str:
        """Return messages by queue: ``p1#2 and p1#3 from q0 and p2#1 from q1``.

        Of many messages only the first are named and the others counted.
        """
        named: dict[str, list[str]] = {}
        for row in rows[:_FEW]:
            place = place_named(str(row.get("queue", "?"))).removeprefix("queue ")
            message = row.get("message")
            own = f"message {message}" if message == self.message else ""
            sent = self.one("send", "invoke", message) or row
            told = ", ".join(filter(None, (own, worth(sent))))
            named.setdefault(place, []).append(self.names.message(message) + (f" ({told})" if told else ""))
        by_queue = [f"{listed(some)} {way} {place}" for place, some in named.items()]
        more = len(rows) - _FEW
        return listed([*by_queue, *([f"{more} more"] if more > 0 else [])])

    def _end_of(self, known: Transaction, whose: str = "") -> str:
        """Return a clause that says when a transaction's end was requested, and its outcome."""
        end, asked = known.end, known.asked
        if asked is None:
            it = known.name if whose else "it"
            if end is None:
                return f"nobody ended {it}"
            return f"nobody ended {it}: its connection was gone at {self.at(end)}{because(end)}"
        word = "commit" if asked["f"] == "commit" else "roll-back"
        what = f"the {word} {whose}" if whose else f"its {word}"
        what += f" was asked for at {self.at(asked)}"
        if end is None:
            return f"{what}, and no answer was recorded"
        if end["type"] == "info":
            return f"{what}, and no answer had come by {self.at(end)}{because(end)}"
        if end["type"] == "fail":
            return f"{what}, and failed for certain at {self.at(end)}{because(end)}"
        return f"{what}, and {self.seen(end)} answered ok at {self.at(end)}{self.force(end['time'])}"

    def delivered(self, row: Row, *, again: bool = False) -> str:
        """Return one delivery as a clause.

        The clause has the marks of a delivery that the broker does not call the first. A later
        delivery (``again``) always has its marks, because it matters whether it was marked.
        """
        session = self.names.client(row)
        again = again or bool(row.get("redelivered")) or row.get("delivery_count", 1) > 1
        marks = self._marks(row) if again else ""
        told = f" ({marks})" if marks else ""
        return (
            f"{self.seen(row)} delivered {self.names.message(row.get('message'))} to {session} at "
            f"{self.at(row)}{told}"
        )

    @staticmethod
    def _marks(row: Row) -> str:
        marks = []
        if row.get("redelivered") is not None:
            marks.append("marked redelivered" if row["redelivered"] else "not marked redelivered")
        if row.get("delivery_count", 1) > 1:
            marks.append(f"delivery count {row['delivery_count']}")
        return ", ".join(marks)

    def confirmed(self, delivery: Row, before: int) -> Row | None:
        """Return the ``ok`` of the acknowledgement of a delivery, if it came before an index."""
        for row in self.rows("ack", "ok", delivery.get("message")):
            if delivery["index"] < row["index"] < before and row.get("session") == delivery.get("session"):
                return row
        return None

    def acknowledged(self, end: Row | None) -> str:
        """Return a sentence about a confirmed acknowledgement."""
        if end is None:
            return ""
        part = f" in transaction {end['transaction']}" if "transaction" in end else ""
        who = capital(self.names.client(end))
        return (
            f"{who} acknowledged it{part}, and {self.seen(end)} confirmed that at {self.at(end)}"
            f"{self.force(end['time'])}{self.ended(end.get('transaction'))}."
        )

    def life(self) -> str:
        """Return when the finding's subscription or temporary queue was made and ended.

        Empty if the finding is about neither.
        """
        if self.temporary is not None:
            return self.life_of(self.temporary)
        known = self.subscription
        if known is None:
            return ""
        said: list[str] = []
        for _, state, row in known.changes:
            if state == "there" and row["type"] == "ok":
                said.append(f"made{' again' if said else ''} at {self.at(row)}")
            elif row["f"] == "drop" and row["type"] != "invoke":
                said.append(f"{'dropped' if row['type'] == 'ok' else 'perhaps dropped'} at {self.at(row)}")
        asks = f", which wants only {known.wants}," if known.wants else ""
        told = listed(said) or "never made for certain"
        return f"{capital(known.name)} of topic {known.topic.removeprefix(TOPIC)}{asks} was {told}."

    @property
    def temporary(self) -> str | None:
        """The temporary queue that the finding is about, or None."""
        queue = str(self.example.get("queue"))
        return queue if queue.startswith(TEMPORARY) else None

    def life_of(self, queue: str) -> str:
        """Return when a temporary queue was made, and how its connection ended.

        Empty for other queues.
        """
        mine = [row for row in self.story.rows if row.get("queue") == queue]
        made = next((row for row in mine if (row["f"], row["type"]) == ("subscribe", "ok")), None)
        if made is None:
            return ""
        owner = f" by {self.names.client(made)}" if "session" in made else ""
        told = f"Temporary queue {queue} was made at {self.at(made)}{owner}"
        end = next((row for row in mine if row["f"] == "drop" and row["type"] in ("ok", "info")), None)
        if end is None:
            return f"{told}, whose connection stayed."
        how = "ended in order" if end["type"] == "ok" else "was lost"
        return f"{told}, whose connection {how} at {self.at(end)}."

    def session_end(self, session: int | None, low: int, high: int) -> str:
        """Return a sentence that says how a session ended between two rows."""
        for row in self.story.rows:
            ended = row["f"] == "disconnect" or (row["f"], row["type"]) == ("unsubscribe", "ok")
            if ended and row.get("session") == session and low < row["index"] < high:
                verb = "ended" if row["f"] == "disconnect" else "left"
                return f"{capital(self.names.client(row))} {verb} at {self.at(row)}{because(row)}."
        return ""
