"""The public face of the checkers and nothing else.

    verdict = check([store / "history"], CheckOptions(guarantee="at-least-once"))

in this process; or by Spark, for a history of many millions of rows, with ``start()`` as its third
argument.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from checkers.judge import HERE_ROWS, HistoryError, check, rows_of
from checkers.starting import Starting
from checkers.verdict import (
    CheckOptions,
    FaultRecovery,
    Finding,
    Latency,
    LongestPause,
    Severity,
    Statistics,
    Verdict,
    Witness,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(master: str | None = None) -> SparkSession:
    """Return the Spark session of this process, started if needed (``checkers.session.start``)."""
    from checkers import session  # noqa: PLC0415 - imports Spark, which small histories do without

    return session.start(master)


def stop(*, at_once: bool = False) -> None:
    """Stop Spark (``checkers.session.stop``); do nothing where Spark was never started."""
    session = sys.modules.get("checkers.session")
    if session is not None:
        session.stop(at_once=at_once)


def start_in_background(master: str | None = None, *, wanted: bool = False) -> Starting:
    """Return a session that starts in a thread.

    It starts now if ``wanted`` is true or a master is named, else when its result is asked for.
    """
    return Starting(master, wanted=wanted)


__all__ = [
    "HERE_ROWS",
    "CheckOptions",
    "FaultRecovery",
    "Finding",
    "HistoryError",
    "Latency",
    "LongestPause",
    "Severity",
    "Starting",
    "Statistics",
    "Verdict",
    "Witness",
    "check",
    "rows_of",
    "start",
    "start_in_background",
    "stop",
]
