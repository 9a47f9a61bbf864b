"""The refuters of the rows about policy ``replication``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import FORGETS, LARGE, PAGES, Lack, Refuter, begins_without, without

_POLICY: Final = "broker/policies/replication/policy.py"

_LIVE_ROLE: Final = "broker/policies/replication/live.py"

_BACKUP_ROLE: Final = "broker/policies/replication/backup.py"

_DECISION: Final = "broker/policies/replication/decision.py"

_FEED: Final = "broker/policies/replication/feed.py"

_QUORUM: Final = "broker/cluster/quorum.py"

_DIRECTORY: Final = "broker/cluster/directory.py"

_GATE: Final = "broker/storage/gate.py"


def _lacking(
    lack: Lack, broker: str = "a broker that takes over", condition: str = "self._took_over"
) -> Refuter:
    return begins_without(
        lack, _POLICY, "            node_id = await own_node_id(", broker=broker, condition=condition
    )


_FORGETS: Final = _lacking(
    FORGETS, "a broker that is live again after its restart", "self._activation and not self._took_over"
)

REFUTERS: Final[Mapping[str, Refuter]] = {
    "RP1": _lacking(FORGETS),
    "RP1-large": _lacking(LARGE),
    "RP1-paging": _lacking(PAGES),
    "RP2": _lacking(("lacks the older half of the data of its live", "del {records}[: len({records}) // 2]")),
    "RP3": Refuter(
        without="a backup takes over although its copy is not up to date",
        fails="a2 became live",
        changes=(
            Replacement(_BACKUP_ROLE, "if not ending.up_to_date:", "if False:"),
            Replacement("broker/storage/journal.py", 'if manifest.state != "complete":', "if False:"),
        ),
    ),
    "RP4": without(
        "a single pair needs a vote, too",
        _QUORUM,
        "return live_nodes // 2 if live_nodes <= 2",
        "return 1 if live_nodes <= 2",
        fails="none of split-brain",
    ),
    "RP5": without(
        "a live that lost its backup goes on without a vote",
        _LIVE_ROLE,
        "if section.vote_on_replication_failure and not await vote.passes():",
        "if False:",
        fails="a1 did not end itself",
    ),
    "RP6": without(
        "a live asks for votes even if vote-on-replication-failure is false",
        _LIVE_ROLE,
        "if section.vote_on_replication_failure and not",
        "if not",
        fails="none of split-brain",
    ),
    "RP6-link": without(
        "a voter does not check whether it still reaches the live",
        _QUORUM,
        "not request.stays and self._partner_gone:",
        "not request.stays and False:",
        fails="a2 became live",
    ),
    "RP6-reachability": without(
        "a voter that still reaches the live refuses the backup, whatever backup-vote is",
        _QUORUM,
        "not request.stays and self._partner_gone:",
        "not request.stays:",
        fails="none of split-brain",
    ),
    "RP7": without(
        "half of the brokers count as a majority",
        _QUORUM,
        "else live_nodes // 2 + 1\n",
        "else live_nodes // 2\n",
        fails="a1 did not end itself",
    ),
    "RP8": without(
        "a live loses every vote",
        _DECISION,
        "        return result.passed\n",
        "        return False\n",
        fails="a2 became live",
    ),
    "RP8-kill": without(
        "a vote needs the consent of all other brokers",
        _QUORUM,
        "else live_nodes // 2 + 1\n",
        "else live_nodes - 1\n",
        fails="no broker took over",
    ),
    "RP9-before": without(
        "the threshold follows the number of present brokers",
        _DIRECTORY,
        "self.live_nodes_seen = max(self.live_nodes_seen, len(nodes))",
        "self.live_nodes_seen = len(nodes)",
        fails="a2 became live",
    ),
    "RP9-after": without(
        "the threshold survives a restart",
        _DIRECTORY,
        "        self.live_nodes_seen = 0\n",
        "        self.live_nodes_seen = 3\n",
        fails="no broker took over",
    ),
    "RP10-inside": without(
        "a backup votes only once, whatever vote-retries is",
        _BACKUP_ROLE,
        "for attempt in range(section.vote_retries + 1):",
        "for attempt in range(1):",
        fails="no broker took over",
    ),
    "RP10-outside": without(
        "a backup repeats its vote without end, whatever vote-retries is",
        _BACKUP_ROLE,
        "for attempt in range(section.vote_retries + 1):",
        "for attempt in range(10_000):",
        fails="a2 became live",
    ),
    "RP10-wait": without(
        "a backup waits for the voters' answers for longer than quorum-vote-wait",
        _BACKUP_ROLE,
        "timeout_s=section.quorum_vote_wait / 1000,",
        "timeout_s=60.0,",
        fails="a2 became live",
    ),
    "RP11": without(
        "a live without a backup answers no client",
        _LIVE_ROLE,
        "        self.gate.remote = None\n        self._release()\n",
        "        self.gate.remote = None\n",
        fails="none of lost",
    ),
    "RP12": without(
        "a broker that took over answers no client until it has a backup of its own",
        _POLICY,
        "            self.reign = reign\n",
        "            if self._took_over:\n                reign.gate.hold()\n"
        "            self.reign = reign\n",
        fails="none of lost",
    ),
    "RP13-right": _FORGETS,
    "RP13-wrong": without(
        "a slave that was live last starts as live without being made master",
        _POLICY,
        "        live = isinstance(self.section, MasterSection) and not await self._must_follow(stopping)\n",
        "        live = self._activation > 1 or (\n            isinstance(self.section, "
        "MasterSection) and not await self._must_follow(stopping)\n        )\n",
        fails="none of lost",
    ),
    "RP14-false": without(
        "a master looks for a live with its node ID, whatever check-for-live-server is",
        _POLICY,
        "if not section.check_for_live_server:",
        "if False:",
        fails="none of duplicate, split-brain",
    ),
    "RP14-true": without(
        "a master never looks for a live with its node ID",
        _POLICY,
        "if not section.check_for_live_server:",
        "if True:",
        fails="split-brain",
    ),
    "RP15": Refuter(
        without="any broker becomes the backup of any live, whatever its group-name is",
        fails="took over",
        changes=(
            Replacement(_LIVE_ROLE, "if request.group_name != self.section.group_name:", "if False:"),
            Replacement(
                _DIRECTORY,
                "if member.live and member.group_name == group_name]",
                "if member.live]",
            ),
        ),
    ),
    "RP16": without(
        "receipts do not wait for the backup",
        _GATE,
        "return self._local if remote is None or remote > self._local else remote",
        "return self._local",
        fails="the slowest send took",
    ),
    "RP16-disk": without(
        "a live waits without end for its backup, whatever call-timeout is",
        _FEED,
        "if waiting and now - waiting[0][1] > self._call_timeout_s:",
        "if False:",
        fails="the slowest send took",
    ),
    "RP16-link": Refuter(
        without="a live waits without end for a silent backup, whatever replication-patience is",
        fails="the slowest send took",
        changes=(
            Replacement(_FEED, "if since is not None and now - since > self._lease_s / 2:", "if False:"),
            Replacement(_FEED, "        link.set_ttl(patience_s)\n", "        link.set_ttl(3600.0)\n"),
        ),
    ),
    "RP16-sync": without(
        "a synchronisation may take any time, whatever initial-replication-sync-timeout is",
        _FEED,
        "            self._sync_timeout_s, self.end,",
        "            3600.0, self.end,",
        fails="not synchronised within",
    ),
    "RP17-right": _FORGETS,
    "RP17-wrong": without(
        "a master never looks for a live with its node ID",
        _POLICY,
        "if not section.check_for_live_server:",
        "if True:",
        fails="none of lost",
    ),
    "RP18": without(
        "only a master starts a vote when it loses its backup",
        _LIVE_ROLE,
        "if section.vote_on_replication_failure and not",
        "if not isinstance(section, SlaveSection) and section.vote_on_replication_failure and not",
        fails="a2 did not end itself",
    ),
    "RP19-true": without(
        "a slave never gives the place back",
        _LIVE_ROLE,
        "isinstance(self.section, SlaveSection) and self.section.allow_failback:",
        "False:",
        fails="a2 took over a1's data",
    ),
    "RP19-false": without(
        "a slave gives the place back, whatever allow-failback is",
        _LIVE_ROLE,
        "isinstance(self.section, SlaveSection) and self.section.allow_failback:",
        "isinstance(self.section, SlaveSection):",
        fails="a1 became live",
    ),
    "RP19-stop": without(
        "a slave that gave the place back becomes a backup again, whatever restart-backup is",
        _POLICY,
        "                    and not self.section.restart_backup\n",
        "                    and False\n",
        fails="a2 did not end itself",
    ),
    "RP19-several": without(
        "a live replaces its first backup by a second one",
        _LIVE_ROLE,
        "        if self.feed is not None:\n            return",
        "        if False:\n            return",
        fails="a1 became live",
    ),
    "RP20": without(
        "a live that lost its backup answers waiting clients before its vote is decided, as "
        "Apache Artemis does",
        _LIVE_ROLE,
        "        self._hold()\n        if self._ended.done():\n            return\n        if clean:",
        "        self.gate.remote = None\n        self._release()\n        if "
        "self._ended.done():\n            return\n        if clean:",
        fails="lost besides",
    ),
}
