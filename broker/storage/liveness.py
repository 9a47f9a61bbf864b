"""The live records and their segments, which decide when a segment is garbage.

Why only places and no data: the engine holds the messages, and the journal must not hold them
again. A record with one operation costs one dictionary entry, without data and offsets (compaction
reads segments from start to end).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from broker.storage.entry import ADD, DELETE, OPERATION_SIZE, UPDATE, Operation

SIZE_BITS = 40
SIZE_MASK = (1 << SIZE_BITS) - 1


def check(live: Container[int], operations: Iterable[Operation]) -> None:
    """Raise ValueError for an id that is added twice, or changed without being live."""
    changed: dict[int, bool] = {}
    for action, _, id_, _ in operations:
        alive = changed.get(id_, id_ in live)
        if action == ADD:
            if alive or id_ in changed:
                raise ValueError(f"id {id_} is added twice")
            changed[id_] = True
        elif not alive:
            raise ValueError(f"id {id_} is {'deleted' if action == DELETE else 'updated'} but not live")
        elif action == DELETE:
            changed[id_] = False
        elif action != UPDATE:
            raise ValueError(f"id {id_}: unknown action {action}")


class Liveness:
    """The bytes of live records in each segment.

    Segments are known by small numbers (ordinals) that never repeat.

    A record's place is ``ordinal << 40 | bytes``, and a tuple of such numbers once its operations
    lie in several segments.
    """

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records: dict[int, int | tuple[int, ...]] = {}
        self.bytes: dict[int, int] = {}

    def begin(self, ordinal: int) -> None:
        """Add a new, empty segment."""
        self.bytes[ordinal] = 0

    def end(self, ordinal: int) -> None:
        """Remove a segment whose file is gone."""
        del self.bytes[ordinal]

    def apply(self, operations: Iterable[Operation], ordinal: int) -> None:
        """Account for operations written to a segment.

        An operation on a record that is gone changes nothing.

        Raises ValueError for an id that is added twice.
        """
        records = self.records
        for action, _, id_, data in operations:
            if action == ADD:
                if id_ in records:
                    raise ValueError(f"id {id_} is added twice")
                size = OPERATION_SIZE + len(data)
                records[id_] = ordinal << SIZE_BITS | size
                self.bytes[ordinal] += size
            elif action == DELETE:
                place = records.pop(id_, None)
                if place is None:
                    continue
                for part in (place,) if isinstance(place, int) else place:
                    self.bytes[part >> SIZE_BITS] -= part & SIZE_MASK
            else:
                place = records.get(id_)
                if place is None:
                    continue
                size = OPERATION_SIZE + len(data)
                self.bytes[ordinal] += size
                parts = (place,) if isinstance(place, int) else place
                if parts[-1] >> SIZE_BITS == ordinal:
                    parts = (*parts[:-1], parts[-1] + size)
                else:
                    parts = (*parts, ordinal << SIZE_BITS | size)
                records[id_] = parts[0] if len(parts) == 1 else parts

    def move(self, ids: Iterable[int], gone: frozenset[int], ordinal: int) -> None:
        """Account for these records' parts in segments ``gone`` as now in ``ordinal``.

        Parts in later segments stay.
        """
        records = self.records
        for id_ in ids:
            place = records.get(id_)
            if place is None:
                continue
            parts = (place,) if isinstance(place, int) else place
            moved = 0
            kept = []
            for part in parts:
                if part >> SIZE_BITS in gone:
                    moved += part & SIZE_MASK
                    self.bytes[part >> SIZE_BITS] -= part & SIZE_MASK
                else:
                    kept.append(part)
            if not moved:
                continue
            self.bytes[ordinal] += moved
            records[id_] = (ordinal << SIZE_BITS | moved, *kept) if kept else ordinal << SIZE_BITS | moved
