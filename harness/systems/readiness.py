"""The condition that a cluster is as planned, for brokers that serve in pairs or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.interface import NodePlan, Status


def lacking(nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
    """Return the pairs that lack a live or, with more than one node, an up-to-date backup.

    It is ``System.lacking`` of several systems.
    """
    pairs: dict[str, list[str]] = {}
    for node in nodes:
        if node.broker:
            pairs.setdefault(node.pair, []).append(node.name)
    missing = {}
    for pair, names in pairs.items():
        present = [statuses[name] for name in names if name in statuses]
        if not any(status.serves for status in present):
            missing[names[0]] = f"pair {pair} has no live broker"
        elif len(names) > 1 and not any(status.could_take_over for status in present):
            missing[names[-1]] = f"pair {pair} has no up-to-date backup"
    return missing
