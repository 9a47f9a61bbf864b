"""Who may send to a queue or topic, consume it, or browse it: security-settings, as AMQ has them.

Why by queue and user: a login says who comes, not what is his business. Without any setting every
user may do everything. Where one matches, the most specific counts, alone, and a right that it does
not give is nobody's. The right to send is checked when a session first sends to a destination, not
for each message; the others at each SUBSCRIBE, and when a client deletes a subscription.
"""

from __future__ import annotations

from typing import Final, Literal

from broker.config import BrokerConfig
from broker.core.subscription import Subscription
from broker.name_patterns import Matches
from broker.sections import SecuritySettings
from broker.stomp.headers import FrameRefusedError

Right = Literal["send", "consume", "browse"]

_VERBS: Final = {"send": "send to", "consume": "consume from", "browse": "browse"}
_SHOWN: Final = 48
"""Characters of a name: the log cuts a longer line, and both topics must be in it."""


class Rights:
    """The rights that a configuration gives."""

    def __init__(self, config: BrokerConfig) -> None:
        self._roles = config.acceptor.roles
        self._settings = Matches(config.security_settings)

    def demand(self, user: str, right: Right, queue: str, kind: str = "queue") -> None:
        """Raise FrameRefusedError, naming right and queue, for a user who does not have it.

        Of a topic (``kind`` says so) the same settings hold, by its name.
        """
        setting = self._denial(user, right, queue)
        if setting is not None:
            raise FrameRefusedError(
                f"user {user[:64]!r} may not {_VERBS[right]} {kind} {queue!r} (security-settings of "
                f"{setting.match!r}: {right})"
            )

    def has(self, user: str, right: Right, name: str) -> bool:
        """Does the user have the right on a queue or topic?"""
        return self._denial(user, right, name) is None

    def demand_existing(self, user: str, subscription: Subscription, topic: str | None) -> None:
        """Raise FrameRefusedError for a user who may not consume from a subscription's own topic.

        ``topic`` is the one that the user asks the subscription for, None where the user drops it.
        The ERROR does not name the subscription's topic, which may be another user's secret; the
        log does.
        """
        setting = self._denial(user, "consume", subscription.topic)
        if setting is None:
            return
        own_topic = subscription.topic[:_SHOWN]
        request, other = "drop", "a"
        if topic is not None:
            request, other = f"move to topic {topic[:_SHOWN]!r}", "another"
        raise FrameRefusedError(
            f"subscription {subscription.name[:_SHOWN]!r} exists for {other} topic that user "
            f"{user[:_SHOWN]!r} may not consume from: choose another name",
            f"the user may not consume from topic {own_topic!r}: {request} refused of its subscription "
            f"{subscription.name[:_SHOWN]!r} (security-settings of {setting.match[:_SHOWN]!r}: consume)",
        )

    def _denial(self, user: str, right: Right, name: str) -> SecuritySettings | None:
        """Return the setting that denies a user a right, None where the user has the right."""
        setting = self._settings.find(name)
        if setting is None:
            return None
        names: tuple[str, ...] = getattr(setting, right)
        if user in names or any(user in self._roles.get(name, ()) for name in names):
            return None
        return setting
