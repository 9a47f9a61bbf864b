"""``brokerctl reload cls``: the list of brokers is read again while brokers serve (SUN).

Why links of brokers that stay go on: lists are compared in the handshake only, so that brokers
whose lists differ for the moments of a reload do not lose each other. Those that differ and are not
linked refuse each other until both have read the new list.

With a cluster file the broker that is asked tells all others that are linked to read theirs. A
broker that is not linked is not told: it reads the file when it starts, or an administrator asks
it, too. Without a cluster file each broker has a list of its own, and each must be asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.membership import Membership
from broker.cluster_file import LIST
from broker.config import BrokerConfig, ConfigurationError
from broker.policies.policy import RequestRefusedError

_log = logging.getLogger(__name__)


class Reloading:
    """Reads the list of brokers again when an administrator or another broker asks for it.

    ``read`` returns the configuration as it is now; it raises ConfigurationError.
    """

    def __init__(
        self, config: BrokerConfig, membership: Membership, read: Callable[[], Awaitable[BrokerConfig]]
    ) -> None:
        self._config = config
        self._membership = membership
        self._read = read
        self._turn = asyncio.Lock()
        self._answering: set[asyncio.Task[None]] = set()
        membership.handlers[m.Reload] = self._take_request

    async def reload(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Read the list, and tell the others; the command "reload" of the admin port.

        Returns the list, and for each other broker of it why it has not read its own: "" if it has,
        None if it was not told.
        """
        try:
            section = await self._reread()
        except ConfigurationError as error:
            raise RequestRefusedError(str(error)) from None
        problems: dict[str, str | None] = dict.fromkeys(section.broker_list)
        problems.pop(self._membership.own.connector, None)
        if section.cluster_file:
            links = {
                member.connector: link
                for member, link in self._membership.neighbours.linked()
                if member.connector in problems
            }
            answers = await asyncio.gather(*(_tell(link) for link in links.values()))
            problems.update(zip(links, answers, strict=True))
        for address, problem in problems.items():
            if problem:
                _log.warning("conventional: %s has not read its list of brokers: %s", address, problem)
        return {"brokers": list(section.broker_list), "told": problems}

    async def _reread(self) -> Any:
        """Read the list and use it from now on; return the section. Raises ConfigurationError."""
        async with self._turn:
            config = await self._read()
            before, after = self._config.ha_policy, config.ha_policy
            if after.conventional is None or before.conventional is None:
                raise ConfigurationError(
                    f"{config.path}: ha-policy is {after.name}, and was conventional: restart the broker"
                )
            shared = _fixed(config)
            for name, value in _fixed(self._config).items():
                if shared[name] != value:
                    raise ConfigurationError(
                        f"{config.path}: {name} is {shared[name]!r}, and was {value!r}: stop all brokers of "
                        "the cluster, and start them again"
                    )
            self._use(before.conventional.broker_list, after.conventional.broker_list, after.shared)
            self._config = config
            return after.conventional

    def _use(self, before: tuple[str, ...], after: tuple[str, ...], shared: Mapping[str, str]) -> None:
        added, removed = (
            [*sorted({*some} - {*others})] for some, others in ((after, before), (before, after))
        )
        _log.info(
            "conventional: the list of brokers is read again; added: %s; removed: %s",
            ", ".join(added) or "none",
            ", ".join(removed) or "none",
        )
        connector = self._membership.own.connector
        others = tuple(address for address in after if address != connector)
        self._membership.relist(others, shared)

    def _take_request(self, link: ClusterLink, request: m.Reload) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(link, request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, link: ClusterLink, request: m.Reload) -> None:
        section = self._config.ha_policy.conventional
        assert section is not None, "the configuration has no table ha-policy.conventional"
        problem = ""
        if not section.cluster_file:
            problem = "it has no cluster-file: change its broker.toml, and reload there"
        else:
            try:
                await self._reread()
            except ConfigurationError as error:
                problem = str(error)
                _log.warning("conventional: the list of brokers is not read again: %s", problem)
        link.send(m.Reloaded(request.number, problem))


def _fixed(config: BrokerConfig) -> dict[str, object]:
    """Return the shared properties that no reload changes."""
    assert config.cluster is not None, "a conventional cluster without a [cluster] section"
    shared = {name: value for name, value in config.ha_policy.shared.items() if name != LIST}
    return {
        **shared,
        "cluster.name": config.cluster.name,
        "cluster.ssl-enabled": config.cluster.ssl_enabled,
    }


async def _tell(link: ClusterLink) -> str | None:
    """Tell a broker to read its list; return why it has not, or None if it does not answer."""
    try:
        answer = await link.call(m.Reload(link.number()))
    except (LinkError, TimeoutError):
        return None
    assert isinstance(answer, m.Reloaded), f"{type(answer).__name__} is no answer to Reload"
    return answer.problem
