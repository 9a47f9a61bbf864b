"""The events of a world, in order: always a digest, and the text on request.

Two runs of one seed are the same when their digests are. The digest is a chain of Python's tuple
hash over integers, which does not depend on the hash seed and costs a tenth of a microsecond. It is
made to notice a difference, not to resist an adversary. When two digests differ, record both runs
and ask for `first_difference`.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

BYTES: Final = "receives"
DATAGRAM: Final = "receives datagram"
TIMER: Final = "timer"


class TraceEvent(NamedTuple):
    """An event: ``what`` happened at ``node``, with ``detail``.

    ``size`` and ``checksum`` are of the event's bytes if it has any.
    """

    at_ns: int
    node: str
    what: str
    detail: str
    size: int
    checksum: int

    def __str__(self) -> str:
        text = f"{self.at_ns / 1e9:15.9f} {self.node} {self.what}"
        if self.detail:
            text += f" {self.detail}"
        return f"{text} ({self.size} bytes, crc {self.checksum:08x})" if self.size else text


class Trace:
    """The rolling digest of a world's events, and the events themselves when ``recording``."""

    __slots__ = ("_digest", "_labels", "count", "events", "recording")

    def __init__(self, *, recording: bool = False) -> None:
        self.recording = recording
        self.events: list[TraceEvent] = []
        self.count = 0
        self._digest = 0
        self._labels: dict[int, tuple[str, str, str]] = {}

    @property
    def digest(self) -> str:
        """The digest as 16 hexadecimal digits; equal for equal runs."""
        return f"{self._digest & 0xFFFFFFFFFFFFFFFF:016x}"

    @property
    def text(self) -> str:
        """The events, one on a line; empty unless recording."""
        return "\n".join(map(str, self.events))

    def label(self, node: str, what: str, detail: str = "") -> int:
        """Return a number for a frequent kind of event, to `mark` with."""
        label = zlib.crc32(f"{node}|{what}|{detail}".encode())
        if self.recording:
            self._labels[label] = (node, what, detail)
        return label

    def mark(self, at_ns: int, label: int, data: bytes = b"") -> None:
        """Take an event into the digest."""
        checksum = zlib.crc32(data) if data else 0
        self._digest = hash((self._digest, at_ns, label, checksum))
        self.count += 1
        if self.recording:
            self.events.append(TraceEvent(at_ns, *self._labels[label], len(data), checksum))

    def record(self, at_ns: int, node: str, what: str, detail: str = "", data: bytes = b"") -> None:
        """Take an event that has no label yet into the digest."""
        self.mark(at_ns, self.label(node, what, detail), data)

    def take(self, event: TraceEvent) -> None:
        """Take an event of another process' trace: the digest becomes what it was there."""
        label = self.label(event.node, event.what, event.detail)
        self._digest = hash((self._digest, event.at_ns, label, event.checksum))
        self.count += 1
        self.events.append(event)


def first_difference(first: Trace, second: Trace, context: int = 5) -> str | None:
    """Return where two recorded runs part, with what came before and after; None if nowhere.

    Raises ValueError when a run was not recorded.
    """
    if first.digest == second.digest:
        return None
    if not (first.recording and second.recording):
        raise ValueError(
            "the runs differ, but were not recorded: run both worlds with record=True to see where"
        )
    shorter = min(len(first.events), len(second.events))
    at = next((i for i in range(shorter) if first.events[i] != second.events[i]), shorter)
    lines = [f"the runs differ from event {at} on"]
    lines += [f"  both   {event}" for event in first.events[max(0, at - context) : at]]
    for name, events in (("first ", first.events), ("second", second.events)):
        lines += [f"  {name} {event}" for event in events[at : at + context]] or [f"  {name} ended"]
    return "\n".join(lines)
