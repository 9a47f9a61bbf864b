"""The targets of faults: nodes by role, by count, or by name.

Roles are looked up when the fault begins, because that is what a person means by "kill the live":
the broker that is live then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.interface import Fault, NodePlan, UsageError
from nemesis.kind import CannotBeginError, Situation
from nemesis.near import near

_TARGETS: Final = {
    "live": "the live broker of one pair",
    "backup": "the backup broker of one pair",
    "lives": "every live broker",
    "backups": "every backup broker",
    "one": "any one broker",
    "minority": "as many brokers as leave a majority",
    "majority": "the fewest brokers that are more than half",
    "all": "every broker",
}

PARTS: Final = {
    "taker": "the broker that takes over, or asks to",
    "claimant": "the broker that is about to ask whether it may take over another",
    "source": "the live that a backup copies its data from",
}
"""The parts that a broker may play in a takeover, each with one line about it.

A part belongs to the broker that announced it last. The system under test defines the events that
announce it (``harness.interface.Event``).
"""

RIVALS: Final = "rivals"
MASTER: Final = "master-broker"

TARGETS: Final = {
    **_TARGETS,
    **PARTS,
    RIVALS: "every live broker but the claimant",
    MASTER: "the master broker of a conventional cluster",
}
"""The words for targets, each with one line about it.

A target may also be names of nodes, separated by commas.
"""

_ROLES: Final = {"live": "live", "lives": "live", "backup": "backup", "backups": "backup"}

ROLE_TARGETS: Final = frozenset({*_ROLES, RIVALS})
"""The targets that need the roles of brokers."""


def count_of(target: str, nodes: int) -> int:
    """Return how many of ``nodes`` nodes "one", "minority", "majority" or "all" are."""
    return {"one": 1, "minority": (nodes - 1) // 2, "majority": nodes // 2 + 1, "all": nodes}[target]


def names_in(target: str) -> list[str]:
    """Return the names of a target that lists nodes."""
    return [name.strip() for name in target.split(",")]


def validate_target(target: str, nodes: Sequence[NodePlan], pair: str | None = None) -> None:
    """Check that a target is a word of TARGETS or a list of nodes, and hits something.

    Raises UsageError if not.
    """
    here = [node for node in nodes if node.broker and pair in (None, node.pair)]
    if target == MASTER:
        if not any(node.master for node in here):
            raise UsageError(f'target "{target}": no node is the master broker of this cluster (--master)')
        return
    if target in TARGETS:
        if target not in (*_ROLES, *PARTS, RIVALS) and count_of(target, len(here)) < 1:
            raise UsageError(f'target "{target}": {len(here)} nodes have no {target}')
        return
    known = [node.name for node in nodes]
    names = names_in(target)
    if len(set(names)) != len(names):
        raise UsageError(f'target "{target}" names a node twice')
    for name in names:
        if name not in known:
            raise UsageError(f'unknown target "{name}": {near(name, [*TARGETS, *known])}')


def resolve_target(fault: Fault, default: str, situation: Situation) -> tuple[str, ...]:
    """Return the nodes that a fault hits now, in the order of the plan.

    Raises CannotBeginError when no broker has the role.
    """
    target = fault.target or default
    pair = fault.options.get("pair")
    here = [node.name for node in situation.nodes if node.broker and pair in (None, node.pair)]
    if target in _ROLES:
        role = _ROLES[target]
        found = situation.having(role, pair)
        if not found:
            raise CannotBeginError(f"no broker{f' of pair {pair}' if pair else ''} is {role} now")
        return tuple(found) if target.endswith("s") else (situation.random.choice(found),)
    if target in PARTS:
        player = situation.parts.get(target)
        if player is None or (here and player not in here):
            raise CannotBeginError(f"no broker{f' of pair {pair}' if pair else ''} is known as {target} now")
        return (player,)
    if target == MASTER:
        return tuple(node.name for node in situation.nodes if node.master)
    if target == RIVALS:
        found = [name for name in situation.having("live", pair) if name != situation.parts.get("claimant")]
        if "claimant" not in situation.parts or not found:
            raise CannotBeginError("no broker is known as claimant now, or no other is live")
        return tuple(found)
    if target in TARGETS:
        chosen = set(situation.random.sample(here, count_of(target, len(here))))
        return tuple(name for name in here if name in chosen)
    return tuple(names_in(target))
