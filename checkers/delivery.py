"""What became of each message: lost, stuck, phantom, corrupted, aborted-delivery.

All five read one row of ``checkers.lifecycle`` and nothing else. With them go two counts that are no findings: messages delivered
more than once, and sends of unknown outcome that were delivered.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.instance import Tally
from checkers.lifecycle import Lives
from checkers.rows import NONE, Flags, Numbers

RECOVERED: Final = "~recovered"
REDELIVERED: Final = "~redelivered"


def find(lives: Lives, tally: Tally) -> None:
    """Tell all five, and the two counts.

    ``lost`` and ``stuck`` hold here for whatever was sent and not delivered; whether the history went far enough to say so is the judge's
    to decide.
    """
    known, sent, delivered = lives.message != NONE, lives.sent != NONE, lives.delivered != NONE
    missing = known & sent & (lives.ok != NONE) & ~delivered

    def say(name: str, where: Flags, index: Numbers, weight: Numbers | None = None) -> None:
        at = np.flatnonzero(where)
        if len(at):
            tally.add(
                name,
                lives.place[at],
                index[at],
                lives.message[at],
                weight=None if weight is None else weight[at],
            )

    say("lost", missing & ~lives.stored, lives.sent)
    say("stuck", missing & lives.stored, lives.sent)
    say("phantom", known & delivered & ~sent, lives.delivered)
    say("corrupted", (~known & delivered) | (known & sent & lives.damaged), lives.delivered)
    say("aborted-delivery", known & sent & delivered & lives.aborted, lives.delivered)
    say(RECOVERED, known & lives.recovered, lives.delivered)
    say(REDELIVERED, known & (lives.deliveries > 1), lives.delivered, lives.deliveries - 1)
