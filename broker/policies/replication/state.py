"""The state of a replicated broker outside its journal: how often its node ID changed hands.

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
    """The state; ``activation`` counts the known takeovers of our node ID, our own included."""

    activation: int = 0


async def read_state(volume: Volume) -> State:
    """Return the stored state, or the initial one. Raises StartError for an unreadable file."""
    if not await volume.exists(FILE):
        return State()
    try:
        return msgspec.json.decode(await volume.read(FILE), type=State)
    except msgspec.MsgspecError as error:
        raise StartError(
            f"{FILE} in the data directory cannot be read: {error}; remove it to begin at 0"
        ) from None


async def write_state(volume: Volume, state: State) -> None:
    """Write the state; it is durable when this returns."""
    await volume.write_atomic(FILE, msgspec.json.encode(state))
