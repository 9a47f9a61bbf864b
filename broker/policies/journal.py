"""The journal of a broker that keeps its messages on its own disk."""

from __future__ import annotations

from typing import Any

from broker.config import BrokerConfig
from broker.start_error import StartError
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
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


async def open_journal(volume: Volume, config: BrokerConfig) -> tuple[Journal, Any]:
    """Open the broker's journal. Raises StartError if it is locked, damaged or unreadable."""
    try:
        return await Journal.open(volume, "journal", journal_options(config))
    except JournalError as error:
        raise StartError(f"{config.data_path}: {error}") from error
    except OSError as error:
        raise StartError(f"{config.data_path}/journal cannot be opened: {error}") from error
