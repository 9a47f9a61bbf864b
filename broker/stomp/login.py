"""CONNECT: who may come in, and how often each shows that it lives. No state, no bytes.

The header ``host`` is not asked for, although STOMP 1.1 and 1.2 want it: there is one virtual host
here, and clients that send none (Spring's) mean it.

Heart-beats as STOMP 1.1 and 1.2 have them: each side says how often it can send and how often it
wants to receive; the slower wish of the two counts, and a zero on either side means none in that
direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from broker.sections import AcceptorSection
from broker.stomp.headers import FrameRefusedError, heart_beats
from stomp_protocol.versions import Version

TTL_MIN_MS: Final = 1000


class Admission(Protocol):
    """Which clients are taken in, where brokers take over from each other: the policy's."""

    @property
    def told(self) -> str:
        """Header lines of CONNECTED: what a client that is taken in now shall say again."""
        ...

    def redirect_for(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """Why a client with this CONNECT is not taken in, and the address where it belongs.

        Both "" where it is taken in, the second where nobody knows.
        """
        ...


class Agreement(NamedTuple):
    """The longest silence of the broker, and of the client, in milliseconds; 0: for ever."""

    beat: int
    ttl: int


def log_in(headers: Mapping[str, str], acceptor: AcceptorSection, version: Version) -> Agreement:
    """Let a client in, or raise RefusedError; whether login or passcode is wrong is not told."""
    if acceptor.users:
        passcode = acceptor.users.get(headers.get("login", ""))
        right = compare_digest((passcode or "").encode(), headers.get("passcode", "").encode())
        if not right or passcode is None:
            raise FrameRefusedError("login or passcode is wrong")
    client_sends, client_wants = heart_beats(headers) if version.heart_beats else (0, 0)
    beat = _agreed(acceptor.heart_beat_send, client_wants)
    expected = _agreed(acceptor.heart_beat_receive, client_sends)
    ttl = acceptor.connection_ttl
    if ttl is None:
        return Agreement(beat, max(2 * expected, TTL_MIN_MS) if expected else 0)
    return Agreement(beat, max(ttl, 0))


def _agreed(one: int, other: int) -> int:
    return max(one, other) if one and other else 0
