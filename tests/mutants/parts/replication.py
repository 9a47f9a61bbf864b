"""Bugs between a live broker and its backup."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import ONE_PAIR, PAIR_ON_SLOW_DISKS, THREE_PAIRS

_LIVE: Final = "broker/policies/replication/live.py"
_FEED: Final = "broker/policies/replication/feed.py"
_FOLLOWER: Final = "broker/policies/replication/follower.py"
_POLICY: Final = "broker/policies/replication/policy.py"

SYNCHRONISING: Final = Arena(
    ("pause", "partition", "slow"),
    {
        "targets": ("live", "backup"),
        "shapes": ("pair-link", "isolate-live"),
        "properties": {
            "*": {
                "ha-policy.replication.replication-patience": 1000,
                "ha-policy.replication.backup-vote": "reachability",
            }
        },
        "time_limit_s": 20.0,
        "payload_bytes": 2048,
    },
)
"""Slow links between the brokers of a pair, so that a synchronisation takes its time, and little
patience, so that there are many of them. Backups that get votes: under the other reading a voter
that has the live hides what they would do.
"""

CLOCKS_APART: Final = Arena(
    ("partition", "clock-rate"),
    {
        "properties": {
            "*": {
                "ha-policy.replication.replication-patience": 4000,
                "ha-policy.replication.backup-vote": "reachability",
                "cluster.call-timeout": 30_000,
            }
        },
        "time_limit_s": 12.0,
    },
)
"""Clocks that run at different speeds, which leases are made for.

Patience that the difference shows in, and the call-timeout that brokers have where nobody gave
another: a short one ends the replication before a lease does.
"""

BACKUPS_RETURN: Final = Arena(
    ("kill", "disk-slow"),
    {
        "targets": ("backup",),
        "pairs": 1,
        "consumers": 2,
        "prefetch": 1,
        "hold_s": 0.05,
        "compare_backups": True,
        "properties": {
            "*": {
                "journal.segment-size": 8192,
                "journal.compact-min-files": 2,
                "journal.compact-percentage": 90,
            }
        },
    },
)
"""Backups that go and come back while much is stored in small segments, and never take over.

What a copy lacks then shows in no delivery.
"""

MUTANTS: Final = (
    Mutant(
        "receipts-released-before-the-vote",
        "replication",
        "Artemis: tokens released before the vote",
        "when the replication connection breaks, everything that waits for the backup is answered as if "
        "it had been replicated, before the vote",
        frozenset({"lost", "duplicate"}),
        THREE_PAIRS,
        (
            Replacement(
                _LIVE,
                "        self._hold()\n        if self._ended.done():\n            return\n        if "
                "clean:\n",
                "        self.gate.remote = None\n        self._release()\n        if "
                "self._ended.done():\n            return\n        if clean:\n",
            ),
        ),
    ),
    Mutant(
        "receipts-do-not-wait-for-the-backup",
        "replication",
        "own",
        "a receipt leaves when the live's own disk has the entry; the backup follows when it can",
        frozenset({"lost"}),
        THREE_PAIRS,
        (
            Replacement(
                _LIVE,
                "        self.gate.remote = acknowledged\n",
                "",
            ),
            Replacement(_LIVE, "        self.gate.remote = sequence\n", "        del sequence\n"),
        ),
    ),
    Mutant(
        "backup-acknowledges-before-fsync",
        "replication",
        "Artemis: backup acknowledging before fsync and both killed",
        "the backup acknowledges an entry when it has it in memory, and the live takes that word "
        "instead of its own disk's",
        frozenset({"lost", "duplicate"}),
        PAIR_ON_SLOW_DISKS,
        (
            Replacement(
                _FOLLOWER,
                "            position += size\n            sequence += 1\n",
                "            position += size\n            sequence += 1\n"
                "        if self._reported:\n            self.link.send(m.Acknowledgement(sequence - 1))\n",
            ),
            Replacement(
                "broker/storage/gate.py",
                "return self._local if remote is None or remote > self._local else remote",
                "return self._local if remote is None else remote",
            ),
        ),
    ),
    Mutant(
        "copy-trusted-too-early",
        "replication",
        "ARTEMIS-2297",
        "a backup is told that it is up to date as soon as its copy is complete, though the live still "
        "answers without it",
        frozenset({"lost", "duplicate", "split-brain"}),
        SYNCHRONISING,
        (
            Replacement(
                _FEED,
                "            link.send(m.SnapshotEnd(last))\n",
                "            link.send(m.SnapshotEnd(last))\n            "
                "link.send(m.UpToDate(self.session, last))\n",
            ),
        ),
    ),
    Mutant(
        "lease-ignored",
        "replication",
        "openmq 69",
        "a live that has not heard of its backup for longer than it may goes on as if nothing were",
        frozenset({"split-brain", "lost"}),
        CLOCKS_APART,
        (
            Replacement(
                _FEED,
                "return not self.ended and self._loop.time() <= self.link.confirmed + self._lease_s",
                "return not self.ended",
            ),
        ),
    ),
    Mutant(
        "takeover-not-noticed-after-a-pause",
        "replication",
        "HA4, openmq 69",
        "a live that stood still does not ask whether its backup has taken over meanwhile",
        frozenset({"split-brain", "lost", "duplicate"}),
        ONE_PAIR,
        (
            Replacement(
                _LIVE,
                "        elif feed.link.stalled and await partner_took_over(membership, self._seams, "
                "self.node_id, feed):\n",
                "        elif False:\n",
            ),
        ),
    ),
    Mutant(
        "restarted-live-does-not-look",
        "fail-over",
        "ARTEMIS-3429, RP14",
        "a master that comes back does not look for a live broker with its node ID and serves what it has",
        frozenset({"split-brain", "lost", "duplicate"}),
        ONE_PAIR,
        (
            Replacement(
                _POLICY,
                "        if not section.check_for_live_server:\n            return False\n",
                "        if section is not None:\n            return False\n",
            ),
        ),
    ),
    Mutant(
        "failback-before-the-end",
        "fail-over",
        "ARTEMIS-1304",
        "a live that gives its place back says so first and ends its service afterwards",
        frozenset({"split-brain", "lost", "duplicate", "not-recovered", "unavailable"}),
        ONE_PAIR,
        (
            Replacement(
                _LIVE,
                "        await self._serve_no_more()\n        if feed.ended or self._ended.done():\n",
                "        feed.link.send(m.HandOver(self.activation))\n"
                "        await self._serve_no_more()\n        if feed.ended or self._ended.done():\n",
            ),
        ),
    ),
    Mutant(
        "send-during-a-vote-never-queued",
        "replication",
        "rabbitmq-server 14589",
        "a send that comes while the live does not know whether it is still live is stored and later "
        "answered, but never queued",
        frozenset({"lost"}),
        Arena(ONE_PAIR.kinds, {**ONE_PAIR.fields, "groups": 40}),
        (
            Replacement(
                "broker/core/engine.py",
                "        self.gate.when_durable(sequence, partial(arrived, holder, message, done))\n"
                "        return sequence\n\n    def accept_forwarded(",
                "        if not self.gate.held:\n"
                "            self.gate.when_durable(sequence, partial(arrived, holder, message, done))\n"
                "        elif done is not None:\n"
                "            self.gate.when_durable(sequence, done)\n"
                "        return sequence\n\n    def accept_forwarded(",
            ),
        ),
    ),
    Mutant(
        "copy-forgets-what-came-while-it-was-read",
        "replication",
        "own",
        "a backup that reads its copy once more does not count as live what has come meanwhile, so that the "
        "next compaction leaves it out",
        frozenset({"diverged"}),
        BACKUPS_RETURN,
        (
            Replacement(
                "broker/storage/copy.py",
                "        for operations, ordinal in self._pending:\n"
                "            liveness.apply(operations, ordinal)\n"
                "        self._pending = None\n",
                "        self._pending = None\n",
            ),
        ),
    ),
)
