"""The refuters of the rows about limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import Refuter, without

_LIMITS: Final = "broker/core/limits.py"
_EXCESS: Final = "        return max(0, self.count + more - self.most, beyond_total)\n"


def _ignored(fails: str) -> Refuter:
    return without("max-messages is ignored", _LIMITS, _EXCESS, "        return 0\n", fails=fails)


def _always(limit: int, fails: str, behavior: str) -> Refuter:
    return Refuter(
        without=f"a queue without max-messages may have {limit} messages",
        fails=fails,
        changes=(
            Replacement(
                "broker/core/addresses.py",
                "any(max(entry.max_messages, entry.max_producers) >= 0 for",
                "any(True for",
            ),
            Replacement(
                "broker/core/engine.py",
                "max(settings.max_messages, self.settings.max_messages) >= 0\n",
                "True\n",
            ),
            Replacement(
                _LIMITS,
                "        self.most = _bound(settings.max_messages)\n",
                f"        self.most = {limit} if self.behavior == {behavior!r} else sys.maxsize\n",
            ),
        ),
    )


REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV13-flow": _ignored("a1 held"),
    "CV13-reject": _ignored("0 sends certainly failed for that reason"),
    "CV13-commit": without(
        "commits are not refused",
        "broker/stomp/session.py",
        "objection if objection or limits is None else limits.refusal(transaction.sends, transaction)",
        "objection",
        fails="0 commits certainly failed for that reason",
    ),
    "CV13-commit-none": _always(4, "commits failed for that reason", "REJECT_NEWEST"),
    "CV13-broker": without(
        "broker.max-messages is ignored",
        _LIMITS,
        _EXCESS,
        "        return max(0, self.count + more - self.most)\n",
        fails="a1 held",
    ),
    "CV13-none": _always(50, "messages were unacknowledged at heal", "FLOW_CONTROL"),
    "CV13-oldest": _ignored("none of lost"),
    "CV13-oldest-none": without(
        "OFF forwards messages as ON_DEMAND does",
        "broker/cluster/balancing.py",
        '        if self._mode == "OFF":\n',
        "        if False:\n",
        fails="messages that a1 accepted were delivered by",
    ),
    "CV13-priority": without(
        "the oldest message is removed, whatever its priority",
        _LIMITS,
        '        if self.behavior == "REMOVE_LOW_PRIORITY":\n',
        "        if False:\n",
        fails="what is left",
    ),
    "CV13-clients": without(
        "a queue takes any number of producers",
        _LIMITS,
        "        if session not in producers and len(producers) >= most:\n",
        "        if False:\n",
        fails="a1: the second producer",
    ),
    "CV13-memory": _ignored("with a limit, the memory grows by at most 40 MB"),
}
