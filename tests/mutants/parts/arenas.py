"""The arenas that mutants share: clusters, loads and kinds of faults, nothing that knows a bug."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Arena

BROKERS: Final = ("partition", "kill", "pause", "stop")
"""What happens to clusters."""

THREE_PAIRS: Final = Arena(BROKERS)
"""Three pairs, both votes on: where the documents promise that nothing is lost and nobody is live twice."""

THREE_PAIRS_SLOW: Final = Arena((*BROKERS, "slow", "stall"))

ONE_PAIR: Final = Arena(("kill", "pause", "stop"), {"pairs": 1})
"""One pair, without partitions: those it cannot survive, as documented (RP4)."""

FORWARDING: Final = Arena(BROKERS, {"workload": "queue", "ordered": False})
"""Messages without groups, which brokers forward to each other."""

DISK: Final = Arena(("kill", "power-loss", "disk-slow"), {"policy": "standalone", "pairs": 1, "rate": 150.0})
"""One broker and its disk."""
