"""Accepted findings: what a team knows of its brokers and does not want to be woken for again.

Why a file with a date and a reason for each: a nightly job that is red every night is read by
nobody. One that is silenced for ever hides the next fault of the same kind. So an entry names one
kind of finding of one system, says why it is accepted, and expires some day. The verdict is not
changed; only the exit status and how it is shown depend on the file. The meaning of each key is in
docs/how-to/nightly.md.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from checkers.anomaly import ANOMALIES
from checkers.verdict import NOT_JUDGED, Verdict
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import TestSpec, UsageError
from harness.interface.errors import converted, meant
from harness.interface.texts import toml_table

FILE: Final = "known.json"
"""The file, in the directory of a run, of what was known when the run was last judged."""

_CLAIM: Final = re.compile(r"[A-Z]{2}\d+(-[a-z0-9-]+)?")


class KnownFinding(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """An entry: findings of a kind, in tests of a system, are accepted until a day has passed.

    ``release`` is a pattern of the brokers' release ("2.56.*"); a release that is not known fits
    "*" alone. ``policy`` None is any; ``claim`` is a row of the claims ("RP14") or one of its
    scenarios ("RP14-true"), None any test; ``test`` is a pattern of the test's name.
    """

    kind: str
    system: str
    why: str
    until: dt.date
    release: str = "*"
    policy: str | None = None
    claim: str | None = None
    test: str = "*"

    def covers(self, spec: TestSpec, release: str = "") -> bool:
        """Return whether the entry applies to such a test of this release at all."""
        return (
            self.system == spec.system
            and fnmatchcase(release, self.release)
            and self.policy in (None, spec.policy)
            and (self.claim is None or self.claim.lower() in (spec.name, spec.name.partition("-")[0]))
            and fnmatchcase(spec.name, self.test)
        )

    def over(self, today: dt.date) -> bool:
        """Return whether the entry's last day has passed."""
        return today > self.until

    def __str__(self) -> str:
        more = [self.release] if self.release != "*" else []
        more += [condition for condition in (self.policy, self.claim) if condition]
        more += [self.test] if self.test != "*" else []
        return f"{self.kind} of {' '.join([self.system, *more])}"


class JudgedRun(NamedTuple):
    """A judged run: its spec, the names of what was found, and the release of its brokers."""

    spec: TestSpec
    kinds: Collection[str]
    release: str = ""


class Reviewed(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A grave finding of a run; ``state`` is "known", "over" (its time has passed) or "new"."""

    kind: str
    state: str
    why: str = ""
    until: dt.date | None = None

    def __str__(self) -> str:
        match self.state:
            case "known":
                return f"known until {self.until}: {self.why}"
            case "over":
                return f"was known until {self.until}, which is over: {self.why}"
        return "new: no entry of the known findings is of it"


class Review(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The grave findings of one run, compared with the known ones; ``known.json``.

    ``known`` says that the run counts as a success. ``unfound`` are the entries that apply to the
    test and matched nothing, in words.
    """

    known: bool
    findings: tuple[Reviewed, ...]
    unfound: tuple[str, ...] = ()

    def review_of(self, kind: str) -> Reviewed | None:
        """Return the review of a kind of finding; None if it is not grave."""
        return next((finding for finding in self.findings if finding.kind == kind), None)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    finding: tuple[dict[str, Any], ...]


def load(path: Path) -> tuple[KnownFinding, ...]:
    """Read the entries of a file.

    Raises UsageError, one line with the entry and what would be right.
    """
    try:
        table = toml_table(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--known {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"--known {path} is not TOML: {error}") from None
    if not isinstance(table.get("finding", []), list):
        raise UsageError(f"--known {path}: each entry begins with [[finding]]")
    entries = converted(f"--known {path}", {"finding": [], **table}, _File).finding
    return tuple(
        _entry(f"--known {path}: [[finding]] {number}", row) for number, row in enumerate(entries, 1)
    )


def _entry(where: str, row: dict[str, Any]) -> KnownFinding:
    entry = converted(where, row, KnownFinding)
    kinds = [anomaly.name for anomaly in ANOMALIES]
    if entry.kind not in kinds:
        raise UsageError(
            f'{where}: unknown kind "{entry.kind}": {meant(entry.kind, kinds)}kind must be the name of a '
            f"finding"
        )
    if entry.claim is not None and not _CLAIM.fullmatch(entry.claim):
        raise UsageError(
            f'{where}: unknown claim "{entry.claim}": give a row of "jepsen-run claims" (RP14) or one of '
            f"its scenarios (RP14-true)"
        )
    if not entry.why.strip():
        raise UsageError(f'{where}: "why" is empty: say why it is accepted')
    return entry


def review(
    verdict: Verdict,
    spec: TestSpec,
    entries: Sequence[KnownFinding],
    today: dt.date | None = None,
    release: str = "",
) -> Review:
    """Compare one run's grave findings with the entries; ``release`` is that of its brokers.

    ``known`` is true only if all findings are known and the run would be valid without them: a run
    that was spoilt proves nothing.
    """
    graves = [finding.name for finding in verdict.findings if finding.severity == "grave"]
    reviewed = reviewed_kinds(graves, spec, entries, today, release)
    names = {finding.name for finding in verdict.findings}
    covering = [entry for entry in entries if entry.covers(spec, release)]
    return Review(
        known=accepted(reviewed) and not doubts(verdict),
        findings=reviewed,
        unfound=tuple(dict.fromkeys(str(entry) for entry in covering if entry.kind not in names)),
    )


def reviewed_kinds(
    kinds: Iterable[str],
    spec: TestSpec,
    entries: Sequence[KnownFinding],
    today: dt.date | None = None,
    release: str = "",
) -> tuple[Reviewed, ...]:
    """Compare each kind of finding of a run with the entries.

    Of several entries for one kind, the entry that lasts longest counts.
    """
    today = today or dt.datetime.now().astimezone().date()
    covering = [entry for entry in entries if entry.covers(spec, release)]
    return tuple(_reviewed(kind, covering, today) for kind in kinds)


def accepted(reviewed: Sequence[Reviewed]) -> bool:
    """Return whether there are findings, and all of them are known."""
    return bool(reviewed) and all(finding.state == "known" for finding in reviewed)


def exit_status(verdict: Verdict, reviewed: Review | None) -> int:
    """Return the run's status: that of the verdict, but 0 if all that is wrong is known.

    2 if all findings are known, but the run was also spoilt otherwise.
    """
    status = judging.exit_status(verdict.valid)
    if status != judging.INVALID or reviewed is None:
        return status
    if reviewed.known:
        return judging.VALID
    return judging.UNKNOWN if accepted(reviewed.findings) else status


def entry_lines(entries: Sequence[KnownFinding], runs: Iterable[JudgedRun]) -> Iterator[str]:
    """Yield lines about the file after one run or a batch: the entries that matched nothing."""
    judged = list(runs)
    elsewhere = 0
    for entry in entries:
        covered = [run for run in judged if entry.covers(run.spec, run.release)]
        if not covered:
            elsewhere += 1
        elif not any(entry.kind in run.kinds for run in covered):
            yield f"Known    {entry}: matched nothing here"
    if elsewhere:
        yield f"Known    {elsewhere} of {len(entries)} entries are of other systems or tests"


def keep(store: Path, reviewed: Review | None) -> None:
    """Store the review with the verdict, for the reports; without one remove an earlier review."""
    with contextlib.suppress(OSError):  # a full disk has been reported already
        if reviewed is None:
            (store / FILE).unlink(missing_ok=True)
        else:
            stores.save(store, FILE, reviewed)


def stored_review(store: Path) -> Review | None:
    """Return what was known of a run when it was last judged; None if no file was given."""
    try:
        return msgspec.json.decode((store / FILE).read_bytes(), type=Review)
    except FileNotFoundError:
        return None


def _reviewed(kind: str, entries: Sequence[KnownFinding], today: dt.date) -> Reviewed:
    matching = [entry for entry in entries if entry.kind == kind]
    if not matching:
        return Reviewed(kind=kind, state="new")
    entry = max(matching, key=lambda candidate: candidate.until)
    state = "over" if entry.over(today) else "known"
    return Reviewed(kind=kind, state=state, why=entry.why, until=entry.until)


def doubts(verdict: Verdict) -> list[str]:
    """Return the reasons why the run would be unknown without its findings."""
    sentences = {f"{finding.name}: {finding.sentence}" for finding in verdict.findings}
    return [reason for reason in verdict.reasons if reason not in sentences and NOT_JUDGED not in reason]
