"""A journal frozen at one sequence, to be copied to a backup while the live goes on writing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from broker.storage.segment import Segment
from broker.storage.volume import Volume

CHUNK = 256 * 1024


class Snapshot:
    """All segments up to ``last_sequence``.

    None of them changes or is removed until ``release``: call it, whatever happens.

    ``files`` has (name, size in bytes) of each.
    """

    def __init__(
        self, volume: Volume, segments: list[Segment], last_sequence: int, release: Callable[[], None]
    ) -> None:
        self.last_sequence = last_sequence
        self.files = [(segment.name, segment.size) for segment in segments]
        self._volume = volume
        self._segments = segments
        self._release: Callable[[], None] | None = release

    async def chunks(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield (name, offset, bytes) of every file in order, at most 256 KiB each."""
        for segment in self._segments:
            offset = 0
            while offset < segment.size:
                data = await self._volume.read(segment.path, offset, min(CHUNK, segment.size - offset))
                if not data:
                    raise OSError(f"{segment.path} ends at {offset}, though it had {segment.size} bytes")
                yield segment.name, offset, data
                offset += len(data)

    def release(self) -> None:
        """Let compaction go on. This may be called twice."""
        release, self._release = self._release, None
        if release is not None:
            release()
