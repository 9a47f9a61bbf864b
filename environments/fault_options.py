"""Checks of the options that a user wrote for a fault."""

from __future__ import annotations

import math
from typing import Any

from harness.interface import UsageError


def number(
    primitive: str,
    given: dict[str, Any],
    name: str,
    default: float | None = None,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """Take a number out of the options of a fault.

    Raises UsageError for a value that is not a number, or is out of bounds.
    """
    value = given.pop(name, default)
    bounds = [f" above {above:g}"] if above is not None else []
    bounds += [f" of {least:g} or more"] if least is not None else []
    bounds += [f" of at most {most:g}"] if most is not None else []
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if (
        not known
        or (above is not None and value <= above)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        raise UsageError(f"{primitive}: {name} must be a number{' and'.join(bounds)}, not {value!r}")
    return float(value)


def nothing_left(primitive: str, given: dict[str, Any]) -> None:
    """Raise UsageError if an option is left that the fault does not take."""
    if given:
        raise UsageError(f"{primitive}: unknown option {min(given)!r}")
