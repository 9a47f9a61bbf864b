"""The manifest: whether a directory is a journal to be trusted, and where the journal begins.

Why: without it, a journal that lost its oldest segment, or a copy whose synchronisation never
ended, looks like a shorter journal.
"""

from __future__ import annotations

from typing import Final, Literal

import google_crc32c
import msgspec

from broker.storage.errors import JournalDamagedError
from broker.storage.volume import Volume

NAME: Final = "journal.manifest"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a journal, and the first sequence of its oldest segment.

    ``first`` is 0 while the first segment of a new journal is being created.
    """

    state: Literal["complete", "incomplete"]
    first: int


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifest: Manifest
    crc32c: int


def _checksum(manifest: Manifest) -> int:
    return int(google_crc32c.value(msgspec.json.encode(manifest)))


async def read_manifest(volume: Volume, directory: str) -> Manifest | None:
    """Read the manifest; None if there is none. Raises JournalDamagedError if it is unreadable."""
    path = f"{directory}/{NAME}"
    if not await volume.exists(path):
        return None
    try:
        stored = msgspec.json.decode(await volume.read(path), type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalDamagedError(path, 0, f"the manifest cannot be read: {error}") from None
    if stored.crc32c != _checksum(stored.manifest):
        raise JournalDamagedError(path, 0, "the manifest's checksum does not match")
    return stored.manifest


async def write_manifest(volume: Volume, directory: str, manifest: Manifest) -> None:
    """Write the manifest; it is durable when this returns."""
    await volume.write_atomic(
        f"{directory}/{NAME}", msgspec.json.encode(_Stored(manifest, _checksum(manifest)))
    )
