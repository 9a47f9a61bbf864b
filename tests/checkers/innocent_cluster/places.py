"""Where messages wait: queues, subscriptions, temporary queues; and the sessions that read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from innocent_cluster.messages import Copy

if TYPE_CHECKING:
    from innocent_cluster.connections import Connection

Name = tuple[str, str | None]
"""Queue and subscription."""


@dataclass(eq=False)
class Session:
    """A consumer as its broker knows it."""

    number: int
    name: Name
    wanted: str | None
    credit: int
    connection: Connection
    place: Place | None = None

    @property
    def held(self) -> list[Copy]:
        return [] if self.place is None else [copy for copy in self.place.copies if copy.holder is self]

    def matches(self, copy: Copy) -> bool:
        return self.wanted in (None, copy.message.colour)


@dataclass(eq=False)
class Place:
    """A queue or a subscription.

    ``copies`` are in order, those that sessions hold included. ``owner`` is the connection with
    which a temporary place ends. ``closings``: by group, where the messages were that closed it
    when they were given out. Durable: name, selector and copies; the rest ends with the broker.
    """

    name: Name
    wanted: str | None = None
    owner: Connection | None = None
    copies: list[Copy] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    owners: dict[str, Session] = field(default_factory=dict)
    closings: dict[str, list[int]] = field(default_factory=dict)
    is_gone: bool = False
    read: list[tuple[Session, Copy]] = field(default_factory=list)
    members: int = 0

    def is_owed(self, copy: Copy) -> bool:
        """Whether a loss of the copy is certain to be one."""
        message = copy.message
        return message.is_certain and self.name not in message.answered and self.owner is None

    def choose(self, session: Session, now: int, clock: int, *, seen: int | None = None) -> Copy | None:
        """The copy that the session is to get next; of pages only the first copies are ``seen``."""
        best: Copy | None = None
        closed: set[str] = set()
        waiting = [copy for copy in self.copies if copy.holder is None and copy.due <= clock]
        for copy in waiting[:seen]:
            group = copy.message.group
            if group is not None and (group in closed or self.owners.get(group, session) is not session):
                continue
            if copy.is_hidden or not session.matches(copy):
                continue
            if copy.again > now or self._belongs_to_another(session, copy):
                if group is not None:
                    closed.add(group)
                continue
            if best is None or copy.urgency > best.urgency:
                best = copy
            if group is not None:
                closed.add(group)
        return best

    def close(self, copy: Copy, group: str) -> None:
        """Let go of a group: what follows the copy may go to another session."""
        del self.owners[group]
        self.closings.setdefault(group, []).append(copy.at)

    def _belongs_to_another(self, session: Session, copy: Copy) -> bool:
        """Whether another session holds one of its group, and nothing between closed the group.

        A closing message frees what follows it, not what comes back that was before it.
        """
        group = copy.message.group
        if group is None:
            return False
        closings = self.closings.get(group, [])
        held = [one for one in self.copies if one.message.group == group and one.holder is not None]
        return any(
            not any(min(one.at, copy.at) <= closing < max(one.at, copy.at) for closing in closings)
            for one in held
            if one.holder is not session
        )

    def part(self, session: Session) -> list[Copy]:
        """Forget a session; the copies that it held wait again."""
        if session not in self.sessions:
            return []
        self.sessions.remove(session)
        self.owners = {group: one for group, one in self.owners.items() if one is not session}
        given_back = session.held
        for copy in given_back:
            copy.holder, copy.transaction = None, None
        return given_back

    def next_of_group(self, copy: Copy, clock: int) -> Copy | None:
        """The next message of the same producer and group that was not delivered either."""
        mine = copy.message.columns
        for one in self.copies[self.copies.index(copy) + 1 :]:
            theirs = one.message.columns
            same = (mine["group"], mine["producer"]) == (theirs["group"], theirs["producer"])
            if same and one.count == 0 and one.holder is None and one.due <= clock:
                return one
        return None

    def put_back(self, copy: Copy) -> None:
        """Put a copy that was removed where it was."""
        self.copies.append(copy)
        self.copies.sort(key=lambda one: one.at)

    def remove(self, copy: Copy) -> None:
        copy.holder, copy.transaction = None, None
        if copy in self.copies:
            self.copies.remove(copy)
