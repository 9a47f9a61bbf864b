"""Failover and verdict time as a user sees them.

Kill -9 of a live under load to the first send that its backup answers, and the last operation to
the printed verdict.

Beside a baseline in the same minutes: the same kill of a broker without a backup, restarted at once
(what a failover saves), and a plain count of the same history by the same Spark (what a verdict
costs at the least). ``python bench/failover.py [--runs 5]``.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

from checkers import api
from harness.history import parquet
from harness.interface import Fault, Schedule, TestSpec
from harness.run import session
from harness.run.compose import compose

FAILOVER_BAR_S = 1.0
VERDICT_BAR_S = 2.0


def once(
    spark: api.Starting, policy: str, kill: Fault, store: Path, seconds: float, number: int
) -> tuple[float, float, Path]:
    """One run with one kill: (pause, time to verdict, directory).

    The longest pause of sends around the kill, from the last operation to the verdict, both in
    seconds, and the run's directory.
    """
    spec = TestSpec(
        name=f"failover-{policy}",
        policy=policy,
        pairs=1,
        environment="local",
        rate=300,
        producers=4,
        time_limit_s=seconds,
        seed=number,
    )
    outcome = session.execute(compose(spec, Schedule(faults=(kill,))), store, io.StringIO(), spark=spark)
    assert outcome.verdict is not None
    assert outcome.verdict.valid, outcome.verdict.reasons
    fault = outcome.verdict.statistics.faults[0]
    assert fault.recovery_s is not None
    assert outcome.judged_s is not None
    return fault.recovery_s, outcome.judged_s, outcome.store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "bench-failover")
    arguments = parser.parse_args()
    spark = api.start_in_background()
    failovers, restarts, verdicts, counts = [], [], [], []
    for number in range(arguments.runs):
        pause, verdict, directory = once(
            spark,
            "replication",
            Fault(kind="kill", start_s=3.0, duration_s=2.0, target="live"),
            arguments.store,
            arguments.seconds,
            number,
        )
        failovers.append(pause)
        verdicts.append(verdict)
        began = time.perf_counter()
        spark.result().read.parquet(str(directory / parquet.DIRECTORY)).count()
        counts.append(time.perf_counter() - began)
        restarts.append(
            once(
                spark,
                "standalone",
                Fault(kind="kill", start_s=3.0, duration_s=0.1, target="a1"),
                arguments.store,
                arguments.seconds,
                number,
            )[0]
        )
    print("what                                  median     least      most    bar")
    for name, values, bar in (
        ("kill to first ok on the backup, s", failovers, FAILOVER_BAR_S),
        ("  baseline: restart, no backup, s", restarts, None),
        ("last operation to verdict, s", verdicts, VERDICT_BAR_S),
        ("  baseline: Spark counts the rows, s", counts, None),
    ):
        middle = statistics.median(values)
        met = "" if bar is None else f"{bar:g} {'met' if middle < bar else 'NOT MET'}"
        print(f"{name:<36}{middle:>8.3f}  {min(values):>8.3f}  {max(values):>8.3f}    {met}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
