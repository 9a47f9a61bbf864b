"""The refuters of the rows about policy ``multi-instance``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.refuters.refuter import FORGETS, WAITS_FOR_EVER, Refuter, without
from mutants.refuters.shared_store import lacking

_POLICY: Final = "broker/policies/multi_instance/policy.py"

_STORE: Final = "broker/policies/multi_instance/store.py"

_STEERING: Final = "broker/policies/multi_instance/steering.py"

REFUTERS: Final[Mapping[str, Refuter]] = {
    "MI1": lacking(FORGETS),
    "MI2": Refuter(
        without="an active instance waits for a silent file system, whatever lock-expiration is",
        fails="a1 stopped after",
        changes=(WAITS_FOR_EVER,),
    ),
    "MI5-i": without(
        "an active instance that ends leaves its place to the standby instance, whatever the command was",
        _STORE,
        'self.ends if state == PAUSED else "switched-over"',
        '"switched-over"',
        fails="a2 did not end itself",
    ),
    "MI5-x": without(
        "the active instance ends when its standby instance ends",
        _POLICY,
        "            self.reign = StoreReign(self, self.section, self.store, granted)\n",
        "            self.reign = StoreReign(self, self.section, self.store, granted)\n"
        "            met = []\n\n"
        "            def changed():\n"
        "                linked = list(self.membership.neighbours.linked())\n"
        "                met.extend(linked)\n"
        "                if met and not linked:\n"
        "                    stopping.set()\n\n"
        "            self.membership.on_change.append(changed)\n",
        fails="a1 had ended by itself",
    ),
    "MI5-is": without(
        "an active instance that ends also ends the standby instance, whatever the command was",
        _STEERING,
        "self._policy.request_stop(failover=switch_over)",
        "self._policy.request_stop(failover=False)",
        fails="no broker took over",
    ),
    "MI1-replay": without(
        "the replay counts all records as messages",
        "broker/policies/multi_instance/store.py",
        "sum(record.kind == MESSAGE for record in records)",
        "len(records)",
        fails="the status gives the number of replayed messages",
    ),
    "MI4": without(
        "an instance stands by even if the active instance does not permit it",
        "broker/policies/multi_instance/candidate.py",
        "if not active.permit_standby:",
        "if False:",
        fails="a second instance is then refused",
    ),
    "MI5-end": without(
        "endmqm -is ends both instances, as endmqm -i does",
        "broker/policies/multi_instance/steering.py",
        "self._policy.request_stop(failover=switch_over)",
        "self._policy.request_stop(failover=False)",
        fails="two becomes 'Running'",
    ),
    "MI3": without(
        "the check passes if two hosts get a lock at the same time",
        "broker/filesystem_check/concurrent.py",
        "                    if taken:\n",
        "                    if False:\n",
        fails="-c fails on both hosts if each host has its own locks",
    ),
    "MI6": without(
        "an instance does not check the owner of the data",
        "broker/policies/multi_instance/candidate.py",
        "if owner is not None and owner != ours:",
        "if False:",
        fails="the second host has another uid",
    ),
}
