"""How many files and connections this process may have open, and how many of them are for clients.

Why some are kept back: every connection is an open file, and who may connect could take the last
one. Then the journal gets no new segment, and a broker that cannot write ends. Many systems allow a
process 1,024 until it asks for more.
"""

from __future__ import annotations

import resource
from typing import Final

KEPT_BACK: Final = 512
"""For the journal, pages, large messages, brokers of the cluster, and who connects to the other
ports; at most half of all.
"""


def for_clients() -> int:
    """Raises the limit of open files; returns how many connections clients may have together.

    The limit becomes the highest that the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - min(KEPT_BACK, hard // 2) if hard != resource.RLIM_INFINITY else 1 << 20
