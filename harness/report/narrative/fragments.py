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
        self._mentioned: set[str] = set()

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
            and self.is_in_scope(row)
        ]

    def is_in_scope(self, row: Row) -> bool:
        """Return whether a row is of the finding's subscription; true if the finding has none."""
        return self._place is None or row.get("subscription", self._place[1]) == self._place[1]

    def elsewhere(self, message: int | None) -> list[Row]:
        """Return the first deliveries of a topic's message to other subscriptions."""
        first: dict[str, Row] = {}
        for row in self.story.rows:
            if row["f"] == "deliver" and row.get("message") == message and not self.is_in_scope(row):
                first.setdefault(row["subscription"], row)
        return list(first.values())

    @property
    def subscription(self) -> Subscription | None:
        """The subscription that the finding is about, or None."""
        return None if self._place is None else self.story.subscriptions.get(f"subscription {self._place[1]}")

    def first_row(self, f: str, type_: str, message: int | None) -> Row | None:
        """Return the first of these rows, or None."""
        return next(iter(self.rows(f, type_, message)), None)

    @property
    def message(self) -> int | None:
        """The example's message, None if it has none.

        It has none if the anomaly belongs to a group, a broker or the whole history.
        """
        message: int | None = self.example.get("message")
        return message

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

    def shown_rows(self, f: str, **columns: str) -> list[Row]:
        """Return rows of the witness and of the steps, of any process."""
        rows = [*self.story.finding.witness.rows, *(row for step in self.story.steps for row in step.rows)]
        by_index = {row["index"]: row for row in rows if row["f"] == f}
        return [
            row
            for _, row in sorted(by_index.items())
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
        return ["The faults, and the recovery bound after each of them, explain this."] if excused else []

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
        faults = self.standing.in_force(at)
        return f", with {' and '.join(fault.words for fault in faults[:3])} still in force"

    def _new(self, words: str) -> bool:
        new = words not in self._mentioned
        self._mentioned.add(words)
        return new

    # ---------------------------------------------------------------------------------------- words

    def broker_as_seen(self, row: Row) -> str:
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
        details = f"message {row['message']}, {place}" if "message" in row else place
        return f"{short} ({details})" if details else short

    def sent(self, message: int | None, *, full: bool = True) -> str:
        """Return a sentence that says how a message was sent and what its producer was answered."""
        send = self.first_row("send", "invoke", message) or self.first_row("send", "ok", message)
        if message is None or send is None:
            return ""
        client_name = capital(self.names.client(send))
        message_words = self.named(send) if full else self.names.message(message)
        part = f" in transaction {send['transaction']}" if "transaction" in send else ""
        clause = f"{client_name} sent {message_words} at {self.at(send)}{part}"
        return f"{clause}; {self._sent_end(message)}{self.ended(send.get('transaction'))}."

    def _sent_end(self, message: int) -> str:
        """Return the outcome of each attempt to send a message.

        Only a client that sends a message twice has recorded several attempts.
        """
        ends = [row for row in self.rows("send", None, message) if row["type"] != "invoke"]
        is_repeated = len(self.rows("send", "invoke", message)) > 1
        outcomes = [self._one_end(row) for row in ends] or ["no answer to it was recorded"]
        return "; sent again, ".join(outcomes) if is_repeated else outcomes[0]

    def _one_end(self, end: Row) -> str:
        if end["type"] == "ok":
            return f"{self.broker_as_seen(end)} acknowledged it at {self.at(end)}{self.force(end['time'])}"
        outcome = (
            "the send failed for certain" if end["type"] == "fail" else "the outcome of the send was unknown"
        )
        return f"{outcome} at {self.at(end)}{because(end)}{self.force(end['time'])}"

    def ended(self, transaction: int | None) -> str:
        """Return how a transaction ended, as the end of a sentence; nothing for no transaction."""
        if transaction is None:
            return ""
        story_transaction = self.story.transactions.get(transaction)
        return (
            ""
            if story_transaction is None
            else f", and {self._end_of(story_transaction, f'of transaction {transaction}')}"
        )

    def transaction(self, number: int | None) -> list[str]:
        """Return sentences that say what a transaction did and how it ended; none for none."""
        transaction = None if number is None else self.story.transactions.get(number)
        if transaction is None:
            return []
        taken, sent = self._by_queue(transaction.taken, "from"), self._by_queue(transaction.sent, "to")
        moved = " and ".join(
            [*([f"acknowledged {taken}"] if taken else []), *([f"sent {sent}"] if sent else [])]
        )
        begun = transaction.begun
        answered = self.names.broker_asked(begun)
        place = f" with {self.broker_as_seen({**begun, 'broker': answered})}" if answered else ""
        client_name = capital(self.names.client(begun))
        opening = (
            f"{client_name} began {transaction.name} at {self.at(begun)}{place}{self.force(begun['time'])}."
        )
        return [opening, f"It {moved}." if moved else "", f"{capital(self._end_of(transaction))}."]

    def _by_queue(self, rows: Sequence[Row], way: str) -> str:
        """Return messages by queue: ``p1#2 and p1#3 from q0 and p2#1 from q1``.

        Of many messages only the first are named and the others counted.
        """
        named: dict[str, list[str]] = {}
        for row in rows[:_FEW]:
            place = place_named(str(row.get("queue", "?"))).removeprefix("queue ")
            message = row.get("message")
            number = f"message {message}" if message == self.message else ""
            sent = self.first_row("send", "invoke", message) or row
            details = ", ".join(filter(None, (number, worth(sent))))
            named.setdefault(place, []).append(
                self.names.message(message) + (f" ({details})" if details else "")
            )
        by_queue = [f"{listed(names)} {way} {place}" for place, names in named.items()]
        more = len(rows) - _FEW
        return listed([*by_queue, *([f"{more} more"] if more > 0 else [])])

    def _end_of(self, transaction: Transaction, owner: str = "") -> str:
        """Return a clause that says when a transaction's end was requested, and its outcome."""
        end, request = transaction.end, transaction.request
        if request is None:
            subject = transaction.name if owner else "it"
            if end is None:
                return f"{subject} was never ended"
            return f"{subject} was never ended: its connection was lost at {self.at(end)}{because(end)}"
        word = "commit" if request["f"] == "commit" else "roll-back"
        clause = f"the {word} {owner}" if owner else f"its {word}"
        clause += f" was requested at {self.at(request)}"
        if end is None:
            return f"{clause}, and no answer was recorded"
        if end["type"] == "info":
            return f"{clause}, and no answer had come by {self.at(end)}{because(end)}"
        if end["type"] == "fail":
            return f"{clause}, and failed for certain at {self.at(end)}{because(end)}"
        return (
            f"{clause}, and {self.broker_as_seen(end)} answered ok at {self.at(end)}{self.force(end['time'])}"
        )

    def delivered(self, row: Row, *, is_later: bool = False) -> str:
        """Return one delivery as a clause.

        The clause has the marks of a delivery that the broker does not call the first. A later
        delivery (``is_later``) always has its marks, because it matters whether it was marked.
        """
        session = self.names.client(row)
        is_later = is_later or bool(row.get("redelivered")) or row.get("delivery_count", 1) > 1
        marks = self._marks(row) if is_later else ""
        suffix = f" ({marks})" if marks else ""
        return (
            f"{self.broker_as_seen(row)} delivered {self.names.message(row.get('message'))} to {session} at "
            f"{self.at(row)}{suffix}"
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
        client_name = capital(self.names.client(end))
        return (
            f"{client_name} acknowledged it{part}, and {self.broker_as_seen(end)} confirmed that at "
            f"{self.at(end)}"
            f"{self.force(end['time'])}{self.ended(end.get('transaction'))}."
        )

    def life(self) -> str:
        """Return when the finding's subscription or temporary queue was made and ended.

        Empty if the finding is about neither.
        """
        if self.temporary is not None:
            return self.life_of(self.temporary)
        subject = self.subscription
        if subject is None:
            return ""
        events: list[str] = []
        for _, state, row in subject.changes:
            if state == "there" and row["type"] == "ok":
                events.append(f"made{' again' if events else ''} at {self.at(row)}")
            elif row["f"] == "drop" and row["type"] != "invoke":
                events.append(f"{'dropped' if row['type'] == 'ok' else 'perhaps dropped'} at {self.at(row)}")
        asks = f", which selects only {subject.wants}," if subject.wants else ""
        life = listed(events) or "never made for certain"
        return f"{capital(subject.name)} of topic {subject.topic.removeprefix(TOPIC)}{asks} was {life}."

    @property
    def temporary(self) -> str | None:
        """The temporary queue that the finding is about, or None."""
        queue = str(self.example.get("queue"))
        return queue if queue.startswith(TEMPORARY) else None

    def life_of(self, queue: str) -> str:
        """Return when a temporary queue was made, and how its connection ended.

        Empty for other queues.
        """
        queue_rows = [row for row in self.story.rows if row.get("queue") == queue]
        made = next((row for row in queue_rows if (row["f"], row["type"]) == ("subscribe", "ok")), None)
        if made is None:
            return ""
        owner = f" by {self.names.client(made)}" if "session" in made else ""
        clause = f"Temporary queue {queue} was made at {self.at(made)}{owner}"
        end = next((row for row in queue_rows if row["f"] == "drop" and row["type"] in ("ok", "info")), None)
        if end is None:
            return f"{clause}, and its connection stayed."
        how = "ended in order" if end["type"] == "ok" else "was lost"
        return f"{clause}, whose connection {how} at {self.at(end)}."

    def deletion(self, request: Row) -> str:
        """Return a sentence that says when a queue was deleted, and which broker confirmed it."""
        answers = (row for row in self.rows("delete", "ok") if row["process"] == request["process"])
        answer = next((row for row in answers if row["index"] > request["index"]), None)
        confirmed = (
            "" if answer is None else f"; {self.broker_as_seen(answer)} confirmed that at {self.at(answer)}"
        )
        return f"The deletion of queue {request['queue']} was requested at {self.at(request)}{confirmed}."

    def session_end(self, session: int | None, low: int, high: int) -> str:
        """Return a sentence that says how a session ended between two rows."""
        for row in self.story.rows:
            ended = row["f"] == "disconnect" or (row["f"], row["type"]) == ("unsubscribe", "ok")
            if ended and row.get("session") == session and low < row["index"] < high:
                verb = "ended" if row["f"] == "disconnect" else "unsubscribed"
                return f"{capital(self.names.client(row))} {verb} at {self.at(row)}{because(row)}."
        return ""
