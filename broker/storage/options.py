"""A journal's settings, as Apache ActiveMQ Artemis names them in ``broker.xml``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """Sizes in bytes. Raises ValueError for values that cannot be."""

    segment_size: int = 10 * 1024 * 1024
    """``journal-file-size``: a segment is sealed when the next entry would pass it."""
    compact_min_files: int = 10
    """``journal-compact-min-files``: no compaction with fewer segments; 0 turns it off."""
    compact_percentage: int = 30
    """``journal-compact-percentage``.

    Compact when less than this share of the sealed segments is live.
    """
    keep_moved: int = 2
    """How many journals moved aside by a new copy are kept."""

    def __post_init__(self) -> None:
        if self.segment_size < 1024:
            raise ValueError(f"journal-file-size is {self.segment_size}; at least 1024 bytes are needed")
        if self.compact_min_files < 0:
            raise ValueError(
                f"journal-compact-min-files is {self.compact_min_files}; 0 (off) or more is possible"
            )
        if not 0 <= self.compact_percentage <= 100:
            raise ValueError(f"journal-compact-percentage is {self.compact_percentage}; 0 to 100 is possible")
        if self.keep_moved < 0:
            raise ValueError(f"keep_moved is {self.keep_moved}; 0 or more is possible")
