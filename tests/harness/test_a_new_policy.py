"""A new policy of our broker: files of its own, and an entry in each of four registries."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mutants.changed import ROOT, Replacement, grow, variables

SECTION = '''
from __future__ import annotations
from typing import Annotated
from msgspec import Meta
from broker.ha_policy.section import PolicySection

class HermitSection(PolicySection, frozen=True, kw_only=True):
    """A broker that wants no company."""
    cell: Annotated[int, Meta(ge=1)] = 1
    """The number of its cell."""

    def problem(self, cluster, database):
        return "ha-policy.hermit.cell is 13: no hermit lives there" if self.cell == 13 else ""
'''
POLICY = '''
from broker.policies.solo import SoloPolicy

class HermitPolicy(SoloPolicy):
    """The policy "hermit"."""
    name = "hermit"

def create(config, seams, volume, database):
    return HermitPolicy(config, seams, volume)
'''
OF_TESTS = '''
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

class Hermit(Policy):
    """Brokers that each live alone."""
    name = "hermit"
    description = "brokers without company"
    configured = ("hermit",)
    traits = ("hermits",)
    events = needing("hermits", {"hermit/served": event("a hermit began to serve", r"serving STOMP on")})

    def defaults(self, node, nodes, hosts):
        return {"ha-policy.hermit.cell": 7}
'''
SCENARIO = """
from harness.claims.scenarios.cases import SLOW, fault, faults, load
from harness.claims.scenarios.scenario import Scenario

SCENARIOS = (
    Scenario(
        id="LO1", claim="what a hermit has is there after its restart", source="test",
        spec=load("lo1", "hermit", 11.0, pairs=1, **SLOW), schedule=faults(fault("kill", 3.0, 1.0)),
    ),
)
"""  # fmt: skip


def added(path, after, line):
    return Replacement(path, after, after + line)


CHANGES = (
    Replacement("broker/ha_policy/hermit.py", "", SECTION),
    Replacement("broker/policies/hermit.py", "", POLICY),
    Replacement("harness/systems/own/policies/hermit.py", "", OF_TESTS),
    Replacement("harness/claims/scenarios/hermit.py", "", SCENARIO),
    added(
        "broker/ha_policy/__init__.py",
        "from broker.ha_policy.ha_database import HaDatabaseSection\n",
        "from broker.ha_policy.hermit import HermitSection\n",
    ),
    added(
        "broker/ha_policy/__init__.py",
        "    multi_instance: MultiInstanceSection | None = None\n",
        "    hermit: HermitSection | None = None\n",
    ),
    added(
        "broker/policies/registry.py",
        '    STANDALONE: RegisteredPolicy("broker.policies.standalone"),\n',
        '    "hermit": RegisteredPolicy("broker.policies.hermit", "its cell"),\n',
    ),
    added(
        "harness/systems/own/policies/registry.py",
        "from harness.systems.own.policies.ha_database import HaDatabase\n",
        "from harness.systems.own.policies.hermit import Hermit\n",
    ),
    Replacement("harness/systems/own/policies/registry.py", "Conventional())", "Conventional(), Hermit())"),
    Replacement(
        "harness/claims/scenarios/registry.py",
        "    *subscriptions.SCENARIOS,\n",
        "    *subscriptions.SCENARIOS,\n    *hermit.SCENARIOS,\n",
    ),
    Replacement(
        "harness/claims/scenarios/registry.py", "    multi_instance,\n", "    hermit,\n    multi_instance,\n"
    ),
)

ASKED = """
from broker import config
from broker.ctl import _replication
from harness.claims.scenarios import named
from harness.claims.scenarios.seen import ObservedRun
from harness.history import coverage
from harness.run.simulate import simulate
from harness.systems import registry

scenario = named("LO1")
ran = simulate(scenario.spec, scenario.schedule)
judgement = scenario.judge(ObservedRun.of_simulated(ran))
print(ran.trouble, judgement.problem, judgement.undecided)
print(ran.coverage["hermit/served"])
system = registry.of(scenario.spec)
print(system.policies["hermit"].description)
nodes = system.plan(scenario.spec)
for name in ("hermit", "standalone"):
    traits = system.policies[name].traits
    print("hermit/served" in coverage.possible(nodes, (), "groups", system.events, traits))
print(_replication({"policy": "hermit", "role": "live", "replicating": False}))
try:
    config.validate({"broker": {"name": "a"}, "ha-policy": {"hermit": {"cell": 13}}})
except config.ConfigurationError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_new_policy_has_files_of_its_own_and_entries_in_four_registries(tmp_path):
    registries = {change.path for change in CHANGES if change.old}
    assert registries == {
        "broker/ha_policy/__init__.py",
        "broker/policies/registry.py",
        "harness/systems/own/policies/registry.py",
        "harness/claims/scenarios/registry.py",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASKED],
        env=variables(grow(tmp_path, CHANGES), ROOT), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "None  ",
        "2",
        "brokers without company",
        "True",
        "False",
        "not needed: messages are in its cell",
        "broker.toml: ha-policy.hermit.cell is 13: no hermit lives there",
    ], done.stderr
