"""The refuters of the rows about the membership of a conventional cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import Refuter, without

_NEIGHBOURS: Final = "broker/cluster/neighbours.py"
_RELOADING: Final = "broker/policies/conventional/reloading.py"
_SECTION: Final = "broker/ha_policy/conventional.py"
_LISTED: Final = "a1 says it once of each link"


_LIST: Final = '", ".join(sorted(set(self.broker_list)))'


def _uncompared(name: str, value: str, *, fails: str = _LISTED) -> Refuter:
    """Return the refuter under which brokers do not compare a property of the policy."""
    key = f'f"{{section}}.{name}": '
    return without(f"brokers do not compare the {name}", _SECTION, key + value, key + '""', fails=fails)


REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV7-list": _uncompared("broker-list", _LIST),
    "CV7-master": _uncompared("master-broker", "self.master_broker"),
    "CV7-id": _uncompared("cluster-id", "self.cluster_id"),
    "CV7-version": without(
        "brokers do not compare their versions",
        _NEIGHBOURS,
        "return loopback or version_problem(",
        'return loopback or "" and version_problem(',
        fails=_LISTED,
    ),
    "CV7-loopback": without(
        "no address counts as a loopback address",
        "broker/cluster/broker_list.py",
        "return bool((mapped or address).is_loopback)",
        "return False",
        fails="127.0.0.1: b1 has ended",
    ),
    "CV9-grow": without(
        "a reload reaches one broker only",
        _RELOADING,
        "        if section.cluster_file:\n            links = {",
        "        if False:\n            links = {",
        fails="b1 has read the file",
    ),
    "CV9-edited": _uncompared("broker-list", _LIST, fails="whom d1 is linked with"),
    "CV9-shrink": without(
        "a reload keeps the links with brokers that are no longer listed",
        _NEIGHBOURS,
        "for address in sorted(removed):",
        "for address in ():",
        fails="whom c1 is linked with",
    ),
    "CV19-reload": without(
        "a reload does not read broker.toml again",
        _RELOADING,
        "config = await self._read()",
        "config = self._config",
        fails="the list of a1",
    ),
    "CV19-restart": _uncompared("broker-list", _LIST, fails="whom c1 is linked with"),
    "CV18-family": without(
        "brokers do not compare their policies",
        "broker/ha_policy/__init__.py",
        'return {"ha-policy": section.family, **section.shared}',
        "return section.shared",
        fails=_LISTED,
    ),
    "CV18-property": without(
        "brokers do not compare the name of the cluster",
        _NEIGHBOURS,
        'return {"cluster.name": section.name, **hops}',
        "return hops",
        fails=_LISTED,
    ),
}
