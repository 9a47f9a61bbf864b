"""The scenarios of clients with an address list, row CV12 (Java MQ, part 2)."""

from __future__ import annotations

from typing import Any, Final

from harness.claims.scenarios.cases import fault, faults, load
from harness.claims.scenarios.client_expectations import Connects, Recovers
from harness.claims.scenarios.expectations import Expectation
from harness.claims.scenarios.scenario import Scenario
from harness.interface import Fault

_LIST: Final = ("b1", "c1", "a1")
"""A list that is neither sorted nor in the order of the brokers' names."""
_KILL_FIRST: Final = fault("kill", 4.0, 4.0, "b1")
_KILL_ALL: Final = fault("kill", 4.0, 5.0, "all")


def _listed(
    case: str,
    claim: str,
    injected: Fault,
    *besides: Expectation,
    required: tuple[str, ...] = (),
    **fields: Any,
) -> Scenario:
    """Return a scenario of three brokers, whose clients have one list of them."""
    spec = load(
        f"cv12-{case}", "conventional", 14.0, pairs=3, clients=6, rate=20.0, workload="queue",
        client_brokers=_LIST, client_feed=False, client_states=True, **fields,
    )  # fmt: skip
    return Scenario(
        id=f"CV12-{case}", claim=claim, source="CAPS, client-side parameters", spec=spec,
        schedule=faults(injected), required=required, besides=besides,
    )  # fmt: skip


SCENARIOS: Final = (
    _listed(
        "priority",
        "PRIORITY: all clients use the first broker of their list; when it is killed they go on at the next "
        "one, through the documented states in order",
        _KILL_FIRST,
        Connects(brokers={"b1": (12, 60), "c1": (8, 60)}),
        Recovers(of="b1", tried=("b1",), to=("c1",), after="kill-1", least=8),
    ),
    _listed(
        "random",
        "RANDOM: clients spread over the brokers of their list; those of a killed broker go on at either of "
        "the others",
        _KILL_FIRST,
        Connects(brokers=dict.fromkeys(_LIST, (1, 40))),
        Recovers(of="b1", tried=("b1",), to=("c1", "a1"), after="kill-1"),
        client_order="RANDOM",
    ),
    _listed(
        "all-down",
        "with the whole cluster down, clients go round their list once in each reconnect interval, until a "
        "broker returns",
        _KILL_ALL,
        Recovers(of="b1", tried=_LIST, to=_LIST, after="kill-1", rounds=(3, 3), every_s=1.0, least=8),
        client_interval_s=1.0,
    ),
    _listed(
        "iterations",
        "as CV12-all-down, but with a bound on the iterations: clients give up after so many rounds, and "
        "none returns to the restarted brokers",
        _KILL_ALL,
        Recovers(of="b1", tried=_LIST, to=(), after="kill-1", rounds=(2, 2), least=8),
        required=("not-recovered",),
        client_interval_s=1.0,
        client_iterations=2,
    ),
)
