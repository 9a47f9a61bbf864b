"""The names of messages and clients in a story: ``p5#9``, ``producer 5``, ``session 6``.

Why: a message's id has nineteen digits, and no reader sees from two of them which was sent first.
Producer and number say it: ``p5#9`` is producer 5's number 9 in its group. The group is added only
if that is not unique.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Literal

from checkers.schema import json_object
from harness.report.narrative.excerpt import QUEUE_CHANGES, Row

Kind = Literal["producer", "client", "broker", "subscription", "session", "transaction"]
"""The kinds of lanes in their order: the way of a message from left to right."""

ADMINISTRATOR: Final = "administrator"
"""The lane of everybody who makes and deletes queues."""
_KINDS: Final[tuple[Kind, ...]] = ("producer", "session", "subscription", "transaction")


class Names:
    """The names of everything in some rows."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)
        self._of_message: dict[int, tuple[str, str | None]] = {}
        self._transactions: dict[int, str] = {}
        self._brokers: dict[int, str] = {}  # by the index of the question
        self._homes: dict[int, str] = {}
        unanswered: dict[tuple[object, ...], int] = {}
        senders: dict[int, str] = {}
        for row in self._rows:
            if "message" in row and ("producer" in row or row["message"] not in self._of_message):
                self._of_message[row["message"]] = (_short(row), row.get("group"))
            if "transaction" in row and "session" in row:
                self._transactions.setdefault(row["transaction"], f"session {row['session']}")
            elif "transaction" in row and "producer" in row:
                senders.setdefault(row["transaction"], f"producer {row['producer']}")
            if "session" in row and "broker" in row:
                self._homes.setdefault(row["session"], row["broker"])
            question = tuple(row.get(name) for name in ("process", "f", "message", "transaction", "session"))
            if row["type"] == "invoke":
                unanswered[question] = row["index"]
            elif "broker" in row and question in unanswered:
                self._brokers[unanswered.pop(question)] = row["broker"]
        self._transactions = senders | self._transactions
        messages_by_name: dict[str, set[int]] = defaultdict(set)
        for message, (short, _) in self._of_message.items():
            messages_by_name[short].add(message)
        self._doubtful = {short for short, messages in messages_by_name.items() if len(messages) > 1}

    def message(self, message: int | None) -> str:
        """Return the name of a message."""
        if message is None:
            return "a body that cannot be read"
        short, group = self._of_message.get(message, (f"m{message}", None))
        return f"{group}/{short}" if short in self._doubtful and group is not None else short

    def client(self, row: Row) -> str:
        """Return the lane of the client that asked for an operation or was given a message.

        A client that acknowledges and sends in one transaction is named after the session that
        consumes.
        """
        if row["f"] in QUEUE_CHANGES:
            return ADMINISTRATOR
        if "session" in row:
            return f"session {row['session']}"
        if row.get("transaction") in self._transactions:
            return self._transactions[row["transaction"]]
        if row["f"] == "send" and "producer" in row:
            return f"producer {row['producer']}"
        return f"client {row['process']}"

    def broker_asked(self, row: Row) -> str | None:
        """Return the broker that a question went to, if its answer or its session says so."""
        return self._brokers.get(row["index"]) or self._homes.get(row.get("session", -1))

    @staticmethod
    def kind(lane: str) -> Kind:
        """Return the kind of client that a lane belongs to."""
        return next((kind for kind in _KINDS if lane.startswith(f"{kind} ")), "client")

    @staticmethod
    def order(lane: str) -> int:
        """Return the number by which lanes of one kind are sorted."""
        number = lane.rpartition(" ")[2]
        return int(number) if number.isdigit() else 0


def _short(row: Row) -> str:
    if "producer" in row and "sequence" in row:
        return f"p{row['producer']}#{row['sequence']}"
    name = row.get("value")
    return f"m{row['message']}" if name is None or json_object(name) is not None else str(name)
