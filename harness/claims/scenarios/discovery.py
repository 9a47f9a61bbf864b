"""The scenarios of brokers that find each other, rows CL2 and CL18."""

from __future__ import annotations

from typing import Final

from harness.claims.scenarios.cases import fault, faults, load, properties
from harness.claims.scenarios.expectations import (
    Expectation,
    Flaps,
    KeepsKnowing,
    KnowledgeView,
    Moved,
    Notices,
    Says,
)
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault

_PAIRED: Final = ("a1", "b1"), ("b1", "a1")
_MULTICAST: Final[dict[str, object]] = {"group_address": "231.7.7.7", "group_port": 9876}
_FILES: Final[dict[str, object]] = {"jgroups_file": "/shared", "jgroups_channel": "brokers"}
_LOST: Final = "datagram-loss-1", "heal:datagram-loss-1"
_FOUND: Final = "heal:late-start-1"
_JOINS: Final = fault("late-start", 0.0, 5.0, "b1")
_DIES: Final = fault("kill", 9.0, 5.0, "b1")
_DEAD: Final = "kill-2", "heal:kill-2"


def _loses(seconds: float, chance: float) -> Fault:
    """Return a fault that loses datagrams between a1 and b1, and touches no connection."""
    return fault(
        "datagram-loss", 3.0, seconds, None, shape="link", between=["a1", "b1"], chance=chance
    )  # fmt: skip


def _discovered(period_ms: int, timeout_ms: int, group: dict[str, object] = _MULTICAST) -> dict[str, object]:
    """Return the properties of brokers that find each other in a group alone."""
    return {
        **properties("cluster.", static_connectors=[], discovery_group_ref="lan"),
        **properties("broadcast-groups.lan.", **group, broadcast_period=period_ms),
        **properties("discovery-groups.lan.", **group, refresh_timeout=timeout_ms),
    }


def _scenario(
    row: str,
    case: str,
    claim: str,
    every: dict[str, object],
    injected: Fault | tuple[Fault, ...],
    *besides: Expectation,
    seconds: float = 12.0,
    source: str = "AMQ 17.2.2",
) -> Scenario:
    """Return a scenario of three brokers, with sends at a1 and consumers at b1."""
    spec = load(
        f"{row}-{case}".lower(), "standalone", seconds, pairs=3, workload="queue", every=every,
        produce_at=("a1",), consume_at=("b1",), watch_views=True,
    )  # fmt: skip
    return Scenario(
        id=f"{row}-{case}", claim=claim, source=source, spec=spec,
        schedule=faults(*(injected if isinstance(injected, tuple) else (injected,))), besides=besides,
    )  # fmt: skip


def _know(view: KnowledgeView, window: tuple[str, str] = (_LOST[0], "heal")) -> tuple[KeepsKnowing, ...]:
    """Return the expectations that a1 and b1 know each other all the time."""
    return tuple(
        KeepsKnowing(broker=broker, others=(other,), window=window, view=view) for broker, other in _PAIRED
    )


def _notice(
    after: str, *, present: bool, within_s: float, view: KnowledgeView = "discovery"
) -> tuple[Notices, ...]:
    """Return the expectations that a1 and b1 begin, or cease, to know each other."""
    return tuple(
        Notices(broker=broker, other=other, present=present, after=after, most_s=within_s, view=view)
        for broker, other in _PAIRED
    )


_JOINED: Final = Moved(least=200, of="a1", by="b1", window=(_FOUND, "heal"))
_AROUND: Final = (
    Moved(least=100, of="a1", by="b1", window=(_FOUND, _DEAD[0])),
    Moved(least=100, of="a1", by="b1", window=(_DEAD[1], "heal")),
)
_DELIVERS: Final = Moved(least=100, of="a1", by="b1", window=_LOST)

SCENARIOS: Final = (
    _scenario(
        "CL2",
        "udp",
        "brokers that know no address of each other find a broker that joins them, by multicast, and it "
        "delivers what they have",
        _discovered(500, 2000),
        _JOINS,
        *_notice(_FOUND, present=True, within_s=3.0),
        _JOINED,
    ),
    _scenario(
        "CL2",
        "file",
        "as CL2-udp, but by files in a directory; the file of a broker that is killed stays, and others "
        "remove its entry until it is back",
        _discovered(500, 2000, _FILES),
        (_JOINS, _DIES),
        *_notice(_FOUND, present=True, within_s=3.0),
        Notices(broker="a1", other="b1", present=False, after=_DEAD[0], most_s=4.0, view="discovery"),
        Notices(broker="a1", other="b1", present=True, after=_DEAD[1], most_s=3.0, view="discovery"),
        *_AROUND,
        seconds=18.0,
        source="AMQ 17.2.3",
    ),
    _scenario(
        "CL2",
        "file-short",
        "as CL2-file, but refresh-timeout is longer than the broker is away: its entry is not removed",
        _discovered(500, 10_000, _FILES),
        (_JOINS, _DIES),
        KeepsKnowing(broker="a1", others=("b1",), window=(_DEAD[0], "heal"), view="discovery"),
        *_AROUND,
        seconds=18.0,
        source="AMQ 17.2.3",
    ),
    _scenario(
        "CL2",
        "lost",
        "two brokers do not hear each other for longer than refresh-timeout: each removes the other's entry, "
        "and has it again when it hears the other; their links stand all the time",
        _discovered(500, 2000),
        _loses(5.0, 1.0),
        *_notice(_LOST[0], present=False, within_s=4.0),
        *_notice(_LOST[1], present=True, within_s=2.5),
        *_know("members"),
        _DELIVERS,
    ),
    _scenario(
        "CL2",
        "lost-short",
        "as CL2-lost, but refresh-timeout is longer: no entry is removed",
        _discovered(500, 8000),
        _loses(5.0, 1.0),
        *_know("discovery"),
        *_know("members"),
        _DELIVERS,
    ),
    _scenario(
        "CL2",
        "static",
        "as CL2-udp, but brokers are told of each other: they find the broker that joins them by "
        "static-connectors",
        {},
        _JOINS,
        *_notice(_FOUND, present=True, within_s=3.0, view="members"),
        Says(None, "discovery: ", times=0),
        _JOINED,
        source="AMQ 17.2.1",
    ),
    _scenario(
        "CL18",
        "flaps",
        "refresh-timeout is hardly longer than broadcast-period, and half of the datagrams are lost: entries "
        "come and go, and deliveries go on",
        _discovered(700, 800),
        _loses(20.0, 0.5),
        *(Flaps(broker=broker, other=other, least=2) for broker, other in _PAIRED),
        *_know("members"),
        _DELIVERS,
        seconds=26.0,
    ),
    _scenario(
        "CL18",
        "steady",
        "as CL18-flaps, but refresh-timeout is twenty times broadcast-period: no entry is removed",
        _discovered(700, 14_000),
        _loses(20.0, 0.5),
        *_know("discovery"),
        _DELIVERS,
        seconds=26.0,
    ),
)
