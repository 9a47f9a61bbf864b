"""What a replicated broker remembers beside its journal: how often its node ID changed hands.

Why: of two brokers that claim one node ID, clients and bridges must follow the one that took over
last. The count is raised, durably, before a broker serves as live.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.start_error import StartError
from broker.storage.volume import Volume

FILE: Final = "replication.json"


class State(msgspec.Struct, frozen=True, rename="kebab"):
    """``activation``: takeovers of our node ID that we know of, our own included."""

    activation: int = 0


async def read_state(volume: Volume) -> State:
    """What was kept, the beginning where nothing was. Raises StartError for an unreadable file."""
    if not await volume.exists(FILE):
        return State()
    try:
        return msgspec.json.decode(await volume.read(FILE), type=State)
    except msgspec.MsgspecError as error:
        raise StartError(
            f"{FILE} in the data directory cannot be read: {error}; remove it to begin at 0"
        ) from None


async def write_state(volume: Volume, state: State) -> None:
    """Durable when it returns."""
    await volume.write_atomic(FILE, msgspec.json.encode(state))
