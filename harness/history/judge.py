"""The way from a stored run to its verdict, right after a run and at any time later.

Why from the store alone: ``jepsen-run check`` must say tomorrow what the run said today, and also
judge a run whose harness was killed. Trouble with the machine is in ``run.json``: it turns a
verdict that would be valid into unknown, and hides no finding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.history import store as stores
from harness.interface import InfrastructureError, TestSpec, UsageError

if TYPE_CHECKING:
    from checkers.verdict import Verdict

VALID, INVALID, UNKNOWN, INTERRUPTED, USAGE, INTERNAL = 0, 1, 2, 130, 254, 255
"""The exit statuses."""

WORDS = {
    VALID: "valid",
    INVALID: "invalid",
    UNKNOWN: "unknown",
    USAGE: "unusable",
    INTERNAL: "failed to be judged",
}

_START_S = {False: 1.0, True: 10.0}
"""The usual time until the first row is judged (s), in this process and on Spark."""
_ROWS_A_SECOND = 1_250_000
"""The rows that a core judges in a second, as measured in docs/results."""

_GRAVITY = (INVALID, INTERNAL, USAGE, UNKNOWN, INTERRUPTED, VALID)


def exit_status(valid: bool | None) -> int:
    """Return the exit status of a verdict: 0 valid, 1 invalid, 2 unknown."""
    return UNKNOWN if valid is None else VALID if valid else INVALID


def verdict_word(valid: bool | None) -> str:
    """Return "valid", "invalid" or "unknown"."""
    return WORDS[exit_status(valid)]


def gravest_status(statuses: list[int]) -> int:
    """Return the status of a batch: 1 before 255 before 254 before 2."""
    return min(statuses, key=_GRAVITY.index, default=VALID)


def usual_s(rows: int, *, on_spark: bool) -> float:
    """Return how long it usually takes to judge so many rows."""
    return _START_S[on_spark] + rows / _ROWS_A_SECOND


def judge(
    store: Path,
    spark: Callable[[], Any],
    spec: TestSpec | None = None,
    *,
    keep: bool = True,
    wanted: bool = False,
    tell: Callable[[str, float], None] | None = None,
    record: stores.RunRecord | None = None,
) -> Verdict:
    """Judge a stored run and write ``findings.json``.

    Nothing is written if the run is judged by another spec than its own.

    Args:
        store: its directory; a history that was cut off is recovered first.
        spark: gives the session; called only when there is a history to judge that needs it.
        spec: what was promised, if it is not what ``spec.json`` says.
        keep: whether anything may be written there; else a cut-off history is not recovered.
        wanted: judge on Spark, whatever the size of the history.
        tell: is called with a line that says where the history is judged, and how long (s) that
            usually takes.
        record: how the run went, if the caller knows more than ``run.json``, which a full disk may
            have kept from being written.

    Raises:
        UsageError: no history there, or an unreadable one: the line names file, row and cause.
        InfrastructureError: no space, or no Java to run Spark on.
    """
    from checkers import api  # noqa: PLC0415 - imports Arrow, which most commands do without
    from checkers.java import GatewayError, NoJavaError  # noqa: PLC0415 - as above
    from harness.history.plain_judge import options_of  # noqa: PLC0415 - as above
    from harness.history.recorder import recover  # noqa: PLC0415 - as above

    if record is None:
        record = stores.load_run(store)
    if record.state == "running" and record.alive():
        raise UsageError(f"{store}: this run is still running; wait for its end or stop it")
    recover(store, keep=keep)
    changed = spec is not None
    spec = spec or stores.load_spec(store)
    options = options_of(spec, stores.load_schedule(store), trouble_of(record), record.release(spec))
    try:
        paths = [store / stores.HISTORY]
        rows = api.rows_of(paths)
        big = wanted or rows > api.HERE_ROWS
        if tell is not None:
            where = "on Spark" if big else "in this process (--spark-master judges on Spark)"
            tell(f"judging {rows:,} rows {where}", usual_s(rows, on_spark=big))
        verdict = api.check(paths, options, spark() if big else None)
    except api.HistoryError as error:
        raise UsageError(str(error)) from error
    except (NoJavaError, GatewayError) as error:
        raise InfrastructureError(str(error)) from error
    if keep and not changed:
        _save(store, verdict)
    return verdict


def undecided(store: Path, spec: TestSpec, reason: str, trouble: str | None) -> Verdict:
    """Return the verdict of a run that cannot be judged, and write it into ``findings.json``.

    ``trouble`` is what the machine spoiled in the run, and becomes the first reason. It is not read
    from the store, because a full disk may have kept it from being written there.
    """
    from checkers.verdict import Verdict  # noqa: PLC0415 - as above

    reasons = tuple(dict.fromkeys(filter(None, (trouble, reason))))
    verdict = Verdict(valid=None, reasons=reasons, guarantee=spec.guarantee, ordered=spec.ordered)
    _save(store, verdict)
    return verdict


def _save(store: Path, verdict: Verdict) -> None:
    """Write a verdict into the store; print an error if that fails.

    A verdict that cannot be written is still a verdict.
    """
    path = store / f".{stores.FINDINGS}.new"
    try:
        path.write_bytes(verdict.to_json())
        path.replace(store / stores.FINDINGS)
    except OSError as error:
        print(f"{store / stores.FINDINGS} was not written: {error}", file=sys.stderr)


def trouble_of(record: stores.RunRecord) -> str | None:
    """Return why a run's verdict cannot be valid, whatever its history says.

    None if it went to its end.
    """
    if record.trouble is not None:
        return record.trouble
    if record.state == "interrupted":
        return "the run was interrupted: what came after was not recorded"
    if record.state == "running":
        return "the run was killed: what came after was not recorded"
    return None
