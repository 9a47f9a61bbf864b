"""The one decision of a verdict.

What was found, under what was promised, in a history that says so much and no more.

Whoever judges (one history on Spark, many at once, the plain judge without Spark) finds in his own
way and decides here. False wins over unknown, unknown over true.
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
    """``severities`` by name of what was found.

    ``undecided`` says why the end of messages cannot be told, and ``open`` are the names of what
    cannot, ``hidden`` those of them that were found; ``empty`` why the history says
    nothing at all, ``unknown`` which rules failed, ``trouble`` what the machine spoiled:
    each leaves a history without grave findings unknown.
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
        """The names that make it invalid."""
        return frozenset(name for name, severity in self.severities.items() if severity == "grave")

    @property
    def valid(self) -> bool | None:
        """None if it cannot be said."""
        if self.grave:
            return False
        return None if self.reasons else True

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not valid for another reason than a finding."""
        said = tuple(text for text in (self.trouble, self.undecided) if text is not None)
        return (*said, *self.unknown, *self.empty)

    @property
    def reason(self) -> str | None:
        """The first of them."""
        return next(iter(self.reasons), None)


def decide(
    names: Iterable[str],
    known: Facts,
    options: CheckOptions,
    *,
    windows: Mapping[str, Sequence[Window]] | None = None,
    unknown: Collection[str] = (),
) -> Decision:
    """Decide one history.

    Args:
        names: what was found.
        known: what the harness, the monitor and the nemesis wrote down, and the census of all rows.
        options: what was promised; ``expect_faults`` if the schedule had any, ``trouble`` if the
            machine had.
        windows: of what was found and may be explained by faults, by name, when it was so.
        unknown: why rules failed, one sentence each.
    """
    found = set(names)
    missing = bool(found & AT_END) or "stores" not in options.broker.untold
    undecided = known.undecided(missing=missing)
    excuses = known.excuses(options)
    explained = {
        name for name, some in (windows or {}).items() if some and all(excuses.excuses(one) for one in some)
    }
    open_ = undecidable(known, missing=missing)
    severities = {
        name: severity(name, options, excused=name in explained)
        for name in sorted(found)
        if name not in open_
    }
    grave = frozenset(name for name, severity in severities.items() if severity == "grave")
    for name in grave:
        if named(name).follows & grave:
            severities[name] = "info"
    return Decision(
        severities=severities,
        open=open_,
        hidden=frozenset(found & open_),
        undecided=undecided,
        empty=tuple(_empty(known, options)),
        unknown=tuple(sorted({*unknown, *([] if known.unlooked is None else [known.unlooked])})),
        trouble=options.trouble,
    )


def undecidable(known: Facts, *, missing: bool = True) -> frozenset[str]:
    """The names of what cannot be told of the end of messages.

    What is in a store that was read is stuck there, whatever other stores hold.
    """
    if known.unfinished is not None:
        return AT_END
    return frozenset({"lost"}) if known.undecided(missing=missing) is not None else frozenset()


def _empty(known: Facts, options: CheckOptions) -> Iterable[str]:
    if not known.count("send", "invoke"):
        yield "nothing was sent"
    yield from reach.reasons(known.reached, known.count)
    if not known.count("deliver", "ok"):
        yield "nothing was delivered"
    if options.expect_faults and not any(span.bit for span in known.spans()):
        yield "faults were asked for, but none was seen to take effect"
