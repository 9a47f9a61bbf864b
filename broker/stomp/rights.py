"""Who may send to a queue or topic, consume it, or browse it: security-settings, as AMQ has them.

Why by queue and user: a login says who comes, not what is his business. Without any setting every
user may do everything. Where one matches, the most specific counts, alone, and a right that it does
not give is nobody's. Asked once for each destination of a session, never for a message.
"""

from __future__ import annotations

from typing import Final, Literal

from broker.config import BrokerConfig
from broker.core.addresses import Matches
from broker.stomp.headers import FrameRefusedError

Right = Literal["send", "consume", "browse"]

_VERBS: Final = {"send": "send to", "consume": "consume from", "browse": "browse"}


class Rights:
    """The rights that a configuration gives."""

    def __init__(self, config: BrokerConfig) -> None:
        self._roles = config.acceptor.roles
        self._settings = Matches(config.security_settings)

    def demand(self, user: str, right: Right, queue: str, kind: str = "queue") -> None:
        """Raises RefusedError, naming right and queue, for a user who does not have it.

        Of a topic (``kind`` says so) the same settings hold, by its name.
        """
        setting = self._settings.find(queue)
        if setting is None:
            return
        given: tuple[str, ...] = getattr(setting, right)
        if user in given or any(user in self._roles.get(name, ()) for name in given):
            return
        raise FrameRefusedError(
            f"user {user[:64]!r} may not {_VERBS[right]} {kind} {queue!r} (security-settings of "
            f"{setting.match!r}: {right})"
        )
