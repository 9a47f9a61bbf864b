"""Everything that a search can draw occurs in the histories of the innocent cluster."""

from __future__ import annotations

import msgspec
import pytest
from counterparts import COUNTERPARTS
from innocent_cluster import World

from harness.explore import swarm as drawing
from harness.history import spec as specs
from harness.systems import registry as systems

RUNS = 60
"""Twice as many as it takes to draw everything once."""
SEEDS = 300


def drawn():
    """Return all that searches draw for any policy of our broker, as the table names it."""
    found = set()
    for policy in systems.get("own").policies:
        base = specs.build({**drawing.DEFAULTS, "policy": policy, "name": "x", "workload": "mixed"})
        swarm = drawing.swarm(base)
        found |= {f"fault {kind}" for kind in swarm.kinds}
        found |= {f"property {name}" for name in systems.of(base).drawn(base, swarm.nodes)}
        for number in range(RUNS):
            spec, schedule = drawing.draw(swarm, f"counterparts/{number}")
            found |= set(of_run(base, spec, schedule, {node.name for node in swarm.nodes}))
    return found


def of_run(base, spec, schedule, nodes):
    for field in msgspec.structs.fields(spec):
        if getattr(spec, field.name) != getattr(base, field.name):
            yield f"field {field.name}"
    yield from (f"property {name}" for name in spec.properties["*"])
    yield from (f"workload {part.partition(':')[0]}" for part in spec.workload.split(","))
    for fault in schedule.faults:
        yield f"fault {fault.kind}"
        yield from (f"option {fault.kind}.{name}" for name in fault.options if name != "pair")
        if fault.shape is not None:
            yield f"shape {fault.shape}"
        if fault.target is not None and not {*fault.target.split(",")} <= nodes:
            yield f"target {fault.target}"
        elif fault.target is not None and "," in fault.target:
            yield "target of several names"


@pytest.mark.slow
def test_whatever_a_search_draws_has_a_counterpart():
    assert drawn() == set(COUNTERPARTS)


@pytest.mark.slow
def test_every_counterpart_occurs():
    missing = dict(COUNTERPARTS)
    for seed in range(SEEDS):
        rows = World(seed).run()
        missing = {name: occurred for name, occurred in missing.items() if not occurred(rows)}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("name", ["field send_again", "fault kill", "field churn"])
def test_a_counterpart_is_not_in_every_history(name):
    assert not all(COUNTERPARTS[name](World(seed).run()) for seed in range(10))
