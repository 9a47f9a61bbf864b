"""The refuters of the rows about the membership of a conventional cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import Refuter, without

_NEIGHBOURS: Final = "broker/cluster/neighbours.py"
_SECTION: Final = "broker/ha_policy/conventional.py"
_LISTED: Final = "a1 says it once of each link"


def _uncompared(name: str, value: str) -> Refuter:
    """Return the refuter under which brokers do not compare a property of the policy."""
    key = f'f"{{section}}.{name}": '
    return without(f"brokers do not compare the {name}", _SECTION, key + value, key + '""', fails=_LISTED)


REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV7-list": _uncompared("broker-list", '", ".join(sorted(set(self.broker_list)))'),
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
