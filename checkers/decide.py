"""The decision of a verdict, from the findings, the promises and what the history can show.

Every judge (of one history on Spark, of many at once, the plain judge without Spark) finds
anomalies in its own way and decides here. False wins over unknown, unknown over true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from checkers import reach
from checkers.anomaly import AT_END, named, severity
from checkers.excuses import Window
from checkers.facts import Facts
from checkers.verdict import CheckOptions, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision: the severity of each finding, and the reasons for which nothing can be said.

    ``severities`` has the severity of each finding by name. ``open`` are the names of anomalies
    that cannot be decided, and ``hidden`` those of them that were found.

    Each of the following leaves a history without grave findings unknown. ``undecided`` says why
    it is not known what became of messages in the end. ``empty`` says why the history shows nothing
    at all, ``unknown`` which rules failed, ``trouble`` how the machine spoiled the run.
    """

    severities: dict[str, Severity]
    open: frozenset[str]
    hidden: frozenset[str]
    undecided: str | None
    empty: tuple[str, ...]
    unknown: tuple[str, ...]
    trouble: str | None

    @property
    def grave(self) -> frozenset[str]:
        """The names of the findings that make the history invalid."""
        return frozenset(name for name, severity in self.severities.items() if severity == "grave")

    @property
    def valid(self) -> bool | None:
        """The verdict: false if a finding is grave, None if it is unknown, else true."""
        if self.grave:
            return False
        return None if self.reasons else True

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons other than findings for which the history is not valid."""
        reasons_given = tuple(text for text in (self.trouble, self.undecided) if text is not None)
        return (*reasons_given, *self.unknown, *self.empty)

    @property
    def reason(self) -> str | None:
        """The first of ``reasons``; None if there is none."""
        return next(iter(self.reasons), None)


def decide(
    names: Iterable[str],
    facts: Facts,
    options: CheckOptions,
    *,
    windows: Mapping[str, Sequence[Window]] | None = None,
    unknown: Collection[str] = (),
) -> Decision:
    """Decide the verdict of one history.

    Args:
        names: the names of the findings.
        facts: the records of the harness, the monitor and the nemesis, and the census of all rows.
        options: what was promised; ``expect_faults`` if the schedule had faults, ``trouble`` if
            the machine had trouble.
        windows: the windows of each finding that faults may explain, by its name.
        unknown: the reasons why rules failed, one sentence each.
    """
    found_names = set(names)
    missing = bool(found_names & AT_END) or "stores" not in options.broker.untold
    undecided = facts.undecided(missing=missing)
    excuses = facts.excuses(options)
    explained = {
        name
        for name, windows_of_name in (windows or {}).items()
        if windows_of_name and all(excuses.excuses(window) for window in windows_of_name)
    }
    open_ = undecidable(facts, missing=missing)
    severities = {
        name: severity(name, options, excused=name in explained)
        for name in sorted(found_names)
        if name not in open_
    }
    grave = frozenset(name for name, severity in severities.items() if severity == "grave")
    for name in grave:
        if named(name).follows & grave:
            severities[name] = "info"
    return Decision(
        severities=severities,
        open=open_,
        hidden=frozenset(found_names & open_),
        undecided=undecided,
        empty=tuple(_empty(facts, options)),
        unknown=tuple(sorted({*unknown, *([] if facts.unlooked is None else [facts.unlooked])})),
        trouble=options.trouble,
    )


def undecidable(facts: Facts, *, missing: bool = True) -> frozenset[str]:
    """Return the names of the anomalies at the end that this history cannot decide.

    Where ``missing`` is false, no message is missing, and no store that was not read matters. A
    message in a store that was read is stuck there, so ``stuck`` needs no other store.
    """
    if facts.unfinished is not None:
        return AT_END
    return frozenset({"lost"}) if facts.undecided(missing=missing) is not None else frozenset()


def _empty(run_facts: Facts, options: CheckOptions) -> Iterable[str]:
    if not run_facts.count("send", "invoke"):
        yield "nothing was sent"
    yield from reach.reasons(run_facts.reached, run_facts.count)
    if not run_facts.count("deliver", "ok"):
        yield "nothing was delivered"
    if options.expect_faults and not any(span.bit for span in run_facts.spans()):
        yield "faults were asked for, but none was seen to take effect"
