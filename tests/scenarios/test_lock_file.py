"""The lock file of a shared store rots under a killed live.

Its locks are the file server's, so nobody is live twice and nothing is lost.
"""

import io

import pytest

from checkers import api
from harness.interface import Fault, Schedule, TestSpec
from harness.run import session
from harness.run.compose import compose

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_lock_file_costs_nothing(cut, seed, tmp_path):
    spec = TestSpec(
        name="lock-file",
        policy="shared-store",
        pairs=1,
        environment="simulation",
        rate=60.0,
        producers=3,
        consumers=3,
        groups=4,
        time_limit_s=10.0,
        seed=seed,
    )
    rot = Fault(
        kind="disk-corrupt",
        start_s=3.0,
        duration_s=3.0,
        target="live",
        options={"files": "*.lock", "cut": cut},
    )
    outcome = session.execute(
        compose(spec, Schedule(faults=(rot,))),
        tmp_path,
        io.StringIO(),
        spark=api.start_in_background(),
    )
    assert outcome.verdict is not None
    assert outcome.verdict.valid is True, outcome.verdict.reasons
    assert not outcome.verdict.findings
