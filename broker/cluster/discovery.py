"""Discovery: the brokers that are heard in a group, which are dialled (AMQ 17.2.2).

Discovery supplies addresses, and nothing else depends on it: a broker is live or gone by what links
say (``directory``). A network may lose datagrams for long while links work, so an entry that is
removed ends no link. It only ends the attempts to reach a broker to which there is no link. Where
the broker is still there, others tell of it, or it is heard again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.cluster import messages as m
from broker.cluster.broadcast import Broadcast, GroupTask
from broker.cluster.neighbours import Neighbours

_log = logging.getLogger(__name__)

ENTRIES_MAX: Final = 256
"""The most entries, and the most removed ones that are remembered: anybody may send broadcasts."""


@dataclass(slots=True)
class Entry:
    """The last broadcast from an address, and when it was heard (loop time)."""

    broadcast: Broadcast
    heard_s: float


class Discovery:
    """The entries of the brokers that are heard in a group, from ``start`` to ``stop``.

    Why an entry for each address and not for each node ID: a broker that starts again somewhere
    else, or is taken over from, must not be dialled at its former address for ever. A broker that
    starts again where it was has a higher start number. Two addresses at which one node ID goes on
    to be heard are two brokers.

    ``own`` returns how this broker introduces itself at this moment. ``listen`` makes the task that
    calls its argument with each broadcast in the group.
    """

    def __init__(
        self,
        timeout_s: float,
        neighbours: Neighbours,
        own: Callable[[], m.Member],
        listen: Callable[[Callable[[Broadcast], None]], GroupTask],
    ) -> None:
        self._timeout_s = timeout_s
        self._neighbours = neighbours
        self._own = own
        self._listener = listen(self.hear)
        self._entries: dict[str, Entry] = {}
        """By connector."""
        self._removed: dict[str, None] = {}
        """The connectors whose entries were removed, in the order of their removal."""
        self._warned: dict[str, None] = {}
        self._review: asyncio.TimerHandle | None = None
        self._started_s = 0.0

    def start(self) -> None:
        """Begin to listen."""
        self._started_s = asyncio.get_running_loop().time()
        self._listener.start()

    async def stop(self) -> None:
        """End listening, and remove nothing more."""
        await self._listener.stop()
        if self._review is not None:
            self._review.cancel()

    @property
    def node_ids(self) -> dict[str, str]:
        """The node ID that was heard at each connector."""
        return {connector: entry.broadcast.node_id for connector, entry in self._entries.items()}

    @property
    def has_heard_all(self) -> bool:
        """True if ``heard_all`` would return at once."""
        return asyncio.get_running_loop().time() >= self._started_s + self._timeout_s

    async def heard_all(self) -> None:
        """Return when every live that can be heard has been heard: after one refresh-timeout."""
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self._started_s + self._timeout_s - now_s))

    def hear(self, broadcast: Broadcast) -> None:
        """Take in a broadcast, and dial its sender; ignore our own, and copies of earlier ones."""
        member, connector = self._own(), broadcast.connector
        if connector == member.connector:
            if broadcast.start > member.incarnation:
                self._warn(
                    connector,
                    f"another broker broadcasts {connector}, which is cluster.connector of this one; give "
                    "each broker its own",
                )
            return
        entry = self._entries.get(connector)
        if entry is None:
            self._add(broadcast)
            return
        last = entry.broadcast
        if (last.start, last.number) < (broadcast.start, broadcast.number):
            self._look_for_duplicates(entry)
            entry.broadcast = broadcast
            entry.heard_s = asyncio.get_running_loop().time()
            self._neighbours.dial(connector, answers=last.start != broadcast.start)

    def link_closed(self, connector: str) -> None:
        """Stop dialling a broker to which a link has closed, if its entry was removed before."""
        if connector in self._removed:
            self._neighbours.give_up(connector)

    def _add(self, broadcast: Broadcast) -> None:
        connector = broadcast.connector
        if len(self._entries) >= ENTRIES_MAX:
            self._warn("", f"more than {ENTRIES_MAX} brokers are heard; others are ignored meanwhile")
            return
        suffix = " again" if connector in self._removed else ""
        self._removed.pop(connector, None)
        _log.info("discovery: %s is heard%s, with node ID %s", connector, suffix, broadcast.node_id)
        self._entries[connector] = Entry(broadcast, asyncio.get_running_loop().time())
        if self._review is None:
            self._plan_review()
        self._neighbours.dial(connector, answers=True)

    def _plan_review(self) -> None:
        """Look at the entries again when the oldest of them may have to be removed."""
        self._review = None
        if self._entries:
            due_s = min(entry.heard_s for entry in self._entries.values()) + self._timeout_s
            self._review = asyncio.get_running_loop().call_at(due_s, self._remove_old, due_s)

    def _remove_old(self, due_s: float) -> None:
        """Remove the entries that were not heard for a refresh-timeout.

        A loop may call this some nanoseconds before the time ``due_s`` for which it was planned.
        """
        for connector, entry in list(self._entries.items()):
            if entry.heard_s + self._timeout_s <= due_s:
                self._remove(connector)
        self._plan_review()

    def _remove(self, connector: str) -> None:
        del self._entries[connector]
        if len(self._removed) >= ENTRIES_MAX:
            del self._removed[next(iter(self._removed))]
        self._removed[connector] = None
        _log.info(
            "discovery: %s has not been heard for %g s: its entry is removed", connector, self._timeout_s
        )
        self._neighbours.give_up(connector)

    def _look_for_duplicates(self, entry: Entry) -> None:
        """Warn if its node ID was heard at another address since the entry was heard last."""
        broadcast = entry.broadcast
        for other in self._entries.values():
            if other.broadcast.node_id == broadcast.node_id and other.heard_s > entry.heard_s:
                self._warn(
                    broadcast.node_id,
                    f"{broadcast.connector} and {other.broadcast.connector} are two brokers with the node ID "
                    f"{broadcast.node_id}; were data files copied from one to the other?",
                )

    def _warn(self, subject: str, text: str) -> None:
        """Warn once of each subject: whoever sends broadcasts must not fill the log."""
        if subject not in self._warned and len(self._warned) < ENTRIES_MAX:
            self._warned[subject] = None
            _log.warning("discovery: %s", text)
