"""The node ID: a broker's identity, for as long as its journal exists (AMQ 17.1.3).

It is made when the journal is first created and stored in ``server.lock`` next to the journal. A
live and its backup share it.
"""

from __future__ import annotations

import uuid
from typing import Final

from broker.seams import Seams
from broker.storage.volume import Volume

FILE: Final = "server.lock"


async def read_node_id(volume: Volume) -> str | None:
    """Return the node ID of the data in this volume, None if there is none yet."""
    if not await volume.exists(FILE):
        return None
    return (await volume.read(FILE)).decode().strip() or None


async def write_node_id(volume: Volume, node_id: str) -> None:
    """Store a node ID, durably; a backup stores its live's."""
    await volume.write_atomic(FILE, node_id.encode() + b"\n")


def new_node_id(seams: Seams, name: str = "") -> str:
    """Return an unused node ID, different for each ``name`` even from the same random numbers."""
    return str(uuid.uuid5(uuid.UUID(int=seams.random.getrandbits(128), version=4), name))


async def own_node_id(volume: Volume, seams: Seams, name: str = "") -> str:
    """Return the node ID of this volume, which is made the first time."""
    known = await read_node_id(volume)
    if known is None:
        known = new_node_id(seams, name)
        await write_node_id(volume, known)
    return known
