"""A refuter: the smallest change of the broker under which a row must fail.

That is, must not come out as expected.

Why: a row is "as expected" also when what it is about was never needed. A row whose feature can be
taken out unnoticed shows nothing; one that fails with its refuter, and for the reason that it is
about, does. ``jepsen-run claims --refute`` tries them.
"""

from __future__ import annotations

import msgspec

from harness.claims.changed import Replacement


class Refuter(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken out of the broker, and how the row must notice.

    ``without`` is one plain sentence: what the changed broker does or does not. ``fails`` must
    stand in what the row then says is wrong: for a scenario words of the expectation ("a2 did not
    become live", "found lost"), for a probe the name of the step. ``changes`` are the texts to be
    replaced.
    """

    without: str
    fails: str
    changes: tuple[Replacement, ...]


__all__ = ["Refuter", "Replacement"]
