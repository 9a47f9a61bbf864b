"""The power goes out under real brokers.

One that syncs loses nothing, one that only says so loses what it had promised.
"""

import io
import sys

import pytest

from checkers import api
from harness.interface import Fault, Schedule, TestSpec
from harness.run import session
from harness.run.compose import compose
from harness.systems import registry as systems
from harness.systems.own.system import OwnSystem

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.spark]

SPEC = TestSpec(
    name="power",
    policy="standalone",
    pairs=1,
    environment="local",
    rate=150,
    producers=4,
    time_limit_s=5.0,
    recovery_bound_s=8.0,
    seed=1,
)
SCHEDULE = Schedule(
    faults=tuple(
        Fault(kind="power-loss", start_s=start_s, duration_s=0.3, target="a1") for start_s in (1.5, 3.5)
    )
)

LIAR = (
    "import os, runpy, sys; os.fsync = os.fdatasync = lambda descriptor: None; "
    "runpy.run_module('broker.daemon', run_name='__main__', alter_sys=True)"
)


def verdict(tmp_path):
    outcome = session.execute(
        compose(SPEC, SCHEDULE), tmp_path, io.StringIO(), spark=api.start_in_background()
    )
    assert outcome.verdict is not None
    return outcome.verdict


def test_a_broker_that_syncs_keeps_every_promise(tmp_path):
    found = verdict(tmp_path)
    assert found.valid, found.reasons
    assert not found.findings


@pytest.mark.in_turn
def test_a_broker_that_only_says_it_synced_is_found_out(tmp_path, monkeypatch):
    """It takes some 30 s: a run on processes loses its power, and is drained to its end."""

    class Lying(OwnSystem):
        def command(self, layout):
            return [sys.executable, "-c", LIAR, *super().command(layout)[3:]]

    monkeypatch.setattr(systems, "of", lambda spec: Lying())
    found = verdict(tmp_path)
    # What it had promised is gone; or so little of its journal is left whole that it rightly
    # refuses to serve from it.
    assert found.valid is False
    assert {"lost", "not-recovered"} & {finding.name for finding in found.findings}
