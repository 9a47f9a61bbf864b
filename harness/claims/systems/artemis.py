"""The claims with brokers of Apache ActiveMQ Artemis.

These are the rows RP, SS and CL, as far as they can be shown on processes of one machine.

Times are those of JVMs on two busy cores. A broker serves 10 to 40 s after its start. A cut is
noticed after two seconds, a vote takes two more, and a broker that lost it ends within ten. A
broker's log lines are recognised by their code (AMQ221...), which is the same in all releases.
"""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import AND_BACK, BY_A2, TAKEN, at_stake, fault, faults
from harness.claims.scenarios.expectations import (
    Becomes,
    ExpectedTakeover,
    Moved,
    Reported,
    Says,
    Shares,
    SlowestSend,
    Takeovers,
)
from harness.claims.scenarios.registry import named
from harness.claims.scenarios.scenario import Roles
from harness.claims.scenarios.shared_store import NO_FAILBACK
from harness.claims.systems.row import PATIENT, Departure, SystemClaims, SystemRow, varied
from harness.interface import Fault

_SYSTEM: Final = "artemis"

_OUT_OF_ORDER: Final = "findings/artemis-2/README.md"
_ANYWAY: Final = {
    "reordered-session": Departure(
        reason="when a consumer of a group leaves, the messages that it gives back come after "
        "messages that were sent later",
        page=_OUT_OF_ORDER,
    ),
    **dict.fromkeys(
        ("reordered", "reordered-realtime"),
        Departure(
            reason="as reordered-session, if the consumer that left had not received the message",
            page=_OUT_OF_ORDER,
        ),
    ),
}
_ANSWERS_WHILE_IT_VOTES: Final = Departure(
    reason="the live goes on without its backup when it notices the cut, and votes afterwards: sends "
    "and acknowledgements that it answers meanwhile are lost",
    page="findings/artemis-1/README.md",
)

_ANSWERS_WHAT_IT_DID_NOT_WRITE: Final = Departure(
    reason="if the mount gives up a write, the broker acknowledges the message although it was not written",
    page="findings/artemis-5/README.md",
)

_TWICE: Final = ("duplicate", "group-split", "zombie")
"""The consequences of lost acknowledgements, and of a live that answers while another is live."""

_STOPPED: Final = "AMQ221002: "
_STAYS_BEHIND: Final = Departure(
    reason="the broker stops (AMQ221002), but its process remains and serves no client"
)
_LIVE_FOR_A_MOMENT: Final = Departure(
    reason="a live that stood still beyond its lease goes on for less than a second, until it checks "
    "its lock; then the broker stops (AMQ221002), but its process remains and serves no client",
    page="findings/artemis-6/README.md",
)
_VOTE_LOST: Final = Says("a1", "AMQ22106[89]: ")
_NOT_BY_VOTES: Final = Says("a2", "AMQ221070: ")
_WAITS_AGAIN: Final = Says("a1", "AMQ221034: ", times=2)


def _row(
    identifier: str, seconds: float, *some: Fault, spec: dict[str, Any] | None = None, **changes: Any
) -> SystemRow:
    """Return that row for ``seconds`` of load, with these faults."""
    pairs = named(identifier).spec.pairs
    fields = {"time_limit_s": seconds, "rate": 60.0 if pairs == 1 else 100.0, **PATIENT, **(spec or {})}
    return varied(identifier, _SYSTEM, spec=fields, schedule=faults(*some), anyway=_ANYWAY, **changes)


def _cut(shape: str, start_s: float, duration_s: float | None = None, **options: Any) -> Fault:
    return fault("partition", start_s, duration_s, None, shape=shape, **options)


def _on_nfs(mount_options: str, lease_s: float) -> dict[str, Any]:
    """Return a store on a file server of the run's own; a broker that ended gets nothing back."""
    store = {"type": "nfs", "mount-options": mount_options, "lease-ms": round(lease_s * 1000)}
    return {"properties": {"*": dict(NO_FAILBACK), "store": store}}


_TEN_BROKERS: Final = "five pairs are ten JVMs, which a machine with two cores does not start in time"
_ROOM: Final = {"address-settings.max-size-bytes": 100_000, "address-settings.page-size-bytes": 20_000}
_PAGED: Final[dict[str, Any]] = {"properties": {"*": _ROOM}}
"""Settings with which about fifty messages are in memory, and the others on pages."""
_ON_PAGES: Final = (*at_stake("kill-1"), Says("a1", "AMQ222038: "))


def _balanced(case: str) -> SystemRow:
    """Return that row of CL5; all messages of b1 arrive a little later."""
    return _row(
        f"CL5-{case}",
        20.0,
        fault("slow", 6.0, 4.0, None, shape="one-way", pair="b", direction="from", delay_ms=50.0),
        spec={"rate": 20.0},
    )


def _redistributed(identifier: str, delay: int, **changes: Any) -> SystemRow:
    """Return that row of CL6 or CL7: b1 starts when messages wait at a1."""
    settings = {"cluster.message-load-balancing": "ON_DEMAND", "address-settings.redistribution-delay": delay}
    return _row(
        identifier,
        45.0,
        fault("late-start", 0.0, 20.0, "b1"),
        spec={"rate": 20.0, "properties": {"*": settings}},
        **changes,
    )


CLAIMS: Final = SystemClaims(
    rows=(
        _balanced("all"),
        _balanced("two"),
        _balanced("off"),
        _balanced("strict"),
        _redistributed("CL6-moved", 0),
        _redistributed("CL6-off", -1),
        _redistributed(
            "CL16-groups",
            0,
            besides=(Moved(least=20, of="a1", by="b1"),),
            departure=Departure(reason="messages of groups are redistributed, too"),
        ),
        _row(
            "CL21",
            25.0,
            fault("slow", 8.0, 4.0, None, shape="one-way", pair="b", direction="from", delay_ms=50.0),
            spec={"rate": 20.0, "properties": {"*": {"cluster.message-load-balancing": "ON_DEMAND"}}},
            besides=(Shares(sent_at="a1", brokers={"a1": (140, 210), "b1": (290, 370)}),),
        ),
        _redistributed(
            "CL7-filters",
            5000,
            required=(),
            besides=(Moved(least=20, of="a1", by="b1"),),
            departure=Departure(
                reason="since 2021 (ARTEMIS-2007) a message that no consumer at its broker wants is moved to "
                "a broker with one that does"
            ),
        ),
        *(
            _row(
                f"CL12-{case}",
                60.0,
                fault("late-start", 0.0, 8.0, "c1"),
                fault("late-start", 0.0, 14.0, "d1"),
                spec={"rate": 60.0, "properties": {"*": {"cluster.message-load-balancing": mode}}},
            )
            for case, mode in (("grow", "ON_DEMAND"), ("off", "OFF"))
        ),
        _row("RP1", 30.0, fault("kill", 6.0)),
        _row("RP1-large", 30.0, fault("kill", 6.0)),
        _row("RP1-paging", 30.0, fault("kill", 6.0), spec=_PAGED, guards=_ON_PAGES),
        # The kill waits until the backup has all messages that were there.
        _row("RP2", 75.0, fault("late-start", 0.0, 8.0, "a2"), fault("kill", 4.0, after="sync/finished")),
        _row("RP4", 45.0, _cut("pair-link", 6.0, 20.0)),
        # Consumers are fast, so that most of what the live acknowledges is consumed there.
        _row(
            "RP5",
            45.0,
            _cut("isolate-live", 6.0, pair="a"),
            allowed=("split-brain", "lost", *_TWICE),
            besides=(BY_A2, _VOTE_LOST),
            departure=_ANSWERS_WHILE_IT_VOTES,
        ),
        _row("RP6", 50.0, _cut("isolate-live", 6.0, 25.0, pair="a")),
        _row(
            "RP6-link",
            50.0,
            _cut("pair-link", 6.0, 25.0, pair="a"),
            besides=(Takeovers(), _NOT_BY_VOTES),
        ),
        _row(
            "RP7",
            60.0,
            fault("kill", 4.0, target="c1,c2"),
            _cut("pair-link", 14.0, 25.0, pair="a"),
            spec={"unavailable_bound_s": 5.0},
        ),
        _row(
            "RP11",
            75.0,
            fault("kill", 5.0, 16.0, "a2"),
            fault("destroy", 16.0),
            fault("reconfigure", 17.0, 0.1, "a2", **{"as": "master"}),
            fault("reconfigure", 17.5, 0.1, "a1", **{"as": "slave"}),
        ),
        _row("RP12", 75.0, fault("kill", 5.0, 20.0), fault("destroy", 16.0, 3.0, "a2")),
        _row("RP13-right", 60.0, fault("kill", 5.0, 25.0, "a2"), fault("kill", 10.0, 5.0)),
        _row("RP13-wrong", 75.0, fault("kill", 5.0, 20.0), fault("kill", 16.0, 30.0, "a2")),
        _row("RP14-false", 50.0, fault("kill", 6.0, 10.0)),
        _row("RP14-true", 65.0, fault("kill", 6.0, 10.0)),
        _row(
            "RP15",
            100.0,
            fault("late-start", 0.0, 4.0, "b2"),
            fault("late-start", 0.0, 10.0, "a2"),
            fault("kill", 60.0),
            fault("kill", 75.0, target="b1"),
        ),
        _row(
            "RP16",
            40.0,
            fault("slow", 6.0, 20.0, None, shape="pair-link", delay_ms=150.0),
            besides=(Takeovers(), SlowestSend(least_s=0.3, most_s=5.0)),
        ),
        _row(
            "RP16-disk",
            50.0,
            fault("disk-stall", 6.0, 25.0, "a2"),
            besides=(Takeovers(), SlowestSend(most_s=0.9)),
            spec={"operation_timeout_s": 40.0},
            departure=Departure(
                reason="a backup acknowledges entries before they are on its disk, and never syncs "
                "them (`ReplicationEndpoint.noSync`): sends do not wait for a disk that cannot sync"
            ),
        ),
        _row(
            "RP16-link",
            50.0,
            fault("stall", 6.0, 25.0, None, shape="pair-link", pair="a"),
            besides=(Takeovers(), Says("a1", "AMQ222092: "), SlowestSend(least_s=0.9, most_s=10.0)),
            spec={"operation_timeout_s": 40.0},
        ),
        _row(
            "RP20",
            45.0,
            _cut("isolate-live", 6.0, 25.0, pair="a"),
            spec={"producers": 12, "consumers": 12, "hold_s": 0.5},
            required=("lost",),
            allowed=("split-brain", "double-delivery", *_TWICE),
            besides=(_VOTE_LOST,),
            departure=_ANSWERS_WHILE_IT_VOTES,
        ),
        _row("SS1", 30.0, fault("kill", 6.0)),
        _row("SS1-large", 30.0, fault("kill", 6.0)),
        _row("SS1-paging", 30.0, fault("kill", 6.0), spec=_PAGED, guards=_ON_PAGES),
        _row(
            "SS2",
            45.0,
            _cut("halves", 6.0, 20.0),
            besides=(Takeovers(), Says("a2", "AMQ2(?:12037|22095): ")),
        ),
        _row("SS4-true", 40.0, fault("stop", 6.0)),
        _row(
            "SS4-false",
            60.0,
            fault("stop", 6.0, 10.0),
            besides=(Takeovers(), Reported("unavailable")),
            spec={"unavailable_bound_s": 5.0},
        ),
        _row("SS5-true", 80.0, fault("kill", 6.0, 6.0), fault("kill", 55.0)),
        _row("SS5-false", 50.0, fault("kill", 6.0, 8.0), besides=(BY_A2, _WAITS_AGAIN)),
        _row(
            "SS5-stop",
            60.0,
            fault("kill", 6.0, 8.0),
            roles=Roles(live=("a1", "a2")),
            besides=(AND_BACK, Says("a2", _STOPPED)),
            departure=_STAYS_BEHIND,
        ),
        _row(
            "SS6",
            90.0,
            fault("late-start", 0.0, 6.0, "a3"),
            fault("kill", 40.0, 6.0),
            roles=Roles(live=("a1",)),
            besides=(AND_BACK, Says("a3", "AMQ221032: "), Says("a3", "AMQ221033: ")),
            departure=Departure(
                reason="the old live becomes live again even if another backup waits; the documents: "
                '"If the live broker is configured with multiple backups, then failback will not '
                'occur"'
            ),
        ),
        _row(
            "SS6-next",
            75.0,
            fault("late-start", 0.0, 6.0, "a3"),
            fault("kill", 40.0),
            fault("kill", 52.0, target="a2"),
            # Messages that a1 accepted wait before those that a2 accepted.
            besides=(
                Takeovers((ExpectedTakeover("a1", "a2"), ExpectedTakeover("a1", "a3"))),
                Moved(least=20, by="a3"),
            ),
        ),
        # The bound is the time that the mount waits, plus the time in which the broker that lost
        # it ends.
        _row(
            "SS7-soft",
            70.0,
            fault("nfs-stall", 6.0, 15.0),
            spec=_on_nfs("soft,timeo=5,retrans=2", 30.0),
            allowed=("lost", "duplicate"),
            besides=(*TAKEN, Becomes(broker="a1", role="stopped", after="nfs-stall-1", most_s=40.0)),
            departure=_ANSWERS_WHAT_IT_DID_NOT_WRITE,
        ),
        _row(
            "SS7-hard",
            45.0,
            fault("nfs-stall", 6.0, 6.0),
            spec={**_on_nfs("hard", 30.0), "operation_timeout_s": 30.0},
            besides=(Takeovers(), SlowestSend(least_s=4.0, most_s=20.0)),
        ),
        _row(
            "SS9",
            80.0,
            fault("nfs-disconnect", 6.0, 20.0),
            fault("pause", 6.0, 20.0),
            spec={**_on_nfs("hard", 8.0), "operation_timeout_s": 40.0},
            roles=Roles(live=("a2",)),
            besides=(
                Moved(least=20, of="a1", by="a2"),
                Says("a1", "AMQ222010: .*Lost NodeManager lock"),
                Says("a1", _STOPPED),
            ),
            allowed=("split-brain", "duplicate", "group-split"),
            departure=_LIVE_FOR_A_MOMENT,
        ),
        _row(
            "SS9-server",
            80.0,
            fault("nfs-stall", 6.0, 20.0),
            spec=_on_nfs("hard", 8.0),
            besides=(
                BY_A2,
                Moved(of="a1", by="a2"),
                Becomes(broker="a1", role="stopped", after="nfs-stall-1", most_s=40.0),
            ),
        ),
    ),
    anyway=_ANYWAY,
    left_out={
        "RP3": "no event tells when a copy is only partly done, and a kill at a fixed time proves nothing",
        "RP6-reachability": "voters of artemis tell only whether the live is gone (RP6-link)",
        "RP8": _TEN_BROKERS,
        "SS3": "brokers of artemis share a directory in these tests, not a database",
    },
)
