"""The plan of a test's database from its spec: ``--set database:type=postgresql``.

Why under the name of a node: the database is a machine of the test like a broker, and its
properties are given, stored and replayed with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.interface import DATABASE, Address, DatabasePlan, TestSpec, UsageError
from harness.interface.errors import near

NAME: Final = "database"

TYPE: Final = "type"
TYPES: Final = ("postgresql", "server", "sqlite")
"""The types that a person may ask for; without one the environment chooses.

"server" is not a file, whatever the environment has: the simulated world's own, else PostgreSQL.
"""

URL: Final = "database-store.url"


TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    # If all nodes share a host, it is one file next to their directories; a simulated world has a
    # server instead.
    URL: "sqlite:../../store.sqlite",
    "database-store.network-timeout": 1000,
}
"""The place of the database and the time it is waited for (milliseconds), by dotted name."""

DRAWN: Final[Mapping[str, tuple[Any, ...]]] = {
    "database-store.network-timeout": (300, 2000),
    "database-store.lock-expiration": (2800, 5000),
    "database-store.journal-sync-period": (0, 50),
}
"""The values that a search draws for brokers that share a database, by dotted name."""


def plan(spec: TestSpec) -> DatabasePlan:
    """Return the plan of the database that a test's brokers share.

    Raises UsageError that names the property.
    """
    assigned = spec.properties.get(NAME, {})
    for key in assigned:
        if key != TYPE:
            raise UsageError(f"--set {NAME}:{key}: unknown property: {near(key, (TYPE,))}")
    chosen = assigned.get(TYPE, "")
    if TYPE in assigned and chosen not in TYPES:
        raise UsageError(f"--set {NAME}:{TYPE}={chosen}: it must be {', '.join(TYPES[:-1])} or {TYPES[-1]}")
    urls = [str(properties[URL]) for name, properties in spec.properties.items() if URL in properties]
    if not urls:
        return DatabasePlan(type=chosen)
    if chosen:
        raise UsageError(
            f"--set {NAME}:{TYPE}={chosen}: this test has a {URL} of its own; leave one of them out"
        )
    return DatabasePlan(type="sqlite" if all(url.startswith("sqlite:") for url in urls) else "given")


def defaults(hosts: Mapping[str, Address]) -> dict[str, str]:
    """Return the broker's properties that name the environment's server, if it has made one.

    Credentials are in the broker's environment.
    """
    return {} if DATABASE not in hosts else {URL: f"postgresql://{hosts[DATABASE]}/postgres"}
