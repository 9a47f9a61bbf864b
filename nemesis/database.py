"""Faults of the database that brokers share: database-stall, database-restart, database-disconnect.

Why three: a server that stands still does later what it was asked, when no broker waits for that
any more. A server that restarts drops every connection and keeps every commit. After a connection
that is lost at the wrong moment, a broker does not know whether its commit happened. Brokers must
wait, step down or look, and never guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, NodePlan
from nemesis.kind import PAIR, Impact, Option, Situation, probability
from nemesis.node import NodeKind

DATABASE: Final = "database"
CHANCE_DEFAULT: Final = 0.5
COMMITTED_DEFAULT: Final = 0.5


class DatabaseKind(NodeKind):
    """A kind of fault of a test's database."""

    part = DATABASE
    default_target = "all"

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: a database that the environment can break."""
        types = {node.database.type for node in nodes if node.database is not None}
        if not types:
            return (
                "no broker of this test keeps its messages in a database: use --policy ha-database,"
                " or --policy shared-store --set store:type=database"
            )
        if "sqlite" in types:
            return (
                "the database of this test is a file, which no fault can stop: use --set "
                "database:type=postgresql"
            )
        if "given" in types:
            return (
                "the database of this test is a server of yours, which is not broken: leave "
                "database-store.url out"
            )
        return ""


class DatabaseServerKind(DatabaseKind):
    """A kind of fault of the database server itself: it hits all brokers, whatever the target."""

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose all nodes, whatever the target: none of them has a database of its own."""
        del fault
        return Impact("the database", nodes=situation.names, part=self.part)


class DatabaseStall(DatabaseServerKind):
    """A database server that stands still, as on a machine that swaps or is migrated."""

    name = "database-stall"
    description = "the database stalls; it handles waiting requests afterwards"
    primitives = ("database-stall",)
    seen_as = "stalled"


class DatabaseRestart(DatabaseServerKind):
    """A database server that crashes and comes back: it loses its connections, not its commits."""

    name = "database-restart"
    description = "the database is down until the fault ends; it loses connections, but no commits"
    primitives = ("database-restart",)
    seen_as = "down"


def _share(value: Any) -> str:
    return (
        ""
        if (value == 0 and not isinstance(value, bool)) or not probability(value)
        else "a number from 0 to 1"
    )


class DatabaseDisconnect(DatabaseKind):
    """Connections to the database that break while a transaction is under way.

    By default half of these transactions have been committed, and brokers are not told which.
    """

    name = "database-disconnect"
    description = "brokers' transactions lose their connection, half of them after the commit"
    primitives = ("database-disconnect",)
    seen_as = "severed"
    default_target = "one"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "chance": Option(
            f"of each transaction, {CHANCE_DEFAULT:g} by default", probability, drawn=(0.1, 1.0)
        ),
        "committed": Option(
            f"how many of those that lose their connection happen all the same, {COMMITTED_DEFAULT:g} "
            "by default; with chance 1 and"
            " committed 0 a broker is cut off",
            _share,
            drawn=(0.0, 1.0),
        ),
    }
