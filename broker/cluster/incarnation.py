"""The incarnation number.

It tells which of two starts of one broker is the later (as in SWIM's suspicion of members).

Why a number that each start writes down and not the clock: a clock may be set back between two
starts. Then what others still tell of the former life would count as news of the present one (bug
36). The clock still gives the least value, so that a broker whose disk was replaced does not look
like an older one.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.seams import Seams
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)

FILE: Final = "incarnation"


async def next_incarnation(volume: Volume | None, seams: Seams) -> int:
    """Return a number larger than that of every earlier start on this volume.

    It is the microseconds since the epoch, or one more than the last number if the clock says less.

    Without a volume of its own (a broker on a shared store) the clock alone decides. The number is
    durable when this returns. Raises OSError.
    """
    now = int(seams.wall_clock() * 1_000_000)
    if volume is None:
        return now
    last = 0
    if await volume.exists(FILE):
        kept = (await volume.read(FILE)).strip()
        if kept.isdigit():
            last = int(kept)
        else:
            _log.warning(
                "the file %s in the data directory contains %r instead of a number; this start takes its "
                "number from the clock",
                FILE,
                kept[:40],
            )
    number = max(now, last + 1)
    await volume.write_atomic(FILE, b"%d\n" % number)
    return number
