"""What queues hold, in a few bytes each: what a broker serves, and what a copy of its journal says.

Why beside ``browsing``: a live and its backup must hold the same, and are compared without reading
a million bodies. Only what outlives the broker is told: a backup that takes over has neither
temporary queues nor subscriptions that end with their connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import google_crc32c

from broker.core import recovery
from broker.core.backlog import restore
from broker.core.engine import Engine
from broker.core.message import Message, decode_stored
from broker.core.pages import Page
from broker.core.subscription import TEMPORARY_PREFIX
from broker.storage.blobs import LARGE_MESSAGES, PAGING, Blob, BlobFiles
from broker.storage.records import Record
from broker.storage.volume import Volume

_ID_BYTES: Final = 8

Contents = Mapping[str, str]
"""Queue -> how many messages it has, and a checksum of their ids. Without those that are empty."""


async def served(engine: Engine) -> Contents:
    """Of a live. Raises OSError, JournalDamagedError where a page cannot be read."""
    ids: dict[str, list[int]] = {}
    browsing = engine.browse()
    try:
        async for found in browsing:
            ids.setdefault(found.holder, []).append(found.message.id)
    finally:
        browsing.close()
    return {name: _told(held) for name, held in ids.items() if _lasts(engine, name)}


def _lasts(engine: Engine, name: str) -> bool:
    queue = engine.queues.get(name)
    subscription = None if queue is None else queue.subscription
    return not name.startswith(TEMPORARY_PREFIX) and (subscription is None or subscription.durable)


async def stored(records: Iterable[Record], volume: Volume) -> Contents:
    """Of a journal with these records, its large messages and pages beside it, were it started.

    A message whose body is not there, or that is on a page that is not there, does not count.
    """
    image = recovery.read(records)
    found: dict[str, str] = {}
    for name, (line, _) in image.lines(image.queues).items():
        ids: list[int] = []
        for item in line:
            messages = await _read(item, volume) if isinstance(item, Page) else [_restored(item)]
            ids += [message.id for message in messages if await _whole(message.large, volume)]
        if ids:
            found[name] = _told(ids)
    return found


def _restored(record: Record) -> Message:
    return restore(record, least_deliveries=0)


async def _read(page: Page, volume: Volume) -> list[Message]:
    try:
        data = await BlobFiles(volume, PAGING).read(page.blob.id, 0, page.blob.size)
    except FileNotFoundError:
        return []
    if google_crc32c.value(data) != page.blob.checksum:
        return []
    return list(decode_stored(page, data))


async def _whole(blob: Blob | None, volume: Volume) -> bool:
    if blob is None:
        return True
    try:
        return await volume.size(BlobFiles(volume, LARGE_MESSAGES).path(blob.id)) == blob.size
    except FileNotFoundError:
        return False


def _told(ids: list[int]) -> str:
    data = b"".join(id_.to_bytes(_ID_BYTES, "little") for id_ in sorted(ids))
    return f"{len(ids)} message{'s' if len(ids) > 1 else ''} ({google_crc32c.value(data):08x})"
