"""The scenarios of policy ``replication``: AMQ 17.3.1.3, 17.3.3, rows RP1 to RP20 of the claims."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.claims.scenarios.cases import (
    AND_AGAIN,
    AND_BACK,
    BY_A2,
    SLOW,
    TAKEN,
    at_stake,
    fault,
    faults,
    load,
    paged,
    properties,
)
from harness.claims.scenarios.expectations import (
    Exactly,
    ExpectedTakeover,
    Reported,
    Says,
    SlowestSend,
    Takeovers,
)
from harness.claims.scenarios.scenario import FOLLOWS_TWO_LIVES, Roles, Scenario
from harness.interface import Fault, TestSpec

_MASTER: Final = "ha-policy.replication.master."
_SLAVE: Final = "ha-policy.replication.slave."


def _spec(name: str, pairs: int = 1, seconds: float = 12.0, **fields: Any) -> TestSpec:
    return load(name, "replication", seconds, pairs=pairs, clients=2 * pairs + 2, **fields)


def _of_pair(**values: object) -> dict[str, object]:
    """Return properties of masters and slaves alike."""
    return {**properties(_MASTER, **values), **properties(_SLAVE, **values)}


_VOTES: Final = _of_pair(vote_on_replication_failure=True)
_NO_VOTES: Final = _of_pair(vote_on_replication_failure=False)


def _retries(retries: int, wait_ms: int, round_ms: int) -> dict[str, object]:
    return properties(_SLAVE, vote_retries=retries, vote_retry_wait=wait_ms, quorum_vote_wait=round_ms)


def _cut(shape: str, start_s: float, duration_s: float | None = None, **options: str) -> Fault:
    return fault("partition", start_s, duration_s, None, shape=shape, **options)


_AFTER_LOSS: Final = ("duplicate", "reordered", "reordered-realtime", "unavailable")

_RP1: Final = Scenario(
    id="RP1",
    claim="the backup has all data that the live acknowledged",
    source="AMQ 17.3.1.2",
    # Consumers are slow, so that the backup must have messages that were not consumed yet.
    spec=_spec("rp1", **SLOW),
    schedule=faults(fault("kill", 4.0)),
    besides=TAKEN,
    guards=at_stake("kill-1"),
)

SCENARIOS: Final = (
    _RP1,
    msgspec.structs.replace(
        _RP1,
        id="RP1-large",
        claim="the backup also has the large messages that the live acknowledged",
        spec=_spec("rp1-large", large_message_share=0.2, **SLOW),
    ),
    msgspec.structs.replace(
        _RP1,
        id="RP1-paging",
        claim="the backup also has the messages that the live has on pages",
        spec=paged(_spec("rp1-paging")),
    ),
    Scenario(
        id="RP2",
        claim="a backup that joins under load synchronises the existing data",
        source="AMQ 17.3.3",
        spec=_spec("rp2", **SLOW),
        schedule=faults(fault("late-start", 0.0, 3.0, "a2"), fault("kill", 6.0)),
        besides=TAKEN,
        guards=(*at_stake("heal:late-start-1", None), *at_stake("kill-2")),
    ),
    Scenario(
        id="RP3",
        claim="the live is killed before the synchronisation ends: the backup does not take over with "
        "partial data",
        source="AMQ 17.3.3",
        # The data are so many and the link so slow that the copy is incomplete when the live dies.
        spec=_spec("rp3", payload_bytes=4096, **SLOW, unavailable_bound_s=2.0),
        schedule=faults(
            fault("late-start", 0.0, 3.0, "a2"),
            fault("slow", 1.0, 6.0, None, shape="pair-link", rate_bytes_s=200_000.0),
            fault("kill", 0.6, 4.0, "source", after="sync/snapshot-sent"),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
        guards=at_stake("kill-3"),
    ),
    Scenario(
        id="RP4",
        claim="one pair cannot avoid network isolation",
        source="AMQ 17.3.1.3",
        spec=_spec("rp4"),
        schedule=faults(_cut("pair-link", 3.0, 6.0)),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP5",
        claim="three pairs with both votes on: the isolated live shuts down, and the backup becomes "
        "live with a majority",
        source="AMQ 17.3.3.1",
        spec=_spec("rp5", 3, every=_VOTES),
        schedule=faults(_cut("isolate-live", 3.0, pair="a")),
        allowed=("split-brain",),
        roles=Roles(live=("a2",), ended=("a1",)),
        besides=(BY_A2,),
    ),
    Scenario(
        id="RP6",
        claim="three pairs with vote-on-replication-failure=false, backup-vote=partner-gone: an "
        "isolated live and its backup both become live",
        source="AMQ 17.3.3.1",
        spec=_spec("rp6", 3, every=_NO_VOTES),
        schedule=faults(_cut("isolate-live", 3.0, 7.0, pair="a")),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP6-link",
        claim="as RP6, but only the pair's link is cut: the other brokers still reach the live, so "
        "the backup stays passive",
        source="AMQ 17.3.3.1",
        spec=_spec("rp6-link", 3, every=_NO_VOTES),
        schedule=faults(_cut("pair-link", 3.0, 7.0, pair="a")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a2", "a1 is in reach and live")),
    ),
    Scenario(
        id="RP6-reachability",
        claim="three pairs with vote-on-replication-failure=false, backup-vote=reachability: if only "
        "the pair's link is cut, both become live",
        source="AMQ 17.3.1.3",
        spec=_spec(
            "rp6-reachability",
            3,
            every=_of_pair(vote_on_replication_failure=False, backup_vote="reachability"),
        ),
        schedule=faults(_cut("pair-link", 3.0, 7.0, pair="a")),
        required=("split-brain",),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2",)),
    ),
    Scenario(
        id="RP7",
        claim="if one of three pairs is lost, no majority is left: the backup does not become live, "
        "and a live that votes shuts down",
        source="AMQ 17.3.3.1",
        spec=_spec("rp7", 3, every=_VOTES, unavailable_bound_s=2.0),
        schedule=faults(fault("kill", 2.0, target="c1,c2"), _cut("pair-link", 4.0, 6.0, pair="a")),
        roles=Roles(never_live=("a2",), ended=("a1",)),
        besides=(Takeovers(), Reported("unavailable")),
    ),
    Scenario(
        id="RP8",
        claim="five pairs survive a lost pair and one more failure: the live that votes goes on",
        source="AMQ 17.3.3.1",
        spec=_spec("rp8", 5, every=_VOTES),
        schedule=faults(fault("kill", 2.0, target="e1,e2"), _cut("pair-link", 4.0, 6.0, pair="a")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Says("a1", "live vote, round .*: 3 of 3 needed votes granted")),
    ),
    Scenario(
        id="RP8-kill",
        claim="five pairs survive a lost pair and one more failure: the backup of a killed live becomes live",
        source="AMQ 17.3.3.1",
        spec=_spec("rp8-kill", 5, every=_VOTES),
        schedule=faults(fault("kill", 2.0, target="e1,e2"), fault("kill", 4.0)),
        besides=(BY_A2, Says("a2", "backup vote, round .*: 3 of 3 needed votes granted")),
    ),
    Scenario(
        id="RP9-before",
        claim="the threshold does not shrink when a pair is removed",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-before", 3, every=_VOTES, unavailable_bound_s=2.0),
        schedule=faults(fault("stop", 2.0, target="c1,c2"), fault("kill", 4.0, 5.0)),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
    ),
    Scenario(
        id="RP9-after",
        claim="the threshold shrinks when the remaining brokers restart",
        source="AMQ 17.3.3.1",
        spec=_spec("rp9-after", 3, seconds=16.0, every=_VOTES),
        schedule=faults(
            fault("stop", 1.0, target="c1,c2"), fault("stop", 3.0, 1.0, "a1,a2,b1,b2"), fault("kill", 9.0)
        ),
        besides=(BY_A2,),
    ),
    Scenario(
        id="RP10-inside",
        claim="a backup that reaches the other brokers within its vote retries becomes live",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-inside", 3, every=_retries(20, 200, 1000)),
        schedule=faults(_cut("isolate-backup", 2.0, 3.0, pair="a"), fault("kill", 2.5)),
        besides=(BY_A2,),
    ),
    Scenario(
        id="RP10-outside",
        claim="a backup that reaches the other brokers only after its vote retries stays passive",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-outside", 3, every=_retries(1, 100, 200), unavailable_bound_s=2.0),
        schedule=faults(_cut("isolate-backup", 2.0, 4.5, pair="a"), fault("kill", 2.2, 7.0)),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), Reported("unavailable")),
    ),
    Scenario(
        id="RP10-wait",
        claim="a voter that does not answer within quorum-vote-wait counts as a no",
        source="AMQ 17.3.3.1",
        spec=_spec("rp10-wait", 3, every=_retries(1, 50, 100), unavailable_bound_s=2.0),
        # Both voters are paused for longer than both rounds, but too briefly to be considered gone.
        schedule=faults(fault("pause", 2.4, 0.8, "b1,c1"), fault("kill", 2.5, 6.0)),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Reported("unavailable"),
            Says("a2", "round 2 of 2: 0 of 2 needed votes granted, 2 other live brokers in reach"),
        ),
    ),
    Scenario(
        id="RP11",
        claim="without a backup the live serves unreplicated; if its disk is destroyed, the messages "
        "acknowledged meanwhile are lost, and no others",
        source="AMQ 17.3.1.3",
        # The backup has what was acknowledged while it ran, and serves that when made master.
        spec=_spec("rp11", **SLOW),
        schedule=faults(
            fault("kill", 2.0, 5.0, "a2"),
            fault("destroy", 6.0),
            fault("reconfigure", 6.3, 0.1, "a2", **{"as": "master"}),
            fault("reconfigure", 6.4, 0.1, "a1", **{"as": "slave"}),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2",)),
        besides=(Exactly(finding="lost", window=("kill-1", "destroy-2")),),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="RP12",
        claim="after a failover nothing is replicated until a backup attaches",
        source="AMQ 17.3.1.3",
        spec=_spec("rp12", **SLOW),
        schedule=faults(fault("kill", 2.0, 8.0), fault("destroy", 7.0, 1.0, "a2")),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2",)),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "destroy-2")),),
    ),
    Scenario(
        id="RP13-right",
        claim="both brokers stopped: nothing is lost if the broker that was live last starts first",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-right", **SLOW),
        schedule=faults(fault("stop", 3.0, 5.0, "a2"), fault("kill", 5.0, 2.0)),
        roles=Roles(live=("a1",)),
        besides=(Takeovers(),),
        guards=at_stake("kill-2"),
    ),
    Scenario(
        id="RP13-wrong",
        claim="both brokers stopped: if the wrong broker starts first, data that only the other "
        "broker has is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp13-wrong", **SLOW),
        schedule=faults(fault("kill", 2.0, 4.0), fault("kill", 5.0, 3.0, "a2")),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2", "a1")),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "kill-2")),),
    ),
    Scenario(
        id="RP14-false",
        claim="check-for-live-server=false: messages are duplicated after the old live restarts",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-false", every=properties(_MASTER, check_for_live_server=False)),
        schedule=faults(fault("kill", 3.0, 3.0)),
        required=("duplicate", "split-brain"),
        allowed=FOLLOWS_TWO_LIVES,
        roles=Roles(live=("a2", "a1")),
    ),
    Scenario(
        id="RP14-true",
        claim="check-for-live-server=true: the old live synchronises and takes over again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp14-true", every=properties(_MASTER, check_for_live_server=True)),
        schedule=faults(fault("kill", 3.0, 3.0)),
        roles=Roles(live=("a2", "a1")),
        besides=(AND_BACK,),
    ),
    Scenario(
        id="RP15",
        claim="group-name pairs live and backup, in whatever order they start",
        source="AMQ 17.3.3.2",
        spec=_spec("rp15", 2, every=_NO_VOTES),
        # b2 starts first, so that either live could have it as its backup. Then each live is
        # killed, and only its own backup can take its place.
        schedule=faults(
            fault("late-start", 0.0, 1.0, "b2"),
            fault("late-start", 0.0, 2.0, "a2"),
            fault("kill", 4.0),
            fault("kill", 8.0, target="b1"),
        ),
        besides=(Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("b1", "b2"))),),
    ),
    Scenario(
        id="RP16",
        claim="a slow replication link slows sends, which wait for the backup",
        source="AMQ 17.3.3",
        spec=_spec("rp16"),
        schedule=faults(fault("slow", 2.0, 6.0, None, shape="pair-link", delay_ms=150.0)),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=0.3, most_s=1.5)),
    ),
    Scenario(
        id="RP16-disk",
        claim="the disk of a backup stands still: sends wait until the live gives the backup up after "
        "call-timeout, and no longer",
        source="AMQ 17.3.3",
        spec=_spec("rp16-disk", operation_timeout_s=20.0),
        schedule=faults(fault("disk-stall", 3.0, 8.0, "a2")),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Says("a1", "has not acknowledged entry [0-9]+ within call-timeout"),
            SlowestSend(least_s=0.9, most_s=2.5),
        ),
    ),
    Scenario(
        id="RP16-link",
        claim="the link to a backup stands still: sends wait until the live gives the backup up after "
        "replication-patience, and no longer",
        source="AMQ 17.3.3",
        spec=_spec("rp16-link", 3, operation_timeout_s=20.0, every={**_VOTES, "cluster.call-timeout": 8000}),
        schedule=faults(fault("stall", 3.0, 8.0, None, shape="pair-link", pair="a")),
        roles=Roles(never_live=("a2",)),
        besides=(Takeovers(), SlowestSend(least_s=0.9, most_s=3.5)),
    ),
    Scenario(
        id="RP16-sync",
        claim="the live gives up a backup that does not synchronise within "
        "initial-replication-sync-timeout; no send waits for it meanwhile",
        source="AMQ 17.3.3",
        spec=_spec(
            "rp16-sync",
            **SLOW,
            operation_timeout_s=20.0,
            every=_of_pair(initial_replication_sync_timeout=1500),
        ),
        schedule=faults(
            fault("late-start", 0.0, 2.0, "a2"),
            fault("disk-stall", 0.0, 5.0, "a2", after="sync/snapshot-sent"),
        ),
        roles=Roles(never_live=("a2",)),
        besides=(
            Takeovers(),
            Says("a1", "not synchronised within initial-replication-sync-timeout"),
            SlowestSend(most_s=1.0),
        ),
    ),
    Scenario(
        id="RP17-right",
        claim="both brokers stopped, and the backup was live last: made master and started first, it "
        "continues with all its data",
        source="AMQ 17.3.1.3",
        spec=_spec("rp17-right", **SLOW),
        schedule=faults(
            fault("kill", 2.0, 6.0),
            fault("kill", 5.0, 1.0, "a2"),
            fault("reconfigure", 5.3, 0.1, "a2", **{"as": "master"}),
            fault("reconfigure", 5.4, 0.1, "a1", **{"as": "slave"}),
        ),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(BY_A2,),
        guards=at_stake("kill-2", "a2"),
    ),
    Scenario(
        id="RP17-wrong",
        claim="the backup was live last and is made master, but the old master starts first: the data "
        "that only the backup has is lost",
        source="AMQ 17.3.1.3",
        spec=_spec("rp17-wrong", **SLOW),
        schedule=faults(
            fault("kill", 2.0, 4.0),
            fault("kill", 5.0, 3.0, "a2"),
            fault("reconfigure", 5.3, 0.1, "a2", **{"as": "master"}),
        ),
        required=("lost",),
        allowed=_AFTER_LOSS,
        roles=Roles(live=("a2", "a1")),
        besides=(Exactly(finding="lost", broker="a2", window=("kill-1", "kill-2")),),
    ),
    Scenario(
        id="RP18",
        claim="a backup that became live also starts a live vote when it loses its own backup",
        source="AMQ 17.3.3.1",
        spec=_spec("rp18", 3, seconds=16.0, every={**_VOTES, **properties(_SLAVE, allow_failback=False)}),
        schedule=faults(fault("kill", 2.0, 2.0), _cut("isolate-live", 8.0, pair="a")),
        allowed=("split-brain",),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(AND_BACK, Says("a2", "the live vote was lost")),
    ),
    Scenario(
        id="RP19-true",
        claim="allow-failback=true: the old live becomes live again, and the backup becomes a backup again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp19-true", seconds=15.0, **SLOW),
        schedule=faults(fault("kill", 2.0, 3.0), fault("kill", 9.0)),
        # The second takeover shows that the backup became a backup again.
        besides=(AND_AGAIN,),
        guards=at_stake("kill-1"),
    ),
    Scenario(
        id="RP19-false",
        claim="allow-failback=false: the backup stays live when the old live comes back; the old live "
        "becomes its backup",
        source="AMQ 17.3.3.2",
        spec=_spec("rp19-false", seconds=15.0, **SLOW, every=properties(_SLAVE, allow_failback=False)),
        schedule=faults(fault("kill", 2.0, 3.0)),
        roles=Roles(live=("a2",), never_live=("a1",)),
        besides=(BY_A2, Says("a2", "replication: a1 is up to date")),
    ),
    Scenario(
        id="RP19-stop",
        claim="restart-backup=false: the backup stops after it has given the place back",
        source="AMQ 17.3.3.2",
        spec=_spec("rp19-stop", seconds=15.0, **SLOW, every=properties(_SLAVE, restart_backup=False)),
        schedule=faults(fault("kill", 2.0, 3.0)),
        roles=Roles(live=("a1", "a2"), ended=("a2",)),
        besides=(AND_BACK,),
    ),
    Scenario(
        id="RP19-several",
        claim="several backups: one takes over, the next becomes its backup, and the old live does "
        "not become live again",
        source="AMQ 17.3.3.2",
        spec=_spec("rp19-several", seconds=15.0, **SLOW, properties={"group": {"backups": 2}}),
        schedule=faults(fault("kill", 3.0, 5.0)),
        roles=Roles(never_live=("a1",)),
        besides=(
            Takeovers((ExpectedTakeover("a1"),)),
            Says("a1", "already has the backup|does not accept this broker as its backup"),
        ),
    ),
    Scenario(
        id="RP20",
        claim="an isolated live acknowledges nothing to the clients on its side unless its backup has it",
        source="AMQ 17.3.3.1",
        # Consumers hold messages, so that what the isolated live had acknowledged would wait in
        # its store alone.
        spec=_spec("rp20", 3, hold_s=0.5, prefetch=2, every=_VOTES),
        schedule=faults(_cut("isolate-live", 3.0, pair="a")),
        roles=Roles(live=("a2",), ended=("a1",)),
        besides=(BY_A2,),
        guards=at_stake("partition-1"),
    ),
)
