"""The watch over other brokers: suspicion, confirmation in the store, takeover.

    suspected   its cluster link has been silent for ``heartbeat-threshold`` intervals, or it says
                itself that it does not serve
    confirmed   its row in the store has not changed in ``monitor-threshold`` looks, one each
                ``monitor-interval``, and the database says that it has been silent for longer than
                ``lock-expiration``
    taken over  one compare-and-set that names what was read; of several takers one succeeds, and a
                victim that has shown life meanwhile stays

Why both signs: links are silent in a partition though the broker serves, and the store is silent
for all while the database restarts. Each look at the store reads all rows. So it finds brokers
which died before any other had a link to them, and takeovers whose taker died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from broker.cluster.membership import Membership
from broker.ha_policy import HaDatabaseSection
from broker.storage.database import DatabaseError
from broker.storage.database.registry import BrokerRow, Registered, Registry, RowChangedError
from broker.storage.database.schema import (
    RUNNING,
    SHUTDOWN_FAILOVER,
    TAKEOVER_STARTED,
)

_log = logging.getLogger(__name__)


class MemberWatch:
    """Looks at the store while it is asked for the ``next_victim``.

    Args:
        section: [ha-policy.ha-database].
        registry: the store.
        registered: who we are.
        membership: the links.
        on_rows: told of all rows, and of who owns which store session, after each look.
    """

    def __init__(
        self,
        section: HaDatabaseSection,
        registry: Registry,
        registered: Registered,
        membership: Membership,
        on_rows: Callable[[Sequence[BrokerRow], Mapping[int, str]], None],
    ) -> None:
        self._section = section
        self._registry = registry
        self._registered = registered
        self._membership = membership
        self._on_rows = on_rows
        self._seen: dict[str, tuple[tuple[int, int], int]] = {}
        """Broker -> (epoch and heartbeat, how many looks have found them so)."""
        self._heard: dict[str, float] = {}
        self._brokers: Mapping[str, BrokerRow] = {}
        """All brokers, as the last look has found them."""

    async def next_victim(self) -> BrokerRow:
        """Return the row of a broker whose takeover has begun and is ours to complete.

        Raises ReplacedError.
        """
        interval_s = self._section.monitor_interval / 1000
        blind = False
        while True:
            try:
                rows, owners = await self._registry.cluster()
                self._on_rows(rows, owners)
                self._brokers = {row.broker_id: row for row in rows}
                blind = False
                for row in rows:
                    if row.broker_id != self._registry.broker_id:
                        begun = await self._consider(row)
                        if begun is not None:
                            return begun
            except DatabaseError as error:
                if not blind:
                    blind = True
                    _log.warning(
                        "ha-database: cannot read the states of the brokers: %s; trying again", error
                    )
                self._seen.clear()
            await asyncio.sleep(interval_s)

    async def _consider(self, row: BrokerRow) -> BrokerRow | None:
        if self._ours(row):
            return row
        if not self._confirmed(row):
            return None
        _log.warning(
            "ha-database: %s (%s) has been silent for %d ms: taking over",
            row.broker_id,
            row.state,
            row.silence_ms,
        )
        try:
            await self._registry.begin_takeover(self._registered, row)
        except RowChangedError as error:
            _log.info("ha-database: %s is not taken over: %s", row.broker_id, error)
            return None
        begun = await self._registry.row(row.broker_id)
        return begun if begun is not None and self._ours(begun) else None

    def _ours(self, row: BrokerRow) -> bool:
        """Return whether we have begun to take it over, even if we did not hear of our success."""
        return (
            row.state == TAKEOVER_STARTED
            and row.taker == self._registry.broker_id
            and row.taker_epoch == self._registered.epoch
        )

    def _confirmed(self, row: BrokerRow) -> bool:
        """Return whether it has failed, as far as others can tell; the compare-and-set decides."""
        sign = (row.epoch, row.heartbeat)
        before, looks = self._seen.get(row.broker_id, (sign, 0))
        looks = looks + 1 if before == sign else 1
        self._seen[row.broker_id] = sign, looks
        if row.state == SHUTDOWN_FAILOVER:
            return True
        if row.state != TAKEOVER_STARTED and row.state not in RUNNING:
            return False
        if looks < self._section.monitor_threshold + 1:
            return False
        if row.state == TAKEOVER_STARTED:
            # A broker that is being taken over does not renew its row itself: its taker does.
            taker = self._brokers.get(row.taker)
            return (
                taker is None
                or taker.epoch != row.taker_epoch
                or taker.silence_ms > self._registry.expiration_ms
            )
        return row.silence_ms > self._registry.expiration_ms and self.suspects(row.address)

    def suspects(self, address: str) -> bool:
        """Return whether the broker with this cluster address may be lost.

        Such a broker is silent on its link, or says that it does not serve.
        """
        now = asyncio.get_running_loop().time()
        patience_s = self._section.heartbeat_interval * self._section.heartbeat_threshold / 1000
        for member, link in self._membership.neighbours.linked():
            if member.connector == address:
                if member.live:
                    self._heard[address] = max(self._heard.get(address, 0.0), link.received)
                break
        heard = self._heard.get(address)
        return heard is None or now - heard > patience_s
