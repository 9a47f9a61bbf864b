"""What becomes of a shared store whose file server stands still.

Shorter than anybody's patience, longer than it, longer than the lease.

Why a table and not a test: whether a backup takes over depends on where in its renewal a live is
hit and how busy the machine is; what may never depend on it is the verdict. Each run hits the live
at another moment (drawn by its seed), on each environment the same moments.

    python bench/nfs_stalls.py [--environments docker,local,simulation] [--runs 10] [--cases 1,4]
    [--store DIRECTORY]

Columns: the environment; the fault and its length; the mount; runs; verdicts; in how many runs the
backup became live; the time without an acknowledged send, median and worst.
"""

from __future__ import annotations

import argparse
import collections
import io
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from checkers import api
from checkers.schema import HARNESS, MONITOR
from harness.claims import runner
from harness.interface import Fault, Schedule, TestSpec
from harness.run import session
from harness.run.compose import compose


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    kind: str
    seconds: float
    why: str
    mount: str = "hard"
    target: str = "a1"


CASES = (
    Case("nfs-stall", 1.5, "shorter than the live's patience"),
    Case("nfs-stall", 3.0, "longer than its patience and the mount's time-out", "soft,timeo=5,retrans=2"),
    Case("nfs-stall", 3.0, "longer than its patience, shorter than the lease"),
    Case("nfs-stall", 6.0, "longer than the lease"),
    Case("nfs-disconnect", 6.0, "the live alone, longer than the lease"),
    Case("nfs-restart", 2.0, "down, then a grace period"),
)


@dataclass
class Tally:
    """What the runs of one case came to."""

    verdicts: list[str] = field(default_factory=list)
    takeovers: int = 0
    unavailable_s: list[float] = field(default_factory=list)


def specification(case: Case, environment: str, seed: int) -> tuple[TestSpec, Schedule]:
    """The specification and schedule of one run.

    The fault begins within the fourth second and lasts within a tenth of its length, as the seed
    has it.
    """
    chance = random.Random(f"{case}:{seed}")
    fault = Fault(
        kind=case.kind,
        start_s=round(3.0 + chance.random(), 3),
        duration_s=round(case.seconds * (0.9 + 0.2 * chance.random()), 3),
        target=case.target,
    )
    spec = TestSpec(
        name=f"{environment}-{case.kind}-{case.seconds:g}s-{case.mount.partition(',')[0]}",
        policy="shared-store",
        environment=environment,
        pairs=1,
        time_limit_s=13.0,
        rate=100.0,
        producers=4,
        consumers=4,
        groups=6,
        seed=seed,
        properties={"store": {"mount-options": case.mount}},
    )
    return spec, Schedule(faults=(fault,))


def once(case: Case, environment: str, seed: int, root: Path, spark: api.Starting, tally: Tally) -> None:
    """One run into the tally."""
    spec, schedule = specification(case, environment, seed)
    outcome = session.execute(compose(spec, schedule), root, io.StringIO(), spark=spark)
    if outcome.verdict is None:
        raise SystemExit(f"interrupted, or a bug: {outcome.store}")
    verdict = outcome.verdict
    word = {True: "valid", False: "INVALID", None: "unknown"}[verdict.valid]
    tally.verdicts.append(word)
    if not verdict.valid:
        print(f"{word}: {outcome.store}: {'; '.join(verdict.reasons)}", file=sys.stderr, flush=True)
    tally.takeovers += took_over(outcome.store)
    for fault in verdict.statistics.faults:
        if fault.recovery_s is not None:
            tally.unavailable_s.append(fault.recovery_s)


def took_over(store: Path) -> bool:
    """Whether the backup was live before the load ended."""
    for row in runner.control_rows(store):
        if row["process"] == HARNESS and row["f"] == "phase" and row["value"] == "heal":
            return False
        if (
            row["process"] == MONITOR
            and row["f"] == "role"
            and row["broker"] == "a2"
            and row["role"] == "live"
        ):
            return True
    return False


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environments", default="docker,simulation")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--cases", default="", help="which rows, from 1; all, without a word")
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "bench-nfs-stalls")
    arguments = parser.parse_args()
    cases = [CASES[int(number) - 1] for number in arguments.cases.split(",") if number] or CASES
    spark = api.start_in_background()
    invalid = False
    print("| environment | fault | mount | runs | verdicts | takeovers | without a send, median and worst |")
    print("|---|---|---|---|---|---|---|")
    for environment in arguments.environments.split(","):
        for case in cases:
            tally = Tally()
            for seed in range(arguments.runs):
                once(case, environment, seed, arguments.store, spark, tally)
            counts = collections.Counter(tally.verdicts)
            verdicts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
            lost = tally.unavailable_s or [float("nan")]
            print(
                f"| {environment} | {case.kind} {case.seconds:g} s, {case.why} | {case.mount} | "
                f"{arguments.runs} | {verdicts} | "
                f"{tally.takeovers} | {statistics.median(lost):.1f} s, {max(lost):.1f} s |",
                flush=True,
            )
            invalid |= counts["INVALID"] > 0
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main())
