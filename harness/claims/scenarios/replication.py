"""The scenarios of policy ``replication``: AMQ 17.3.1.3 and 17.3.3, rows RP1 to RP20 of the claims.

Every schedule is bounded to a dozen seconds, so that a nightly run on containers can afford them
all; in the simulation each takes about a second.
"""

from __future__ import annotations

from typing import Final

from harness.claims.scenarios.expectations import (
    AtStake,
    Exactly,
    Expectation,
    ExpectedTakeover,
    Moved,
    Reported,
    Says,
    SlowestSend,
    Takeovers,
)
from harness.claims.scenarios.paged import paged
from harness.claims.scenarios.refuter import Refuter, Replacement
from harness.claims.scenarios.scenario import FOLLOWS_TWO_LIVES, Roles, Scenario
from harness.interface import Fault, Schedule, TestSpec

_MASTER: Final = "ha-policy.replication.master."
_SLAVE: Final = "ha-policy.replication.slave."
_POLICY: Final = "broker/policies/replication/policy.py"
_LIVE_ROLE: Final = "broker/policies/replication/live.py"
_BACKUP_ROLE: Final = "broker/policies/replication/backup.py"
_DECISION: Final = "broker/policies/replication/decision.py"
_FEED: Final = "broker/policies/replication/feed.py"
_QUORUM: Final = "broker/cluster/quorum.py"
_MEMBERSHIP: Final = "broker/cluster/membership.py"
_GATE: Final = "broker/storage/gate.py"

_FORGETS: Final = Refuter(
    without="a broker that is live again after its restart begins with an empty store",
    fails="found lost",
    changes=(
        Replacement(
            _POLICY,
            "            node_id = await own_node_id(",
            "            if self._activation and not self._took_over:\n                "
            "recovered.records.clear()\n            node_id = await own_node_id(",
        ),
    ),
)


def _spec(
    name: str,
    *,
    pairs: int,
    seconds: float = 12.0,
    hold_s: float | None = None,
    prefetch: int | None = None,
    payload_bytes: int = 32,
    large_message_share: float = 0.0,
    properties: dict[str, dict[str, object]] | None = None,
    unavailable_bound_s: float = 20.0,
    operation_timeout_s: float = 5.0,
) -> TestSpec:
    return TestSpec(
        name=name,
        policy="replication",
        pairs=pairs,
        time_limit_s=seconds,
        rate=150.0,
        producers=2 * pairs + 2,
        consumers=2 * pairs + 2,
        groups=4 * pairs,
        recovery_bound_s=30.0,
        unavailable_bound_s=unavailable_bound_s,
        operation_timeout_s=operation_timeout_s,
        hold_s=hold_s,
        prefetch=prefetch,
        payload_bytes=payload_bytes,
        large_message_share=large_message_share,
        properties=properties or {},
    )


def _both(**values: object) -> dict[str, dict[str, object]]:
    """Properties of masters and slaves alike."""
    named = {name.replace("_", "-"): value for name, value in values.items()}
    return {"*": {f"{role}{name}": value for role in (_MASTER, _SLAVE) for name, value in named.items()}}


def _votes(*, live: bool, **values: object) -> dict[str, dict[str, object]]:
    return _both(vote_on_replication_failure=live, **values)


def _retries(retries: int, wait_ms: int, round_ms: int) -> dict[str, dict[str, object]]:
    return {
        "*": {
            f"{_SLAVE}vote-retries": retries,
            f"{_SLAVE}vote-retry-wait": wait_ms,
            f"{_SLAVE}quorum-vote-wait": round_ms,
        }
    }


def _faults(*faults: Fault) -> Schedule:
    return Schedule(faults=faults)


def _pair_link(start_s: float, duration_s: float, pair: str | None = None) -> Fault:
    options = {} if pair is None else {"pair": pair}
    return Fault(kind="partition", start_s=start_s, duration_s=duration_s, shape="pair-link", options=options)


def _kill(target: str, start_s: float, duration_s: float | None = None) -> Fault:
    return Fault(kind="kill", start_s=start_s, duration_s=duration_s, target=target)


def _isolate_live(start_s: float, duration_s: float | None = None) -> Fault:
    return Fault(
        kind="partition",
        start_s=start_s,
        duration_s=duration_s,
        shape="isolate-live",
        options={"pair": "a"},
    )


def _reconfigure(target: str, role: str, start_s: float) -> Fault:
    return Fault(kind="reconfigure", start_s=start_s, duration_s=0.1, target=target, options={"as": role})


_TAKEN: Final[tuple[Expectation, ...]] = (
    Takeovers((ExpectedTakeover("a1", "a2"),)),
    Moved(least=20, of="a1", by="a2"),
)
"""a2 goes on with what a1 had; a1 stays away."""
_AT_STAKE: Final = (AtStake(least=20, at="kill-1", broker="a1"),)
_AFTER_LOSS: Final = ("duplicate", "reordered", "reordered-realtime", "unavailable")


SCENARIOS: Final = (
    Scenario(
        id="RP1",
        claim="the backup has all data that the live acknowledged",
        source="AMQ 17.3.1.2",
        # Slow consumers: what the backup must have is what nobody had consumed yet.
        spec=_spec("rp1", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(_kill("a1", 4.0)),
        besides=_TAKEN,
        guards=_AT_STAKE,
        refuter=Refuter(
            without="a broker that takes over begins with an empty store",
            fails="found lost",
            changes=(
                Replacement(
                    _POLICY,
                    "            node_id = await own_node_id(",
                    "            if self._took_over:\n                recovered.records.clear()\n       "
                    "     node_id = await own_node_id(",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP1-large",
        claim="the backup has the large messages, too, that the live acknowledged",
        source="AMQ 17.3.1.2",
        spec=_spec("rp1-large", pairs=1, large_message_share=0.2, hold_s=0.2, prefetch=2),
        schedule=_faults(_kill("a1", 4.0)),
        besides=_TAKEN,
        guards=_AT_STAKE,
        refuter=Refuter(
            without="a broker that takes over lacks the large messages",
            fails="found lost",
            changes=(
                Replacement(
                    _POLICY,
                    "            node_id = await own_node_id(",
                    "            if self._took_over:\n                from broker.core.message import "
                    "HEAD, IS_LARGE, MESSAGE\n\n                recovered.records[:] = [\n              "
                    "      r for r in recovered.records if r.kind != MESSAGE or not "
                    "HEAD.unpack_from(r.data)[1] & IS_LARGE\n                ]\n            node_id = "
                    "await own_node_id(",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP1-paging",
        claim="the backup has the messages, too, that the live has on pages",
        source="AMQ 17.3.1.2",
        spec=paged(_spec("rp1-paging", pairs=1)),
        schedule=_faults(_kill("a1", 4.0)),
        besides=_TAKEN,
        guards=_AT_STAKE,
        refuter=Refuter(
            without="a broker that takes over has nothing of what is on pages",
            fails="found lost",
            changes=(
                Replacement(
                    _POLICY,
                    "            node_id = await own_node_id(",
                    "            if self._took_over:\n                from broker.core.message import "
                    "CONSUMED, COUNTED, PAGE\n\n                recovered.records[:] = [r for r in "
                    "recovered.records if r.kind not in (CONSUMED, COUNTED, PAGE)]\n            node_id "
                    "= await own_node_id(",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP2",
        claim="existing data is synchronised when a backup joins under load",
        source="AMQ 17.3.3",
        spec=_spec("rp2", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=3.0, target="a2"),
            _kill("a1", 6.0),
        ),
        besides=_TAKEN,
        guards=(AtStake(least=20, at="heal:late-start-1"), AtStake(least=20, at="kill-2", broker="a1")),
        refuter=Refuter(
            without="a broker that takes over lacks the older half of what its live had",
            fails="found lost",
            changes=(
                Replacement(
                    _POLICY,
                    "            node_id = await own_node_id(",
                    "            if self._took_over:\n                del recovered.records[: "
                    "len(recovered.records) // 2]\n            node_id = await own_node_id(",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP3",
        claim="killed before the synchronisation ends: the backup does not take over with partial data",
        source="AMQ 17.3.3",
        # So much data over so slow a link that the copy cannot be whole when the live dies.
        spec=_spec("rp3", pairs=1, payload_bytes=4096, hold_s=0.2, prefetch=2, unavailable_bound_s=2.0),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=3.0, target="a2"),
            Fault(
                kind="slow",
                start_s=1.0,
                duration_s=6.0,
                shape="pair-link",
                options={"rate_bytes_s": 200_000.0},
            ),
            Fault(kind="kill", start_s=0.6, after="sync/snapshot-sent", duration_s=4.0, target="source"),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
        guards=(AtStake(least=20, at="kill-3", broker="a1"),),
        refuter=Refuter(
            without="a backup takes over with a copy that is not up to date",
            fails="a2 became live",
            changes=(
                Replacement(_BACKUP_ROLE, "if not ending.up_to_date:", "if False:"),
                Replacement("broker/storage/journal.py", 'if manifest.state != "complete":', "if False:"),
            ),
        ),
    ),
    Scenario(
        id="RP4",
        claim="one pair cannot avoid network isolation",
        source="AMQ 17.3.1.3",
        spec=_spec("rp4", pairs=1),
        schedule=_faults(_pair_link(3.0, 6.0)),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
        refuter=Refuter(
            without="one pair needs a vote, too",
            fails="none of split-brain",
            changes=(
                Replacement(
                    _QUORUM, "return live_nodes // 2 if live_nodes <= 2", "return 1 if live_nodes <= 2"
                ),
            ),
        ),
    ),
    Scenario(
        id="RP5",
        claim="three pairs with both votes on: the isolated live shuts down, the backup starts with a "
        "majority",
        source="AMQ 17.3.3.1",
        spec=_spec("rp5", pairs=3, properties=_votes(live=True)),
        schedule=_faults(_isolate_live(3.0)),
        allowed=("split-brain",),
        roles=Roles(live=("a2",), ended=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"),)),),
        refuter=Refuter(
            without="a live that lost its backup goes on without asking",
            fails="a1 did not end itself",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "if section.vote_on_replication_failure and not await vote.passes():",
                    "if False:",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP6",
        claim="three pairs with vote-on-replication-failure=false, backup-vote=partner-gone: an "
        "isolated live and its backup both become active",
        source="AMQ 17.3.3.1",
        spec=_spec("rp6", pairs=3, properties=_votes(live=False)),
        schedule=_faults(_isolate_live(3.0, 7.0)),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
        refuter=Refuter(
            without="a live asks for votes also where vote-on-replication-failure is false",
            fails="none of split-brain",
            changes=(Replacement(_LIVE_ROLE, "if section.vote_on_replication_failure and not", "if not"),),
        ),
    ),
    Scenario(
        id="RP6-link",
        claim="the same, but only the pair's link is cut: the others still have the live, so the backup "
        "stays passive",
        source="AMQ 17.3.3.1",
        spec=_spec("rp6-link", pairs=3, properties=_votes(live=False)),
        schedule=_faults(_pair_link(3.0, 7.0, "a")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a2", "a1 is in reach and live")),
        refuter=Refuter(
            without="a voter does not look whether it still has the live",
            fails="a2 became live",
            changes=(
                Replacement(
                    _QUORUM, "not request.stays and self._partner_gone:", "not request.stays and False:"
                ),
            ),
        ),
    ),
    Scenario(
        id="RP6-reachability",
        claim="three pairs with vote-on-replication-failure=false, backup-vote=reachability: a cut of "
        "the pair's link alone makes both active",
        source="AMQ 17.3.1.3",
        spec=_spec("rp6-reachability", pairs=3, properties=_votes(live=False, backup_vote="reachability")),
        schedule=_faults(_pair_link(3.0, 7.0, "a")),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
        refuter=Refuter(
            without="a voter refuses a backup whose live it still has, whatever backup-vote says",
            fails="none of split-brain",
            changes=(
                Replacement(_QUORUM, "not request.stays and self._partner_gone:", "not request.stays:"),
            ),
        ),
    ),
    Scenario(
        id="RP7",
        claim="a lost pair of three leaves no majority: the backup does not start, the live that votes "
        "shuts down",
        source="AMQ 17.3.3.1",
        spec=_spec("rp7", pairs=3, properties=_votes(live=True), unavailable_bound_s=2.0),
        schedule=_faults(_kill("c1,c2", 2.0), _pair_link(4.0, 6.0, "a")),
        roles=Roles(never_live=("a2",), ended=("a1",)),
        besides=(Takeovers(), Reported("unavailable")),
        refuter=Refuter(
            without="half of the brokers are a majority",
            fails="a1 did not end itself",
            changes=(Replacement(_QUORUM, "else live_nodes // 2 + 1\n", "else live_nodes // 2\n"),),
        ),
    ),
    Scenario(
        id="RP8",
        claim="five pairs survive a lost pair and one more failure: the live that votes goes on",
        source="AMQ 17.3.3.1",
        spec=_spec("rp8", pairs=5, properties=_votes(live=True)),
        schedule=_faults(_kill("e1,e2", 2.0), _pair_link(4.0, 6.0, "a")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a1", "live vote, round .*: 3 of 3 votes needed")),
        refuter=Refuter(
            without="a live loses every vote",
            fails="a2 became live",
            changes=(Replacement(_DECISION, "        return result.passed\n", "        return False\n"),),
        ),
    ),
    Scenario(
        id="RP8-kill",
        claim="five pairs survive a lost pair and one more failure: the backup of a killed live starts",
        source="AMQ 17.3.3.1",
        spec=_spec("rp8-kill", pairs=5, properties=_votes(live=True)),
        schedule=_faults(_kill("e1,e2", 2.0), _kill("a1", 4.0)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"),)),
            Says("a2", "backup vote, round .*: 3 of 3 votes needed"),
        ),
        refuter=Refuter(
            without="all other brokers must grant a vote",
            fails="taken over: nothing",
            changes=(Replacement(_QUORUM, "else live_nodes // 2 + 1\n", "else live_nodes - 1\n"),),
        ),
    ),
    Scenario(
        id="RP9-before",
        claim="the threshold does not shrink when a pair is removed",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-before", pairs=3, properties=_votes(live=True), unavailable_bound_s=2.0),
        schedule=_faults(
            Fault(kind="stop", start_s=2.0, target="c1,c2"),
            _kill("a1", 4.0, 5.0),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
        refuter=Refuter(
            without="the threshold follows the number of brokers that are there",
            fails="a2 became live",
            changes=(
                Replacement(
                    _MEMBERSHIP,
                    "self.live_nodes_seen = max(self.live_nodes_seen, len(nodes))",
                    "self.live_nodes_seen = len(nodes)",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP9-after",
        claim="it shrinks when the remaining brokers restart",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-after", pairs=3, seconds=16.0, properties=_votes(live=True)),
        schedule=_faults(
            Fault(kind="stop", start_s=1.0, target="c1,c2"),
            Fault(kind="stop", start_s=3.0, duration_s=1.0, target="a1,a2,b1,b2"),
            _kill("a1", 9.0),
        ),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"),)),),
        refuter=Refuter(
            without="the threshold outlives a restart",
            fails="taken over: nothing",
            changes=(
                Replacement(
                    _MEMBERSHIP, "        self.live_nodes_seen = 0\n", "        self.live_nodes_seen = 3\n"
                ),
            ),
        ),
    ),
    Scenario(
        id="RP10-inside",
        claim="a backup that reaches the others within its vote retries starts",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-inside", pairs=3, properties=_retries(20, 200, 1000)),
        schedule=_faults(
            Fault(
                kind="partition", start_s=2.0, duration_s=3.0, shape="isolate-backup", options={"pair": "a"}
            ),
            _kill("a1", 2.5),
        ),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"),)),),
        refuter=Refuter(
            without="a backup asks once, whatever vote-retries is",
            fails="taken over: nothing",
            changes=(
                Replacement(
                    _BACKUP_ROLE,
                    "for attempt in range(section.vote_retries + 1):",
                    "for attempt in range(1):",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP10-outside",
        claim="a backup that reaches the others after its vote retries stays passive",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-outside", pairs=3, properties=_retries(1, 100, 200), unavailable_bound_s=2.0),
        schedule=_faults(
            Fault(
                kind="partition", start_s=2.0, duration_s=4.5, shape="isolate-backup", options={"pair": "a"}
            ),
            _kill("a1", 2.2, 7.0),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
        refuter=Refuter(
            without="a backup asks on and on, whatever vote-retries is",
            fails="a2 became live",
            changes=(
                Replacement(
                    _BACKUP_ROLE,
                    "for attempt in range(section.vote_retries + 1):",
                    "for attempt in range(10_000):",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP10-wait",
        claim="a voter that does not answer within quorum-vote-wait says no",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-wait", pairs=3, properties=_retries(1, 50, 100), unavailable_bound_s=2.0),
        # Both voters stand still for longer than both rounds, and for too short a time to be taken
        # for gone.
        schedule=_faults(
            Fault(kind="pause", start_s=2.4, duration_s=0.8, target="b1,c1"),
            _kill("a1", 2.5, 6.0),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Reported("unavailable"),
            Says("a2", "round 2 of 2: 0 of 2 votes needed, 2 other live brokers in reach"),
        ),
        refuter=Refuter(
            without="a backup waits for the voters' answers, whatever quorum-vote-wait is",
            fails="a2 became live",
            changes=(
                Replacement(_BACKUP_ROLE, "timeout_s=section.quorum_vote_wait / 1000,", "timeout_s=60.0,"),
            ),
        ),
    ),
    Scenario(
        id="RP11",
        claim="without a backup the live serves on unreplicated; with its disk goes what was "
        "acknowledged meanwhile, and nothing else",
        source="AMQ 17.3.1.3",
        # The backup has what was acknowledged while it was there: made master, it serves that.
        spec=_spec("rp11", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            _kill("a2", 2.0, 5.0),
            Fault(kind="destroy", start_s=6.0, target="a1"),
            _reconfigure("a2", "master", 6.3),
            _reconfigure("a1", "slave", 6.4),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2",)),
        besides=(Exactly(finding="lost", window=("kill-1", "destroy-2")),),
        guards=(AtStake(least=20, at="kill-1", broker="a1"),),
        refuter=Refuter(
            without="a live without a backup answers nobody",
            fails="none of lost",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "        self.gate.remote = None\n        self._release()\n",
                    "        self.gate.remote = None\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP12",
        claim="after a failover nothing is replicated until a backup attaches",
        source="AMQ 17.3.1.3",
        spec=_spec("rp12", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            _kill("a1", 2.0, 8.0),
            Fault(kind="destroy", start_s=7.0, duration_s=1.0, target="a2"),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2",)),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "destroy-2")),),
        refuter=Refuter(
            without="a broker that took over answers nobody until it has a backup of its own",
            fails="none of lost",
            changes=(
                Replacement(
                    _POLICY,
                    "            self.reign = reign\n",
                    "            if self._took_over:\n                reign.gate.hold()\n"
                    "            self.reign = reign\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP13-right",
        claim="both stopped: started in the right order, the one that was live last first, nothing is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-right", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            Fault(kind="stop", start_s=3.0, duration_s=5.0, target="a2"),
            _kill("a1", 5.0, 2.0),
        ),
        roles=Roles(live=("a1",)),
        besides=(Takeovers(),),
        guards=(AtStake(least=20, at="kill-2", broker="a1"),),
        refuter=_FORGETS,
    ),
    Scenario(
        id="RP13-wrong",
        claim="both stopped: started in the wrong order, what only the other had is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-wrong", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            _kill("a1", 2.0, 4.0),
            _kill("a2", 5.0, 3.0),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2", "a1")),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "kill-2")),),
        refuter=Refuter(
            without="a slave that was live last starts as live by itself",
            fails="none of lost",
            changes=(
                Replacement(
                    _POLICY,
                    "        live = isinstance(self.section, MasterSection) and not await "
                    "self._must_follow(stopping)\n",
                    "        live = self._activation > 1 or (\n            isinstance(self.section, "
                    "MasterSection) and not await self._must_follow(stopping)\n        )\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP14-false",
        claim="check-for-live-server=false: duplicates after the old live restarts",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-false", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": False}}),
        schedule=_faults(_kill("a1", 3.0, 3.0)),
        required=("duplicate", "split-brain"),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2", "a1")),
        refuter=Refuter(
            without="a master looks for a live with its node ID, whatever check-for-live-server is",
            fails="none of duplicate, split-brain",
            changes=(Replacement(_POLICY, "if not section.check_for_live_server:", "if False:"),),
        ),
    ),
    Scenario(
        id="RP14-true",
        claim="check-for-live-server=true: the old live synchronises and takes over again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-true", pairs=1, properties={"*": {f"{_MASTER}check-for-live-server": True}}),
        schedule=_faults(_kill("a1", 3.0, 3.0)),
        roles=Roles(live=("a2", "a1")),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"))),),
        refuter=Refuter(
            without="a master never looks for a live with its node ID",
            fails="split-brain",
            changes=(Replacement(_POLICY, "if not section.check_for_live_server:", "if True:"),),
        ),
    ),
    Scenario(
        id="RP15",
        claim="group-name pairs live and backup, whatever order they start in",
        source="AMQ 17.3.3.2",
        spec=_spec("rp15", pairs=2, properties=_votes(live=False)),
        # b2 first, so that either live could have it; then each live is killed, and only its own
        # backup can take its place.
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=1.0, target="b2"),
            Fault(kind="late-start", start_s=0.0, duration_s=2.0, target="a2"),
            _kill("a1", 4.0),
            _kill("b1", 8.0),
        ),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("b1", "b2"))),),
        refuter=Refuter(
            without="any broker backs any live, whatever its group-name",
            fails="taken over: ",
            changes=(
                Replacement(_LIVE_ROLE, "if request.group_name != self.section.group_name:", "if False:"),
                Replacement(
                    _MEMBERSHIP,
                    "if member.live and member.group_name == group_name and member.name",
                    "if member.live and member.name",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP16",
        claim="a slow replication link slows sends, which wait for the backup",
        source="AMQ 17.3.3",
        spec=_spec("rp16", pairs=1),
        schedule=_faults(
            Fault(kind="slow", start_s=2.0, duration_s=6.0, shape="pair-link", options={"delay_ms": 150.0})
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=0.3, most_s=1.5)),
        refuter=Refuter(
            without="receipts do not wait for the backup",
            fails="the slowest send took",
            changes=(
                Replacement(
                    _GATE,
                    "return self._local if remote is None or remote > self._local else remote",
                    "return self._local",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP16-disk",
        claim="a backup whose disk stands still is given up after call-timeout: sends wait for so long, "
        "and not longer",
        source="AMQ 17.3.3",
        spec=_spec("rp16-disk", pairs=1, operation_timeout_s=20.0),
        schedule=_faults(Fault(kind="disk-stall", start_s=3.0, duration_s=8.0, target="a2")),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Says("a1", "has not acknowledged entry [0-9]+ within call-timeout"),
            SlowestSend(least_s=0.9, most_s=2.5),
        ),
        refuter=Refuter(
            without="a live waits for its backup for ever, whatever call-timeout is",
            fails="the slowest send took",
            changes=(
                Replacement(_FEED, "if waiting and now - waiting[0][1] > self._call_timeout_s:", "if False:"),
            ),
        ),
    ),
    Scenario(
        id="RP16-link",
        claim="a backup whose link stands still is given up after replication-patience: sends wait for "
        "so long, and not longer",
        source="AMQ 17.3.3",
        spec=_spec(
            "rp16-link",
            pairs=3,
            operation_timeout_s=20.0,
            properties={"*": {**_votes(live=True)["*"], "cluster.call-timeout": 8000}},
        ),
        schedule=_faults(
            Fault(kind="stall", start_s=3.0, duration_s=8.0, shape="pair-link", options={"pair": "a"})
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=0.9, most_s=3.5)),
        refuter=Refuter(
            without="a live waits for a silent backup for ever, whatever replication-patience is",
            fails="the slowest send took",
            changes=(
                Replacement(_FEED, "if since is not None and now - since > self._lease_s / 2:", "if False:"),
                Replacement(_FEED, "        link.set_ttl(patience_s)\n", "        link.set_ttl(3600.0)\n"),
            ),
        ),
    ),
    Scenario(
        id="RP16-sync",
        claim="a backup that does not synchronise within initial-replication-sync-timeout is given up, "
        "and holds nobody up meanwhile",
        source="AMQ 17.3.3",
        spec=_spec(
            "rp16-sync",
            pairs=1,
            hold_s=0.2,
            prefetch=2,
            operation_timeout_s=20.0,
            properties=_both(initial_replication_sync_timeout=1500),
        ),
        schedule=_faults(
            Fault(kind="late-start", start_s=0.0, duration_s=2.0, target="a2"),
            Fault(kind="disk-stall", start_s=0.0, after="sync/snapshot-sent", duration_s=5.0, target="a2"),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Says("a1", "not synchronised within initial-replication-sync-timeout"),
            SlowestSend(most_s=1.0),
        ),
        refuter=Refuter(
            without="a synchronisation may take for ever, whatever initial-replication-sync-timeout is",
            fails="not synchronised within",
            changes=(
                Replacement(
                    _FEED, "            self._sync_timeout_s, self.end,", "            3600.0, self.end,"
                ),
            ),
        ),
    ),
    Scenario(
        id="RP17-right",
        claim="both stopped, the backup was live last: made master and started first, it goes on with "
        "all it has",
        source="AMQ 17.3.1.3",
        spec=_spec("rp17-right", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            _kill("a1", 2.0, 6.0),
            _kill("a2", 5.0, 1.0),
            _reconfigure("a2", "master", 5.3),
            _reconfigure("a1", "slave", 5.4),
        ),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"),)),),
        guards=(AtStake(least=20, at="kill-2", broker="a2"),),
        refuter=_FORGETS,
    ),
    Scenario(
        id="RP17-wrong",
        claim="the backup was live last and is made master, but the old master is started first: what "
        "only the backup had is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp17-wrong", pairs=1, hold_s=0.2, prefetch=2),
        schedule=_faults(
            _kill("a1", 2.0, 4.0),
            _kill("a2", 5.0, 3.0),
            _reconfigure("a2", "master", 5.3),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2", "a1")),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "kill-2")),),
        refuter=Refuter(
            without="a master never looks for a live with its node ID",
            fails="none of lost",
            changes=(Replacement(_POLICY, "if not section.check_for_live_server:", "if True:"),),
        ),
    ),
    Scenario(
        id="RP18",
        claim="a backup that became active starts a live vote, too, when it loses its own backup",
        source="AMQ 17.3.3.1",
        spec=_spec(
            "rp18",
            pairs=3,
            seconds=16.0,
            properties={"*": {**_votes(live=True)["*"], f"{_SLAVE}allow-failback": False}},
        ),
        schedule=_faults(_kill("a1", 2.0, 2.0), _isolate_live(8.0)),
        allowed=("split-brain",),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"))),
            Says("a2", "the live vote was lost"),
        ),
        refuter=Refuter(
            without="only a master asks for votes when it loses its backup",
            fails="a2 did not end itself",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "if section.vote_on_replication_failure and not",
                    "if not isinstance(section, SlaveSection) and section.vote_on_replication_failure "
                    "and not",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP19-true",
        claim="allow-failback=true: the old live gets its place back, the backup is a backup again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp19-true", pairs=1, seconds=15.0, hold_s=0.2, prefetch=2),
        schedule=_faults(_kill("a1", 2.0, 3.0), _kill("a1", 9.0)),
        # The second takeover shows that the backup became one again.
        besides=(
            Takeovers(
                (ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"), ExpectedTakeover("a1", "a2"))
            ),
        ),
        guards=(AtStake(least=20, at="kill-1", broker="a1"),),
        refuter=Refuter(
            without="a slave never gives the place back",
            fails="taken over: a1's data by a2",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "isinstance(self.section, SlaveSection) and self.section.allow_failback:",
                    "False:",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP19-false",
        claim="allow-failback=false: the backup stays live when the old live comes back, which is its backup",
        source="AMQ 17.3.3.2",
        spec=_spec(
            "rp19-false",
            pairs=1,
            seconds=15.0,
            hold_s=0.2,
            prefetch=2,
            properties={"*": {f"{_SLAVE}allow-failback": False}},
        ),
        schedule=_faults(_kill("a1", 2.0, 3.0)),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(
            Takeovers((ExpectedTakeover("a1", "a2"),)),
            Says("a2", "replication: a1 is up to date"),
        ),
        refuter=Refuter(
            without="a slave gives the place back, whatever allow-failback is",
            fails="a1 became live",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "isinstance(self.section, SlaveSection) and self.section.allow_failback:",
                    "isinstance(self.section, SlaveSection):",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP19-stop",
        claim="restart-backup=false: the backup stops once it has given the place back",
        source="AMQ 17.3.3.2",
        spec=_spec(
            "rp19-stop",
            pairs=1,
            seconds=15.0,
            hold_s=0.2,
            prefetch=2,
            properties={"*": {f"{_SLAVE}restart-backup": False}},
        ),
        schedule=_faults(_kill("a1", 2.0, 3.0)),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a1"))),),
        refuter=Refuter(
            without="a slave that gave the place back is a backup again, whatever restart-backup is",
            fails="a2 did not end itself",
            changes=(
                Replacement(
                    _POLICY,
                    "                    and not self.section.restart_backup\n",
                    "                    and False\n",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP19-several",
        claim="several backups: one takes over, the next becomes its backup, and the old live gets "
        "nothing back",
        source="AMQ 17.3.3.2",
        spec=_spec(
            "rp19-several",
            pairs=1,
            seconds=15.0,
            hold_s=0.2,
            prefetch=2,
            properties={"group": {"backups": 2}},
        ),
        schedule=_faults(_kill("a1", 3.0, 5.0)),
        roles=Roles(never_live=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1"),)), Says("a1", "is our backup already|is not our live")),
        refuter=Refuter(
            without="a live takes a second backup in the place of the first",
            fails="a1 became live",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "        if self.feed is not None:\n            return",
                    "        if False:\n            return",
                ),
            ),
        ),
    ),
    Scenario(
        id="RP20",
        claim="an isolated live acknowledges nothing to the clients on its side that its backup does "
        "not have",
        source="AMQ 17.3.3.1",
        # Consumers that hold messages: what the isolated live had acknowledged would wait in its
        # store alone.
        spec=_spec("rp20", pairs=3, hold_s=0.5, prefetch=2, properties=_votes(live=True)),
        schedule=_faults(_isolate_live(3.0)),
        roles=Roles(live=("a2",), ended=("a1",)),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"),)),),
        guards=(AtStake(least=20, at="partition-1", broker="a1"),),
        refuter=Refuter(
            without="a live that lost its backup answers who waits before its vote is decided, as "
            "Apache Artemis does",
            fails="lost besides",
            changes=(
                Replacement(
                    _LIVE_ROLE,
                    "        self._hold()\n        if self._ended.done():\n            return\n        "
                    "if clean:",
                    "        self.gate.remote = None\n        self._release()\n        if "
                    "self._ended.done():\n            return\n        if clean:",
                ),
            ),
        ),
    ),
)
