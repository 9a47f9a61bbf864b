"""A probe of one broker: who it is now, and what its role is.

Why: a process that was stopped for a while, or whose connection broke, should ask before it assumes
the worst. A probe can only ever keep a broker from becoming or staying live; it never overrides a
vote.
"""

from __future__ import annotations

from broker.cluster import messages as m
from broker.cluster.link import LinkError, connect
from broker.cluster.membership import Membership
from broker.seams import Seams

PROBE_S = 0.3
"""The time-out of a probe.

A broker that is well answers within milliseconds, and a takeover waits meanwhile.
"""

PROBE_STALLED_S = 3.0
"""The time-out of a probe after we ourselves did not run for a while.

On such a machine the other broker may need its time, too, and must not be taken for gone.
"""


async def probe(
    membership: Membership, seams: Seams, connector: str, *, stalled: bool = False
) -> m.Member | None:
    """Return the broker that answers at that address; None if none answers in time.

    ``stalled`` says that we did not run ourselves.
    """
    timeout_s = PROBE_STALLED_S if stalled else PROBE_S
    try:
        link = await connect(
            membership.neighbours.terms, seams.resolve(connector), "probe", timeout_s=timeout_s
        )
    except (LinkError, OSError, TimeoutError, ValueError):
        return None
    member = link.member
    link.close("probed")
    return member
