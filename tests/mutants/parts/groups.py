"""Bugs of queues and message groups: order, and who may have what."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import CLUSTER, ONE_PAIR

_QUEUE: Final = "broker/core/queue.py"

NARROW: Final = Arena(
    ONE_PAIR.kinds, {"pairs": 1, "producers": 3, "consumers": 3, "prefetch": 4, "hold_s": 0.1, "rate": 90.0}
)

"""Consumers that hold few messages, so that their credit runs out."""

CLOSING: Final = Arena(ONE_PAIR.kinds, {**ONE_PAIR.fields, "close_groups": True})
NARROW_CLOSING: Final = Arena(NARROW.kinds, {**NARROW.fields, "close_groups": True})
"""The same with messages that close their group."""

MUTANTS: Final = (
    Mutant(
        "closed-group-keeps-its-owner",
        "groups",
        "own",
        "a group that was closed stays with its consumer, which does not know that it owns it: when that "
        "leaves, nobody gets the group's messages any more",
        frozenset({"stuck", "starved"}),
        CLOSING,
        (
            Replacement(
                _QUEUE,
                "                    del lane.owner.owned[lane]\n                    lane.owner = None\n"
                "            else:\n",
                "                    del lane.owner.owned[lane]\n            else:\n",
            ),
        ),
    ),
    Mutant(
        "closed-group-splits",
        "groups",
        "own",
        "a group that was closed is no group any more as long as messages of it wait: what follows goes to "
        "whoever is free",
        frozenset({"group-split", "reordered", "reordered-realtime", "double-delivery"}),
        NARROW_CLOSING,
        (
            Replacement(
                "broker/core/groups.py",
                '    __slots__ = ("aside", "delayed",',
                '    __slots__ = ("aside", "closed", "delayed",',
            ),
            Replacement(
                "broker/core/groups.py",
                "        self.group = group\n",
                "        self.group = group\n        self.closed = False\n",
            ),
            Replacement(
                _QUEUE,
                "            if message.closes:\n",
                "            lane.closed = lane.closed or message.closes\n            if lane.closed:\n",
            ),
            Replacement(
                _QUEUE, "        elif not lane.held:\n", "        elif lane.closed or not lane.held:\n"
            ),
            Replacement(
                _QUEUE,
                "            if lane.owner is None and not lane.held and not lane.delayed and "
                "lane.head() == head:\n",
                "            free = lane.closed or not lane.held\n"
                "            if lane.owner is None and free and not lane.delayed and lane.head() == head:\n",
            ),
        ),
    ),
    Mutant(
        "group-moves-on-without-credit",
        "groups",
        "ARTEMIS-2863",
        "a group whose owner may take no more goes to another consumer while the owner still holds "
        "messages of it",
        frozenset({"group-split", "reordered", "reordered-realtime", "double-delivery"}),
        NARROW,
        (
            Replacement(
                _QUEUE,
                "            consumer.unacknowledged[tag] = delivery\n",
                "            consumer.unacknowledged[tag] = delivery\n"
                "            if lane.group is not None and not consumer.is_available():\n"
                "                lane.owner = None\n"
                "                consumer.owned.pop(lane, None)\n"
                "                self._list(lane)\n",
            ),
            Replacement(_QUEUE, "        elif not lane.held:\n", "        else:\n"),
            Replacement(
                _QUEUE,
                "            if lane.owner is None and not lane.held and not lane.delayed and "
                "lane.head() == head:\n",
                "            if lane.owner is None and not lane.delayed and lane.head() == head:\n",
            ),
        ),
    ),
    Mutant(
        "group-stays-with-the-departed",
        "groups",
        "rabbitmq-server 17317, 14141",
        "a consumer that leaves goes on owning its groups: nobody gets their messages any more",
        frozenset({"stuck", "starved"}),
        ONE_PAIR,
        (
            Replacement(
                _QUEUE,
                "        for lane in owned:\n            lane.owner = None\n        self.returned(held)\n",
                "        self.returned(held)\n",
            ),
        ),
    ),
    Mutant(
        "requeue-at-the-tail",
        "groups",
        "ARTEMIS-4410, -4517, -2458",
        "what a consumer gives back goes behind what is waiting, not to its place before it",
        frozenset({"reordered", "reordered-realtime", "reordered-session"}),
        NARROW,
        (
            Replacement(
                _QUEUE,
                "            else:\n                self._put_back(message, lane)\n            if lane.group "
                "is not None:\n                lane.held -= 1\n",
                "            else:\n                lane.fresh.append(message)\n            if "
                "lane.group is not None:\n                lane.held -= 1\n",
            ),
        ),
    ),
    Mutant(
        "group-routed-without-a-decision",
        "groups",
        "Artemis: a grouping time-out that routes anyway",
        "a message with a group is sent to any broker that has consumers, though nobody has decided "
        "which one owns the group",
        frozenset({"reordered", "reordered-realtime", "reordered-session", "group-split"}),
        Arena(CLUSTER, {"pairs": 2, "producers": 4, "consumers": 4}),
        (
            Replacement(
                "broker/core/engine.py",
                "        if self.router is not None and message.group is None:\n",
                "        if self.router is not None:\n",
            ),
        ),
    ),
    Mutant(
        "lost-connection-keeps-its-messages",
        "groups",
        "rabbitmq-server 15473",
        "messages held by a client whose connection is lost go back only if it had said goodbye",
        frozenset({"stuck", "starved"}),
        ONE_PAIR,
        (
            Replacement(
                "broker/stomp/session.py",
                "            self._leave_in_turns(self._leave())\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "redelivery-not-flagged-after-a-takeover",
        "fail-over",
        "openmq 221, 218",
        "a broker that takes over believes that nothing it finds in the journal was ever delivered",
        frozenset({"unflagged-redelivery"}),
        ONE_PAIR,
        (
            Replacement(
                "broker/core/recovery.py",
                "        image.least_deliveries = 1\n",
                "        image.least_deliveries = 0\n",
            ),
        ),
    ),
)
