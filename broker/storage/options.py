"""A journal's settings, named as in ``broker.xml`` of Apache ActiveMQ Artemis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """The settings of a journal, sizes in bytes. Raises ValueError for impossible values."""

    segment_size: int = 10 * 1024 * 1024
    """``journal-file-size``: a segment is sealed when the next entry would pass it."""
    compact_min_files: int = 10
    """``journal-compact-min-files``: no compaction with fewer segments; 0 turns it off."""
    compact_percentage: int = 30
    """``journal-compact-percentage``: how much of the sealed segments must be live.

    Compact when the live share is below this.
    """
    keep_moved: int = 2
    """The number of journals moved aside by a new copy that are kept."""
    first_id: int = 0
    """The number within its block of ids at which this opening begins, below half of a block."""

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
