"""The description of a field of a test's spec: everything about it besides its type and default.

Why one place: the command line, the check of what was given, the line that repeats a run, searches,
shrinking and the reference all ask for some of it. Whoever adds a field describes it where it is
declared, as an annotation, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Field:
    """The description of a field.

    ``meaning`` is printed by ``--help`` and in the reference; it has no full stop at its end.
    ``flag`` is the option that gives the field, "--on/--off" for one that is on by default; None if
    only files give it. ``usual`` is printed instead of a default that does not say what holds.

    ``least``, ``above`` and ``most`` are the limits of a number: at least, more than, at most.

    A search draws one of ``drawn`` for a share of the runs (``drawn_share``), if the workload and
    the brokers can have it.
    """

    meaning: str
    flag: str | None = None
    usual: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    drawn: tuple[Any, ...] = ()
    drawn_share: float = 0.25

    def broken_limit(self, value: float) -> str:
        """Return which limit a number breaks, as "at least 1"; "" if it keeps them all."""
        if self.least is not None and value < self.least:
            return f"at least {self.least:g}"
        if self.most is not None and value > self.most:
            return f"at most {self.most:g}"
        if self.above is not None and not value > self.above:
            return f"more than {self.above:g}"
        return ""
