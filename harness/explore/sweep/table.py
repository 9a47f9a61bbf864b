"""The table of a sweep: policy by nemesis by anomaly, how often, and how sure that is.

Why intervals: from twenty runs without a loss follows only that fewer than about one in six loses;
a table of bare percentages would hide that. The interval is Wilson's (E. B. Wilson, "Probable
inference, the law of succession, and statistical inference", JASA 22, 1927): it stays within 0 and
1 and is honest if nothing, or everything, was seen.

An anomaly is counted only in runs that could have shown it: runs that were judged, in which
something was sent and delivered and a fault was seen to take effect. Lost and stuck messages are
counted only if the stores were also read to the end. So a run whose end is unknown makes no rate
smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from checkers.anomaly import AT_END
from harness.explore.plans import Cell, SweepPlan
from harness.explore.runs import WORDS, ExploredRun
from harness.run.reproduction import ordered

if TYPE_CHECKING:
    from checkers.runs import RunVerdict

Z: Final = 1.959963984540054
"""The standard normal's quantile at 97.5 %: two sides of 95 %."""
ANY: Final = "any grave"


class Rate(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The share of the runs that could show an anomaly in which it was seen.

    ``rate`` is None if no run could; ``low`` and ``high`` bound it with 95 % confidence. ``known``
    says that the anomaly is accepted.
    """

    seen: int
    of: int
    rate: float | None
    low: float
    high: float
    grave: bool = False
    known: bool = False

    def described(self, name: str) -> str:
        """Return the anomaly's name and how it is to be taken."""
        if self.known:
            return f"{name} (known)" if self.seen else f"{name} (known, not seen)"
        return name if self.grave else f"{name} (allowed)"


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The row of one cell.

    ``bit`` is the number of runs in which a fault took effect; ``anomalies`` has ``ANY`` first,
    then all that any run of the sweep showed, and those that are accepted here.
    """

    policy: str
    nemesis: str
    release: str = ""
    runs: int
    valid: int
    invalid: int
    unknown: int
    crashed: int
    bit: int
    anomalies: dict[str, Rate]


class SweptRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The outcome of one run: how it ended, what was found and how often, why it is unknown.

    ``seed`` is its own, drawn from the sweep's; ``doubts`` are why it would be unknown if nothing
    had been found.
    """

    number: int
    cell: Cell
    ended: str  # "valid" | "invalid" | "unknown" | "crashed"
    findings: dict[str, int]
    grave: tuple[str, ...]
    trouble: str | None
    seed: int
    faults: int
    digest: str
    bit: bool = False
    exposed: bool = False
    complete: bool = False
    doubts: tuple[str, ...] = ()


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the bounds of a rate with 95 % confidence: Wilson's score interval.

    If nothing was tried, everything is possible: 0 to 1.
    """
    if not total:
        return 0.0, 1.0
    rate, square = count / total, Z * Z
    centre = (rate + square / (2 * total)) / (1 + square / total)
    half = Z / (1 + square / total) * math.sqrt(rate * (1 - rate) / total + square / (4 * total * total))
    # Exact at the ends, where rounding would leave a small difference from 0 or 1.
    return (0.0 if count == 0 else centre - half), (1.0 if count == total else centre + half)


def rate_of(count: int, total: int, *, grave: bool = False) -> Rate:
    """Return a rate with its interval."""
    low, high = wilson(count, total)
    return Rate(
        seen=count,
        of=total,
        rate=round(count / total, 6) if total else None,
        low=round(low, 6),
        high=round(high, 6),
        grave=grave,
    )


def run_of(plan: SweepPlan, record: ExploredRun, judged: RunVerdict | None, damage: str | None) -> SweptRun:
    """Return the outcome of a run from its file and its verdict (None: it could not be judged)."""
    ended, trouble = "unknown", damage or record.trouble
    if record.bug:
        ended, trouble = "crashed", record.bug
    elif judged is None:
        trouble = trouble or "nothing was recorded"
    else:
        ended, trouble = WORDS[judged.decision.valid], judged.decision.reason
    return SweptRun(
        number=record.number,
        cell=plan.cell(record.number),
        ended=ended,
        findings={name: judged.found[name].count for name in ordered(judged.found)} if judged else {},
        grave=ordered(judged.decision.grave) if judged else (),
        trouble=trouble,
        seed=record.spec.seed,
        faults=len(record.schedule.faults),
        digest=record.digest,
        bit=judged is not None and judged.bit,
        exposed=judged is not None
        and judged.bit
        and not judged.decision.empty
        and not judged.decision.unknown,
        complete=judged is not None and judged.decision.undecided is None,
        doubts=judged.decision.reasons if judged else (),
    )


def ended(runs: Sequence[SweptRun]) -> dict[str, int]:
    """Return how many runs ended in each way."""
    return {
        word: sum(run.ended == word for run in runs) for word in ("valid", "invalid", "unknown", "crashed")
    }


def rows(
    runs: Sequence[SweptRun],
    cells: Iterable[Cell],
    accepted: Callable[[Cell], Collection[str]] = lambda _: (),
) -> tuple[Row, ...]:
    """Return one row per cell, in order; ``accepted`` returns the anomalies accepted there."""
    grave = {name for run in runs for name in run.grave}
    kinds = {name for run in runs for name in run.findings}
    return tuple(
        _row(cell, [run for run in runs if run.cell == cell], kinds, grave, accepted(cell)) for cell in cells
    )


def _row(
    cell: Cell,
    runs: Sequence[SweptRun],
    kinds: set[str],
    grave: set[str],
    accepted: Collection[str],
) -> Row:
    exposed = [run for run in runs if run.exposed]
    anomalies = {ANY: rate_of(sum(bool(run.grave) for run in exposed), len(exposed), grave=True)}
    for name in ordered({*kinds, *accepted}):
        able = [run for run in exposed if run.complete] if name in AT_END else exposed
        count = sum(name in run.findings for run in able)
        rate = rate_of(count, len(able), grave=name in grave)
        is_allowed = name in kinds and name not in grave
        anomalies[name] = msgspec.structs.replace(rate, known=name in accepted and not is_allowed)
    return Row(
        policy=cell.policy,
        nemesis=cell.nemesis,
        release=cell.release,
        runs=len(runs),
        bit=sum(run.bit for run in runs),
        anomalies=anomalies,
        **ended(runs),
    )


_HEAD: Final = (
    "policy",
    "nemesis",
    "release",
    "runs",
    "bit",
    "unknown",
    "anomaly",
    "seen",
    "rate",
    "95 % interval",
)
_LEFT: Final = ("policy", "nemesis", "release", "anomaly")


def text(table: Sequence[Row]) -> str:
    """Return the table for a reader.

    Anomalies that a cell never showed are left out, except those that are accepted there and the
    line for any grave one; so is the column of releases if there are none.
    """
    lines = [_HEAD, *(line for row in table for line in _lines(row))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    has_releases = any(row.release for row in table)
    return "\n".join(
        "  ".join(
            value.ljust(width) if head in _LEFT else value.rjust(width)
            for value, width, head in zip(line, widths, _HEAD, strict=True)
            if has_releases or head != "release"
        ).rstrip()
        for line in lines
    )


def _lines(row: Row) -> Iterator[tuple[str, ...]]:
    lead: tuple[str, ...] = (
        row.policy,
        row.nemesis,
        row.release,
        str(row.runs),
        str(row.bit),
        str(row.unknown + row.crashed),
    )
    for name, rate in row.anomalies.items():
        if name != ANY and not rate.seen and not rate.known:
            continue
        yield (*lead, rate.described(name), f"{rate.seen}/{rate.of}", *_figures(rate))
        lead = ("",) * len(lead)


def _figures(rate: Rate) -> tuple[str, str]:
    if rate.rate is None:
        return "-", "-"
    return f"{rate.rate:.1%}", f"{rate.low:.1%} to {rate.high:.1%}"


def worst(runs: Sequence[SweptRun], most: int) -> list[SweptRun]:
    """Return invalid runs: the gravest cause first, then the fewest faults.

    There is one run for each policy, nemesis and cause; otherwise one bug would fill the list.
    """
    causes = ordered({name for run in runs for name in run.grave})
    invalid = sorted(
        (run for run in runs if run.ended == "invalid"),
        key=lambda run: (causes.index(run.grave[0]), run.faults, run.number),
    )
    first: Mapping[tuple[Cell, str], SweptRun] = {(run.cell, run.grave[0]): run for run in reversed(invalid)}
    return [run for run in invalid if first[run.cell, run.grave[0]] is run][:most]
