"""A refuter: the smallest change of the broker under which a row must fail.

To fail means not to be as expected.

Why: a row is "as expected" also if its feature was never needed. A row whose feature can be taken
out unnoticed proves nothing. A row that fails with its refuter, and for the reason that it is
about, does. ``jepsen-run claims --refute`` tries them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mutants.changed import Replacement


class Refuter(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the broker, and the way in which the row must notice it.

    ``without`` is one plain sentence: what the changed broker does or does not do. ``fails`` must
    occur in what the row then says is wrong: for a scenario words of the expectation ("a2 did not
    become live", "found lost"), for a probe the name of the step. ``changes`` are the texts to be
    replaced.
    """

    without: str
    fails: str
    changes: tuple[Replacement, ...]


def without(feature: str, path: str, old: str, new: str, *, fails: str) -> Refuter:
    """Return a refuter of one replacement: without ``feature`` the row says that ``fails``."""
    return Refuter(without=feature, fails=fails, changes=(Replacement(path, old, new),))


LEASE: Final = "broker/policies/ownership/lease.py"
WAITS_FOR_EVER: Final = Replacement(
    LEASE, "self._proven_s + self._ends * self._expiration_s", "self._proven_s + 3600.0"
)
"""The change with which an owner waits for a silent store, whatever its lease."""
NEVER_IN_DOUBT: Final = Replacement(
    LEASE, "return self.age_s > DOUBT * self._expiration_s - ROUNDING_S", "return False"
)
"""The change with which an owner trusts its lease however long ago it was confirmed."""
WAITS: Final = Refuter(
    without="a live waits without end for a silent store, whatever lock-expiration is",
    fails="a1 stopped after",
    changes=(WAITS_FOR_EVER,),
)

Lack = tuple[str, str]
"""The lack of a broker in words, and the code that removes it from the list ``{records}``."""

_LEAVE_OUT: Final = (
    "from broker.core.message import CONSUMED, COUNTED, HEAD, IS_LARGE, MESSAGE, PAGE, SUBSCRIPTION; "
    "{{records}}[:] = [r for r in {{records}} if not ({which})]"
)
FORGETS: Final[Lack] = ("begins with an empty store", "{records}.clear()")
LARGE: Final[Lack] = (
    "lacks the large messages",
    _LEAVE_OUT.format(which="r.kind == MESSAGE and HEAD.unpack_from(r.data)[1] & IS_LARGE"),
)
PAGES: Final[Lack] = (
    "has no messages from pages",
    _LEAVE_OUT.format(which="r.kind in (CONSUMED, COUNTED, PAGE)"),
)
SUBSCRIPTIONS: Final[Lack] = (
    "lacks the subscriptions",
    _LEAVE_OUT.format(which="r.kind == SUBSCRIPTION"),
)


def begins_without(
    lack: Lack,
    path: str,
    begun: str,
    *,
    broker: str = "a broker that takes over",
    condition: str = "True",
    records: str = "recovered.records",
) -> Refuter:
    """Return a refuter under which a broker lacks a part of what is stored when it begins.

    ``begun`` is the line of the broker at which it begins with ``records``.
    """
    words, code = lack
    indent = begun[: -len(begun.lstrip())]
    taken_out = f"{indent}if {condition}:\n{indent}    {code.format(records=records)}\n"
    return without(f"{broker} {words}", path, begun, taken_out + begun, fails="found lost")
