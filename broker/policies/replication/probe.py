"""A question to one broker, now: who are you, and what is your role?

Why: a process that was stopped for a while, or whose connection broke, should ask before it
believes the worst. A probe can only ever keep a broker from becoming or staying live; it never
overrides a vote.
"""

from __future__ import annotations

from broker.cluster import messages as m
from broker.cluster.link import LinkError, connect
from broker.cluster.membership import Membership
from broker.seams import Seams

PROBE_S = 0.3
"""How long a probe may take.

A broker that is well answers within milliseconds, and a takeover waits meanwhile.
"""

PROBE_STALLED_S = 3.0
"""The same where it is we who did not run for a while.

On such a machine the other may need its time too, and must not be taken for gone.
"""


async def probe(
    membership: Membership, seams: Seams, connector: str, *, stalled: bool = False
) -> m.Member | None:
    """Who answers at that address; None: nobody in time. ``stalled``: we did not run ourselves."""
    timeout_s = PROBE_STALLED_S if stalled else PROBE_S
    try:
        link = await connect(membership.terms, seams.resolve(connector), "probe", timeout_s=timeout_s)
    except (LinkError, OSError, TimeoutError, ValueError):
        return None
    member = link.member
    link.close("probed")
    return member
