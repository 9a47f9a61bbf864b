"""The public face of the checkers and nothing else.

spark = session.start()
verdict = check([store / "history"], CheckOptions(guarantee="at-least-once"), spark)
"""

from __future__ import annotations

from checkers.judge import HistoryError, check
from checkers.session import Starting, start, start_in_background, stop
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

__all__ = [
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
    "start",
    "start_in_background",
    "stop",
]
