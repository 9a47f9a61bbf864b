"""A scenario with so little room in memory that nearly everything stored is on pages.

Why: what is taken over must be whole wherever it waits, and with the memory of production no run of
a dozen seconds would ever fill it.
"""

from __future__ import annotations

import msgspec

from harness.interface import TestSpec

_ROOM = {"address-settings.#.max-size-bytes": 8192, "address-settings.#.page-size-bytes": 2048}
"""About thirty messages of a test lined up, seven on each page."""


def paged(spec: TestSpec) -> TestSpec:
    """The same, with consumers that are slower than the producers, and room for few messages."""
    properties = {**spec.properties, "*": {**spec.properties.get("*", {}), **_ROOM}}
    return msgspec.structs.replace(spec, hold_s=0.3, prefetch=3, properties=properties)
