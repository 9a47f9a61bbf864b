"""The releases of brokers, by their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 0, 5) of "4.0.5-1"; () if it has none."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def warnings(broker: str, version: str, tried: Sequence[str]) -> Sequence[str]:
    """Return the warning of a release newer than all ``tried``, the newest last; else ()."""
    if numbers(version)[:2] <= numbers(tried[-1])[:2]:
        return ()
    return (untried(broker, version, ", ".join(tried)),)


def untried(broker: str, version: str, tried: str) -> str:
    """Return the warning of a release that is newer than all releases that were tried."""
    return (
        f"{broker} {version} is untried (tried: {tried}): what it does differently may be taken for a fault "
        f"of the broker"
    )
