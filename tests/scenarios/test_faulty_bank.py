"""A broker that commits in two entries, and what the bank says of it."""

from __future__ import annotations

import subprocess
import sys

from mutants.changed import ROOT, grow, variables
from mutants.refuters import REFUTERS

KILLED = """
from harness.history import spec as specs
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate
given = {"workload": "bank", "pairs": 1, "time_limit_s": 8.0, "hold_s": 0.1, "seed": 1}
ran = simulate(specs.build(given), Schedule(faults=(Fault(kind="kill", start_s=4.0),)))
assert ran.trouble is None, ran.trouble
print(*sorted(ran.grave))
"""


def found(tmp_path, replacements):
    """What a bank finds whose broker is killed."""
    place = grow(tmp_path, replacements) if replacements else ROOT
    ran = subprocess.run(
        [sys.executable, "-P", "-c", KILLED],
        env=variables(place, ROOT), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(ran.stdout.split())


def test_money_is_missing_where_a_commit_is_two_entries(tmp_path):
    assert "wrong-total" in found(tmp_path, REFUTERS["TX1"].changes)


def test_nothing_is_missing_where_it_is_one(tmp_path):
    assert not found(tmp_path, ())
