"""The journal of a shared store, one directory for each life.

With it, an old life can never write into a new one's.

Why: on a network file system the server stops a broker that lost its lock only where that broker
uses a lock or an open file. A rename, a removal, or an append that it had sent before may still
take effect, once, after another broker took over. (A hard mount repeats it for as long as it
takes.) So no life goes on in the directory of another::

    journal/life-0000000006     the data when its live was lost; what it still does happens here
    journal/life-0000000007     the new live's: sealed segments are links to the same files, which
                                no broker changes any more; the last segment, which the old live
                                might still extend, is a copy; closed by the file "complete"

The data of the store are those of the highest complete life. A life that was overtaken while it was
being made is lower than its overtaker's, which saw its directory and took a higher number. So even
its late "complete" has no effect.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable
from typing import Final

from broker.storage.manifest import NAME as MANIFEST
from broker.storage.segment import segment_first
from broker.storage.shared import SharedDirectory
from broker.storage.synced import read_synced, write_synced

_log = logging.getLogger(__name__)

ROOT: Final = "journal"
COMPLETE: Final = "complete"

_NAME: Final = re.compile(r"life-([0-9]{10})(?:\.lock)?\Z")
_SLICE: Final = 1024 * 1024
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV})

_ATTEMPTS: Final = 5


def directory(life: int) -> str:
    """Return the directory of a life's journal."""
    return f"{ROOT}/life-{life:010d}"


async def latest(store: SharedDirectory) -> int:
    """Return the life whose data are the store's; 0 for a new store."""
    for life in sorted(await _numbers(store), reverse=True):
        if await store.exists(f"{directory(life)}/{COMPLETE}"):
            return life
    return 0


async def begin(store: SharedDirectory, certain: Callable[[], None]) -> int:
    """Make a new life's directory from the latest; ``Journal.open`` it, then ``complete`` it.

    ``certain`` raises when it is not certain any more that we hold the live lock; it is called
    before each change.
    """
    for attempt in range(_ATTEMPTS):
        before = await latest(store)
        life = max([0, *await _numbers(store)]) + 1
        certain()
        await store.mkdir(directory(life))
        try:
            if not before or await _inherit(store, directory(before), directory(life), certain):
                return life
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
        # The last request that the old life had sent, such as the end of a compaction, took effect
        # just now.
    raise OSError(errno.EBUSY, "the journal of the former live changes all the time", directory(before))


async def complete(store: SharedDirectory, life: int, node_id: str) -> None:
    """Make the life's data the store's from now on, and those of this node."""
    await store.write_atomic(f"{directory(life)}/{COMPLETE}", node_id.encode())


async def node_id_of(store: SharedDirectory, life: int) -> str | None:
    """Return the node ID with which a life was completed; None for the life 0 of a new store."""
    return (await store.read(f"{directory(life)}/{COMPLETE}")).decode() if life else None


async def remove_older(store: SharedDirectory, life: int) -> None:
    """Remove what earlier lives left, but not the files that they share with this one."""
    for old in sorted(number for number in await _numbers(store) if number < life):
        await store.remove_tree(directory(old))
        await store.remove(f"{directory(old)}.lock")


async def _inherit(store: SharedDirectory, old: str, new: str, certain: Callable[[], None]) -> bool:
    """Link and copy a life's journal; False if the copy may not be of one moment.

    Then the old life ended a compaction meanwhile.
    """
    manifest = await store.read(f"{old}/{MANIFEST}")
    synced = await read_synced(
        store, old
    )  # first: the old life may still extend its last segment and record that
    segments = sorted(name for name in await store.list(old) if segment_first(name) is not None)
    for name in segments[:-1]:
        certain()
        await _link(store, f"{old}/{name}", f"{new}/{name}")
    for name in segments[-1:]:
        await _copy(store, f"{old}/{name}", f"{new}/{name}", certain)
    certain()
    await write_synced(store, new, synced)
    # A manifest newer than the segments could leave out segments because their data are in another
    # one, which was taken here before it had them.
    if await store.read(f"{old}/{MANIFEST}") != manifest:
        return False
    certain()
    await store.write_atomic(f"{new}/{MANIFEST}", manifest)
    return True


async def _link(store: SharedDirectory, old: str, new: str) -> None:
    try:
        await store.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        await _copy(store, old, new, lambda: None)


async def _copy(store: SharedDirectory, old: str, new: str, certain: Callable[[], None]) -> None:
    certain()
    file = await store.open(new)
    try:
        offset = 0
        while part := await store.read(old, offset, _SLICE):
            certain()
            file.write(part)
            offset += len(part)
            await file.sync()
    finally:
        await file.close()


async def _numbers(store: SharedDirectory) -> set[int]:
    found = (_NAME.match(name) for name in await store.list(ROOT))
    return {int(match[1]) for match in found if match}
