"""The journal of a broker that keeps its messages on its own disk."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from broker.config import BrokerConfig
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.errors import JournalError
from broker.storage.journal import ID_BLOCK_BITS, Journal
from broker.storage.options import JournalOptions
from broker.storage.volume import Volume


def journal_options(config: BrokerConfig) -> JournalOptions:
    """Return the [journal] section and the policy's settings of journals as JournalOptions."""
    section = config.journal
    role = config.replication
    return JournalOptions(
        segment_size=section.segment_size,
        compact_min_files=section.compact_min_files,
        compact_percentage=section.compact_percentage,
        keep_moved=getattr(role, "max_saved_replicated_journals_size", 2),
    )


def opening_options(config: BrokerConfig, seams: Seams) -> JournalOptions:
    """Return ``journal_options`` for one opening, which begins at a record number of its own.

    No other life with this node ID gives out the same ids, although it may open a copy of this very
    journal: a backup whose live starts again on its own, or a store that was copied by hand or
    restored. Other brokers would take the messages of one for repeats of the other's. Hence each
    opening begins somewhere else in its block of ids. Name and time tell lives apart.
    """
    opening = random.Random(f"{config.broker.name} {seams.wall_clock()!r}")
    return replace(journal_options(config), first_id=opening.getrandbits(ID_BLOCK_BITS - 1))


async def open_journal(volume: Volume, config: BrokerConfig, seams: Seams) -> tuple[Journal, Any]:
    """Open the broker's journal. Raises StartError if it is locked, damaged or unreadable."""
    try:
        return await Journal.open(volume, "journal", opening_options(config, seams))
    except JournalError as error:
        raise StartError(f"{config.data_path}: {error}") from error
    except OSError as error:
        raise StartError(f"{config.data_path}/journal cannot be opened: {error}") from error
