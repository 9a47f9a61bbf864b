"""The releases of brokers, by their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 0, 5) of "4.0.5-1"; () if it has none."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def warnings(broker: str, version: str, tried: Sequence[str]) -> Sequence[str]:
    """Return the warning of a release of none of the series that were ``tried``; else ()."""
    if any(numbers(version)[:2] == numbers(series)[:2] for series in tried):
        return ()
    line = (
        f"{broker} {version} is untried (tried: {', '.join(tried)}): what it does differently may be taken "
        f"for a fault of the broker"
    )
    return (line,)
