"""The cluster file: properties that all brokers of a conventional cluster share (SUN).

In the document it is the file of imq.cluster.url. Each broker names it in its ``broker.toml``
(``ha-policy.conventional.cluster-file``), so that the list of brokers is kept in one place. It is
written as ``broker.toml`` is, and may have those properties only that are the same for all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from broker.sections import ConfigurationError

_POLICY: Final = "ha-policy.conventional."
LIST: Final = f"{_POLICY}broker-list"
SHARED: Final = (
    LIST,
    f"{_POLICY}master-broker",
    f"{_POLICY}cluster-id",
    "cluster.name",
    "cluster.ssl-enabled",
)
"""The properties that the file may have; a broker needs the list at least."""


def merged(
    table: Mapping[str, Any], path: str, read: Callable[[str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the table of a ``broker.toml`` with the properties of the cluster file it names.

    ``read`` returns the table of that file. Raises ConfigurationError, one line, for a property
    that the file may not have, and for one that has another value in the ``broker.toml``.
    """
    given = dict(_properties(table))
    name = given.get(f"{_POLICY}cluster-file")
    if not isinstance(name, str) or not name:
        return table
    shared = dict(_properties(read(name)))
    for key, value in shared.items():
        if key not in SHARED:
            raise ConfigurationError(
                f"{name}: {key} belongs into the broker.toml of each broker; a cluster file has "
                f"{', '.join(SHARED)}"
            )
        if key in given and given[key] != value:
            raise ConfigurationError(
                f"{path}: {key} is {given[key]!r}, and {value!r} in cluster file {name}: leave it out here"
            )
    if LIST not in {*given, *shared}:
        raise ConfigurationError(f"{name}: {LIST} is missing: it names the brokers of the cluster")
    result = _copied(table)
    for key, value in shared.items():
        *sections, last = key.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return result


def _properties(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each property."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _properties(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in table.items()}
