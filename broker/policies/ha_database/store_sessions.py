"""The store sessions by which a client finds the broker that owns its last store session.

Why clients name it: the messages of a broker that failed are with no broker for a while. A client
that is served elsewhere meanwhile would send the next message of a group to one broker. The group's
earlier messages would come back at another, and the new one would overtake them. So CONNECTED names
the store session, and a client that comes again names it in CONNECT (``store-session``). Only the
session's owner accepts it. Any other broker says where the owner is, if it knows (the *client
redirect* of Sun 4.1; header ``redirect`` of the ERROR frame). Every broker accepts a client that
names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

HEADER: Final = "store-session"


class StoreSessions:
    """The store sessions whose messages are served here. A ``login.Admission``."""

    def __init__(self, current: int, sessions: Iterable[int]) -> None:
        self.current = current
        self.closed = ""
        """The reason why no client is accepted any more; "" while clients are."""
        self._here = dict.fromkeys(sessions)
        self._owners: dict[int, str] = {}

    @property
    def sessions(self) -> tuple[int, ...]:
        """All store sessions that are served here."""
        return tuple(sorted(self._here))

    def adopt(self, current: int, sessions: Iterable[int]) -> None:
        """Serve these sessions here, too, from now on."""
        self._here.update(dict.fromkeys((*sessions, current)))
        self.current = current

    def learn(self, owners: dict[int, str]) -> None:
        """Take the owners' addresses for clients by session, as the store says."""
        self._owners = owners

    @property
    def told(self) -> str:
        """The header line with the store session that a client shall name.

        See ``login.Admission``.
        """
        return f"{HEADER}:{self.current}\n"

    def redirect_for(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """Return why a client is refused, and where it belongs; see ``login.Admission``."""
        named = headers.get(HEADER)
        if self.closed:
            return self.closed, ""
        if named is None:
            return "", ""
        if not (named.isascii() and named.isdigit() and len(named) < 20):
            return f"store-session {named[:32]!r} is not a number", ""
        session = int(named)
        if session in self._here:
            return "", ""
        return f"store session {session} is not served here", self._owners.get(session, "")
