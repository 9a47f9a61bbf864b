"""A directory as the store of policy ``shared-store``.

A lock file says who is live (``lockfile``), and each life has a journal of its own (``lives``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from broker.config import BrokerConfig
from broker.ha_policy import SharedStoreRole
from broker.policies.identity import new_node_id
from broker.policies.journal import opening_options
from broker.policies.ownership.candidacy import HeldLock
from broker.policies.shared_store import lives
from broker.policies.shared_store.lockfile import LockFile
from broker.policies.shared_store.store import Inherited
from broker.seams import Seams
from broker.start_error import StartError
from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.shared import SharedDirectory, SharedLock

_log = logging.getLogger(__name__)


class DirectoryStore:
    """A store in a directory, which the caller closes. See ``store.BrokerStore``."""

    def __init__(
        self, config: BrokerConfig, section: SharedStoreRole, seams: Seams, directory: SharedDirectory
    ) -> None:
        self.places = LockFile(directory)
        self._config = config
        self._section = section
        self._seams = seams
        self._directory = directory

    async def inherit(self, live: HeldLock, require: Callable[[], None]) -> Inherited:
        """Begin a life by `begin_life`, under the node ID in the lock file."""
        name = self._config.broker.name
        node_id = (await self.places.read()).node_id
        if node_id is None:
            node_id = await without_a_mark(self._directory, self._section) or new_node_id(self._seams, name)
        require()
        await self.places.begin(_own(live), node_id, name)
        return await begin_life(self._config, self._seams, self._directory, node_id, require)

    async def leave(self, live: HeldLock, state: str) -> None:
        """Write the state to the lock file, under the lock."""
        await self.places.leave(_own(live), state)

    async def tidy(self, life: int) -> None:
        """Remove the directories of former lives."""
        await lives.remove_older(self._directory, life)

    async def close(self) -> None:
        """Do nothing: nothing was opened here."""


async def begin_life(
    config: BrokerConfig,
    seams: Seams,
    directory: SharedDirectory,
    node_id: str,
    require: Callable[[], None],
) -> Inherited:
    """Make the directory of a new life, from that of the latest complete one.

    The new one is complete once its journal could be read.

    Raises StartError for a damaged journal, OSError, and whatever ``require`` raises.
    """
    life = await lives.begin(directory, require)
    try:
        options = opening_options(config, seams)
        journal, recovered = await Journal.open(directory, lives.directory(life), options)
    except JournalError as error:
        raise StartError(f"{config.data_path}: {error}") from error
    try:
        require()
        await lives.complete(directory, life, node_id)
        require()
    except BaseException:
        await journal.close()
        raise
    return Inherited(life, node_id, journal, recovered)


async def without_a_mark(directory: SharedDirectory, section: SharedStoreRole) -> str | None:
    """Return the node ID if the lock file has none: None for a new store.

    Otherwise the lock file was lost, and the data have the node ID.

    Then a broker may still hold the lock of the lost file; it learns of the loss when it next asks
    (AMQ-4705). So this waits for the end of that broker's lease.
    """
    known = await lives.node_id_of(directory, await lives.latest(directory))
    if known is not None:
        wait_s = section.lock_expiration / 1000
        _log.warning(
            "the store's lock file was lost: waiting %g s, because a broker may still hold the old lock",
            wait_s,
        )
        await asyncio.sleep(wait_s)
    return known


def _own(lock: HeldLock) -> SharedLock:
    """Return a lock that our own lock file has granted."""
    return cast("SharedLock", lock)
