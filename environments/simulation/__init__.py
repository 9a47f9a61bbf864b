"""Machines, a network, disks and clocks in one process, on virtual time.

One seed gives one history, byte for byte.
"""

from environments.link_condition import LinkCondition, combine
from environments.simulation.errors import DeadlockError, EndlessRunError, ForbiddenCallError, StallError
from environments.simulation.trace import first_difference
from environments.simulation.world import HARNESS, World

__all__ = [
    "HARNESS",
    "DeadlockError",
    "EndlessRunError",
    "ForbiddenCallError",
    "LinkCondition",
    "StallError",
    "World",
    "combine",
    "first_difference",
]
