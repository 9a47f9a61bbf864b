"""The tasks of the groups in which brokers find each other, by multicast or by files."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from broker.cluster import messages as m
from broker.cluster.broadcast import (
    Broadcast,
    Broadcaster,
    GroupTask,
    MulticastBroadcaster,
    MulticastListener,
)
from broker.cluster.discovery import Discovery
from broker.cluster.file_ping import FileBroadcaster, FileListener
from broker.cluster.neighbours import Neighbours
from broker.config import BrokerConfig
from broker.seams import Seams, SharedFiles
from broker.section import ClusterSection
from broker.sections import GroupSection

_log = logging.getLogger(__name__)


class Groups:
    """Makes the tasks of a broker's groups.

    ``own`` returns how this broker introduces itself at this moment.
    """

    def __init__(
        self, config: BrokerConfig, section: ClusterSection, seams: Seams, own: Callable[[], m.Member]
    ) -> None:
        self._config = config
        self._seams = seams
        self._own = own
        self._retry_s = section.max_retry_interval / 1000

    def broadcasters(self) -> list[Broadcaster]:
        """Return a broadcaster for each group of ``broadcast-groups``."""
        own, numbers, retry_s = self._own, itertools.count(), self._retry_s
        return [
            FileBroadcaster(group, self._directory(group), own, numbers, retry_s)
            if group.jgroups_file
            else MulticastBroadcaster(group, self._seams.open_multicast, own, numbers, retry_s)
            for group in self._config.broadcast_groups
        ]

    def discovery(self, neighbours: Neighbours) -> Discovery | None:
        """Return the discovery of ``cluster.discovery-group-ref``; None without one."""
        group = self._config.discovery_group
        if group is None:
            return None
        if all(other.place != group.place for other in self._config.broadcast_groups):
            _log.warning(
                "discovery-groups of %r: this broker has no group of broadcast-groups in the same place, so "
                "brokers that look for others there do not find it",
                group.name,
            )

        def listen(hear: Callable[[Broadcast], None]) -> GroupTask:
            if group.jgroups_file:
                return FileListener(group, self._directory(group), hear, self._retry_s)
            return MulticastListener(group, self._seams.open_multicast, hear, self._retry_s)

        return Discovery(group.refresh_timeout / 1000, neighbours, self._own, listen)

    def _directory(self, group: GroupSection) -> SharedFiles:
        assert self._seams.open_directory is not None, "no directories here"
        return self._seams.open_directory(self._config.directory_of(group))
