"""Where a client belongs: at the broker that owns the store session under which it last was served.

Why clients say it: messages of a broker that failed are for a while with nobody. A client that is
served elsewhere meanwhile would send the next message of a group to one broker while the group's
earlier ones come back at another, and overtake them. So CONNECTED names the store session, a client
that comes again names it in CONNECT (``store-session``), and only its owner takes it in; any other
broker says where that is, if it knows (the *client redirect* of Sun 4.1; header ``redirect`` of the
ERROR frame). A client that names none is taken in by everybody.
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
        """Why nobody is taken in any more; "" while everybody is."""
        self._here = dict.fromkeys(sessions)
        self._owners: dict[int, str] = {}

    @property
    def sessions(self) -> tuple[int, ...]:
        """All that are served here."""
        return tuple(sorted(self._here))

    def adopt(self, current: int, sessions: Iterable[int]) -> None:
        """These are served here too, from now on."""
        self._here.update(dict.fromkeys((*sessions, current)))
        self.current = current

    def learn(self, owners: dict[int, str]) -> None:
        """Session -> address for clients, as the store says."""
        self._owners = owners

    @property
    def told(self) -> str:
        """See ``login.Admission``: the store session that a client shall name."""
        return f"{HEADER}:{self.current}\n"

    def redirect_for(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """See ``login.Admission``."""
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
