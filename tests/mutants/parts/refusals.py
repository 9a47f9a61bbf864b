"""Bugs of what is refused, dies, expires or waits for its time."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import REFUSALS

_PART: Final = "refusals"
_ENGINE: Final = "broker/core/engine.py"
_PROPERTIES: Final = "broker/core/properties.py"
_UNPACKED: Final = "    return Properties(*_PACKED.unpack_from(data, position))\n"

SCANNED: Final = Arena(
    REFUSALS.kinds,
    {**REFUSALS.fields, "properties": {"*": {"broker.message-expiry-scan-period": 200}}},
)
"""The same with a scan for what has expired five times a second."""

IN_MEMORY: Final = Arena(
    (*REFUSALS.kinds, "stop"),
    {
        **REFUSALS.fields,
        "consumers": 1,
        "properties": {
            "*": {
                "address-settings.#.max-size-bytes": 33_554_432,
                "address-settings.#.page-size-bytes": 1_048_576,
            }
        },
    },
)
"""The same without pages, on which messages wait by age, and with so few consumers that many do.

Clean stops, too: what a broker finds that had no time to end it gives out as delivered before, and
of that nobody can say who had it.
"""

STOPS: Final = Arena(("stop", "disk-slow"), REFUSALS.fields)
"""Clean stops alone: after a crash no broker knows how often it had delivered what."""

MUTANTS: Final = (
    Mutant(
        "expired-dropped-despite-an-address",
        _PART,
        "own",
        "what has expired is dropped, though there is an expiry address",
        frozenset({"lost"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "        for message in messages if address else ():\n",
                "        for message in ():\n",
            ),
        ),
    ),
    Mutant(
        "refusals-not-journalled",
        _PART,
        "own",
        "how often a message was refused is known in memory alone",
        frozenset({"duplicate"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "                operations += self.paging.counts((message,))\n                again.append",
                "                again.append",
            ),
        ),
    ),
    Mutant(
        "counts-forgotten-at-a-clean-stop",
        _PART,
        "own",
        "a clean stop does not record how often messages were delivered",
        frozenset({"unflagged-redelivery", "count-fell"}),
        STOPS,
        (
            Replacement(
                "broker/core/paging.py",
                "        stored = [item for queue in queues for item in queue.all()]\n",
                "        stored = []\n",
            ),
        ),
    ),
    Mutant(
        "count-never-grows",
        _PART,
        "own",
        "each delivery of a message is counted as its first or its second",
        frozenset({"count-stuck"}),
        REFUSALS,
        (
            Replacement(
                "broker/core/queue.py",
                "        message.deliveries += not consumer.internal\n",
                "        message.deliveries = min(message.deliveries + 1, 2)\n",
            ),
        ),
    ),
    Mutant(
        "delay-forgotten-after-a-restart",
        _PART,
        "own",
        "a start does not read until when a message is delayed",
        frozenset({"early-delivery"}),
        REFUSALS,
        (
            Replacement(
                _PROPERTIES,
                _UNPACKED,
                "    priority, expires, _ = _PACKED.unpack_from(data, position)\n"
                "    return Properties(priority, expires)\n",
            ),
        ),
    ),
    Mutant(
        "expiry-forgotten-after-a-restart",
        _PART,
        "own",
        "a start does not read when a message expires",
        frozenset({"expired-delivery"}),
        REFUSALS,
        (
            Replacement(
                _PROPERTIES,
                _UNPACKED,
                "    priority, _, due = _PACKED.unpack_from(data, position)\n"
                "    return Properties(priority, 0, due)\n",
            ),
        ),
    ),
    Mutant(
        "priority-forgotten-after-a-restart",
        _PART,
        "own",
        "a start does not read which priority a message asks for",
        frozenset({"priority-inversion"}),
        IN_MEMORY,
        (
            Replacement(
                _PROPERTIES,
                _UNPACKED,
                "    _, expires, due = _PACKED.unpack_from(data, position)\n"
                "    return Properties(DEFAULT_PRIORITY, expires, due)\n",
            ),
        ),
    ),
    Mutant(
        "expired-until-the-scan-delivered",
        _PART,
        "own",
        "what has expired is found by the scan alone, and delivered until then",
        frozenset({"expired-delivery"}),
        REFUSALS,
        (
            Replacement(
                "broker/core/queue.py",
                "        if message.properties is not None and self._has_expired(message):\n",
                "        if message.properties is None and self._has_expired(message):\n",
            ),
        ),
    ),
    Mutant(
        "priority-ignored",
        _PART,
        "own",
        "a queue gives out its messages as they came, whatever priority they ask for",
        frozenset({"priority-inversion"}),
        IN_MEMORY,
        (
            Replacement(
                "broker/core/queue.py",
                "            if group is None and properties is not None:\n"
                "                message.place += (DEFAULT_PRIORITY - properties.priority) * RANK\n",
                "",
            ),
        ),
    ),
    Mutant(
        "lost-connections-count-as-refusals",
        _PART,
        "AMQ-9829",
        "a message is given up after so many deliveries, refused or not",
        frozenset({"died-early"}),
        REFUSALS,
        (
            Replacement(
                "broker/core/deadletters.py",
                "    refused_too_often = 0 <= settings.max_delivery_attempts <= message.refusals\n",
                "    refused_too_often = 0 <= settings.max_delivery_attempts <= message.deliveries\n",
            ),
        ),
    ),
    Mutant(
        "dead-letter-leaves-its-original",
        _PART,
        "own",
        "a message that dies is added to the dead letters, and not deleted from the journal of its queue",
        frozenset({"resurrected", "duplicate", "double-delivery"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "                operations += self.paging.removals((message,))\n"
                "                if address:\n",
                "                if not address or message.page is not None:\n"
                "                    operations += self.paging.removals((message,))\n"
                "                if address:\n",
            ),
        ),
    ),
    Mutant(
        "dead-letter-stored-for-its-old-queue",
        _PART,
        "own",
        "a dead letter is stored as one of the queue that gave it up",
        frozenset({"resurrected", "duplicate", "double-delivery", "lost"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "                    operations += added\n",
                "                    operations.append(Operation(ADD, MESSAGE, dead.id, encode(dead, "
                "queue.id)))\n",
            ),
        ),
    ),
    Mutant(
        "expires-while-it-is-held",
        _PART,
        "own",
        "the scan moves what has expired to the expiry address though a consumer holds it",
        frozenset({"resurrected", "duplicate", "double-delivery"}),
        SCANNED,
        (
            Replacement(
                "broker/core/groups.py",
                "        return taken\n",
                "        return list(messages)\n",
            ),
            Replacement(
                "broker/core/queue.py",
                "            del self.messages[delivery.message.id]\n        elif self.backlog",
                "            self.messages.pop(delivery.message.id, None)\n        elif self.backlog",
            ),
            Replacement(
                _ENGINE,
                "        sequence = self._append(self.paging.removals([one.message for one in deliveries]), "
                "done)\n",
                "        ended = [one.message for one in deliveries if _is_there(one)]\n"
                "        if ended:\n"
                "            sequence = self._append(self.paging.removals(ended), done)\n"
                "        else:\n"
                "            sequence = self.journal.last_sequence\n"
                "            if done is not None:\n"
                "                self.gate.when_durable(sequence, done)\n",
            ),
            Replacement(
                _ENGINE,
                "        again: list[Delivery] = []\n        for delivery in deliveries:\n",
                "        again: list[Delivery] = []\n"
                "        for delivery in deliveries:\n"
                "            if not _is_there(delivery):\n"
                "                self._settle(delivery)\n"
                "                delivery.consumer.queue.offer(delivery.consumer)\n"
                "                continue\n",
            ),
            Replacement(
                _ENGINE,
                "        queue = delivery.consumer.queue\n        queue.settled(delivery)\n",
                "        queue, there = delivery.consumer.queue, _is_there(delivery)\n"
                "        queue.settled(delivery)\n"
                "        if not there:\n"
                "            return\n",
            ),
            Replacement(
                _ENGINE,
                "        operations = self.paging.removals(messages)\n"
                "        arrivals: list[tuple[Queue, Message]] = []\n",
                "        messages = [message for message in messages if message.id in queue.messages]\n"
                "        if not messages:\n"
                "            return\n"
                "        operations = self.paging.removals(messages)\n"
                "        arrivals: list[tuple[Queue, Message]] = []\n",
            ),
            Replacement(
                _ENGINE,
                "\n\nclass Engine",
                "\n\ndef _is_there(delivery: Delivery) -> bool:\n"
                "    return delivery.message.id in delivery.consumer.queue.messages\n"
                "\n\nclass Engine",
            ),
        ),
    ),
)
