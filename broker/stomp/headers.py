"""Destinations, and the headers a message keeps.

Why apart from the sessions: pure functions on text, called for every SEND, tested alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.core.addresses import INTERNAL_PREFIX
from broker.core.properties import DEFAULT_PRIORITY, INSTANT_MAX, Properties
from broker.core.selector import Selector, SelectorBounds, SelectorError, compile_selector
from broker.core.settings import SYSTEM_PREFIX
from broker.core.subscription import SEPARATOR, TOPIC_PREFIX
from stomp_protocol.versions import header_line

QUEUE_PREFIX: Final = "/queue/"
OWN_TEMPORARY_PREFIX: Final = "/temp-queue/"
"""How a client names a temporary queue of its own connection."""
UNNAMED: Final = "\n"
"""How the name of a subscription without an id begins.

No id of STOMP 1.0, which alone allows that, has a line feed.
"""
WILDCARDS: Final = frozenset("*#>")
NAME_BYTES_MAX: Final = 255

OURS: Final = frozenset(
    {
        "receipt", "transaction", "content-length", "message-id", "subscription", "ack", "redelivered",
        "JMSXDeliveryCount",
    }
)  # fmt: skip
"""Headers of a SEND that are not the message's.

They speak of the frame, or only the broker may say them.
"""


NOT_DONE: Final = ("not-done", "true")
"""The header of an ERROR: the frame that its ``receipt-id`` names was certainly not done."""


class FrameRefusedError(Exception):
    """The client asked for what cannot be.

    An ERROR frame with this text, then the connection is closed. Mend the client. ``logged`` is the
    text for the broker's log, which may name what the client need not know. ``headers`` are more
    headers of the ERROR.
    """

    def __init__(self, text: str, logged: str = "", *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.logged = logged or text
        self.headers = headers


def queue_name(destination: str | None) -> str:
    """What a destination means: ``/queue/NAME`` and ``NAME`` are one queue. Raises RefusedError."""
    if destination is None:
        raise FrameRefusedError("header 'destination' is missing")
    name = destination.removeprefix(QUEUE_PREFIX)
    if name.startswith((INTERNAL_PREFIX, SYSTEM_PREFIX)):
        raise FrameRefusedError(f"destination {destination!r} is the broker's own: choose another name")
    if name.startswith("/"):
        raise FrameRefusedError(
            f"destination {destination[:64]!r} is not valid: use /queue/NAME, /topic/NAME or /temp-queue/NAME"
        )
    return _checked(destination, name, "queue")


def topic_name(destination: str) -> str:
    """The NAME of ``/topic/NAME``. Raises RefusedError."""
    name = _checked(destination, destination.removeprefix(TOPIC_PREFIX), "topic")
    if SEPARATOR in name:
        raise FrameRefusedError(f"destination {destination[:64]!r}: a topic's name has no {SEPARATOR!r}")
    if not WILDCARDS.isdisjoint(name.split(".")):
        raise FrameRefusedError(
            f"destination {destination[:64]!r}: wildcards are not supported: subscribe to each topic"
        )
    return name


def temporary_name(destination: str) -> str:
    """The NAME of ``/temp-queue/NAME``. Raises RefusedError."""
    return _checked(destination, destination.removeprefix(OWN_TEMPORARY_PREFIX), "temporary queue")


def _checked(destination: str, name: str, kind: str) -> str:
    if not name or len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
        raise FrameRefusedError(
            f"destination {destination[:64]!r}: the name of a {kind} has 1 to {NAME_BYTES_MAX} bytes, "
            "all printable"
        )
    return name


def kept_headers(headers: Mapping[str, str], body_size: int) -> bytes:
    """The header lines a message keeps, as they will travel, with the true content-length last."""
    lines = [f"{name}:{value}" for name, value in headers.items() if name not in OURS]
    text = "\n".join(lines)
    if "\\" in text or "\r" in text or text.count(":") != len(lines) or text.count("\n") != len(lines) - 1:
        kept = b"".join(header_line(name, value) for name, value in headers.items() if name not in OURS)
        return b"%bcontent-length:%d\n" % (kept, body_size)
    return f"{text}\ncontent-length:{body_size}\n".encode()


def number(headers: Mapping[str, str], name: str, least: int) -> int | None:
    """A header that is a whole number, None where it is absent. Raises RefusedError."""
    text = headers.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise FrameRefusedError(
            f"header {name!r} is {text[:64]!r}: expected a whole number of at least {least}"
        )
    return int(text)


def selector(headers: Mapping[str, str], bounds: SelectorBounds) -> Selector | None:
    """Return what a SUBSCRIBE wants, None for everything. Raises RefusedError."""
    text = headers.get("selector", "")
    if not text.strip():
        return None
    try:
        return compile_selector(text, bounds)
    except SelectorError as error:
        raise FrameRefusedError(f"header 'selector' is {text[:64]!r}: {error}") from None


def is_for_good(headers: Mapping[str, str]) -> bool:
    """Is a NACK for good (``requeue:false``, as in RabbitMQ)? Raises RefusedError."""
    text = headers.get("requeue", "true").lower()  # clients in Python say False
    if text not in ("true", "false"):
        raise FrameRefusedError(f"header 'requeue' is {text[:64]!r}: expected true or false")
    return text == "false"


_DUE_AT: Final = ("AMQ_SCHEDULED_TIME", "_AMQ_SCHED_DELIVERY")
_DUE_AFTER: Final = ("AMQ_SCHEDULED_DELAY", "x-delay")
_PROPERTIES: Final = frozenset({"expires", "expiration", "priority", "_AMQ_DUPL_ID", *_DUE_AT, *_DUE_AFTER})
SENT_ID_MAX: Final = 255
"""Characters of a client's id of a message: ids are remembered."""


def properties(headers: Mapping[str, str], now: Callable[[], int]) -> Properties | None:
    """What a SEND asks for its message, None for nothing. Raises RefusedError.

    ``expires`` is an instant (Artemis, ActiveMQ), ``expiration`` so long after ``now`` (RabbitMQ).
    A delivery may be scheduled for an instant (``AMQ_SCHEDULED_TIME``) or after a while
    (``AMQ_SCHEDULED_DELAY``; ``x-delay`` of RabbitMQ's plugin); the latest counts. What has a
    ``_AMQ_DUPL_ID`` is taken once (Artemis).
    """
    if _PROPERTIES.isdisjoint(headers):
        return None
    expires = _instant(headers, "expires")
    if "expiration" in headers:
        expires = min(now() + _instant(headers, "expiration"), INSTANT_MAX)
    waits = [_instant(headers, name) for name in _DUE_AFTER]
    dues = [_instant(headers, name) for name in _DUE_AT]
    due = min(max(*dues, now() + max(waits) if any(waits) else 0), INSTANT_MAX)
    priority = headers.get("priority", "").strip() or str(DEFAULT_PRIORITY)
    if len(priority) != 1 or priority not in "0123456789":
        raise FrameRefusedError(f"header 'priority' is {priority[:64]!r}: expected 0 to 9")
    once = headers.get("_AMQ_DUPL_ID", "")
    if len(once) > SENT_ID_MAX:
        raise FrameRefusedError(
            f"header '_AMQ_DUPL_ID' has {len(once)} characters: at most {SENT_ID_MAX} are allowed"
        )
    asked = Properties(int(priority), expires, due, once)
    return None if asked == Properties() else asked


def _instant(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "").strip()
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > INSTANT_MAX:
        raise FrameRefusedError(f"header {name!r} is {text[:64]!r}: expected a whole number of milliseconds")
    return int(text)


def heart_beats(headers: Mapping[str, str]) -> tuple[int, int]:
    """Milliseconds a client offers and wants (STOMP 1.2, "Heart-beating"). Raises RefusedError."""
    text = headers.get("heart-beat", "0,0")
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise FrameRefusedError(
            f"header 'heart-beat' is {text[:64]!r}: expected two numbers of milliseconds, for example "
            f"1000,1000"
        )
    return int(parts[0]), int(parts[1])
